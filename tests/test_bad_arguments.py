"""Arguments that cannot be used: a clear error before anything is read or run."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import loaderscope as ls
from bad_data import Rows, Stream
from loaderscope.errors import BadInputError, LoaderscopeError

EVERY_CALL = [ls.diagnose, ls.time_loop, ls.headroom, ls.profile_stages, ls.gil_check, ls.preflight]


class Untouched(DataLoader):
    """A loader that must not be iterated."""

    def __iter__(self):
        raise AssertionError("it was iterated")


def untouched():
    return Untouched(Rows(), batch_size=4)


def refused(call, *args, **kwargs) -> str:
    with pytest.raises(BadInputError) as caught:
        call(*args, **kwargs)
    error = caught.value
    assert error.seen and error.way_out, "an error names what it saw and the way out"
    return str(error)


@pytest.mark.parametrize("budget", [0, -3, math.nan, math.inf, "60", None, True, 1j, [60]])
def test_a_budget_is_a_number_above_zero(budget):
    assert "budget_s" in refused(ls.diagnose, untouched(), budget_s=budget)
    assert "budget_s" in refused(ls.headroom, untouched(), budget_s=budget)
    assert "budget_s" in refused(ls.gil_check, untouched(), budget_s=budget)
    assert "budget_s" in refused(ls.compare, untouched(), {"num_workers": 1}, budget_s=budget)


@pytest.mark.parametrize("step", [3, "step", torch.zeros(2), [lambda batch: None]])
def test_a_step_is_callable(step):
    for call in (ls.diagnose, ls.time_loop, ls.headroom):
        assert "step" in refused(call, untouched(), step)


@pytest.mark.parametrize(
    "checks", ["everything", "", (), ("speed", "rng"), ("speed", 3), 7, None, {"speed": 1}, [["x"]]]
)
def test_checks_are_known(checks):
    assert "checks" in refused(ls.diagnose, untouched(), checks=checks) and "correctness" in refused(
        ls.diagnose, untouched(), checks=checks
    )


@pytest.mark.parametrize("role", ["Train", "", 1, ["train"], np.zeros(2)])
def test_a_role_is_known(role):
    assert '"eval"' in refused(ls.diagnose, untouched(), role=role)


@pytest.mark.parametrize("state", [(object(),), 3, "model", (torch.zeros(2),), (None,)])
def test_what_cannot_be_saved_is_refused_before_anything_runs(state):
    made = []
    assert "state" in refused(ls.diagnose, lambda: made.append(1), lambda batch: made.append(2), state=state)
    assert not made, "the factory was called"


def test_progress_is_callable():
    with pytest.raises(BadInputError, match="progress"):
        ls.diagnose(untouched(), progress=True)


@pytest.mark.parametrize(
    "limits", [{"epochs": 0}, {"batches": -1}, {"epochs": 1.5}, {"seconds": math.nan}, {"seconds": "2"}]
)
def test_limits_of_a_loop_are_positive(limits):
    assert next(iter(limits)) in refused(ls.time_loop, untouched(), **limits)


def test_a_deadline_and_a_time_are_positive():
    assert "deadline_s" in refused(ls.time_loop, untouched(), deadline_s=0)
    assert "deadline_s" in refused(ls.headroom, untouched(), deadline_s=-1)
    assert "seconds" in refused(ls.profile_stages, untouched(), seconds=0)
    assert "batches" in refused(ls.profile_stages, untouched(), batches=0)


@pytest.mark.parametrize("call", [ls.diagnose, ls.time_loop, ls.headroom, ls.profile_stages, ls.preflight])
def test_a_dataset_is_told_from_a_loader(call):
    assert "DataLoader" in refused(call, Rows())


@pytest.mark.parametrize("call", EVERY_CALL)
@pytest.mark.parametrize("thing", ["train.py", 3, {"train": [1]}, {"train": untouched()}, object()], ids=type)
def test_what_is_no_loader_is_refused(call, thing):
    assert "pass" in refused(call, thing)


def test_a_factory_that_raises_is_named():
    def make_loader():
        raise OSError("no <such> drive")

    said = refused(ls.diagnose, make_loader)
    assert "make_loader" in said and "OSError: no <such> drive" in said


def test_a_stream_without_an_end_has_a_limit_of_its_own(monkeypatch):
    monkeypatch.setattr("loaderscope.probes.timing.LONGEST_S", 0.2)
    timing = ls.time_loop(DataLoader(Stream(), batch_size=4))
    assert timing.ended == "time" and timing.batches > 3
    whole = ls.time_loop(DataLoader(Rows(40, wait_s=0.01), batch_size=4))
    assert whole.ended == "epochs" and whole.batches == 10, "a loader that tells its length is read to its end"


def test_every_error_is_one_of_ours_and_says_so():
    assert issubclass(BadInputError, LoaderscopeError) and issubclass(BadInputError, ValueError)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"checks": "all"}, "memory and correctness"), ({"checks": ("memory",)}, "of memory"), ({"val": [1]}, "val=")],
)
def test_what_is_not_built_yet_is_said_and_not_passed_over(asked, said):
    report = ls.diagnose([], budget_s=1, **asked)
    assert any(said in note and "yet" in note for note in report.notes)


def test_the_default_asks_for_nothing_that_is_missing():
    assert not any("yet" in note for note in ls.diagnose([], budget_s=1).notes)
