"""Spans from workers to main: one preallocated shared mapping, a ring per worker, no locks, no pipe.

The mapping is a file (on /dev/shm where there is room) so that spawned workers can open it too. Each worker has one
writer, so a ring needs no lock; the clock is system-wide, so spans of all processes line up.
"""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import tempfile
from dataclasses import dataclass

# kind, name, worker, index, start, wall, cpu, delay
_SPAN = struct.Struct("<hhiqdddd")
_COUNT = struct.Struct("<q")
_HEADER = 64  # count at 0, index being read now at 8
_CURRENT = 8

READ, STAGE, COLLATE, FAILED = 1, 2, 3, 4
NOTHING = -(2**62)


@dataclass(frozen=True)
class Span:
    """One timed piece of work, in seconds throughout.

    kind: READ, STAGE, COLLATE or FAILED (a read that raised). name: number of the stage.
    delay is nan where the kernel does not tell run-queue time.
    """

    kind: int
    name: int
    worker: int
    index: int
    start: float
    wall: float
    cpu: float
    delay: float


class SpanFile:
    """The mapping, seen from the process that made it. Close it, or use it as a context manager.

    Args:
        workers: number of rings (worker processes; one more is added for a process that is no worker).
        capacity: spans a ring holds; older ones are overwritten and counted as lost.
    """

    def __init__(self, workers: int, capacity: int = 20_000):
        self.rings, self.capacity = workers + 1, capacity
        self.segment = _HEADER + capacity * _SPAN.size
        size = self.rings * self.segment
        fd, self.path = tempfile.mkstemp(prefix=f"loaderscope-spans-{os.getpid()}-", dir=_folder_for(size))
        try:
            os.ftruncate(fd, size)
            self.map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        for ring in range(self.rings):
            _COUNT.pack_into(self.map, ring * self.segment + _CURRENT, NOTHING)

    def target(self) -> SpanTarget:
        """What a worker needs to write here; picklable."""
        return SpanTarget(self.path, self.rings, self.capacity)

    def read(self) -> tuple[tuple[Span, ...], int]:
        """All spans in order of their start, and how many were overwritten."""
        spans: list[Span] = []
        lost = 0
        for ring in range(self.rings):
            base = ring * self.segment
            count = _COUNT.unpack_from(self.map, base)[0]
            lost += max(0, count - self.capacity)
            for k in range(min(count, self.capacity)):
                spans.append(Span(*_SPAN.unpack_from(self.map, base + _HEADER + k * _SPAN.size)))
        return tuple(sorted(spans, key=lambda s: s.start)), lost

    def being_read(self) -> tuple[int, ...]:
        """Dataset indices whose reading has begun and not ended (one per busy worker)."""
        found = (_COUNT.unpack_from(self.map, ring * self.segment + _CURRENT)[0] for ring in range(self.rings))
        return tuple(i for i in found if i != NOTHING)

    def close(self) -> None:
        self.map.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    def __enter__(self) -> SpanFile:
        return self

    def __exit__(self, *_) -> None:
        self.close()


@dataclass(frozen=True)
class SpanTarget:
    """Where spans go: enough to open the mapping in another process."""

    path: str
    rings: int
    capacity: int

    def writer(self, ring: int, worker: int) -> SpanWriter:
        return SpanWriter(self, ring % self.rings, worker)


class SpanWriter:
    """Writes the spans of one process into its ring: about 1 µs a span."""

    def __init__(self, target: SpanTarget, ring: int, worker: int):
        self.segment = _HEADER + target.capacity * _SPAN.size
        fd = os.open(target.path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        try:
            self.map = mmap.mmap(fd, target.rings * self.segment)
        finally:
            os.close(fd)
        self.base, self.capacity, self.worker = ring * self.segment, target.capacity, worker

    def begin(self, index: int) -> None:
        """Say which index is being read, so that a hang or a crash can name it."""
        _COUNT.pack_into(self.map, self.base + _CURRENT, index)

    def end(self) -> None:
        _COUNT.pack_into(self.map, self.base + _CURRENT, NOTHING)

    def add(self, kind: int, name: int, index: int, start: float, wall: float, cpu: float, delay: float) -> None:
        # The count lives in the mapping: dataset and collate write to one ring, and a worker of the next epoch goes on.
        count = _COUNT.unpack_from(self.map, self.base)[0]
        where = self.base + _HEADER + (count % self.capacity) * _SPAN.size
        _SPAN.pack_into(self.map, where, kind, name, self.worker, index, start, wall, cpu, delay)
        _COUNT.pack_into(self.map, self.base, count + 1)


def _folder_for(size: int) -> str | None:
    """/dev/shm where the mapping takes at most a tenth of what is free there, else the temporary folder."""
    try:
        if shutil.disk_usage("/dev/shm").free > 10 * size:
            return "/dev/shm"
    except OSError:
        pass
    return None
