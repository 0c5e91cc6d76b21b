"""A loop in six numbers, what the cost model predicts for it, and a planted loader that really has these numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from loaderscope.errors import BadInputError
from loaderscope.experiments.predict import Cost, predicted_rate
from loaderscope.records import Headroom, Row, is_measured, text

MAX_WORKERS = 16


@dataclass(frozen=True)
class LoopModel:
    """What the cost model says of one loop.

    load_s: seconds one sample takes to load, of which the share waiting_share waits and the rest computes.
    step_s: seconds of the step per batch, none of them on the CPU. alone, step, both: predicted throughput in
    samples/s of the loader alone, the step alone, and both together. saved: share of the loop's time that a perfect
    loader would save, 0..1. pace: which part sets the pace of both together: "loading and step in turn", "the
    workers", "the cores" or "the step".
    """

    load_s: float
    waiting_share: float
    batch_size: int
    step_s: float
    num_workers: int
    cores: float
    alone: float
    step: float
    both: float
    saved: float
    pace: str

    def at(self, num_workers: int) -> LoopModel:
        """The same loop with another number of workers."""
        return _of(self.load_s, self.waiting_share, self.batch_size, self.step_s, num_workers, self.cores)

    def on(self, cores: float) -> LoopModel:
        """The same loop on a machine with this many cores."""
        return _of(self.load_s, self.waiting_share, self.batch_size, self.step_s, self.num_workers, cores)


def model(
    load_ms: float, waiting_percent: float, batch_size: int, step_ms: float, num_workers: int, cores: float
) -> LoopModel:
    """Predict a loop from its numbers; measures nothing.

    Args:
        load_ms: to load one sample in one process, > 0.
        waiting_percent: how much of that is waiting (for a disk, a server), 0..100; the rest computes.
        batch_size: samples in a batch.
        step_ms: the step on one batch, > 0: a device's time, during which the CPU is free.
        num_workers: 0 loads in the main process, in turn with the step.
        cores: CPU cores the workers may use.

    Raises:
        BadInputError: a number cannot be what it stands for.
    """
    for name, value, low in (
        ("load_ms", load_ms, 0), ("batch_size", batch_size, 0), ("step_ms", step_ms, 0), ("cores", cores, 0),
        ("num_workers", num_workers, -1), ("waiting_percent", waiting_percent, -1),
    ):  # fmt: skip
        if not low < value < float("inf"):
            raise BadInputError(f"{name} must be a number above {low}", seen=repr(value))
    if waiting_percent > 100:
        raise BadInputError("waiting_percent must be from 0 to 100", seen=repr(waiting_percent))
    return _of(load_ms / 1e3, waiting_percent / 100, int(batch_size), step_ms / 1e3, int(num_workers), float(cores))


def _of(load_s: float, waiting: float, batch: int, step_s: float, workers: int, cores: float) -> LoopModel:
    loading = Cost(computing_s=load_s * (1 - waiting), waiting_s=load_s * waiting, cores=cores)
    together = Cost(loading.computing_s, loading.waiting_s, cores, step_s=step_s / batch)
    alone, step, both = predicted_rate(workers, loading), batch / step_s, predicted_rate(workers, together)
    pace = _pace(workers, alone, step, workers / load_s)
    return LoopModel(load_s, waiting, batch, step_s, workers, cores, alone, step, both, max(0.0, 1 - both / step), pace)


def _pace(workers: int, alone: float, step: float, workers_alone: float) -> str:
    if workers == 0:
        return "loading and step in turn"
    if step <= alone:
        return "the step"
    return "the workers" if workers_alone <= alone else "the cores"


def plant(guess: LoopModel) -> tuple[Any, Any]:
    """A loader and a step that really cost what the model's numbers say: `ls.headroom(*plant(guess))`."""
    from torch.utils.data import DataLoader

    from loaderscope import faults
    from loaderscope.views.panels.planted import InTurn

    samples = 1_000_000  # they cost no memory, and no epoch ends while measuring
    waiting = faults.WaitingDataset(samples, guess.load_s * guess.waiting_share)
    computing = faults.PurePythonDataset(samples, guess.load_s * (1 - guess.waiting_share))
    loader = DataLoader(InTurn(waiting, computing), batch_size=guess.batch_size, num_workers=guess.num_workers)
    return loader, faults.WaitingStep(guess.step_s)


@dataclass(frozen=True)
class PredictedAndMeasured:
    """The model beside the measurement of the loader planted with its numbers."""

    guess: LoopModel
    measured: Headroom

    title: ClassVar[str] = "Predicted and measured"

    def pairs(self) -> tuple[tuple[str, float, float], ...]:
        """Name, predicted and measured throughput in samples/s, of each part that was measured."""
        room, out = self.measured, []
        if room.alone.step_time.n:
            out.append(("loader alone", self.guess.alone, room.alone.throughput.value))
        if is_measured(room.cached_s):
            out.append(("step alone", self.guess.step, self.guess.batch_size / room.cached.mean))
        if is_measured(room.both) and room.both.step_time.n:
            out.append(("both together", self.guess.both, room.both.throughput.value))
        return tuple(out)

    def rows(self) -> tuple[Row, ...]:
        rows = [
            Row(n, f"predicted {text.rate(p)}, measured {text.rate(m)}: {error_text(p, m)}") for n, p, m in self.pairs()
        ]
        room = self.measured
        if room.with_step and room.ceiling.known:
            saved = f"predicted {text.share(self.guess.saved)}, measured {room.ceiling}"
            rows.append(Row("a perfect loader would save", saved))
        for loop in (room.alone, room.both):
            if is_measured(loop) and loop.fault is not None:
                rows.append(Row("ended by a fault", loop.fault.summary, "bad"))
        return tuple(rows) or (Row("measured", "nothing: it was stopped before the first batch", "warning"),)


def error_text(predicted: float, measured: float) -> str:
    """How far the prediction is from the measurement: "prediction 4 % too high"."""
    error = predicted / measured - 1
    if abs(error) < 0.005:
        return "prediction exact to 1 %"
    return f"prediction {abs(error) * 100:.0f} % too {'high' if error > 0 else 'low'}"
