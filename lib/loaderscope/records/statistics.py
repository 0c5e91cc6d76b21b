"""Intervals for serially correlated timings: circular block bootstrap on plain NumPy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

RESAMPLES = 1000
# A longer series is thinned before it is resampled: a million batches would take gigabytes and minutes, for an interval
# that a few thousand give as well.
MOST_ROWS = 2000
CONFIDENCE = 0.95


def default_block(n: int) -> int:
    """Block length n^(1/3), rounded up: the usual rate for a mean (Künsch 1989; Politis and Romano 1994)."""
    return max(1, int(np.ceil(n ** (1 / 3))))


def block_indices(n: int, block: int, resamples: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of `resamples` series of length n, glued from circular blocks. Shape (resamples, n)."""
    block = max(1, min(block, n))
    per_series = -(-n // block)
    starts = rng.integers(0, n, size=(resamples, per_series, 1))
    return ((starts + np.arange(block)) % n).reshape(resamples, -1)[:, :n]


def resample(
    values, statistic: Callable[[np.ndarray], np.ndarray], block: int = 0, seed: int = 0, *, of_mean: bool = False
) -> np.ndarray:
    """Bootstrap distribution of a statistic of one series.

    Args:
        values: shape (n,) or (n, k); rows are resampled together.
        statistic: maps (resamples, n[, k]) to (resamples,).
        block: block length in rows; 0 picks `default_block(n)`.
        of_mean: the statistic is a mean, so neighbours in a long series may be averaged; otherwise every k-th is taken.
    """
    array, together = _thinned(np.asarray(values, dtype=float), of_mean)
    n, block = len(array), -(-block // together)
    if n == 0:
        return np.full(RESAMPLES, np.nan)
    rng = np.random.default_rng(seed)  # private: the reader's generators are left alone
    # No shorter than asked for (a round of workers), no longer than a third of the data.
    length = max(1, min(max(block, default_block(n)), max(1, n // 3)))
    return statistic(array[block_indices(n, length, RESAMPLES, rng)])


def _thinned(array: np.ndarray, of_mean: bool) -> tuple[np.ndarray, int]:
    """At most MOST_ROWS rows, and how many of the old ones each stands for."""
    together = max(1, -(-len(array) // MOST_ROWS))
    if together == 1:
        return array, 1
    if not of_mean:
        return array[::together], together
    whole = array[: len(array) // together * together]
    return whole.reshape(-1, together, *array.shape[1:]).mean(axis=1), together


def interval(distribution: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Percentile interval of a bootstrap distribution."""
    if not np.isfinite(distribution).any():
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(distribution, [tail, 1 - tail])
    return float(low), float(high)
