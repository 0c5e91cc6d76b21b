"""Transparent stand-ins for a dataset and a collate function that record how long each call takes.

They pickle, forward every attribute both ways, and show `__getitems__` only where the dataset has it, so neither
the loader's fetcher nor a reader's worker_init_fn sees a difference.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from loaderscope.clock import SYSTEM
from loaderscope.probes.spans import COLLATE, FAILED, READ, STAGE, SpanTarget, SpanWriter
from loaderscope.probes.transforms import find_transforms, instrument


class _Timing:
    """Per-process writer and the arithmetic of one span."""

    def __init__(self, target: SpanTarget, clock):
        self.target, self.clock, self.pid, self.out = target, clock, -1, None

    def writer(self) -> tuple[SpanWriter, bool]:
        """This process's writer, and whether it was made just now."""
        if self.pid == os.getpid():
            return self.out, False
        from torch.utils.data import get_worker_info

        info = get_worker_info()
        ring, worker = (info.id, info.id) if info is not None else (self.target.rings - 1, -1)
        self.out, self.pid = self.target.writer(ring, worker), os.getpid()
        return self.out, True

    def measure(self, call: Callable[..., Any], *args: Any) -> tuple[Any, tuple[float, float, float, float]]:
        """What `call` returned, and its start, wall, CPU and run-queue seconds."""
        clock = self.clock
        delay, cpu, start = clock.thread_delay(), clock.thread_cpu(), clock.now()
        result = call(*args)
        wall, cpu = clock.now() - start, clock.thread_cpu() - cpu
        waited = clock.thread_delay() - delay if delay is not None else math.nan
        return result, (start, wall, cpu, waited)

    def stage(self, number: int, call: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        clock = self.clock
        cpu, start = clock.thread_cpu(), clock.now()
        result = call(*args, **kwargs)
        wall, cpu = clock.now() - start, clock.thread_cpu() - cpu
        self.out.add(STAGE, number, -1, start, wall, cpu, math.nan)
        return result


class ProbedDataset:
    """Stands in for `dataset`; every read becomes a span. Transforms are timed too, in copies only.

    Args:
        home: process whose dataset is the reader's own and must not be changed (transforms are not timed there).
    """

    def __init__(self, dataset: Any, target: SpanTarget, home: int, clock=SYSTEM):
        self.__dict__.update(_ls_dataset=dataset, _ls_timing=_Timing(target, clock), _ls_home=home)

    def __reduce__(self):
        timing = self._ls_timing
        return ProbedDataset, (self._ls_dataset, timing.target, self._ls_home, timing.clock)

    def _ls_ready(self) -> _Timing:
        timing = self._ls_timing
        _, fresh = timing.writer()
        if fresh and os.getpid() != self._ls_home:
            instrument(find_transforms(self._ls_dataset), timing.stage)
        return timing

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_ls_") or "_ls_dataset" not in self.__dict__:
            raise AttributeError(name)
        value = getattr(self._ls_dataset, name)
        return self._ls_getitems if name == "__getitems__" and value else value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ls_dataset, name, value)

    def __len__(self) -> int:
        return len(self._ls_dataset)

    def __getitem__(self, index: Any) -> Any:
        return self._ls_read(index, self._ls_dataset.__getitem__, index)

    def _ls_getitems(self, indices: Any) -> Any:
        return self._ls_read(indices[0] if indices else -1, self._ls_dataset.__getitems__, indices)

    def _ls_read(self, index: Any, call: Callable[..., Any], argument: Any) -> Any:
        timing = self._ls_ready()
        number = index if isinstance(index, int) else -1
        timing.out.begin(number)
        try:
            result, times = timing.measure(call, argument)
        except BaseException:  # noted and passed on: a worker goes on with its next batch and would hide the index
            timing.out.add(FAILED, 0, number, timing.clock.now(), 0.0, 0.0, math.nan)
            raise
        timing.out.end()  # not in a finally: when the process dies here, the index stays readable
        timing.out.add(READ, 0, number, *times)
        return result

    def __iter__(self) -> Iterator[Any]:
        timing = self._ls_ready()
        iterator = iter(self._ls_dataset)
        done = object()
        number = 0
        while True:
            timing.out.begin(number)
            item, times = timing.measure(next, iterator, done)
            timing.out.end()
            if item is done:
                return
            timing.out.add(READ, 0, -1, *times)
            number += 1
            yield item


class ProbedCollate:
    """Stands in for a collate function (or torch's converter where batching is off); every call becomes a span."""

    def __init__(self, collate: Callable[[Any], Any], target: SpanTarget, clock=SYSTEM):
        self.collate, self.timing = collate, _Timing(target, clock)

    def __reduce__(self):
        return ProbedCollate, (self.collate, self.timing.target, self.timing.clock)

    def __getattr__(self, name: str) -> Any:
        if name in ("collate", "timing"):
            raise AttributeError(name)
        return getattr(self.collate, name)

    def __call__(self, data: Any) -> Any:
        self.timing.writer()
        result, times = self.timing.measure(self.collate, data)
        self.timing.out.add(COLLATE, 0, -1, *times)
        return result
