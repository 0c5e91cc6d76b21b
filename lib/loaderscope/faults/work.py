"""Work of a known size: waiting, computing in pure Python, computing in native code without the GIL."""

from __future__ import annotations

import random
import zlib
from typing import Any, NoReturn

import torch

from loaderscope.clock import SYSTEM
from loaderscope.errors import BadInputError

# Bytes that do not compress, from a generator of our own: the global random state stays as it was.
_BLOCK = random.Random(0).randbytes(16 * 1024)
_LOOPS_PER_READING = 500


def wait(seconds: float) -> None:
    """Sleep: no CPU, no GIL, what a read from far away looks like."""
    if seconds > 0:
        SYSTEM.sleep(seconds)


def spin_python(cpu_s: float) -> int:
    """Compute in pure Python, GIL held, until this thread has used `cpu_s` seconds of CPU time (to about 0.05 ms)."""
    until, value = SYSTEM.thread_cpu() + cpu_s, 1
    while SYSTEM.thread_cpu() < until:
        value = spin_loops(_LOOPS_PER_READING, value)
    return value


def spin_loops(loops: int, value: int = 1) -> int:
    """Exactly `loops` steps of a pure-Python loop (about 0.1 µs each), the same work on every machine."""
    for k in range(loops):
        value = (value * 31 + k) % 1_000_003
    return value


def spin_native(cpu_s: float) -> int:
    """Compress in C, GIL free, until this thread has used `cpu_s` seconds of CPU time (to about 0.5 ms, one block)."""
    until, size = SYSTEM.thread_cpu() + cpu_s, 0
    while SYSTEM.thread_cpu() < until:
        size += len(zlib.compress(_BLOCK, 6))
    return size


def compress_bytes(n_bytes: int) -> int:
    """Compress `n_bytes` (rounded up to 16 KiB) in C, GIL free: about 25 ms a MiB, the same work on every machine."""
    return sum(len(zlib.compress(_BLOCK, 6)) for _ in range(-(-n_bytes // len(_BLOCK))))


def label(index: int) -> int:
    """A class from 0 to 9 that changes from sample to sample, so that unshuffled batches are still mixed."""
    return index * 7 % 10


def vector(index: int) -> tuple[torch.Tensor, int]:
    """The small sample most planted datasets return: 8 floats that name the index, and its label."""
    return torch.full((8,), float(index)), label(index)


def reject(name: str, value: Any, allowed: str) -> NoReturn:
    """Say what the argument may be."""
    raise BadInputError(f"{name} is not one of the planted kinds", seen=repr(value), way_out=f"use {allowed}")
