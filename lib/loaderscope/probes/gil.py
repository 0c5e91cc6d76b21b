"""`gil_check`: does the dataset's own code wait, compute without the GIL, hold the GIL, or queue for another lock?

Two measurements, each between controls run in the same seconds, in a child process:

1. the dataset's `__getitem__` on 1, 2 and 4 threads beside a sleep (scales fully), zlib (native code that drops the
   GIL: shows what the cores give right now) and a pure-Python loop (does not scale);
2. a side thread that sleeps half a millisecond and sees how late it wakes while one thread reads samples: it can only
   wake when the GIL is free.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loaderscope import arguments, isolation, thresholds
from loaderscope.clock import SYSTEM
from loaderscope.loaders import LoaderSpec
from loaderscope.loaders.inputs import looks_like_dataset
from loaderscope.probes.scaling import THREADS, WINDOW_S, native_work, python_work, scalings, sleeper
from loaderscope.records import (
    Environment,
    GilCheck,
    LoaderFacts,
    NotMeasured,
    Outcome,
    Samples,
    ThreadScaling,
    is_measured,
    text,
)

ROUNDS = 3
# Below this each control gets so few naps that they say nothing.
LEAST_S = 1.0
HELD_LEAST_S = 0.1
NAP_S = 0.0005
# A nap counts as late when it overshoots by more than this: three times what an idle machine overshoots (0.06 ms).
LATE_S = 0.0002
SWITCH_INTERVAL_S = 1e-4


def gil_check(
    loader: Any,
    *,
    indices: tuple[int, ...] | None = None,
    budget_s: float = 12.0,
    environment: Environment | None = None,
) -> GilCheck:
    """Judge the reader's own `__getitem__`. Runs in a forked child with one torch thread.

    Args:
        loader: a DataLoader over a map-style dataset (for an iterable one threads make no sense: only the share of
            time the GIL is held is measured), or a map-style dataset itself.
        indices: which samples to read; by default up to 64 spread evenly over the dataset.
        budget_s: seconds for all of it; fewer rounds are run when samples are slow, and under LEAST_S nothing.

    Raises:
        BadInputError: an argument cannot be used.
    """
    budget_s = arguments.seconds("budget_s", budget_s)
    spec = _spec_of(loader)
    refusal = spec.refusal() if spec.kind != "any" else "it is not a DataLoader: its dataset cannot be reached"
    if budget_s < LEAST_S:
        refusal = refusal or f"{text.seconds(budget_s)} are too short for it: {LEAST_S:g} s or more"
    if refusal:
        return _missing(spec.facts, environment, refusal)
    chosen = indices if indices is not None else _spread(spec)
    outcome = isolation.run_in_child(_measure, spec, chosen, budget_s, deadline_s=budget_s * 1.5 + 5)
    if not outcome.ok:
        return _missing(spec.facts, environment, f"the child that measured it {outcome.summary}", outcome)
    raw: _Raw = outcome.value
    verdict, why = judge(raw)
    return GilCheck(
        facts=spec.facts,
        environment=environment if environment is not None else NotMeasured("not asked for"),
        user=raw.user,
        sleep_control=raw.sleep,
        python_control=raw.python,
        native_control=raw.native,
        held_share=raw.held,
        held_python=raw.held_python,
        held_sleep=raw.held_sleep,
        cpu_share=raw.cpu_share,
        calls=raw.calls,
        verdict=verdict,
        why=why,
    )


@dataclass(frozen=True)
class _Raw:
    """What the child measured. call_s: median seconds of one call; waiting_share: of its wall time."""

    user: ThreadScaling | NotMeasured
    sleep: ThreadScaling | NotMeasured
    python: ThreadScaling | NotMeasured
    native: ThreadScaling | NotMeasured
    held: float
    held_python: float
    held_sleep: float
    cpu_share: float
    waiting_share: float
    call_s: float
    calls: int


def judge(raw: _Raw) -> tuple[str, str]:
    """Verdict (a key of records.gil.VERDICTS) and the sentence with the numbers that decided. Pure."""
    t = thresholds
    held = _normalised(raw.held, raw.held_sleep, raw.held_python)
    if raw.waiting_share >= t.GIL_WAITS_SHARE:
        return _judge_waiting(raw)
    if held is None:
        return "undecided", "the two controls could not be told apart: the machine is too busy"
    said = f"the GIL is held {text.share(held)} as much as by a pure-Python loop, {raw.calls} calls"
    if held >= t.GIL_HELD_HIGH:
        return "holds-gil", said
    if not is_measured(raw.user):
        if held <= t.GIL_HELD_LOW:
            return "gil-free", said + f"; {raw.user}"
        return "undecided", said
    return _judge_scaling(raw, held, said)


def _judge_waiting(raw: _Raw) -> tuple[str, str]:
    said = f"{text.share(raw.waiting_share)} of a call's time it neither computes nor queues, {raw.calls} calls"
    if not is_measured(raw.user):
        return "waits", said
    mine, free = raw.user.speedup(4), raw.sleep.speedup(4)
    scaling = f"; 4 threads bring {mine.value:.2f}x, a sleep {free.value:.2f}x"
    if mine.value >= thresholds.GIL_WAITS_SCALING * free.value:
        return "waits", said + scaling
    if mine.high < thresholds.GIL_LOCKED_SPEEDUP:
        return "serialised", said + scaling
    return "undecided", said + scaling


def _judge_scaling(raw: _Raw, held: float, said: str) -> tuple[str, str]:
    t = thresholds
    mine, free = raw.user.speedup(2), raw.native.speedup(2)
    scaling = f"; 2 threads bring {mine.value:.2f}x, zlib {free.value:.2f}x"
    # A Python loop that seems to scale, or zlib that does not: then it is the other jobs that decide.
    trusted = free.value >= t.GIL_CONTROL_SPEEDUP and raw.python.speedup(2).value <= t.GIL_PYTHON_SPEEDUP
    if not trusted:
        too_busy = "; the controls show that the cores are too busy to test how threads scale"
        return ("gil-free" if held <= t.GIL_HELD_LOW else "undecided"), said + too_busy
    gain = (mine.value - 1) / (free.value - 1)
    if held <= t.GIL_HELD_LOW and gain <= t.GIL_LOCKED_GAIN and mine.high < t.GIL_LOCKED_SPEEDUP:
        return "serialised", said + scaling
    if gain >= t.GIL_COMPUTES_GAIN or held <= t.GIL_HELD_LOW:
        return "computes", said + scaling
    if gain <= t.GIL_LOCKED_GAIN:
        return "holds-gil", said + scaling
    return "undecided", said + scaling


def _normalised(held: float, low: float, high: float) -> float | None:
    """0 where the sleep control stands, 1 where the Python loop stands; None when those two are close."""
    if high - low < thresholds.GIL_CONTROL_DISTANCE:
        return None
    return min(1.0, max(0.0, (held - low) / (high - low)))


def _spec_of(loader: Any) -> LoaderSpec:
    from torch.utils.data import DataLoader

    if not isinstance(loader, (LoaderSpec, DataLoader)) and looks_like_dataset(loader):
        loader = DataLoader(loader, batch_size=None)
    return loader if isinstance(loader, LoaderSpec) else LoaderSpec.read(loader)


def _spread(spec: LoaderSpec, count: int = 64) -> tuple[int, ...]:
    length = spec.facts.length
    if spec.kind != "map" or not is_measured(length) or length <= 0:
        return ()
    return tuple(dict.fromkeys(int(k * length / count) for k in range(min(count, length) if length < count else count)))


# --- in the child -----------------------------------------------------------------------------------------------


def _measure(spec: LoaderSpec, indices: tuple[int, ...], budget_s: float) -> _Raw:
    read, threaded = _reader(spec, indices)
    call_s, cpu_share, waiting_share, calls = _single(read, min(1.5, budget_s / 6))
    unit = min(max(call_s, 0.001), 0.01)
    held = [_held_share(w, max(HELD_LEAST_S, 0.3 * budget_s / 12)) for w in (read, sleeper(unit), python_work())]
    scaling: list[ThreadScaling | NotMeasured]
    window = max(WINDOW_S, 3 * call_s)
    rounds = min(ROUNDS, int(0.6 * budget_s / (len(THREADS) * (window + 3 * WINDOW_S))))
    if not threaded:
        scaling = [NotMeasured("an iterable dataset is read by one thread")] * 4
    elif rounds < 1:
        scaling = [NotMeasured(f"one call takes {text.seconds(call_s)}, and {text.seconds(budget_s)} were left")] * 4
    else:
        scaling = scalings(
            {"yours": read, "sleep": sleeper(unit), "python": python_work(), "zlib": native_work()},
            rounds,
            windows={"yours": window},
        )
    user, sleep, python, native = scaling
    return _Raw(user, sleep, python, native, held[0], held[2], held[1], cpu_share, waiting_share, call_s, calls)


def _reader(spec: LoaderSpec, indices: tuple[int, ...]) -> tuple[Callable[[int], Any], bool]:
    """A call that reads one sample, and whether several threads may make it."""
    dataset = spec.dataset
    if spec.kind == "map" and indices:
        return (lambda k: dataset[indices[k % len(indices)]]), True
    state = {"it": iter(dataset)}

    def read(_: int) -> Any:
        try:
            return next(state["it"])
        except StopIteration:
            state["it"] = iter(dataset)
            return next(state["it"])

    return read, False


def _single(read: Callable[[int], Any], seconds: float) -> tuple[float, float, float, int]:
    """One thread: median seconds a call, CPU share, waiting share, number of calls."""
    clock = SYSTEM
    read(0)  # imports and lazy set-up are not what is asked about
    walls: list[float] = []
    began, cpu, delay = clock.now(), clock.thread_cpu(), clock.thread_delay()
    while not walls or clock.now() - began < seconds:
        start = clock.now()
        read(len(walls))
        walls.append(clock.now() - start)
    wall, cpu = clock.now() - began, clock.thread_cpu() - cpu
    queued = clock.thread_delay() - delay if delay is not None else 0.0
    return Samples(tuple(walls)).median, cpu / wall, max(0.0, 1 - (cpu + queued) / wall), len(walls)


def _held_share(work: Callable[[int], Any], seconds: float) -> float:
    """Share of a side thread's naps that end late because the GIL is taken while `work` runs.

    The side thread's own run-queue delay is subtracted: a busy core is not a held GIL.
    """
    clock, stop, naps = SYSTEM, threading.Event(), []

    def nap() -> None:
        while not stop.is_set():
            delay, start = clock.thread_delay(), clock.now()
            clock.sleep(NAP_S)
            late = clock.now() - start - NAP_S
            queued = clock.thread_delay() - delay if delay is not None else 0.0
            naps.append(late - queued)

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    side = threading.Thread(target=nap, daemon=True)
    try:
        side.start()
        began, k = clock.now(), 0
        while clock.now() - began < seconds:
            work(k)
            k += 1
    finally:
        stop.set()
        side.join(1.0)
        sys.setswitchinterval(before)
    return sum(n > LATE_S for n in naps) / max(1, len(naps))


def _missing(facts: LoaderFacts, environment, reason: str, fault: Outcome | None = None) -> GilCheck:
    gone = NotMeasured(reason)
    return GilCheck(
        facts=facts,
        environment=environment if environment is not None else NotMeasured("not asked for"),
        user=gone,
        sleep_control=gone,
        python_control=gone,
        native_control=gone,
        held_share=gone,
        held_python=gone,
        held_sleep=gone,
        cpu_share=gone,
        calls=0,
        verdict="undecided",
        why=reason,
        fault=fault,
    )
