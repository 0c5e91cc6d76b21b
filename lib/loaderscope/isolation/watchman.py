"""The thread that looks after a watched loader: it sees a call that does not return, and ends it from outside."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

from loaderscope.isolation import faults, signals, stacks
from loaderscope.records import NotMeasured, Outcome, is_measured

if TYPE_CHECKING:
    from loaderscope.isolation.watch import WatchedLoader

# Four looks a second: a hang is seen 0.25 s late at most, at a cost that cannot be measured.
POLL_S = 0.25
_STOP_S = 6.0


class Watchman:
    """Watches the calls of one WatchedLoader. `verdict` is set when it has ended one."""

    def __init__(self, source: WatchedLoader):
        self.source = source
        self.verdict: Outcome | None = None
        self.settled = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loaderscope-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(_STOP_S)

    def _run(self) -> None:
        seen, cpu = None, None
        while not self._stop.wait(POLL_S):
            since = self.source.since
            if since is None or self.verdict is not None:
                continue
            if since != seen:
                seen, cpu = since, None
            elif cpu is None:
                cpu = self.source.cpu_now()  # only in a call that lasts: most return before the second look
            if self.source.clock.now() - since > self.source.deadline_s:
                self._end_call(since, cpu)

    def _end_call(self, since: float, cpu_before: float | NotMeasured | None) -> None:
        """Judge the call that began at `since`, end the workers and bring the call back.

        The caller sets `since` to None and then reads `fired`; here it is the other way round. So at least one side
        sees the other, and a call that returns at this very moment is not taken for a hang.
        """
        source = self.source
        self.settled.clear()
        source.fired = True
        if source.since != since:
            source.fired = False
            self.settled.set()
            return
        try:
            self.verdict = self._judge(source.clock.now() - since, cpu_before)
            if source.workers is not None:
                source.workers.keep_quiet()
                source.workers.kill()
            self._bring_back(since)
        finally:
            self.settled.set()

    def _judge(self, elapsed: float, cpu_before: float | NotMeasured | None) -> Outcome:
        try:
            return self.source.hang_outcome(elapsed, cpu_before, self._thread.ident)
        except Exception as error:
            # Stacks and CPU time are extras: without them the call must still be ended.
            text = f"the stacks could not be read: {type(error).__name__}: {error}"
            told = {"deadline_s": self.source.deadline_s, "batches": self.source.batches, "error_text": text}
            return Outcome("hang", where="main" if self.source.workers is None else "worker", elapsed_s=elapsed, **told)

    def _bring_back(self, since: float) -> None:
        """Interrupt the call until it has returned; what holds the GIL or never returns to Python cannot be."""
        while self.source.since == since:
            if self.source.guarded_by_signal:
                signals.HANDLERS.interrupt(self.source)
            else:
                raise_in_thread(self.source.thread, signals.Interrupted)
            if self._stop.wait(POLL_S):
                return


def raise_in_thread(ident: int, exception: type[BaseException] | None) -> None:
    """Raise in another thread when it next runs Python code (None: take back what has not been raised yet)."""
    value = None if exception is None else ctypes.py_object(exception)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), value)


def used_since(now: float | NotMeasured, before: float | NotMeasured | None) -> float | NotMeasured:
    """CPU seconds used during the wait (all of them where the wait was too short to be seen beginning)."""
    return now - before if is_measured(now) and is_measured(before) else now


def judge(source: WatchedLoader, elapsed: float, cpu_before, without: int = 0, error_text: str = "") -> Outcome:
    """The Outcome of a call that has not returned: stacks here and in the workers, and CPU used meanwhile.

    without: the thread that judges. error_text: the loader's own timeout, which has already brought the call back.
    """
    own = () if error_text else stacks.own_stacks(source.thread, (without,))
    theirs = source.workers.stacks(source.folder) if source.workers is not None and source.folder else ()
    told = {"elapsed_s": elapsed, "deadline_s": source.deadline_s, "batches": source.batches}
    told["cpu_s"] = used_since(source.cpu_now(), cpu_before)
    in_worker = bool(error_text) or faults.waits_for_workers(own[0].frames if own else ())
    where, order = ("worker", theirs + own) if in_worker else ("main", own + theirs)
    return Outcome("hang", where=where, stacks=order, error_text=error_text, **told)
