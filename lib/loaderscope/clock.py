"""The only module that reads a clock.

`SYSTEM` is the machine's clock; a `FakeClock` makes probe tests exact. On Linux, macOS and Windows
`time.perf_counter` counts from one system-wide origin, so spans from workers and main line up.
"""

from __future__ import annotations

import os
import threading
import time


class SystemClock:
    """Wall, CPU and run-queue time of this process and of the calling thread, all in seconds."""

    def now(self) -> float:
        """Monotonic wall time, comparable between processes of one machine."""
        return time.perf_counter()

    def thread_cpu(self) -> float:
        """CPU time the calling thread has used."""
        return time.thread_time()

    def process_cpu(self) -> float:
        """CPU time this process has used, all threads, without its children."""
        return time.process_time()

    def thread_delay(self) -> float | None:
        """Time the calling thread was runnable but had no core, or None where the kernel does not say.

        Source: second field of /proc/thread-self/schedstat (Linux, CONFIG_SCHED_INFO).
        """
        return _delay_reader().read()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def today(self) -> str:
        """Local date and time, for labels only."""
        return time.strftime("%Y-%m-%d %H:%M")


class FakeClock:
    """A clock that moves only when told to: tests of the probes are exact with it."""

    def __init__(self, start: float = 0.0):
        self.wall, self.cpu, self.delay = start, 0.0, 0.0

    def advance(self, wall: float, cpu: float = 0.0, delay: float = 0.0) -> None:
        """Let `wall` seconds pass, of which the thread computed `cpu` and stood in the run queue `delay`."""
        self.wall, self.cpu, self.delay = self.wall + wall, self.cpu + cpu, self.delay + delay

    def now(self) -> float:
        return self.wall

    def thread_cpu(self) -> float:
        return self.cpu

    def process_cpu(self) -> float:
        return self.cpu

    def thread_delay(self) -> float | None:
        return self.delay

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def today(self) -> str:
        return "2000-01-01 00:00"


class _DelayReader:
    """Reads one thread's run-queue delay through a file kept open (1 µs a reading instead of 10)."""

    def __init__(self):
        self.pid = os.getpid()
        try:
            self.fd = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self.fd = -1

    def read(self) -> float | None:
        if self.fd < 0:
            return None
        try:
            return int(os.pread(self.fd, 96, 0).split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self):
        self.close()


_local = threading.local()


def _delay_reader() -> _DelayReader:
    reader = getattr(_local, "reader", None)
    # After a fork the inherited file still speaks of the parent's thread.
    if reader is None or reader.pid != os.getpid():
        reader = _local.reader = _DelayReader()
    return reader


def release() -> None:
    """Close what the calling thread keeps open for `thread_delay`; it is reopened on the next reading."""
    reader = getattr(_local, "reader", None)
    if reader is not None:
        reader.close()
        del _local.reader


SYSTEM = SystemClock()
