"""`diagnose` on something bad, and what has to hold whatever the matter is."""

from __future__ import annotations

import json

import loaderscope as ls
from loaderscope.diagnosis.causes import CAUSES
from loaderscope.diagnosis.report import Report

# The promise is 20 % or 5 s; tests run on machines with other work to do.
LATE_S = 12.0


def reported(loader, step=None, *, budget_s: float = 2.0, steps_s: float = 0.0, **how) -> Report:
    """The report, after checks that hold for every loader.

    steps_s: seconds of one step, where that is more than an instant.
    """
    inner = dict(vars(loader)) if hasattr(loader, "__dict__") else {}
    report = ls.diagnose(loader, step, budget_s=budget_s, **how)
    check_report(report)
    assert report.elapsed_s < 1.2 * budget_s + steps_s + LATE_S
    after = dict(vars(loader)) if hasattr(loader, "__dict__") else {}
    assert inner.keys() == after.keys() and all(after[name] is value for name, value in inner.items()), "it was altered"
    return report


def check_report(report: Report) -> bool:
    """A verdict, findings of known causes whose evidence has numbers, and JSON that is JSON."""
    assert report.verdict.strip() and "NotMeasured(" not in repr(report) and "nan" not in report.verdict
    for finding in report.findings:
        assert finding.cause in CAUSES and finding.verdict in ("present", "undecided")
        assert finding.evidence and all(any(c.isdigit() for c in e) for e in finding.evidence)
        assert finding.verdict == "present" or finding.decide_by
    json.dumps(report.to_dict(), allow_nan=False)
    return True


def causes(report: Report, family: str = "") -> list[str]:
    """Present causes, of one family or of all."""
    return [f.cause for f in report.findings if f.verdict == "present" and family in ("", CAUSES[f.cause].family)]
