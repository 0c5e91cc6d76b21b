"""What the machine and the loader's configuration already tell before anything is iterated."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records.base import NotMeasured, Record, Row, register
from loaderscope.records.environment import Environment
from loaderscope.records.loader import LoaderFacts

_STATUS = {"ok": "ok", "note": "ok", "warn": "warning", "fail": "bad", "missing": "missing"}


@register
@dataclass(frozen=True)
class Check:
    """One line of a preflight: status "ok", "note", "warn", "fail" or "missing"; cause: an id of CAUSES or ""."""

    name: str
    status: str
    text: str
    way_out: str = ""
    cause: str = ""


@dataclass(frozen=True, repr=False)
class Preflight(Record):
    """Checks of the machine, and of a loader's configuration where one was given."""

    environment: Environment
    facts: LoaderFacts | NotMeasured
    checks: tuple[Check, ...]

    title = "Preflight"

    @property
    def failed(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if c.status == "fail")

    @property
    def warned(self) -> tuple[Check, ...]:
        return tuple(c for c in self.checks if c.status == "warn")

    def rows(self) -> tuple[Row, ...]:
        rank = {"fail": 0, "warn": 1, "note": 2, "missing": 3, "ok": 4}
        ordered = sorted(self.checks, key=lambda c: rank[c.status])
        return tuple(Row(c.name, c.text + (f" → {c.way_out}" if c.way_out else ""), _STATUS[c.status]) for c in ordered)
