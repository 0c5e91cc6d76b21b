"""Where a sample's time goes."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, is_measured, register, row
from loaderscope.records.environment import Environment
from loaderscope.records.loader import LoaderFacts
from loaderscope.records.outcome import Outcome
from loaderscope.records.samples import Samples


@register
@dataclass(frozen=True)
class StageSpans:
    """Calls of one named stage (a transform, collate): wall and CPU seconds of each call, and where it sits."""

    name: str
    path: str
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]


@dataclass(frozen=True, repr=False)
class StageProfile(Record):
    """Per-sample and per-batch times, measured inside the process that loads.

    index, worker, start_s, wall_s, cpu_s: one entry per sample read (worker -1 is the main process; index -1 where
    an iterable does not tell; with `__getitems__` one entry per batch read, and per_read says how many samples).
    start_s is on the system-wide monotonic clock. delay_s: seconds in the run queue, NotMeasured where the kernel
    does not say. collate: one entry per batch. transforms: by name, in order.
    where: "workers", "main" or "child" (a loader without workers is profiled in a child process with one torch thread).
    lost: spans that did not fit into the shared buffer.
    """

    facts: LoaderFacts
    environment: Environment | NotMeasured
    where: str
    index: tuple[int, ...]
    worker: tuple[int, ...]
    start_s: tuple[float, ...]
    wall_s: tuple[float, ...]
    cpu_s: tuple[float, ...]
    delay_s: tuple[float, ...] | NotMeasured
    per_read: float
    collate: StageSpans | NotMeasured
    transforms: tuple[StageSpans, ...] = ()
    lost: int = 0
    fault: Outcome | None = None

    title = "Where a sample's time goes"

    @property
    def n(self) -> int:
        return len(self.wall_s)

    @property
    def waiting_s(self) -> tuple[float, ...]:
        """Per read: wall - CPU - run-queue delay, at least 0."""
        delay = self.delay_s if is_measured(self.delay_s) else (0.0,) * self.n
        return tuple(max(0.0, w - c - d) for w, c, d in zip(self.wall_s, self.cpu_s, delay, strict=True))

    def _per_sample(self, values) -> Samples:
        return Samples(tuple(v / self.per_read for v in values), "s")

    @property
    def wall(self) -> Samples:
        """Wall seconds per sample."""
        return self._per_sample(self.wall_s)

    @property
    def cpu(self) -> Samples:
        """CPU seconds per sample."""
        return self._per_sample(self.cpu_s)

    @property
    def waiting(self) -> Samples:
        """Waiting seconds per sample (run-queue delay not counted where the kernel tells it)."""
        return self._per_sample(self.waiting_s)

    @property
    def delay(self) -> Samples | NotMeasured:
        """Run-queue seconds per sample."""
        return self._per_sample(self.delay_s) if is_measured(self.delay_s) else self.delay_s

    @property
    def collate_per_sample_s(self) -> float | NotMeasured:
        """Mean collate wall seconds per sample."""
        if not is_measured(self.collate) or not self.collate.wall_s:
            return self.collate if not is_measured(self.collate) else NotMeasured("no batch was collated")
        return sum(self.collate.wall_s) / max(1.0, self.n * self.per_read)

    @property
    def shares(self) -> dict[str, float]:
        """Shares of the per-sample wall time, by mean: waiting, computing, queueing for a core. They sum to 1."""
        total = sum(self.wall_s)
        if not self.n or total <= 0:
            return {}
        waiting, cpu = sum(self.waiting_s) / total, min(1.0, sum(self.cpu_s) / total)
        return {"waiting": waiting, "computing": cpu, "queueing": max(0.0, 1 - waiting - cpu)}

    def rows(self) -> tuple[Row, ...]:
        out = []
        if self.fault is not None:
            out.append(Row("ended by a fault", self.fault.summary, "bad"))
        if not self.n:
            return (*out, Row("samples", "none was read", "missing"))
        shares = self.shares
        out.append(Row("per sample", f"median {text.seconds(self.wall.median)} (n = {self.n}, {self.where})"))
        for name, what in (("waiting", self.waiting), ("computing", self.cpu), ("queueing", self.delay)):
            if is_measured(what):
                label = "queueing for a core" if name == "queueing" else name
                out.append(Row(label, f"{text.share(shares[name])}, mean {text.seconds(what.mean)}"))
            else:
                out.append(row("queueing for a core", what))
        out.append(row("collate", self.collate_per_sample_s, lambda v: f"{text.seconds(v)} a sample"))
        for stage in sorted(self.transforms, key=lambda s: -sum(s.wall_s)):
            mean = sum(stage.wall_s) / max(1, len(stage.wall_s))
            out.append(Row(stage.name, f"{text.seconds(mean)} a call (n = {len(stage.wall_s)})"))
        if self.lost:
            out.append(Row("not recorded", f"{self.lost} spans: the buffer was full", "warning"))
        return tuple(out)
