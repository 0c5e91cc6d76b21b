"""B15 and C2: can the side at fault be told from utilisation, or from timing each side alone?"""

from __future__ import annotations

from dataclasses import dataclass

from torch.utils.data import DataLoader

from loaderscope import thresholds
from loaderscope.claims import Verdict
from loaderscope.experiments.headroom import headroom
from loaderscope.faults import HostBoundStep, InMemoryDataset, NativeComputeDataset, WaitingDataset, WaitingStep
from loaderscope.records import Headroom, is_measured, text

MANY = 100_000
LOW_UTILISATION = 0.30
# More than half of one core is "busy": a loop in one process cannot use more than one by itself.
BUSY_CORES = 0.5
# A side that takes more than this of the loop's time is its bottleneck.
HALF_OF_THE_LOOP = 0.5


# --- B15 ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Symptom:
    """What a dashboard shows of one loop, and what headroom found: device utilisation and CPU in cores, the share a
    perfect loader would save, batches behind them."""

    utilisation: float
    cpu_cores: float
    saved: float
    batches: int

    @property
    def looks_starved(self) -> bool:
        return self.utilisation < LOW_UTILISATION and self.cpu_cores > BUSY_CORES


def claim_b15(*, budget_s: float = 8.0) -> Verdict:
    """Low GPU utilisation beside a busy CPU proves that the loader is the bottleneck.

    Two loops that show the same on a dashboard: in one the loader keeps the CPU busy, in the other the step's own
    Python. The device is a stand-in of a known duty cycle, so no driver is asked.
    """
    device_s = 0.008
    loops = {
        "a loader that computes": (NativeComputeDataset(MANY, 0.004), HostBoundStep(0.0, device_s)),
        "a step whose own Python takes long": (InMemoryDataset(4096), HostBoundStep(0.040, device_s)),
    }
    found = {}
    for name, (dataset, step) in loops.items():
        room = headroom(DataLoader(dataset, batch_size=10), step, budget_s=budget_s / len(loops))
        if not room.with_step or not room.ceiling.known:
            return Verdict.undecided("B15", f"too few batches could be measured: {name}")
        found[name] = _symptom(room, device_s)
    return judge_symptoms(found)


def _symptom(room: Headroom, device_s: float) -> Symptom:
    both = room.both
    workers = both.cpu_workers_s if is_measured(both.cpu_workers_s) else 0.0
    used = (both.cpu_main_s + workers) / both.wall_s
    return Symptom(device_s / both.step_time.mean, used, room.ceiling.value, both.step_time.n)


def judge_symptoms(found: dict[str, Symptom]) -> Verdict:
    """The verdict on B15. Pure."""
    said = [
        f"{name}: device {text.share(s.utilisation)} busy, CPU {s.cpu_cores:.2f} cores,"
        f" a perfect loader would save {text.share(max(0.0, s.saved))}, n = {s.batches}"
        for name, s in found.items()
    ]
    stand_in = "the device is a stand-in of known duty cycle: how well a driver reports it is not tested here"
    alike = {name: s for name, s in found.items() if s.looks_starved}
    if len(alike) < 2:
        return Verdict.undecided("B15", "the loops do not show a low utilisation beside a busy CPU", *said)
    guilty = {name: s.saved > HALF_OF_THE_LOOP for name, s in alike.items()}
    if all(guilty.values()):
        return Verdict.confirmed("B15", *said, reason=stand_in)
    if not any(guilty.values()):
        return Verdict.refuted("B15", *said, reason=stand_in)
    return Verdict.depends("B15", "what keeps the CPU busy: the loader or the step's own code", *said, reason=stand_in)


# --- C2 -------------------------------------------------------------------------------------------------------------


def claim_c2(*, budget_s: float = 9.0) -> Verdict:
    """Timing the loader alone and the step alone, and comparing, shows which side is at fault.

    Planted loaders whose times are known. The comparison of the two is held against what a perfect loader would
    save of both running together.
    """
    loops = {
        "2 workers, loading 40 ms, step 10 ms": (WaitingDataset(MANY, 0.010), 2, 0.010),
        "2 workers, loading 8 ms, step 30 ms": (WaitingDataset(MANY, 0.002), 2, 0.030),
        "no workers, loading 16 ms, step 24 ms": (WaitingDataset(MANY, 0.002), 0, 0.024),
    }
    rooms = {}
    for name, (dataset, workers, step_s) in loops.items():
        loader = DataLoader(dataset, batch_size=8, num_workers=workers)
        rooms[name] = headroom(loader, WaitingStep(step_s), budget_s=budget_s / len(loops))
    return judge_sides(rooms)


def judge_sides(rooms: dict[str, Headroom]) -> Verdict:
    """The verdict on C2 from headroom of several loops. Pure."""
    said, wrong, unclear = [], [], []
    for name, room in rooms.items():
        if not room.with_step or not room.ceiling.known:
            return Verdict.undecided("C2", f"too few batches could be measured: {name}", *said)
        named = "the loader" if room.alone_s.value > room.cached.mean else "the step"
        said.append(
            f"{name}: alone {text.seconds(room.alone_s.value)} and {text.seconds(room.cached.mean)} a batch,"
            f" so {named}; a perfect loader would save {room.ceiling}"
        )
        if not (room.ceiling.above(thresholds.CEILING_CLEAR) or room.ceiling.below(thresholds.CEILING_CLEAR)):
            unclear.append(name)
        elif room.ceiling.above(thresholds.CEILING_CLEAR) != (named == "the loader"):
            wrong.append((name, room))
    if unclear:
        return Verdict.undecided("C2", f"too noisy to say who is at fault: {', '.join(unclear)}", *said)
    if not wrong:
        return Verdict.confirmed("C2", *said)
    if len(wrong) == len(rooms):
        return Verdict.refuted("C2", *said)
    if all(not room.facts.workers for _, room in wrong):
        what = "whether the two run at the same time: with num_workers=0 they add up, and both are at fault"
    else:
        what = f"what happens when both run together (misled by: {', '.join(name for name, _ in wrong)})"
    return Verdict.depends("C2", what, *said)
