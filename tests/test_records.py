"""Records: absence, intervals, text, JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import loaderscope as ls
from evidence_builder import environment, evidence, facts, loop, profile, room
from loaderscope.errors import NotMeasuredError, RecordError
from loaderscope.records import (
    Comparison,
    Estimate,
    LoopTiming,
    NotMeasured,
    Outcome,
    Samples,
    is_measured,
    statistics,
    text,
)
from loaderscope.records.base import MAX_REPR_LINES, decode, encode


@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1,
        lambda x: 1 / x,
        lambda x: x < 3,
        bool,
        float,
        int,
        lambda x: sum([x, 1]),
        round,
        abs,
        lambda x: -x,
    ],
)
def test_a_missing_value_is_never_a_number(use):
    with pytest.raises(NotMeasuredError, match="no driver"):
        use(NotMeasured("no driver"))


def test_missing_differs_from_zero_and_empty():
    assert not is_measured(NotMeasured("x")) and not is_measured(None)
    assert is_measured(0) and is_measured(0.0) and is_measured(())


def test_interval_covers_the_mean_of_independent_samples():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(60):
        estimate = Samples(tuple(rng.normal(10, 2, 80))).estimate()
        hits += estimate.low <= 10 <= estimate.high
    assert hits >= 50  # 95 % nominal, a little less by design of the percentile bootstrap


def test_bursts_widen_the_interval():
    """Round-robin bursts are serially correlated: resampling single batches would be too sure."""
    values = ([0.1] + [0.001] * 7) * 10
    calm = statistics.interval(statistics.resample(values, lambda x: x.mean(axis=1), 8))
    assert calm[1] - calm[0] < 0.01  # blocks of a whole round hardly vary
    drift = list(np.repeat([0.1, 0.2], 40))
    wide = statistics.interval(statistics.resample(drift, lambda x: x.mean(axis=1), 10))
    naive = statistics.interval(
        drift[0] + 0 * np.array([0.0]) + np.random.default_rng(0).choice(drift, (500, 80)).mean(axis=1)
    )
    assert wide[1] - wide[0] > 1.5 * (naive[1] - naive[0])


def test_empty_samples_are_unknown_not_zero():
    empty = Samples(())
    assert math.isnan(empty.mean) and "unknown" in str(empty.estimate()) and not empty.estimate().known
    assert not empty.estimate().above(0) and not empty.estimate().below(1)


def test_samples_judge_their_own_noise():
    assert "only 3 samples" in Samples((1.0, 1.0, 1.0)).noise_note
    assert "IQR is" in Samples(tuple(np.linspace(1, 3, 40))).noise_note
    assert Samples((1.0,) * 20).noise_note == ""


@pytest.mark.parametrize(
    ("value", "said"),
    [(0.0000123, "12.3 µs"), (0.0123, "12.3 ms"), (1.234, "1.23 s"), (0.0, "0 s"), (1234.0, "1234 s")],
)
def test_seconds_read_well(value, said):
    assert text.seconds(value) == said


def test_repr_is_short_and_says_units():
    shown = repr(loop(facts(), 0.03, 0.01))
    assert len(shown.splitlines()) <= MAX_REPR_LINES
    assert "samples/s" in shown and "stall fraction" in shown and "n = " in shown


def test_steady_leaves_out_the_first_round_of_each_epoch():
    timing = loop(facts(num_workers=4), 0.03, 0.01, n=40)
    assert timing.steady == tuple(range(4, 40))


def test_short_epochs_count_whole_without_the_one_that_began_the_measurement():
    base = loop(facts(num_workers=4, persistent_workers=True), 0.03, None, n=24)
    timing = LoopTiming(**{**base.__dict__, "epoch_starts": (0, 8, 16)})
    assert timing.steady == tuple(range(8, 24)) and timing.group_time.n == 2
    each_time = LoopTiming(**{**timing.__dict__, "facts": facts(num_workers=4)})
    assert each_time.steady == tuple(range(24))  # workers start anew each epoch: that cost is part of every one
    only = LoopTiming(
        **{**base.__dict__, "epoch_starts": (0,), "data_time_s": base.data_time_s[:8], "samples": (16,) * 8}
    )
    assert only.steady == tuple(range(8))


def test_throughput_is_samples_over_steady_time():
    timing = loop(facts(), 0.03, 0.01, spread=0.0)
    assert timing.throughput.value == pytest.approx(16 / 0.04)
    assert timing.stall_fraction.value == pytest.approx(0.75)


def test_headroom_arithmetic():
    with_workers = room(facts(), 0.03, 0.01, 0.03)
    assert with_workers.predicted_s == pytest.approx(0.03, rel=0.02)
    assert with_workers.ceiling.value == pytest.approx(2 / 3, abs=0.03)
    alone = room(facts(num_workers=0), 0.03, 0.01, 0.04)
    assert alone.predicted_s == pytest.approx(0.04, rel=0.02)
    assert alone.interference.value == pytest.approx(1.0, abs=0.03)


def test_headroom_without_a_step_promises_nothing():
    record = room(facts(), 0.03, None)
    assert not is_measured(record.ceiling) and "no step" in str(record.ceiling)
    assert "not measured" in repr(record)


def test_shares_of_a_sample_sum_to_one():
    shares = profile(facts(), 0.008, 0.002, 0.001).shares
    assert sum(shares.values()) == pytest.approx(1) and shares["waiting"] == pytest.approx(8 / 11, abs=0.02)


def test_unknown_run_queue_delay_counts_as_waiting_and_is_said():
    record = profile(facts(), 0.008, 0.002, delay_s=NotMeasured("this kernel does not tell"))
    assert "this kernel does not tell" in " ".join(r.value for r in record.rows())


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [(0.010, 0.005, "helped"), (0.005, 0.010, "hurt"), (0.010, 0.010, "no difference")],
)
def test_comparison_says_what_the_change_did(before, after, verdict):
    rng = np.random.default_rng(0)
    sides = [Samples(tuple(m * (1 + 0.02 * rng.standard_normal(60)))) for m in (before, after)]
    comparison = Comparison("x", "a", "b", *sides)
    assert comparison.verdict == verdict
    assert comparison.ratio.value == pytest.approx(before / after, rel=0.05)


def test_a_noisy_comparison_is_undecided():
    rng = np.random.default_rng(0)
    sides = [Samples(tuple(abs(0.01 * (1 + rng.standard_normal(10))))) for _ in range(2)]
    assert Comparison("x", "a", "b", *sides).verdict == "undecided"


def test_evidence_survives_json(tmp_path):
    record = evidence(
        headroom=room(facts(), 0.03, 0.01, 0.03),
        profile=profile(facts(), 0.008, 0.002),
        fault=Outcome("hang", "worker", 15.0, deadline_s=15.0, cpu_s=float("inf")),
    )
    path = record.save(tmp_path / "ünï <x>.json")
    back = ls.load(path)
    assert back == record
    assert back.headroom.ceiling == record.headroom.ceiling
    assert json.loads((tmp_path / "ünï <x>.json").read_text(encoding="utf-8"))["loaderscope"] == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "not JSON"),
        ("[]", "not a loaderscope record"),
        ('{"loaderscope": 99, "record": {}}', "newer"),
        ('{"loaderscope": 1, "record": {"@": "Nonsense"}}', "does not know"),
    ],
)
def test_other_files_are_refused_with_a_reason(tmp_path, content, said):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(RecordError, match=said):
        ls.load(path)


def test_fields_an_older_file_lacks_are_missing_not_guessed():
    data = encode(environment())
    del data["gpu"]
    assert not is_measured(decode(data).gpu)


def test_odd_numbers_survive_json():
    for value in (float("nan"), float("inf"), -0.0, 1e-300, np.float32(2), np.int64(3), {1: (2, 3)}):
        back = decode(json.loads(json.dumps(encode(value), allow_nan=False)))
        assert back == value or (isinstance(back, float) and math.isnan(back))


def test_estimates_know_their_ends():
    assert Estimate(0.5, 0.4, 0.6, "share", 10).above(0.3) and not Estimate(0.5, 0.2, 0.6, "share", 10).above(0.3)
    assert str(Estimate(0.5, 0.4, 0.6, "share", 10)) == "50 % (40 % to 60 %, n = 10)"


def test_to_frame_says_what_is_missing():
    try:
        import pandas
    except ImportError:
        with pytest.raises(ls_missing_extra(), match="pandas"):
            facts().to_frame()
    else:
        assert isinstance(facts().to_frame(), pandas.DataFrame)


def ls_missing_extra():
    from loaderscope.errors import MissingExtraError

    return MissingExtraError
