"""What the loader's configuration already tells: preflight checks that failed, as findings."""

from __future__ import annotations

from loaderscope.diagnosis.evidence import Evidence
from loaderscope.diagnosis.rules import faults
from loaderscope.records import Check, Finding, Fix, is_measured, text

# Checks of the loader; the machine's are about every loader alike and stay in the preflight.
CAUSES = ("bad-configuration", "undersized-batches", "unpicklable", "notebook-class")


def judge(evidence: Evidence) -> tuple[Finding, ...]:
    """One finding for each failed check of the loader that names a cause."""
    if not is_measured(evidence.preflight):
        return ()
    failed = [check for check in evidence.preflight.failed if check.cause in CAUSES]
    return tuple(_finding(evidence, check) for check in failed)


def _finding(evidence: Evidence, check: Check) -> Finding:
    said = f"preflight, {check.name}: {check.text}"
    if not any(c.isdigit() for c in check.text):
        said += f" ({text.count(evidence.facts.workers, 'worker')})"
    fixes = (Fix(check.way_out, f"# {check.way_out}", unverified="the check fails as long as it is so"),)
    explained = ("worker-error",) if faults.refused_to_start(evidence) else ()
    return Finding(check.cause, "present", None, (said,), fixes if check.way_out else (), explained=explained)
