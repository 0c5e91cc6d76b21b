"""`Panel`: the one design of all panels, over a Job that knows nothing of it.

Controls left, picture right, the verdict in words under it, then the line of code that does the same. Callbacks may
run on a cell's thread or on another one, so they only set texts and start threads; pictures are drawn on threads of
their own, and never while something is being timed.
"""

from __future__ import annotations

import base64
import html
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets as w

from loaderscope.records import is_measured, text
from loaderscope.views.job import Job, Status
from loaderscope.views.plots.style import clean

LINE = "1px solid var(--jp-border-color1, #999)"
LEFT = "27em"
_PRE = f"margin:.2em 0;padding:.5em .7em;border:{LINE};overflow-x:auto;white-space:pre;line-height:1.4"


def words(value: object) -> str:
    """Anything as text inside HTML: escaped, for elements and for attributes in double quotes."""
    return html.escape(clean(value), quote=True)


def block(inner: str) -> str:
    """HTML that flows as text does, as wide as there is room: a widget alone has the line height of one line and
    grows as wide as its longest line of code."""
    return f'<div style="line-height:1.45;width:0;min-width:100%;overflow-x:auto">{inner}</div>' if inner else ""


def line(inner: str) -> str:
    """A paragraph of HTML with little air around it."""
    return f'<p style="margin:.25em 0">{inner}</p>'


def image(png: bytes, alt: str) -> str:
    """A picture with its alternative text, which ipywidgets' own Image cannot carry."""
    width, height = struct.unpack(">II", png[16:24])  # known at once, so that nothing jumps while it is redrawn
    data = base64.b64encode(png).decode("ascii")
    style = "max-width:100%;height:auto;background:white"
    return (
        f'<img alt="{words(alt)}" width="{width}" height="{height}" style="{style}" src="data:image/png;base64,{data}">'
    )


def pre(code: str) -> str:
    return f'<pre style="{_PRE}"><code>{words(code)}</code></pre>'


@dataclass(frozen=True)
class Shown:
    """How a result looks. verdict, more: HTML with everything of the reader's escaped; picture: PNG; alt: the picture
    in words. None leaves that part of the panel as it is.
    """

    verdict: str | None = None
    picture: bytes | None = None
    alt: str = ""
    more: str | None = None


class Panel:
    """Widgets over a Job, made by composition: shown where it is the last value of a cell.

    Args:
        title: what the panel is for, a few words.
        controls: argument name -> widget. Their values go to `code`, `work` and `live` by these names; they are
            locked during a run, so that a result belongs to what they show.
        code: the plain-code line for the values.
        work: `work(job, **values)` measures in the background and returns a result; None leaves Run and Stop out.
        show: result -> Shown, called when a run gave one, whole or partial.
        live: `live(**values)` -> Shown, drawn at once when a control changes; must not measure.
        right: a widget in the picture's place, for panels without one.
        intro: what stands in the verdict's place until there is one.
        run_label: what the start button says.
        left_width: CSS width of the column of controls.
    """

    def __init__(
        self,
        title: str,
        controls: Mapping[str, w.Widget],
        *,
        code: Callable[..., str],
        work: Callable[..., Any] | None = None,
        show: Callable[[Any], Shown] | None = None,
        live: Callable[..., Shown] | None = None,
        right: w.Widget | None = None,
        intro: str = "",
        run_label: str = "Run",
        left_width: str = LEFT,
    ):
        self.title, self.controls = title, dict(controls)
        self._code, self._work, self._show, self._live = code, work, show, live
        self.job = Job(lambda job: self._work(job, **self.values()), [self._on_status])
        self.redraw = Redraw(self._draw_live)
        self.run = w.Button(description=run_label, icon="play", button_style="primary", tooltip=f"{run_label}: {title}")
        self.stop = w.Button(
            description="Stop", icon="stop", disabled=True, tooltip="Stop now and keep what was measured so far"
        )
        self.bar = w.FloatProgress(min=0.0, max=1.0, tooltip="Share of the run that is done", layout=_wide())
        self.message = w.HTML(block("Ready."), layout=_wide())
        self.picture, self.verdict, self.more, self.code = w.HTML(), w.HTML(block(words(intro))), w.HTML(), w.HTML()
        self.below = w.VBox()
        self.ui = self._assemble(right, left_width)
        self.run.on_click(self._on_run)
        self.stop.on_click(self._on_stop)
        for control in self.controls.values():
            control.observe(self._on_change, "value")
        self._write_code()
        self._draw_live()

    def values(self) -> dict[str, Any]:
        """What the controls say now."""
        return {name: control.value for name, control in self.controls.items()}

    def close(self) -> None:
        """Stop what is going and take the panel away; ipywidgets keeps a panel's objects alive until then."""
        self.job.stop()
        for widget in _family(self.ui):
            widget.close()

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return self.ui._repr_mimebundle_(**kwargs)

    def __repr__(self) -> str:
        return f"<Panel {self.title!r}: {self.job.state}>"

    # --- callbacks: they set texts and start threads ---------------------------------------------------------------

    def _on_run(self, _: Any) -> None:
        self.job.start()

    def _on_stop(self, _: Any) -> None:
        self.job.stop()

    def _on_change(self, _: Any) -> None:
        self._write_code()
        if self._live is not None:
            self.redraw.ask()

    def _write_code(self) -> None:
        self.code.value = block(line("The same in a cell:") + pre(self._code(**self.values())))

    # --- from the job's threads ------------------------------------------------------------------------------------

    def _on_status(self, status: Status) -> None:
        self.run.disabled, self.stop.disabled = status.running, not status.running
        for control in self.controls.values():
            control.disabled = status.running
        self.bar.value = status.share
        self.message.value = block(_message(status))
        if not status.running and status.fresh:
            self._safely(lambda: self._show(status.result))

    def _draw_live(self) -> None:
        # A redraw takes tens of milliseconds of the CPU that is being measured.
        if self._live is not None and not self.job.status().running:
            self._safely(lambda: self._live(**self.values()))

    def _safely(self, make: Callable[[], Shown]) -> None:
        """Show what `make` gives; what it raises is shown too, because nobody else would see it."""
        try:
            shown = make()
        except Exception as error:
            self.verdict.value = block(f"✖ This could not be shown: {_error(error)}")
            return
        if shown.picture is not None:
            self.picture.value = block(image(shown.picture, shown.alt))
        if shown.verdict is not None:
            alt = f"<details><summary>The picture in words</summary>{words(shown.alt)}</details>" if shown.alt else ""
            self.verdict.value = block(shown.verdict + alt)
        if shown.more is not None:
            self.more.value = block(shown.more)

    def _assemble(self, right: w.Widget | None, left_width: str) -> w.VBox:
        run = [w.HBox([self.run, self.stop]), self.bar, self.message] if self._work is not None else []
        left = w.VBox([*self.controls.values(), *run], layout=w.Layout(flex=f"0 1 {left_width}", min_width="16em"))
        stage = [right] if right is not None else [self.picture]
        main = w.VBox([*stage, self.verdict], layout=w.Layout(flex="1 1 26em", min_width="16em"))
        head = w.HTML(f'<div style="font-weight:600">{words(self.title)}</div>')
        side_by_side = w.HBox([left, main], layout=w.Layout(flex_flow="row wrap", grid_gap="0 1.5em"))
        frame = w.Layout(border=LINE, padding=".5em .9em", width="auto")
        return w.VBox([head, side_by_side, self.more, self.below, self.code], layout=frame)


class Redraw:
    """Calls `draw` on a thread of its own, once for all requests that came meanwhile; the thread ends with the last.

    Args:
        draw: takes no argument and must not raise.
    """

    def __init__(self, draw: Callable[[], None]):
        self._draw, self._lock, self._asked = draw, threading.Lock(), False
        self._thread: threading.Thread | None = None

    def ask(self) -> None:
        """Draw soon; returns at once."""
        with self._lock:
            self._asked = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="loaderscope-redraw", daemon=True)
                self._thread.start()

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until all that was asked for is drawn; False if it is not after `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
            return not thread.is_alive()
        return True

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._thread = None
                    return
                self._asked = False
            self._draw()


def slider(kind: type[w.Widget], label: str, low: float, high: float, value: float, tip: str, **more: Any) -> w.Widget:
    """A slider with its label and unit, which can also be typed into."""
    more |= {"style": {"description_width": "11em"}, "layout": _wide()}
    return kind(value, min=low, max=high, description=label, tooltip=tip, **more)


def chosen(kind: type[w.Widget], label: str, tip: str, **more: Any) -> w.Widget:
    """A text field, list or dropdown with its label."""
    more.setdefault("layout", _wide())
    return kind(description=label, tooltip=tip, style={"description_width": "initial"}, **more)


def _wide() -> w.Layout:
    return w.Layout(width="auto")


def _message(status: Status) -> str:
    took, doing = text.seconds(status.elapsed_s), words(status.text)
    if status.running:
        says = "Stopping" if status.state == "stopping" else f"{text.share(status.share)}, {time_left(status)}"
        before = "" if status.result is None else "<br>What is shown is the run before."
        return f"{says}{': ' + doing if doing else ''}{before}"
    if status.state == "done":
        return f"Done in {took}."
    if status.state == "stopped":
        kept = ": what was measured until then" if status.fresh else ", before there was a result"
        return f"Stopped after {took}{kept}."
    if status.state == "failed":
        trace = f"<details><summary>Traceback</summary>{pre(status.trace)}</details>"
        return f"✖ Failed after {took}: {_error(status.error)}{trace}"
    return "Ready."


def time_left(status: Status) -> str:
    """The estimate in words: "about 12 s left"."""
    if not is_measured(status.left_s):
        return "time left unknown"
    return f"about {status.left_s:.0f} s left" if status.left_s >= 0.5 else "nearly there"


def _error(error: BaseException | None) -> str:
    return words(f"{type(error).__name__}: {error}")


def _family(widget: w.Widget) -> list[w.Widget]:
    children: Sequence[w.Widget] = getattr(widget, "children", ())
    return [*(member for child in children for member in _family(child)), widget]
