"""How long a loop waited for data and how long it computed."""

from __future__ import annotations

import math
from dataclasses import dataclass

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, is_measured, row
from loaderscope.records.environment import Environment
from loaderscope.records.loader import LoaderFacts
from loaderscope.records.outcome import Outcome
from loaderscope.records.samples import Estimate, Samples, ratio_of_means

NO_STEP = NotMeasured("no step was given")


@dataclass(frozen=True, repr=False)
class LoopTiming(Record):
    """One or more epochs of a loop over a loader, batch by batch.

    data_time_s[i]: seconds waited for batch i; the first of an epoch includes making the iterator (iterator_s).
    compute_time_s[i]: seconds the step took (NotMeasured where there was no step).
    samples[i]: samples in batch i, or NotMeasured where a batch does not tell.
    epoch_starts: positions i of the first batch of each epoch; segment_starts: those of them that began with fresh
    workers because the measurement itself began there.
    wall_s: the whole loop. cpu_main_s, cpu_workers_s: CPU seconds used meanwhile.
    ended: "epochs", "batches", "time", "interrupted" or "fault" (then `fault` says which).
    """

    facts: LoaderFacts
    environment: Environment | NotMeasured
    data_time_s: tuple[float, ...]
    compute_time_s: tuple[float, ...] | NotMeasured
    samples: tuple[int, ...] | NotMeasured
    epoch_starts: tuple[int, ...]
    iterator_s: tuple[float, ...]
    wall_s: float
    cpu_main_s: float | NotMeasured
    cpu_workers_s: float | NotMeasured
    ended: str
    fault: Outcome | None = None
    segment_starts: tuple[int, ...] = (0,)

    title = "Loop timing"

    @property
    def batches(self) -> int:
        return len(self.data_time_s)

    @property
    def step_time_s(self) -> tuple[float, ...]:
        """data_time + compute_time of each batch."""
        if not is_measured(self.compute_time_s):
            return self.data_time_s
        return tuple(d + c for d, c in zip(self.data_time_s, self.compute_time_s, strict=True))

    @property
    def groups(self) -> tuple[range, ...]:
        """Steady running in pieces that belong together: a round of batches (one from each worker), or a whole epoch.

        The first round of an epoch pays for starting the workers and filling the queue and is left out. An epoch of
        fewer than three rounds never runs steadily: it counts whole, first batch and all, because that is what
        training pays each time; with persistent workers those that began a measurement are left out if there are
        others.
        """
        size = max(1, self.facts.workers)
        out: list[range] = []
        for epoch in self._epochs():
            if len(epoch) < 3 * size:
                out.append(epoch)
                continue
            steady = epoch[size:]
            out += [steady[k : k + size] for k in range(0, len(steady) - size + 1, size)]
        return tuple(out)

    def _epochs(self) -> list[range]:
        ends = (*self.epoch_starts[1:], self.batches) if self.epoch_starts else ()
        epochs = [range(s, e) for s, e in zip(self.epoch_starts, ends, strict=True) if e > s]
        if self.facts.persistent_workers is not True:
            return epochs
        later = [e for e in epochs if e.start not in self.segment_starts]
        long = [e for e in epochs if len(e) >= 3 * max(1, self.facts.workers)]
        return epochs if long or not later else later

    @property
    def steady(self) -> tuple[int, ...]:
        """Positions of all batches in `groups`."""
        return tuple(i for group in self.groups for i in group)

    @property
    def group_time(self) -> Samples:
        """Seconds per batch, one value for each group: bursts within a round are averaged out."""
        step = self.step_time_s
        return Samples(tuple(sum(step[i] for i in group) / len(group) for group in self.groups), "s")

    def _series(self, values) -> Samples:
        return Samples(tuple(values[i] for i in self.steady), "s", max(1, self.facts.workers))

    @property
    def data_time(self) -> Samples:
        """Steady waits for the next batch, seconds."""
        return self._series(self.data_time_s)

    @property
    def compute_time(self) -> Samples | NotMeasured:
        """Steady step durations, seconds."""
        return self._series(self.compute_time_s) if is_measured(self.compute_time_s) else self.compute_time_s

    @property
    def step_time(self) -> Samples:
        """Steady data_time + compute_time, seconds per batch."""
        return self._series(self.step_time_s)

    @property
    def first_batch_latency(self) -> Samples:
        """Seconds from asking for an iterator to the first batch, one value an epoch."""
        return Samples(tuple(self.data_time_s[i] for i in self.epoch_starts if i < self.batches), "s")

    @property
    def stall_fraction(self) -> Estimate:
        """data_time / step_time over the steady part."""
        return ratio_of_means(self.data_time, self.step_time, "share")

    @property
    def throughput(self) -> Estimate:
        """Steady samples per second (batches per second where batches do not tell their size)."""
        step, size, unit = self.step_time, self.mean_batch, "samples/s"
        if not is_measured(size):
            size, unit = 1.0, "batches/s"
        time = step.estimate()
        if not time.known or time.value <= 0:
            return Estimate(math.nan, math.nan, math.nan, unit, step.n)
        return Estimate(size / time.value, size / time.high, size / max(time.low, 1e-12), unit, step.n)

    @property
    def mean_batch(self) -> float | NotMeasured:
        """Mean samples in a batch."""
        if not is_measured(self.samples):
            return self.samples
        return sum(self.samples) / len(self.samples) if self.samples else NotMeasured("no batch came")

    def rows(self) -> tuple[Row, ...]:
        wait, out = self.stall_fraction, []
        if self.fault is not None:
            out.append(
                Row(
                    "ended by a fault",
                    f"after {text.count(self.batches, 'batch', 'batches')}: {self.fault.summary}",
                    "bad",
                )
            )
        if self.data_time.n:
            out.append(Row("throughput", str(self.throughput)))
            if is_measured(self.compute_time_s):
                out.append(Row("stall fraction", str(wait)))
            out.append(
                Row("data time", f"median {text.seconds(self.data_time.median)} a batch (n = {self.data_time.n})")
            )
        if is_measured(self.compute_time) and self.compute_time.n:
            out.append(Row("compute time", f"median {text.seconds(self.compute_time.median)} a batch"))
        elif not is_measured(self.compute_time):
            out.append(row("compute time", self.compute_time))
        if self.first_batch_latency.n:
            out.append(
                Row(
                    "first batch",
                    f"{text.seconds(self.first_batch_latency.median)} ({text.count(len(self.epoch_starts), 'epoch')})",
                )
            )
        if self.step_time.noise_note:
            out.append(Row("noise", self.step_time.noise_note, "warning"))
        return tuple(out)


@dataclass(frozen=True, repr=False)
class Headroom(Record):
    """Three throughputs measured in turns: loader alone, step on cached batches, both together.

    alone, both: LoopTiming over all rounds; cached_s: seconds of each step on a batch already in memory, or
    NotMeasured without a step. step_cpu_s: CPU seconds the step used per call (all threads of main).
    """

    facts: LoaderFacts
    environment: Environment | NotMeasured
    alone: LoopTiming
    cached_s: tuple[float, ...] | NotMeasured
    both: LoopTiming | NotMeasured
    step_cpu_s: float | NotMeasured = NO_STEP
    rounds: int = 1

    title = "Headroom"

    @property
    def cached(self) -> Samples | NotMeasured:
        return Samples(self.cached_s, "s") if is_measured(self.cached_s) else self.cached_s

    @property
    def with_step(self) -> bool:
        return is_measured(self.cached_s) and is_measured(self.both)

    @property
    def _without_step(self) -> NotMeasured:
        """Why there is nothing to compare the loader with: no step was given, or none was reached."""
        missing = next((v for v in (self.cached_s, self.both) if not is_measured(v)), NO_STEP)
        said = f"{missing.reason}, so whether the loader matters cannot be said"
        return NotMeasured(said) if missing == NO_STEP else missing

    @property
    def alone_s(self) -> Estimate:
        """Seconds per batch of the loader alone."""
        return self.alone.step_time.estimate()

    @property
    def predicted_s(self) -> float | NotMeasured:
        """Seconds per batch both together should take if neither disturbs the other.

        With workers the slower of the two; without, their sum, because nothing overlaps.
        """
        if not self.with_step:
            return self._without_step
        a, s = self.alone.step_time.mean, self.cached.mean
        return max(a, s) if self.facts.workers else a + s

    @property
    def ceiling(self) -> Estimate | NotMeasured:
        """Share of the loop's time that a perfect loader would save: 1 - cached step / both."""
        if not self.with_step:
            return self._without_step
        return ratio_of_means(self.cached, self.both.step_time, "share", lambda r: 1 - r)

    @property
    def savings(self) -> str | NotMeasured:
        """The ceiling in words: where its interval reaches below nothing, only its upper end means anything."""
        ceiling = self.ceiling
        if not is_measured(ceiling) or not ceiling.known or ceiling.low > 0:
            return str(ceiling) if is_measured(ceiling) else ceiling
        if ceiling.high <= 0:
            return f"nothing (n = {ceiling.n})"
        return f"at most {text.share(ceiling.high)} (n = {ceiling.n})"

    @property
    def interference(self) -> Estimate | NotMeasured:
        """Both together over what was predicted from each alone; near 1 when they do not disturb each other."""
        if not self.with_step:
            return self._without_step
        p = self.predicted_s
        scaled = Samples(tuple(v / p for v in self.both.step_time.values), "ratio", self.both.step_time.block)
        return scaled.estimate()

    def rows(self) -> tuple[Row, ...]:
        out = [Row("loader alone", f"{self.alone.throughput}")]
        if self.with_step:
            out += [
                Row("step on cached batches", f"{self.cached.estimate()} a batch"),
                Row("both together", f"{self.both.throughput}"),
                Row("a perfect loader would save", self.savings),
                Row("interference", f"{self.interference} of the time predicted from each alone"),
            ]
        else:
            out.append(row("a perfect loader would save", self.ceiling))
        return tuple(out)
