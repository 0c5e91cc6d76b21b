"""Pictures of records. They are drawn on matplotlib figures that pyplot does not know, and measure nothing.

A new record gets a module with `draw(record, ax)` and `describe(record)` and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loaderscope.errors import BadInputError
from loaderscope.views.plots import bars, distributions, report, scaling, timeline

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes, Figure

DPI = 96


@dataclass(frozen=True)
class Family:
    """How one kind of record is drawn on given axes, said in words, and how large it is by itself (inches)."""

    draw: Callable[[Any, Axes], None]
    describe: Callable[[Any], str]
    size: tuple[float, float]


# By class name: a report is made above this layer, which cannot import it.
FAMILIES: dict[str, Family] = {
    "LoopTiming": Family(timeline.draw, timeline.describe, timeline.SIZE),
    "Headroom": Family(bars.draw_headroom, bars.describe_headroom, bars.HEADROOM_SIZE),
    "StageProfile": Family(bars.draw_stages, bars.describe_stages, bars.STAGES_SIZE),
    "GilCheck": Family(scaling.draw, scaling.describe, scaling.SIZE),
    "Comparison": Family(
        distributions.draw_comparison, distributions.describe_comparison, distributions.COMPARISON_SIZE
    ),
    "Samples": Family(distributions.draw_samples, distributions.describe_samples, distributions.SAMPLES_SIZE),
    "Report": Family(report.draw_timeline, report.describe, report.SIZE),
}


def has_plot(record) -> bool:
    """Whether `draw` knows this kind of record."""
    return _kind(record) is not None


def draw(record, ax: Axes | None = None) -> Axes:
    """Draw a record.

    Args:
        record: a LoopTiming, Headroom, StageProfile, GilCheck, Comparison, Samples or Report.
        ax: axes to draw on; None makes a figure without pyplot (`draw(record).figure`). A report needs two axes:
            on given ones it draws its timeline only.

    Returns:
        The axes. As the last value of a notebook cell they show the figure.

    Raises:
        BadInputError: this kind of record has no picture.
    """
    from loaderscope.views.plots import canvas

    family = _family(record)
    if ax is None:
        return _new(record, family, family.size).axes[0]
    with canvas.styled():
        family.draw(record, ax)
    return ax


def report_figure(rep) -> Figure:
    """The picture of a report: left the loop over time, right where a sample's time goes, the verdict above."""
    return _new(rep, FAMILIES["Report"], report.SIZE)


def png(source, size: tuple[float, float] | None = None, dpi: float = DPI, headline: bool = True) -> bytes:
    """A record, or what a function draws on the axes it is given, as PNG. Safe in any thread.

    Args:
        source: a record `draw` knows, or a callable that takes Axes.
        size: inches; None takes the record's own size.
        dpi: pixels per inch.
        headline: write a report's verdict above its picture; pages that already say it leave it out.
    """
    from loaderscope.views.plots import canvas

    with canvas.LOCK:
        family = Family(lambda _, ax: source(ax), str, (7.0, 3.5)) if _is_function(source) else _family(source)
        return canvas.render(_new(source, family, size or family.size, headline), dpi)


def describe(record) -> str:
    """The picture in words, with its numbers: the alternative text of the image."""
    return _family(record).describe(record)


def _kind(record) -> str | None:
    return next((cls.__name__ for cls in type(record).__mro__ if cls.__name__ in FAMILIES), None)


def _is_function(source) -> bool:
    return callable(source) and _kind(source) is None


def _family(record) -> Family:
    kind = _kind(record)
    if kind is None:
        raise BadInputError(
            f"{type(record).__name__} has no picture",
            way_out="show the record itself: its table has all there is; .rows() gives the same as values",
        )
    return FAMILIES[kind]


def _new(record, family: Family, size: tuple[float, float], headline: bool = True) -> Figure:
    from loaderscope.views.plots import canvas

    with canvas.styled():
        figure = canvas.new_figure(size)
        if _kind(record) == "Report":
            report.draw_figure(record, figure, canvas.new_axes(figure, 2, (1.25, 1)), headline)
        else:
            family.draw(record, canvas.new_axes(figure)[0])
    return figure
