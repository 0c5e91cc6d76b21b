"""The shared mapping, and the stand-ins that write to it: exact with a fake clock, transparent to the loader."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, default_collate
from torchvision import transforms
from torchvision.transforms import v2

from loaderscope.clock import FakeClock, release
from loaderscope.loaders import LoaderSpec
from loaderscope.probes.spans import COLLATE, READ, STAGE, SpanFile
from loaderscope.probes.stand_ins import ProbedCollate, ProbedDataset
from loaderscope.probes.transforms import find_transforms


def test_a_full_ring_overwrites_the_oldest_and_says_how_many():
    with SpanFile(1, capacity=10) as file:
        writer = file.target().writer(0, 0)
        for k in range(12):
            writer.add(READ, 0, k, float(k), 0.1, 0.05, 0.0)
        spans, lost = file.read()
        assert lost == 2 and [s.index for s in spans] == list(range(2, 12))
    assert not os.path.exists(file.path)


def test_the_index_being_read_is_known_until_it_ends():
    with SpanFile(1) as file:
        writer = file.target().writer(0, 0)
        writer.begin(7)
        assert file.being_read() == (7,)
        writer.end()
        assert file.being_read() == ()


def test_two_writers_of_one_process_share_a_ring():
    with SpanFile(1) as file:
        first, second = (file.target().writer(0, 0) for _ in range(2))
        for k in range(3):
            first.add(READ, 0, k, 1.0, 0, 0, 0)
            second.add(COLLATE, 0, -1, 2.0, 0, 0, 0)
        assert len(file.read()[0]) == 6


class Clocked(Dataset):
    """Advances a fake clock by a known amount in each read."""

    def __init__(self, clock):
        self.clock, self.marker = clock, "here"

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.clock.advance(0.010, cpu=0.002, delay=0.001)
        return torch.tensor(index)


class Batched(Clocked):
    def __getitems__(self, indices):
        return [self[i] for i in indices]


@pytest.fixture
def spans():
    with SpanFile(0) as file:
        yield file
    release()  # what the clock keeps open for a thread that was timed in this very process


def test_spans_are_exact(spans):
    clock = FakeClock(100.0)
    dataset = ProbedDataset(Clocked(clock), spans.target(), os.getpid(), clock)
    assert dataset[3] == 3
    (span,), _ = spans.read()
    assert (span.kind, span.index, span.worker, span.start) == (READ, 3, -1, 100.0)
    assert (span.wall, span.cpu, span.delay) == pytest.approx((0.010, 0.002, 0.001))


def test_getitems_shows_only_where_the_dataset_has_it(spans):
    clock = FakeClock()
    assert not hasattr(ProbedDataset(Clocked(clock), spans.target(), os.getpid(), clock), "__getitems__")
    probed = ProbedDataset(Batched(clock), spans.target(), os.getpid(), clock)
    assert len(probed.__getitems__([1, 2])) == 2
    (span,), _ = spans.read()
    assert span.wall == pytest.approx(0.020)


def test_attributes_go_both_ways(spans):
    dataset = Clocked(FakeClock())
    probed = ProbedDataset(dataset, spans.target(), os.getpid())
    probed.marker = "changed"
    assert dataset.marker == "changed" and probed.marker == "changed" and len(probed) == 8
    with pytest.raises(AttributeError, match="nothing"):
        _ = probed.nothing


def test_stand_ins_pickle(spans):
    for thing in (ProbedDataset([1, 2], spans.target(), 1), ProbedCollate(default_collate, spans.target())):
        assert type(pickle.loads(pickle.dumps(thing))) is type(thing)


def test_an_exception_passes_and_leaves_the_index(spans):
    probed = ProbedDataset([1, 2], spans.target(), os.getpid())
    with pytest.raises(IndexError):
        probed[9]
    assert spans.being_read() == (9,)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def test_an_iterable_is_timed_item_by_item(spans):
    assert list(ProbedDataset(Stream(), spans.target(), os.getpid())) == [0, 1, 2, 3, 4]
    assert sum(s.kind == READ for s in spans.read()[0]) == 5


# --- transforms ---


def double(x):
    return 2 * x


class Slotted:
    __slots__ = ("factor",)

    def __init__(self):
        self.factor = 3

    def __call__(self, x):
        return self.factor * x


class Numbers(Dataset):
    def __init__(self, transform):
        self.transform = transform

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.transform(torch.full((3, 8, 8), float(index)))


CHAINS = {
    "v1 Compose": lambda: transforms.Compose([transforms.RandomCrop(4), double, Slotted()]),
    "v2 Compose": lambda: v2.Compose([v2.RandomCrop(4), v2.Lambda(double), v2.Identity()]),
    "one callable": lambda: double,
    "nested": lambda: transforms.Compose([transforms.Compose([double, double]), transforms.RandomCrop(4)]),
}


@pytest.mark.parametrize("name", CHAINS)
def test_every_transform_is_timed_in_the_worker_and_untouched_in_main(name):
    chain = CHAINS[name]()
    dataset = Subset(Numbers(chain), list(range(20)))
    places = find_transforms(dataset)
    before = [p.get() for p in places]
    types = [type(b) for b in before]
    spec = LoaderSpec.read(DataLoader(dataset, batch_size=5, num_workers=2))
    with SpanFile(2) as file:
        probed = ProbedDataset(dataset, file.target(), os.getpid())
        copy = spec.copy(dataset=probed, collate_fn=ProbedCollate(default_collate, file.target()))
        batches = list(copy)
        spans, _ = file.read()
    assert len(batches) == 4
    calls = [sum(s.kind == STAGE and s.name == k for s in spans) for k in range(len(places))]
    assert calls == [20] * len(places)
    assert sum(s.kind == COLLATE for s in spans) == 4
    assert [p.get() for p in places] == before and [type(p.get()) for p in places] == types


def test_paths_read_as_a_person_writes_them():
    dataset = Subset(Numbers(transforms.Compose([double])), [0])
    (place,) = find_transforms(dataset)
    assert (place.path, place.name) == ("dataset.dataset.transform.transforms[0]", "double")
    assert eval(place.path, {"dataset": dataset}) is double


def test_cyclic_and_hostile_objects_end_the_search():
    class Loop(Dataset):
        @property
        def transform_of_doom(self):
            raise RuntimeError("a property must not be run")

    loop = Loop()
    loop.dataset, loop.transform = loop, None
    assert find_transforms(loop) == ()


def test_results_are_the_same_with_and_without_the_stand_in():
    dataset = Numbers(double)
    spec = LoaderSpec.read(DataLoader(dataset, batch_size=5, num_workers=1))
    plain = [b for b in spec.copy()]
    with SpanFile(1) as file:
        probed = [b for b in spec.copy(dataset=ProbedDataset(dataset, file.target(), os.getpid()))]
    assert all(torch.equal(a, b) for a, b in zip(plain, probed, strict=True))
