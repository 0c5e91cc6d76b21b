"""What planted loaders are built from: where their data lies, what an entry says, and the arithmetic behind it.

Each speed entry carries the shares of wall time that its numbers imply, by the rules
    no workers:  wall = load + step; no-overlap costs min(load, step), the data's own cause what load exceeds step by
    n workers:   wall = max(load / n, step); the data's own cause costs what load / n exceeds step by
where load is what one batch takes in one process. Figures for JPEG files are this project's measurements; where a
ratio has to be exact the step is sized by decoding a few files first (`per_load`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler

from loaderscope import faults as f
from loaderscope.clock import SYSTEM
from slow_store import SlowStore

# Longest side in pixels -> CPU ms to decode one and cut it to 128 x 128, and how many different files there are.
# Files hold 5, 16, 46 and 89 KB.
TINY, SMALL, MEDIUM, LARGE = 160, 320, 640, 1024
DECODE_MS = {TINY: 1.0, SMALL: 2.0, MEDIUM: 4.5, LARGE: 9.0}
FILES = {TINY: 384, SMALL: 384, MEDIUM: 96, LARGE: 64}
REQUEST_MS = 1.2  # CPU of one urllib request
PIXEL_LOOP_MS = 10.0  # one pass of PixelLoop at 256 x 256
EDGE = 128
N = 20_000  # samples of a dataset whose samples cost nothing to keep
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

Made = tuple[Any, Any, dict[str, Any]]


class Room:
    """Where the planted data lies: photographs are made once and shared, all else is gone after `close`."""

    def __init__(self, images: Path):
        self.shared, self.stack = Path(images), contextlib.ExitStack()

    def photos(self, pixels: int) -> list[Path]:
        folder = self.shared / f"{pixels}px"
        if not folder.exists():
            from loaderscope.samples import make_images

            self.shared.mkdir(parents=True, exist_ok=True)
            part = Path(tempfile.mkdtemp(dir=self.shared))
            make_images(part, FILES[pixels], size=pixels, progress=False)
            with contextlib.suppress(OSError):  # another process was first
                part.rename(folder)
            shutil.rmtree(part, ignore_errors=True)
        return sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))

    def urls(self, pixels: int, **traffic) -> list[str]:
        self.photos(pixels)
        store = self.stack.enter_context(SlowStore(self.shared / f"{pixels}px", **traffic))
        return store.urls("*.jp*g")

    def with_truncated(self, pixels: int, at: int) -> list[Path]:
        """The photographs, number `at` cut off in the middle."""
        files = self.photos(pixels)
        broken = Path(self.stack.enter_context(tempfile.TemporaryDirectory())) / "broken.jpg"
        data = files[at].read_bytes()
        broken.write_bytes(data[: len(data) // 2])
        return [*files[:at], broken, *files[at + 1 :]]

    def close(self) -> None:
        self.stack.close()


@dataclass(frozen=True)
class Planted:
    """One loader. expected: cause ids any of which is right; empty for a healthy one.

    strength: "strong", "weak" or "healthy". data: what the samples are. shares: cost of each cause by construction.
    fails: it is not meant to give all its batches. undecided_ok: no tool could be sure. cores: needed for the fault.
    """

    name: str
    expected: tuple[str, ...]
    strength: str
    data: str
    why: str
    make: Callable[[Room], Made] = field(repr=False)
    shares: dict[str, float] = field(default_factory=dict)
    has_step: bool = True
    fails: bool = False
    undecided_ok: bool = False
    budget_s: float = 25.0
    cores: int = 1

    @contextlib.contextmanager
    def built(self, images: Path) -> Iterator[Made]:
        room = Room(images)
        try:
            yield self.make(room)
        finally:
            room.close()


# --- building blocks ---------------------------------------------------------------------------------------------


def load(dataset, batch: int | None, workers: int, **options) -> DataLoader:
    """Persistent workers, so that starting them anew is never a second fault."""
    if workers:
        options = {"persistent_workers": True} | options
    return DataLoader(dataset, batch_size=batch, num_workers=workers, **options)


def jpeg(pixels: int):
    return lambda room: f.JpegDataset(room.photos(pixels), size=EDGE)


def http(pixels: int, **traffic):
    return lambda room: f.HttpJpegDataset(room.urls(pixels, **traffic), size=EDGE)


def decode_s(dataset: f.JpegDataset) -> float:
    """CPU seconds to decode one image. Without torch, so that no thread of its pool exists before the workers do."""

    def once(index: int) -> float:
        before = SYSTEM.thread_cpu()
        dataset.image(index)
        return SYSTEM.thread_cpu() - before

    return statistics.median(once(index) for index in range(9))


def costs(load_ms: float, workers: int, step_ms: float | None) -> dict[str, float]:
    """Shares of wall time, by the rules at the top; "data" stands for the data's own cause."""
    if step_ms is None:
        return {"data": 1.0}
    if not workers:
        wall = load_ms + step_ms
        return {"no-overlap": min(load_ms, step_ms) / wall, "data": max(0.0, load_ms - step_ms) / wall}
    alone = load_ms / workers
    return {"data": max(0.0, alone - step_ms) / max(alone, step_ms)}


def speed(expected, strength, data, dataset, sample_ms, batch, workers, step_ms=None, **more) -> Planted:
    """An entry whose numbers imply its shares. more: per_load (step = that many times the loader alone), step, tag."""
    per_load, step_class = more.get("per_load"), more.get("step", f.WaitingStep)
    load_ms = sample_ms * batch
    alone = load_ms / max(1, workers)
    step_ms = per_load * alone if per_load else step_ms

    def make(room: Room) -> Made:
        built = dataset(room)
        seconds = per_load * decode_s(built) * batch / max(1, workers) if per_load else (step_ms or 0.0) / 1e3
        return load(built, batch, workers), None if step_ms is None else step_class(seconds), {}

    shares = costs(load_ms, workers, step_ms)
    against = "no step" if step_ms is None else f"a step of {step_ms:.4g} ms"
    why = f"{sample_ms:.4g} ms x {batch} / {workers or 'no'} workers = {alone:.4g} ms a batch against {against}: " + (
        ", ".join(f"{cause} costs {share:.0%}" for cause, share in shares.items())
    )
    name = f"{expected[0]}-{data}-{workers}w-{'alone' if step_ms is None else 'step'}-{strength}{more.get('tag', '')}"
    # Two processes that compute have to have two cores, or the arithmetic is another.
    cores = 2 if workers and expected[0] in ("cpu-bound", "python-bound") else 1
    return Planted(name, expected, strength, data, why, make, shares, has_step=step_ms is not None, cores=cores)


def fault(cause, how, when, dataset, workers, step_ms=None, **options) -> Planted:
    """An entry that ends badly: batches cost nothing until the sample that never comes."""

    def make(room: Room) -> Made:
        return load(dataset(room), 8, workers), None if step_ms is None else f.WaitingStep(step_ms / 1e3), {}

    causes = (cause,) if isinstance(cause, str) else cause
    name = f"{causes[0]}-{how}-{workers}w-{'alone' if step_ms is None else 'step'}-{when}"
    strength, why = ("strong", "in the first batch") if when == "first" else ("weak", "after some good batches")
    return Planted(name, causes, strength, how, why, make, has_step=step_ms is not None, fails=True, **options)


def fight(name: str, strength: str, data: str, dataset, sample_ms: float | None, threads: int, why: str) -> Planted:
    """Loader and step each use the cores that are there, alone fast enough, together not."""

    def make(room: Room) -> Made:
        built = dataset(room)
        sample_s = decode_s(built) if sample_ms is None else sample_ms / 1e3
        # A batch of 4 samples a core on one worker a core: alone 4 samples' time a batch, and so is the step.
        return load(built, 4 * CORES, CORES), f.ComputeStep(4 * sample_s, threads=threads), {}

    return Planted(name, ("interference",), strength, data, why, make, cores=2)


def healthy(name: str, why: str, make: Callable[[Room], Made], **options) -> Planted:
    return Planted(f"healthy-{name}", (), "healthy", name, why, make, **options)


def step(ms: float, jitter: float = 0.0) -> f.WaitingStep:
    return f.WaitingStep(ms / 1e3, jitter)


def waits(ms: float):
    return lambda room: f.WaitingDataset(N, ms / 1e3)


def native(ms: float):
    return lambda room: f.NativeComputeDataset(N, ms / 1e3)


def python(ms: float):
    return lambda room: f.PurePythonDataset(N, ms / 1e3)


def pixel_loop(pixels: int):
    return lambda room: f.JpegDataset(room.photos(pixels), f.PixelLoop(3), size=256)


def http_pixel_loop(pixels: int, **traffic):
    return lambda room: f.HttpJpegDataset(room.urls(pixels, **traffic), f.PixelLoop(3), size=256)


def memory(n: int = 4096, batch: int = 32, workers: int = 0, **options) -> DataLoader:
    return load(f.InMemoryDataset(n), batch, workers, **options)


def far(pixels: int, latency_ms: float) -> float:
    """ms of one sample fetched over HTTP."""
    return latency_ms + REQUEST_MS + DECODE_MS[pixels]


def by_batch(dataset) -> DataLoader:
    sampler = BatchSampler(RandomSampler(dataset), 32, drop_last=True)
    return DataLoader(dataset, batch_sampler=sampler, num_workers=1, persistent_workers=True)


def train(workers: int) -> Made:
    """Real training on 16 images a batch: 15 ms or more a step, 0.2 ms a batch to load."""
    train_step = f.TinyTrainStep()
    return memory(batch=16, workers=workers), train_step, {"state": (train_step,)}
