"""Samples and Comparison: every measured value, with median and spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loaderscope.records import Comparison, Samples, text
from loaderscope.records.samples import show
from loaderscope.views.plots import style

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes

SAMPLES_SIZE = (7.0, 2.8)
COMPARISON_SIZE = (7.5, 3.0)
FEW = 40  # up to here every value is a dot; above, a histogram
MAX_DOTS = 400

_AXIS_WORDS = {"s": "time", "bytes": "size", "share": "share", "samples/s": "throughput", "ratio": "ratio"}


# --- one series --------------------------------------------------------------------------------------------------


def draw_samples(samples: Samples, ax: Axes) -> None:
    """Dots (few values) or a histogram (many), the middle half shaded, the median as a line."""
    if not samples.n:
        style.blank(ax, "no sample was measured", "Samples")
        return
    right, beyond = _right_end(samples)
    factor, unit = _unit(right, samples.unit)
    values = np.asarray(samples.values) * factor
    low, high = samples.percentile(25) * factor, samples.percentile(75) * factor
    ax.axvspan(low, high, color=style.SKY, alpha=0.3, linewidth=0)
    if samples.n <= FEW:
        ax.plot(values, _jitter(samples.n), "o", color=style.BLUE, alpha=0.75, markersize=6, markeredgecolor="white")
        ax.set(yticks=[], ylim=(-0.6, 0.6))
        ax.spines["left"].set_visible(False)
    else:
        inside = values[values <= right * factor]
        ax.hist(inside, bins="auto" if np.ptp(inside) else 10, color=style.BLUE, edgecolor="white", linewidth=0.5)
        ax.set_ylabel("samples (number)")
    ax.axvline(samples.median * factor, color=style.INK, linewidth=1.8)
    style.heading(ax, f"Median {show(samples.median, samples.unit)} of {text.count(samples.n, 'value')}")
    words = _AXIS_WORDS.get(samples.unit, "value")
    note = f"Line: median. Shaded: the middle half (IQR {show(samples.iqr, samples.unit)})."
    style.footnote(ax, f"{words} ({unit})" if unit else f"{words} (no unit)", " ".join((note, beyond)).strip())


def describe_samples(samples: Samples) -> str:
    """The picture in words."""
    return (
        f"Distribution of {text.count(samples.n, 'value')}: median {show(samples.median, samples.unit)}, "
        f"IQR {show(samples.iqr, samples.unit)}."
    )


def _right_end(samples: Samples) -> tuple[float, str]:
    """Right end of the axis, and what lies beyond it: one slow value in a hundred must not flatten the others."""
    largest, usual = max(samples.values), samples.percentile(98) + 2 * samples.iqr
    if samples.n <= FEW or largest <= 2 * usual or usual <= 0:
        return largest, ""
    beyond = sum(v > usual for v in samples.values)
    verb = "lies" if beyond == 1 else "lie"
    return usual, f"{text.count(beyond, 'value')} {verb} beyond the right end, up to {show(largest, samples.unit)}."


def _unit(largest: float, unit: str) -> tuple[float, str]:
    if unit == "s":
        return style.time_unit(largest)
    if unit == "share":
        return 100.0, "%"
    if unit == "bytes":
        power = min(4, max(0, int(np.log2(max(largest, 1)) // 10)))
        return 1 / 1024**power, ("B", "KiB", "MiB", "GiB", "TiB")[power]
    return 1.0, unit


def _jitter(n: int) -> np.ndarray:
    """Heights that keep neighbours apart, the same on every call (golden-ratio sequence)."""
    return ((np.arange(n) * 0.618034) % 1 - 0.5) * 0.6


# --- before and after --------------------------------------------------------------------------------------------


def draw_comparison(comparison: Comparison, ax: Axes) -> None:
    """One row of dots before and one after; median as a bar, its 95 % interval as a thick line."""
    sides = [
        (comparison.before_label, comparison.before_s, style.BLUE, "o"),
        (comparison.after_label, comparison.after_s, style.VERMILION, "D"),
    ]
    values = [v for _, samples, *_ in sides for v in samples.values]
    if not values:
        style.blank(ax, "no round was measured", comparison_title(comparison))
        return
    factor, unit = style.time_unit(max(values))
    for y, (_, samples, colour, mark) in enumerate(sides):
        _side(ax, y, samples, colour, mark, factor)
    names = [f"{when}\n{style.wrap(name, 26, 2)}" for when, (name, *_) in zip(("before", "after"), sides)]
    ax.set_yticks([0, 1], names, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(1.55, -0.65), xlim=(0, max(values) * factor * 1.05))
    style.heading(ax, comparison_title(comparison))
    note = f"Thick bar: 95 % interval of the median. {comparison.note}"
    style.footnote(ax, f"time per sample ({unit}), less is faster", note)


def comparison_title(comparison: Comparison) -> str:
    ratio = comparison.ratio
    if not ratio.known:
        return f"{comparison.label}: not known"
    span = f"{text.ratio(ratio.low)} to {text.ratio(ratio.high)}"
    return f"{comparison.label}: {text.ratio(ratio.value)} the throughput ({span}), {comparison.verdict}"


def describe_comparison(comparison: Comparison) -> str:
    """The picture in words."""
    before, after = comparison.before_s.median, comparison.after_s.median
    return (
        f"Time per sample before and after. {comparison_title(comparison)}. Median before {show(before, 's')} "
        f"({comparison.before_label}), after {show(after, 's')} ({comparison.after_label})."
    )


def _side(ax: Axes, y: int, samples: Samples, colour: str, mark: str, factor: float) -> None:
    if not samples.n:
        ax.annotate("not measured", (0, y), xytext=(6, 0), textcoords="offset points", style="italic", color=style.GREY)
        return
    dots = np.asarray(samples.values)[:: -(-samples.n // MAX_DOTS)] * factor
    ax.plot(dots, y + _jitter(len(dots)) * 0.7, mark, color=colour, alpha=0.55, markersize=5, markeredgewidth=0)
    middle = samples.estimate("median")
    if middle.known:
        ends = [middle.low * factor, middle.high * factor]
        ax.plot(ends, [y, y], color=style.INK, linewidth=4, solid_capstyle="butt")
    x = samples.median * factor
    ax.plot([x, x], [y - 0.33, y + 0.33], color=style.INK, linewidth=1.8)
    words = f"median {text.seconds(samples.median)}"
    ax.annotate(
        words, (x, y - 0.33), xytext=(0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=style.SMALL
    )
