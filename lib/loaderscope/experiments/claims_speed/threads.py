"""A3 and A4: what threads bring, kind by kind, between controls measured in the same seconds."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from loaderscope import isolation, thresholds
from loaderscope.claims import Verdict
from loaderscope.experiments.claims_speed.workloads import EDGE, photographs
from loaderscope.faults import work
from loaderscope.probes.scaling import native_work, python_work, scalings, sleeper
from loaderscope.records import Estimate, Samples, ThreadScaling

WINDOW_S = 0.08
FEW_ROUNDS = 3
FREE, HELD = "control: zlib, GIL free", "control: Python loop, GIL held"
# What the claim names; torch.randn stands beside them because it also leaves the GIL free.
BESIDE = "torch.randn"
FILES_READ = 8


def claim_a3(*, budget_s: float = 8.0) -> Verdict:
    """Threads scale on file reads, JPEG decoding, resizing and NumPy, because these release the GIL.

    Each kind on 2 threads against 1, in turns, beside zlib (scales as far as the cores are free) and a Python loop.
    """
    files = photographs()
    outcome = isolation.run_in_child(_measure, files, budget_s, deadline_s=3 * budget_s + 10)
    if not outcome.ok:
        return Verdict.undecided("A3", f"the child that measured it {outcome.summary}")
    return judge_kinds({part.name: speedup(part, 2) for part in outcome.value})


def judge_kinds(gains: dict[str, Estimate]) -> Verdict:
    """The verdict on A3 from the speedup of every kind on 2 threads, both controls among them. Pure."""
    said = [f"{name}: {gain} on 2 threads" for name, gain in gains.items()]
    free = gains[FREE]
    if not (free.value >= thresholds.GIL_CONTROL_SPEEDUP and free.above(1)):
        reason = "not even zlib gains steadily from a second thread: fewer than 2 cores are free"
        return Verdict.undecided("A3", reason, *said)
    if gains[HELD].value > thresholds.GIL_LOCKED_SPEEDUP:
        # Two threads get twice the share of a core that others want too: then everything seems to scale.
        reason = "even a Python loop seems to gain, which it cannot: other jobs compete for the cores"
        return Verdict.undecided("A3", reason, *said)
    kinds = {name: scales(gain, free) for name, gain in gains.items() if name not in (FREE, HELD, BESIDE)}
    named = {answer: [name for name, found in kinds.items() if found == answer] for answer in ("yes", "no", "unclear")}
    if named["yes"] and named["no"]:
        what = f"what is called: {', '.join(named['yes'])} gain; {', '.join(named['no'])} do not"
        return Verdict.depends("A3", what, *said, reason=_unclear(named["unclear"]))
    if named["unclear"]:
        return Verdict.undecided("A3", _unclear(named["unclear"]), *said)
    return (Verdict.confirmed if named["yes"] else Verdict.refuted)("A3", *said)


def scales(gain: Estimate, free: Estimate) -> str:
    """ "yes", "no" or "unclear": the gain from a second thread on the scale from nothing to what zlib gains."""
    part = (gain.value - 1) / (free.value - 1)
    if part >= thresholds.GIL_COMPUTES_GAIN and gain.low > 1:
        return "yes"
    if part <= thresholds.GIL_LOCKED_GAIN and gain.high < thresholds.GIL_LOCKED_SPEEDUP:
        return "no"
    return "unclear"


def _unclear(names: list[str]) -> str:
    return f"between the two, or too noisy to say: {', '.join(names)}" if names else ""


def speedup(part: ThreadScaling, count: int) -> Estimate:
    """Calls per second on `count` threads over one: median of the rounds' ratios, with a bootstrap interval."""
    one, many = (part.rates[part.threads.index(t)] for t in (1, count))
    return Samples(tuple(m / o for m, o in zip(many, one, strict=True)), "ratio").estimate("median")


# --- in the child -------------------------------------------------------------------------------------------------


def _measure(files: tuple[Path, ...], budget_s: float) -> list[ThreadScaling]:
    kinds = _kinds(files) | {FREE: native_work(), HELD: python_work()}
    for call in kinds.values():
        call(0)  # imports and lazy set-up are not what is asked about
    rounds = max(FEW_ROUNDS, int(budget_s / (2 * len(kinds) * WINDOW_S)))
    return scalings(kinds, rounds, threads=(1, 2), windows=dict.fromkeys(kinds, WINDOW_S))


def _kinds(files: tuple[Path, ...]) -> dict[str, Callable[[int], Any]]:
    """One call of each kind, a few ms of work, on data of its own or data that is only read."""
    held = [path.read_bytes() for path in files]
    image = Image.open(io.BytesIO(held[0])).convert("RGB").resize((800, 600))
    many, few = np.random.default_rng(0).random(100_000), np.arange(8.0)
    return {
        "reading cached files": lambda k: [files[(k + i) % len(files)].read_bytes() for i in range(FILES_READ)],
        "decoding JPEG": lambda k: Image.open(io.BytesIO(held[k % len(held)])).convert("RGB"),
        "resizing": lambda _: image.resize((EDGE, EDGE), Image.Resampling.BILINEAR),
        "sorting a large NumPy array": lambda _: np.sort(many),
        "adding small NumPy arrays": lambda _: [few + few for _ in range(2000)],
        "np.random.rand": lambda _: np.random.rand(100_000),
        BESIDE: lambda _: torch.randn(100_000),
    }


# --- A4 -----------------------------------------------------------------------------------------------------------

# Two speeds nearer than this are called equal: run-to-run drift of one loop on a shared machine is as large.
EQUAL = 0.08


def claim_a4(*, budget_s: float = 6.0) -> Verdict:
    """A pure-Python __getitem__ is slower on 4 threads than on 1."""
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return Verdict.not_testable("A4", "this Python runs without a GIL")
    outcome = isolation.run_in_child(_measure_python, budget_s, deadline_s=3 * budget_s + 10)
    if not outcome.ok:
        return Verdict.undecided("A4", f"the child that measured it {outcome.summary}")
    python, sleep = (speedup(part, 4) for part in outcome.value)
    return judge_python(python, sleep)


def judge_python(python: Estimate, sleep: Estimate) -> Verdict:
    """The verdict on A4 from the speedups on 4 threads of a Python loop and of a sleep. Pure."""
    said = (f"a Python loop: {python} on 4 threads", f"control, a sleep: {sleep} on 4 threads")
    if not sleep.value > 3:
        return Verdict.undecided("A4", "4 threads that only sleep do not run side by side here", *said)
    if python.below(1):
        return Verdict.confirmed("A4", *said)
    if python.above(1 - EQUAL) and python.below(1 + EQUAL):
        return Verdict.refuted("A4", *said, reason="as fast as on 1 thread, and no faster")
    # One process cannot compute more Python by threads: what looks like a gain is cores that other jobs took meanwhile.
    return Verdict.undecided("A4", "too noisy to tell slower from equally fast", *said)


def _measure_python(budget_s: float) -> list[ThreadScaling]:
    kinds: dict[str, Callable[[int], Any]] = {"python": lambda _: work.spin_loops(20_000), "sleep": sleeper(0.005)}
    readings = 2 * len(kinds)
    window = max(WINDOW_S, budget_s / (readings * 12))
    rounds = max(FEW_ROUNDS, int(budget_s / (readings * window)))
    return scalings(kinds, rounds, threads=(1, 4), windows=dict.fromkeys(kinds, window))
