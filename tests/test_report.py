"""A report: its verdict for every bound, its fixes by number, comparing, saving, and how it is shown."""

from __future__ import annotations

import dataclasses
import html
import re
from pathlib import Path

import pytest

import loaderscope as ls
from evidence_builder import environment, evidence, facts, gil, loop, profile, room
from loaderscope.diagnosis import rules
from loaderscope.diagnosis.report import Report
from loaderscope.errors import BadInputError
from loaderscope.records import Check, Comparison, Finding, NotMeasured, Outcome, Preflight, Samples, is_measured


def report(spec=None, **parts) -> Report:
    found = evidence(spec, **parts)
    return Report(found, rules.judge(found), steps_run=60, budget_s=60.0, elapsed_s=41.0)


def waiting(spec=None, **parts) -> Report:
    """8 ms waiting a sample, 16 samples, 2 workers: 64 ms a batch, and 10 ms a step."""
    spec = spec or facts()
    return report(
        spec,
        headroom=room(spec, 0.064, 0.010, 0.064),
        profile=profile(spec, 0.008, 0.0002),
        gil=gil(spec, "waits"),
        **parts,
    )


def healthy() -> Report:
    spec = facts()
    return report(spec, headroom=room(spec, 0.005, 0.050, 0.0505), profile=profile(spec, 0.0005, 0.0001))


def alone(wait_s=0.008) -> Report:
    spec = facts()
    parts = {"profile": profile(spec, wait_s, wait_s / 40), "gil": gil(spec, "waits")}
    return report(spec, with_step=False, headroom=room(spec, 8 * wait_s, None), **parts)


def faulty(**changes) -> Report:
    fault = Outcome("exception", where="worker", error_type="ValueError", error_text="no <such> label", batches=3)
    spec = facts()
    return report(spec, headroom=room(spec, 0.064, None), fault=dataclasses.replace(fault, **changes))


def misconfigured() -> Report:
    spec = facts(batches=0, length=0)
    check = Check("batches", "fail", "none: len(loader) is 0", "look at what fills the dataset", "bad-configuration")
    empty = dataclasses.replace(room(spec, 0.064, None), alone=loop(spec, 0.064, None, n=0))
    return report(spec, headroom=empty, preflight=Preflight(environment(), spec, (check,)))


def unmeasured() -> Report:
    return report(headroom=NotMeasured("nothing was iterated: it can be gone through once"))


# --- the verdict ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "bound", "words"),
    [
        (healthy, "compute-bound", "not the problem (compute-bound): a perfect loader would save"),
        (waiting, "input-bound", "waits for data: "),
        (alone, "no step", "What limits this loader: "),
        (lambda: alone(0.00002), "no step", "Nothing stands out in this loader"),
        (faulty, "fault", "does not run through (worker-error): a worker raised ValueError: no <such> label"),
        (misconfigured, "undecided", "at fault (bad-configuration): preflight, batches: none: len(loader) is 0"),
        (unmeasured, "undecided", "nothing was iterated: it can be gone through once"),
    ],
    ids=["compute", "input", "alone", "alone-fast", "fault", "configuration", "nothing"],
)
def test_the_verdict_of_each_bound(make, bound, words):
    made = make()
    assert made.bound == bound and words in made.verdict and made.verdict.endswith((".", ")."))
    assert made.rows()[0].value == made.verdict and "\n" not in made.verdict


def test_a_verdict_has_its_number_and_its_interval():
    assert re.search(r"would save at most [\d.]+ % \(n = \d+\)", healthy().verdict)
    assert re.search(r"would save 8\d % \(8\d % to 8\d %, n = \d+\)", waiting().verdict)
    assert "io-latency" in waiting().verdict and "samples/s" in alone().verdict


def test_too_little_is_undecided_and_says_what_would_help():
    spec = facts()
    few = report(spec, headroom=dataclasses.replace(room(spec, 0.02, 0.02, 0.021), both=loop(spec, 0.001, 0.02, n=3)))
    assert few.bound == "undecided" and "budget_s" in few.verdict
    slow = dataclasses.replace(room(spec, 0.02, None), both=NotMeasured("a call of your step takes 9 s"))
    stopped = report(spec, headroom=dataclasses.replace(slow, cached_s=slow.both))
    assert "a call of your step takes 9 s" in stopped.verdict and "budget_s" in stopped.verdict
    assert "no step was given" not in repr(stopped)


def test_a_step_that_raised_is_named_and_not_the_loader():
    made = faulty(where="step", error_text="in the step")
    assert (
        made.bound == "undecided" and "your step raised ValueError: in the step" in made.verdict and not made.findings
    )


def test_the_top_finding_is_the_first_that_is_present():
    made = waiting()
    open_one = Finding("cpu-bound", "undecided", 0.9, ("9 of 10",), decide_by="measure longer")
    assert made.top.cause == "io-latency" and healthy().top is None
    assert dataclasses.replace(made, findings=(open_one,)).top is None
    assert dataclasses.replace(made, findings=(open_one, *made.findings)).top.cause == "io-latency"


# --- fixes ------------------------------------------------------------------------------------------------------------


def test_fixes_are_counted_from_one_over_all_findings():
    made = waiting()
    fixes = [fix for finding in made.findings for fix in finding.fixes]
    assert [made.fix(k) for k in range(1, len(fixes) + 1)] == fixes and "num_workers" in made.fix(1).title


@pytest.mark.parametrize("number", [0, -1, 99, "1", None, 1.0])
def test_a_fix_that_is_not_there_is_refused(number):
    with pytest.raises(BadInputError, match="no fix number") as caught:
        waiting().fix(number)
    assert "fixes in this report" in str(caught.value)


# --- comparing --------------------------------------------------------------------------------------------------------


def test_two_reports_are_compared_by_their_loops():
    spec = facts(num_workers=8)
    after = report(spec, headroom=room(spec, 0.016, 0.010, 0.0165))
    result = waiting().compare(after)
    assert isinstance(result, Comparison) and result.verdict == "helped"
    assert result.ratio.value == pytest.approx(0.064 / 0.0165, rel=0.1)
    assert "different times" in result.note and after.compare(waiting()).verdict == "hurt"
    assert waiting().compare(waiting()).verdict == "no difference"


def test_a_step_is_not_compared_with_none():
    for pair in ((waiting(), alone()), (alone(), waiting())):
        with pytest.raises(BadInputError, match="with a step and the other without"):
            pair[0].compare(pair[1])


@pytest.mark.parametrize("other", [unmeasured(), misconfigured(), None, "report.json", healthy().headroom], ids=type)
def test_what_has_no_loop_is_not_compared(other):
    with pytest.raises(BadInputError) as caught:
        waiting().compare(other)
    assert caught.value.way_out


# --- shown and saved --------------------------------------------------------------------------------------------------


def full() -> Report:
    """Everything a report can hold: findings, a proof, a fault that was seen, notes."""
    made = waiting(preflight=Preflight(environment(), facts(), (Check("options", "ok", "nothing contradicts"),)))
    fix = made.fix(1)
    proof = Comparison(
        fix.title, "num_workers=2", "num_workers=8", Samples((0.004,) * 9, "s"), Samples((0.0011,) * 9, "s")
    )
    proven = tuple(
        dataclasses.replace(f, fixes=(dataclasses.replace(f.fixes[0], verified=proof), *f.fixes[1:]))
        for f in made.findings
    )
    open_one = Finding("interference", "undecided", 0.1, ("1.1x of 2 cores",), decide_by="a quieter machine")
    return dataclasses.replace(
        made, findings=(*proven, open_one), notes=("your step ran 60 times",), ended="budget", state_restored=True
    )


def test_the_text_holds_evidence_fixes_and_notes():
    text = repr(full())
    for finding in full().findings:
        assert finding.cause in text
    assert all(sentence in text for sentence in full().top.evidence)
    assert "measured here: 3.64x" in text and "a quieter machine" in text and "your step ran 60 times" in text
    assert "loader alone" in text and "a perfect loader would save" in text


def test_a_fix_that_did_not_help_is_shown_as_such():
    made = full()
    worse = dataclasses.replace(made.fix(1).verified, after_s=Samples((0.008,) * 9, "s"))
    top = dataclasses.replace(made.top, fixes=(dataclasses.replace(made.fix(1), verified=worse),))
    text = repr(dataclasses.replace(made, findings=(top,)))
    assert "tried here, and it made things slower" in text and not top.fixes[0].recommended


@pytest.mark.parametrize("make", [full, healthy, alone, faulty, misconfigured, unmeasured])
def test_a_report_comes_back_from_its_file(make, tmp_path):
    made = make()
    loaded = ls.load(made.save(tmp_path / "report.json"))
    assert isinstance(loaded, Report) and loaded == made and repr(loaded) == repr(made)
    assert loaded.verdict == made.verdict and loaded.bound == made.bound and loaded._repr_html_()


@pytest.mark.parametrize("make", [full, healthy, alone, faulty, misconfigured, unmeasured])
def test_the_page_holds_the_verdict_and_a_picture_with_words(make, tmp_path):
    made = make()
    text = Path(made.save(tmp_path / "report.html")).read_text(encoding="utf-8")
    assert html.escape(made.verdict) in text
    alt = re.search(r'<img alt="([^"]+)"', text)
    assert alt and len(alt[1]) > 20
    assert "<such>" not in text and "http" not in re.sub(r"data:image/png;base64,[^\"]*", "", text)


def test_nothing_depends_on_another_start_method_yet():
    assert full().portability == () and "Under another start method" not in full()._repr_html_()


def test_what_was_measured_is_reached_by_name():
    made = full()
    loader_only = alone()
    assert made.timing is made.headroom.both and loader_only.timing is loader_only.headroom.alone
    assert not is_measured(unmeasured().timing) and made.gil.verdict == "waits" and made.profile.n == 200
    assert made.facts.dataset == "shop.Photos" and made.environment.cores_logical == 2


def test_a_small_cause_does_not_stand_for_the_whole_wait():
    """Loading takes 128 ms, the step 8; what makes loading slow is undecided, and taking turns costs only 6 %."""
    spec = facts(num_workers=0)
    made = report(spec, headroom=room(spec, 0.128, 0.008, 0.136))
    made = dataclasses.replace(made, findings=(Finding("no-overlap", "present", 0.06, ("6 % of the loop",)),))
    assert "larger part of the wait is undecided" in made.verdict and "6.0 %" in made.verdict
