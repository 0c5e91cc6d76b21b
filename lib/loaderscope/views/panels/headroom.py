"""`headroom_model`: move six numbers and see what the cost model says; measure a loader that really has them."""

from __future__ import annotations

from typing import Any

import ipywidgets as w

from loaderscope.machine import read_environment
from loaderscope.records import is_measured, text
from loaderscope.views import html, plots
from loaderscope.views.job import Job
from loaderscope.views.panels.loop_model import MAX_WORKERS, LoopModel, PredictedAndMeasured, model, plant
from loaderscope.views.panels.panel import Panel, Shown, line, slider, words
from loaderscope.views.plots import model as picture

BUDGET_S = 6.0


def headroom_model(
    load_ms: float = 8.0,
    waiting_percent: int = 75,
    batch_size: int = 16,
    step_ms: float = 60.0,
    num_workers: int = 1,
    cores: int | None = None,
) -> Panel:
    """Predict a loop from its numbers while they are moved, and measure a planted loader with the same numbers.

    Args:
        load_ms, waiting_percent, batch_size, step_ms, num_workers, cores: where the sliders stand first; cores None
            takes what this process may use.
    """
    here = max(1, round(read_environment(measure=False).cores_allowed))
    cores = cores or here
    controls = {
        "load_ms": slider(
            w.FloatSlider, "Load 1 sample (ms)", 0.5, max(50.0, load_ms), load_ms, "In one process", step=0.5
        ),
        "waiting_percent": slider(
            w.IntSlider,
            "… of it waiting (%)",
            0,
            100,
            waiting_percent,
            "0: only computes; 100: only waits",
            step=5,
        ),
        "batch_size": slider(w.IntSlider, "Batch size", 1, max(128, batch_size), batch_size, "Samples in a batch"),
        "step_ms": slider(
            w.FloatSlider, "Step, 1 batch (ms)", 1, max(500.0, step_ms), step_ms, "A device's time", step=1
        ),
        "num_workers": slider(w.IntSlider, "num_workers", 0, MAX_WORKERS, num_workers, "0: in the main process"),
        "cores": slider(w.IntSlider, "CPU cores", 1, max(64, cores), cores, "What the workers may use"),
    }
    return Panel(
        "Is it the loader at all? The model, and the measurement",
        controls,
        code=_code,
        work=lambda job, **values: measure(job, model(**values)),
        show=shown,
        live=lambda **values: shown(model(**values)),
        run_label="Measure",
    )


def measure(job: Job, guess: LoopModel) -> PredictedAndMeasured:
    """Headroom of the planted loader, about 6 s (longer where single batches take long)."""
    from loaderscope.experiments.headroom import headroom

    environment = read_environment(measure=True)
    budget_s = max(BUDGET_S, 12 * guess.load_s * guess.batch_size)
    job.expect(budget_s)
    # The slider may play another machine; the measurement is made on this one.
    here = guess.on(min(guess.cores, environment.usable_cores))
    room = headroom(*plant(here), budget_s=budget_s, environment=environment, progress=job.progress)
    return PredictedAndMeasured(here, room)


def shown(result: LoopModel | PredictedAndMeasured) -> Shown:
    """The model's picture and verdict; with a measurement, both beside each other."""
    measured = isinstance(result, PredictedAndMeasured)
    guess, pairs = (result.guess, result.pairs()) if measured else (result, ())
    png = plots.png(lambda ax: picture.draw(guess, ax, pairs), size=picture.SIZE)
    verdict = line(words(verdict_of(guess)))
    more = None
    if measured:
        more = line(words(settings(result))) + html.record(result)
        verdict += "".join(line(words(said)) for said in _measured_words(result))
    return Shown(verdict, png, picture.describe(guess, pairs), more)


def verdict_of(guess: LoopModel) -> str:
    """What the model says, in words."""
    return (
        f"Predicted: loader alone {text.rate(guess.alone)}, step alone {text.rate(guess.step)}, both together"
        f" {text.rate(guess.both)}. What sets the pace: {guess.pace}."
        f" A perfect loader would save {text.share(guess.saved)}."
    )


def settings(result: PredictedAndMeasured) -> str:
    """The numbers a measurement was made with."""
    guess, environment = result.guess, result.measured.environment
    busy = is_measured(environment) and environment.busy
    note = " Other jobs use this machine too: workers queue for a core, which the model does not know." if busy else ""
    return (
        f"Measured with {text.seconds(guess.load_s)} a sample, {text.share(guess.waiting_share)} of it waiting,"
        f" batches of {guess.batch_size}, a step of {text.seconds(guess.step_s)}, num_workers={guess.num_workers};"
        f" predicted for {guess.cores:.3g} cores, what this machine gave.{note}"
    )


def _measured_words(result: PredictedAndMeasured) -> list[str]:
    return [f"{row.label}: {row.value}." for row in result.rows() if row.label == "both together" or row.status != "ok"]


def _code(**values: Any) -> str:
    numbers = ", ".join(f"{name}={value:g}" for name, value in values.items())
    return (
        "import loaderscope as ls\nfrom loaderscope.views import panels\n\n"
        f"guess = panels.model(\n    {numbers}\n)\n"
        f"ls.headroom(*panels.plant(guess), budget_s={BUDGET_S:g})"
    )
