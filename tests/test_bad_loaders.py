"""Loaders with odd lengths, odd samples and faults: a finding or a plain report, and nothing left behind."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader

import bad_data as bad
import loaderscope as ls
from bad_data import load
from loaderscope.records import is_measured
from running import causes, reported

WORKERS = pytest.mark.parametrize("workers", [0, 2])
slow = pytest.mark.slow


def rows(length, workers=0, **options):
    return DataLoader(bad.Rows(length), batch_size=4, num_workers=workers, **options)


# --- lengths ----------------------------------------------------------------------------------------------------------


@WORKERS
def test_an_empty_dataset_is_a_configuration_that_gives_nothing(workers):
    report = reported(rows(0, workers), bad.ignore)
    assert causes(report) == ["bad-configuration"] and "len(loader) is 0" in report.verdict
    assert report.steps_run == 0 and any("no batch" in note for note in report.notes)


@WORKERS
def test_a_dataset_shorter_than_a_batch_that_drops_it(workers):
    report = reported(rows(3, workers, drop_last=True), bad.ignore)
    assert causes(report) == ["undersized-batches"]
    assert "3 samples" in report.verdict and "batch of 4" in report.verdict


@slow
@WORKERS
def test_a_dataset_shorter_than_a_batch_is_one_batch_an_epoch(workers):
    report = reported(rows(3, workers), bad.ignore)
    assert set(report.timing.samples) == {3} and not causes(report, family="safety")


@WORKERS
@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (bad.NoLength(), "has no len()"),
        (bad.SaysLength(OSError("no index yet")), "OSError: no index yet"),
        (bad.SaysLength(-3), "__len__() should return >= 0"),
    ],
    ids=["missing", "raises", "negative"],
)
def test_a_length_that_cannot_be_had_is_an_error_of_the_main_process(dataset, said, workers):
    report = reported(DataLoader(dataset, batch_size=4, num_workers=workers), bad.ignore)
    assert causes(report) == ["worker-error"] and said in report.verdict
    assert ("num_workers=0" in report.top.evidence[0]) == (workers == 0)


@slow
@WORKERS
def test_a_length_that_is_too_large_is_an_index_error_with_its_index(workers):
    report = reported(DataLoader(bad.SaysLength(90), batch_size=4, num_workers=workers), bad.ignore, budget_s=3)
    assert causes(report) == ["worker-error"] and "IndexError" in report.verdict
    assert any("index being read: 64" in e for e in report.top.evidence)


def test_a_length_that_is_too_small_is_what_is_read():
    report = reported(DataLoader(bad.SaysLength(10), batch_size=4), budget_s=0.3)
    assert sum(report.timing.samples[:3]) == 10 and not causes(report, family="safety")


# --- samples ----------------------------------------------------------------------------------------------------------


@WORKERS
@pytest.mark.parametrize(("make", "index"), [(bad.raise_at_7, 7), (bad.raise_always, None)], ids=["once", "always"])
def test_a_sample_that_raises_is_named(make, index, workers):
    report = reported(load(make, workers), bad.ignore)
    assert causes(report) == ["worker-error"]
    read = next(e for e in report.top.evidence if "index being read" in e)
    assert index is None or f": {index} " in read
    assert "dataset[" in report.fix(1).code and "bad_data.py" in repr(report)


@WORKERS
@pytest.mark.parametrize("make", [bad.none, bad.objects, bad.set_of_words])
def test_samples_that_do_not_make_a_batch_are_an_error(make, workers):
    report = reported(load(make, workers), bad.ignore)
    assert causes(report) == ["worker-error"] and "default_collate" in report.verdict


@slow
@WORKERS
@pytest.mark.parametrize(
    ("make", "options"),
    [
        (bad.words, {}),
        (bad.number, {}),
        (bad.mapping, {}),
        (bad.words, {"collate_fn": bad.as_they_are}),
        (bad.objects, {"collate_fn": bad.as_they_are}),
        (bad.none, {"collate_fn": bad.as_they_are}),
    ],
    ids=["words", "numbers", "nested", "lists-of-words", "lists-of-arrays", "lists-of-nothing"],
)
def test_samples_that_are_no_arrays_are_measured(make, options, workers):
    report = reported(load(make, workers, **options), bad.ignore)
    assert not causes(report, family="safety") and set(report.timing.samples) == {4}


@pytest.mark.parametrize(
    ("batches", "told"),
    [
        ([torch.tensor(1.0)] * 20, None),
        ([1, 2, 3] * 20, None),
        ([{"a": torch.zeros(4), "b": "name"}] * 20, 4),
        ([torch.empty(0, 3)] * 20, 0),
        ([None] * 20, None),
        ([[]] * 20, None),
    ],
    ids=["0-d", "numbers", "dicts", "of-no-sample", "nothing", "empty-lists"],
)
@pytest.mark.parametrize("step", [None, pytest.param(bad.ignore, marks=slow)], ids=["alone", "step"])
def test_batches_of_any_kind_are_measured(batches, told, step):
    report = reported(batches, step, budget_s=0.3)
    assert not causes(report, family="safety") and report.timing.batches > 20
    assert report.timing.samples[0] == told if told is not None else not is_measured(report.timing.mean_batch)


def test_single_instruments_take_odd_samples_too():
    timing = ls.time_loop(load(bad.raise_at_7), deadline_s=10)
    assert timing.ended == "fault" and timing.batches == 1 and "item 7" in repr(timing)
    profile = ls.profile_stages(load(bad.raise_at_7), seconds=0.5, deadline_s=10)
    assert profile.fault.last_index == 7 and profile.n == 7
    check = ls.gil_check(load(bad.raise_always), budget_s=1.5)
    assert check.verdict == "undecided" and "KeyError" in check.why
    room = ls.headroom(load(bad.raise_at_7), bad.ignore, budget_s=0.5)
    assert room.alone.fault.error_type == "ValueError" and not is_measured(room.both)
    for record in (timing, profile, check, room):
        assert repr(record) and "<script" not in record._repr_html_()


# --- iterables --------------------------------------------------------------------------------------------------------


@slow
@pytest.mark.parametrize("thing", [bad.Endless(), DataLoader(bad.Stream(), batch_size=4)], ids=["iterable", "stream"])
def test_what_has_no_end_is_measured_for_its_time(thing):
    report = reported(thing, bad.ignore, budget_s=1)
    assert report.timing.ended == "time" and not causes(report, family="safety")


@slow
def test_a_stream_without_an_end_in_workers():
    report = reported(DataLoader(bad.Stream(), batch_size=4, num_workers=2), bad.ignore)
    assert report.timing.batches and not causes(report, family="safety")


def numbered():
    yield from (torch.full((4,), k) for k in range(200))


def used_up():
    iterator = iter([torch.zeros(4)])
    next(iterator)
    return iterator


@pytest.mark.parametrize("make", [numbered, used_up], ids=["generator", "used-up"])
def test_what_can_be_gone_through_once_is_left_to_the_reader(make):
    iterator = make()
    report = reported(iterator, bad.ignore, budget_s=1)
    assert report.steps_run == 0 and "only once" in report.verdict and "make_loader" in repr(report)
    assert len(list(iterator)) == (200 if make is numbered else 0)


@slow
@WORKERS
def test_a_dataset_that_can_be_gone_through_once_is_left_to_the_reader(workers):
    for dataset in (bad.Once(), bad.Itself()):
        loader = DataLoader(dataset, batch_size=4, num_workers=workers)
        report = reported(loader, bad.ignore, budget_s=1)
        assert is_measured(report.headroom) == (workers > 0), "workers have copies of their own"
        assert sum(len(batch) for batch in DataLoader(dataset, batch_size=4)) == bad.SAMPLES
        assert workers or "nothing was iterated" in report.verdict


def test_a_function_that_makes_the_generator_is_measured():
    report = reported(numbered, bad.ignore, budget_s=0.3)
    assert report.timing.batches and not causes(report, family="safety")


def test_a_loader_of_a_sampler_that_is_an_iterator_is_left_to_the_reader():
    loader = rows(64, sampler=iter(range(64)))
    report = reported(loader, bad.ignore)
    assert "sampler" in report.verdict and "function" in repr(report) and report.steps_run == 0
    assert sum(len(batch) for batch in loader) == 64


def test_an_iterable_that_raises_at_once():
    report = reported(bad.IterRaises(), bad.ignore)
    assert causes(report) == ["worker-error"] and "no <such> drive: Müller/名前" in report.verdict
    assert "num_workers" not in report.top.evidence[0], "it has no such argument"
    assert "&lt;such&gt;" in report._repr_html_()


# --- configuration ----------------------------------------------------------------------------------------------------


def test_a_timeout_without_workers_is_a_finding_that_explains_the_error():
    report = reported(rows(64, timeout=5), bad.ignore)
    assert causes(report) == ["bad-configuration"] and report.top.explained == ("worker-error",)
    assert "timeout=5" in report.top.evidence[0] and any("AssertionError" in e for e in report.top.evidence)


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_a_lambda_on_the_way_to_a_spawned_worker_is_a_finding():
    loader = rows(64, 1, multiprocessing_context="spawn", collate_fn=lambda samples: samples)
    report = reported(loader, bad.ignore)
    assert causes(report) == ["unpicklable"] and "lambda" in report.top.evidence[0]


@pytest.mark.filterwarnings("ignore:Got pickle error")
def test_what_a_spawned_worker_cannot_be_sent_is_named_where_only_starting_it_shows():
    loader = DataLoader(bad.HoldsLock(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    report = reported(loader, bad.ignore)
    assert causes(report) == ["unpicklable"] and "lock" in report.verdict


@slow
def test_a_spawned_worker_of_an_importable_dataset_works():
    loader = DataLoader(bad.Rows(400), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    report = reported(loader, bad.ignore, budget_s=8)
    assert report.timing.batches and not [c for c in causes(report, family="safety") if c != "hang"]


# --- hangs, crashes, kills ------------------------------------------------------------------------------------------


@slow
@WORKERS
def test_a_sample_that_never_comes_is_a_hang_with_its_stack(workers):
    report = reported(load(bad.hang, workers), bad.ignore, budget_s=3)
    assert report.findings[0].cause == "hang", "short waits leave it undecided"
    assert any("bad_data.py" in e or "threading.py" in e for e in report.findings[0].evidence)
    assert report.elapsed_s < 3 + 10


@slow
@pytest.mark.parametrize("make", [bad.crash, bad.leave, bad.exit_by_exception])
@WORKERS
def test_a_sample_that_ends_its_process_is_a_crash_and_not_ours(make, workers):
    report = reported(load(make, workers), bad.ignore)
    assert report.findings[0].cause == "worker-crash" and (workers == 0 or report.top is not None)
    assert any("index being read: 0" in e for e in report.findings[0].evidence)


@slow
@WORKERS
def test_a_sample_that_forks_is_only_slow(workers):
    report = reported(load(bad.fork, workers), bad.ignore)
    assert not causes(report, family="safety") and report.timing.batches


@slow
def test_a_batch_that_cannot_leave_its_worker_is_a_wait_for_nothing(capfd):
    report = reported(load(bad.number, 2, collate_fn=bad.unsendable), bad.ignore)
    assert report.findings[0].cause == "hang" and "Can't pickle" in capfd.readouterr().err
