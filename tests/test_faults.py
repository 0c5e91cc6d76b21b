"""The planted datasets are what they say: what a sample costs, and how it ends."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
import torch
from PIL import Image

from loaderscope import faults as f
from loaderscope.clock import SYSTEM
from loaderscope.errors import BadInputError
from slow_store import SlowStore

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


def test_noise_of_ones_own_leaves_the_global_state_alone_and_repeats():
    before = torch.get_rng_state()
    own = f.NoiseDataset(4, 100, own_generator=True)
    assert torch.equal(own[1][0], own[1][0]) and not torch.equal(own[1][0], own[2][0])
    assert torch.equal(before, torch.get_rng_state())
    shared = f.NoiseDataset(4, 100)
    assert not torch.equal(shared[1][0], shared[1][0])
    assert not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)


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


def read_quietly(dataset, index: int) -> None:
    """In the child: pytest's faulthandler would print the stacks of a crash that is meant."""
    faulthandler.disable()
    dataset[index]


@pytest.mark.parametrize(
    ("how", "code"),
    [("segfault", -signal.SIGSEGV), ("abort", -signal.SIGABRT), ("exit", 3), ("kill", -signal.SIGKILL)],
)
def test_crashing_ends_the_child_but_not_its_maker(how, code):
    dataset = f.CrashingDataset(9, 2, how)
    child = FORK.Process(target=read_quietly, args=(dataset, 2))
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
