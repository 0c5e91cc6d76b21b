"""`compare`: the same loop before and after a change of configuration, in interleaved turns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loaderscope import arguments
from loaderscope.clock import SYSTEM
from loaderscope.loaders import LoaderSpec
from loaderscope.probes.timing import DEADLINE_S, Limit, Step, join, run_loop
from loaderscope.records import Comparison, LoopTiming, Outcome, Samples, is_measured, text

ROUNDS = 3


def compare(
    loader: Any,
    changes: dict[str, Any],
    step: Step | None = None,
    *,
    label: str = "",
    budget_s: float = 15.0,
    deadline_s: float = DEADLINE_S,
    progress: Callable[[str], None] | None = None,
    clock=SYSTEM,
) -> Comparison | Outcome:
    """Run the loop as it is and with `changes`, A B A B, and compare seconds per sample.

    Args:
        changes: DataLoader arguments, e.g. {"num_workers": 8}.
        budget_s: seconds for all turns.

    Returns:
        Comparison; or the Outcome of the fault that ended one of the sides.

    Raises:
        BadInputError: an argument cannot be used.
        CannotRebuildError: the change would change what the data is.
    """
    arguments.step(step)
    budget_s = arguments.seconds("budget_s", budget_s)
    arguments.seconds("deadline_s", deadline_s)
    spec = loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)
    sides: tuple[list[LoopTiming], list[LoopTiming]] = ([], [])
    turn_s, began = budget_s / (2 * ROUNDS), clock.now()
    with spec.preserved():
        for k in range(ROUNDS):
            for into, change in zip(sides, ({}, changes), strict=True):
                if progress is not None:
                    progress("with the change" if change else "as it is")
                timing = _turn(spec, step, change, turn_s, deadline_s, clock)
                if timing.fault is not None:
                    return timing.fault
                if timing.ended == "interrupted":
                    raise KeyboardInterrupt
                into.append(timing)
            spent = clock.now() - began
            if budget_s - spent < 0.7 * spent / (k + 1):
                break
    before, after = (join(side) for side in sides)
    return Comparison(
        label=label or ", ".join(f"{k}={v}" for k, v in changes.items()),
        before_label=_label(before),
        after_label=_label(after),
        before_s=seconds_per_sample(before),
        after_s=seconds_per_sample(after),
        note=f"{text.count(len(sides[0]), 'turn')} each, interleaved; {'loader and step' if step else 'loader alone'}",
    )


def _turn(spec, step, change, turn_s, deadline_s, clock) -> LoopTiming:
    workers = change.get("num_workers", spec.facts.workers)
    limit = Limit(seconds=turn_s, at_least=3 * max(1, workers), hard_seconds=2 * turn_s)
    return run_loop(spec, step, limit, changes=change, deadline_s=deadline_s, clock=clock)


def _label(timing: LoopTiming) -> str:
    return f"num_workers={timing.facts.workers}"


def seconds_per_sample(timing: LoopTiming) -> Samples:
    """Seconds per sample of each round or short epoch (per batch where batches do not tell their size)."""
    size = timing.mean_batch
    scale = size if is_measured(size) and size > 0 else 1.0
    return Samples(tuple(v / scale for v in timing.group_time.values), "s")
