"""The planted faults are what they say: their sizes, that they pickle, and that every planted loader can be built."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from loaderscope import faults as f
from loaderscope.clock import SYSTEM
from loaderscope.errors import BadInputError
from planted import BY_NAME, HEALTHY, PLANTED, SPEED
from planting import DECODE_MS, FILES, SMALL, Room, decode_s
from slow_store import SlowStore
from test_planted import QUANTITY, faults_of, vague

FORK = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")


def spent(call, *arguments) -> tuple[float, float]:
    """Wall and thread-CPU seconds of one call."""
    wall, cpu = SYSTEM.now(), SYSTEM.thread_cpu()
    call(*arguments)
    return SYSTEM.now() - wall, SYSTEM.thread_cpu() - cpu


# --- sizes -------------------------------------------------------------------------------------------------------


def test_waiting_waits_and_uses_no_cpu():
    wall, cpu = spent(f.WaitingDataset(10, 0.05).__getitem__, 3)
    assert wall >= 0.05
    assert cpu < 0.2 * wall


@pytest.mark.parametrize(
    "dataset", [f.PurePythonDataset(9, 0.05), f.NativeComputeDataset(9, 0.05), f.LockedDataset(9, 0.05)]
)
def test_computing_uses_the_cpu_time_it_names(dataset):
    _, cpu = spent(dataset.__getitem__, 0)
    assert 0.05 <= cpu < 0.1


def test_exact_work_grows_with_its_size():
    small, large = f.PurePythonDataset(9, loops=20_000), f.PurePythonDataset(9, loops=200_000)
    assert spent(large.__getitem__, 0)[1] > 4 * spent(small.__getitem__, 0)[1]
    small, large = f.NativeComputeDataset(9, n_bytes=1 << 18), f.NativeComputeDataset(9, n_bytes=1 << 21)
    assert spent(large.__getitem__, 0)[1] > 3 * spent(small.__getitem__, 0)[1]


def holds_gil_share(work) -> float:
    """Share of a side thread's short naps that end late while `work` runs on another: high when it holds the GIL."""
    late, done = [], threading.Event()

    def nap() -> None:
        while not done.is_set():
            begin = time.perf_counter()
            time.sleep(0.0005)
            late.append(time.perf_counter() - begin > 0.004)

    side = threading.Thread(target=nap)
    side.start()
    try:
        work()
    finally:
        done.set()
        side.join()
    return sum(late) / len(late)


def test_pure_python_holds_the_gil_and_native_work_does_not():
    held = holds_gil_share(lambda: f.PurePythonDataset(9, 0.4)[0])
    free = holds_gil_share(lambda: f.NativeComputeDataset(9, 0.4)[0])
    assert held > 0.5
    assert free < held / 2


def test_locked_work_runs_one_at_a_time_in_a_process():
    dataset = f.LockedDataset(9, 0.02)
    lock = dataset._locks.setdefault(os.getpid(), threading.Lock())
    with ThreadPoolExecutor(1) as pool, lock:
        future = pool.submit(dataset.__getitem__, 0)
        time.sleep(0.1)
        assert not future.done()
    assert future.result()[1] == 0
    assert pickle.loads(pickle.dumps(dataset))._locks == {}


def test_in_memory_is_cheap_and_leaves_the_random_state_alone():
    before = torch.get_rng_state(), random.getstate()
    dataset = f.InMemoryDataset(100)
    f.TinyTrainStep()
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    _, cpu = spent(lambda: [dataset[i] for i in range(100)])
    assert cpu < 100 * 1e-4


def test_slow_start_is_paid_once_in_a_process():
    dataset = f.SlowStartDataset(9, 0.1)
    assert spent(dataset.__getitem__, 0)[0] >= 0.1
    assert spent(dataset.__getitem__, 1)[1] < 0.05
    assert dataset._started_in == os.getpid()


def test_index_outside_raises():
    with pytest.raises(IndexError):
        f.WaitingDataset(3, 0.0)[3]
    assert f.WaitingDataset(3, 0.0)[-1][0][0] == 2


# --- photographs -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> list[Path]:
    """Noise over a gradient, so that decoding is as much work as with a photograph."""
    folder, dice, paths = tmp_path_factory.mktemp("photos"), random.Random(0), []
    for k in range(6):
        image = Image.linear_gradient("L").resize((320, 240))
        noise = Image.frombytes("L", (320, 240), dice.randbytes(320 * 240))
        paths.append(folder / f"{k}.jpg")
        Image.blend(image, noise, 0.3).convert("RGB").save(paths[-1], quality=85)
    return paths


def test_jpeg_gives_tensors_and_pixel_loop_outweighs_decoding(photos):
    plain, slow = f.JpegDataset(photos, size=128), f.JpegDataset(photos, f.PixelLoop(3), size=256)
    image, label = plain[1]
    assert image.shape == (3, 128, 128)
    assert image.dtype == torch.float32
    assert 0 <= float(image.min()) <= float(image.max()) <= 1
    assert label == 7
    decode = min(spent(plain.__getitem__, i)[1] for i in range(6))
    assert spent(slow.__getitem__, 0)[1] > 3 * decode
    tensor = f.JpegDataset(photos, transform=lambda image: torch.zeros(2))[0][0]
    assert torch.equal(tensor, torch.zeros(2))


def test_http_gives_the_same_image_and_holds_no_connection(photos):
    with SlowStore(photos[0].parent, latency_s=0.05) as store:
        dataset = f.HttpJpegDataset(store.urls("*.jpg"), size=64)
        wall, cpu = spent(dataset.__getitem__, 2)
        assert torch.equal(dataset[2][0], f.JpegDataset(photos, size=64)[2][0])
        assert wall >= 0.05
        assert cpu < wall / 2
        assert store.requests() == 2
        assert not [
            link
            for link in psutil.Process().net_connections()
            if link.status == "ESTABLISHED" and link.raddr and f":{link.raddr.port}" in store.url
        ]


# --- faults ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["lock", "sleep", "spin"])
def test_hanging_never_comes(how):
    dataset = f.HangingDataset(9, 2, how)
    assert dataset[1][1] == 7
    child = FORK.Process(target=dataset.__getitem__, args=(2,))
    child.start()
    child.join(0.5)
    alive, cpu = child.is_alive(), psutil.Process(child.pid).cpu_times().user
    child.kill()
    child.join()
    child.close()
    assert alive
    assert (cpu > 0.1) if how == "spin" else (cpu < 0.2)


@pytest.mark.parametrize(
    ("how", "code"),
    [("segfault", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("exit", 3), ("kill", -signal.SIGKILL)],
)
def test_crashing_ends_the_child_but_not_its_maker(how, code):
    dataset = f.CrashingDataset(9, 2, how)
    child = FORK.Process(target=dataset.__getitem__, args=(2,))
    child.start()
    child.join(10)
    ended = child.exitcode
    child.close()
    assert ended == code
    with pytest.raises(BadInputError, match="num_workers"):
        dataset[2]


def test_raising_takes_classes_and_instances():
    with pytest.raises(KeyError, match="sample 1"):
        f.RaisingDataset(9, 1, KeyError)[1]
    dataset = f.RaisingDataset(9, 1, OSError(5, "broken"))
    for _ in range(2):
        with pytest.raises(OSError, match="broken") as caught:
            dataset[1]
    assert len(caught.traceback) < 4
    assert dataset[0][1] == 0


def test_forking_variants():
    before = set(psutil.Process().children())
    assert f.ForkingDataset(9, "command")[0][1] == 0
    assert f.ForkingDataset(9, "process")[0][1] == 0
    if hasattr(os, "fork"):
        f.ForkingDataset(9, "left", left_s=0.3)[0]
        left = set(psutil.Process().children()) - before
        assert len(left) == 1
        for child in left:
            os.waitpid(child.pid, 0)


def test_unknown_kinds_are_refused():
    for make in (
        lambda: f.HangingDataset(9, 0, "crash"),
        lambda: f.CrashingDataset(9, 0, "hang"),
        lambda: f.ForkingDataset(9, "x"),
        lambda: f.OddValues(9, "x"),
        lambda: f.OddLength(9, "x"),
        lambda: f.ComputeStep(0.1, how="gpu"),
        lambda: f.PurePythonDataset(9),
        lambda: f.NativeComputeDataset(9, 0.1, n_bytes=5),
    ):
        with pytest.raises(BadInputError):
            make()


# --- streams, odd ones, steps, collates --------------------------------------------------------------------------


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


def test_training_step_learns_and_restores_its_state():
    step = f.TinyTrainStep(width=4)
    images = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    batch = images, torch.arange(8) % 2
    saved = pickle.loads(pickle.dumps(step.state_dict()))
    losses = [step(batch) for _ in range(12)]
    assert losses[-1] < losses[0]
    step.load_state_dict(saved)
    assert step(batch) == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.parametrize("name", [name for name in f.__all__ if name != "pad_collate"])
def test_everything_pickles(name):
    arguments = {
        "BatchReadDataset": (9, 0.1), "ComputeStep": (0.1,), "CrashingDataset": (9, 1), "ForkingDataset": (9,),
        "HangingDataset": (9, 1), "HttpJpegDataset": (["http://127.0.0.1/a.jpg"],), "InMemoryDataset": (9,),
        "JpegDataset": (["a.jpg"],), "LockedDataset": (9, 0.1), "NativeComputeDataset": (9, 0.1),
        "OddLength": (9, "missing"), "OddValues": (9, "none"), "PurePythonDataset": (9, 0.1), "RaggedDataset": (9,),
        "RaisingDataset": (9, 1, KeyError("x")), "RandomFlipDataset": (9,), "ShardedStream": (9,),
        "SlowCollate": (0.1,), "SlowStartDataset": (9, 0.1), "WaitingDataset": (9, 0.1), "WaitingStep": (0.1,),
    }  # fmt: skip
    made = getattr(f, name)(*arguments.get(name, ()))
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made)
    assert vars(again).keys() == vars(made).keys()


# --- the slow store ----------------------------------------------------------------------------------------------


def fetch(url: str, timeout: float = 10, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=timeout) as response:
        return response.read()


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "in side").mkdir()
    (tmp_path / "in side" / "a.bin").write_bytes(bytes(range(200)) * 500)
    return tmp_path


def test_store_serves_whole_files_and_ranges(folder):
    data = (folder / "in side" / "a.bin").read_bytes()
    with SlowStore(folder) as store:
        (url,) = store.urls()
        assert fetch(url) == data
        assert fetch(url, Range="bytes=5-14") == data[5:15]
        assert fetch(url, Range="bytes=99990-") == data[-10:]
        assert fetch(url, Range="bytes=-3") == data[-3:]
        assert store.requests() == 4
        assert store.sent_bytes() == len(data) + 23
        for wrong, status in ((f"{store.url}/none", 404), (f"{store.url}/../{folder.name}/x", 404)):
            with pytest.raises(urllib.error.HTTPError) as caught:
                fetch(wrong)
            caught.value.close()
            assert caught.value.code == status
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url, Range="bytes=100000-")
        caught.value.close()
        assert caught.value.code == 416


def test_store_keeps_latency_and_bandwidth(folder):
    with SlowStore(folder, latency_s=0.1) as store, ThreadPoolExecutor(16) as pool:
        wall, _ = spent(list, pool.map(fetch, store.urls() * 16))
    # All at once: each waits its own latency, none for the others.
    assert 0.1 <= wall < 16 * 0.1
    with SlowStore(folder, bytes_per_s=500_000) as store, ThreadPoolExecutor(4) as pool:
        wall, _ = spent(list, pool.map(fetch, store.urls() * 4))
    # One link for all: 4 x 100 000 bytes at 500 000 bytes/s take 0.8 s, however many readers share it.
    assert wall >= 0.7


def test_store_fails_stalls_and_stops_for_certain(folder):
    with SlowStore(folder, fail_every=2, stall_every=3, stall_s=3600) as store:
        (url,) = store.urls()
        fetch(url)
        with pytest.raises(urllib.error.HTTPError) as caught:
            fetch(url)
        caught.value.close()
        assert caught.value.code == 503
        with pytest.raises(TimeoutError):
            fetch(url, timeout=0.2)
        server, begin = psutil.Process(store._server.pid), time.monotonic()
    assert time.monotonic() - begin < 3
    assert not server.is_running()
    with pytest.raises(urllib.error.URLError):
        fetch(url, timeout=1)


# --- the list of planted loaders ---------------------------------------------------------------------------------


def test_names_are_unique_and_the_list_covers_every_cause():
    assert len(BY_NAME) == len(PLANTED)
    causes = ("compute-bound", "no-overlap", "io-latency", "cpu-bound", "python-bound", "interference")
    causes += ("hang", "worker-crash", "worker-error", "worker-killed")
    for cause in causes:
        assert {entry.strength for entry in PLANTED if entry.expected[:1] == (cause,)} == {"strong", "weak"}, cause
    assert len(HEALTHY) >= 10
    assert not any(entry.expected or entry.fails for entry in HEALTHY)


@pytest.mark.parametrize("entry", [entry for entry in SPEED if entry.shares], ids=lambda entry: entry.name)
def test_arithmetic_leaves_no_doubt(entry):
    own = "no-overlap" if entry.expected[0] == "no-overlap" else "data"
    if entry.expected == ("compute-bound",):
        assert entry.shares == {"data": 0.0}, entry.why
        return
    others = [share for cause, share in entry.shares.items() if cause != own]
    assert entry.shares[own] >= (0.4 if entry.strength == "strong" else 0.15), entry.why
    assert all(entry.shares[own] >= 3 * share for share in others), entry.why


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("photographs")


@pytest.fixture
def few_files(monkeypatch):
    """Enough photographs for one batch."""
    for pixels in FILES:
        monkeypatch.setitem(FILES, pixels, 64 if pixels == SMALL else 24)


def test_decoding_costs_about_what_the_arithmetic_says(images, few_files):
    for pixels, expected_ms in DECODE_MS.items():
        seconds = decode_s(f.JpegDataset(Room(images).photos(pixels), size=128))
        # Machines differ, the planted ratios are 3 to 1 and more.
        assert expected_ms / 3 < 1e3 * seconds < expected_ms * 3, pixels


@pytest.mark.parametrize("entry", PLANTED, ids=lambda entry: entry.name)
def test_planted_loader_is_built_and_gives_a_batch(entry, images, few_files):
    with entry.built(images) as (loader, step, kwargs):
        assert (step is not None) == entry.has_step
        assert set(kwargs) <= {"role", "val", "state", "checks"}
        if entry.fails:
            assert len(loader) > 0
        else:
            batch = next(iter(loader))
            assert all(torch.is_tensor(part) for part in batch)
            assert entry.expected or step is None or step(batch) is not NotImplemented
        del loader


# --- the judge ---------------------------------------------------------------------------------------------------


def finding(cause, verdict="present", family="speed", evidence=("waits 30 ms of 32 ms, 40 samples",)):
    return {"cause": cause, "verdict": verdict, "family": family, "evidence": list(evidence)}


def report(*findings, verdict="", bound=None):
    top = findings[0]["cause"] if findings else None
    return {"findings": list(findings), "verdict": verdict, "bound": bound, "top": top}


def test_judge_tells_right_from_wrong():
    io, quiet = BY_NAME["io-latency-sleep-0w-alone-strong"], BY_NAME["healthy-memory"]
    bound = BY_NAME["compute-bound-sleep-4w-step-strong"]
    assert not faults_of(io, report(finding("io-latency"), finding("no-overlap")))
    assert not faults_of(io, report(finding("rng-constant", family="correctness"), finding("io-latency")))
    assert faults_of(io, report(finding("no-overlap"), finding("io-latency")))
    assert faults_of(io, report(finding("io-latency", "undecided")))
    assert faults_of(io, report())
    assert not faults_of(quiet, report(finding("io-latency", "undecided")))
    assert faults_of(quiet, report(finding("io-latency")))
    assert not faults_of(bound, report(verdict="compute-bound: a perfect loader would save 1 %"))
    assert faults_of(bound, report(verdict="all is well"))
    assert faults_of(bound, report(finding("no-overlap"), bound="compute-bound"))
    assert not vague(report(finding("io-latency")))
    assert vague(report(finding("io-latency", evidence=())))
    assert vague(report(finding("io-latency", evidence=("it waits 3 weirdly",))))


@pytest.mark.parametrize(
    "text", ["30 ms a batch", "84 %", "1.9x", "1.9 × faster", "12 samples", "1.2 to 1.4 s", "5 MiB"]
)
def test_quantities_are_recognised(text):
    assert QUANTITY.search(text)
