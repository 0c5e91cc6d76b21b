"""Streams, and datasets that are odd rather than slow: what a tool must survive when it is handed them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from loaderscope.faults import work
from loaderscope.faults.speed import Sized


class ShardedStream(IterableDataset):
    """A stream of `n` samples, each worker taking every k-th of them, waiting `wait_s` seconds for each.

    Healthy: nothing twice, nothing missing. `n` should be a multiple of workers x batch size, or each worker ends
    with a short batch of its own.
    """

    def __init__(self, n: int, wait_s: float = 0.0):
        self.n, self.wait_s = n, wait_s

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        first, stride = _share()
        for index in range(first, self.n, stride):
            work.wait(self.wait_s)
            yield work.vector(index)


class InfiniteStream(IterableDataset):
    """A stream without an end and without a length, `wait_s` seconds a sample, sharded over workers. Healthy."""

    def __init__(self, wait_s: float = 0.0):
        self.wait_s = wait_s

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        index, stride = _share()
        while True:
            work.wait(self.wait_s)
            yield work.vector(index)
            index += stride


def _share() -> tuple[int, int]:
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class OddValues(Sized):
    """Samples that are not tensors.

    kind: "none" (every fifth is None; the default collate raises), "string", "nested" (a dict of lists of tuples of
    tensors), "object-array" (NumPy object arrays; the default collate raises), "empty" (tensors without elements).
    """

    KINDS = ("none", "string", "nested", "object-array", "empty")

    def __init__(self, n: int, kind: str):
        super().__init__(n)
        if kind not in self.KINDS:
            work.reject("kind", kind, ", ".join(self.KINDS))
        self.kind = kind

    def __getitem__(self, index: int) -> Any:
        index = self.place(index)
        if self.kind == "none":
            return None if index % 5 == 4 else torch.tensor(index)
        if self.kind == "string":
            return f"sample {index}"
        if self.kind == "nested":
            return {"a": [(torch.tensor(index), "b"), (torch.zeros(2), "c")], "d": {"e": float(index)}}
        if self.kind == "object-array":
            return np.array([index, "text", None], dtype=object)
        return torch.empty(0)


class OddLength(Dataset):
    """A dataset whose `__len__` cannot be trusted; its true length is `n`, after which it raises IndexError.

    kind: "missing" (no `__len__`: TypeError), "too-long" (says n + 5), "too-short" (says n // 2), "raising"
    (RuntimeError), "not-a-number" (returns a string).
    """

    KINDS = ("missing", "too-long", "too-short", "raising", "not-a-number")

    def __init__(self, n: int, kind: str):
        if kind not in self.KINDS:
            work.reject("kind", kind, ", ".join(self.KINDS))
        self.n, self.kind = n, kind

    def __len__(self) -> int:
        if self.kind == "missing":
            raise TypeError(f"object of type {type(self).__name__!r} has no len()")
        if self.kind == "raising":
            raise RuntimeError("the index is not loaded yet")
        if self.kind == "not-a-number":
            return str(self.n)  # type: ignore[return-value]
        return self.n + 5 if self.kind == "too-long" else self.n // 2

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return work.vector(range(self.n)[int(index)])
