"""The experiments about where the time goes: each verdict can come out every way, and real runs give one."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
import torch
from PIL import Image

from loaderscope.claims import CLAIMS, Verdict
from loaderscope.errors import LoaderscopeError
from loaderscope.experiments import claims_speed
from loaderscope.experiments.claims_speed import sides, threads, waiting, workloads
from loaderscope.faults import JpegDataset, WaitingDataset, pad_collate
from loaderscope.probes.scaling import python_work, scalings, sleeper
from loaderscope.probes.transforms import find_transforms
from loaderscope.records import Estimate, StageSpans, ThreadScaling
from loaderscope.samples import text_file
from records_by_hand import make_facts, make_headroom, make_stages, make_timing

HERE = {name for name in CLAIMS if (CLAIMS[name].experiment or "").startswith("loaderscope.experiments.claims_speed.")}


def test_every_claim_that_names_an_experiment_here_has_it():
    assert {f"claim_{name.lower()}" for name in HERE} == set(claims_speed.__all__)


def near(value, spread=0.02):
    return Estimate(value, value - spread, value + spread, "ratio", 6)


# --- A3 -----------------------------------------------------------------------------------------------------------

KINDS = ("reading cached files", "decoding JPEG", "np.random.rand")


def gains(*values, free=1.9, beside=1.0):
    named = {name: near(value) for name, value in zip(KINDS, values, strict=True)}
    return named | {threads.BESIDE: near(beside), threads.FREE: near(free), threads.HELD: near(0.95)}


def test_a3_depends_where_some_kinds_scale_and_others_do_not():
    verdict = threads.judge_kinds(gains(1.8, 1.7, 1.0))
    assert verdict.verdict == "depends"
    assert "decoding JPEG gain; np.random.rand do not" in verdict.depends_on
    assert len(verdict.evidence) == 6 and "1.80x (1.78x to 1.82x, n = 6)" in verdict.evidence[0]


def test_a3_confirmed_and_refuted():
    assert threads.judge_kinds(gains(1.8, 1.7, 1.6)).verdict == "confirmed"
    assert threads.judge_kinds(gains(1.0, 0.9, 1.0)).verdict == "refuted"


def test_a3_what_stands_beside_the_claim_does_not_decide_it():
    assert threads.judge_kinds(gains(1.8, 1.7, 1.6, beside=1.9)).verdict == "confirmed"


def test_a3_undecided_without_two_free_cores_or_between_the_two():
    busy = threads.judge_kinds(gains(1.1, 1.0, 1.0, free=1.1))
    assert busy.verdict == "undecided" and "fewer than 2 cores" in busy.reason
    noisy = threads.judge_kinds(gains(1.8, 1.7, 1.6) | {threads.FREE: Estimate(1.45, 0.42, 2.2, "ratio", 5)})
    assert noisy.verdict == "undecided"
    shared = threads.judge_kinds(gains(1.8, 1.7, 1.6) | {threads.HELD: near(1.5)})
    assert shared.verdict == "undecided" and "Python loop" in shared.reason
    between = threads.judge_kinds(gains(1.8, 1.3, 1.8))
    assert between.verdict == "undecided" and "decoding JPEG" in between.reason


def test_a3_a_gain_that_may_be_noise_is_unclear():
    assert threads.scales(Estimate(1.6, 0.9, 2.2, "ratio", 6), near(1.9)) == "unclear"


def test_speedup_is_the_median_of_the_rounds_ratios():
    part = ThreadScaling("x", (1, 2), ((100.0, 200.0, 100.0), (190.0, 390.0, 500.0)))
    gain = threads.speedup(part, 2)
    assert gain.value == pytest.approx(1.95) and gain.n == 3 and gain.low >= 1.9 and gain.high <= 5.0


def test_the_kinds_do_what_they_are_called():
    kinds = threads._kinds(workloads.photographs()[:3])
    assert [len(data) for data in kinds["reading cached files"](0)] == [
        workloads.photographs()[i % 3].stat().st_size for i in range(threads.FILES_READ)
    ]
    assert kinds["decoding JPEG"](1).mode == "RGB"
    assert kinds["resizing"](0).size == (workloads.EDGE, workloads.EDGE)
    ordered = kinds["sorting a large NumPy array"](0)
    assert len(ordered) == 100_000 and (np.diff(ordered) >= 0).all()
    state, torch_state = np.random.get_state(), torch.get_rng_state()
    assert kinds["np.random.rand"](0).shape == kinds["torch.randn"](0).shape == (100_000,)
    np.random.set_state(state)
    torch.set_rng_state(torch_state)


def test_scalings_takes_turns_and_tells_waiting_from_python():
    sleep, python = scalings({"sleep": sleeper(0.005), "python": python_work()}, 2, threads=(1, 4))
    assert sleep.threads == (1, 4) and [len(r) for r in sleep.rates] == [2, 2]
    assert sleep.speedup(4).value > 2.5
    assert sleep.speedup(4).value > python.speedup(4).low


# --- A4 -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("python", "sleep", "expected"),
    [
        (near(0.84), near(4.0), "confirmed"),
        (near(1.0), near(4.0), "refuted"),
        (near(0.99, 0.05), near(4.0), "refuted"),
        (near(1.2), near(4.0), "undecided"),
        (near(0.95, 0.2), near(4.0), "undecided"),
        (near(0.84), near(1.5), "undecided"),
    ],
)
def test_a4(python, sleep, expected):
    verdict = threads.judge_python(python, sleep)
    assert verdict.verdict == expected and len(verdict.evidence) == 2


def test_a4_needs_a_gil(monkeypatch):
    monkeypatch.setattr("sys._is_gil_enabled", lambda: False, raising=False)
    assert threads.claim_a4().verdict == "not testable here"


# --- A5, A25, C1 ----------------------------------------------------------------------------------------------------


def stages(indices, wall=0.010, cpu=0.2, delay=0.1, **changes):
    n = len(indices)
    values = {
        "index": tuple(indices),
        "worker": (-1,) * n,
        "start_s": (0.0,) * n,
        "wall_s": (wall,) * n,
        "cpu_s": (wall * cpu,) * n,
        "delay_s": (wall * delay,) * n,
    }
    return dataclasses.replace(make_stages(n), **(values | changes))


def test_a_reading_leaves_queueing_out():
    reading = waiting.Reading.of([stages(range(4)), stages(range(4))])
    assert reading.n == 8
    assert reading.busy_s == pytest.approx(0.009)
    assert reading.waiting == pytest.approx(0.7 / 0.9)
    assert reading.parts["collate"] == pytest.approx(2 * 4 * 0.003 / 8)


def test_readings_are_compared_over_the_samples_they_share():
    cheap_and_dear = waiting.Reading.of([stages([0, 1]), stages([2, 3], wall=1.0)])
    cheap = waiting.Reading.of([stages([0, 1, 9])])
    here, there = cheap_and_dear.seconds_over(cheap)
    assert here == pytest.approx(there) == pytest.approx(0.009)
    with pytest.raises(LoaderscopeError, match="no sample in common"):
        cheap.seconds_over(waiting.Reading.of([stages([5])]))


def test_a_reading_without_samples_says_so():
    with pytest.raises(LoaderscopeError, match="No sample"):
        waiting.Reading.of([stages([])])


def test_in_turns_finds_what_waits():
    loaders = {"far": waiting._loader(WaitingDataset(1000, 0.004))}
    found = waiting.read_in_turns(loaders, 0.6)
    assert found["far"].waiting > 0.7 and found["far"].n >= 16


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"a": (0.02, 0.0, 50), "b": (0.8, 0.75, 50), "c": (0.05, 0.01, 50)}, "confirmed"),
        ({"a": (0.02, 0.0, 50), "b": (0.8, 0.75, 50), "c": (0.9, 0.1, 50)}, "depends"),
        ({"a": (0.9, 0.0, 50), "b": (0.1, 0.75, 50)}, "refuted"),
        ({"a": (0.02, 0.0, 50), "b": (0.55, 0.75, 50)}, "undecided"),
    ],
)
def test_a5(shares, expected):
    verdict = waiting.judge_stopwatch(shares)
    assert verdict.verdict == expected and len(verdict.evidence) == len(shares)
    assert (expected == "depends") == ("disagree on: c" in verdict.depends_on)


def reading(waits, seconds=0.01, parts=None):
    return waiting.Reading(40, dict.fromkeys(range(8), seconds), waits, parts or {})


def test_a25_never_speaks_for_the_world():
    mixed = waiting.judge_cases({"cached": reading(0.01), "far": reading(0.8)})
    assert mixed.verdict == "depends" and "cannot be counted" in mixed.reason
    for waits in (0.01, 0.9):
        verdict = waiting.judge_cases({"one": reading(waits), "other": reading(waits)})
        assert verdict.verdict == "not testable here" and len(verdict.evidence) == 2


def test_c1():
    held = reading(0, 0.009, {"collate": 0.001, "RandomResizedCrop": 0.004})
    fast, slow = reading(0, 0.010), reading(0.7, 0.030)
    assert waiting.judge_disk(held, {"page cache": fast, "disk": fast}).verdict == "confirmed"
    assert waiting.judge_disk(held, {"page cache": slow, "disk": slow}).verdict == "refuted"
    assert waiting.judge_disk(held, {"page cache": fast, "disk": slow}).verdict == "depends"
    assert waiting.judge_disk(held, {"disk": reading(0, 0.0112)}).verdict == "undecided"
    alone = waiting.judge_disk(held, {"page cache": fast})
    assert "only with files in the page cache" in alone.reason
    assert "9.1 % is reading" in alone.evidence[0]
    assert "decoding 50 %, augmentation 40 %, collate 10 %" in alone.evidence[-1]


# --- B15, C2 --------------------------------------------------------------------------------------------------------


def symptom(saved, utilisation=0.15, cores=0.9):
    return sides.Symptom(utilisation, cores, saved, 20)


def test_b15():
    assert sides.judge_symptoms({"a": symptom(0.85), "b": symptom(0.01)}).verdict == "depends"
    assert sides.judge_symptoms({"a": symptom(0.85), "b": symptom(0.8)}).verdict == "confirmed"
    assert sides.judge_symptoms({"a": symptom(0.1), "b": symptom(0.01)}).verdict == "refuted"
    idle = sides.judge_symptoms({"a": symptom(0.85), "b": symptom(0.01, cores=0.1)})
    assert idle.verdict == "undecided" and len(idle.evidence) == 2


def room(load, step, together, workers=2):
    facts = make_facts(workers)
    none = (0.0,) * 24
    alone = make_timing(facts=facts, data_time_s=(load,) * 24, compute_time_s=none)
    both = make_timing(facts=facts, data_time_s=(together,) * 24, compute_time_s=none)
    return make_headroom(facts=facts, alone=alone, cached_s=(step,) * 12, both=both)


LOADER, STEP, ADDED = room(0.04, 0.01, 0.04), room(0.008, 0.03, 0.03), room(0.016, 0.024, 0.04, workers=0)


def test_c2():
    assert sides.judge_sides({"loader": LOADER, "step": STEP}).verdict == "confirmed"
    added = sides.judge_sides({"loader": LOADER, "step": STEP, "added": ADDED})
    assert added.verdict == "depends" and "num_workers=0" in added.depends_on
    assert "a perfect loader would save 40 %" in added.evidence[2]
    fight = sides.judge_sides({"loader": LOADER, "fight": room(0.02, 0.03, 0.06)})
    assert fight.verdict == "depends" and "fight" in fight.depends_on
    assert sides.judge_sides({"added": ADDED}).verdict == "refuted"


def test_c2_with_nothing_measured():
    bare = make_headroom(cached_s=make_headroom().environment)
    assert sides.judge_sides({"bare": bare}).verdict == "undecided"


# --- what is measured -----------------------------------------------------------------------------------------------


def test_photographs_without_their_io_are_the_same_photographs():
    files = workloads.photographs()[:3]
    assert len(workloads.photographs()) >= 20
    plain = JpegDataset(files, size=64)
    for other in (
        workloads.HeldJpeg(files, size=64),
        workloads.FarJpeg(files, 0.001, size=64),
        workloads.ForgottenJpeg(files, size=64),
    ):
        assert torch.equal(other[1][0], plain[1][0]) and len(other) == 3


def test_augmentation_changes_a_photograph_and_is_found_by_the_profile():
    image = Image.open(workloads.photographs()[0]).convert("RGB")
    augment = workloads.Augmentation()
    made = [augment(image) for _ in range(4)]
    assert {m.size for m in made} == {(workloads.EDGE, workloads.EDGE)}
    assert len({m.tobytes() for m in made}) == 4
    dataset = JpegDataset(workloads.photographs(), workloads.Augmentation())
    assert [place.name for place in find_transforms(dataset)] == ["RandomCrop", "RandomFlip", "RandomColour"]


def test_arrays_without_their_io_are_the_same_arrays(tmp_path):
    files = workloads.write_arrays(tmp_path, 2, 1024)
    assert [path.stat().st_size for path in files] == [4096, 4096]
    plain, held = workloads.ArrayFiles(files), workloads.HeldArrays(files)
    assert plain[0] == held[0] and plain[1] == held[1] != held[0]


def test_text_lines_are_the_lines_of_the_file():
    lines = workloads.TextLines(text_file())
    with open(text_file(), encoding="ascii") as file:
        words = [line.split() for line in file]
    assert len(lines) == len(words)
    for index in random.Random(0).sample(range(len(words)), 20):
        sequence, _ = lines[index]
        assert len(sequence) == len(words[index]) and sequence.max() < workloads.VOCABULARY
    assert lines[0][0][0] == workloads.number_of(words[0][0].lower())
    padded, lengths, _ = pad_collate([lines[0], lines[1]])
    assert padded.shape == (2, int(lengths.max()))


def test_forgetting_a_file_leaves_its_contents(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"kept")
    assert workloads.forget(path) in (True, False)
    assert path.read_bytes() == b"kept"


def test_stage_time_counts_only_the_cpu():
    profile = stages(range(4), transforms=(StageSpans("Crop", "Crop", (0.5,) * 4, (0.002,) * 4),))
    assert waiting.Reading.of([profile]).parts["Crop"] == pytest.approx(0.002)


# --- real runs ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(claims_speed.__all__))
def test_real_run(name):
    verdict = getattr(claims_speed, name)(budget_s=5.0)
    assert isinstance(verdict, Verdict)
    assert verdict.claim_id == name.removeprefix("claim_").upper()
    assert len(verdict.evidence) >= 2, verdict
    if name in ("claim_c2", "claim_b15"):  # these wait more than they compute: a busy machine leaves them clear
        assert verdict.verdict in ("depends", "undecided"), verdict
    if name == "claim_a25":
        assert verdict.verdict == "depends", verdict
