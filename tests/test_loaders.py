"""LoaderSpec: reading without touching the data, private copies, states put back, lines to paste, sample counts."""

from __future__ import annotations

import ast
import collections
import dataclasses
import functools
import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import warnings

import hypothesis
import hypothesis.strategies as st
import numpy as np
import psutil
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)
from torch.utils.data.dataloader import default_collate

from loaderscope.errors import BadInputError, CannotRebuildError
from loaderscope.loaders import ARGUMENTS, LoaderSpec, batch_size_of, batches, release
from loaderscope.records import NotMeasured, is_measured

pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true but:UserWarning")


# --- what readers bring -------------------------------------------------------------------------------------------


class Untouchable(Dataset):
    """Fails a test that reads a sample; its length may be asked."""

    def __init__(self, size=20):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        raise AssertionError("the dataset was read")


class Squares(Dataset):
    def __init__(self, size=23):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return torch.tensor(index * index)


class Noisy(Squares):
    """A sample that depends on the worker's random state, so that equal batches mean equal seeds as well."""

    def __getitem__(self, index):
        return torch.tensor([index, torch.randint(10**6, ()).item(), random.randrange(10**6), np.random.randint(10**6)])


class Counting(IterableDataset):
    def __init__(self, size=10):
        self.size = size

    def __iter__(self):
        return iter(range(self.size))


class SizedCounting(Counting):
    def __len__(self):
        return self.size


class Sharded(Counting):
    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.size, step))


class UntouchableSampler:
    def __iter__(self):
        raise AssertionError("the sampler was iterated")

    def __len__(self):
        return 20


class CountingLoader(DataLoader):
    """A subclass with state of its own and another `__iter__`."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, collate_fn=self.gather, **kwargs)
        self.epochs = 0

    def gather(self, samples):
        return self.epochs, torch.stack(samples)

    def __iter__(self):
        self.epochs += 1
        for batch in super().__iter__():
            yield "mine", batch


class Repeating(DataLoader):
    """As in timm and ultralytics: one iterator for the loader's whole life."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.iterator = super().__iter__()

    def __iter__(self):
        for _ in range(len(self)):
            yield next(self.iterator)


class Forwarding(DataLoader):
    """As in accelerate: never runs DataLoader.__init__, passes everything on to an inner loader."""

    def __init__(self, *args, **kwargs):
        self.base_dataloader = DataLoader(*args, **kwargs)

    def __getattr__(self, name):
        if name == "base_dataloader":
            raise AttributeError(name)
        return getattr(self.base_dataloader, name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __iter__(self):
        for batch in self.base_dataloader:
            yield "shard", batch

    def __len__(self):
        return len(self.base_dataloader)


class WithSlots(DataLoader):
    __slots__ = ("mark",)


def my_collate(samples):
    return {"x": torch.stack(samples), "n": len(samples)}


def my_worker_init(worker_id):
    random.seed(worker_id)


def seeded(loader, seed=7):
    """Two epochs of batches under a fixed seed, as plain values."""
    torch.manual_seed(seed), random.seed(seed), np.random.seed(seed)
    for part in (loader.generator, getattr(loader.sampler, "generator", None)):
        if part is not None:
            part.manual_seed(seed)
    return [[plain(batch) for batch in loader] for _ in range(2)]


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def attributes(loader):
    return {name: id(value) for name, value in vars(loader).items()}


@pytest.fixture(autouse=True)
def randomness():
    """The tests seed the global generators; what was there before comes back."""
    kept = torch.get_rng_state(), random.getstate(), np.random.get_state()
    yield
    torch.set_rng_state(kept[0]), random.setstate(kept[1]), np.random.set_state(kept[2])


LOADERS = {
    "plain": lambda data: DataLoader(data, 4),
    "shuffled": lambda data: DataLoader(data, 4, shuffle=True),
    "generator": lambda data: DataLoader(data, 4, shuffle=True, generator=torch.Generator()),
    "drop last": lambda data: DataLoader(data, 4, drop_last=True, in_order=False),
    "sampler": lambda data: DataLoader(data, 4, sampler=SubsetRandomSampler([1, 5, 7, 9, 11])),
    "weighted": lambda data: DataLoader(data, 3, sampler=WeightedRandomSampler([1.0] * 23, 9)),
    "sampler is a list": lambda data: DataLoader(data, 3, sampler=[3, 1, 2, 0]),
    "batch sampler": lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(data), 5, False)),
    "batch sampler is a list": lambda data: DataLoader(data, batch_sampler=[[0, 1], [4]]),
    "distributed": lambda data: DataLoader(data, 4, sampler=DistributedSampler(data, 2, 1)),
    "unbatched": lambda data: DataLoader(data, batch_size=None),
    "lists of indices": lambda data: DataLoader(
        TensorDataset(torch.arange(23)), batch_size=None, sampler=BatchSampler(SequentialSampler(data), 6, False)
    ),
    "collate": lambda data: DataLoader(data, 4, collate_fn=my_collate, worker_init_fn=my_worker_init),
    "pinned": lambda data: DataLoader(data, 4, pin_memory=True),
    "subclass": lambda data: CountingLoader(data, 4, shuffle=True),
    "forwarding": lambda data: Forwarding(data, 4, shuffle=True),
    "slots": lambda data: WithSlots(data, 4),
    "tensors": lambda data: DataLoader(TensorDataset(torch.arange(9), torch.arange(9)), 4, shuffle=True),
    "subset": lambda data: DataLoader(Subset(data, [2, 4, 6]), 2),
    "list": lambda data: DataLoader([1, 2, 3, 4, 5], 2, shuffle=True),
    "empty": lambda data: DataLoader([], 2),
    "stream": lambda data: DataLoader(Counting(), 4),
    "sized stream": lambda data: DataLoader(SizedCounting(), 4, drop_last=True),
    "unbatched stream": lambda data: DataLoader(Counting(), None),
}


# --- reading ------------------------------------------------------------------------------------------------------


def test_reads_every_setting():
    context = multiprocessing.get_context("spawn")
    data = Untouchable(20)
    loader = DataLoader(
        data, 3, sampler=UntouchableSampler(), num_workers=2, collate_fn=my_collate, pin_memory=True, drop_last=True,
        timeout=9, worker_init_fn=my_worker_init, multiprocessing_context=context, generator=torch.Generator(),
        prefetch_factor=5, persistent_workers=True, in_order=False,
    )  # fmt: skip
    spec = LoaderSpec.read(loader)
    facts = spec.facts
    here = __name__
    assert spec.loader is loader and spec.kind == facts.kind == "map"
    assert facts.loader == "torch.utils.data.dataloader.DataLoader"
    assert facts.dataset == f"{here}.Untouchable"
    assert (facts.length, facts.batches, facts.batch_size) == (20, 6, 3)
    assert (facts.num_workers, facts.prefetch_factor, facts.persistent_workers) == (2, 5, True)
    assert (facts.pin_memory, facts.drop_last, facts.in_order, facts.timeout_s) == (True, True, False, 9.0)
    assert facts.start_method == "spawn"
    assert facts.sampler == f"{here}.UntouchableSampler" and facts.batch_sampler == ""
    assert facts.collate == f"{here}.my_collate" and facts.worker_init == f"{here}.my_worker_init"
    assert facts.has_generator is True and facts.has_getitems is False
    assert facts.rebuild_refused == "" and facts.can_rebuild
    assert spec.dataset is data and spec.collate_fn is my_collate and spec.worker_init_fn is my_worker_init
    assert spec.generator is loader.generator


@pytest.mark.parametrize("name", LOADERS)
def test_facts_of_every_variant(name, rng_unchanged, tmp_path):
    loader = LOADERS[name](Squares())
    before = attributes(loader)
    facts = LoaderSpec.read(loader).facts
    assert attributes(loader) == before
    assert facts.num_workers == 0 and facts.rebuild_refused == "", facts
    assert facts.kind == ("iterable" if "stream" in name else "map")
    assert is_measured(facts.batches) != (name in ("stream", "unbatched stream"))
    assert not is_measured(facts.batches) or facts.batches == len(loader)
    assert repr(facts) and facts.save(str(tmp_path / "facts.json"))


@pytest.mark.parametrize("context", ["fork", multiprocessing.get_context("forkserver"), multiprocessing])
def test_start_methods(context):
    context = multiprocessing.get_context() if context is multiprocessing else context
    expected = context if isinstance(context, str) else context.get_start_method()
    assert (
        LoaderSpec.read(DataLoader([1], num_workers=1, multiprocessing_context=context)).facts.start_method == expected
    )


def test_a_batch_sampler_is_what_makes_the_order():
    data = Squares()
    facts = LoaderSpec.read(LOADERS["batch sampler"](data)).facts
    assert facts.batch_sampler.endswith("BatchSampler") and facts.sampler.endswith("RandomSampler")
    facts = LoaderSpec.read(LOADERS["batch sampler is a list"](data)).facts
    assert facts.batch_sampler == "list" and isinstance(facts.sampler, NotMeasured)


def test_stream_facts():
    loader = DataLoader(SizedCounting(10), 4)
    facts = LoaderSpec.read(loader).facts
    assert (facts.length, facts.batches) == (10, 3) and isinstance(facts.sampler, NotMeasured)
    # torch notes that len was asked, and warns by it when more batches come: a noted length would be ours.
    assert loader._IterableDataset_len_called is None
    len(loader)
    LoaderSpec.read(loader)
    assert loader._IterableDataset_len_called == 10
    facts = LoaderSpec.read(DataLoader(Counting(), 4)).facts
    assert "len(dataset) raises TypeError" in facts.length.reason
    assert "len(loader) raises TypeError" in facts.batches.reason


def test_names_of_callables():
    names = {
        my_collate: f"{__name__}.my_collate",
        functools.partial(my_collate): f"functools.partial({__name__}.my_collate)",
        (lambda s: s): f"{__name__}.test_names_of_callables.<locals>.<lambda>",
        list: "list",
    }
    for function, name in names.items():
        assert LoaderSpec.read(DataLoader([1], collate_fn=function)).facts.collate == name


def hostile_length(answer):
    class Hostile(Dataset):
        def __len__(self):
            if isinstance(answer, BaseException):
                raise answer
            return answer

        def __getitem__(self, index):
            raise AssertionError("read")

    return Hostile()


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no message either")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (RuntimeError("disk\nis gone"), "RuntimeError: disk is gone"),
        (Unprintable(), "Unprintable"),
        (SystemExit(3), "SystemExit"),
        (-1, "ValueError"),
        ("ten", "TypeError"),
        (None, "TypeError"),
        (2.5, "TypeError"),
    ],
)
def test_hostile_lengths_become_reasons(answer, words):
    spec = LoaderSpec.read(DataLoader(hostile_length(answer), sampler=[0]))
    assert "len(dataset) raises" in spec.facts.length.reason and words in spec.facts.length.reason
    assert spec.facts.batches == 1 and spec.facts.rebuild_refused == ""


def test_dataset_without_length():
    class Bare:
        def __getitem__(self, index):
            raise AssertionError("read")

    facts = LoaderSpec.read(DataLoader(Bare(), sampler=[0, 1])).facts
    assert "has no len()" in facts.length.reason and facts.has_getitems is False


class Raising(DataLoader):
    """Every attribute a subclass could break is broken."""

    error = RuntimeError("odd")

    def __getattribute__(self, name):
        if name in ("batch_size", "pin_memory", "sampler", "collate_fn", "generator", "multiprocessing_context"):
            raise Raising.error
        return super().__getattribute__(name)

    def __len__(self):
        raise KeyError("no length")


@pytest.mark.parametrize("error", [RuntimeError("odd"), KeyError("odd"), SystemExit("odd"), StopIteration("odd")])
def test_properties_that_raise_become_reasons(error, monkeypatch):
    monkeypatch.setattr(Raising, "error", error)
    spec = LoaderSpec.read(Raising(Untouchable()))
    facts = spec.facts
    for name in ("batch_size", "pin_memory", "sampler", "collate", "has_generator", "start_method", "batches"):
        value = getattr(facts, name)
        assert isinstance(value, NotMeasured) and "raises" in value.reason, (name, value)
    assert spec.collate_fn is None and spec.generator is None and spec.describe_changes({})
    with pytest.raises(CannotRebuildError, match=r"loader\.batch_size raises"):
        spec.copy(batch_size=3)


def test_a_dataset_whose_attributes_raise():
    class Odd(Dataset):
        def __getattr__(self, name):
            raise OSError(name)

        def __len__(self):
            return 3

    facts = LoaderSpec.read(DataLoader(Odd())).facts
    assert facts.length == 3 and facts.has_getitems is False


def test_wrong_types_become_reasons():
    loader = DataLoader([1])
    loader.num_workers, loader.timeout = "four", "long"
    facts = LoaderSpec.read(loader).facts
    assert facts.num_workers.reason == "loader.num_workers is a str, not a whole number"
    assert "timeout" in facts.timeout_s.reason
    assert LoaderSpec.read(DataLoader([1], num_workers=np.int64(2))).facts.num_workers == 2


def test_fetching_many_at_once_is_seen():
    class Many(Squares):
        def __getitems__(self, indices):
            return [self[i] for i in indices]

    assert LoaderSpec.read(DataLoader(Many())).facts.has_getitems is True


def test_ctrl_c_while_reading_gets_through():
    with pytest.raises(KeyboardInterrupt):
        LoaderSpec.read(DataLoader(hostile_length(KeyboardInterrupt()), sampler=[0]))


# --- other iterables, factories, mistakes ---------------------------------------------------------------------------


class Wrapper:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        return iter(self.loader)


@pytest.mark.parametrize(
    ("thing", "batches"),
    [
        ([torch.zeros(2)], 1),
        ((torch.zeros(2), torch.zeros(2)), 2),
        (Wrapper(DataLoader([1])), None),
        ((n for n in range(3)), None),
        (iter([]), None),
        (Counting(), None),
        (collections.deque([1, 2]), 2),
    ],
)
def test_any_iterable(thing, batches):
    spec = LoaderSpec.read(thing)
    facts = spec.facts
    assert spec.kind == facts.kind == "any" and spec.copy() is thing
    assert facts.batches == batches if batches is not None else "len(loader)" in facts.batches.reason
    assert facts.workers == 0 and "is not a DataLoader" in facts.num_workers.reason
    assert not facts.can_rebuild and spec.refusal() == "" and "not a DataLoader" in spec.refusal(num_workers=2)
    assert (spec.dataset, spec.collate_fn, spec.worker_init_fn, spec.generator) == (None,) * 4
    with pytest.raises(CannotRebuildError, match="not a DataLoader"):
        spec.copy(num_workers=2)
    ast.parse(spec.describe_changes({"num_workers": 2}))
    with spec.preserved():
        pass


def test_reading_uses_nothing_up():
    batches = (n for n in range(3))
    LoaderSpec.read(batches)
    assert list(batches) == [0, 1, 2]


@pytest.mark.parametrize(
    ("thing", "words"),
    [
        (None, "neither"),
        (3, "neither"),
        ("train", "Text"),
        (b"train", "Text"),
        (Squares(), "This is a dataset, wrap it in DataLoader"),
        (Subset(Squares(), [1]), "wrap it in DataLoader"),
        (type("Duck", (), {"__getitem__": lambda s, i: i, "__len__": lambda s: 3})(), "wrap it in DataLoader"),
        (type("Arrow", (), {"__getitems__": 1, "__iter__": lambda s: iter(())})(), "wrap it in DataLoader"),
        (SequentialSampler([1]), "sampler"),
        ({"train": DataLoader([1])}, "mapping"),
        ((DataLoader([1]), print), "loader alone"),
        ([DataLoader([1]), DataLoader([2])], "loader alone"),
    ],
)
def test_mistakes_are_named(thing, words):
    with pytest.raises(BadInputError, match=words):
        LoaderSpec.read(thing)


async def async_factory():
    return DataLoader([1])


def returns_nothing():
    DataLoader([1])


def raises():
    raise OSError("no such folder")


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (lambda: (DataLoader([1]), print), "tuple.*return the loader alone"),
        (lambda: 3, "neither"),
        (lambda: print, "not iterable"),
        (lambda: Squares(), "wrap it in DataLoader"),
        (returns_nothing, "returned None"),
        (raises, "OSError: no such folder"),
        (DataLoader, "TypeError"),
        (async_factory, "async"),
        (torch.nn.Identity(), "TypeError"),
    ],
)
def test_factories_that_do_not_make_loaders(factory, words):
    with pytest.raises(BadInputError, match=words):
        LoaderSpec.read(factory)


def test_factory_is_called_once_to_read_and_again_to_copy(rng_unchanged):
    calls = []

    def make_loader(**overrides):
        calls.append(overrides)
        torch.rand(3), random.random(), np.random.rand()
        return DataLoader(Squares(), **{"batch_size": 4, **overrides})

    spec = LoaderSpec.read(make_loader)
    assert calls == [{}] and spec.kind == "map" and spec.loader.batch_size == 4
    assert spec.refusal(num_workers=1) == "" and calls == [{}]
    with spec.preserved():
        copy = spec.copy(num_workers=1, batch_size=5)
        assert calls[1:] == [{"num_workers": 1, "batch_size": 5}]
        again = spec.copy()
    assert (copy.num_workers, copy.batch_size) == (1, 5) and calls[2:] == [{}]
    assert again is not spec.loader and again.dataset is not spec.loader.dataset
    assert spec.describe_changes({"num_workers": 8}) == "make_loader(num_workers=8)"
    assert "make_loader" in repr(spec)


def test_factory_that_takes_no_overrides():
    calls = []

    def make_loader():
        calls.append(1)
        return DataLoader(Squares(), 4, shuffle=True)

    spec = LoaderSpec.read(make_loader)
    copy = spec.copy(num_workers=2)
    assert copy.num_workers == 2 and copy is not spec.loader and copy.dataset is spec.dataset and len(calls) == 1
    assert spec.describe_changes({"num_workers": 2}) == "DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2)"


def test_factory_that_takes_some_or_ignores_them():
    def make_some(num_workers=0):
        return DataLoader(Squares(), 4, num_workers=num_workers)

    def make_deaf(num_workers=0, **overrides):
        return DataLoader(Squares(), 4)

    def make_twice(**overrides):
        return DataLoader(Squares(), batch_size=4, num_workers=1, **overrides)

    def make_strict(worker_init_fn=None, **overrides):
        return DataLoader(Squares(), batch_size=4, num_workers=1, worker_init_fn=worker_init_fn, **overrides)

    for factory in (make_some, make_deaf, make_twice, make_strict):
        copy = LoaderSpec.read(factory).copy(num_workers=2, prefetch_factor=7, worker_init_fn=my_worker_init)
        assert (copy.num_workers, copy.prefetch_factor, copy.worker_init_fn) == (2, 7, my_worker_init), factory


def test_factory_may_wrap_what_it_is_given():
    def make_loader(collate_fn=None):
        return DataLoader(Squares(), 4, collate_fn=functools.partial(map, collate_fn))

    copy = LoaderSpec.read(make_loader).copy(collate_fn=my_collate, pin_memory=True)
    assert isinstance(copy.collate_fn, functools.partial) and copy.pin_memory is True


def test_factory_that_gives_out_one_loader():
    loader = DataLoader(Squares(), 4)
    spec, before = LoaderSpec.read(lambda **overrides: loader), attributes(loader)
    copy = spec.copy(num_workers=1, persistent_workers=True)
    assert copy is not loader and copy.num_workers == 1 and attributes(loader) == before
    assert spec.copy() is not loader
    used_up = DataLoader(Squares(), 4, sampler=iter(range(5)))
    with pytest.raises(CannotRebuildError, match="same loader twice"):
        LoaderSpec.read(lambda: used_up).copy()


def test_factory_makes_what_cannot_be_copied():
    spec = LoaderSpec.read(lambda: DataLoader(Squares(), 4, sampler=iter(range(5))))
    assert spec.facts.rebuild_refused == ""
    copy = spec.copy(drop_last=True)
    assert plain(list(copy)) == [[0, 1, 4, 9]] and plain(list(spec.loader)) == [[0, 1, 4, 9], [16]]


def test_factory_of_any_iterable():
    def make_batches(num_workers=0):
        return (num_workers for _ in range(2))

    spec = LoaderSpec.read(make_batches)
    assert spec.kind == "any" and spec.facts.can_rebuild
    assert list(spec.copy(num_workers=3)) == [3, 3] and list(spec.copy()) == [0, 0]
    with pytest.raises(CannotRebuildError):
        spec.copy(pin_memory=True)


# --- copies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOADERS)
def test_copy_gives_the_same_batches_and_leaves_the_original(name):
    loader = LOADERS[name](Noisy())
    spec, before = LoaderSpec.read(loader), attributes(loader)
    copy = spec.copy()
    assert type(copy) is type(loader) and copy is not loader
    ours = seeded(copy)
    release(copy)
    assert attributes(loader) == before
    assert seeded(loader) == ours


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", ["generator", "batch sampler", "subclass", "forwarding"])
def test_copy_with_workers(name, persistent):
    # The same worker count on both sides: a sample's randomness depends on which worker makes it.
    base = LOADERS[name](Noisy(7) if name != "batch sampler" else Noisy())
    spec = LoaderSpec.read(base)
    loader = spec.copy(num_workers=2, persistent_workers=persistent, multiprocessing_context="fork")
    theirs, held = seeded(loader), attributes(loader)
    copy = LoaderSpec.read(loader).copy()
    ours = seeded(copy)
    release(copy)
    assert attributes(loader) == held
    release(loader)
    strip = (lambda epochs: [[b[-1][-1] for b in e] for e in epochs]) if name == "subclass" else (lambda epochs: epochs)
    assert strip(ours) == strip(theirs) and base.num_workers == 0


def test_a_loader_in_the_middle_of_an_epoch_goes_on():
    loader = DataLoader(Squares(), 4, num_workers=1, persistent_workers=True)
    running = iter(loader)
    first = next(running)
    workers = [w.pid for w in loader._iterator._workers]
    copy = LoaderSpec.read(loader).copy(num_workers=2)
    assert copy._iterator is None and len(plain(list(copy))) == 6
    release(copy)
    assert loader._iterator is running and [w.pid for w in running._workers] == workers
    assert plain([first, *running]) == plain(list(DataLoader(Squares(), 4)))
    release(loader)


def test_a_subclass_keeps_its_behaviour_and_its_own_state():
    loader = CountingLoader(Squares(5), 2)
    copy = LoaderSpec.read(loader).copy(batch_size=5)
    assert plain(list(copy)) == [["mine", [1, [0, 1, 4, 9, 16]]]]
    assert (copy.epochs, loader.epochs) == (1, 0)
    slotted = WithSlots(Squares(), 2)
    slotted.mark = object()
    assert LoaderSpec.read(slotted).copy().mark is slotted.mark


def test_a_forwarding_subclass_is_changed_where_it_matters():
    loader = Forwarding(Squares(5), 2)
    copy = LoaderSpec.read(loader).copy(batch_size=5, pin_memory=True)
    assert plain(list(copy)) == [["shard", [0, 1, 4, 9, 16]]]
    assert loader.batch_size == 2 and loader.base_dataloader.pin_memory is False and copy.pin_memory is True


def test_worker_count_brings_and_takes_what_needs_workers():
    data = Squares()
    busy = DataLoader(
        data, 4, num_workers=2, prefetch_factor=5, persistent_workers=True, timeout=30, multiprocessing_context="spawn"
    )
    spec = LoaderSpec.read(busy)
    none = spec.copy(num_workers=0)
    assert (none.prefetch_factor, none.persistent_workers, none.timeout) == (None, False, 0)
    assert none.multiprocessing_context is None and plain(list(none)) == plain(list(DataLoader(data, 4)))
    more = spec.copy(num_workers=3)
    assert (more.prefetch_factor, more.persistent_workers, more.timeout) == (5, True, 30)
    assert more.multiprocessing_context is busy.multiprocessing_context
    some = LoaderSpec.read(DataLoader(data, 4)).copy(num_workers=1)
    assert (some.prefetch_factor, some.persistent_workers) == (2, False)
    assert spec.copy(prefetch_factor=None).prefetch_factor == 2
    assert spec.copy(multiprocessing_context="fork").multiprocessing_context.get_start_method() == "fork"
    assert spec.copy(multiprocessing_context=None).multiprocessing_context is None


def test_a_faulty_configuration_keeps_its_own_error():
    spec = LoaderSpec.read(DataLoader(Squares(), 4, timeout=5))
    for copy in (spec.copy(), spec.copy(pin_memory=True), spec.copy(num_workers=0)):
        with pytest.raises(AssertionError, match="timeout == 0"):
            list(copy)
    assert spec.copy(num_workers=1).timeout == 5


def test_changes_of_order_and_batching():
    data = Squares(10)
    spec = LoaderSpec.read(DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1)))
    assert spec.copy(batch_size=5).sampler is spec.loader.sampler
    assert [len(b) for b in spec.copy(batch_size=3, drop_last=True)] == [3, 3, 3]
    assert plain(list(spec.copy(shuffle=False))) == plain(list(DataLoader(data, 4)))
    assert spec.copy(shuffle=True).sampler is spec.loader.sampler
    assert plain(list(spec.copy(sampler=[3, 2]))) == [[9, 4]]
    assert plain(list(spec.copy(sampler=None))) == plain(list(DataLoader(data, 4)))
    batches = spec.copy(batch_sampler=[[0], [1, 2]])
    assert plain(list(batches)) == [[0], [1, 4]] and batches.batch_size is None
    other = torch.Generator().manual_seed(5)
    expected = DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(5))
    assert plain(list(spec.copy(generator=other))) == plain(list(expected))
    assert spec.loader.sampler.generator is spec.loader.generator is not other
    own = RandomSampler(data, num_samples=3)
    assert LoaderSpec.read(DataLoader(data, 4, sampler=own)).copy(generator=other).sampler is own


def test_other_changes():
    data, stand_in = Squares(5), [torch.tensor(-i) for i in range(5)]
    spec = LoaderSpec.read(DataLoader(data, 5))
    assert plain(list(spec.copy(dataset=stand_in))) == [[0, -1, -2, -3, -4]]
    assert plain(list(spec.copy(collate_fn=my_collate))) == [{"x": [0, 1, 4, 9, 16], "n": 5}]
    own = LoaderSpec.read(DataLoader(data, 5, collate_fn=my_collate))
    assert own.copy(collate_fn=None).collate_fn is default_collate
    assert spec.copy(in_order=False).in_order is False and spec.loader.in_order is True
    stream = LoaderSpec.read(DataLoader(Counting(3), 2))
    assert plain(list(stream.copy(dataset=[7, 8, 9], batch_size=3))) == [[7, 8, 9]]  # kind stays iterable
    assert plain(list(stream.copy(batch_size=2, drop_last=True, shuffle=False))) == [[0, 1]]


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 2},
        {"num_workers": -1},
        {"num_workers": "2"},
        {"num_workers": True},
        {"num_workers": None},
        {"prefetch_factor": 4},
        {"num_workers": 2, "prefetch_factor": 0},
        {"persistent_workers": True},
        {"persistent_workers": 1},
        {"timeout": 3},
        {"num_workers": 1, "timeout": -3},
        {"num_workers": 1, "timeout": float("nan")},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "thread"},
        {"num_workers": 1, "multiprocessing_context": 3},
        {"worker_init_fn": 3},
        {"collate_fn": "stack"},
        {"generator": 3},
        {"dataset": None},
        {"batch_size": 0},
        {"batch_size": None},
        {"drop_last": None},
        {"sampler": 3},
        {"sampler": [1], "shuffle": True},
        {"batch_sampler": [[1]], "batch_size": 2},
    ],
)
def test_invalid_changes_are_refused(changes):
    spec = LoaderSpec.read(DataLoader(Squares(), 4))
    for ask in (spec.copy, spec.refusal):
        with pytest.raises(BadInputError) as error:
            ask(**changes)
    if "workers" in changes:
        assert all(name in str(error.value) for name in ARGUMENTS)
    with pytest.raises(BadInputError):
        spec.describe_changes(changes)


@pytest.mark.parametrize(
    ("loader", "changes", "words"),
    [
        (DataLoader([1, 2], sampler=iter([0, 1])), {}, "sampler is an iterator"),
        (DataLoader([1, 2], batch_sampler=([i] for i in range(2))), {}, "batch_sampler is an iterator"),
        (DataLoader([1, 2], batch_sampler=BatchSampler(iter([0]), 1, False)), {}, "batch_sampler.sampler is"),
        (DataLoader(Counting()), {"num_workers": 2}, "get_worker_info"),
        (DataLoader(Counting(), num_workers=2), {"num_workers": 1}, "get_worker_info"),
        (DataLoader(Counting()), {"sampler": [1]}, "own order"),
        (DataLoader(Counting()), {"shuffle": True}, "own order"),
        (DataLoader([1], batch_sampler=[[0]]), {"batch_size": 2}, "batch_sampler"),
        (DataLoader([1], batch_sampler=[[0]]), {"shuffle": True}, "batch_sampler"),
        (DataLoader([1], batch_size=None), {"batch_size": 2}, "batch_size=None"),
        (DataLoader([1], batch_size=None), {"batch_sampler": [[0]]}, "batch_size=None"),
        (DataLoader([1], None, sampler=BatchSampler([0], 1, False)), {"shuffle": True}, "lists of indices"),
        (DataLoader([]), {"shuffle": True}, "num_samples"),
        (Repeating([1, 2]), {}, "running iterator in .iterator"),
    ],
)
def test_refusals(loader, changes, words):
    spec, before = LoaderSpec.read(loader), attributes(loader)
    assert words in spec.refusal(**changes)
    with pytest.raises(CannotRebuildError, match="make_loader"):
        spec.copy(**changes)
    assert bool(spec.facts.rebuild_refused) == (not changes)
    assert attributes(loader) == before
    ast.parse(spec.describe_changes(changes))


def test_one_shot_order_may_be_replaced():
    order = iter([0, 1])
    spec = LoaderSpec.read(DataLoader([5, 6], sampler=order))
    assert plain(list(spec.copy(shuffle=False))) == [[5], [6]]
    assert plain(list(spec.copy(batch_sampler=[[1, 0]]))) == [[6, 5]]
    assert list(order) == [0, 1]


def test_resharding_needs_to_be_allowed():
    spec = LoaderSpec.read(DataLoader(Sharded(10), 2))
    assert spec.refusal(num_workers=1) == "" and spec.refusal(num_workers=2)
    copy = spec.copy(num_workers=2, allow_resharding=True)
    assert sorted(n for batch in plain(list(copy)) for n in batch) == list(range(10))


def test_subclasses_that_cannot_be_copied():
    class Ending(DataLoader):
        def __del__(self):
            ended.append(1)

    class Unready(DataLoader):
        def __init__(self):
            pass

    class Computed(DataLoader):
        num_workers = property(lambda self: 0, lambda self, value: None)

    ended: list[int] = []
    loader = Ending([1])
    assert "__del__" in LoaderSpec.read(loader).facts.rebuild_refused and not ended
    assert "never ran DataLoader.__init__" in LoaderSpec.read(Unready()).facts.rebuild_refused
    spec = LoaderSpec.read(Computed([1]))
    assert "works out .num_workers itself" in spec.refusal(num_workers=2) and spec.refusal(pin_memory=True) == ""


@pytest.mark.filterwarnings("ignore")
def test_data_pipes_keep_their_sharding():
    from torch.utils.data.datapipes.iter import IterableWrapper

    loader = DataLoader(IterableWrapper(range(6)), 2)
    spec = LoaderSpec.read(loader)
    assert plain(list(spec.copy())) == [[0, 1], [2, 3], [4, 5]]
    assert "DataPipe" in spec.refusal(dataset=[1])


# --- release ------------------------------------------------------------------------------------------------------


def children():
    return {p.pid for p in psutil.Process().children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE}


def test_release_ends_workers():
    before = children()
    spec = LoaderSpec.read(Forwarding(Squares(), 4))
    for copy in (
        spec.copy(num_workers=2, persistent_workers=True),
        LoaderSpec.read(DataLoader(Squares(), 4)).copy(num_workers=2, persistent_workers=True),
    ):
        next(iter(copy))
        assert children() > before
        release(copy)
        assert children() == before
        release(copy)
    assert len(list(copy)) == 6  # it can be used again
    release(copy)


def test_release_kills_a_worker_that_does_not_answer(monkeypatch):
    monkeypatch.setattr("loaderscope.loaders.cloning.POLITE_S", 0.2)
    before = children()
    copy = LoaderSpec.read(DataLoader(Squares(), 4)).copy(num_workers=2, persistent_workers=True)
    next(iter(copy))
    os.kill(copy._iterator._workers[0].pid, signal.SIGSTOP)
    release(copy)
    assert children() == before and copy._iterator is None


def test_release_leaves_alone_what_is_not_a_loader():
    generator = (n for n in range(2))
    for thing in (generator, [1], None, DataLoader([1]), Wrapper(DataLoader([1]))):
        release(thing)
    assert list(generator) == [0, 1]


# --- states -------------------------------------------------------------------------------------------------------


class Moody:
    """A sampler with a generator of every kind, and counters."""

    def __init__(self):
        self.torch_rng, self.python_rng = torch.Generator().manual_seed(1), random.Random(1)
        self.numpy_rng, self.legacy_rng = np.random.default_rng(1), np.random.RandomState(1)
        self.system_rng = random.SystemRandom()
        self.epoch, self.position = 3, None

    def __len__(self):
        return 4

    def __iter__(self):
        self.epoch += 1
        self.position = 17
        return iter(self.draw())

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "system_rng"}

    def draw(self):
        return [
            int(torch.randint(10**6, (), generator=self.torch_rng)) % 9,
            self.python_rng.randrange(10**6) % 9,
            int(self.numpy_rng.integers(10**6)) % 9,
            int(self.legacy_rng.randint(10**6)) % 9,
        ]


class MoodyBatches(Moody):
    def __iter__(self):
        yield list(super().__iter__())


class NotDigging(Squares):
    """A dataset with a generator of its own, which is not ours to look for."""

    @property
    def __dict__(self):
        raise AssertionError("the dataset was looked into")


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("place", ["sampler", "batch sampler", "batch sampler's sampler"])
def test_states_come_back(rng_unchanged, place, fails):
    sampler = MoodyBatches() if place == "batch sampler" else Moody()
    data = Squares()
    order = {
        "sampler": {"batch_size": 2, "sampler": sampler},
        "batch sampler": {"batch_sampler": sampler},
        "batch sampler's sampler": {"batch_sampler": BatchSampler(sampler, 2, False)},
    }
    loader = DataLoader(data, generator=torch.Generator(), **order[place])
    spec = LoaderSpec.read(loader)
    seed = loader.generator.get_state()
    expected = pickle.loads(pickle.dumps(sampler)).draw()
    try:
        with spec.preserved():
            list(spec.copy())
            torch.rand(1), random.random(), np.random.rand()
            assert sampler.epoch == 4 and not torch.equal(loader.generator.get_state(), seed)
            if fails:
                raise OSError
    except OSError:
        assert fails
    assert (sampler.epoch, sampler.position) == (3, None) and torch.equal(loader.generator.get_state(), seed)
    assert sampler.draw() == expected


def test_shuffling_goes_on_where_it_was():
    generator = torch.Generator().manual_seed(3)
    loader = DataLoader(Squares(), 4, shuffle=True, generator=generator)
    spec = LoaderSpec.read(loader)
    with spec.preserved():
        expected = plain(list(spec.copy()))
    assert plain(list(loader)) == expected
    data = DistributedSampler(Squares(), 2, 0)
    spec = LoaderSpec.read(DataLoader(Squares(), 4, sampler=data))
    with spec.preserved():
        data.set_epoch(9)
    assert data.epoch == 0


def test_a_state_that_cannot_come_back_is_told_and_the_others_do():
    class OneWay(random.Random):
        def setstate(self, state):
            if armed:
                raise OSError("no way back")

    armed: list[int] = []
    sampler, state = Moody(), random.getstate()
    sampler.python_rng = OneWay(1)
    armed.append(1)
    spec = LoaderSpec.read(DataLoader(Squares(), sampler=sampler))
    with pytest.warns(UserWarning, match="could not be put back: OSError: no way back"), spec.preserved():
        random.random(), sampler.numpy_rng.random()
        sampler.epoch = 8
    assert random.getstate() == state and sampler.epoch == 3
    assert sampler.numpy_rng.random() == np.random.default_rng(1).random()


def test_the_dataset_is_not_looked_into():
    data = NotDigging()
    with LoaderSpec.read(DataLoader([1], sampler=[0])).preserved():
        pass
    loader = DataLoader(Squares(), 4)
    object.__setattr__(loader, "_DataLoader__initialized", True)
    vars(loader)["dataset"] = data
    with LoaderSpec.read(loader).preserved():
        pass


@pytest.mark.gpu
def test_cuda_states_come_back(rng_unchanged):
    torch.rand(1, device="cuda")
    spec = LoaderSpec.read(DataLoader([1]))
    before = torch.cuda.get_rng_state()
    with spec.preserved():
        torch.rand(1, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)


# --- lines to paste -----------------------------------------------------------------------------------------------


def test_example_line():
    spec = LoaderSpec.read(DataLoader(Squares(), batch_size=32))
    line = spec.describe_changes({"num_workers": 8, "prefetch_factor": 2, "persistent_workers": True})
    assert line == "DataLoader(dataset, batch_size=32, num_workers=8, prefetch_factor=2, persistent_workers=True)"


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    "changes", [{}, {"num_workers": 2, "prefetch_factor": 4, "multiprocessing_context": "spawn"}, {"num_workers": 0}]
)
def test_lines_make_an_equal_loader(name, changes):
    loader = LOADERS[name](Squares())
    spec = LoaderSpec.read(loader)
    line = spec.describe_changes(changes)
    scope = {**globals(), **{n: getattr(loader, n) for n in ("dataset", "sampler", "batch_sampler", "generator")}}
    made = eval(compile(ast.parse(line, mode="eval"), "<fix>", "eval"), scope)
    copy = spec.copy(allow_resharding=True, **changes)
    ours, theirs = (LoaderSpec.read(each).facts for each in (copy, made))
    assert dataclasses.replace(ours, rebuild_refused="") == dataclasses.replace(theirs, rebuild_refused=""), line
    assert isinstance(made, type(loader)) and seeded_if_quick(made) == seeded_if_quick(copy)


def seeded_if_quick(loader):
    return seeded(loader) if loader.num_workers == 0 else None


def test_lines_leave_out_what_excludes_what():
    data = Squares()
    context = multiprocessing.get_context("spawn")
    busy = LoaderSpec.read(
        DataLoader(data, 4, True, num_workers=2, prefetch_factor=5, persistent_workers=True, timeout=2.5,
                   multiprocessing_context=context, collate_fn=lambda s: s)
    )  # fmt: skip
    assert busy.describe_changes({}) == (
        "DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, collate_fn=collate_fn, timeout=2.5, "
        "multiprocessing_context='spawn', prefetch_factor=5, persistent_workers=True)"
    )
    assert busy.describe_changes({"num_workers": 0}) == (
        "DataLoader(dataset, batch_size=4, shuffle=True, num_workers=0, collate_fn=collate_fn)"
    )
    assert "shuffle" not in busy.describe_changes({"sampler": [1]})
    batches = busy.describe_changes({"batch_sampler": [[1]]})
    assert "batch_sampler=batch_sampler" in batches and "batch_size" not in batches and "shuffle" not in batches
    own = LoaderSpec.read(DataLoader(data, batch_sampler=[[0]]))
    assert own.describe_changes({"batch_size": 2}) == "DataLoader(dataset, batch_size=2)"
    assert own.describe_changes({"timeout": float("inf"), "num_workers": np.int64(1)}) == (
        'DataLoader(dataset, batch_sampler=batch_sampler, num_workers=1, timeout=float("inf"))'
    )
    odd = type("not a name", (DataLoader,), {})([1])
    assert LoaderSpec.read(odd).describe_changes({}) == "DataLoader(dataset)"


# --- samples in a batch -------------------------------------------------------------------------------------------

Pair = collections.namedtuple("Pair", "x y")


@dataclasses.dataclass
class Fields:
    name: str
    x: torch.Tensor


class Graphs:
    num_graphs = 6
    batch_size = torch.Size([1])


class TensorDictLike:
    batch_size = torch.Size([7, 2])


class Encoding(collections.UserDict):
    def __getattr__(self, name):
        raise AttributeError(name)


class HostileBatch:
    def __getattr__(self, name):
        raise RuntimeError(name)


class HostileList(list):
    def __getitem__(self, index):
        raise RuntimeError

    def __iter__(self):
        raise RuntimeError


def deep():
    value: list = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (torch.zeros(5, 3), 5),
        (torch.zeros(0, 3), 0),
        (torch.tensor(1.0), None),
        (np.zeros((4, 2)), 4),
        (np.float32(1), None),
        (torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged), 2),
        (torch.eye(3).to_sparse(), 3),
        (pack_sequence([torch.zeros(3), torch.zeros(2)]), 2),
        ({"x": torch.zeros(8, 2), "y": torch.zeros(9)}, 8),
        ({"name": "train", "scale": torch.tensor(2.0), "x": torch.zeros(8)}, 8),
        ({"paths": ["a", "b", "c"]}, 3),
        ({"a": {"b": torch.zeros(3)}}, 3),
        (Encoding({"input_ids": torch.zeros(3, 7)}), 3),
        ([torch.zeros(5, 3), torch.zeros(5)], 5),
        ((torch.zeros(5, 3), torch.zeros(5)), 5),
        (Pair(torch.zeros(5, 3), torch.zeros(5)), 5),
        ((torch.zeros(5, 3), [{"box": 1}] * 5), 5),
        ([{"x": torch.zeros(3)}] * 4, 4),
        ([torch.zeros(3), torch.zeros(4), torch.zeros(5), torch.zeros(2)], 4),
        ((torch.zeros(9), torch.zeros(4)), None),
        ([(torch.zeros(3, 2), 1)] * 6, 6),
        (tuple(zip(*[(torch.zeros(3, 2), {"box": 1})] * 6)), 6),
        ([[torch.zeros(6), torch.zeros(6)], [torch.zeros(6, 2)]], 6),
        (["a", "b"], 2),
        ([torch.tensor(1), torch.tensor(2), torch.tensor(3)], 3),
        ([object(), object()], 2),
        (Graphs(), 6),
        (TensorDictLike(), 7),
        (Fields("a", torch.zeros(4, 2)), 4),
        ("abc", None),
        (b"abc", None),
        (None, None),
        (3, None),
        ([], None),
        ({}, None),
        (object(), None),
        (HostileBatch(), None),
        (HostileList([1, 2]), None),
        (Fields, None),
        (collections.OrderedDict(a=HostileBatch(), b=torch.zeros(2)), 2),
    ],
    ids=lambda value: type(value).__name__,
)
def test_batch_sizes(batch, size):
    assert batch_size_of(batch) == size
    assert batches.SampleCounter(None, default_collate=False).count(batch) == size  # the quick way to the same number


LEAVES = st.sampled_from([torch.zeros(4, 2), torch.zeros(3), torch.tensor(1.0), np.zeros(4), "text", 3, None])
STRUCTURES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.sampled_from("abc"), inner)
        | st.tuples(inner, inner).map(lambda pair: Pair(*pair))
        | st.dictionaries(st.sampled_from("abc"), inner).map(Encoding)
    ),
    max_leaves=8,
)


@hypothesis.given(STRUCTURES)
def test_the_quick_look_sees_what_the_careful_one_sees(batch):
    careful = next(iter(batches._plausible(batch)), None)
    fields = next(batches._fields(batch, 0), None)
    assert batches.SampleCounter(None, default_collate=False).count(batch) == careful
    assert batches.SampleCounter(None, default_collate=True).count(batch) == (careful if fields is None else fields)


def test_a_full_batch_teaches_the_reading_that_a_shorter_one_is_counted_with():
    counter = batches.SampleCounter(3, default_collate=False)
    images = [torch.zeros(5, 2)] * 3  # equally long arrays: fields of five samples, or three samples
    assert [counter.count(images), counter.count(images[:2])] == [3, 2]


def test_a_batch_that_holds_itself_ends():
    assert batch_size_of(deep()) in (1, None)


class Images(Squares):
    def __getitem__(self, index):
        return torch.zeros(3, 4, 4)


class Mixed(Squares):
    def __getitem__(self, index):
        return {"x": torch.zeros(2), "name": str(index), "pair": (torch.zeros(3), 1.5)}


class Batches(Squares):
    def __getitem__(self, index):
        return torch.zeros(len(index) if isinstance(index, list) else 3)


def untouched(samples):
    return samples


def as_columns(samples):
    return tuple(zip(*[(s, s) for s in samples]))


SIZES_OF_23_BY_5 = [5, 5, 5, 5, 3]


@pytest.mark.parametrize(
    ("loader", "sizes"),
    [
        (DataLoader(Mixed(), 5), SIZES_OF_23_BY_5),
        (DataLoader(Images(), 5), SIZES_OF_23_BY_5),
        (DataLoader([("a", 1), ("b", 2), ("c", 3)], 2), [2, 1]),
        (DataLoader(["a", "b", "c"], 2), [2, 1]),
        # A list of equally shaped images looks like fields of three samples, a full batch tells.
        (DataLoader(Images(22), 5, collate_fn=untouched), [5, 5, 5, 5, 2]),
        (DataLoader(Images(7), batch_sampler=BatchSampler(range(7), 5, False), collate_fn=untouched), [5, 2]),
        (DataLoader(Images(22), 5, collate_fn=as_columns), [5, 5, 5, 5, 2]),
        (DataLoader(Squares(5), 4, collate_fn=my_collate), [4, 1]),
        (DataLoader(Squares(3), None), [1, 1, 1]),
        (DataLoader(Batches(4), None), [1] * 4),
        (DataLoader(Batches(7), None, sampler=BatchSampler(range(7), 3, False)), [3, 3, 1]),
        (DataLoader(Counting(7), 4), [4, 3]),
        (DataLoader(Counting(2), None), [None, None]),
        ([torch.zeros(4), [1, 2]], [4, 2]),
    ],
)
def test_samples_in(loader, sizes):
    spec = LoaderSpec.read(loader)
    with spec.preserved():
        assert [spec.samples_in(batch) for batch in spec.copy()] == sizes


# --- import -------------------------------------------------------------------------------------------------------


def test_importing_and_reading_start_nothing():
    code = (
        "import threading, multiprocessing, torch\n"
        "from torch.utils.data import DataLoader\n"
        "state = torch.get_rng_state()\nfrom loaderscope.loaders import LoaderSpec\n"
        "method = LoaderSpec.read(DataLoader([1], num_workers=1)).facts.start_method\n"
        "assert threading.active_count() == 1 and not multiprocessing.active_children()\n"
        "assert torch.equal(state, torch.get_rng_state()) and not torch.cuda.is_initialized()\n"
        # Asking the plain way would have fixed the default for the rest of the process.
        "assert multiprocessing.get_start_method(allow_none=True) is None\n"
        "assert method == multiprocessing.get_start_method(), method\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_no_warning_of_ours_on_copies():
    spec = LoaderSpec.read(DataLoader(Squares(), 4))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec.copy(num_workers=64, pin_memory=True)
    gc.collect()
