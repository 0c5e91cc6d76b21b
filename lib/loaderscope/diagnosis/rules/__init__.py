"""Rules: pure functions from evidence to findings. One module per family of causes."""

from __future__ import annotations

from loaderscope.diagnosis.evidence import Evidence
from loaderscope.diagnosis.order import ordered
from loaderscope.diagnosis.rules import configuration, faults, speed
from loaderscope.records import Finding

FAMILIES = (configuration.judge, faults.judge, speed.judge)

# What a report of this release can say; the other causes of the table are named and not judged yet.
JUDGED = (
    "compute-bound",
    "no-overlap",
    "io-latency",
    "cpu-bound",
    "python-bound",
    "interference",
    "hang",
    "worker-crash",
    "worker-killed",
    "worker-error",
    "unpicklable",
    "notebook-class",
    "bad-configuration",
    "undersized-batches",
)


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """All findings that are present or undecided, in the order of a report."""
    found: list[Finding] = []
    for family in FAMILIES:
        found.extend(family(evidence))
    return ordered(tuple(f for f in found if f.verdict != "absent"))
