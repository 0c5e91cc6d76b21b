"""Raw samples of one quantity, and an estimate with its interval."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from loaderscope.records import statistics, text
from loaderscope.records.base import Record, Row, register

# Above this spread a median of few samples moves visibly between runs (torch.utils.benchmark warns at 10 %;
# loaders are noisier than kernels by nature, so the warning starts later here).
NOISY_IQR_SHARE = 0.30
FEW_SAMPLES = 8

_SHOW = {"s": text.seconds, "bytes": text.size, "share": text.share, "samples/s": text.rate, "ratio": text.ratio}


def show(value: float, unit: str) -> str:
    """A number with its unit, as people read it."""
    if not math.isfinite(value):
        return "unknown"
    return _SHOW[unit](value) if unit in _SHOW else f"{value:.3g} {unit}".rstrip()


@register
@dataclass(frozen=True)
class Estimate:
    """A value with its interval. Prints as `3.1x (2.8x to 3.4x, n = 24)`.

    Fields: value, low and high in `unit` ("s", "bytes", "share" 0..1, "samples/s", "ratio", …);
    n, the number of raw samples behind it; confidence of the interval.
    """

    value: float
    low: float
    high: float
    unit: str = ""
    n: int = 0
    confidence: float = statistics.CONFIDENCE

    def __str__(self) -> str:
        return (
            f"{show(self.value, self.unit)} ({show(self.low, self.unit)} to {show(self.high, self.unit)}, n = {self.n})"
        )

    @property
    def known(self) -> bool:
        """Whether value and both ends are finite numbers."""
        return all(math.isfinite(x) for x in (self.value, self.low, self.high))

    def above(self, limit: float) -> bool:
        """The whole interval lies above `limit`."""
        return self.known and self.low > limit

    def below(self, limit: float) -> bool:
        """The whole interval lies below `limit`."""
        return self.known and self.high < limit


@dataclass(frozen=True, repr=False)
class Samples(Record):
    """Raw values of one quantity, in the order they were measured.

    Fields: values in `unit`; block, how many neighbours belong together (a round of workers), for intervals.
    Properties of an empty series are nan, which prints as "unknown": an empty series is never 0.
    """

    values: tuple[float, ...]
    unit: str = "s"
    block: int = 1

    title = "Samples"

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n(self) -> int:
        return len(self.values)

    def percentile(self, p: float) -> float:
        """p in 0..100, linear interpolation."""
        return float(np.percentile(self.values, p)) if self.values else math.nan

    @property
    def median(self) -> float:
        return self.percentile(50)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if self.values else math.nan

    @property
    def total(self) -> float:
        return float(np.sum(self.values)) if self.values else math.nan

    @property
    def iqr(self) -> float:
        """75th minus 25th percentile."""
        return self.percentile(75) - self.percentile(25)

    @property
    def spread(self) -> float:
        """IQR as a share of the median."""
        return self.iqr / self.median if self.values and self.median > 0 else math.nan

    @property
    def noise_note(self) -> str:
        """What is wrong with these samples and what to do about it; empty when nothing is."""
        if self.n < FEW_SAMPLES:
            return f"only {text.count(self.n, 'sample')}: measure longer"
        if self.spread > NOISY_IQR_SHARE:
            return f"IQR is {text.share(self.spread)} of the median: measure longer, or close other jobs"
        return ""

    def estimate(self, statistic: str = "mean") -> Estimate:
        """Mean or median with a block-bootstrap interval."""
        pick = {"mean": np.mean, "median": np.median}[statistic]
        if not self.values:
            return Estimate(math.nan, math.nan, math.nan, self.unit, 0)
        low, high = statistics.interval(
            statistics.resample(self.values, lambda x: pick(x, axis=1), self.block, of_mean=statistic == "mean")
        )
        return Estimate(float(pick(self.values)), low, high, self.unit, self.n)

    def rows(self) -> tuple[Row, ...]:
        out = [
            Row("median", f"{show(self.median, self.unit)} (n = {self.n})"),
            Row("IQR", show(self.iqr, self.unit)),
            Row("5 to 95 %", f"{show(self.percentile(5), self.unit)} to {show(self.percentile(95), self.unit)}"),
        ]
        if self.noise_note:
            out.append(Row("noise", self.noise_note, "warning"))
        return tuple(out)


def ratio_of_means(top: Samples, bottom: Samples, unit: str = "ratio", transform=lambda r: r) -> Estimate:
    """Mean of `top` over mean of `bottom`, each resampled in its own blocks.

    Args:
        transform: applied to the ratio, e.g. `lambda r: 1 - r` for a share saved; may turn the interval round.
    """
    n = min(top.n, bottom.n)
    if n == 0:
        return Estimate(math.nan, math.nan, math.nan, unit, 0)
    up = statistics.resample(top.values, lambda x: x.mean(axis=1), top.block, seed=1, of_mean=True)
    down = statistics.resample(bottom.values, lambda x: x.mean(axis=1), bottom.block, seed=2, of_mean=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        low, high = statistics.interval(transform(up / down))
        value = float(transform(np.float64(top.mean) / np.float64(bottom.mean)))
    return Estimate(value, low, high, unit, n)
