"""Rules on evidence made of plain numbers: the cause, its cost, and what must not be said."""

from __future__ import annotations

import pytest

from evidence_builder import environment, evidence, facts, gil, profile, room
from loaderscope.diagnosis import costs, rules
from loaderscope.diagnosis.report import Report
from loaderscope.records import NotMeasured, Outcome, ThreadStack


def judged(**parts):
    return rules.judge(evidence(**parts))


def causes(findings, verdict="present"):
    return [f.cause for f in findings if f.verdict == verdict]


def waiting_parts(spec, step_s, both_s):
    # 8 ms waiting per sample, 16 samples, 2 workers: 64 ms a batch
    return {
        "spec": spec,
        "headroom": room(spec, 0.064, step_s, both_s),
        "profile": profile(spec, 0.008, 0.0002),
        "gil": gil(spec, "waits"),
    }


def test_waiting_samples_are_io_latency_with_their_cost():
    found = judged(**waiting_parts(facts(), 0.010, 0.064))
    assert causes(found) == ["io-latency"]
    assert found[0].impact == pytest.approx(0.84 * 0.97, abs=0.04)
    assert any("waiting" in e and "n = " in e for e in found[0].evidence)


def test_the_fix_for_waiting_goes_beyond_the_cores():
    fix = judged(**waiting_parts(facts(), 0.010, 0.064))[0].fixes[0]
    assert fix.changes["num_workers"] > 2 and fix.expected > 2


@pytest.mark.parametrize(
    ("verdict", "cause"),
    [("holds-gil", "python-bound"), ("computes", "cpu-bound"), ("gil-free", "cpu-bound"), ("serialised", "cpu-bound")],
)
def test_computing_is_told_apart_by_the_gil(verdict, cause):
    spec = facts()
    parts = {"headroom": room(spec, 0.080, 0.010, 0.080, loader_cpu_s=0.16), "profile": profile(spec, 0.0002, 0.010)}
    assert causes(judged(spec=spec, gil=gil(spec, verdict), **parts)) == [cause]


def test_an_undecided_gil_check_accuses_nobody():
    spec = facts()
    parts = {"headroom": room(spec, 0.080, 0.010, 0.080, loader_cpu_s=0.16), "profile": profile(spec, 0.0002, 0.010)}
    found = judged(spec=spec, gil=gil(spec, "undecided"), **parts)
    assert causes(found) == [] and causes(found, "undecided") == ["cpu-bound"] and found[0].decide_by


def test_a_loader_that_keeps_up_is_accused_of_nothing():
    spec = facts()
    record = evidence(spec=spec, headroom=room(spec, 0.005, 0.050, 0.0505), profile=profile(spec, 0.0005, 0.0001))
    assert rules.judge(record) == () and costs.bound(record) == "compute-bound"
    report = Report(record, ())
    assert report.top is None and "compute-bound" in report.verdict and "%" in report.verdict


def test_no_overlap_costs_the_smaller_of_the_two():
    spec = facts(num_workers=0)
    found = judged(
        spec=spec,
        headroom=room(spec, 0.040, 0.040, 0.080),
        profile=profile(spec, 0.0024, 0.0001),
        gil=gil(spec, "waits"),
    )
    assert causes(found) == ["no-overlap"] and found[0].impact == pytest.approx(0.5, abs=0.03)


def test_without_workers_slow_loading_stands_above_the_missing_overlap():
    spec = facts(num_workers=0)
    found = judged(
        spec=spec,
        headroom=room(spec, 0.128, 0.020, 0.148),
        profile=profile(spec, 0.008, 0.0001),
        gil=gil(spec, "waits"),
    )
    assert causes(found) == ["io-latency", "no-overlap"]


def test_interference_needs_both_the_slowdown_and_the_demand():
    spec = facts()
    parts = {"profile": profile(spec, 0.0001, 0.007), "gil": gil(spec, "computes")}
    fighting = room(spec, 0.060, 0.060, 0.110, loader_cpu_s=0.115, step_cpu_s=0.110)
    assert causes(judged(spec=spec, headroom=fighting, **parts)) == ["interference"]
    idle = room(spec, 0.060, 0.060, 0.110, loader_cpu_s=0.002, step_cpu_s=0.002)
    waits = {**parts, "profile": profile(spec, 0.007, 0.0001)}
    assert "interference" not in causes(judged(spec=spec, headroom=idle, **waits))


def test_starting_workers_is_no_demand_for_cores():
    """Short epochs: starting workers costs 1 s of CPU a batch here, reading the samples next to nothing."""
    spec = facts()
    slowed = room(spec, 0.060, 0.060, 0.110, loader_cpu_s=1.0, step_cpu_s=0.002)
    found = judged(spec=spec, headroom=slowed, profile=profile(spec, 0.007, 0.0001), gil=gil(spec, "waits"))
    assert "interference" not in causes(found)


def test_without_a_step_cheap_samples_are_accused_of_nothing():
    spec = facts(num_workers=0)
    found = judged(
        spec=spec,
        with_step=False,
        headroom=room(spec, 0.0005, None),
        profile=profile(spec, 0.0, 0.00002),
        gil=gil(spec, "holds-gil"),
    )
    assert found == ()


def test_time_outside_the_dataset_is_not_charged_to_it():
    """A batch takes 80 ms, the dataset accounts for 5 of them: the return trip, not I/O."""
    spec = facts()
    found = judged(
        spec=spec,
        headroom=room(spec, 0.080, 0.001, 0.080),
        profile=profile(spec, 0.0006, 0.00002),
        gil=gil(spec, "waits"),
    )
    assert causes(found) == []


def test_a_contended_machine_gives_undecided_not_an_accusation():
    spec = facts()
    # Without the 75 % queueing a batch would take 40 ms, as long as the step.
    parts = {"headroom": room(spec, 0.160, 0.040, 0.160, loader_cpu_s=0.08), "gil": gil(spec, "computes")}
    found = judged(
        spec=spec, profile=profile(spec, 0.0, 0.005, 0.015), environment=environment(cores_measured=0.9), **parts
    )
    assert causes(found) == [] and causes(found, "undecided") == ["cpu-bound"]


def test_own_workers_queueing_is_no_excuse():
    """Eight of our own workers on two cores queue too, but nobody else is to blame."""
    spec = facts(num_workers=8)
    parts = {"headroom": room(spec, 0.040, 0.002, 0.040, loader_cpu_s=0.078), "gil": gil(spec, "computes")}
    assert causes(judged(spec=spec, profile=profile(spec, 0.0, 0.005, 0.015), **parts)) == ["cpu-bound"]


def test_too_few_samples_accuse_nobody():
    spec = facts()
    found = judged(
        spec=spec,
        headroom=room(spec, 0.064, 0.010, 0.064),
        profile=profile(spec, 0.008, 0.0001, n=5),
        gil=gil(spec, "waits"),
    )
    assert causes(found) == []


def test_nothing_measured_accuses_nobody():
    assert judged() == () and costs.bound(evidence()) == "undecided"
    assert "Undecided" in Report(evidence(), ()).verdict


# --- faults -----------------------------------------------------------------------------------------------------------


def test_an_error_names_type_text_and_index():
    fault = Outcome("exception", "worker", 0.1, error_type="ValueError", error_text="bad <b>", last_index=7, batches=1)
    found = judged(fault=fault)
    assert causes(found) == ["worker-error"]
    said = " ".join(found[0].evidence)
    assert "ValueError" in said and "7" in said and "1 batch" in said and "dataset[7]" in found[0].fixes[0].code


@pytest.mark.parametrize(
    ("number", "name", "cause"),
    [(11, "SIGSEGV", "worker-crash"), (9, "SIGKILL", "worker-killed"), (6, "SIGABRT", "worker-crash")],
)
def test_a_dead_worker_is_told_by_its_signal(number, name, cause):
    fault = Outcome("signal", "worker", 0.1, signal_number=number, signal_name=name)
    assert causes(judged(fault=fault)) == [cause]


def test_an_exit_without_an_answer_is_a_crash():
    found = judged(fault=Outcome("exit", "worker", 0.1, exit_code=3))
    assert causes(found) == ["worker-crash"] and "exit code 3" in found[0].evidence[0]


def hang(**changes):
    stack = ThreadStack("worker 0", "MainThread", ("pool.py:12 in acquire",))
    values = {"status": "hang", "where": "worker", "elapsed_s": 15.0, "cpu_s": 0.0, "stacks": (stack,)}
    return Outcome(**{**values, **changes})


def test_a_silent_worker_without_cpu_hangs():
    found = judged(fault=hang())
    assert causes(found) == ["hang"] and any("acquire" in e for e in found[0].evidence)


def test_a_silent_worker_that_computes_may_only_be_slow():
    found = judged(fault=hang(cpu_s=12.0))
    assert causes(found) == [] and causes(found, "undecided") == ["hang"]


def test_a_short_deadline_only_suspects():
    assert causes(judged(fault=hang(elapsed_s=4.0)), "undecided") == ["hang"]


def test_a_fault_seen_only_in_our_forked_child_is_undecided():
    fault = hang(where="child")
    found = judged(fault=fault, confirmed=NotMeasured("the loader cannot be pickled"))
    assert causes(found, "undecided") == ["hang"] and "cannot be pickled" in found[0].decide_by
    assert causes(judged(fault=fault, confirmed=Outcome("ok", "child", 1.0)), "undecided") == ["hang"]
    assert causes(judged(fault=fault, confirmed=hang(where="child"))) == ["hang"]


def test_a_step_that_raises_is_not_the_loaders_fault():
    assert judged(fault=Outcome("exception", "step", 0.1, error_type="ValueError", error_text="x")) == ()


def test_every_finding_quotes_a_number():
    found = [
        *judged(**waiting_parts(facts(), 0.010, 0.064)),
        *judged(fault=hang()),
        *judged(fault=Outcome("exit", "worker", 0.1, exit_code=3)),
    ]
    for finding in found:
        assert finding.evidence and all(any(c.isdigit() for c in e) for e in finding.evidence)


def test_contention_does_not_hide_what_would_be_slow_anyway():
    spec = facts()
    parts = {"headroom": room(spec, 0.160, 0.010, 0.160, loader_cpu_s=0.08), "gil": gil(spec, "computes")}
    found = judged(
        spec=spec, profile=profile(spec, 0.0, 0.010, 0.006), environment=environment(cores_measured=0.9), **parts
    )
    assert causes(found) == ["cpu-bound"] and any("other jobs" in e for e in found[0].evidence)


@pytest.mark.parametrize(("reads_s", "said"), [(0.005, ["cpu-bound"]), (0.002, [])])
def test_a_dataset_that_explains_only_part_of_the_time_is_at_most_suspected(reads_s, said):
    """A batch takes 100 ms and two workers read it in 16 / 2 x 5 = 40 ms, or 16: under a third is no suspicion."""
    spec = facts()
    parts = {"headroom": room(spec, 0.100, 0.001, 0.100), "profile": profile(spec, 0.0, reads_s)}
    found = judged(spec=spec, gil=gil(spec, "computes"), **parts)
    assert causes(found) == [] and causes(found, "undecided") == said
