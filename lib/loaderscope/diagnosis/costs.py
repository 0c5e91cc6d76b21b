"""What the loop's time is spent on, as shares of its wall time. Pure arithmetic on records."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope import thresholds
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.experiments.predict import Cost
from loaderscope.records import Estimate, is_measured


@dataclass(frozen=True)
class Shares:
    """Where the loop's time goes. They need not sum to 1: what is left is the step itself.

    own: the part by which loading is slower than the step (all of it without a step).
    overlap: what could be hidden behind the step and is not, because no worker loads meanwhile.
    interference: what both together take beyond the prediction from each alone.
    ceiling: what a perfect loader would save (1 without a step).
    """

    own: float
    overlap: float
    interference: float
    ceiling: Estimate


def shares(evidence: Evidence) -> Shares | None:
    """The split of one iteration, or None where headroom was not measured."""
    room = evidence.headroom
    if not is_measured(room) or not room.alone.step_time.n:
        return None
    n = room.alone.step_time.n
    if not room.with_step:
        return None if evidence.with_step else Shares(1.0, 0.0, 0.0, Estimate(1.0, 1.0, 1.0, "share", n))
    both, load, step = room.both.step_time.mean, room.alone.step_time.mean, room.cached.mean
    if not both > 0:
        return None
    own = max(0.0, load - step) / both
    overlap = min(load, step) / both if room.facts.workers == 0 else 0.0
    interference = max(0.0, both - room.predicted_s) / both
    return Shares(min(1.0, own), min(1.0, overlap), interference, room.ceiling)


def bound(evidence: Evidence) -> str:
    """ "compute-bound", "input-bound", "no step", "undecided" or "fault"."""
    if evidence.fault is not None and evidence.fault.where != "step":
        return "fault"
    split = shares(evidence)
    if split is None:
        return "undecided"
    if not evidence.with_step:
        return "no step"
    if not enough_batches(evidence):
        return "undecided"
    stall = evidence.headroom.both.stall_fraction
    if stall.below(thresholds.STALL_NEGLIGIBLE) and not fights(evidence):
        return "compute-bound"  # it does not wait: whatever else slows the step, faster loading is no cure
    if split.ceiling.below(thresholds.CEILING_WORTH_IT):
        return "compute-bound"
    return "input-bound" if split.ceiling.above(thresholds.CEILING_WORTH_IT) else "undecided"


def enough_batches(evidence: Evidence) -> bool:
    room = evidence.headroom
    loop = room.both if is_measured(room.both) else room.alone
    return loop.step_time.n >= thresholds.FEW_BATCHES


def explained(evidence: Evidence) -> float | None:
    """Share of the loader's time per batch that the dataset and collate account for; None where unknown."""
    room, profile = evidence.headroom, evidence.profile
    if not is_measured(room) or not is_measured(profile) or not profile.n:
        return None
    size = room.alone.mean_batch
    if not is_measured(size):
        size = float(evidence.facts.batch_size) if isinstance(evidence.facts.batch_size, int) else 1.0
    collate = profile.collate_per_sample_s
    per_sample = profile.wall.mean + (collate if is_measured(collate) else 0.0)
    return size * per_sample / max(1, evidence.facts.workers) / room.alone.step_time.mean


def own_cpu_share(evidence: Evidence) -> float | None:
    """CPU our own processes used while the loader ran alone, as a share of the allowed cores."""
    room = evidence.headroom
    if not is_measured(room) or not is_measured(room.alone.cpu_main_s) or not room.alone.wall_s:
        return None
    workers = room.alone.cpu_workers_s if is_measured(room.alone.cpu_workers_s) else 0.0
    return (room.alone.cpu_main_s + workers) / room.alone.wall_s / evidence.environment.cores_allowed


def contended(evidence: Evidence) -> bool:
    """Samples queue for a core, and it is not our own processes that fill the cores."""
    profile = evidence.profile
    if not is_measured(profile) or profile.shares.get("queueing", 0.0) < thresholds.QUEUEING_SHARE:
        return False
    own = own_cpu_share(evidence)
    return own is None or own < thresholds.OWN_CPU_SHARE


def demand(evidence: Evidence) -> tuple[float, float] | None:
    """Cores that loader and step want, each alone, to keep the pace predicted for both; None where not measured.

    CPU seconds per batch over the predicted seconds per batch. The loader's come from the profile: what starting
    workers costs is no part of a batch.
    """
    room, cost = evidence.headroom, cost_of(evidence)
    if cost is None or not is_measured(room.step_cpu_s) or not is_measured(room.predicted_s):
        return None
    size = room.alone.mean_batch if is_measured(room.alone.mean_batch) else 1.0
    return cost.computing_s * size / room.predicted_s, room.step_cpu_s / room.predicted_s


def fights(evidence: Evidence) -> bool:
    """Loader and step slow each other down: clearly slower together, and both want a good part of the same cores."""
    wanted = demand(evidence)
    if wanted is None or not evidence.headroom.interference.above(thresholds.INTERFERENCE_RATIO):
        return False
    enough = thresholds.INTERFERENCE_DEMAND * evidence.environment.cores_allowed
    return min(wanted) >= thresholds.INTERFERENCE_EACH and sum(wanted) >= enough


def own_without_queueing(evidence: Evidence) -> float:
    """Share of the loop by which loading would still be slower than the step if no sample had to queue for a core.

    The step keeps its measured time, which a busy machine may have stretched: so this errs towards no accusation.
    """
    room, queueing = evidence.headroom, evidence.profile.shares.get("queueing", 0.0)
    free = room.alone.step_time.mean * (1 - queueing)
    if not room.with_step:
        return 1.0
    return max(0.0, free - room.cached.mean) / room.both.step_time.mean


def cost_of(evidence: Evidence) -> Cost | None:
    """Inputs of the prediction, per sample; None where the profile is missing."""
    room, profile = evidence.headroom, evidence.profile
    if not is_measured(profile) or not profile.n or not is_measured(room):
        return None
    size = room.alone.mean_batch if is_measured(room.alone.mean_batch) and room.alone.mean_batch else 1.0
    collate = profile.collate_per_sample_s
    with_step = room.with_step
    return Cost(
        computing_s=profile.cpu.mean + (collate if is_measured(collate) else 0.0),
        waiting_s=profile.waiting.mean,
        cores=evidence.environment.cores_allowed,
        step_s=room.cached.mean / size if with_step else 0.0,
        step_cpu_s=room.step_cpu_s / size if with_step and is_measured(room.step_cpu_s) else 0.0,
    )
