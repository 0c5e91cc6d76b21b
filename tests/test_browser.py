"""Notebooks 00 and 14 in JupyterLab in Chromium: they run, their panels answer, nothing leaves the machine or stays."""

from __future__ import annotations

import re
import shutil

import pytest

from lab import chromium_page, jupyterlab, with_parameters
from loaderscope.diagnosis.symptoms import symptom
from notebook_tools import NOTEBOOKS

pytestmark = [pytest.mark.slow, pytest.mark.browser]

START_HERE, DIAGNOSE = "00_start_here.ipynb", "14_diagnose_your_loader.ipynb"
RUN_ALL_S = 240


@pytest.fixture
def opened(request, chromium, tmp_path):
    """A copy of the notebook named by the parameter, shown and run; afterwards everything must have ended."""
    name, parameters = request.param
    folder = tmp_path / "notebooks"
    shutil.copytree(NOTEBOOKS, folder)
    with_parameters(folder / name, **parameters)
    with jupyterlab(folder, tmp_path / "home") as lab, chromium_page(chromium, tmp_path / "profile") as watched:
        watched.open(lab, name)
        cells = watched.run_all(lab, RUN_ALL_S)
        failed = [output for cell in cells for output in cell["outputs"] if output["output_type"] == "error"]
        assert failed == []
        yield watched
        assert watched.errors == []
        assert watched.hosts == {"127.0.0.1"}
    assert len(lab.pids) >= 2, "neither server nor kernel was seen"
    assert lab.left() == [], "server or kernel still runs"
    # torch's compiler keeps a cache of its own, once it is imported.
    left = [path.name for path in lab.scratch.iterdir() if not path.name.startswith("torchinductor_")]
    assert left == [], "the kernel left temporary files"


@pytest.mark.parametrize("opened", [(START_HERE, {"BUDGET_S": 6, "N_IMAGES": 60})], indirect=True)
def test_choosing_a_symptom_changes_the_card(opened):
    panel = opened.show_panel("What do you see?")
    first, other = symptom("S1"), symptom("S16")
    panel.get_by_text(first.decides).wait_for(timeout=10_000)
    panel.locator("select").select_option(label=f"S16  {other.seen}")
    panel.get_by_text(other.decides).wait_for(timeout=10_000)
    assert panel.get_by_text(first.decides).count() == 0
    assert panel.get_by_text(other.folk_cause).is_visible()

    panel.locator("input").fill("显存 没有这样的词")
    panel.get_by_text("No symptom has all of these words").wait_for(timeout=10_000)
    panel.locator("input").fill("卡数变化")
    panel.get_by_text(symptom("S24").decides).wait_for(timeout=10_000)
    listed = [option.replace("\xa0", " ") for option in panel.locator("select option").all_inner_texts()]
    assert listed == [f"S24  {symptom('S24').seen_zh}"]


@pytest.mark.parametrize("opened", [(DIAGNOSE, {"BUDGET_S": 12, "N_IMAGES": 100})], indirect=True)
def test_a_diagnosis_is_stopped_and_keeps_its_verdict(opened):
    panel = opened.show_panel("Diagnose your loader")
    run, stop = (panel.locator("button", has_text=name) for name in ("Diagnose", "Stop"))
    assert run.is_enabled() and stop.is_disabled()
    assert panel.get_by_text("report = ls.diagnose(loader, step, budget_s=12)").is_visible()

    run.click()
    panel.get_by_text(re.compile("left: (loader|step)")).wait_for(timeout=30_000)
    assert run.is_disabled() and stop.is_enabled()
    stop.click()
    panel.get_by_text("Stopped after").wait_for(timeout=30_000)
    assert run.is_enabled() and stop.is_disabled()
    panel.get_by_text("interrupted: this is what was measured until then").wait_for(timeout=30_000)
    verdict = panel.locator("section p").first.inner_text()
    assert verdict.startswith(("Undecided", "The loop waits for data", "The loader is not the problem")), verdict
    assert panel.locator("button", has_text="Save HTML").is_visible()
