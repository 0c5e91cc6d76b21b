"""The loaders that the overhead is measured on, and the two sides of a pair: the plain loop and the watched one."""

from __future__ import annotations

import math
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pairing import Call
from torch.utils.data import DataLoader, Dataset, TensorDataset

import loaderscope as ls
from loaderscope.faults import JpegDataset

BATCH = 16
CHEAP_RATE = 10_000  # samples/s at which the throughput kept by profile_stages is promised


# --- loaders ------------------------------------------------------------------------------------------------------


class Ready:
    """Batches that are there already: nothing is left but the cost of the loop around them."""

    def __init__(self, batches: int):
        self.batches = [[torch.zeros(BATCH, 8), torch.zeros(BATCH)]] * batches

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self):
        return iter(self.batches)


class Rows(Dataset):
    """Small pictures from memory; `passes` checksums over each of them make a sample as dear as wanted."""

    def __init__(self, n: int, passes: int = 0):
        self.rows, self.n, self.passes = np.zeros((64, 32, 32, 3), np.uint8), n, passes

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        row = self.rows[index % len(self.rows)]
        for _ in range(self.passes):
            zlib.crc32(row)
        return torch.from_numpy(row).float(), index % 10


def photographs(files: tuple[Path, ...], workers: int) -> DataLoader:
    """Decoded, cropped to a square and resized to 224 pixels."""
    return DataLoader(JpegDataset(files, size=224), batch_size=BATCH, num_workers=workers)


def in_memory(batches: int) -> DataLoader:
    """Tens of microseconds a batch: no loader that matters is faster."""
    n = 4 * batches
    return DataLoader(TensorDataset(torch.zeros(n, 8), torch.zeros(n)), batch_size=4)


def cheap_rows(n: int) -> DataLoader:
    """One worker that reads about CHEAP_RATE samples a second on this machine, as it is now."""
    base, one = (_seconds_a_sample(passes) for passes in (0, 20))
    passes = max(0, round((1 / CHEAP_RATE - base) / max((one - base) / 20, 1e-9)))
    return DataLoader(Rows(n, passes), batch_size=50, num_workers=1)


def _seconds_a_sample(passes: int, n: int = 2000) -> float:
    loader = DataLoader(Rows(n, passes), batch_size=50)
    times = []
    for _ in range(3):
        start = time.thread_time()
        for _ in loader:
            pass
        times.append(time.thread_time() - start)
    return min(times) / n


# --- the two sides ------------------------------------------------------------------------------------------------


def step(batch: Any) -> None:
    """A training step that costs nothing."""


def plain(loader: Any) -> Call:
    """Tells the seconds from the first batch to the last."""

    def run() -> float:
        first = last = math.nan
        for batch in loader:
            step(batch)
            last = time.perf_counter()
            first = last if math.isnan(first) else first
        return last - first

    return run


def bare(loader: Any, epochs: int = 1) -> Call:
    """The plain loop without a reading of the clock."""

    def run() -> None:
        for _ in range(epochs):
            for batch in loader:
                step(batch)

    return run


def timed(loader: Any) -> Call:
    def run() -> None:
        timing = ls.time_loop(loader, step)
        if timing.ended != "epochs" or timing.batches != len(loader):
            raise RuntimeError(f"time_loop ended by {timing.ended!r} after {timing.batches} of {len(loader)} batches")

    return run


def profiled(loader: DataLoader, epochs: int = 1) -> Call:
    """Tells what `plain` tells, as the spans have it; sensible for one worker only."""
    expected = epochs * len(loader.dataset)

    def run() -> float:
        profile = ls.profile_stages(loader, batches=epochs * len(loader), seconds=600)
        if profile.fault is not None or profile.n + profile.lost < expected:
            raise RuntimeError(f"profile_stages saw {profile.n} of {expected} samples: {profile.fault}")
        # From the first sample of the second batch to the end of the last: what main sees between first and last.
        return profile.start_s[-1] + profile.wall_s[-1] - profile.start_s[loader.batch_size]

    return run
