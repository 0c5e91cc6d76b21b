"""`gil_panel`: does this work wait, compute without the GIL, hold the GIL, or queue for another lock?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ipywidgets as w

from loaderscope.errors import BadInputError
from loaderscope.records import GilCheck
from loaderscope.records.gil import VERDICTS
from loaderscope.views import html, plots
from loaderscope.views.job import Job
from loaderscope.views.panels.panel import Panel, Shown, chosen, line, slider, words
from loaderscope.views.panels.planted import default_gil_choices

INTRO = (
    "Guess first: do threads help this work? Run calls it on 1, 2 and 4 threads in a child process, between a sleep,"
    " zlib and a pure-Python loop, and watches how much of the time the GIL is held."
)


def gil_panel(choices: Mapping[str, Any] | None = None, budget_s: float = 12) -> Panel:
    """Pick one of several datasets and check how its `__getitem__` uses the GIL.

    Args:
        choices: name -> map-style dataset; None takes seven kinds of planted work (`default_gil_choices`).
        budget_s: where the slider of seconds stands first.
    """
    given = choices is not None
    choices = dict(choices) if given else default_gil_choices()
    if not choices:
        raise BadInputError(
            "There is nothing to choose from", seen="choices={}", way_out="pass name -> dataset, or None"
        )
    names = list(choices)
    controls = {
        "choice": chosen(w.Dropdown, "Work", "Whose __getitem__ is checked", options=names, value=names[0]),
        "budget_s": slider(
            w.FloatSlider,
            "Seconds",
            min(4, budget_s),
            max(30, budget_s),
            budget_s,
            "How long the check may take",
            step=1,
        ),
    }

    def code(choice: str, budget_s: float) -> str:
        source = "" if given else "from loaderscope.views import panels\n\nchoices = panels.default_gil_choices()\n"
        return f"import loaderscope as ls\n{source}ls.gil_check(choices[{choice!r}], budget_s={budget_s:g})"

    def work(job: Job, choice: str, budget_s: float) -> tuple[str, GilCheck]:
        from loaderscope.probes.gil import gil_check

        job.expect(budget_s)
        job.progress(f"GIL check of {choice}, in a child process")
        return choice, gil_check(choices[choice], budget_s=budget_s)

    return Panel(
        "Waits, computes, or holds the GIL?", controls, code=code, work=work, show=lambda r: shown(*r), intro=INTRO
    )


def shown(name: str, check: GilCheck) -> Shown:
    """A GIL check as picture, verdict and table."""
    said = f"<strong>{words(name)}</strong>: {words(VERDICTS[check.verdict])}. {words(check.why)}."
    more = f"<details><summary>All numbers</summary>{html.record(check)}</details>"
    return Shown(line(said), plots.png(check), plots.describe(check), more)
