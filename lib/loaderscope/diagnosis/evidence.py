"""Everything the rules may look at, as one record: what was measured and what was not."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import (
    Environment,
    GilCheck,
    Headroom,
    LoaderFacts,
    LoopTiming,
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


def loops_of(room: Headroom) -> list[LoopTiming]:
    """The loops of a headroom measurement, both together first."""
    return [loop for loop in (room.both, room.alone) if is_measured(loop)]


def fault_of(room: Headroom) -> Outcome | None:
    """What ended one of its loops badly."""
    return next((loop.fault for loop in loops_of(room) if loop.fault is not None), None)
