"""LoopTiming: for each batch, how long the loop waited and how long it computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from loaderscope.records import LoopTiming, is_measured, text
from loaderscope.records.samples import show
from loaderscope.views.plots import style

if TYPE_CHECKING:
    from loaderscope.views.plots.canvas import Axes

SIZE = (9.0, 3.6)
MAX_BARS = 120  # above it no gaps between bars: they would be thinner than a pixel
MAX_STEPS = 800  # about the pixels there are: above it neighbours are averaged
MAX_EPOCH_MARKS = 24
CLIP_OVER = 3.0  # a few batches this many times taller than all others are cut off, with their height written


def draw(timing: LoopTiming, ax: Axes) -> None:
    """Stacked over the batch number: waiting for the batch below, computing on it above."""
    if not timing.batches:
        style.blank(ax, _nothing(timing), "No batch came")
        return
    edges, data, compute, group = _series(timing)
    top = _ceiling(data + compute, len(timing.epoch_starts))
    factor, unit = style.time_unit(top)
    key = _stack(ax, edges, np.minimum(data, top) * factor, np.minimum(data + compute, top) * factor, timing)
    if timing.batches <= 3:
        ax.set_xticks(range(timing.batches))  # else matplotlib numbers halves of a batch
    ax.set(xlim=(edges[0], edges[-1]), ylim=(0, top * factor * 1.22), ylabel=f"time per batch ({unit})")
    _mark_cut(ax, edges, data + compute, top, factor)
    _mark_epochs(ax, timing)
    _mark_medians(ax, timing, factor, top)
    style.heading(ax, title(timing), key)
    style.footnote(ax, "batch number (0 is the first)", _note(timing, group))


def title(timing: LoopTiming) -> str:
    """What the picture says, one line."""
    stall, rate = timing.stall_fraction, timing.throughput
    if is_measured(timing.compute_time_s) and stall.known:
        return f"Waiting for data takes {text.share(stall.value)} of the loop"
    return f"The loader alone: {show(rate.value, rate.unit)}" if rate.known else "The loader alone"


def describe(timing: LoopTiming) -> str:
    """The picture in words."""
    if not timing.batches:
        return f"No timeline: {_nothing(timing)}."
    words = f"Timeline of {text.count(timing.batches, 'batch', 'batches')}. {title(timing)}."
    if timing.data_time.n:
        words += f" Median wait {text.seconds(timing.data_time.median)}"
        if is_measured(timing.compute_time):
            words += f", median computing {text.seconds(timing.compute_time.median)}"
        words += " per batch."
    return words


def _nothing(timing: LoopTiming) -> str:
    return "no batch came" + (f": the loader {timing.fault.summary}" if timing.fault is not None else "")


def _series(timing: LoopTiming) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Edges, data and compute times of what is drawn, and how many batches each step stands for."""
    data = np.asarray(timing.data_time_s, float)
    compute = np.asarray(timing.compute_time_s, float) if is_measured(timing.compute_time_s) else np.zeros(len(data))
    group = -(-len(data) // MAX_STEPS)
    starts = np.arange(0, len(data), group)
    sizes = np.diff([*starts, len(data)])
    means = [np.add.reduceat(values, starts) / sizes for values in (data, compute)]
    return np.append(starts, len(data)) - 0.5, *means, group


def _ceiling(step: np.ndarray, epochs: int) -> float:
    """Top of the bars: the tallest, or less where a few (workers starting) would flatten all others."""
    few = max(epochs, len(step) // 50)
    tallest = float(step.max())
    usual = float(np.sort(step)[-few - 1]) if len(step) > 3 * few else tallest
    return (usual * 1.3 if 0 < usual * CLIP_OVER < tallest else tallest) or 1e-6


def _stack(ax: Axes, edges, data, total, timing: LoopTiming) -> list:
    waiting = "waiting for data (high: the loader was late)"
    if not is_measured(timing.compute_time_s):
        waiting = "waiting for the next batch, nothing else in the loop"
    if len(data) <= MAX_BARS:
        edges, data, total = _with_gaps(edges, data, total)
    handles = [ax.stairs(data, edges, fill=True, label=waiting, **style.WAITING.fill)]
    if is_measured(timing.compute_time_s):
        second = ax.stairs(total, edges, baseline=data, fill=True, label="computing", **style.COMPUTING.fill)
        handles.append(second)
    return handles


def _with_gaps(edges, *heights) -> list[np.ndarray]:
    """Steps of no height between the bars. One outline for all draws ten times as fast as a patch for each bar."""
    left, right = edges[:-1] + 0.07, edges[1:] - 0.07
    gapped = [np.stack([h, np.zeros(len(h))], axis=1).ravel()[:-1] for h in heights]
    return [np.stack([left, right], axis=1).ravel(), *gapped]


def _mark_cut(ax: Axes, edges, step, top: float, factor: float) -> None:
    """Write the height over bars that were cut off, as many as fit side by side."""
    last, room = -np.inf, (edges[-1] - edges[0]) * 12 / style.characters(ax)
    for i in np.flatnonzero(step > top):
        if edges[i] - last >= room:
            last = edges[i]
            ax.annotate(
                f"↑ {text.seconds(step[i])}", (edges[i], top * factor), xytext=(1, 1), textcoords="offset points",
                fontsize=style.SMALL, va="bottom",
            )  # fmt: skip


def _mark_epochs(ax: Axes, timing: LoopTiming) -> None:
    starts = [s for s in timing.epoch_starts if s < timing.batches]
    if len(starts) < 2:
        return
    every = -(-len(starts) // MAX_EPOCH_MARKS)
    last, room = -np.inf, timing.batches * 12 / style.characters(ax)
    for number, start in list(enumerate(starts, 1))[::every]:
        if start:
            ax.axvline(start - 0.5, color=style.GREY, linewidth=0.9, linestyle=(0, (4, 3)))
        if start - last >= room:
            last = start
            ax.annotate(
                f"epoch {number}", (start - 0.5, 1), xycoords=ax.get_xaxis_transform(), xytext=(3, 0),
                textcoords="offset points", va="top", fontsize=style.SMALL, color=style.GREY,
            )  # fmt: skip


def _mark_medians(ax: Axes, timing: LoopTiming, factor: float, top: float) -> None:
    """Dashed: the steady median wait. Dotted: the steady median of wait and computing together."""
    medians = [("wait", timing.data_time, (0, (5, 2)))]
    if is_measured(timing.compute_time_s):
        medians.append(("step", timing.step_time, (0, (1, 1.5))))
    shown = [(name, s.median, dash) for name, s, dash in medians if s.n and s.median <= top]
    for _, median, dash in shown:
        ax.axhline(median * factor, color=style.INK, linewidth=1.2, linestyle=dash)
    words = [f"median {name}\n{text.seconds(median)}" for name, median, _ in shown]
    style.end_labels(ax, [m * factor for _, m, _ in shown], words)


def _note(timing: LoopTiming, group: int) -> str:
    notes = []
    if not is_measured(timing.compute_time_s):
        notes.append(f"Compute time {timing.compute_time_s}.")
    if group > 1:
        notes.append(f"Each step is the mean of {group} batches.")
    if timing.fault is not None:
        notes.append(f"✖ The loop ended by a fault: the loader {timing.fault.summary}.")
    elif timing.ended == "interrupted":
        notes.append("Interrupted: what was measured until then.")
    return " ".join(notes)
