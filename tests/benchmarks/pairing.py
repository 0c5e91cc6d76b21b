"""Paired cost of watching a loop: the same loader plain and watched, in turns, and the ratio with its interval."""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass

from loaderscope.records import Estimate, Samples

try:
    import resource
except ImportError:  # Windows counts no CPU time of ended children
    resource = None

# Fewer pairs than this are a smoke test: nothing is concluded from them.
ENOUGH_PAIRS = 30

Call = Callable[[], float | None]


@dataclass(frozen=True)
class Cost:
    """One run of one side, in seconds. children_s: CPU of the processes that ended meanwhile (workers).

    loading_s: from the first batch to the last, where the side tells it: what starting and summing up cost is not in.
    """

    main_s: float
    children_s: float
    wall_s: float
    loading_s: float | None = None

    @property
    def cpu_s(self) -> float:
        return self.main_s + self.children_s


@dataclass(frozen=True)
class Pair:
    """Both sides, run one after the other. order: "AB" when the plain side came first, else "BA"."""

    order: str
    plain: Cost
    watched: Cost


def cost_of(call: Call) -> Cost:
    """Run `call` once. Its workers must have ended when it returns: a child counts only when it has been reaped."""
    gc.collect()  # the garbage of the other side is not this one's cost
    children, main, wall = _ended_children_cpu(), time.process_time(), time.perf_counter()
    loading = call()
    wall, main = time.perf_counter() - wall, time.process_time() - main
    left = multiprocessing.active_children()  # reaps those that have ended
    if left:
        raise RuntimeError(f"{len(left)} worker processes outlive the run, so their CPU time cannot be counted")
    return Cost(main, _ended_children_cpu() - children, wall, loading)


def _ended_children_cpu() -> float:
    if resource is None:
        return math.nan
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def run_pairs(plain: Call, watched: Call, n: int, tell: Callable[[int], None] = lambda done: None) -> list[Pair]:
    """`n` pairs, A B B A A B …, after one run of each that is not counted (imports, page cache, thread pools)."""
    cost_of(plain), cost_of(watched)
    pairs = []
    for k in range(n):
        if k % 2 == 0:
            first, second = cost_of(plain), cost_of(watched)
            pairs.append(Pair("AB", first, second))
        else:
            first, second = cost_of(watched), cost_of(plain)
            pairs.append(Pair("BA", second, first))
        tell(k + 1)
    return pairs


def ratio(pairs: list[Pair], of: Callable[[Cost], float]) -> Estimate:
    """Watched over plain: the geometric mean of the pairs' ratios, with a 95 % bootstrap interval.

    Resampled are blocks of neighbouring pairs (`records.statistics`): a drift of the machine is shared by neighbours,
    and what is gained by running second cancels within a block, because the order alternates.
    """
    logs = Samples(tuple(math.log(of(pair.watched) / of(pair.plain)) for pair in pairs), "").estimate()
    return Estimate(*(math.exp(x) for x in (logs.value, logs.low, logs.high)), "ratio", len(pairs))


def extra_per(pairs: list[Pair], of: Callable[[Cost], float], items: int) -> Estimate:
    """Seconds that watching adds for each of a run's `items`: the mean difference of the pairs, with its interval."""
    return Samples(tuple((of(p.watched) - of(p.plain)) / items for p in pairs), "s").estimate()


def at_most(seen: Estimate, limit: float) -> str:
    """ "met" when the whole interval is at or below `limit`, "missed" when all of it is above, else "undecided"."""
    if not seen.known or seen.n < ENOUGH_PAIRS:
        return "undecided"
    if seen.high <= limit:
        return "met"
    return "missed" if seen.low > limit else "undecided"


def no_loss(seen: Estimate) -> str:
    """ "met" unless the whole interval lies above 1: watching cannot be told from not watching."""
    if not seen.known or seen.n < ENOUGH_PAIRS:
        return "undecided"
    return "missed" if seen.low > 1 else "met"
