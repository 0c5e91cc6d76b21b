"""Preflight: nothing said about a healthy loader on a normal machine, and each fault named with its number."""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import sys
import textwrap

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, Sampler, Subset, TensorDataset

from loaderscope.errors import BadInputError
from loaderscope.experiments.preflight import loader_checks, machine_checks, preflight
from loaderscope.loaders import LoaderSpec
from loaderscope.records import Check, Environment, NotMeasured, ThreadPool, load

GIB = 2**30
NOT_HERE = NotMeasured("made up for this test")

NORMAL = Environment(
    taken="2000-01-01 00:00",
    platform="Linux",
    python="3.11.7",
    torch="2.14.1",
    cores_logical=8,
    cores_affinity=8,
    cores_quota=NotMeasured("no CPU quota is set"),
    cores_measured=7.8,
    memory_total_bytes=32 * GIB,
    memory_limit_bytes=NotMeasured("no memory limit is set"),
    memory_available_bytes=20 * GIB,
    shm_total_bytes=16 * GIB,
    shm_free_bytes=16 * GIB,
    open_files_limit=1024,
    open_files_now=40,
    pressure_cpu=3.0,
    pressure_io=1.0,
    pressure_memory=0.0,
    load=0.5,
    start_method="fork",
    sharing_strategy="file_descriptor",
    torch_threads=8,
    thread_pools=(ThreadPool("openblas", 8),),
    gpu="NVIDIA H200",
)


def machine(**changes) -> dict[str, Check]:
    return by_name(machine_checks(dataclasses.replace(NORMAL, **changes)))


def by_name(checks) -> dict[str, Check]:
    named = {check.name: check for check in checks}
    assert len(named) == len(checks), "two checks share a name"
    return named


def of(loader, **changes) -> dict[str, Check]:
    spec = LoaderSpec.read(loader)
    return by_name(loader_checks(spec.facts, dataclasses.replace(NORMAL, **changes), spec.loader))


class Squares(Dataset):
    """A dataset that fails the test as soon as anybody reads it."""

    def __init__(self, length: int = 64):
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index):
        raise AssertionError("preflight read a sample")


# --- healthy ------------------------------------------------------------------------------------------------------


def test_a_normal_machine_gets_no_warning():
    for start_method in ("fork", "spawn", "forkserver"):
        checks = machine(start_method=start_method)
        assert {check.status for check in checks.values()} <= {"ok", "note"}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"batch_size": 8, "shuffle": True},
        {"batch_size": 8, "num_workers": 4, "persistent_workers": True, "pin_memory": True, "timeout": 60},
        {"batch_size": 8, "num_workers": 4, "multiprocessing_context": "spawn"},
        {"batch_size": 8, "num_workers": 2, "prefetch_factor": 1, "in_order": False, "drop_last": True},
        {"batch_size": None},
    ],
)
def test_a_healthy_loader_gets_no_warning(settings):
    checks = of(DataLoader(Squares(), **settings))
    assert {check.status for check in checks.values()} == {"ok"}


def test_nothing_is_iterated_and_nothing_altered(rng_unchanged):
    loader = DataLoader(Squares(), batch_size=8, num_workers=2, shuffle=True)
    before = dict(vars(loader))
    result = preflight(loader, measure=False)
    assert dict(vars(loader)) == before and result.facts.num_workers == 2
    generator = (torch.zeros(2) for _ in range(3))
    preflight(generator, measure=False)
    assert len(list(generator)) == 3


def test_the_record_is_saved_shown_and_ordered(tmp_path):
    result = preflight(DataLoader(Squares(), timeout=3), measure=False)
    assert load(result.save(tmp_path / "preflight.json")) == result
    assert result.rows()[0].status == "bad" and "timeout=3 s" in result.rows()[0].value
    assert len(repr(result).splitlines()) <= 8


def test_the_machine_alone_and_what_is_no_loader():
    alone = preflight(measure=False)
    assert "no loader was given" in alone.facts.reason
    assert by_name(alone.checks)["cores received"].status == "missing"
    with pytest.raises(BadInputError):
        preflight(3, measure=False)


def test_a_factory_and_a_spec_are_read_too():
    def make_loader(**overrides):
        return DataLoader(Squares(), **{"timeout": 2, **overrides})

    for given in (make_loader, LoaderSpec.read(make_loader)):
        assert [c.name for c in preflight(given, measure=False).failed] == ["options"]


def test_measuring_fills_the_cores_received():
    check = by_name(preflight().checks)["cores received"]
    assert check.status != "missing" and "measured" in check.text


# --- machine faults -----------------------------------------------------------------------------------------------

MACHINE_FAULTS = [
    ({"cores_affinity": 4}, "cores", "note", "", "bound to 4 of 8 cores"),
    ({"cores_affinity": 1, "cores_measured": 1.0}, "cores", "warn", "cpu-affinity", "bound to 1 of 8 cores"),
    ({"cores_quota": 2.5}, "cores", "note", "", "quota allows 2.5 of 8 cores"),
    ({"cores_quota": 0.5, "cores_affinity": 4}, "cores", "warn", "", "quota allows 0.5 of 8 cores"),
    ({"cores_measured": 6.0}, "cores received", "note", "", "6.00 of the 8 allowed"),
    ({"cores_measured": 3.0}, "cores received", "warn", "", "3.00 of the 8 allowed"),
    ({"memory_available_bytes": GIB}, "memory", "warn", "", "1 GiB available"),
    ({"memory_limit_bytes": 4 * GIB}, "memory", "note", "", "cgroup limit of 4 GiB"),
    ({"shm_total_bytes": 2**26, "shm_free_bytes": 2**26}, "/dev/shm", "warn", "shm-exhausted", "64 MiB free of 64 MiB"),
    ({"shm_free_bytes": 2**26}, "/dev/shm", "warn", "shm-exhausted", "64 MiB free of 16 GiB"),
    ({"open_files_limit": 256}, "open files", "warn", "fd-exhausted", "256 at most, 40 open now; each tensor"),
    ({"open_files_now": 1000}, "open files", "warn", "fd-exhausted", "1,000 open now"),
    ({"pressure_cpu": 60.0}, "CPU pressure", "note", "", "60 % of the last 10 s"),
    ({"pressure_io": 60.0}, "I/O pressure", "note", "", "60 % of the last 10 s"),
    ({"pressure_memory": 30.0}, "memory pressure", "warn", "", "30 % of the last 10 s"),
    ({"cores_quota": 2.0}, "thread pools", "warn", "thread-oversubscription", "torch 8, openblas 8 for 2 cores"),
    ({"start_method": "spawn"}, "start method", "note", "", "pickled for each worker"),
    ({"free_threaded": True}, "software", "note", "", "without a GIL"),
]


@pytest.mark.parametrize("changes, name, status, cause, said", MACHINE_FAULTS)
def test_each_fault_of_the_machine_is_named_with_its_number(changes, name, status, cause, said):
    check = machine(**changes)[name]
    assert (check.status, check.cause) == (status, cause)
    assert said in check.text
    assert check.way_out or status == "note"


def test_what_was_not_measured_is_missing_with_its_reason():
    fields = {
        "cores received": "cores_measured", "memory": "memory_available_bytes", "/dev/shm": "shm_total_bytes",
        "open files": "open_files_limit", "CPU pressure": "pressure_cpu", "I/O pressure": "pressure_io",
        "memory pressure": "pressure_memory", "GPU": "gpu",
    }  # fmt: skip
    checks = machine(**dict.fromkeys(fields.values(), NOT_HERE))
    for name in fields:
        assert checks[name].status == "missing" and NOT_HERE.reason in checks[name].text


def test_a_gpu_that_this_torch_cannot_use_is_a_warning():
    env = dataclasses.replace(NORMAL, gpu=NotMeasured("built without CUDA"))
    check = by_name(machine_checks(env, "2 x NVIDIA H200"))["GPU"]
    assert check.status == "warn" and "2 x NVIDIA H200 cannot be used" in check.text and check.way_out


def test_every_cause_named_is_in_the_table():
    from loaderscope.diagnosis.causes import CAUSES

    named = {cause for _, _, _, cause, _ in MACHINE_FAULTS if cause}
    named |= {"bad-configuration", "undersized-batches", "one-shot-iterator", "idle-workers", "unpicklable"}
    assert named | {"notebook-class"} <= set(CAUSES)


# --- loader faults: each claim about what torch does is tried on torch -----------------------------------------------


def test_timeout_without_workers_fails_as_torch_does():
    loader = DataLoader(TensorDataset(torch.zeros(4)), timeout=3)
    check = of(loader)["options"]
    assert (check.status, check.cause) == ("fail", "bad-configuration") and "timeout=3 s" in check.text
    with pytest.raises(AssertionError):
        next(iter(loader))


@pytest.mark.parametrize("prefetch", [0, None])
def test_prefetching_nothing_with_workers_fails_as_torch_does(prefetch):
    loader = DataLoader(TensorDataset(torch.zeros(4)), num_workers=1)
    loader.prefetch_factor = prefetch
    check = of(loader)["options"]
    assert (check.status, check.cause) == ("fail", "bad-configuration") and f"prefetch_factor={prefetch}" in check.text


def test_what_needs_workers_and_has_none_is_a_warning():
    kept = DataLoader(Squares(), num_workers=1, persistent_workers=True)
    fetched = DataLoader(Squares(), num_workers=1)
    for loader, said in ((kept, "persistent_workers=True"), (fetched, "prefetch_factor=2")):
        loader.num_workers = 0
        check = of(loader)["options"]
        assert (check.status, check.cause) == ("warn", "bad-configuration") and said in check.text


def test_no_batch_at_all_fails():
    short = of(DataLoader(Squares(5), batch_size=8, drop_last=True))["batches"]
    assert (short.status, short.cause) == ("fail", "undersized-batches")
    assert "5 samples are fewer than one batch of 8" in short.text
    empty = of(DataLoader(Squares(0), batch_size=8))["batches"]
    assert (empty.status, empty.cause) == ("fail", "bad-configuration")
    assert of([])["batches"].status == "fail"


def test_a_length_that_cannot_be_had_is_missing():
    class Broken(Squares):
        def __len__(self):
            raise RuntimeError("the index file is gone")

    check = of(DataLoader(Broken(), sampler=[0, 1], batch_sampler=None))["batches"]
    assert check.status == "ok", "the sampler knows the length"
    check = of(torch.zeros(2) for _ in range(3))["batches"]
    assert check.status == "missing" and "len(loader) raises TypeError" in check.text


def test_more_workers_than_cores_is_only_a_note():
    loader = DataLoader(Squares(), num_workers=8)
    assert of(loader)["workers"].status == "ok"
    check = of(loader, cores_measured=3.9)["workers"]
    assert check.status == "note" and "8 workers, 3.9 usable cores" in check.text


def test_workers_that_never_get_a_batch():
    check = of(DataLoader(Squares(6), batch_size=2, num_workers=5))["workers per epoch"]
    assert (check.status, check.cause) == ("note", "idle-workers") and "5 workers for 3 batches" in check.text


def test_pinning_without_an_accelerator_is_a_note():
    loader = DataLoader(Squares(), pin_memory=True)
    assert "pin_memory" not in of(loader)
    check = of(loader, gpu=NOT_HERE)["pin_memory"]
    assert check.status == "note" and NOT_HERE.reason in check.text


# --- what can be iterated once ------------------------------------------------------------------------------------


class Itself(Sampler):
    def __init__(self):
        self.left = iter(range(8))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.left)


class StartsOver(Itself):
    def __iter__(self):
        self.left = iter(range(8))
        return self


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(8))


class UsedUp(IterableDataset):
    def __init__(self):
        self.rows = (row for row in range(8))

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.rows)


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: DataLoader(Squares(8), sampler=Itself()), "sampler is a Itself"),
        (lambda: DataLoader(Squares(8), sampler=(i for i in range(8))), "sampler is a generator"),
        (lambda: DataLoader(Squares(8), batch_sampler=map(list, [[0, 1]])), "batch_sampler is a map"),
        (lambda: DataLoader(UsedUp()), "dataset is a UsedUp"),
        (lambda: (torch.zeros(2) for _ in range(3)), "loader is a generator"),
        (lambda: iter([torch.zeros(2)]), "loader is a list_iterator"),
    ],
)
def test_a_one_shot_part_is_named(make, name):
    check = of(make())["epochs"]
    assert (check.status, check.cause) == ("warn", "one-shot-iterator")
    assert name in check.text and check.way_out


def test_what_starts_over_is_not_accused():
    loader = DataLoader(Squares(8), sampler=StartsOver(), batch_size=4)
    assert of(loader)["epochs"].status == "note"
    assert "epochs" not in of(DataLoader(Stream()))
    assert "epochs" not in of([torch.zeros(2)])
    # And it is right not to be: it does give two epochs, where the other gives one.
    assert [len(list(iter(StartsOver()))) for _ in range(2)] == [8, 8]
    once = Itself()
    assert [len(list(once)) for _ in range(2)] == [8, 0]


# --- what workers cannot unpickle -----------------------------------------------------------------------------------


class Compose:
    def __init__(self, *steps):
        self.transforms = list(steps)


class WithTransform(Squares):
    def __init__(self, transform):
        super().__init__()
        self.transform = transform


class KeepsToItself(WithTransform):
    def __getstate__(self):
        return {"length": 64}


def spawned(dataset, **settings) -> dict[str, Check]:
    return of(DataLoader(dataset, num_workers=2, multiprocessing_context="spawn", **settings))


def failed(checks: dict[str, Check]) -> dict[str, str]:
    return {name: check.cause for name, check in checks.items() if check.status == "fail"}


def test_lambdas_on_the_way_to_a_spawned_worker_are_found_where_they_are():
    assert failed(spawned(Squares(), collate_fn=lambda rows: rows)) == {"collate_fn": "unpicklable"}
    assert failed(spawned(WithTransform(lambda x: x))) == {"dataset.transform": "unpicklable"}
    nested = Subset(WithTransform(Compose(abs, functools.partial(lambda x, y: x, y=1))), [0])
    assert failed(spawned(nested)) == {"dataset.dataset.transform.transforms[1]": "unpicklable"}


def test_the_same_parts_are_fine_where_nothing_is_pickled():
    transform = WithTransform(lambda x: x)
    assert not failed(of(DataLoader(transform, num_workers=2, multiprocessing_context="fork")))
    assert not failed(of(DataLoader(transform)))


def test_what_pickles_is_not_accused():
    assert not failed(spawned(WithTransform(Compose(abs, functools.partial(pow, 2)))))
    assert not failed(spawned(KeepsToItself(lambda x: x))), "its own __getstate__ leaves the lambda at home"
    held = Squares()
    held.itself, held.rows = held, list(range(100_000))
    assert not failed(spawned(held))


NOTEBOOK = """
import json, pickle
import torch
from torch.utils.data import DataLoader, Dataset
from loaderscope.experiments.preflight import preflight

class InACell(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return index

def loader(method):
    return DataLoader(InACell(), num_workers=1, multiprocessing_context=method)

def failed(method):
    return {c.name: [c.cause, c.text] for c in preflight(loader(method), measure=False).failed}

print(json.dumps({"spawn": failed("spawn"), "fork": failed("fork")}))
"""


def run_python(*arguments: str) -> dict:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_class_from_a_notebook_cell_cannot_be_spawned():
    # `python -c` is like a notebook here: its __main__ has no file that a worker could import.
    seen = run_python("-c", textwrap.dedent(NOTEBOOK))
    assert list(seen["spawn"]) == ["dataset"] and seen["fork"] == {}
    cause, said = seen["spawn"]["dataset"]
    assert cause == "notebook-class" and "InACell is defined in a notebook cell" in said
