"""Datasets whose fault is where their time goes, and healthy ones whose time goes nowhere."""

from __future__ import annotations

import os
import threading
from typing import Any

import torch
from torch.utils.data import Dataset

from loaderscope.errors import BadInputError
from loaderscope.faults import work


class Sized(Dataset):
    """`n` samples; an index outside raises IndexError, as a list would."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def place(self, index: int) -> int:
        """The index counted from 0."""
        return range(self.n)[int(index)]


class WaitingDataset(Sized):
    """Waits `wait_s` seconds a sample and uses no CPU: a stand-in for slow storage.

    Right: io-latency, the loader waits; workers and threads far beyond the core count help.
    """

    def __init__(self, n: int, wait_s: float):
        super().__init__(n)
        self.wait_s = wait_s

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        work.wait(self.wait_s)
        return work.vector(index)


class PurePythonDataset(Sized):
    """Computes in pure Python, GIL held: `cpu_s` CPU seconds a sample, or exactly `loops` loop steps (0.1 µs each).

    Right: python-bound. Threads do not help; processes do, up to the cores.
    """

    def __init__(self, n: int, cpu_s: float | None = None, *, loops: int | None = None):
        super().__init__(n)
        self.cpu_s, self.loops = _one_of("cpu_s", cpu_s, "loops", loops)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if self.loops is not None:
            work.spin_loops(self.loops)
        else:
            work.spin_python(self.cpu_s)
        return work.vector(index)


class NativeComputeDataset(Sized):
    """Computes in C with the GIL free (zlib): `cpu_s` CPU seconds a sample, or exactly `n_bytes` compressed bytes.

    Right: cpu-bound. Threads and processes both help, up to the cores.
    """

    def __init__(self, n: int, cpu_s: float | None = None, *, n_bytes: int | None = None):
        super().__init__(n)
        self.cpu_s, self.n_bytes = _one_of("cpu_s", cpu_s, "n_bytes", n_bytes)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if self.n_bytes is not None:
            work.compress_bytes(self.n_bytes)
        else:
            work.spin_native(self.cpu_s)
        return work.vector(index)


class LockedDataset(Sized):
    """GIL-free native work of `cpu_s` CPU seconds a sample, all of it under one lock per process.

    Right: lock-contention; the GIL check answers "serialised": threads do not help although the GIL is free, while
    processes, each with a lock of its own, do.
    """

    def __init__(self, n: int, cpu_s: float):
        super().__init__(n)
        self.cpu_s = cpu_s
        self._locks: dict[int, threading.Lock] = {}

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        # Made on first use in each process, so that none is inherited locked; setdefault is atomic between threads.
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            work.spin_native(self.cpu_s)
        return work.vector(index)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_locks": {}}


class NoiseDataset(Sized):
    """`torch.randn` of `numbers` floats a sample, about 1 ms for 200 000: the GIL is free meanwhile.

    own_generator: False draws from torch's global generator, which one thread at a time may use: right is
    lock-contention, and "serialised" from the GIL check. True gives every sample a generator of its own, seeded from
    its index: healthy, threads scale, and a sample is the same whoever draws it and in whatever order.
    """

    def __init__(self, n: int, numbers: int = 200_000, own_generator: bool = False):
        super().__init__(n)
        self.numbers, self.own_generator = numbers, own_generator

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        generator = torch.Generator().manual_seed(index) if self.own_generator else None
        return torch.randn(self.numbers, generator=generator), work.label(index)


class InMemoryDataset(Sized):
    """`n` random tensors of `shape` held in one tensor, a few µs a sample. Healthy: costs nothing worth a finding."""

    def __init__(self, n: int, shape: tuple[int, ...] = (3, 32, 32)):
        super().__init__(n)
        self.data = torch.rand((n, *shape), generator=torch.Generator().manual_seed(0))

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        return self.data[index], work.label(index)


class RandomFlipDataset(InMemoryDataset):
    """In memory, flipped at random by torch's global generator, which DataLoader seeds anew per worker and epoch.

    Healthy: no worker repeats another's flips.
    """

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        sample, label = super().__getitem__(index)
        return (sample.flip(-1) if torch.rand(()) < 0.5 else sample), label


class BatchReadDataset(WaitingDataset):
    """Reads a whole batch at once in `__getitems__`, waiting `wait_s` seconds for each batch, not for each sample.

    Healthy when `wait_s` divided by the workers is less than the step.
    """

    def __getitems__(self, indices: list[int]) -> list[tuple[torch.Tensor, int]]:
        work.wait(self.wait_s)
        return [work.vector(self.place(index)) for index in indices]


class RaggedDataset(Sized):
    """Sequences of `shortest` to `longest` floats, in memory.

    Right with the default collate: ragged-batch. Healthy with `pad_collate`.
    """

    def __init__(self, n: int, shortest: int = 5, longest: int = 11):
        super().__init__(n)
        self.shortest, self.longest = shortest, longest

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        length = self.shortest + index * 5 % (self.longest - self.shortest + 1)
        return torch.full((length,), float(index)), work.label(index)


class SlowStartDataset(Sized):
    """Waits `start_s` seconds before the first sample of each process, then `wait_s` a sample: opening an index, say.

    Right: slow-first-batch (or repeated-init where workers restart) if the start is a large share of an epoch;
    healthy when persistent workers pay it once in a long run.
    """

    def __init__(self, n: int, start_s: float, wait_s: float = 0.0):
        super().__init__(n)
        self.start_s, self.wait_s, self._started_in = start_s, wait_s, 0

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if self._started_in != os.getpid():
            work.wait(self.start_s)
            self._started_in = os.getpid()
        work.wait(self.wait_s)
        return work.vector(index)


def _one_of(name: str, value: float | None, other_name: str, other: int | None) -> tuple[float | None, int | None]:
    if (value is None) == (other is None):
        raise BadInputError(
            f"The size is given either by {name} or by {other_name}",
            seen=f"{name}={value!r}, {other_name}={other!r}",
            way_out="give exactly one of them",
        )
    return value, other
