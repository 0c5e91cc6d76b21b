"""Signal handlers of the main thread: kept out of moments that must not be cut short, and shared by the watches.

Python runs signal handlers in the main thread, between any two of its instructions, and they may raise: Ctrl-C does,
and so does torch's handler for dead workers.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

_PIDS = re.compile(r"pid(?:\(s\))? ([\d, ]+)")


class Interrupted(BaseException):
    """Raised by a watch inside a call that has not returned in time. Not an Exception, so that nobody's
    `except Exception` takes it for an error of the data."""


def on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def cleanup_signals() -> tuple[int, ...]:
    """What can raise in the main thread at any moment."""
    names = ("SIGCHLD", "SIGALRM", "SIGTERM", "SIGINT")
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


@contextmanager
def held(*numbers: int, second_passes: bool = False) -> Iterator[None]:
    """Handlers of these signals run after the block instead of inside it (a no-op off the main thread).

    second_passes: the same signal a second time is let through at once: an impatient Ctrl-C still works.
    """
    if not on_main_thread():
        yield
        return
    owner, came, previous = os.getpid(), [], {}

    def later(number, frame):
        if os.getpid() != owner or (second_passes and number in came):
            previous[number](number, frame)  # a process forked inside the block behaves as if it were not there
        else:
            came.append(number)

    try:
        for number in numbers:
            if callable(handler := signal.getsignal(number)):
                previous[number] = handler
                signal.signal(number, later)
        yield
    finally:
        for number, handler in previous.items():
            if signal.getsignal(number) is later:
                signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def run_to_the_end(cleanup: Callable[[], None]) -> None:
    """Run a clean-up that may be run again, whatever signals come meanwhile; what they raise is raised afterwards."""
    try:
        with held(*cleanup_signals()):
            cleanup()
    except BaseException:
        # Before the handlers were held back, or after: the second run then finds nothing to do.
        with held(*cleanup_signals()):
            cleanup()
        raise


class Watched(Protocol):
    """What the handlers must know of a watch."""

    worker_pids: tuple[int, ...]
    late_error: Exception | None

    @property
    def inside(self) -> bool:
        """Whether the main thread is inside a call that the watch guards."""


class MainThreadHandlers:
    """SIGALRM and SIGCHLD while at least one loader is watched on the main thread; the previous ones afterwards.

    SIGALRM ends a guarded call that a watch has called out; any other alarm goes to the previous handler.
    SIGCHLD: torch raises its news of a dead worker inside whatever the main thread is doing. Outside the guarded
    calls that would be the reader's own step, so there it is kept for the next guarded call.
    """

    def __init__(self):
        self._users: list[Watched] = []
        self._previous: dict[int, object] = {}
        self._called_out: Watched | None = None
        self._sent = self._seen = 0

    def join(self, user: Watched) -> str:
        """Guard this watch's calls against hanging. Returns "", or why that cannot be done."""
        if not hasattr(signal, "pthread_kill") or not hasattr(signal, "SIGALRM"):
            return "this platform has no signal that could end a blocked call of the main thread"
        if not self._install(signal.SIGALRM, self._on_alarm):
            return "SIGALRM has a handler outside Python, which cannot be put back"
        self._users.append(user)
        return ""

    def expect_deaths(self) -> None:
        """Call after torch has made its workers: its own handler must be the one below ours."""
        if self._users and callable(signal.getsignal(signal.SIGCHLD)):
            self._install(signal.SIGCHLD, self._on_death)

    def leave(self, user: Watched) -> None:
        """End the guard of this watch; the last one puts the handlers back."""
        if user in self._users:
            self._users.remove(user)
        if self._called_out is user:
            self._called_out = None
        if self._users or not on_main_thread():
            return
        for number in list(self._previous):
            previous = self._previous.pop(number)
            # A handler set by someone else meanwhile is theirs to keep.
            if signal.getsignal(number) in (self._on_alarm, self._on_death):
                signal.signal(number, previous)

    def interrupt(self, user: Watched) -> None:
        """Raise Interrupted in the main thread, if it is still inside a guarded call of this watch."""
        self._called_out = user
        self._sent += 1
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    def _install(self, number: int, handler) -> bool:
        if number in self._previous:
            return True
        previous = signal.getsignal(number)
        if previous is None:  # set outside Python
            return False
        self._previous[number] = previous
        signal.signal(number, handler)
        return True

    def _on_alarm(self, number, frame) -> None:
        if self._seen >= self._sent:
            _pass_on(self._previous.get(number, signal.SIG_DFL), number, frame)
            return
        # Counted one by one: two of ours may melt into one, and one alarm of someone else's is then lost. The other
        # way round, one of ours passed on as theirs, could end the process.
        self._seen += 1
        user, self._called_out = self._called_out, None
        if user is not None and user.inside:
            raise Interrupted

    def _on_death(self, number, frame) -> None:
        try:
            _pass_on(self._previous.get(number, signal.SIG_DFL), number, frame)
        except RuntimeError as error:
            user = self._whose(error)
            if user is None or user.inside:
                raise
            user.late_error = error.with_traceback(None)

    def _whose(self, error: Exception) -> Watched | None:
        named = {int(pid) for found in _PIDS.finditer(str(error)) for pid in re.findall(r"\d+", found[1])}
        return next((user for user in self._users if named & set(user.worker_pids)), None)


def _pass_on(handler, number: int, frame) -> None:
    """Do what the signal would have done without us."""
    if callable(handler):
        handler(number, frame)
    elif handler == signal.SIG_DFL and number != getattr(signal, "SIGCHLD", None):
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)


HANDLERS = MainThreadHandlers()
