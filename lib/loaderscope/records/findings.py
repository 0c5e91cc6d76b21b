"""What was concluded: findings, fixes, and the comparison that proves a fix."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loaderscope.records import text
from loaderscope.records.base import Record, Row, register
from loaderscope.records.samples import Estimate, Samples, ratio_of_means

# A configuration has to beat the other by more than this to be worth a change: below it run-to-run drift of the
# same configuration on a shared machine is as large (seen: 3 to 8 %).
WORTHWHILE_RATIO = 1.05
# Fewer rounds or epochs on a side than this give an interval that only looks narrow.
FEW_GROUPS = 3


@dataclass(frozen=True, repr=False)
class Comparison(Record):
    """The same loop before and after a change, in interleaved turns.

    before_s, after_s: seconds per sample of each round of batches or short epoch.
    """

    label: str
    before_label: str
    after_label: str
    before_s: Samples
    after_s: Samples
    note: str = ""

    title = "Comparison"

    @property
    def ratio(self) -> Estimate:
        """Throughput after over before: above 1 is faster."""
        return ratio_of_means(self.before_s, self.after_s)

    @property
    def verdict(self) -> str:
        """ "helped", "hurt", "no difference" (the whole interval within 5 % of 1) or "undecided"."""
        ratio = self.ratio
        if ratio.n < FEW_GROUPS:
            return "undecided"
        if ratio.above(WORTHWHILE_RATIO):
            return "helped"
        if ratio.below(1 / WORTHWHILE_RATIO):
            return "hurt"
        if ratio.known and ratio.low > 1 / WORTHWHILE_RATIO and ratio.high < WORTHWHILE_RATIO:
            return "no difference"
        return "undecided"

    def rows(self) -> tuple[Row, ...]:
        status = {"helped": "ok", "hurt": "bad"}.get(self.verdict, "warning")
        return (
            Row("change", self.label),
            Row("before", f"{self.before_label}: {self.before_s.estimate()} a sample"),
            Row("after", f"{self.after_label}: {self.after_s.estimate()} a sample"),
            Row("ratio", f"{self.ratio}: {self.verdict}", status),
            *([Row("note", self.note)] if self.note else []),
        )


@register
@dataclass(frozen=True)
class Fix:
    """A change that should help: what to paste, what it should bring, what it brought here, what it costs.

    expected: predicted ratio of throughput after over before, or None. verified: the Comparison run on this
    machine, or None (then `unverified` says why). changes: DataLoader arguments, where it is a configuration.
    """

    title: str
    code: str
    expected: float | None = None
    verified: Comparison | None = None
    unverified: str = "not tried here"
    cost: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def recommended(self) -> bool:
        """False once it was tried here and did not help, or not even leaned that way."""
        if self.verified is None:
            return True
        leans = self.verified.ratio.known and self.verified.ratio.value > 1
        return self.verified.verdict == "helped" or (self.verified.verdict == "undecided" and leans)

    @property
    def refusal(self) -> str:
        """Why it is not recommended, or ""."""
        if self.recommended:
            return ""
        said = {"hurt": "it made things slower", "no difference": "it made no difference"}
        return f"tried here, and {said.get(self.verified.verdict, 'nothing shows that it helps')}"

    @property
    def proof(self) -> str:
        """What the reader is told about its effect."""
        if self.verified is not None:
            return f"measured here: {self.verified.ratio}, {self.verified.verdict}"
        predicted = f"predicted {text.ratio(self.expected)}; " if self.expected is not None else ""
        return predicted + self.unverified

    def to_cell(self) -> str:
        """Put the code into a new notebook cell below the current one; outside a notebook only return it."""
        try:
            from IPython import get_ipython
        except ImportError:
            return self.code
        shell = get_ipython()
        if shell is not None and hasattr(shell, "set_next_input"):
            shell.set_next_input(self.code)
        return self.code


@register
@dataclass(frozen=True)
class Finding:
    """One cause, judged.

    cause: an id of CAUSES. verdict: "present", "absent" or "undecided". impact: share of wall time it costs
    (0..1, speed causes) or None. evidence: sentences, each with its number, unit and sample count.
    decide_by: for "undecided", what would decide. explained: causes folded into this one as evidence.
    """

    cause: str
    verdict: str
    impact: float | None = None
    evidence: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    decide_by: str = ""
    explained: tuple[str, ...] = ()
