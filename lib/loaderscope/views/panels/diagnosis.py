"""`diagnose_panel`: the whole diagnosis on a button, its fixes as cells, its report as a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import ipywidgets as w

from loaderscope.errors import LoaderscopeError
from loaderscope.views.job import Job, Status
from loaderscope.views.panels.panel import Panel, Shown, block, chosen, line, pre, slider, words

ROLES = (
    ("not said", None),
    ("train: it should shuffle", "train"),
    ("eval: it must not lose or repeat samples", "eval"),
)


INTRO = (
    "First the loader alone, the step on cached batches, and both together: can the loader matter at all? Then where a"
    " sample's time goes and why. What can be tried here is tried, before and after in turns. Stop at any time: the"
    " report then has what was measured until then."
)
_STEP_RUNS = "Your step really runs; what it changes is kept: pass state=(model, optimizer) to have it restored."


def diagnose_panel(
    loader: Any, step: Callable[[Any], Any] | None = None, state: Iterable[Any] = (), budget_s: float = 60
) -> Panel:
    """Diagnose a loader in the background: the verdict, what to change, and what the change did here.

    The step runs on a thread of its own. What torch keeps per thread (gradient mode, autocast, the current CUDA
    device) is therefore as in a new thread: set it inside the step.

    Args:
        loader, step, state: as for `ls.diagnose`.
        budget_s: where the slider of seconds stands first.
    """
    state = tuple(state)
    controls = {
        "budget_s": slider(
            w.IntSlider, "Budget (s)", min(10, budget_s), max(120, budget_s), budget_s, "How long measuring may take"
        ),
        "role": chosen(
            w.Dropdown, "Role", "What the loader is for: some findings depend on it", options=ROLES, index=0
        ),
    }

    def code(budget_s: float, role: str | None) -> str:
        more = [f"budget_s={budget_s:g}", *([f"role={role!r}"] if role else []), *(["state=state"] if state else [])]
        given = ["loader", *(["step"] if step is not None else []), *more]
        return f"import loaderscope as ls\n\nreport = ls.diagnose({', '.join(given)})\nreport"

    def work(job: Job, budget_s: float, role: str | None) -> Any:
        from loaderscope.diagnosis.diagnose import diagnose

        job.expect(budget_s)
        return diagnose(loader, step, budget_s=budget_s, role=role, state=state, progress=job.progress)

    intro = INTRO if step is None or state else f"{INTRO} {_STEP_RUNS}"
    panel = Panel("Diagnose your loader", controls, code=code, work=work, show=shown, intro=intro, run_label="Diagnose")
    after = Afterwards()
    panel.job.listen(after.on_status)
    panel.below.children = (after.ui,)
    return panel


def shown(report: Any) -> Shown:
    """The whole report, which begins with its verdict."""
    return Shown(more=report._repr_html_())


class Afterwards:
    """What can be done with a finished report: each fix into a cell of its own, the whole into a file."""

    def __init__(self) -> None:
        self.report: Any = None
        self.fixes, self.said = w.HBox(layout=w.Layout(flex_flow="row wrap")), w.HTML()
        self.name = chosen(
            w.Text, "File name", "Where the report goes: .html, or .json to load it again", value="report.html",
            layout=w.Layout(width="24em"),
        )  # fmt: skip
        self.save = w.Button(
            description="Save HTML", icon="save", tooltip="Write the report as one self-contained file"
        )
        self.saved = w.HTML()
        self.saver = Job(self._write, [self._on_saved])
        self.save.on_click(lambda _: self.saver.start())
        row = w.HBox([self.name, self.save], layout=w.Layout(flex_flow="row wrap"))
        self.ui = w.VBox([self.fixes, self.said, row, self.saved], layout=w.Layout(display="none"))
        self._own: set[str] = set()

    def on_status(self, status: Status) -> None:
        """Take up the report of a run that has ended."""
        if status.running or not status.fresh or status.result is self.report:
            return
        self.report = status.result
        fixes = [fix for finding in self.report.findings for fix in finding.fixes]
        self.fixes.children = tuple(self._button(k, fix.title) for k, fix in enumerate(fixes, 1))
        self.said.value = self.saved.value = ""
        self.ui.layout.display = None

    def _button(self, number: int, title: str) -> w.Button:
        button = w.Button(
            description=f"Fix {number} to a new cell", tooltip=title, icon="plus", layout=w.Layout(width="auto")
        )
        button.on_click(lambda _: self._to_cell(number))
        return button

    def _to_cell(self, number: int) -> None:
        fix = self.report.fix(number)
        code = fix.to_cell()
        # Outside a running cell the notebook takes up a new cell only with the next one that runs.
        where = "If no new cell has appeared, it comes below the next cell you run; or copy the code from here."
        self.said.value = block(line(f"Fix {number}, {words(fix.title)}. {where}") + pre(code))

    def _write(self, job: Job) -> str:
        path = os.path.abspath(os.path.expanduser(self.name.value.strip()))
        if os.path.exists(path) and path not in self._own:
            raise FileExistsError(f"there is already a file {path}: choose another name")
        self.report.save(path)
        self._own.add(path)
        return path

    def _on_saved(self, status: Status) -> None:
        self.save.disabled = status.running
        if status.running:
            self.saved.value = block("Saving …")
        elif status.error is not None:
            self.saved.value = block(words(_why_not_saved(status.error)))
        elif status.fresh:
            self.saved.value = block(f"✓ Saved as {words(status.result)}")


def _why_not_saved(error: BaseException) -> str:
    if isinstance(error, PermissionError):
        return f"✖ Not saved: this folder or file cannot be written to ({error.filename}). Choose a folder of your own."
    if isinstance(error, FileExistsError | LoaderscopeError):
        return f"✖ Not saved: {error}"
    if isinstance(error, OSError):
        return f"✖ Not saved: {error.strerror or error} ({error.filename}). Choose another name or folder."
    return f"✖ Not saved: {type(error).__name__}: {error}"
