"""Datasets that panels measure when the reader brings none: each does one kind of work, and says which."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from loaderscope import faults, samples
from loaderscope.errors import LoaderscopeError
from loaderscope.faults.speed import Sized

SAMPLES = 256
PHOTOGRAPHS = 8  # the smallest ones, so that a sample takes milliseconds


class InTurn(Sized):
    """Reads sample `index` of each dataset, one after the other, and returns what the last one gave."""

    def __init__(self, *datasets: Any):
        super().__init__(min(len(dataset) for dataset in datasets))
        self.datasets = datasets

    def __getitem__(self, index: int) -> Any:
        return [dataset[index] for dataset in self.datasets][-1]


class MatmulDataset(Sized):
    """One call of NumPy a sample: `count` products of 64 x 64 matrices, a few ms; the GIL is free meanwhile.

    Matrices this small are multiplied on the calling thread: larger ones would wake the BLAS library's own threads,
    and the check would measure those.
    """

    def __init__(self, n: int = SAMPLES, count: int = 50):
        super().__init__(n)
        self.stack = np.random.default_rng(0).random((count, 64, 64))

    def __getitem__(self, index: int) -> float:
        self.place(index)
        return float(np.matmul(self.stack, self.stack)[0, 0, 0])


class RandnDataset(Sized):
    """`torch.randn` of `numbers` floats, a few ms: the GIL is free, but torch's one global generator has a lock."""

    def __init__(self, n: int = SAMPLES, numbers: int = 200_000):
        super().__init__(n)
        self.numbers = numbers

    def __getitem__(self, index: int) -> torch.Tensor:
        self.place(index)
        return torch.randn(self.numbers)


def default_gil_choices() -> dict[str, Any]:
    """Seven kinds of work, a few milliseconds a sample: a plain name -> a map-style dataset that does it.

    Without the photographs of data_samples, JPEG decoding is left out.
    """
    half = InTurn(faults.WaitingDataset(SAMPLES, 0.001), faults.PurePythonDataset(SAMPLES, loops=10_000))
    choices: dict[str, Any] = {
        "sleep (a slow disk or server)": faults.WaitingDataset(SAMPLES, 0.002),
        "pure Python loop": faults.PurePythonDataset(SAMPLES, loops=20_000),
        "zlib compression": faults.NativeComputeDataset(SAMPLES, n_bytes=1 << 17),
        "JPEG decode and crop": _photographs(),
        "NumPy matrix products": MatmulDataset(),
        "torch.randn": RandnDataset(),
        "half sleep, half Python": half,
    }
    return {name: dataset for name, dataset in choices.items() if dataset is not None}


def _photographs() -> faults.JpegDataset | None:
    try:
        files = samples.photographs()
    except LoaderscopeError:
        return None
    smallest = sorted(files, key=lambda file: file.stat().st_size)[:PHOTOGRAPHS]
    return faults.JpegDataset(smallest, size=128)
