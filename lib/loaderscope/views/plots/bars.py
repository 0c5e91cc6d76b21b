"""Headroom and StageProfile: horizontal bars of time with a number on each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from loaderscope.records import Estimate, Headroom, NotMeasured, StageProfile, StageSpans, is_measured, text
from loaderscope.views.plots import style
from loaderscope.views.plots.style import Look

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes

HEADROOM_SIZE = (8.0, 3.2)
STAGES_SIZE = (8.0, 3.8)
MAX_TRANSFORMS = 8
NAME_WIDTH = 24
INSIDE = 0.13  # a part narrower than this share of the axis has its number in the key only

_TOGETHER = Look(style.VERMILION, "\\\\\\")


# --- headroom ----------------------------------------------------------------------------------------------------


def draw_headroom(headroom: Headroom, ax: Axes) -> None:
    """Time per batch of the loader alone, the step alone and both together, with the prediction from the first two."""
    both = headroom.both.step_time.estimate() if is_measured(headroom.both) else headroom.both
    step = headroom.cached.estimate() if is_measured(headroom.cached) else headroom.cached
    bars = [
        ("loader alone", headroom.alone_s, style.WAITING),
        ("step alone\n(cached batches)", step, style.COMPUTING),
        ("both together", both, _TOGETHER),
    ]
    known = [e.high for _, e, _ in bars if is_measured(e) and e.known]
    if not known:
        style.blank(ax, "no batch was measured", "Headroom")
        return
    factor, unit = style.time_unit(max(known))
    for y, (_, estimate, look) in enumerate(bars):
        _estimate_bar(ax, y, estimate, look, factor, headroom.predicted_s if y == 2 else None)
    _rows(ax, [name for name, _, _ in bars], max(known) * factor * 1.5)
    style.heading(ax, headroom_title(headroom))
    style.footnote(ax, f"time per batch ({unit}), mean with its 95 % interval", _headroom_note(headroom))


def headroom_title(headroom: Headroom) -> str:
    if not is_measured(headroom.ceiling):
        return "The loader alone: whether it matters needs a step"
    if not headroom.ceiling.known:
        return "Headroom is unknown: too few batches"
    low, high = (max(0.0, v) for v in (headroom.ceiling.low, headroom.ceiling.high))
    saved = max(0.0, headroom.ceiling.value)
    return f"A perfect loader would save {text.share(saved)} of the loop ({text.share(low)} to {text.share(high)})"


def describe_headroom(headroom: Headroom) -> str:
    """The picture in words."""
    words = f"Bars of time per batch. {headroom_title(headroom)}. Loader alone {headroom.alone_s}"
    if is_measured(headroom.cached):
        words += f"; step on cached batches {headroom.cached.estimate()}"
    if is_measured(headroom.both):
        words += f"; both together {headroom.both.step_time.estimate()}"
    return words + "."


def _headroom_note(headroom: Headroom) -> str:
    if not headroom.with_step:
        return ""
    rule = "the slower of the two" if headroom.facts.workers else "their sum, as nothing overlaps without workers"
    return f"◆ predicted from each alone: {rule}. A longer bar means that they disturb each other."


def _estimate_bar(ax: Axes, y: int, estimate: Estimate | NotMeasured, look: Look, factor: float, predicted) -> None:
    if not is_measured(estimate) or not estimate.known:
        _absent(ax, y, estimate if not is_measured(estimate) else "not measured (no batch came)")
        return
    value, low, high = (v * factor for v in (estimate.value, estimate.low, estimate.high))
    ax.barh(y, value, 0.62, **look.fill)
    ax.plot([low, high], [y, y], color="white", linewidth=4)
    ax.plot([low, high], [y, y], color=style.INK, linewidth=1.6, marker="|", markersize=10, solid_capstyle="butt")
    words = f"{text.seconds(estimate.value)} ({style.interval(estimate.low, estimate.high)})"
    right = max(value, high)
    if is_measured(predicted):
        right = max(right, predicted * factor)
        ax.plot(predicted * factor, y, marker="D", color=style.INK, markeredgecolor="white", markersize=9, zorder=4)
    _beside(ax, right, y, words)


# --- where a sample's time goes ----------------------------------------------------------------------------------


def draw_stages(profile: StageProfile, ax: Axes) -> None:
    """One stacked bar for a whole sample, then one for each transform and for collate, on the same scale."""
    shares = profile.shares
    if not shares:
        style.blank(ax, _no_sample(profile), "Where a sample's time goes")
        return
    looks = {"waiting": style.WAITING, "computing": style.COMPUTING, "queueing": style.QUEUEING}
    if not is_measured(profile.delay_s):
        del looks["queueing"]  # then it is part of the waiting
    sample = [(shares[name] * profile.wall.mean, look) for name, look in looks.items()]
    rows = [("one sample", sample), *_transform_rows(profile), ("collate", _collate_parts(profile))]
    totals = [sum(seconds for seconds, _ in parts) for _, parts in rows if is_measured(parts)]
    factor, unit = style.time_unit(max(totals))
    for y, (_, parts) in enumerate(rows):
        _parts_bar(ax, y, parts, factor, max(totals), (0.8 if y == 0 else 0.56) * min(1, len(rows) / 4))
    _rows(ax, [name for name, _ in rows], max(totals) * factor * 1.22)
    style.heading(ax, stages_title(profile), _stage_key(ax, profile, looks, len(rows) > 2), columns=2)
    style.footnote(ax, f"mean time per sample ({unit})", _stages_note(profile))


def stages_title(profile: StageProfile) -> str:
    shares = profile.shares
    name = max(shares, key=shares.get)
    median, share = text.seconds(profile.wall.median), text.share(shares[name])
    return f"A sample takes {median} (median), {share} of it {_named(profile, name)}"


def describe_stages(profile: StageProfile) -> str:
    """The picture in words."""
    if not profile.shares:
        return f"No stage profile: {_no_sample(profile)}."
    names = [name for name in profile.shares if name != "queueing" or is_measured(profile.delay_s)]
    shares = ", ".join(f"{_named(profile, name)} {text.share(profile.shares[name])}" for name in names)
    slowest = max(profile.transforms, key=lambda s: sum(s.wall_s), default=None)
    extra = f" The transform that takes longest is {slowest.name}." if slowest is not None else ""
    return f"Bars of time per sample. {stages_title(profile)}. Shares: {shares}.{extra}"


def _named(profile: StageProfile, share: str) -> str:
    if share == "queueing":
        return "queueing for a core"
    return "waiting or queueing" if share == "waiting" and not is_measured(profile.delay_s) else share


def _no_sample(profile: StageProfile) -> str:
    return "no sample was read" + (f": the loader {profile.fault.summary}" if profile.fault is not None else "")


def _on_and_off(spans: StageSpans, samples: float) -> list[tuple[float, Look]]:
    """Seconds per sample on the CPU and off it."""
    wall, cpu = sum(spans.wall_s), min(sum(spans.cpu_s), sum(spans.wall_s))
    return [(cpu / samples, style.COMPUTING), ((wall - cpu) / samples, style.OFF_CPU)]


def _transform_rows(profile: StageProfile) -> list[tuple[str, list[tuple[float, Look]]]]:
    """The slowest transforms in the order they run; the others together."""
    samples = max(1.0, profile.n * profile.per_read)
    by_cost = sorted(profile.transforms, key=lambda s: -sum(s.wall_s))
    kept = by_cost if len(by_cost) <= MAX_TRANSFORMS else by_cost[: MAX_TRANSFORMS - 1]
    rows = [(stage.name, _on_and_off(stage, samples)) for stage in profile.transforms if stage in kept]
    if left := by_cost[len(kept) :]:
        rest = StageSpans("", "", sum((s.wall_s for s in left), ()), sum((s.cpu_s for s in left), ()))
        rows.append((f"{len(left)} other transforms", _on_and_off(rest, samples)))
    return rows


def _collate_parts(profile: StageProfile) -> list[tuple[float, Look]] | NotMeasured:
    mean = profile.collate_per_sample_s
    return _on_and_off(profile.collate, max(1.0, profile.n * profile.per_read)) if is_measured(mean) else mean


def _stage_key(ax: Axes, profile: StageProfile, looks: dict[str, Look], with_parts: bool) -> list:
    entries = [(f"{_named(profile, name)} {text.share(profile.shares[name])}", look) for name, look in looks.items()]
    if with_parts or is_measured(profile.collate):
        entries.append(("parts: not on the CPU", style.OFF_CPU))
    return [ax.barh(0, 0, label=words, **look.fill) for words, look in entries]


def _stages_note(profile: StageProfile) -> str:
    place = {"workers": "in the workers", "main": "in the main process", "child": "in a child process"}
    note = f"Measured {place.get(profile.where, profile.where)}, {text.count(profile.n, 'read')}."
    if not is_measured(profile.delay_s):
        note += f" Queueing for a core {profile.delay_s}, so it counts as waiting."
    return note


# --- bars --------------------------------------------------------------------------------------------------------


def _parts_bar(ax: Axes, y: int, parts, factor: float, widest: float, height: float) -> None:
    if not is_measured(parts):
        _absent(ax, y, parts)
        return
    left, total = 0.0, sum(seconds for seconds, _ in parts)
    for seconds, look in parts:
        ax.barh(y, seconds * factor, height, left * factor, **look.fill)
        if y == 0 and seconds >= INSIDE * widest:
            box = {"facecolor": look.colour, "edgecolor": "none", "pad": 1.5}
            ax.text(
                (left + seconds / 2) * factor, y, text.share(seconds / total), ha="center", va="center", bbox=box,
                color=look.on_top, fontsize=style.SMALL, weight="bold",
            )  # fmt: skip
        left += seconds
    _beside(ax, total * factor, y, text.seconds(total))


def _beside(ax: Axes, x: float, y: float, words: str) -> None:
    ax.annotate(words, (x, y), xytext=(8, 0), textcoords="offset points", va="center", fontsize=style.SMALL)


def _absent(ax: Axes, y: float, reason: object) -> None:
    words = style.wrap(reason, int(style.characters(ax) * 0.9), 2)
    ax.annotate(
        words, (0, y), xytext=(6, 0), textcoords="offset points", va="center", style="italic", color=style.GREY,
        fontsize=style.SMALL,
    )  # fmt: skip


def _rows(ax: Axes, names: Sequence[str], right: float) -> None:
    """Names on the y axis, the first on top."""
    shown = ["\n".join(style.label(line, NAME_WIDTH) for line in name.split("\n")) for name in names]
    ax.set_yticks(range(len(names)), shown, parse_math=False)
    ax.tick_params(axis="y", length=0)
    ax.set(ylim=(len(names) - 0.4, -0.6), xlim=(0, right))
