"""Planted streams, odd datasets, steps and collates are what they say, and everything planted pickles."""

from __future__ import annotations

import pickle

import pytest
import torch
from torch.utils.data import DataLoader

from loaderscope import faults as f
from loaderscope.clock import SYSTEM
from test_faults import spent


def test_sharded_stream_gives_each_sample_once():
    loader = DataLoader(f.ShardedStream(32), batch_size=4, num_workers=2)
    seen = sorted(int(value) for vectors, _ in loader for value in vectors[:, 0])
    assert seen == list(range(32))
    assert [label for (_, label), _ in zip(f.InfiniteStream(), range(3))] == [0, 7, 4]


def test_odd_values_and_lengths():
    for kind in ("none", "object-array"):
        with pytest.raises(TypeError):
            list(DataLoader(f.OddValues(10, kind), batch_size=5))
    for kind in ("string", "nested", "empty"):
        assert len(list(DataLoader(f.OddValues(10, kind), batch_size=5))) == 2
    for kind in ("missing", "not-a-number"):
        with pytest.raises(TypeError):
            len(f.OddLength(10, kind))
    with pytest.raises(RuntimeError):
        len(f.OddLength(10, "raising"))
    with pytest.raises(IndexError):
        f.OddLength(10, "too-long")[len(f.OddLength(10, "too-long")) - 1]
    assert len(f.OddLength(10, "too-short")) == 5


def test_healthy_datasets():
    padded, lengths, _ = next(iter(DataLoader(f.RaggedDataset(40), batch_size=20, collate_fn=f.pad_collate)))
    assert padded.shape == (20, 11)
    assert set(lengths.tolist()) == set(range(5, 12))
    with pytest.raises(RuntimeError):
        next(iter(DataLoader(f.RaggedDataset(40), batch_size=20)))
    wall, _ = spent(f.BatchReadDataset(40, 0.05).__getitems__, list(range(8)))
    assert 0.05 <= wall < 8 * 0.05
    flips = f.RandomFlipDataset(1)
    assert len({flips[0][0].sum(-1).shape for _ in range(2)}) == 1
    assert any(not torch.equal(flips[0][0], flips.data[0]) for _ in range(40))


def test_steps_cost_what_they_say():
    for how in ("native", "python"):
        assert 0.03 <= spent(f.ComputeStep(0.03, how), None)[1] < 0.08
    before = SYSTEM.process_cpu()
    f.ComputeStep(0.05, threads=2)(None)
    assert SYSTEM.process_cpu() - before >= 0.1
    wall, cpu = spent(f.WaitingStep(0.05), None)
    assert wall >= 0.05
    assert cpu < 0.2 * wall
    first, second = f.WaitingStep(0.001, 0.5), f.WaitingStep(0.001, 0.5)
    assert first.random.random() == second.random.random()
    assert spent(f.SlowCollate(0.03), [torch.zeros(2)])[1] >= 0.03


def test_raising_step_fails_at_its_call():
    step = f.RaisingStep(at=1)
    step(None)
    with pytest.raises(RuntimeError, match="step 1"):
        step(None)


@pytest.fixture
def one_torch_thread():
    """On a busy machine torch's own threads wait for each other most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_training_step_learns_and_restores_its_state(one_torch_thread):
    step = f.TinyTrainStep(width=4)
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    batch = images, torch.arange(8) % 2
    saved = pickle.loads(pickle.dumps(step.state_dict()))
    losses = [step(batch) for _ in range(12)]
    assert losses[-1] < losses[0]
    step.load_state_dict(saved)
    assert step(batch) == pytest.approx(losses[0], rel=1e-4)


def test_a_host_bound_step_computes_and_then_waits():
    wall, cpu = spent(f.HostBoundStep(0.03, 0.05), None)
    assert 0.029 < cpu < 0.06 and wall - cpu > 0.049


@pytest.mark.parametrize("name", [name for name in f.__all__ if name != "pad_collate"])
def test_everything_pickles(name):
    arguments = {
        "BatchReadDataset": (9, 0.1), "ComputeStep": (0.1,), "CrashingDataset": (9, 1), "ForkingDataset": (9,),
        "HangingDataset": (9, 1), "HostBoundStep": (0.1, 0.1), "HttpJpegDataset": (["http://127.0.0.1/a.jpg"],),
        "InMemoryDataset": (9,), "JpegDataset": (["a.jpg"],), "LockedDataset": (9, 0.1),
        "NativeComputeDataset": (9, 0.1), "NoiseDataset": (9,), "OddLength": (9, "missing"),
        "OddValues": (9, "none"), "PurePythonDataset": (9, 0.1), "RaggedDataset": (9,),
        "RaisingDataset": (9, 1, KeyError("x")), "RandomFlipDataset": (9,), "ShardedStream": (9,),
        "SlowCollate": (0.1,), "SlowStartDataset": (9, 0.1), "WaitingDataset": (9, 0.1), "WaitingStep": (0.1,),
    }  # fmt: skip
    made = getattr(f, name)(*arguments.get(name, ()))
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    assert vars(again).keys() == vars(made).keys()
