"""The order of findings: explained ones fold into what explains them; the rest by cost or by certainty."""

from __future__ import annotations

from dataclasses import replace

from loaderscope.diagnosis.causes import CAUSES
from loaderscope.records import Finding

_POSITION = {cause: k for k, cause in enumerate(CAUSES)}
# Faults that stop a loader come before what makes it slow, and what is wrong in silence before what merely costs time.
_FAMILIES = {"safety": 0, "correctness": 1, "memory": 2, "speed": 2}


def ordered(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Present before undecided; safety, correctness, then speed and memory by impact; ties as in CAUSES."""
    return tuple(sorted(_folded(findings), key=_rank))


def _rank(finding: Finding) -> tuple:
    family = CAUSES[finding.cause].family
    cost = -(finding.impact or 0.0) if family in ("speed", "memory") else 0.0
    return finding.verdict != "present", _FAMILIES[family], cost, _POSITION[finding.cause]


def _explained(finding: Finding) -> tuple[str, ...]:
    """What the cause explains whenever both are present, and what this very finding does."""
    return tuple(dict.fromkeys((*CAUSES[finding.cause].explains, *finding.explained)))


def _folded(findings: tuple[Finding, ...]) -> list[Finding]:
    """A finding explained by another present one becomes its evidence."""
    present = {f.cause: f for f in findings if f.verdict == "present"}
    explains = {c: [x for x in _explained(f) if x in present and x != c] for c, f in present.items()}
    gone = {x for xs in explains.values() for x in xs}
    out: list[Finding] = []
    for finding in findings:
        if finding.verdict == "present" and finding.cause in gone:
            continue
        below = explains.get(finding.cause, []) if finding.verdict == "present" else []
        if below:
            evidence = finding.evidence + tuple(f"explains {x}: {e}" for x in below for e in present[x].evidence[:2])
            finding = replace(finding, evidence=evidence, explained=tuple(below))
        out.append(finding)
    return out
