"""Calls per second of several kinds of work on one and more threads, in turns, and the work that serves as controls."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from loaderscope.clock import SYSTEM
from loaderscope.records import ThreadScaling

THREADS = (1, 2, 4)
# Seconds of one reading: several slices of the scheduler and of the GIL's switch interval.
WINDOW_S = 0.12


def scalings(
    work: Mapping[str, Callable[[int], Any]],
    rounds: int,
    *,
    threads: Sequence[int] = THREADS,
    windows: Mapping[str, float] = MappingProxyType({}),
) -> list[ThreadScaling]:
    """Calls per second of every workload at every thread count, interleaved round by round.

    Args:
        work: name -> a call that is given numbers 0, 1, 2 …, from several threads at once.
        threads: counts to try; 1 must be among them for `ThreadScaling.speedup`.
        windows: seconds of one reading, for workloads whose calls are too slow for WINDOW_S.
    """
    rates: dict[tuple[str, int], list[float]] = {(name, count): [] for name in work for count in threads}
    for _ in range(rounds):
        for count in threads:
            for name, call in work.items():
                rates[name, count].append(rate(call, count, windows.get(name, WINDOW_S)))
    return [ThreadScaling(n, tuple(threads), tuple(tuple(rates[n, t]) for t in threads)) for n in work]


def rate(call: Callable[[int], Any], threads: int, window: float) -> float:
    """Calls per second of `threads` threads over about `window` seconds, all started together."""
    clock, barrier = SYSTEM, threading.Barrier(threads)
    spans: list[tuple[float, float, int]] = []
    failed: list[BaseException] = []

    def loop(offset: int) -> None:
        try:
            barrier.wait()
            start, done = clock.now(), 0
            while done == 0 or clock.now() - start < window:
                call(offset + done * threads)
                done += 1
            spans.append((start, clock.now(), done))
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    pool = [threading.Thread(target=loop, args=(k,), daemon=True) for k in range(threads)]
    for thread in pool:
        thread.start()
    for thread in pool:
        thread.join()
    if failed:
        raise next((e for e in failed if not isinstance(e, threading.BrokenBarrierError)), failed[0])
    return sum(done / (end - start) for start, end, done in spans)


def sleeper(seconds: float) -> Callable[[int], Any]:
    """Only waits: scales fully."""
    return lambda _: SYSTEM.sleep(seconds)


def python_work(loops: int = 20_000) -> Callable[[int], Any]:
    """Pure Python, GIL held: does not scale."""

    def work(_: int) -> int:
        h = 0
        for k in range(loops):
            h = (h * 31 + k) % 1_000_003
        return h

    return work


def native_work(size: int = 1 << 17) -> Callable[[int], Any]:
    """zlib, GIL free: scales as far as the cores that are free right now."""
    data = bytes(range(256)) * (size // 256)
    return lambda _: zlib.compress(data, 6)
