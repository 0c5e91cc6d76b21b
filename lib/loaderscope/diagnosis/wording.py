"""The verdict in one sentence, with its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaderscope import thresholds
from loaderscope.diagnosis.causes import CAUSES
from loaderscope.records import Finding, LoaderFacts, is_measured, text

if TYPE_CHECKING:
    from loaderscope.diagnosis.report import Report


def verdict(report: Report) -> str:
    """What the reader reads first."""
    say = {
        "fault": _fault,
        "compute-bound": _compute_bound,
        "input-bound": _input_bound,
        "no step": _no_step,
        "undecided": _undecided,
    }
    return say[report.bound](report)


def no_batches(facts: LoaderFacts) -> str:
    """Why there may be nothing to measure."""
    if facts.kind == "any":
        return "the iterable gave no batch: one that was used up stays empty; pass a list, a DataLoader or a factory"
    length = text.count(facts.length, "sample") if is_measured(facts.length) else "a dataset of unknown length"
    return f"the loader gave no batch: {length}, batch_size={facts.batch_size}, drop_last={facts.drop_last}"


def _fault(report: Report) -> str:
    fault = report.evidence.fault
    cause = report.findings[0].cause if report.findings else "undecided"
    sure = "" if report.top is not None else "undecided, perhaps "
    who = "a worker" if fault.where == "worker" else "it"
    return f"The loader does not run through ({sure}{cause}): {who} {fault.summary}."


def _compute_bound(report: Report) -> str:
    if report.top is not None:
        return _no_step(report)
    room = report.headroom
    if room.ceiling.below(thresholds.CEILING_WORTH_IT) or not room.interference.above(thresholds.INTERFERENCE_RATIO):
        return f"The loader is not the problem (compute-bound): a perfect loader would save {room.savings}."
    return (
        f"The loader is not the problem (compute-bound): the loop waits for data {room.both.stall_fraction} of its "
        f"time. The step itself takes {room.interference} as long as on batches that are in memory already."
    )


def _input_bound(report: Report) -> str:
    saves = f"A perfect loader would save {report.headroom.savings}."
    if report.top is None:
        return f"The loop waits for data, and the cause is undecided. {saves}"
    impact = report.top.impact
    if impact is not None and impact < thresholds.MAIN_PART * report.headroom.ceiling.value:
        rest = f"The larger part of the wait is undecided; {text.share(impact)} of the time is this"
        return f"The loop waits for data. {rest}: {_meaning(report.top)}. {saves}"
    return f"The loop waits for data: {_meaning(report.top)}. {saves}"


def _no_step(report: Report) -> str:
    if report.top is not None:
        return f"What limits this loader: {_meaning(report.top)}; {_rate(report)}."
    only_a_step = "Whether that is enough, only a step can tell: diagnose(loader, step)."
    stands_out = "Nothing stands out in this loader" if _cheap(report) else "What limits this loader is undecided"
    return f"{stands_out}; {_rate(report)}. {only_a_step}"


def _undecided(report: Report) -> str:
    room, fault = report.headroom, report.evidence.fault
    if report.top is not None:
        return f"The loader as it is set up is at fault ({report.top.cause}): {report.top.evidence[0]}."
    if fault is not None and fault.where == "step":
        return f"Undecided: your step raised {fault.error_type}: {fault.error_text}."
    if not is_measured(room):
        return f"Undecided: {room.reason}."
    if not room.alone.batches and report.ended != "interrupted":
        return "Undecided: the loader gave no batch."
    if report.evidence.with_step and not room.with_step:
        return f"Undecided: {room.ceiling.reason}. Run again with a larger budget_s."
    if is_measured(room) and room.with_step and room.ceiling.known:
        return (
            f"Undecided whether the loader matters: a perfect loader would save {room.savings}. "
            "Measure longer with a larger budget_s."
        )
    return "Undecided: too little was measured. Run again with a larger budget_s, or see the notes."


def _cheap(report: Report) -> bool:
    """Samples come so fast that no training step we know of would wait for them."""
    room = report.headroom
    if not is_measured(room) or not room.alone.step_time.n:
        return False
    size = room.alone.mean_batch
    return room.alone.step_time.mean / (size if is_measured(size) and size else 1.0) < thresholds.CHEAP_SAMPLE_S


def _meaning(finding: Finding) -> str:
    meaning = CAUSES[finding.cause].meaning.rstrip(".")
    return f"{meaning[0].lower()}{meaning[1:]} ({finding.cause})"


def _rate(report: Report) -> str:
    if not is_measured(report.headroom) or not report.headroom.alone.step_time.n:
        return "its speed was not measured"
    return f"alone it gives {report.headroom.alone.throughput}"
