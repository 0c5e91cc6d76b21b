"""Training steps that raise, take long or change what they are given; and what a step changed is put back."""

from __future__ import annotations

import copy
import os
import random
import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import loaderscope as ls
from bad_data import Rows, load, mapping
from loaderscope.errors import BadInputError, LoaderscopeError, StepFailedError
from loaderscope.records import is_measured
from running import causes, reported

WORKERS = pytest.mark.parametrize("workers", [0, 2])
slow = pytest.mark.slow


def rows(workers=0, length=64):
    return DataLoader(Rows(length), batch_size=4, num_workers=workers)


class FailsAt:
    """Raises at its `number`-th call."""

    def __init__(self, number: int):
        self.number, self.calls = number, 0

    def __call__(self, batch):
        self.calls += 1
        if self.calls == self.number:
            raise ValueError("no <such> label")


@WORKERS
def test_a_step_that_raises_at_once_is_told_before_anything_else(workers):
    with pytest.raises(StepFailedError) as caught:
        ls.diagnose(rows(workers), FailsAt(1), budget_s=2)
    assert "ValueError: no <such> label" in str(caught.value) and "next(iter(loader))" in caught.value.way_out
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize("number", [2, 5, pytest.param(200, marks=slow)])
def test_a_step_that_raises_later_ends_the_measurement_and_not_the_report(number):
    report = reported(rows(), FailsAt(number), budget_s=1)
    told = f"your step raised ValueError after {number - 1} good call"
    assert any(told in note and "no <such> label" in note for note in report.notes)
    assert not causes(report, family="safety"), "it is not the loader's fault"
    # What was measured until then may be enough for a verdict on the loader.
    assert "ValueError" in report.verdict or report.headroom.with_step
    assert "&lt;such&gt;" in report._repr_html_()


@slow
def test_a_step_that_raises_while_a_fix_is_tried_leaves_it_untried():
    loader = DataLoader(Rows(400, wait_s=0.004), batch_size=8)
    started = time.monotonic()

    def step(batch):
        # By then the proof of a fix is all that is left of ten seconds.
        if time.monotonic() - started > 7.5:
            raise ValueError("too late")

    report = reported(loader, step, budget_s=10)
    assert report.timing.batches and ("too late" in repr(report) or report.elapsed_s < 7.5)


def test_a_step_in_single_instruments():
    timing = ls.time_loop(rows(), FailsAt(3))
    assert timing.fault.where == "step" and timing.batches == 2
    room = ls.headroom(rows(), FailsAt(9), budget_s=0.5)
    assert room.both.fault.where == "step" and not is_measured(room.ceiling)
    with pytest.raises(BadInputError):
        ls.compare(rows(), {"num_workers": 1}, "no step")


def mutate(batch):
    """Every call finds what the loader gave, or this raises."""
    label = batch.pop("label")
    assert int(label.min()) >= 0, "an earlier call's subtraction is still there"
    label.sub_(5)
    batch["image"].mul_(0).add_(float("nan"))
    batch["meta"].clear()
    batch.clear()


@WORKERS
def test_a_step_may_pop_keys_and_write_into_tensors(workers):
    report = reported(load(mapping, workers), mutate, budget_s=0.8)
    assert not report.notes or not any("raised" in note for note in report.notes)
    assert is_measured(report.headroom.cached_s) and len(report.headroom.cached_s) > 8


def test_kept_batches_are_those_that_no_step_has_seen():
    """One batch an epoch and a step that empties it: the batches kept for the cached turn must still be whole."""
    room = ls.headroom(DataLoader([mapping(k) for k in range(4)], batch_size=4), mutate, budget_s=0.6)
    assert room.with_step and room.both.fault is None


@slow
@WORKERS
def test_a_step_longer_than_the_budget_runs_once_beyond_it(workers):
    calls = []

    def step(batch):
        calls.append(time.monotonic())
        time.sleep(6)

    began = time.monotonic()
    report = reported(rows(workers), step, budget_s=3, steps_s=6)
    # 5 s may be overrun, and one step: the second call fits no more.
    assert len(calls) == 1 and time.monotonic() - began < 3 + 5 + 6 + 3
    assert "6 s" in report.verdict and "budget_s" in report.verdict


@slow
def test_a_slow_step_that_fits_is_measured():
    report = reported(rows(), lambda batch: time.sleep(0.7), budget_s=4, steps_s=0.7)
    assert report.headroom.with_step and report.bound in ("compute-bound", "undecided")


def test_what_a_step_returns_is_of_no_interest():
    for result in (torch.zeros(2, requires_grad=True), StopIteration):
        assert reported(rows(), lambda batch, result=result: result, budget_s=0.2).steps_run > 1


def test_a_step_that_ends_the_iteration_is_an_error_of_the_step():
    def step(batch):
        raise StopIteration

    with pytest.raises(StepFailedError, match="StopIteration"):
        ls.diagnose(rows(), step, budget_s=1)


# --- what is put back -------------------------------------------------------------------------------------------------


def training():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(), torch.nn.Linear(8, 1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

    def step(batch):
        model.train()
        optimizer.zero_grad()
        noise = random.random() + float(np.random.rand())
        loss = (model(batch + torch.rand(4) * noise) - 1).square().mean()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


def everything(model, optimizer):
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return state, gradients, [m.training for m in model.modules()]


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.dtype == b.dtype
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    return a == b


@pytest.fixture(scope="module", autouse=True)
def torch_is_warm():
    """torch sets a variable of its own with the first step of an optimizer."""
    training()[-1](torch.ones(8, 4))


@pytest.mark.parametrize("trained", [False, True], ids=["fresh", "trained"])
def test_model_optimizer_and_generators_come_back_bit_by_bit(trained, rng_unchanged):
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    model, optimizer, step = training()
    if trained:
        step(torch.ones(8, 4))
        model.eval()
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    before = everything(model, optimizer)
    report = reported(DataLoader(Rows(), batch_size=4, shuffle=True), step, budget_s=0.5, state=(model, optimizer))
    assert report.steps_run > 1 and report.state_restored and not any("kept" in note for note in report.notes)
    assert same(everything(model, optimizer), before)


def test_a_state_may_be_one_object_or_a_generator():
    model, optimizer, step = training()
    before = everything(model, optimizer)
    report = reported(rows(), step, budget_s=0.5, state=(thing for thing in (model, optimizer)))
    assert report.state_restored and same(everything(model, optimizer), before)
    assert reported(rows(), step, budget_s=0.5, state=model).state_restored


def test_what_was_changed_is_put_back_after_a_step_that_raised():
    model, optimizer, step = training()
    before = everything(model, optimizer)

    def fails(batch):
        step(batch)
        raise RuntimeError("after the change")

    with pytest.raises(StepFailedError):
        ls.diagnose(rows(), fails, budget_s=1, state=(model, optimizer))
    assert same(everything(model, optimizer), before)


def test_without_a_state_the_report_says_how_often_the_step_ran():
    report = reported(rows(), lambda batch: None, budget_s=0.2)
    assert not report.state_restored and any(f"ran {report.steps_run:,} times" in note for note in report.notes)


class Stubborn:
    """Saves, and cannot be put back."""

    def __init__(self, fails_at: str):
        self.fails_at = fails_at

    def state_dict(self):
        if self.fails_at == "saving":
            raise OSError("disk full")
        return {}

    def load_state_dict(self, state):
        raise OSError("disk <gone>")


def test_a_state_that_cannot_come_back_is_told_and_the_others_do():
    model, optimizer, step = training()
    before = everything(model, optimizer)
    with pytest.raises(LoaderscopeError, match=r"Stubborn\.load_state_dict raised OSError: disk <gone>"):
        ls.diagnose(rows(), step, budget_s=0.5, state=(Stubborn("loading"), model, optimizer))
    assert same(everything(model, optimizer), before)


def test_a_state_that_cannot_be_saved_is_told_before_the_step_runs():
    ran = []
    with pytest.raises(BadInputError, match="disk full"):
        ls.diagnose(rows(), ran.append, budget_s=0.5, state=(Stubborn("saving"),))
    assert not ran


def test_a_shuffled_loader_goes_on_where_it_was(rng_unchanged):
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Rows(), batch_size=4, shuffle=True, generator=generator)
    before, folder = generator.get_state(), os.getcwd()
    reported(loader, lambda batch: torch.rand(3), budget_s=0.2)
    assert torch.equal(generator.get_state(), before) and os.getcwd() == folder


@slow
def test_an_epoch_that_is_under_way_goes_on():
    """Persistent workers in the middle of an epoch: the rest of it comes as if nothing had happened."""

    def epoch(between):
        generator = torch.Generator().manual_seed(1)
        loader = DataLoader(
            Rows(), batch_size=4, num_workers=2, shuffle=True, persistent_workers=True, generator=generator
        )
        iterator = iter(loader)
        batches = [next(iterator), next(iterator)]
        pids = [worker.pid for worker in iterator._workers]
        between(loader)
        batches += list(iterator)
        assert [worker.pid for worker in iterator._workers] == pids and loader._iterator is iterator
        batches += list(loader)
        iterator._shutdown_workers()
        return torch.stack(batches)

    expected = epoch(lambda loader: None)
    assert torch.equal(epoch(lambda loader: reported(loader, lambda batch: None)), expected)
    assert torch.equal(epoch(lambda loader: ls.time_loop(loader, batches=5)), expected)
