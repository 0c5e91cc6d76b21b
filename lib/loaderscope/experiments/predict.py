"""The cost model of a loader: throughput over the number of workers, before anything is tried."""

from __future__ import annotations

from dataclasses import dataclass

CANDIDATES = (0, 1, 2, 3, 4, 6, 8, 12, 16)
# The smallest count that reaches this part of the best predicted throughput is proposed.
NEAR_BEST = 0.95


@dataclass(frozen=True)
class Cost:
    """Seconds per sample: computing (c, collate included) and waiting (w) in the worker, receiving (s) in main,
    the step in main and on the device together (g), and the CPU seconds of the step over all its threads (g_cpu).
    cores: usable cores.
    """

    computing_s: float
    waiting_s: float
    cores: float
    receive_s: float = 0.0
    step_s: float = 0.0
    step_cpu_s: float = 0.0


def predicted_rate(workers: int, cost: Cost) -> float:
    """Samples per second at `workers` worker processes.

    X(0) = 1 / (c + w + g); X(n) = min(n / (c + w), C / (c + s + g_cpu), 1 / (s + g)) for n >= 1: the workers, the
    cores, the main process; the slowest of them sets the pace.
    """
    each = max(cost.computing_s + cost.waiting_s, 1e-9)
    if workers == 0:
        return 1 / (each + cost.step_s)
    limits = [workers / each, cost.cores / max(cost.computing_s + cost.receive_s + cost.step_cpu_s, 1e-9)]
    main = cost.receive_s + cost.step_s
    if main > 0:
        limits.append(1 / main)
    return min(limits)


def best_workers(cost: Cost, at_most: int = CANDIDATES[-1]) -> int:
    """The smallest candidate within 5 % of the best predicted throughput."""
    tried = [n for n in CANDIDATES if n <= at_most]
    best = max(predicted_rate(n, cost) for n in tried)
    return next(n for n in tried if predicted_rate(n, cost) >= NEAR_BEST * best)
