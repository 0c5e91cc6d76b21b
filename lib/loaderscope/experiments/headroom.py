"""`headroom`: is it the loader at all, and how much is there to gain?"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from loaderscope import arguments
from loaderscope.clock import SYSTEM
from loaderscope.isolation import LoaderFault
from loaderscope.loaders import LoaderSpec
from loaderscope.probes.timing import DEADLINE_S, Limit, Step, call_step, join, run_loop
from loaderscope.records import Environment, Headroom, LoopTiming, NotMeasured, Outcome, text

ROUNDS = 3
# What a slow step may add to the budget.
OVERRUN_S = 5.0
# Batches kept for the step on cached data: enough to vary shapes, few enough to hold in memory.
KEPT_BATCHES = 4
KEPT_BYTES = 512 * 2**20


def headroom(
    loader: Any,
    step: Step | None = None,
    *,
    budget_s: float = 15.0,
    limit_s: float | None = None,
    deadline_s: float = DEADLINE_S,
    environment: Environment | None = None,
    progress: Callable[[str], None] | None = None,
    clock=SYSTEM,
) -> Headroom:
    """Measure the loader alone, the step on cached batches, and both together, in turns.

    Args:
        budget_s: seconds for all turns; each turn also pays for starting the workers.
        limit_s: seconds after which no further call of the step may end; budget_s and 5 s more when left out. What a
            slow step does not leave time for is NotMeasured.
        progress: called with a short text before each turn.

    Returns:
        Headroom. Where a fault or Ctrl-C ended it early, `alone.fault` or `both.fault` says so and the parts that
        were not reached are NotMeasured.

    Raises:
        BadInputError: an argument cannot be used.
    """
    arguments.step(step)
    budget_s = arguments.seconds("budget_s", budget_s)
    arguments.seconds("deadline_s", deadline_s)
    limit_s = budget_s + OVERRUN_S if limit_s is None else arguments.seconds("limit_s", limit_s)
    spec = loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    turns = _Turns(spec, step, budget_s, limit_s, progress or (lambda _: None), clock)
    with spec.preserved():
        turns.run(deadline_s, environment)
    return turns.record(environment)


def merged(first: Headroom, more: Headroom) -> Headroom:
    """Two headroom measurements of one loader and step as one, with more rounds."""
    if not (first.with_step and more.with_step):
        return first
    calls = len(first.cached_s), len(more.cached_s)
    return replace(
        first,
        alone=join([first.alone, more.alone]),
        both=join([first.both, more.both]),
        cached_s=first.cached_s + more.cached_s,
        step_cpu_s=(first.step_cpu_s * calls[0] + more.step_cpu_s * calls[1]) / sum(calls),
        rounds=first.rounds + more.rounds,
    )


class _Turns:
    """Alone, both, cached; again and again, so that drift of the machine hits all three alike."""

    def __init__(self, spec, step, budget_s, limit_s, progress, clock):
        self.spec, self.step, self.budget_s, self.limit_s = spec, step, budget_s, limit_s
        self.progress, self.clock, self.began = progress, clock, clock.now()
        self.alone: list[LoopTiming] = []
        self.both: list[LoopTiming] = []
        self.cached: list[float] = []
        self.kept: list[Any] = []
        self.cached_cpu = 0.0
        self.step_s: float | None = None  # the latest call's
        self.stopped, self.rounds = "", 0

    def run(self, deadline_s: float, environment: Environment | None) -> None:
        turn_s = self.budget_s / (ROUNDS * (3 if self.step else 1))
        loop = partial(run_loop, self.spec, deadline_s=deadline_s, environment=environment, clock=self.clock)
        try:
            while self.rounds < ROUNDS and not self.stopped:
                self._round(loop, turn_s)
                self.rounds += 1
                spent = self.clock.now() - self.began
                if self.budget_s - spent < 0.7 * spent / self.rounds:  # the next round would not fit
                    break
        except LoaderFault as fault:  # out of a call of the step; a loop keeps its own
            self._end("fault", fault.outcome)
        except KeyboardInterrupt:
            if not self.alone:
                raise
            self._end("interrupted")

    def _round(self, loop: Callable[..., LoopTiming], turn_s: float) -> None:
        self._loop(loop, self.alone, None, turn_s, "loader alone")
        if self.step is None:
            return
        if self.step_s is None and not self.stopped and self.kept:
            self.progress("first call of the step")
            self._call_step(self.kept[0], 0)  # not counted: first calls import, allocate and compile
        if self._time_for_a_step(after_s=self.alone[-1].data_time_s[0] if self.alone[-1].batches else 0.0):
            self._loop(loop, self.both, self.step, turn_s, "loader and step together")
        if self._time_for_a_step():
            self._cached_turn(turn_s)

    def _loop(self, loop, into: list[LoopTiming], step: Step | None, turn_s: float, what: str) -> None:
        self.progress(what)
        workers = self.spec.facts.workers
        limit = Limit(seconds=turn_s, at_least=3 * max(1, workers), hard_seconds=2 * turn_s)
        # Only what no step has seen is kept: steps write into batches and pop keys.
        keep = self._keep if step is None and self.step is not None and len(self.kept) < KEPT_BATCHES else None
        timing = loop(step, limit, keep=keep)
        into.append(timing)
        if timing.ended in ("fault", "interrupted"):
            self.stopped = timing.ended
        elif timing.batches == 0:
            self.stopped = "empty"
        elif step is not None:
            self.step_s = timing.compute_time_s[-1]

    def _time_for_a_step(self, after_s: float = 0.0) -> bool:
        """Another call of the step fits, so that the budget is overrun by one step and never by several.

        after_s: what has to come first: starting the workers.
        """
        if self.stopped or self.step_s is None:
            return False
        if self.clock.now() - self.began + after_s + self.step_s > self.limit_s:
            self.stopped = "slow"
        return not self.stopped

    def _keep(self, batch: Any) -> None:
        if len(self.kept) < KEPT_BATCHES and (not self.kept or _bytes_of(self.kept) < KEPT_BYTES):
            self.kept.append(batch)

    def _cached_turn(self, turn_s: float) -> None:
        self.progress("step on cached batches")
        began, count = self.clock.now(), 0
        while self.clock.now() - began < turn_s or count < 3:
            cpu_s = self._call_step(self.kept[count % len(self.kept)], len(self.cached))
            self.cached.append(self.step_s)
            self.cached_cpu += cpu_s
            count += 1
            if self.clock.now() - began > 2 * turn_s:
                break

    def _call_step(self, batch: Any, number: int) -> float:
        """CPU seconds of one call on a copy of the batch; its wall time goes to `step_s`."""
        own = _fresh(batch)
        cpu, start = self.clock.process_cpu(), self.clock.now()
        call_step(self.step, own, number)
        self.step_s = self.clock.now() - start
        return self.clock.process_cpu() - cpu

    def _end(self, how: str, fault: Outcome | None = None) -> None:
        """Note in the latest loop what ended the turns outside a loop."""
        self.stopped = how
        loops = self.both or self.alone
        loops[-1] = replace(loops[-1], ended=how, fault=fault)

    def record(self, environment: Environment | None) -> Headroom:
        why = self._why_missing()
        have_step = self.step is not None and self.cached
        return Headroom(
            facts=self.spec.facts,
            environment=environment if environment is not None else NotMeasured("not asked for"),
            alone=join(self.alone),
            cached_s=tuple(self.cached) if have_step else why,
            both=join(self.both) if self.both else why,
            step_cpu_s=self.cached_cpu / len(self.cached) if have_step else why,
            rounds=self.rounds,
        )

    def _why_missing(self) -> NotMeasured:
        if self.step is None:
            return NotMeasured("no step was given")
        reasons = {
            "fault": "a fault ended the measurement",
            "interrupted": "the measurement was interrupted",
            "empty": "the loader gave no batch",
            "slow": f"a call of your step takes {text.seconds(self.step_s or 0.0)}: there is no time for more of them",
        }
        return NotMeasured(reasons.get(self.stopped, "not reached"))


def _fresh(batch: Any) -> Any:
    """A batch of its own for one call of the step, which may pop keys and write into tensors."""
    try:
        return _copied(batch)
    except Exception:  # an object of the reader's that does not copy is given as it is
        return batch


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        own = value.detach().clone()  # a view alone, where deepcopy would take its whole storage along
        return own.pin_memory() if value.is_pinned() else own
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {k: _copied(v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_copied(v) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(_copied, value))
    return copy.deepcopy(value)


def _bytes_of(value: Any) -> int:
    """Bytes of tensors and arrays in plain containers; other things count as nothing."""
    if isinstance(value, dict):
        return sum(_bytes_of(v) for v in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_bytes_of(v) for v in value)
    size = getattr(value, "nbytes", 0)
    return size if isinstance(size, int) else 0
