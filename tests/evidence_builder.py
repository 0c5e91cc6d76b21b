"""Evidence built from plain numbers, for instant tests of rules and reports."""

from __future__ import annotations

import random
from typing import Any

from loaderscope.diagnosis.evidence import Evidence
from loaderscope.records import (
    Environment,
    GilCheck,
    Headroom,
    LoaderFacts,
    LoopTiming,
    NotMeasured,
    StageProfile,
    StageSpans,
    ThreadScaling,
)

MISSING = NotMeasured("not part of this test")


def environment(**changes: Any) -> Environment:
    values: dict[str, Any] = {
        "taken": "2000-01-01 00:00",
        "platform": "Linux",
        "python": "3.11.7",
        "torch": "2.14.1",
        "cores_logical": 2,
        "cores_affinity": 2,
        "cores_quota": MISSING,
        "cores_measured": 1.95,
        "memory_total_bytes": 24 * 2**30,
        "memory_limit_bytes": MISSING,
        "memory_available_bytes": 20 * 2**30,
        "shm_total_bytes": 12 * 2**30,
        "shm_free_bytes": 12 * 2**30,
        "open_files_limit": 1024,
        "open_files_now": 20,
        "pressure_cpu": 1.0,
        "pressure_io": 0.0,
        "pressure_memory": 0.0,
        "load": 0.2,
        "start_method": "fork",
        "sharing_strategy": "file_descriptor",
        "torch_threads": 2,
        "thread_pools": (),
        "gpu": NotMeasured("no NVIDIA driver found"),
    }
    return Environment(**{**values, **changes})


def facts(**changes: Any) -> LoaderFacts:
    values: dict[str, Any] = {
        "kind": "map",
        "loader": "torch.utils.data.DataLoader",
        "dataset": "shop.Photos",
        "length": 1000,
        "batches": 63,
        "batch_size": 16,
        "num_workers": 2,
        "prefetch_factor": 2,
        "persistent_workers": False,
        "pin_memory": False,
        "drop_last": False,
        "in_order": True,
        "timeout_s": 0.0,
        "start_method": "fork",
        "sampler": "torch.utils.data.SequentialSampler",
        "batch_sampler": MISSING,
        "collate": "default_collate",
        "worker_init": MISSING,
        "has_generator": False,
        "has_getitems": False,
    }
    return LoaderFacts(**{**values, **changes})


def noisy(mean: float, n: int, seed: int, spread: float = 0.03) -> tuple[float, ...]:
    rng = random.Random(seed)
    return tuple(max(0.0, mean * (1 + rng.gauss(0, spread))) for _ in range(n))


def loop(
    spec: LoaderFacts, data_s: float, compute_s: float | None, n: int = 60, cpu_s: float = 0.0, spread=0.03
) -> LoopTiming:
    data = noisy(data_s, n, 1, spread)
    compute = noisy(compute_s, n, 2, spread) if compute_s is not None else NotMeasured("no step was given")
    wall = sum(data) + (sum(compute) if compute_s is not None else 0.0)
    return LoopTiming(
        facts=spec,
        environment=environment(),
        data_time_s=data,
        compute_time_s=compute,
        samples=(16,) * n,
        epoch_starts=(0,),
        iterator_s=(0.01,),
        wall_s=wall,
        cpu_main_s=0.02 * wall,
        cpu_workers_s=cpu_s * n,
        ended="time",
    )


def room(spec: LoaderFacts, alone_s: float, step_s: float | None, both_s: float | None = None, **more: Any) -> Headroom:
    """Headroom from seconds per batch. loader_cpu_s and step_cpu_s: CPU seconds per batch."""
    alone = loop(spec, alone_s, None, cpu_s=more.get("loader_cpu_s", 0.0))
    if step_s is None:
        why = NotMeasured("no step was given")
        return Headroom(spec, environment(), alone, why, why, why)
    both = loop(
        spec, max(0.0, both_s - step_s), step_s, cpu_s=more.get("loader_cpu_s", 0.0), spread=more.get("spread", 0.03)
    )
    return Headroom(spec, environment(), alone, noisy(step_s, 60, 3), both, more.get("step_cpu_s", 0.0))


def profile(
    spec: LoaderFacts, waiting_s: float, cpu_s: float, queue_s: float = 0.0, n: int = 200, **more: Any
) -> StageProfile:
    w, c, q = noisy(waiting_s, n, 4), noisy(cpu_s, n, 5), noisy(queue_s, n, 6)
    return StageProfile(
        facts=spec,
        environment=environment(),
        where="workers" if spec.workers else "child",
        index=tuple(range(n)),
        worker=tuple(k % max(1, spec.workers) for k in range(n)),
        start_s=tuple(0.01 * k for k in range(n)),
        wall_s=tuple(a + b + d for a, b, d in zip(w, c, q, strict=True)),
        cpu_s=c,
        delay_s=more.get("delay_s", q),
        per_read=1.0,
        collate=StageSpans("collate", "collate_fn", (1e-5,) * 10, (1e-5,) * 10),
        transforms=more.get("transforms", ()),
    )


def gil(
    spec: LoaderFacts, verdict: str, why: str = "the GIL is held 90 % as much as by a pure-Python loop, 200 calls"
) -> GilCheck:
    scaling = ThreadScaling("yours", (1, 2, 4), ((100.0,) * 3, (101.0,) * 3, (99.0,) * 3))
    return GilCheck(spec, environment(), scaling, scaling, scaling, scaling, 0.7, 0.77, 0.01, 0.98, 200, verdict, why)


def evidence(spec: LoaderFacts | None = None, with_step: bool = True, **parts: Any) -> Evidence:
    spec = spec or facts()
    env = parts.pop("environment", environment())
    return Evidence(spec, env, with_step, **parts)
