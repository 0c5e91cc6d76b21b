"""A measurement in the background: start it, stop it, see how far it is. Knows nothing of widgets.

A click that arrives while a cell is busy waits for the cell, so what a button starts runs in a thread of its own. Stop
reaches that thread as the notebook's own ■ reaches a cell, as a KeyboardInterrupt: whatever answers Ctrl-C with a
partial result answers Stop the same way.
"""

from __future__ import annotations

import atexit
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from loaderscope.clock import SYSTEM
from loaderscope.records import NotMeasured
from loaderscope.views import interrupts

GAP_S = 0.1  # at most ten messages a second go to the browser
TICK_S = 1.0  # and one a second while nothing new was said, so that the time left counts down
# A second Stop interrupts again, for code that swallowed the first; any sooner it would hit the tidying up.
AGAIN_S = 5.0
LOOK_S = 0.01  # how often a job that shall stop is looked at for a moment when an interrupt does no harm
LEAVE_S = 2.0  # how long the end of the interpreter waits for a job to tidy up
ALMOST = 0.99  # a job that takes longer than expected is not shown as complete

_NOTHING_TOLD = NotMeasured("no progress was told yet")


@dataclass(frozen=True)
class Status:
    """A job at one moment.

    state: "idle", "running", "stopping", "done", "stopped" or "failed". text: what is being done. share: how much of
    it is done, 0..1. elapsed_s: seconds since the start, or of the whole run once it is over. left_s: seconds still
    to go, estimated. partial: the last partial result that was told. result: what the last run that gave a result
    gave; fresh: whether this run gave it. error: what a failed run raised, trace: its traceback as text.
    """

    state: str = "idle"
    text: str = ""
    share: float = 0.0
    elapsed_s: float = 0.0
    left_s: float | NotMeasured = _NOTHING_TOLD
    partial: Any = None
    result: Any = None
    fresh: bool = False
    error: BaseException | None = None
    trace: str = ""

    @property
    def running(self) -> bool:
        return self.state in ("running", "stopping")


@dataclass(frozen=True)
class _Told:
    text: str = ""
    share: float | None = None
    partial: Any = None
    at: float = 0.0


Listener = Callable[[Status], None]


class Job:
    """Runs `fn(job)` in a daemon thread, one run at a time.

    Args:
        fn: called with the job. It may call `expect` and `progress`; what it returns is the result. A
            KeyboardInterrupt in it means Stop: catch it and return what there is, or let it pass.
        listeners: called with a Status at every change of state and at most ten times a second in between, from
            whichever thread made the change, one at a time and never from inside `fn`.
        clock: for the time left.
    """

    def __init__(self, fn: Callable[[Job], Any], listeners: Iterable[Listener] = (), *, clock=SYSTEM):
        self._fn, self._listeners, self._clock = fn, list(listeners), clock
        self._lock, self._telling = threading.Lock(), threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._phase = "ended"  # "starting", "inside" (fn runs, an interrupt reaches it and nothing else) or "ended"
        self._due, self._asked_at = False, None  # whether an interrupt is to be sent; when Stop was last heeded
        self._told, self._expected_s, self._began, self._took = _Told(), None, 0.0, 0.0
        self._state, self._result, self._fresh = "idle", None, False
        self._error: BaseException | None = None
        self._trace = ""
        self.listener_error: Exception | None = None

    @property
    def state(self) -> str:
        return self._state

    @property
    def result(self) -> Any:
        """What the last run that gave a result gave; it stays while the next one is going."""
        return self._result

    @property
    def error(self) -> BaseException | None:
        """What the last run raised, with its frames emptied so that it keeps no loader alive."""
        return self._error

    @property
    def stopping(self) -> bool:
        return self._state == "stopping"

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def start(self) -> bool:
        """Start a run; False, and nothing else, while one is going."""
        with self._lock:
            if self._thread is not None and self._thread.is_alive():
                return False
            self._over.clear()
            self._told, self._expected_s, self._began = _Told(), None, self._clock.now()
            self._state, self._fresh, self._error, self._trace = "running", False, None, ""
            self._due, self._asked_at, self._phase = False, None, "starting"
            self._start_threads()
        self._tell()
        return True

    def stop(self) -> bool:
        """Ask the run to end and return at once; False where none is going.

        `fn` gets a KeyboardInterrupt at the next moment when that does no harm (see `interrupts`), a tenth of a
        second later as a rule: what it waits for in C, and workers that are just started or ended, come first.
        """
        with self._lock:
            if self._phase == "ended":
                return False
            now = self._clock.now()
            if self._asked_at is None or now - self._asked_at >= AGAIN_S:
                self._asked_at, self._due = now, True
            self._state = "stopping"
        self._tell()
        return True

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the run to end and return what it gave (None where it was stopped before it gave anything).

        Raises:
            TimeoutError: it is still going after `timeout` seconds.
            BaseException: what `fn` raised.
        """
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError(f"the job is still {self._state} after {timeout} s; stop() ends it")
        if self._error is not None:
            raise self._error
        return self._result if self._fresh else None

    def status(self) -> Status:
        """The job as it is now."""
        with self._lock:
            elapsed = self._took if self._phase == "ended" else self._clock.now() - self._began
            share, left = self._estimate(elapsed)
            return Status(
                self._state, self._told.text, share, elapsed, left, self._told.partial,
                self._result, self._fresh, self._error, self._trace,
            )  # fmt: skip

    # --- from inside fn --------------------------------------------------------------------------------------------

    def expect(self, seconds: float) -> None:
        """Say how long this run will take, where that is known: share and time left then follow the clock."""
        self._expected_s = float(seconds)

    def progress(self, text: str, share: float | None = None, partial: Any = None) -> bool:
        """Say what is being done and how much of it is done (0..1); cheap, may be called in a hot loop.

        Args:
            partial: what there is so far; kept when the next call gives none. It becomes the result of a run that
                is stopped before `fn` returns.

        Returns:
            False once Stop was asked for.
        """
        before = self._told
        kept = before.partial if partial is None else partial
        known = before.share if share is None else min(1.0, max(0.0, float(share)))
        # One assignment and no lock: an interrupt may arrive anywhere here, also between taking a lock and holding it.
        self._told = _Told(str(text), known, kept, self._clock.now() - self._began)
        return not self.stopping

    # --- the run ---------------------------------------------------------------------------------------------------

    def _start_threads(self) -> None:
        teller = threading.Thread(target=self._tell_while_running, name="loaderscope-progress", daemon=True)
        self._thread = threading.Thread(target=self._run, args=(teller,), name="loaderscope-job", daemon=True)
        atexit.register(self._leave)
        try:
            teller.start()
            self._thread.start()
        except RuntimeError as error:  # the process may have no more threads
            atexit.unregister(self._leave)
            self._over.set()
            self._phase, self._state, self._error, self._trace = "ended", "failed", error, str(error)

    def _run(self, teller: threading.Thread) -> None:
        given: list[Any] = []
        raised: list[BaseException] = []
        try:
            try:
                self._enter()
                # Filled in C: an interrupt that arrives as fn returns cannot lose what it returned.
                given.extend(map(self._fn, (self,)))
            except BaseException as error:
                raised.append(error)
            self._shut()
        except KeyboardInterrupt:  # sent while fn ran, arrived when it had ended
            self._shut()
        self._over.set()
        teller.join()
        self._conclude(given, raised)
        atexit.unregister(self._leave)
        self._tell()

    def _enter(self) -> None:
        with self._lock:
            if self._due:
                self._due = False
                raise KeyboardInterrupt
            self._phase = "inside"

    def _interrupt(self) -> None:
        with self._lock:
            if self._due and self._phase == "inside":
                self._due = not interrupts.interrupt(self._thread, end=Job._run.__code__)

    def _shut(self) -> None:
        """From here on no interrupt is sent, and one that is under way is called back."""
        with self._lock:
            self._phase = "ended"
            self._took = self._clock.now() - self._began
            interrupts.call_back(threading.current_thread())

    def _conclude(self, given: list[Any], raised: list[BaseException]) -> None:
        error = raised[0] if raised and not isinstance(raised[0], KeyboardInterrupt) else None
        trace = _empty(error) if error is not None else ""
        with self._lock:
            stopped = self._asked_at is not None or not given
            if not given and error is None and self._told.partial is not None:
                given = [self._told.partial]
            if given:
                self._result, self._fresh = given[0], True
            self._error, self._trace = error, trace
            self._state = "failed" if error is not None else "stopped" if stopped else "done"

    def _tell_while_running(self) -> None:
        """Tell listeners what is new, from a thread that no interrupt reaches: half a message would be worse."""
        told, at = self._told, self._clock.now()
        while not self._over.wait(LOOK_S if self._due else GAP_S):
            if self._due:
                self._interrupt()
            elif self._told is not told or self._clock.now() - at >= TICK_S:
                told, at = self._told, self._clock.now()
                self._tell()

    def _tell(self) -> None:
        # The status is read under the same lock, so a late message never shows an earlier state.
        with self._telling:
            status = self.status()
            for listener in tuple(self._listeners):
                try:
                    listener(status)
                except Exception as error:
                    self.listener_error = error

    def _estimate(self, elapsed: float) -> tuple[float, float | NotMeasured]:
        """Share done, and seconds left."""
        if self._state == "done":
            return 1.0, 0.0
        told, expected = self._told, self._expected_s
        share = told.share or 0.0
        if expected:
            return max(share, min(ALMOST, elapsed / expected)), max(0.0, expected - elapsed)
        if share <= 0:
            return 0.0, _NOTHING_TOLD
        return share, max(0.0, told.at / share - elapsed)

    def _leave(self) -> None:
        """The interpreter ends: let the run tidy up, but do not wait for one that does not listen."""
        self.stop()
        if self._thread is not None:
            self._thread.join(LEAVE_S)


def _empty(error: BaseException) -> str:
    """The traceback as text; then its frames are emptied, because their variables keep loaders and workers alive."""
    text = "".join(traceback.format_exception(error))
    chain: list[BaseException] = [error]
    for link in chain:
        traceback.clear_frames(link.__traceback__)
        chain += [e for e in (link.__cause__, link.__context__) if e is not None and e not in chain]
    return text
