"""A5, A25 and C1: is the time waiting, is it disk, and can a stopwatch tell?"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from loaderscope.claims import Verdict
from loaderscope.errors import LoaderscopeError
from loaderscope.experiments.claims_speed.workloads import (
    EDGE,
    ArrayFiles,
    Augmentation,
    FarJpeg,
    ForgottenJpeg,
    HeldArrays,
    HeldJpeg,
    TextLines,
    forget,
    photographs,
    write_arrays,
)
from loaderscope.faults import JpegDataset, pad_collate
from loaderscope.probes.stages import profile_stages
from loaderscope.records import Samples, StageProfile, is_measured, text
from loaderscope.samples import text_file

ROUNDS = 2
# What a read from an object store or a busy network drive takes, at least.
FAR_S = 0.020
# "Dominates" is more than half; nearer to a half than this is neither.
HALF, MARGIN = 0.5, 0.08
# "A tenth or so" still holds at twice a tenth; nearer to that than NEAR is neither.
LITTLE, NEAR = 0.2, 0.05


@dataclass(frozen=True)
class Reading:
    """Several profiles of one loader, taken in turns with others. Shares are of the time not queued for a core.

    n: samples read. by_index: median seconds of each sample, waiting and computing. waiting: share, 0..1.
    parts: CPU seconds per sample of each transform and of collate, by name.
    """

    n: int
    by_index: dict[int, float]
    waiting: float
    parts: dict[str, float]

    @property
    def busy_s(self) -> float:
        """Mean seconds of a sample, every sample counted once."""
        return sum(self.by_index.values()) / len(self.by_index)

    def seconds_over(self, other: Reading) -> tuple[float, float]:
        """Mean seconds of a sample here and there, over the samples that both have read: samples differ in cost."""
        common = self.by_index.keys() & other.by_index.keys()
        if not common:
            raise LoaderscopeError("Two readings have no sample in common", way_out="repeat with a larger budget_s")
        return tuple(sum(r.by_index[i] for i in common) / len(common) for r in (self, other))

    @classmethod
    def of(cls, profiles: list[StageProfile]) -> Reading:
        n = sum(p.n for p in profiles)
        if not n:
            raise LoaderscopeError("No sample could be read", seen=str(profiles[0].fault))
        waits, computes = sum(sum(p.waiting_s) for p in profiles), sum(sum(p.cpu_s) for p in profiles)
        seconds: dict[int, list[float]] = {}
        for p in profiles:
            for index, waited, computed in zip(p.index, p.waiting_s, p.cpu_s, strict=True):
                seconds.setdefault(index, []).append(waited + computed)
        parts: dict[str, float] = {}
        for stage in (stage for p in profiles for stage in (*p.transforms, p.collate) if is_measured(stage)):
            parts[stage.name] = parts.get(stage.name, 0.0) + sum(stage.cpu_s) / n
        by_index = {index: Samples(tuple(found)).median for index, found in seconds.items()}
        return cls(n, by_index, waits / (waits + computes), parts)


def read_in_turns(loaders: dict[str, Any], budget_s: float) -> dict[str, Reading]:
    """Profile every loader for its part of the budget, A B A B."""
    seconds = budget_s / (ROUNDS * len(loaders))
    profiles: dict[str, list[StageProfile]] = {name: [] for name in loaders}
    for _ in range(ROUNDS):
        for name, loader in loaders.items():
            profiles[name].append(profile_stages(loader, seconds=seconds))
    return {name: Reading.of(found) for name, found in profiles.items()}


def _loader(dataset: Any, **more: Any) -> DataLoader:
    return DataLoader(dataset, batch_size=8, **more)


def _jpeg(kind: type[JpegDataset], *arguments: Any) -> DataLoader:
    return _loader(kind(photographs(), *arguments, size=EDGE))


def _said(name: str, reading: Reading) -> str:
    return (
        f"{name}: {text.seconds(reading.busy_s)} a sample, {text.share(reading.waiting)} of it waiting, n = {reading.n}"
    )


# --- A5 -------------------------------------------------------------------------------------------------------------


def claim_a5(*, budget_s: float = 6.0) -> Verdict:
    """Timing __getitem__ whole and without its I/O shows whether a dataset waits or computes.

    Three datasets with I/O of a known kind: photographs from the page cache, photographs after a wait, arrays of
    4 MiB from the page cache. The stopwatch's answer is held against the waiting share that is measured directly.
    """
    with tempfile.TemporaryDirectory() as folder:
        arrays = write_arrays(folder)
        held = _jpeg(HeldJpeg)
        pairs = {
            "photographs, cached": (_jpeg(JpegDataset), held),
            f"photographs, {text.seconds(FAR_S)} away": (_jpeg(FarJpeg, FAR_S), held),
            "arrays of 4 MiB, cached": (_loader(ArrayFiles(arrays)), _loader(HeldArrays(arrays))),
        }
        loaders = {f"{name}{tag}": part for name, pair in pairs.items() for tag, part in zip(("", " held"), pair)}
        found = read_in_turns(loaders, budget_s)
    shares = {}
    for name in pairs:
        whole, without = found[name].seconds_over(found[f"{name} held"])
        shares[name] = (1 - without / whole, found[name].waiting, found[name].n)
    return judge_stopwatch(shares)


def judge_stopwatch(shares: dict[str, tuple[float, float, int]]) -> Verdict:
    """The verdict on A5. Pure.

    Args:
        shares: name -> share of the time that goes away with the I/O, share measured as waiting, samples.
    """
    said, wrong, unclear = [], [], []
    for name, (gone, waiting, n) in shares.items():
        said.append(
            f"{name}: without I/O {text.share(max(0.0, gone))} of the time is gone, {text.share(waiting)} is waiting,"
            f" n = {n}"
        )
        if min(abs(gone - HALF), abs(waiting - HALF)) < MARGIN:
            unclear.append(name)
        elif (gone > HALF) != (waiting > HALF):
            wrong.append(name)
    if unclear:
        return Verdict.undecided("A5", f"too near to a half to compare: {', '.join(unclear)}", *said)
    if not wrong:
        return Verdict.confirmed("A5", *said)
    if len(wrong) == len(shares):
        return Verdict.refuted("A5", *said)
    what = f"whether the I/O itself waits or computes (the two disagree on: {', '.join(wrong)})"
    return Verdict.depends("A5", what, *said)


# --- A25 ------------------------------------------------------------------------------------------------------------


def claim_a25(*, budget_s: float = 6.0) -> Verdict:
    """In most real image, audio and text loaders the time goes into waiting: the waiting share of what is bundled."""
    loaders = {
        "photographs, cached": _jpeg(JpegDataset),
        "text, cached": _loader(TextLines(text_file()), collate_fn=pad_collate),
        f"photographs, {text.seconds(FAR_S)} away (a stand-in)": _jpeg(FarJpeg, FAR_S),
    }
    if _disk_can_be_asked():
        loaders["photographs, from this disk"] = _jpeg(ForgottenJpeg)
    return judge_cases(read_in_turns(loaders, budget_s))


def judge_cases(found: dict[str, Reading]) -> Verdict:
    """The verdict on A25. Pure. A few cases cannot say what holds for most of the world's; where they differ, they
    say on what it depends."""
    said = tuple(_said(name, reading) for name, reading in found.items())
    waits = [name for name, reading in found.items() if reading.waiting > HALF + MARGIN]
    computes = [name for name, reading in found.items() if reading.waiting < HALF - MARGIN]
    world = "what share of the world's loaders this is cannot be counted on one machine; no audio is bundled"
    if waits and computes:
        return Verdict.depends("A25", "where the files are, more than on what is in them", *said, reason=world)
    return Verdict.not_testable("A25", f"every case measured is of one kind, and {world}", *said)


def _disk_can_be_asked() -> bool:
    """Whether the system drops files from its page cache when asked, tried on a few of them."""
    tried = photographs()[:8]
    return sum(forget(path) for path in tried) > len(tried) / 2


# --- C1 -------------------------------------------------------------------------------------------------------------


def claim_c1(*, budget_s: float = 5.0) -> Verdict:
    """The disk is a tenth or so of the loading time: photographs with a usual augmentation, cached and from the disk.

    The disk's share is what a sample costs more than the same bytes held in memory, collate included.
    """

    def augmented(kind: type[JpegDataset]) -> DataLoader:
        return _loader(kind(photographs(), Augmentation()))

    loaders = {"held": augmented(HeldJpeg), "page cache": augmented(JpegDataset)}
    if _disk_can_be_asked():
        loaders["disk (dropped from the page cache)"] = augmented(ForgottenJpeg)
    found = read_in_turns(loaders, budget_s)
    held = found.pop("held")
    return judge_disk(held, found)


def judge_disk(held: Reading, found: dict[str, Reading]) -> Verdict:
    """The verdict on C1 from the same samples held in memory and read from each place. Pure."""
    collate = held.parts.get("collate", 0.0)
    shares = {}
    for name, reading in found.items():
        whole, without = reading.seconds_over(held)
        shares[name] = max(0.0, (whole - without) / (whole + collate))
    said = [
        f"read from the {name}: {text.share(share)} is reading, n = {found[name].n}" for name, share in shares.items()
    ]
    augment = sum(seconds for name, seconds in held.parts.items() if name != "collate")
    rest = {"decoding": held.busy_s - augment, "augmentation": augment, "collate": collate}
    split = ", ".join(f"{name} {text.share(seconds / sum(rest.values()))}" for name, seconds in rest.items())
    said.append(f"of the rest: {split}, n = {held.n}")
    if near := [name for name, share in shares.items() if abs(share - LITTLE) < NEAR]:
        return Verdict.undecided("C1", f"too near to {text.share(LITTLE)} to say: read from the {near[0]}", *said)
    little = {share <= LITTLE for share in shares.values()}
    only = "" if len(shares) > 1 else "only with files in the page cache: here the system does not drop them when asked"
    if little == {True}:
        return Verdict.confirmed("C1", *said, reason=only)
    if little == {False}:
        return Verdict.refuted("C1", *said, reason=only)
    return Verdict.depends("C1", "whether the files are in the page cache", *said)
