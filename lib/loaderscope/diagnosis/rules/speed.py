"""Where the loop's time goes: no-overlap, interference, and what makes loading itself slow."""

from __future__ import annotations

from loaderscope import thresholds
from loaderscope.diagnosis import costs, fixes
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.records import Finding, is_measured, text
from loaderscope.records.gil import VERDICTS


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """Findings of the speed family, present or undecided; none for a loop that does not wait for data."""
    bound = costs.bound(evidence)
    if bound not in ("input-bound", "no step"):
        return ()
    split = costs.shares(evidence)
    found = [_no_overlap(evidence, split), _interference(evidence, split), _inside(evidence, split)]
    return tuple(f for f in found if f is not None)


def _no_overlap(evidence: Evidence, split: costs.Shares) -> Finding | None:
    if split.overlap < thresholds.IMPACT_WORTH_NAMING:
        return None
    room = evidence.headroom
    load, use, n = room.alone.step_time.estimate(), room.cached.estimate(), room.both.step_time.n
    said = (
        f"num_workers=0: a batch is loaded in {load}, then used in {use}, one after the other",
        f"{text.share(split.overlap)} of the loop could be hidden behind the other half (n = {n} batches)",
    )
    return Finding("no-overlap", "present", split.overlap, said, fixes.for_no_overlap(evidence))


def _interference(evidence: Evidence, split: costs.Shares) -> Finding | None:
    """Both together slower than each alone predicts, and the two want more cores than there are."""
    if split.interference < thresholds.IMPACT_WORTH_NAMING or not costs.fights(evidence):
        return None
    room, (loader, step) = evidence.headroom, costs.demand(evidence)
    have, n = evidence.environment.cores_allowed, room.both.step_time.n
    said = (
        f"both together take {room.interference} of the time that each alone predicts",
        f"loader and step want {loader:.2f} + {step:.2f} cores of {have:.3g} "
        f"(CPU seconds per predicted second, n = {n} batches)",
    )
    return Finding("interference", "present", split.interference, said, fixes.for_interference(evidence))


def _inside(evidence: Evidence, split: costs.Shares) -> Finding | None:
    """What makes loading itself slower than the step: waiting, or computing with or without the GIL."""
    profile = evidence.profile
    if split.own < thresholds.IMPACT_WORTH_NAMING or not is_measured(profile) or profile.n < thresholds.FEW_READS:
        return None
    if not evidence.with_step and profile.wall.mean < thresholds.CHEAP_SAMPLE_S:
        return None
    part = costs.explained(evidence)
    if part is not None and part < thresholds.EXPLAINED_LITTLE:
        return None
    waiting = _waiting_part(profile.shares)
    impact = min(1.0, split.own)
    if part is not None and part < thresholds.EXPLAINED_SHARE:
        return _unexplained(evidence, impact, waiting, part)
    if waiting >= thresholds.WAITING_SHARE:
        return _io_latency(evidence, impact * waiting)
    if 1 - waiting >= thresholds.COMPUTING_SHARE:
        return _computing(evidence, impact * (1 - waiting))
    both = _sample_sentence(evidence)
    return Finding(
        "io-latency",
        "undecided",
        impact * waiting,
        both,
        fixes.for_io_latency(evidence),
        "waiting and computing are about equal: try the fix for each",
    )


def _waiting_part(shares: dict[str, float]) -> float:
    """Waiting as a part of waiting and computing together."""
    busy = shares["waiting"] + shares["computing"]
    return shares["waiting"] / busy if busy > 0 else 0.0


def _unexplained(evidence: Evidence, impact: float, waiting: float, part: float) -> Finding:
    """The dataset does not account for the loader's time: what it does most is only suspected."""
    n = evidence.headroom.alone.step_time.n
    outside = f"dataset and collate account for {text.share(part)} of the loader's time a batch (n = {n} batches)"
    decide = "run again on a quieter machine; if it stays so, the time goes into bringing batches to the main process"
    cause, cost = ("io-latency", waiting) if waiting >= 0.5 else ("cpu-bound", 1 - waiting)
    return Finding(cause, "undecided", impact * cost, (*_sample_sentence(evidence), outside), (), decide)


def _io_latency(evidence: Evidence, impact: float) -> Finding:
    said = _sample_sentence(evidence)
    gil = evidence.gil
    if is_measured(gil) and gil.verdict == "serialised":
        why = f"samples wait, and threads do not speed them up ({gil.why}): a lock may be what they wait for"
        return Finding(
            "io-latency", "undecided", impact, (*said, why), (), "measure without the lock, or with processes"
        )
    if is_measured(gil) and gil.verdict == "waits":
        said = (*said, f"GIL check: {VERDICTS['waits']} ({gil.why})")
    return Finding("io-latency", "present", impact, said, fixes.for_io_latency(evidence))


def _computing(evidence: Evidence, impact: float) -> Finding:
    said, gil = _sample_sentence(evidence), evidence.gil
    if costs.contended(evidence):
        share, n = evidence.profile.shares["queueing"], evidence.profile.n
        other = f"samples queue for a core {text.share(share)} of their time (n = {n}) while other jobs use the machine"
        said = (*said, other)
        if costs.own_without_queueing(evidence) < thresholds.IMPACT_WORTH_NAMING:
            return Finding("cpu-bound", "undecided", impact, said, (), "run again when the other jobs have ended")
    if not is_measured(gil):
        return Finding("cpu-bound", "undecided", impact, said, (), f"the GIL check: {gil.reason}")
    sentence = f"GIL check: {VERDICTS[gil.verdict]} ({gil.why})"
    if gil.verdict == "holds-gil":
        return Finding("python-bound", "present", impact, (*said, sentence), fixes.for_python_bound(evidence))
    if gil.verdict in ("computes", "gil-free", "serialised"):
        return Finding("cpu-bound", "present", impact, (*said, sentence), fixes.for_cpu_bound(evidence))
    return Finding(
        "cpu-bound",
        "undecided",
        impact,
        (*said, sentence),
        fixes.for_cpu_bound(evidence),
        "run the GIL check on a quieter machine",
    )


def _sample_sentence(evidence: Evidence) -> tuple[str, ...]:
    profile, room = evidence.profile, evidence.headroom
    shares = profile.shares
    out = [
        f"a sample takes {profile.wall.estimate()}: {text.share(shares['waiting'])} waiting, "
        f"{text.share(shares['computing'])} computing, {text.share(shares['queueing'])} queueing for a core",
        f"loader alone: {room.alone.throughput} with {text.count(evidence.facts.workers, 'worker')}",
    ]
    if profile.transforms:
        top = max(profile.transforms, key=lambda s: sum(s.wall_s))
        part = sum(top.wall_s) / max(sum(profile.wall_s), 1e-12)
        out.append(
            f"costliest transform: {top.name}, {text.share(part)} of the sample's time (n = {len(top.wall_s)} calls)"
        )
    return tuple(out)
