"""`headroom`: is it the loader at all, and how much is there to gain?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from loaderscope.clock import SYSTEM
from loaderscope.isolation import LoaderFault
from loaderscope.loaders import LoaderSpec
from loaderscope.probes.timing import DEADLINE_S, Limit, Step, call_step, join, run_loop
from loaderscope.records import Environment, Headroom, LoopTiming, NotMeasured

ROUNDS = 3
# Batches kept for the step on cached data: enough to vary shapes, few enough to hold in memory.
KEPT_BATCHES = 4
KEPT_BYTES = 512 * 2**20


def headroom(
    loader: Any,
    step: Step | None = None,
    *,
    budget_s: float = 15.0,
    deadline_s: float = DEADLINE_S,
    environment: Environment | None = None,
    progress: Callable[[str], None] | None = None,
    clock=SYSTEM,
) -> Headroom:
    """Measure the loader alone, the step on cached batches, and both together, in turns.

    Args:
        budget_s: seconds for all turns; each turn also pays for starting the workers.
        progress: called with a short text before each turn.

    Returns:
        Headroom. Where a fault or Ctrl-C ended it early, `alone.fault` or `both.fault` says so and the parts that
        were not reached are NotMeasured.
    """
    spec = loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    with spec.preserved():
        return _Turns(spec, step, budget_s, deadline_s, environment, progress or (lambda _: None), clock).run()


class _Turns:
    """Alone, both, cached; again and again, so that drift of the machine hits all three alike."""

    def __init__(self, spec, step, budget_s, deadline_s, environment, progress, clock):
        self.spec, self.step, self.budget_s, self.deadline_s = spec, step, budget_s, deadline_s
        self.environment, self.progress, self.clock = environment, progress, clock
        self.alone: list[LoopTiming] = []
        self.both: list[LoopTiming] = []
        self.cached: list[float] = []
        self.kept: list[Any] = []
        self.cached_cpu = 0.0
        self.stopped, self.warm = "", False

    def run(self) -> Headroom:
        began = self.clock.now()
        rounds, turn_s = ROUNDS, self.budget_s / (ROUNDS * (3 if self.step else 1))
        done = 0
        while done < rounds and not self.stopped:
            self._round(turn_s)
            done += 1
            left = self.budget_s - (self.clock.now() - began)
            spent = (self.budget_s - left) / done
            if left < 0.7 * spent:  # the next round would not fit
                break
        return self._record(done)

    def _round(self, turn_s: float) -> None:
        self._loop(self.alone, None, turn_s, "loader alone")
        if self.step is None:
            return
        self._warm_up()
        self._loop(self.both, self.step, turn_s, "loader and step together")
        self._cached_turn(turn_s)

    def _loop(self, into: list[LoopTiming], step: Step | None, turn_s: float, what: str) -> None:
        if self.stopped:
            return
        self.progress(what)
        workers = self.spec.facts.workers
        limit = Limit(seconds=turn_s, at_least=3 * max(1, workers), hard_seconds=2 * turn_s)
        keep = self._keep if len(self.kept) < KEPT_BATCHES and self.step is not None else None
        timing = run_loop(
            self.spec,
            step,
            limit,
            deadline_s=self.deadline_s,
            environment=self.environment,
            keep=keep,
            clock=self.clock,
        )
        into.append(timing)
        if timing.ended in ("fault", "interrupted"):
            self.stopped = timing.ended
        elif timing.batches == 0:
            self.stopped = "empty"

    def _warm_up(self) -> None:
        """One call of the step that is not timed: first calls import, allocate and compile."""
        if self.warm or self.stopped or not self.kept:
            return
        self.progress("first call of the step")
        try:
            call_step(self.step, _fresh(self.kept[0]), 0)
        except LoaderFault as fault:
            self.stopped = "fault"
            self.alone[-1] = replace(self.alone[-1], ended="fault", fault=fault.outcome)
        except KeyboardInterrupt:
            self.stopped = "interrupted"
            self.alone[-1] = replace(self.alone[-1], ended="interrupted")
        self.warm = True

    def _keep(self, batch: Any) -> None:
        if len(self.kept) < KEPT_BATCHES and (not self.kept or _bytes_of(self.kept) < KEPT_BYTES):
            self.kept.append(batch)

    def _cached_turn(self, turn_s: float) -> None:
        if self.stopped or not self.kept:
            return
        self.progress("step on cached batches")
        clock, step = self.clock, self.step
        began, cpu = clock.now(), clock.process_cpu()
        count = 0
        try:
            while clock.now() - began < turn_s or count < 3:
                batch = _fresh(self.kept[count % len(self.kept)])
                start = clock.now()
                step(batch)
                self.cached.append(clock.now() - start)
                count += 1
                if clock.now() - began > 2 * turn_s:
                    break
        except KeyboardInterrupt:
            self.stopped = "interrupted"
        self.cached_cpu += clock.process_cpu() - cpu

    def _record(self, rounds: int) -> Headroom:
        why = {
            "fault": "a fault ended the measurement",
            "interrupted": "the measurement was interrupted",
            "empty": "the loader gave no batch",
        }.get(self.stopped, "no step was given" if self.step is None else "not reached")
        have_step = self.step is not None and self.cached
        return Headroom(
            facts=self.spec.facts,
            environment=self.environment if self.environment is not None else NotMeasured("not asked for"),
            alone=join(self.alone),
            cached_s=tuple(self.cached) if have_step else NotMeasured(why),
            both=join(self.both) if self.both else NotMeasured(why),
            step_cpu_s=self.cached_cpu / len(self.cached) if have_step else NotMeasured(why),
            rounds=rounds,
        )


def _fresh(batch: Any) -> Any:
    """New containers around the same tensors, so that a step that pops keys does not empty the kept batch."""
    if type(batch) is dict:
        return {k: _fresh(v) for k, v in batch.items()}
    if type(batch) in (list, tuple):
        return type(batch)(_fresh(v) for v in batch)
    return batch


def _bytes_of(value: Any) -> int:
    """Bytes of tensors and arrays in plain containers; other things count as nothing."""
    if isinstance(value, dict):
        return sum(_bytes_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes_of(v) for v in value)
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0
