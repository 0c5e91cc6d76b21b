"""Colours, wording and small layout rules that all pictures share. Imports no matplotlib.

Two parts of a picture never differ by colour alone: bars differ by hatching too, lines by dashes, marks and names.
"""

from __future__ import annotations

import itertools
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loaderscope.records import text

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes

# Okabe and Ito's table, told apart with any kind of colour vision.
BLUE, SKY, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#56B4E9", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
INK, GREY, PALE = "#1A1A1A", "#5F5F5F", "#EFEFEF"

FONT = "DejaVu Sans"  # comes with matplotlib, so a picture looks the same on every machine
SMALL, NORMAL, LARGE = 9.0, 10.0, 11.5

RC = {
    "font.family": [FONT],
    "font.size": NORMAL,
    "axes.titlesize": LARGE,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": NORMAL,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a "$" in somebody's path is no formula
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "hatch.linewidth": 0.7,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
}


_BEFORE_UNIT = re.compile(r"(?<=\d) (?=%|(?:ms|µs|s|B|[KMGT]iB)\b)")  # a line never breaks between number and unit


@dataclass(frozen=True)
class Look:
    """How one quantity is filled, in every picture."""

    colour: str
    hatch: str = ""
    on_top: str = "white"  # colour of a number printed on it

    @property
    def fill(self) -> dict:
        return {"facecolor": self.colour, "hatch": self.hatch, "edgecolor": "white", "linewidth": 0}


WAITING = Look(BLUE, "///")
COMPUTING = Look(ORANGE, "", on_top=INK)
QUEUEING = Look(PURPLE, "xxx", on_top=INK)
OFF_CPU = Look(SKY, "...", on_top=INK)


def clean(words: object) -> str:
    """Text that can be written anywhere: no control characters, no half of a surrogate pair (paths may hold both)."""
    shown = "".join(c if c in "\n\t" or unicodedata.category(c) != "Cc" else "�" for c in str(words))
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def label(words: object, limit: int = 0) -> str:
    """One line of text that the font can draw; over `limit` characters the middle is left out."""
    from loaderscope.views.plots import canvas

    line = " ".join(clean(words).split())
    if limit and len(line) > limit:
        keep = limit - 1
        line = line[: keep - keep // 2] + "…" + line[len(line) - keep // 2 :]
    return canvas.drawable(line)


def wrap(words: object, width: int, lines: int = 6) -> str:
    """`label` broken into lines of at most `width` characters; what does not fit ends in an ellipsis."""
    whole = _BEFORE_UNIT.sub("\u00a0", label(words))
    return "\n".join(textwrap.wrap(whole, max(16, width), max_lines=lines, placeholder=" …"))


def characters(ax: Axes, size: float = SMALL, bold: bool = False) -> int:
    """About how many characters of `size` points fit across `ax`."""
    width = ax.get_figure(root=True).get_size_inches()[0] * ax.get_position().width
    return int(width * 72 / (size * (0.57 if bold else 0.5)))


def time_unit(largest_s: float) -> tuple[float, str]:
    """Factor and unit in which times up to `largest_s` seconds are drawn."""
    for limit, factor, unit in ((1.0, 1.0, "s"), (1e-3, 1e3, "ms")):
        if largest_s >= limit:
            return factor, unit
    return 1e6, "µs"


def interval(low: float, high: float) -> str:
    """Two times as one range."""
    return f"{text.seconds(low)} to {text.seconds(high)}"


def heading(ax: Axes, words: str, key: Sequence = (), columns: int = 2) -> None:
    """Title over the key (handles that carry labels), both flush left above the axes."""
    rows = -(-len(key) // columns)
    title = wrap(words, characters(ax, LARGE, bold=True), 3)
    ax.set_title(title, pad=8 + rows * (SMALL + 6))
    if key:
        ax.legend(
            handles=list(key), loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.2,
            borderpad=0.1, handlelength=1.6, columnspacing=1.4, labelspacing=0.4,
        )  # fmt: skip


def footnote(ax: Axes, axis_label: str, note: str = "") -> None:
    """Label of the x axis, with a sentence under it on how to read the picture."""
    ax.set_xlabel(axis_label if not note else f"{axis_label}\n{wrap(note, characters(ax, NORMAL), 4)}")


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """The same positions moved apart until neighbours are at least `gap` away from each other."""
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    moved = [float(p) for p in positions]
    for _ in range(50):
        close = [(a, b) for a, b in itertools.pairwise(order) if moved[b] - moved[a] < gap * 0.999]
        if not close:
            break
        for a, b in close:
            push = (gap - (moved[b] - moved[a])) / 2
            moved[a], moved[b] = moved[a] - push, moved[b] + push
    return moved


def end_labels(ax: Axes, heights: Sequence[float], words: Sequence[str]) -> list:
    """Names to the right of the axes, each at its height (data units), moved apart where they would overlap."""
    low, high = ax.get_ylim()
    lines = max((w.count("\n") + 1 for w in words), default=1)
    inches = ax.get_figure(root=True).get_size_inches()[1] * ax.get_position().height * 0.85
    gap = (high - low) * (SMALL * 1.35 * lines / 72) / inches
    inside = [min(max(y, low + gap / 2), high - gap / 2) for y in heights]
    return [
        ax.annotate(
            word, (1, y), xytext=(5, 0), xycoords=ax.get_yaxis_transform(), textcoords="offset points",
            va="center", fontsize=SMALL, annotation_clip=False,
        )
        for y, word in zip(spread(inside, gap), words)
    ]  # fmt: skip


def blank(ax: Axes, words: str, title: str = "") -> None:
    """A grey panel that says why there is nothing to draw."""
    ax.set_facecolor(PALE)
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
    if title:
        heading(ax, title)
    shown = wrap(words, int(characters(ax, NORMAL) * 0.85))
    ax.text(0.5, 0.5, shown, transform=ax.transAxes, ha="center", va="center", style="italic", color=GREY)
