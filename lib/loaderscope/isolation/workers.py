"""The worker processes of one torch iterator: who they are, what CPU they used, how they end for certain."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import psutil

from loaderscope.clock import SYSTEM
from loaderscope.isolation import family, stacks
from loaderscope.records import NotMeasured, ThreadStack

try:
    import resource
except ImportError:  # Windows
    resource = None

# Workers asked to leave are busy with an item at most this long, then they are killed.
LEAVE_GRACE_S = 2.0
_JOIN_S = 2.0


class WorkerInit:
    """A worker_init_fn that lets the worker answer SIGUSR1 with its stacks, then calls the reader's own."""

    def __init__(self, folder: str, original: Callable[[int], Any] | None):
        self.folder, self.original = folder, original

    def __call__(self, worker_id: int) -> Any:
        # A worker that cannot write there still works; only its stacks would be missing.
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            stacks.answer_on_signal(_stack_file(self.folder, os.getpid()))
        return None if self.original is None else self.original(worker_id)


def _stack_file(folder: str, pid: int) -> str:
    return os.path.join(folder, f"{pid}.stacks")


def find_iterator(*held_by: Any) -> Any:
    """torch's multi-process iterator among these objects, or one level inside them; None if there is none."""
    module = sys.modules.get("torch.utils.data.dataloader")
    cls = getattr(module, "_MultiProcessingDataLoaderIter", ())
    for thing in held_by:
        frame = getattr(thing, "gi_frame", None)
        inner = frame.f_locals if frame is not None else getattr(thing, "__dict__", {})
        for candidate in (thing, getattr(thing, "gi_yieldfrom", None), *list(inner.values())):
            if isinstance(candidate, cls) and hasattr(candidate, "_workers"):
                return candidate
    return None


def iterator_in_frames(frames: Iterable[FrameType]) -> Any:
    """torch's multi-process iterator whose methods these frames are running; it may not be finished, or hidden."""
    return find_iterator(*[frame.f_locals.get("self") for frame in frames])


def frames_of_thread(ident: int) -> Iterator[FrameType]:
    """The frames a thread is running, innermost first."""
    frame = sys._current_frames().get(ident)
    while frame is not None:
        yield frame
        frame = frame.f_back


class Workers:
    """The workers of `iterator`.

    CPU time: of live workers as the kernel counts it (steps of 10 ms on Linux). When they end, the exact CPU time of
    the children reaped in those few milliseconds (RUSAGE_CHILDREN) takes its place: the iterator's own shutdown is
    wrapped for that. Another child of this process reaped in the same milliseconds would be counted in.
    """

    def __init__(self, iterator: Any):
        self.iterator = iterator
        self.processes = tuple(iterator._workers)
        self.pids = tuple(p.pid for p in self.processes)
        self._meters: dict[int, psutil.Process] = {}
        for pid in self.pids:
            with contextlib.suppress(psutil.Error):
                self._meters[pid] = psutil.Process(pid)
        self._seen: dict[int, float] = {}
        self._final: float | NotMeasured | None = None
        self._quiet = False
        self._torch_shutdown = functools.partial(type(iterator)._shutdown_workers, iterator)
        iterator._shutdown_workers = self._shut_down

    def cpu(self) -> float | NotMeasured:
        """CPU seconds of the workers since they were started, of their ended children too."""
        if self._final is not None:
            return self._final
        for pid, meter in self._meters.items():
            with contextlib.suppress(psutil.Error):
                self._seen[pid] = family.cpu_seconds(meter)
        return self._sum(self.pids)

    def _sum(self, pids) -> float | NotMeasured:
        unread = [pid for pid in pids if pid not in self._seen]
        if unread:
            return NotMeasured(f"worker {unread[0]} ended before its CPU time could be read")
        return float(sum(self._seen[pid] for pid in pids))

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Around the moment in which the workers are reaped."""
        if self._final is not None:
            yield
            return
        self.cpu()
        gone = [p.pid for p in self.processes if p._popen.returncode is not None]
        before = _reaped_cpu()
        yield
        lost = any(p._popen.returncode is None for p in self.processes)
        used, earlier = _reaped_cpu() - before, self._sum(gone)
        if resource is None or lost:
            self._final = self._sum(self.pids)
        else:
            self._final = earlier if isinstance(earlier, NotMeasured) else used + earlier

    def _shut_down(self) -> None:
        """Takes the place of the iterator's own method, at the end of an epoch too."""
        with self._counting():
            self._torch_shutdown()

    def exit_codes(self, wait_s: float = 0.0) -> dict[int, int]:
        """Exit codes of those that have ended, by pid; waits until there is one, at most `wait_s`."""
        end = SYSTEM.now() + wait_s
        while True:
            codes = {p.pid: p.exitcode for p in self.processes if p.exitcode is not None}
            if codes or SYSTEM.now() >= end:
                return codes
            SYSTEM.sleep(0.01)

    def stacks(self, folder: str) -> tuple[ThreadStack, ...]:
        """Stacks of every thread of every worker that can answer, the awaited worker's first; at most ANSWER_S."""
        alive = [(i, p.pid) for i, p in enumerate(self.processes) if p.exitcode is None]
        awaited = self._awaited()
        alive.sort(key=lambda worker: worker[0] != awaited)
        return stacks.ask([stacks.Answering(pid, _stack_file(folder, pid), f"worker {i}") for i, pid in alive])

    def _awaited(self) -> int | None:
        """The worker that has the next batch to give."""
        with contextlib.suppress(Exception):
            return self.iterator._task_info[self.iterator._rcvd_idx][0]
        return None

    def keep_quiet(self) -> None:
        """Stop torch's SIGCHLD handler from raising, in the main thread, that one of these has died."""
        with contextlib.suppress(Exception):
            if self.iterator._worker_pids_set:
                self.iterator._worker_pids_set, self._quiet = False, True
                from torch.utils.data._utils import signal_handling

                signal_handling._remove_worker_pids(id(self.iterator))

    def look_more_often(self, every_s: float = 0.5) -> None:
        """Off the main thread nothing wakes a waiting iterator, which looks after its workers every 5 s: too seldom."""
        iterator = self.iterator
        if getattr(iterator, "_timeout", 1) == 0 and hasattr(type(iterator), "_try_get_data"):
            iterator._try_get_data = functools.partial(type(iterator)._try_get_data, iterator, every_s)

    def kill(self) -> None:
        """SIGKILL to the workers and to what they have started. Their SIGTERM handler would clean up no more."""
        running = [p for p in self.processes if p.exitcode is None]
        below = [d for p in running for d in family.descendants(p.pid)]
        for process in running:
            with contextlib.suppress(Exception):
                process.kill()
        family.kill(below)

    def end(self, gently: bool = True) -> None:
        """After this no worker runs, and no thread of the iterator. Takes up to LEAVE_GRACE_S and a second.

        gently: ask them to leave first, as torch does. Not after one has been killed: it may have died holding a
        lock on which torch's own shutdown would then wait for ever.
        """
        self.keep_quiet()
        with self._counting():
            if gently and not any(self.exit_codes().values()):
                self._end_gently()
            else:
                self.kill()
                self.iterator._shutdown = True
            if len(self.exit_codes()) < len(self.processes):
                self.kill()  # torch's shutdown was cut short before: it does not ask them twice
            for process in self.processes:
                process.join(_JOIN_S)
        _end_threads(self.iterator)
        self._unwrap()

    def let_go(self) -> None:
        """Leave the workers running and the iterator as it was found."""
        self._final = self.cpu()
        self._unwrap()
        if self._quiet:
            from torch.utils.data._utils import signal_handling

            signal_handling._set_worker_pids(id(self.iterator), self.pids)
            self.iterator._worker_pids_set, self._quiet = True, False

    def _unwrap(self) -> None:
        # The wrapped methods also hold the iterator in a cycle.
        for name in ("_shutdown_workers", "_try_get_data"):
            self.iterator.__dict__.pop(name, None)

    def _end_gently(self) -> None:
        if len(self.exit_codes()) == len(self.processes):
            self._torch_shutdown()
            return
        timer = threading.Timer(LEAVE_GRACE_S, self.kill)
        timer.daemon = True
        timer.start()
        try:
            self._torch_shutdown()
        finally:
            timer.cancel()
            timer.join()


def _reaped_cpu() -> float:
    if resource is None:
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end_threads(iterator: Any) -> None:
    """End the pinning thread and the threads that feed the queues, now that no worker is left to do it."""
    pinning = getattr(iterator, "_pin_memory_thread", None)
    if pinning is not None and pinning.is_alive():
        iterator._pin_memory_thread_done_event.set()
        results = iterator._worker_result_queue
        writer = results._writer
        with contextlib.suppress(OSError, ValueError):
            results._sem.acquire(False)  # what put() would do; but a dead worker may hold the lock that put() takes
            writer.send((None, None))
        pinning.join(_JOIN_S)
        if pinning.is_alive():
            writer.close()  # a dead worker left half a message: the end of file ends the wait for the rest
            pinning.join(_JOIN_S)
    for queue in iterator._index_queues:
        with contextlib.suppress(Exception):
            queue.cancel_join_thread()
            queue.close()
        _drain(queue)
    iterator._worker_result_queue.cancel_join_thread()


def _drain(queue: Any) -> None:
    """Let the queue's thread finish writing to a worker that will not read any more."""
    feeder, end = getattr(queue, "_thread", None), SYSTEM.now() + 1.0
    while feeder is not None and feeder.is_alive() and SYSTEM.now() < end:
        with contextlib.suppress(Exception):
            poller = select.poll()
            poller.register(queue._reader.fileno(), select.POLLIN)
            if poller.poll(0):
                os.read(queue._reader.fileno(), 1 << 16)
        feeder.join(0.005)
