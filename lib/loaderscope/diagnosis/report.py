"""The report: a verdict in one sentence, the findings, and what they rest on."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.diagnosis import costs
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.errors import BadInputError
from loaderscope.experiments.prove import seconds_per_sample
from loaderscope.records import (
    Comparison,
    Environment,
    Finding,
    Fix,
    GilCheck,
    Headroom,
    LoaderFacts,
    LoopTiming,
    NotMeasured,
    Record,
    Row,
    StageProfile,
    is_measured,
    text,
)
from loaderscope.records.base import printable


@dataclass(frozen=True, repr=False)
class Report(Record):
    """What `diagnose` concluded, with everything it rests on.

    findings: present and undecided causes, most costly first. portability: what would break under another start
    method. steps_run: how often the reader's step was called. notes: what a reader should know about this report.
    ended: "complete", "budget" (some parts did not fit) or "interrupted".
    """

    evidence: Evidence
    findings: tuple[Finding, ...]
    portability: tuple[Finding, ...] = ()
    steps_run: int = 0
    state_restored: bool = False
    budget_s: float = 0.0
    elapsed_s: float = 0.0
    ended: str = "complete"
    notes: tuple[str, ...] = ()

    title = "loaderscope report"

    @property
    def facts(self) -> LoaderFacts:
        return self.evidence.facts

    @property
    def environment(self) -> Environment:
        return self.evidence.environment

    @property
    def headroom(self) -> Headroom | NotMeasured:
        return self.evidence.headroom

    @property
    def profile(self) -> StageProfile | NotMeasured:
        return self.evidence.profile

    @property
    def gil(self) -> GilCheck | NotMeasured:
        return self.evidence.gil

    @property
    def timing(self) -> LoopTiming | NotMeasured:
        """The loop as the reader runs it: loader and step together, or the loader alone."""
        room = self.headroom
        if not is_measured(room):
            return room
        return room.both if is_measured(room.both) else room.alone

    @property
    def top(self) -> Finding | None:
        """The first present finding; None when nothing is wrong."""
        return next((f for f in self.findings if f.verdict == "present"), None)

    @property
    def bound(self) -> str:
        """ "compute-bound", "input-bound", "no step", "undecided" or "fault"."""
        return costs.bound(self.evidence)

    @property
    def verdict(self) -> str:
        """One sentence, with its number."""
        from loaderscope.diagnosis import wording

        return wording.verdict(self)

    def fix(self, number: int) -> Fix:
        """The number-th fix of the report, counted from 1 over all findings in order.

        Raises:
            BadInputError: there is no such fix.
        """
        fixes = [f for finding in self.findings for f in finding.fixes]
        if not isinstance(number, int) or not 1 <= number <= len(fixes):
            raise BadInputError(
                f"There is no fix number {number!r}",
                seen=f"{text.count(len(fixes), 'fix', 'fixes')} in this report",
                way_out="see report.findings",
            )
        return fixes[number - 1]

    def compare(self, after: Report) -> Comparison:
        """This report's loop against another report's: same loader before and after a change, or two machines.

        Raises:
            BadInputError: `after` is no report, a loop is missing, or the two loops mean different things.
        """
        if not isinstance(after, Report):
            raise BadInputError(
                "A report is compared with a report", seen=type(after).__name__, way_out="before.compare(after)"
            )
        pair = (self.timing, after.timing)
        if not all(is_measured(t) and t.step_time.n for t in pair):
            raise BadInputError(
                "Both reports need a measured loop to be compared", way_out="run diagnose again with a larger budget_s"
            )
        if is_measured(pair[0].compute_time_s) != is_measured(pair[1].compute_time_s):
            raise BadInputError(
                "One report was made with a step and the other without, so their times mean different things",
                way_out="make both with step=, or both without",
            )
        before_s, after_s = (seconds_per_sample(t) for t in pair)
        note = "measured at different times, not in turns: drift of the machine is in the ratio"
        return Comparison("two reports", self.facts.loader, after.facts.loader, before_s, after_s, note)

    def plot(self, ax=None):
        """Timeline of waiting and computing beside where a sample's time goes; with `ax`, the timeline alone."""
        from loaderscope.views import plots

        return plots.draw(self, ax)

    def rows(self) -> tuple[Row, ...]:
        out = [Row("verdict", self.verdict, "ok" if self.top is None else "bad")]
        for finding in self.findings:
            out.append(_finding_row(finding))
            out += [Row("  evidence", e) for e in finding.evidence]
            out += [Row("  fix", f"{f.title} ({f.proof})") for f in finding.fixes if f.recommended]
            out += [Row("  tried", f"{f.title}: {f.refusal} ({f.proof})") for f in finding.fixes if not f.recommended]
        if is_measured(self.headroom) and self.headroom.alone.batches:
            out += self.headroom.rows()
        out += [Row("note", n) for n in self.notes]
        return tuple(out)

    def __repr__(self) -> str:
        """The report as text. Longer than other records: this is what a terminal shows."""
        rows = self.rows()
        width = max(len(r.label) for r in rows)
        return printable("\n".join([self.title, *(f"  {r.label:<{width}}  {r.value}" for r in rows)]))

    def _repr_html_(self) -> str:
        from loaderscope.views import html

        return html.report(self)


def _finding_row(finding: Finding) -> Row:
    cost = f", {text.share(finding.impact)} of the time" if finding.impact is not None else ""
    if finding.verdict == "undecided":
        return Row("undecided", f"{finding.cause}{cost}: {finding.decide_by}", "warning")
    return Row("finding", f"{finding.cause}{cost}", "bad")
