"""The picture of a whole report: the loop over time, and where a sample's time goes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loaderscope.records import NotMeasured, is_measured
from loaderscope.views.plots import bars, scaling, style, timeline

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes, Figure

SIZE = (11.0, 4.4)


def draw_timeline(report, ax: Axes) -> None:
    """Only the left half, for axes that the caller owns."""
    _panel(ax, _left(report), "The loop over time")


def draw_figure(report, figure: Figure, axes: list[Axes], headline: bool) -> None:
    """Both halves, under the verdict if asked for; a half that was not measured is grey and says why."""
    if headline:
        figure.suptitle(style.wrap(report.verdict, 104, 3), x=0.012, ha="left", fontsize=13, weight="bold")
    left = _left(report)
    _panel(axes[0], left, "The loop over time")
    _panel(axes[1], _right(report, left), "Where a sample's time goes")


def describe(report) -> str:
    """The picture in words."""
    left = _left(report)
    halves = [(left, "The loop over time"), (_right(report, left), "Where a sample's time goes")]
    said = [f"{name}: {part}." if not is_measured(part) else _describe(part) for part, name in halves]
    return f"Left: {said[0]} Right: {said[1]}"


def _left(report):
    """What the loop did: its timeline, else that of both together, else the headroom bars."""
    headroom = report.headroom
    if is_measured(report.timing) or not is_measured(headroom):
        return report.timing
    return headroom.both if is_measured(headroom.both) else headroom


def _right(report, left):
    """Where the time goes: the stages, else the GIL check, else headroom where the left half does not show it."""
    for part in (report.profile, report.gil, report.headroom):
        if is_measured(part) and part is not left:
            return part
    return report.profile


def _families() -> dict[str, tuple]:
    return {
        "LoopTiming": (timeline.draw, timeline.describe),
        "Headroom": (bars.draw_headroom, bars.describe_headroom),
        "StageProfile": (bars.draw_stages, bars.describe_stages),
        "GilCheck": (scaling.draw, scaling.describe),
    }


def _panel(ax: Axes, part, title: str) -> None:
    if not is_measured(part):
        reason = part if isinstance(part, NotMeasured) else "not measured"
        style.blank(ax, str(reason), title)
        return
    _families()[type(part).__name__][0](part, ax)


def _describe(part) -> str:
    return _families()[type(part).__name__][1](part)
