"""GilCheck: does the reader's own code get faster on more threads?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from loaderscope.records import GilCheck, ThreadScaling, is_measured, text
from loaderscope.records.gil import VERDICTS
from loaderscope.views.plots import style

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes

SIZE = (8.0, 4.0)


class _Line(NamedTuple):
    """One workload: its name and what it stands for, where it is in the record, how it is drawn."""

    name: str
    meaning: str
    attribute: str
    colour: str
    dash: Any
    marker: str
    glyph: str  # the marker as text, before the name at the line's end


_USER = _Line("your __getitem__", "", "user", style.VERMILION, "-", "D", "◆")
_LINES = (
    _Line("sleep", "only waits", "sleep_control", style.BLUE, (0, (5, 2)), "o", "●"),
    _Line("zlib", "computes, GIL free", "native_control", style.GREEN, (0, (5, 2, 1, 2)), "s", "■"),
    _Line("Python loop", "holds the GIL", "python_control", style.PURPLE, (0, (1, 1.2)), "^", "▲"),
    _USER,
)


def draw(check: GilCheck, ax: Axes) -> None:
    """Calls per second over one thread: the reader's code as a thick line between the controls."""
    shown = [(line, getattr(check, line.attribute)) for line in _LINES if is_measured(getattr(check, line.attribute))]
    if not shown:
        style.blank(ax, _absent(check), title(check))
        return
    ends = [_draw_line(ax, line, scaling) for line, scaling in shown]
    counts = sorted({t for _, scaling in shown for t in scaling.threads})
    ax.axhline(1, color=style.GREY, linewidth=0.8)
    ax.set_xticks(counts, [str(t) for t in counts])
    ax.set(xlim=(min(counts) - 0.1, max(counts) + 0.1), ylim=(0, max(*ends, 1.5) * 1.1))
    ax.set_ylabel("calls per second\n(times those of one thread)")
    names = style.end_labels(ax, ends, [_end_words(line, end) for (line, _), end in zip(shown, ends)])
    if shown[-1][0] is _USER:
        names[-1].set_weight("bold")
    style.heading(ax, title(check))
    style.footnote(ax, "threads (number)", _absent(check) or "Ends of the thin bars: slowest and fastest round.")


def title(check: GilCheck) -> str:
    return {
        "waits": "Your __getitem__ waits: threads help, far beyond the cores",
        "gil-free": "Your __getitem__ computes without the GIL; the cores were too busy to test threads",
        "computes": "Your __getitem__ computes without the GIL: threads help up to the cores",
        "holds-gil": "Your __getitem__ holds the GIL: threads cannot help, processes can",
        "serialised": "Your __getitem__ queues for another lock: threads cannot help",
    }.get(check.verdict, "Undecided whether threads would help your __getitem__")


def describe(check: GilCheck) -> str:
    """The picture in words."""
    parts = [(line.name, getattr(check, line.attribute)) for line in _LINES]
    known = [(name, part) for name, part in parts if is_measured(part)]
    ends = [f"{name} {text.ratio(_end(part))} on {part.threads[-1]} threads" for name, part in known]
    meaning = VERDICTS.get(check.verdict, check.verdict)
    return f"Calls per second on more threads, over one thread. Verdict: {meaning}. {'; '.join(ends) or _absent(check)}"


def _end(scaling: ThreadScaling) -> float:
    return scaling.speedup(scaling.threads[-1]).value


def _end_words(line: _Line, end: float) -> str:
    meaning = f"\n     ({line.meaning})" if line.meaning else ""
    return f"{line.glyph} {line.name} {text.ratio(end)}{meaning}"


def _draw_line(ax: Axes, line: _Line, scaling: ThreadScaling) -> float:
    """Draw one workload; returns its height at the right end."""
    speedups = [scaling.speedup(t) for t in scaling.threads]
    values = [s.value for s in speedups]
    below = [s.value - s.low for s in speedups]
    above = [s.high - s.value for s in speedups]
    width, size, order = (3.2, 8, 4) if line is _USER else (1.6, 6, 3)
    ax.errorbar(
        scaling.threads, values, (below, above), color=line.colour, linestyle=line.dash, marker=line.marker, capsize=3,
        elinewidth=1, linewidth=width, markersize=size, zorder=order,
    )  # fmt: skip
    return values[-1]


def _absent(check: GilCheck) -> str:
    """What is missing from the picture, and why."""
    parts = [(line.name, getattr(check, line.attribute)) for line in _LINES]
    return " ".join(f"{name}: {part}." for name, part in parts if not is_measured(part))
