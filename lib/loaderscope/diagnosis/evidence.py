"""Everything the rules may look at, as one record: what was measured and what was not."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import (
    Environment,
    GilCheck,
    Headroom,
    LoaderFacts,
    NotMeasured,
    Outcome,
    Preflight,
    Record,
    Row,
    StageProfile,
    is_measured,
)


@dataclass(frozen=True, repr=False)
class Evidence(Record):
    """Measurements of one loader. faults: how its iteration ended, if badly; confirmed: the same in a spawned child."""

    facts: LoaderFacts
    environment: Environment
    with_step: bool
    preflight: Preflight | NotMeasured = NotMeasured("not run")
    headroom: Headroom | NotMeasured = NotMeasured("not run")
    profile: StageProfile | NotMeasured = NotMeasured("not run")
    gil: GilCheck | NotMeasured = NotMeasured("not run")
    fault: Outcome | None = None
    confirmed: Outcome | NotMeasured = NotMeasured("not needed")

    title = "Evidence"

    def rows(self) -> tuple[Row, ...]:
        parts = ("headroom", "profile", "gil")
        return tuple(
            Row(name, "measured" if is_measured(getattr(self, name)) else str(getattr(self, name))) for name in parts
        )
