"""Iterate a loader in this process, safely: what raises, dies or hangs becomes a LoaderFault."""

from __future__ import annotations

import contextlib
import inspect
import shutil
import signal
import threading
import traceback
from pickle import UnpicklingError
from typing import Any, NoReturn

from loaderscope.clock import SYSTEM
from loaderscope.errors import BadInputError
from loaderscope.isolation import faults, inside, signals
from loaderscope.isolation.faults import LoaderFault
from loaderscope.isolation.signals import HANDLERS, Interrupted
from loaderscope.isolation.watchman import Watchman, judge, raise_in_thread
from loaderscope.isolation.workers import WorkerInit, Workers, find_iterator, frames_of_thread, iterator_in_frames
from loaderscope.records import NotMeasured, Outcome, is_measured

# What a dead worker can look like from here; the workers' exit codes decide, and may come a moment later.
_DEATH_NOTICES = (RuntimeError, OSError, EOFError, UnpicklingError)
_NOTICE_S = 0.5


def watched(loader: Any, *, deadline_s: float, clock=SYSTEM, owned: bool = True) -> WatchedLoader:
    """A context manager that iterates `loader` under watch.

        with watched(copy, deadline_s=15) as source:
            source.start()
            while True:
                try:
                    batch = source.next()
                except StopIteration:
                    break

    Args:
        loader: a DataLoader or any iterable of batches.
        deadline_s: how long one `start()` or `next()` may take; the caller's own step between them does not count.
        owned: the loader is a private copy. It is given a worker_init_fn that makes its workers tell their stacks
            (put back at the end), and persistent workers end with the watch. Otherwise it is left as it is: no
            stacks of workers, and persistent workers that ran before go on running.
    """
    if not hasattr(type(loader), "__iter__") and not hasattr(type(loader), "__getitem__"):
        raise BadInputError(
            "Only something that can be iterated can be watched",
            seen=type(loader).__name__,
            way_out="pass a DataLoader or another iterable of batches",
        )
    if not deadline_s > 0:
        raise BadInputError("A deadline must be positive", seen=repr(deadline_s), way_out="give seconds, e.g. 15")
    return WatchedLoader(loader, deadline_s, clock, owned)


class WatchedLoader:
    """Made by `watched`. Use it on one thread.

    batches: batches so far, over all epochs. worker_pids: of the current epoch, () without workers.
    unguarded: "" or why a hang outside worker processes could go unnoticed here.
    """

    def __init__(self, loader: Any, deadline_s: float, clock, owned: bool):
        self.loader, self.deadline_s, self.clock, self.owned = loader, deadline_s, clock, owned
        self.batches, self.worker_pids, self.unguarded = 0, (), ""
        # Read by the watching thread and the signal handlers.
        self.since: float | None = None
        self.fired, self.late_error, self.guarded_by_signal = False, None, False
        self.thread = threading.get_ident()
        self.workers: Workers | None = None
        self.folder = ""
        self._now, self._fetch = clock.now, None
        self._seek_workers = self._hung = False
        self._iterator: Any = None
        self._ended_cpu: list[float | NotMeasured] = []
        self._found_running = getattr(loader, "_iterator", None) is not None
        self._watchman: Watchman | None = None

    # --- the watch ------------------------------------------------------------------------------------------------

    def __enter__(self) -> WatchedLoader:
        try:
            with signals.held(signal.SIGINT):
                self._set_up()
        except BaseException:
            self.close()
            raise
        return self

    def _set_up(self) -> None:
        self.thread = threading.get_ident()
        if signals.on_main_thread():
            self.unguarded = HANDLERS.join(self)
            self.guarded_by_signal = not self.unguarded
        else:
            self.unguarded = "not on the main thread: a call that never returns to Python cannot be ended from outside"
        if self.owned and getattr(self.loader, "num_workers", 0) and hasattr(self.loader, "worker_init_fn"):
            self.folder = inside.new_folder()
            self.loader.worker_init_fn = WorkerInit(self.folder, self.loader.worker_init_fn)
        self._watchman = Watchman(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers, the watch and all it has set up. Takes up to a few seconds when a worker is busy."""
        try:
            signals.run_to_the_end(self._take_down)
        finally:
            HANDLERS.leave(self)

    def _take_down(self) -> None:
        self.since = None
        if self._watchman is not None:
            self._watchman.stop()
        self._end_epoch(last=True)
        if self.folder:
            if isinstance(self.loader.worker_init_fn, WorkerInit):
                self.loader.worker_init_fn = self.loader.worker_init_fn.original
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""

    @property
    def inside(self) -> bool:
        return self.since is not None

    # --- iterating ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin an epoch: make the iterator, which starts the workers. An epoch not read to its end is dropped.

        A first Ctrl-C waits until the workers are started (a second one does not): between a worker's start and
        torch's note of it, it would leave a worker behind that nobody knows.

        Raises:
            LoaderFault: the iterator could not be made, or not before the deadline.
        """
        self._end_epoch(last=False)
        self.fired, self.late_error, self._watchman.verdict = False, None, None
        self.since = started = self._now()
        try:
            with signals.held(signal.SIGINT, second_passes=True):
                self._iterator = iter(self.loader)
        except BaseException as error:
            self.since = None
            self._raise(error, started)
        self.since = None
        self._fetch = self._iterator.__next__
        self._find_workers()
        # A generator starts its loader with the first batch.
        self._seek_workers = self.workers is None and bool(getattr(self.loader, "num_workers", 0))
        if self.fired:
            self._await_watchman()

    def next(self) -> Any:
        """The next batch. Costs under 2 µs on top of the loader's own time.

        Raises:
            StopIteration: the epoch is over.
            LoaderFault: the loader raised, a worker died, or nothing came before the deadline.
        """
        self.since = started = self._now()
        try:
            if self.late_error is not None:
                raise self.late_error
            batch = self._fetch()
        except StopIteration as error:
            self.since = None
            if faults.is_from_worker(error):
                self._raise(error, started)
            raise
        except BaseException as error:
            self.since = None
            self._raise(error, started)
        self.since = None
        if self.fired:
            self._await_watchman()
        self.batches += 1
        if self._seek_workers:
            self._find_workers()
        return batch

    def worker_cpu(self) -> float | NotMeasured:
        """CPU seconds the workers have used so far, in this epoch and in the ended ones of this watch.

        Of ended workers exact, of running ones in steps of 10 ms. How: see `workers.Workers`.
        """
        parts = [*self._ended_cpu, *([] if self.workers is None else [self.workers.cpu()])]
        if not parts:
            return NotMeasured("the loader has no worker processes")
        missing = next((part for part in parts if not is_measured(part)), None)
        return float(sum(parts)) if missing is None else missing

    def cpu_now(self) -> float | NotMeasured:
        """CPU seconds of those who should be working: the workers, or this process where there are none."""
        return self.clock.process_cpu() if self.workers is None else self.workers.cpu()

    def hang_outcome(self, elapsed: float, cpu_before, without: int) -> Outcome:
        """Called by the watching thread `without` while a call hangs."""
        if self.workers is None:
            self._note_workers(iterator_in_frames(frames_of_thread(self.thread)))
        return judge(self, elapsed, cpu_before, without)

    # --- failures -------------------------------------------------------------------------------------------------

    def _raise(self, error: BaseException, started: float) -> NoReturn:
        """Raise the LoaderFault that `error` means; interrupts and exits pass unchanged."""
        if self.workers is None:
            self._note_workers(iterator_in_frames(frame for frame, _ in traceback.walk_tb(error.__traceback__)))
        if self.fired:
            self._await_watchman(error)
        if not isinstance(error, Exception):
            raise error
        outcome = self._translated(error, self._now() - started)
        faults.release(error)
        raise LoaderFault(outcome) from (error if outcome.where == "main" else None)

    def _translated(self, error: Exception, elapsed: float) -> Outcome:
        told = {"elapsed_s": elapsed, "deadline_s": self.deadline_s, "batches": self.batches}
        if limit := faults.own_timeout(error):
            self._hung = True
            return judge(self, elapsed, None, error_text=f"{limit} (the loader's own timeout=)")
        told["cpu_s"] = self.worker_cpu()
        if self.workers is not None and not faults.is_from_worker(error) and isinstance(error, _DEATH_NOTICES):
            codes = self.workers.exit_codes(_NOTICE_S)
            bad = [code for code in codes.values() if code]
            if bad or (codes and "exited unexpectedly" in str(error)):
                return faults.of_exit_code(bad[0] if bad else 0, error, told)
        return faults.of_exception(error, told)

    def _await_watchman(self, error: BaseException | None = None) -> None:
        """The watching thread has called this call a hang, or is about to see that it has returned after all."""
        held: BaseException | None = None
        while not self._watchman.settled.is_set():
            try:
                self._watchman.settled.wait()
            except (Interrupted, RuntimeError):
                continue  # its way of ending the call, or torch's news of a worker it has killed
            except BaseException as interrupt:
                held = interrupt
        if not self.guarded_by_signal:
            raise_in_thread(self.thread, None)
        if held is not None:
            raise held
        if self._watchman.verdict is not None:
            faults.release(error)
            raise LoaderFault(self._watchman.verdict) from None

    # --- workers --------------------------------------------------------------------------------------------------

    def _find_workers(self) -> None:
        self._seek_workers = False
        self._note_workers(find_iterator(self._iterator, self.loader))

    def _note_workers(self, iterator: Any) -> None:
        if iterator is None or (self.workers is not None and self.workers.iterator is iterator):
            return
        self.workers = Workers(iterator)
        self.worker_pids = self.workers.pids
        if not self.guarded_by_signal:
            self.workers.keep_quiet()  # or torch would raise in the main thread, which knows nothing of this loader
            self.workers.look_more_often()
        elif signals.on_main_thread():
            HANDLERS.expect_deaths()

    def _end_epoch(self, last: bool) -> None:
        """End what is left of the last epoch, except persistent workers that go on."""
        if self.workers is None:
            self._find_workers()
        workers, hung = self.workers, self._hung or (self._watchman is not None and self._watchman.verdict is not None)
        persists = workers is not None and workers.iterator is getattr(self.loader, "_iterator", None)
        healthy = persists and not hung and self.late_error is None and not workers.exit_codes()
        if healthy and not last:
            return
        if inspect.isgenerator(self._iterator) and self._iterator is not self.loader:
            with contextlib.suppress(Exception):
                self._iterator.close()
        self._iterator = self._fetch = self.late_error = None
        self._hung = False
        if healthy and self._found_running and not self.owned:
            workers.let_go()
        elif workers is not None:
            workers.end(gently=not hung)
            self._ended_cpu.append(workers.cpu())
            if persists:
                self.loader._iterator = None
        self.workers, self.worker_pids = None, ()
