"""Datasets, steps and collates with one planted fault each, its size given as a number, and healthy ones beside them.

Everything here is importable and picklable, so it works in worker processes under fork, spawn and forkserver alike.
Each docstring says what the fault is, its unit, and what a right diagnosis says. What a planted loader costs follows
from arithmetic: `WaitingDataset(n, 0.008)` in batches of 16 on 2 workers takes 8 ms x 16 / 2 = 64 ms a batch.
"""

from __future__ import annotations

from loaderscope.faults.collates import SlowCollate, pad_collate
from loaderscope.faults.failures import CrashingDataset, ForkingDataset, HangingDataset, RaisingDataset
from loaderscope.faults.images import HttpJpegDataset, JpegDataset, PixelLoop
from loaderscope.faults.odd import InfiniteStream, OddLength, OddValues, ShardedStream
from loaderscope.faults.speed import (
    BatchReadDataset,
    InMemoryDataset,
    LockedDataset,
    NativeComputeDataset,
    NoiseDataset,
    PurePythonDataset,
    RaggedDataset,
    RandomFlipDataset,
    SlowStartDataset,
    WaitingDataset,
)
from loaderscope.faults.steps import ComputeStep, HostBoundStep, RaisingStep, TinyTrainStep, WaitingStep

__all__ = [
    "BatchReadDataset",
    "ComputeStep",
    "CrashingDataset",
    "ForkingDataset",
    "HangingDataset",
    "HostBoundStep",
    "HttpJpegDataset",
    "InMemoryDataset",
    "InfiniteStream",
    "JpegDataset",
    "LockedDataset",
    "NativeComputeDataset",
    "NoiseDataset",
    "OddLength",
    "OddValues",
    "PixelLoop",
    "PurePythonDataset",
    "RaggedDataset",
    "RaisingDataset",
    "RaisingStep",
    "RandomFlipDataset",
    "ShardedStream",
    "SlowCollate",
    "SlowStartDataset",
    "TinyTrainStep",
    "WaitingDataset",
    "WaitingStep",
    "pad_collate",
]
