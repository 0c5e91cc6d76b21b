"""The list of planted loaders: what is right to say about each is stated by construction, with the arithmetic.

`PLANTED` is the list; `BY_NAME` finds one. `with entry.built(images) as (loader, step, kwargs)` makes the loader on
temporary data and clears it away; photographs are kept in the folder `images` for the next entry. The rules behind the
arithmetic are in planting.py. tests/test_planting.py checks that the expected cause costs at least three times any
other, so that noise cannot turn the answer.
"""

from __future__ import annotations

from loaderscope import faults as f
from planting import (
    CORES,
    EDGE,
    LARGE,
    MEDIUM,
    PIXEL_LOOP_MS,
    SMALL,
    TINY,
    N,
    by_batch,
    far,
    fault,
    fight,
    healthy,
    http,
    http_pixel_loop,
    jpeg,
    load,
    memory,
    native,
    pixel_loop,
    python,
    speed,
    step,
    train,
    waits,
)

OVERLAP, IO, CPU, PY = ("no-overlap",), ("io-latency",), ("cpu-bound",), ("python-bound",)
# A step that more workers of the same waiting kind would keep fed: saying so is as right as saying what they wait for.
IO_FEW = ("io-latency", "too-few-workers")
BOUND = ("compute-bound",)

SPEED = [
    speed(OVERLAP, "strong", "sleep", waits(2.5), 2.5, 16, 0, 40),  # min(40, 40) / 80: 50 %
    speed(OVERLAP, "strong", "sleep", waits(5), 5, 10, 0, 40, tag="-more"),  # 40 / 90: 44 %; load exceeds step: 11 %
    speed(OVERLAP, "weak", "sleep", waits(1), 1, 10, 0, 40),  # 10 / 50: 20 %
    speed(OVERLAP, "strong", "native", native(2.5), 2.5, 16, 0, 40, step=f.ComputeStep),  # 40 / 80: 50 %, one core each
    speed(OVERLAP, "weak", "python", python(1), 1, 10, 0, 40),  # 10 / 50: 20 %
    speed(OVERLAP, "strong", "jpeg", jpeg(MEDIUM), 4.5, 8, 0, per_load=1.5),  # 1 / 2.5: 40 %
    speed(OVERLAP, "weak", "jpeg", jpeg(MEDIUM), 4.5, 8, 0, per_load=4.0),  # 1 / 5: 20 %
    speed(OVERLAP, "strong", "http", http(TINY, latency_s=0.020), far(TINY, 20), 4, 0, 100),  # 90 / 190: 47 %
    speed(OVERLAP, "weak", "http", http(TINY, latency_s=0.003), far(TINY, 3), 4, 0, 90),  # 21 / 111: 19 %
    speed(IO, "strong", "sleep", waits(2), 2, 16, 0),  # nothing but waiting: 100 %
    speed(IO, "weak", "sleep", waits(0.5), 0.5, 16, 0),  # short waits, 5 times what is too cheap to accuse
    speed(IO, "strong", "sleep", waits(5), 5, 8, 2),
    speed(IO, "strong", "sleep", waits(4), 4, 16, 0, 8),  # 64 against 8: 56 / 72 = 78 %, no-overlap 8 / 72 = 11 %
    speed(IO_FEW, "strong", "sleep", waits(8), 8, 16, 2, 10),  # 64 against 10: 54 / 64 = 84 %
    speed(IO_FEW, "weak", "sleep", waits(5), 5, 8, 2, 14),  # 20 against 14: 6 / 20 = 30 %
    speed(IO_FEW, "strong", "stream", lambda room: f.ShardedStream(N - N % 32, 0.004), 4, 16, 2, 5),  # 32 to 5: 84 %
    speed(IO, "strong", "http", http(TINY, latency_s=0.030), far(TINY, 30), 4, 0),  # 30 of 32 ms are waiting
    speed(IO, "strong", "http", http(TINY, latency_s=0.030), far(TINY, 30), 4, 0, 12),  # 129 to 12: 83 %, overlap 8 %
    speed(IO_FEW, "strong", "http", http(TINY, latency_s=0.030), far(TINY, 30), 8, 2, 15),  # 129 against 15: 88 %
    speed(IO_FEW, "weak", "http", http(TINY, latency_s=0.015), far(TINY, 15), 8, 2, 45),  # 69 against 45: 35 %
    # 46 KB take 31 ms of the thin link: 31 of 37 ms are waiting, and a second reader gains nothing.
    speed((*IO, "io-bandwidth"), "strong", "http", http(MEDIUM, bytes_per_s=1.5e6), 37, 4, 0, tag="-thin"),
    speed(CPU, "strong", "native", native(4), 4, 16, 0),
    speed(CPU, "strong", "native", native(4), 4, 16, 2),
    speed(CPU, "strong", "native", native(4), 4, 16, 0, 8),  # 64 against 8: 78 %, no-overlap 11 %
    speed(CPU, "strong", "native", native(8), 8, 16, 2, 10),  # 64 against 10: 84 %
    speed(CPU, "weak", "native", native(3), 3, 16, 2, 16),  # 24 against 16: 33 %
    speed(CPU, "strong", "jpeg", jpeg(MEDIUM), 4.5, 8, 0),
    speed(CPU, "strong", "jpeg", jpeg(LARGE), 9, 8, 2),
    speed(CPU, "strong", "jpeg", jpeg(MEDIUM), 4.5, 16, 0, 8),  # 72 against 8: 80 %, no-overlap 10 %
    speed(CPU, "strong", "jpeg", jpeg(MEDIUM), 4.5, 16, 2, 5),  # 36 against 5: 86 %
    speed(CPU, "weak", "jpeg", jpeg(MEDIUM), 4.5, 8, 2, per_load=0.67),  # 33 %
    speed(CPU, "strong", "http", http(LARGE, latency_s=0.001), far(LARGE, 1), 8, 0),  # 10 of 11 ms are computing
    speed(CPU, "strong", "http", http(LARGE, latency_s=0.001), far(LARGE, 1), 8, 2, 6),  # 45 against 6: 87 %
    speed(PY, "strong", "python", python(3), 3, 16, 0),
    speed(PY, "strong", "python", python(4), 4, 16, 2),
    speed(PY, "strong", "loops", lambda room: f.PurePythonDataset(N, loops=30_000), 3, 16, 0),
    speed(PY, "strong", "python", python(4), 4, 16, 0, 8),  # 64 against 8: 78 %, no-overlap 11 %
    speed(PY, "strong", "python", python(8), 8, 16, 2, 10),  # 64 against 10: 84 %
    speed(PY, "weak", "python", python(3), 3, 16, 2, 16),  # 24 against 16: 33 %
    # Three passes of 10 ms in Python against 2 to 3 ms of decoding.
    speed(PY, "strong", "jpeg", pixel_loop(SMALL), 3 * PIXEL_LOOP_MS + 3, 4, 0),
    speed(PY, "strong", "jpeg", pixel_loop(SMALL), 3 * PIXEL_LOOP_MS + 3, 4, 2, 8),  # 66 against 8: 88 %
    speed(PY, "strong", "http", http_pixel_loop(TINY, latency_s=0.002), 3 * PIXEL_LOOP_MS + 6, 4, 0),
    speed(BOUND, "strong", "sleep", waits(2), 2, 8, 4, 40),  # 4 against 40
    speed(BOUND, "weak", "sleep", waits(2), 2, 8, 2, 30),  # 8 against 30: 3.75 times as fast as needed
    speed(BOUND, "strong", "jpeg", jpeg(SMALL), 2, 8, 2, 80),  # 8 against 80
    # Bringing a batch to main costs 2 ms or more while workers compute, however fast they are: 2 against 45 and more.
    speed(BOUND, "weak", "jpeg", jpeg(SMALL), 2, 8, 2, per_load=12.0),
    speed(BOUND, "strong", "http", http(TINY, latency_s=0.010), far(TINY, 10), 8, 8, 100),  # 12 against 100
    speed(BOUND, "weak", "python", python(1), 1, 8, 2, 20),  # 4 against 20
]

INTERFERENCE = [
    # C cores: 60 C ms of CPU a batch from the workers, 60 C from the step: alone 60 ms each, together 120.
    fight("interference-native-strong", "strong", "native", native(15), 15, CORES, "60 ms alone, 120 together: 50 %"),
    # The step on half the cores: 60 C + 30 C on C cores.
    fight(
        "interference-native-weak", "weak", "native", native(15), 15, max(1, CORES // 2), "60 alone, 90 together: 33 %"
    ),
    fight("interference-jpeg-strong", "strong", "jpeg", jpeg(LARGE), None, CORES, "36 ms alone, 72 together: 50 %"),
]

HANG = {"budget_s": 45.0}  # a silence can only be called a hang after a while
FAULTS = [
    fault("hang", "lock", "first", lambda r: f.HangingDataset(N, 0, "lock"), 2, **HANG),
    fault("hang", "lock", "late", lambda r: f.HangingDataset(N, 100, "lock"), 2, 10, **HANG),
    fault("hang", "sleep", "late", lambda r: f.HangingDataset(N, 100, "sleep"), 2, **HANG),
    fault("hang", "lock", "first", lambda r: f.HangingDataset(N, 3, "lock"), 0, 10, **HANG),
    # Busy for ever and busy for long look alike.
    fault("hang", "spin", "first", lambda r: f.HangingDataset(N, 3, "spin"), 2, undecided_ok=True, **HANG),
    # A server that stops answering, and a reader without a timeout.
    fault(
        "hang",
        "http",
        "late",
        lambda r: f.HttpJpegDataset(r.urls(TINY, stall_every=60, stall_s=3600), size=EDGE, timeout_s=None),
        2,
        **HANG,
    ),
    fault("worker-crash", "segfault", "first", lambda r: f.CrashingDataset(N, 3, "segfault"), 2),
    fault("worker-crash", "segfault", "late", lambda r: f.CrashingDataset(N, 100, "segfault"), 2, 10),
    fault("worker-crash", "abort", "late", lambda r: f.CrashingDataset(N, 100, "abort"), 2),
    fault("worker-crash", "exit", "first", lambda r: f.CrashingDataset(N, 3, "exit"), 2, 10),
    fault("worker-crash", "segfault", "first", lambda r: f.CrashingDataset(N, 3, "segfault"), 0),
    fault("worker-killed", "kill", "first", lambda r: f.CrashingDataset(N, 3, "kill"), 2),
    fault("worker-killed", "kill", "late", lambda r: f.CrashingDataset(N, 100, "kill"), 2, 10),
    fault("worker-error", "value-error", "first", lambda r: f.RaisingDataset(N, 3), 2),
    fault("worker-error", "key-error", "late", lambda r: f.RaisingDataset(N, 100, KeyError("label")), 2, 10),
    fault("worker-error", "value-error", "first", lambda r: f.RaisingDataset(N, 3), 0, 10),
    fault(
        ("worker-error", "corrupt-sample"),
        "jpeg",
        "late",
        lambda r: f.JpegDataset(r.with_truncated(SMALL, 60), size=EDGE),
        2,
        10,
    ),
    fault("worker-error", "http", "late", lambda r: f.HttpJpegDataset(r.urls(TINY, fail_every=60), size=EDGE), 2),
]

HEALTHY = [
    healthy("memory", "0.3 ms a batch to 20 ms", lambda r: (memory(), step(20), {})),
    healthy("memory-alone", "under 0.1 ms a sample", lambda r: (memory(), None, {}), has_step=False),
    healthy("enough-workers", "2 ms x 8 / 4 = 4 ms to 20", lambda r: (load(waits(2)(r), 8, 4), step(20), {})),
    healthy("jpeg", "2 ms x 8 / 2 = 8 ms to 100", lambda r: (load(jpeg(SMALL)(r), 8, 2), step(100), {})),
    healthy(
        "http",
        "(10 + 2) ms x 8 / 8 = 12 ms to 80",
        lambda r: (load(http(TINY, latency_s=0.01)(r), 8, 8), step(80), {}),
    ),
    healthy("short-epochs", "20 batches, persistent workers", lambda r: (memory(640, workers=1), step(25), {})),
    healthy(
        "stream", "1 ms x 8 / 4 = 2 ms to 20", lambda r: (load(f.ShardedStream(19_200, 0.001), 8, 4), step(20), {})
    ),
    # Once per worker and run, 0.3 s against 2 500 steps of 15 ms.
    healthy("warm-up", "0.3 s once in 37 s", lambda r: (load(f.SlowStartDataset(N, 0.3), 8, 2), step(15), {})),
    healthy(
        "padding",
        "in memory to 20 ms",
        lambda r: (load(f.RaggedDataset(N), 16, 1, collate_fn=f.pad_collate), step(20), {}),
    ),
    healthy(
        "flips", "global generator", lambda r: (load(f.RandomFlipDataset(4096), 32, 2, shuffle=True), step(20), {})
    ),
    healthy(
        "batch-sampler",
        "in memory to 20 ms",
        lambda r: (by_batch(f.InMemoryDataset(4096)), step(20), {}),
    ),
    healthy(
        "getitems", "20 ms / 2 = 10 a batch to 40", lambda r: (load(f.BatchReadDataset(N, 0.02), 16, 2), step(40), {})
    ),
    healthy("noisy-step", "10 to 30 ms", lambda r: (load(waits(1)(r), 8, 4), step(20, 0.5), {})),
    healthy("list", "batches that are there already", lambda r: (list(memory(1600, 16)), step(20), {})),
    healthy(
        "list-alone", "batches that are there already", lambda r: (list(memory(1600, 16)), None, {}), has_step=False
    ),
    healthy("training", "0.2 ms a batch to 15 ms or more", lambda r: train(0)),
    # 2 ms x 8 on one core, 40 ms on another: busy cores, no fight.
    healthy(
        "two-cores", "16 ms to 40, a core each", lambda r: (load(native(2)(r), 8, 1), f.ComputeStep(0.04), {}), cores=2
    ),
]

PLANTED = [*SPEED, *INTERFERENCE, *FAULTS, *HEALTHY]
BY_NAME = {entry.name: entry for entry in PLANTED}

# What every run of the whole suite diagnoses: two strengths and more than one kind of data for each cause, and all the
# healthy ones. The rest of the list takes half an hour more: LOADERSCOPE_PLANTED=all, or make test-planted.
_CORE = (
    *("no-overlap-sleep-0w-step-strong", "no-overlap-sleep-0w-step-weak", "no-overlap-jpeg-0w-step-strong"),
    *("io-latency-sleep-0w-alone-strong", "io-latency-sleep-2w-step-strong", "io-latency-http-2w-step-weak"),
    *("cpu-bound-native-0w-alone-strong", "cpu-bound-jpeg-2w-step-strong", "cpu-bound-native-2w-step-weak"),
    *("python-bound-loops-0w-alone-strong", "python-bound-python-2w-step-strong", "python-bound-python-2w-step-weak"),
    *("compute-bound-sleep-4w-step-strong", "compute-bound-jpeg-2w-step-weak"),
    *("interference-native-strong", "interference-native-weak"),
    *("hang-lock-2w-alone-first", "hang-lock-0w-step-first", "hang-http-2w-alone-late"),
    *("worker-crash-segfault-2w-alone-first", "worker-crash-abort-2w-alone-late"),
    *("worker-crash-segfault-0w-alone-first",),
    *("worker-killed-kill-2w-alone-first", "worker-killed-kill-2w-step-late"),
    *("worker-error-value-error-2w-alone-first", "worker-error-value-error-0w-step-first"),
    *("worker-error-jpeg-2w-step-late",),
)
CORE = [*(BY_NAME[name] for name in _CORE), *HEALTHY]
