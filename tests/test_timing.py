"""`time_loop` and `headroom`: exact with a fake clock where nothing else runs, structural where workers do."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import loaderscope as ls
from loaderscope.clock import FakeClock
from loaderscope.experiments.prove import compare
from loaderscope.probes.timing import Limit
from loaderscope.records import Comparison, is_measured


class Timed:
    """An iterable whose batches take a known time on a fake clock; each is a tensor of four samples."""

    def __init__(self, clock, batches=10, wait_s=0.030, cpu_s=0.0):
        self.clock, self.batches, self.wait_s, self.cpu_s = clock, batches, wait_s, cpu_s

    def __len__(self):
        return self.batches

    def __iter__(self):
        for k in range(self.batches):
            self.clock.advance(self.wait_s, cpu=self.cpu_s)
            yield torch.full((4,), k)


@pytest.fixture
def clock():
    return FakeClock()


def test_waits_and_steps_are_exact(clock):
    timing = ls.time_loop(Timed(clock), lambda batch: clock.advance(0.010), clock=clock)
    assert timing.data_time_s == pytest.approx((0.030,) * 10)
    assert timing.compute_time_s == pytest.approx((0.010,) * 10)
    assert timing.stall_fraction.value == pytest.approx(0.75)
    assert timing.throughput.value == pytest.approx(4 / 0.040)
    assert timing.wall_s == pytest.approx(0.4) and timing.ended == "epochs" and timing.samples == (4,) * 10


def test_without_a_step_compute_time_is_missing(clock):
    timing = ls.time_loop(Timed(clock), clock=clock)
    assert not is_measured(timing.compute_time_s) and timing.step_time_s == timing.data_time_s


def test_a_number_of_batches_goes_over_several_epochs(clock):
    timing = ls.time_loop(Timed(clock, batches=4), batches=10, clock=clock)
    assert timing.batches == 10 and timing.epoch_starts == (0, 4, 8) and timing.ended == "batches"


def test_seconds_end_the_loop(clock):
    timing = ls.time_loop(Timed(clock, batches=1000), seconds=0.31, clock=clock)
    assert timing.ended == "time" and timing.batches == 12  # the first batch starts the count


def test_an_empty_loader_ends_at_once(clock):
    timing = ls.time_loop(Timed(clock, batches=0), seconds=5, clock=clock)
    assert timing.batches == 0 and timing.wall_s < 1 and "unknown" not in repr(timing)


@pytest.mark.parametrize(
    ("limit", "batches", "seconds", "said"),
    [
        (Limit(batches=3), 3, 0.1, "batches"),
        (Limit(batches=3), 2, 9.0, ""),
        (Limit(seconds=1), 5, 1.0, "time"),
        (Limit(seconds=1, at_least=8), 5, 1.5, ""),
        (Limit(seconds=1, at_least=8), 5, 3.0, "time"),
        (Limit(seconds=1, at_least=8, hard_seconds=2), 5, 2.0, "time"),
    ],
)
def test_limits(limit, batches, seconds, said):
    assert limit.reached(batches, seconds) == said


def test_a_step_that_raises_is_told_with_its_batch(clock):
    def step(batch):
        if batch[0] == 3:
            raise ValueError("no <such> thing")

    timing = ls.time_loop(Timed(clock), step, clock=clock)
    assert timing.ended == "fault" and timing.fault.where == "step" and timing.fault.error_type == "ValueError"
    assert timing.batches == 3


def test_headroom_of_a_loop_without_overlap_is_exact(clock):
    room = ls.headroom(Timed(clock), lambda batch: clock.advance(0.010), budget_s=9, clock=clock)
    assert room.alone.step_time.mean == pytest.approx(0.030)
    assert room.cached.mean == pytest.approx(0.010)
    assert room.both.step_time.mean == pytest.approx(0.040)
    assert room.ceiling.value == pytest.approx(0.75) and room.interference.value == pytest.approx(1.0)
    assert room.rounds == 3


def test_headroom_ends_on_an_empty_loader(clock):
    room = ls.headroom(Timed(clock, batches=0), lambda batch: None, budget_s=9, clock=clock)
    assert room.alone.batches == 0 and not is_measured(room.cached_s) and "no batch" in str(room.cached_s)


# --- with workers -------------------------------------------------------------------------------------------------


class Doubling(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return torch.tensor([index, 2 * index])


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_and_its_generator_are_left_as_they_were(workers):
    generator = torch.Generator().manual_seed(5)
    loader = DataLoader(Doubling(), batch_size=4, shuffle=True, num_workers=workers, generator=generator)
    before, inner = generator.get_state(), dict(vars(loader))
    torch_state = torch.get_rng_state()
    timing = ls.time_loop(loader, lambda batch: None)
    assert timing.batches == 10 and sum(timing.samples) == 40
    assert torch.equal(generator.get_state(), before) and torch.equal(torch.get_rng_state(), torch_state)
    assert vars(loader).keys() == inner.keys() and all(vars(loader)[k] is v for k, v in inner.items())


def test_persistent_workers_leave_with_the_copy():
    loader = DataLoader(Doubling(), batch_size=4, num_workers=1, persistent_workers=True)
    timing = ls.time_loop(loader, epochs=2)
    assert timing.epoch_starts == (0, 10) and loader._iterator is None


def test_a_comparison_runs_both_sides_in_turns():
    loader = DataLoader(TensorDataset(torch.zeros(4000, 4)), batch_size=8)
    result = compare(loader, {"num_workers": 1}, budget_s=2.0)
    assert isinstance(result, Comparison)
    assert result.before_label == "num_workers=0" and result.after_label == "num_workers=1"
    assert result.ratio.value < 1  # in-memory rows: a worker only adds the trip
