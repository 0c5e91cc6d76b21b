"""Datasets, iterables and steps that go wrong in one way each; importable, so that a spawned worker can load them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

SAMPLES = 64


class Rows(Dataset):
    """Healthy: `length` rows of four numbers, each taking `wait_s`."""

    def __init__(self, length: int = SAMPLES, wait_s: float = 0.0):
        self.length, self.wait_s = length, wait_s

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(index)
        if self.wait_s:
            time.sleep(self.wait_s)
        return torch.full((4,), float(index))


class Making(Rows):
    """Sample i is whatever `make(i)` gives or raises."""

    def __init__(self, make: Callable[[int], Any], length: int = SAMPLES):
        super().__init__(length)
        self.make = make

    def __getitem__(self, index):
        return self.make(index)


class SaysLength(Rows):
    """Claims `said` samples (or raises it) and has SAMPLES."""

    def __init__(self, said: int | Exception):
        super().__init__()
        self.said = said

    def __len__(self):
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


class NoLength(Dataset):
    def __getitem__(self, index):
        return torch.zeros(2)


class HoldsLock(Rows):
    """Works in a forked worker and cannot be sent to a spawned one."""

    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Stream(IterableDataset):
    """`length` rows, or rows for ever."""

    def __init__(self, length: int | None = None):
        self.length = length

    def __iter__(self):
        k = 0
        while self.length is None or k < self.length:
            yield torch.full((4,), float(k))
            k += 1


class Once(IterableDataset):
    """Hands out one iterator, however often it is asked."""

    def __init__(self):
        self.rows = iter([torch.zeros(4)] * SAMPLES)

    def __iter__(self):
        return self.rows


class Itself(IterableDataset):
    """Its own iterator, which goes on where it stopped."""

    def __init__(self):
        self.left = SAMPLES

    def __iter__(self):
        return self

    def __next__(self):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return torch.zeros(4)


class IterRaises:
    def __iter__(self):
        raise OSError("no <such> drive: Müller/名前")


class Endless:
    """Batches for ever, each a tensor of eight rows."""

    def __iter__(self):
        while True:
            yield torch.zeros(8, 4)


class Résumé名前(Rows):
    """A class whose name, path and error no page may take for markup."""

    def __init__(self, path: str):
        super().__init__()
        self.path = path

    def __getitem__(self, index):
        raise FileNotFoundError(f"{self.path}<script>alert('{index}')</script>")


# --- samples that are not arrays ------------------------------------------------------------------------------------


def none(index):
    return None


def words(index):
    return f"text {index}"


def number(index):
    return index


def mapping(index):
    return {"image": torch.zeros(3, 4), "label": index % 3, "meta": {"name": f"n{index}", "box": (1, 2.5)}}


def objects(index):
    return np.array([object(), None], dtype=object)


def set_of_words(index):
    return {f"text {index}"}


def raise_at_7(index):
    if index == 7:
        raise ValueError(f"item {index} is broken")
    return torch.zeros(4)


def raise_always(index):
    raise KeyError("label")


def exit_by_exception(index):
    raise SystemExit(3)


def hang(index):
    threading.Lock().acquire() and threading.Event().wait(600)


def crash(index):
    os.kill(os.getpid(), signal.SIGSEGV)


def leave(index):
    os._exit(5)


def fork(index):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return torch.zeros(4)


def slow(index):
    time.sleep(0.02)
    return torch.zeros(4)


def as_they_are(samples):
    """A collate function that leaves any kind of sample alone."""
    return samples


def unsendable(samples):
    """A batch that cannot go through a queue: torch's worker says so on its error output and goes on."""
    return lambda: samples


def load(make: Callable[[int], Any], workers: int = 0, **options) -> DataLoader:
    return DataLoader(Making(make), batch_size=4, num_workers=workers, **options)


def ignore(batch):
    """A step that does nothing."""
