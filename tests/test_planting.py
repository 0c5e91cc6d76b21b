"""The list of planted loaders is sound: its arithmetic, that each is built and gives a batch, its runner, its judge."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

import planting
import test_planted
from loaderscope import faults as f
from planted import BY_NAME, HEALTHY, PLANTED, SPEED
from planting import DECODE_MS, FILES, SMALL, Room, decode_s
from test_planted import QUANTITY, faults_of, run_code, vague


def test_names_are_unique_and_the_list_covers_every_cause():
    assert len(BY_NAME) == len(PLANTED)
    causes = ("compute-bound", "no-overlap", "io-latency", "cpu-bound", "python-bound", "interference")
    causes += ("hang", "worker-crash", "worker-error", "worker-killed")
    for cause in causes:
        assert {entry.strength for entry in PLANTED if entry.expected[:1] == (cause,)} == {"strong", "weak"}, cause
    assert len(HEALTHY) >= 10
    assert not any(entry.expected or entry.fails for entry in HEALTHY)


def doubts(entry) -> str:
    """Why the expected cause is not clear-cut by the entry's own numbers; empty when it is."""
    own = "no-overlap" if entry.expected[0] == "no-overlap" else "data"
    share, others = entry.shares[own], [part for cause, part in entry.shares.items() if cause != own]
    if entry.expected == ("compute-bound",):
        return "" if entry.shares == {"data": 0.0} else "the loader is not faster than the step"
    if share < (0.4 if entry.strength == "strong" else 0.15):
        return f"{share:.0%} is too little for a {entry.strength} one"
    return "another cause costs more than a third of it" if any(share < 3 * other for other in others) else ""


def test_arithmetic_leaves_no_doubt():
    entries = [entry for entry in SPEED if entry.shares]
    assert len(entries) > 40
    assert not {entry.name: f"{entry.why}: {doubts(entry)}" for entry in entries if doubts(entry)}


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("photographs")


@pytest.fixture
def few_files(monkeypatch):
    """Enough photographs for one batch."""
    for pixels in FILES:
        monkeypatch.setitem(FILES, pixels, 64 if pixels == SMALL else 24)


def test_decoding_costs_about_what_the_arithmetic_says(images, few_files):
    for pixels, expected_ms in DECODE_MS.items():
        seconds = decode_s(f.JpegDataset(Room(images).photos(pixels), size=128))
        # Machines differ, the planted ratios are 3 to 1 and more.
        assert expected_ms / 3 < 1e3 * seconds < expected_ms * 3, pixels


@pytest.fixture
def no_workers(monkeypatch):
    """The same loaders without workers: starting them for each of the list would take a minute."""

    def in_this_process(*arguments, **options):
        return DataLoader(*arguments, **options | {"num_workers": 0, "persistent_workers": False})

    monkeypatch.setattr(planting, "DataLoader", in_this_process)


@pytest.mark.parametrize("entry", PLANTED, ids=lambda entry: entry.name)
def test_planted_loader_is_built(entry, images, few_files, no_workers):
    with entry.built(images) as made:
        check(entry, *made, one_batch=not entry.fails)


@pytest.mark.parametrize("name", ["healthy-stream", "healthy-flips", "healthy-batch-sampler", "healthy-http"])
def test_planted_loader_works_with_its_workers(name, images, few_files):
    with BY_NAME[name].built(images) as made:
        check(BY_NAME[name], *made, one_batch=True)


def check(entry, loader, step, kwargs, one_batch):
    assert (step is not None) == entry.has_step
    assert set(kwargs) <= {"role", "val", "state", "checks"}
    if one_batch:
        batch = next(iter(loader))
        assert len(batch[0]) == len(batch[-1]) > 0
        if step is not None:
            step(batch)


# --- the judge ---------------------------------------------------------------------------------------------------


def finding(cause, verdict="present", family="speed", evidence=("waits 30 ms of 32 ms, 40 samples",)):
    return {"cause": cause, "verdict": verdict, "family": family, "evidence": list(evidence)}


def report(*findings, verdict="", bound=None):
    top = findings[0]["cause"] if findings else None
    return {"findings": list(findings), "verdict": verdict, "bound": bound, "top": top}


def test_judge_tells_right_from_wrong():
    io, quiet = BY_NAME["io-latency-sleep-0w-alone-strong"], BY_NAME["healthy-memory"]
    bound = BY_NAME["compute-bound-sleep-4w-step-strong"]
    assert not faults_of(io, report(finding("io-latency"), finding("no-overlap")))
    assert not faults_of(io, report(finding("rng-constant", family="correctness"), finding("io-latency")))
    assert faults_of(io, report(finding("no-overlap"), finding("io-latency")))
    assert faults_of(io, report(finding("io-latency", "undecided")))
    assert faults_of(io, report())
    assert not faults_of(quiet, report(finding("io-latency", "undecided")))
    assert faults_of(quiet, report(finding("io-latency")))
    assert not faults_of(bound, report(verdict="compute-bound: a perfect loader would save 1 %"))
    assert faults_of(bound, report(verdict="all is well"))
    assert faults_of(bound, report(finding("no-overlap"), bound="compute-bound"))
    assert not vague(report(finding("io-latency")))
    assert vague(report(finding("io-latency", evidence=())))
    assert vague(report(finding("io-latency", evidence=("it waits 3 weirdly",))))


def test_quantities_are_recognised():
    for text in ("30 ms a batch", "84 %", "1.9x", "1.9 × faster", "12 samples", "1.2 to 1.4 s", "5 MiB"):
        assert QUANTITY.search(text), text
    assert not QUANTITY.search("class 3 of it")


# --- the runner --------------------------------------------------------------------------------------------------


def test_runner_ends_a_child_that_hangs(tmp_path):
    run = run_code("import time; print('here'); time.sleep(600)", [], tmp_path, deadline_s=1.0)
    assert run.report is None
    assert run.ended == "no end before the deadline"
    assert run.elapsed_s < 5


@pytest.mark.skipif(sys.platform == "win32", reason="sessions are POSIX")
def test_runner_finds_and_ends_what_a_child_leaves_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(test_planted, "GRACE_S", 0.2)
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])"
    code += "; open(sys.argv[-1], 'w').write('[1]')"
    run = run_code(code, [], tmp_path, deadline_s=20)
    assert run.report == [1]
    assert run.ended == "exit status 0"
    assert len(run.left) == 1


def test_runner_shows_how_a_child_died(tmp_path):
    run = run_code("raise SystemExit('out of luck')", [], tmp_path, deadline_s=20)
    assert (run.report, run.left) == (None, [])
    assert "out of luck" in run.describe()
