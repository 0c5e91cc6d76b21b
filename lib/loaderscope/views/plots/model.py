"""A loop's prediction over the number of workers, with what was measured of a loader planted with the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from loaderscope.records import text
from loaderscope.views.plots import style

if TYPE_CHECKING:
    from loaderscope.views.panels.loop_model import LoopModel
    from loaderscope.views.plots.canvas import Axes

SIZE = (7.2, 4.0)
WORKERS = tuple(range(17))
ROOM = 1.45  # how far over the interesting rates the axis goes; what lies above leaves the picture


class _Line(NamedTuple):
    """One of the three throughputs: where the model has it, how it is drawn, its mark as text."""

    name: str
    attribute: str
    colour: str
    dash: object
    width: float
    marker: str
    glyph: str


# The wide line lies under the other two, which it follows.
_LINES = (
    _Line("both together", "both", style.ORANGE, "-", 6.0, "D", "◆"),
    _Line("loader alone", "alone", style.BLUE, (0, (5, 2)), 1.8, "o", "●"),
    _Line("step alone", "step", style.INK, (0, (1, 1.2)), 1.8, "s", "■"),
)

Measured = Sequence[tuple[str, float, float]]


def draw(guess: LoopModel, ax: Axes, measured: Measured = ()) -> None:
    """Predicted throughput over num_workers, the chosen number marked.

    Args:
        measured: name ("loader alone", "step alone", "both together"), predicted and measured samples/s; drawn as
            hollow marks with crosses.
    """
    found = {name: rate for name, _, rate in measured}
    top = ROOM * max(guess.step, guess.both, min(guess.alone, 2 * guess.step), *found.values())
    loops = [guess.at(n) for n in WORKERS]
    for line in _LINES:
        rates = [min(getattr(loop, line.attribute), 2 * top) for loop in loops]
        ax.plot(WORKERS, rates, color=line.colour, linestyle=line.dash, linewidth=line.width)
        here = getattr(guess, line.attribute)
        if here <= top:
            size = 11 if line.attribute == "both" else 6
            ax.plot(guess.num_workers, here, line.marker, color=line.colour, markersize=size, zorder=4)
        if line.name in found:
            _mark_measured(ax, guess.num_workers, found[line.name], line)
    ax.axvline(guess.num_workers, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)), zorder=0)
    ax.set(xlim=(-0.4, WORKERS[-1] + 0.4), ylim=(0, top), ylabel="samples/s")
    ax.set_xticks(WORKERS[::2])
    ends = [getattr(loops[-1], line.attribute) for line in _LINES]
    style.end_labels(ax, ends, [_end(line, end > top) for line, end in zip(_LINES, ends)])
    style.heading(ax, title(guess))
    note = (
        "Lines and full marks: predicted. Hollow marks: measured."
        if found
        else "All of it predicted; nothing was measured."
    )
    style.footnote(ax, f"num_workers (marked: {guess.num_workers})", note)


def title(guess: LoopModel) -> str:
    """What the picture says, one line."""
    return f"Predicted: a perfect loader would save {text.share(guess.saved)} of the loop"


def describe(guess: LoopModel, measured: Measured = ()) -> str:
    """The picture in words."""
    words = f"Lines of throughput over 0 to {WORKERS[-1]} workers. {title(guess)}. At num_workers={guess.num_workers}: "
    words += ", ".join(f"{line.name} {text.rate(getattr(guess, line.attribute))}" for line in _LINES)
    if measured:
        words += ". Measured: " + ", ".join(f"{name} {text.rate(rate)}" for name, _, rate in measured)
    return words + "."


def _mark_measured(ax: Axes, x: float, rate: float, line: _Line) -> None:
    ax.plot(
        x, rate, line.marker, markersize=14, markerfacecolor="none", markeredgecolor=style.VERMILION, markeredgewidth=2,
        zorder=5,
    )  # fmt: skip


def _end(line: _Line, leaves: bool) -> str:
    return f"{line.glyph} {line.name}{' ↑' if leaves else ''}"
