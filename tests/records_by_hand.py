"""Records with numbers made by hand, for tests of what is shown: one factory for each kind."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

from loaderscope.records import (
    Check,
    Comparison,
    Environment,
    Finding,
    Fix,
    GilCheck,
    Headroom,
    LoaderFacts,
    LoopTiming,
    NotMeasured,
    Outcome,
    Preflight,
    Samples,
    StageProfile,
    StageSpans,
    ThreadScaling,
)

EVIL = "<script>alert(1)</script>\"'&<img src=x onerror=alert(2)>"
ABSENT = NotMeasured("the instrument is missing here")


def make_facts(workers=2, **changes):
    values = {
        "kind": "map", "loader": "DataLoader", "dataset": "Photographs", "length": 640, "batches": 20,
        "batch_size": 32, "num_workers": workers, "prefetch_factor": 2, "persistent_workers": False,
        "pin_memory": False, "drop_last": False, "in_order": True, "timeout_s": 0.0, "start_method": "fork",
        "sampler": "RandomSampler", "batch_sampler": "BatchSampler", "collate": "default_collate",
        "worker_init": "none", "has_generator": False, "has_getitems": False,
    }  # fmt: skip
    return LoaderFacts(**(values | changes))


def make_environment(**changes):
    missing = {f.name: ABSENT for f in dataclasses.fields(Environment) if "NotMeasured" in f.type}
    values = {
        "taken": "2026-01-01 12:00", "platform": "Linux", "python": "3.11", "torch": "2.14", "cores_logical": 4,
        "start_method": "fork", "sharing_strategy": "file_descriptor", "torch_threads": 4, "thread_pools": (),
    }  # fmt: skip
    return Environment(**(missing | values | changes))


def make_timing(batches=24, epochs=2, wait=0.02, compute=0.01, **changes):
    starts = tuple(range(0, batches, max(1, batches // epochs)))[:epochs]
    data = [wait * (1 + 0.2 * (i % 5)) for i in range(batches)]
    for start in starts:
        data[start] = wait * 40
    values = {
        "facts": make_facts(), "environment": ABSENT, "data_time_s": tuple(data),
        "compute_time_s": tuple(compute * (1 + 0.1 * (i % 3)) for i in range(batches)), "samples": (32,) * batches,
        "epoch_starts": starts, "iterator_s": (0.1,) * epochs, "wall_s": 2.0, "cpu_main_s": 0.5, "cpu_workers_s": 1.0,
        "ended": "epochs",
    }  # fmt: skip
    return LoopTiming(**(values | changes))


def make_headroom(**changes):
    values = {
        "facts": make_facts(), "environment": ABSENT, "alone": make_timing(compute_time_s=NotMeasured("no step")),
        "cached_s": tuple(0.01 + 0.001 * (i % 3) for i in range(12)), "both": make_timing(), "step_cpu_s": 0.01,
    }  # fmt: skip
    return Headroom(**(values | changes))


def make_stages(n=40, names=("Resize", "ToTensor"), **changes):
    wall = tuple(0.010 + 0.001 * (i % 4) for i in range(n))
    part = tuple(w / 10 for w in wall)
    values = {
        "facts": make_facts(), "environment": ABSENT, "where": "workers", "index": tuple(range(n)),
        "worker": tuple(i % 2 for i in range(n)), "start_s": tuple(0.01 * i for i in range(n)), "wall_s": wall,
        "cpu_s": tuple(w * 0.3 for w in wall), "delay_s": tuple(w * 0.1 for w in wall), "per_read": 1.0,
        "collate": StageSpans("collate", "collate", (0.004,) * 4, (0.003,) * 4),
        "transforms": tuple(StageSpans(name, name, part, part) for name in names),
    }  # fmt: skip
    return StageProfile(**(values | changes))


def make_scaling(name, *speedups):
    return ThreadScaling(name, (1, 2, 4), tuple((100 * s, 102 * s, 98 * s) for s in speedups))


def make_gil(**changes):
    values = {
        "facts": make_facts(), "environment": ABSENT, "user": make_scaling("user", 1, 1.9, 3.7),
        "sleep_control": make_scaling("sleep", 1, 2, 4), "python_control": make_scaling("loop", 1, 0.9, 0.8),
        "native_control": make_scaling("zlib", 1, 1.9, 2), "held_share": 0.05, "held_python": 0.8, "held_sleep": 0.02,
        "cpu_share": 0.1, "calls": 300, "verdict": "waits", "why": "4 threads 3.7x",
    }  # fmt: skip
    return GilCheck(**(values | changes))


def make_comparison(factor=0.5, **changes):
    before = tuple(0.004 + 0.0001 * (i % 5) for i in range(12))
    values = {
        "label": "num_workers 2 → 8", "before_label": "num_workers=2", "after_label": "num_workers=8",
        "before_s": Samples(before), "after_s": Samples(tuple(factor * v for v in before)),
    }  # fmt: skip
    return Comparison(**(values | changes))


def make_findings(words="16 % of a sample, n = 40"):
    helped = Fix(f"Raise num_workers {words}", f"num_workers = 8  # {words}", 2.0, make_comparison(), cost=words)
    useless = Fix(f"Pin memory {words}", "pin_memory = True", 1.0, make_comparison(1.5), cost=words)
    return (
        Finding(
            "io-latency", "present", 0.62, (f"waiting {words}",), (useless, helped), explained=("straggler-worker",)
        ),
        Finding(
            "worker-restart", "present", None, (f"each epoch {words}",), (Fix("Keep them", "persistent_workers=True"),)
        ),
        Finding("collate-bound", "undecided", None, (), (), decide_by=f"budget_s=120 {words}"),
    )


class Report(SimpleNamespace):
    """Stands for `diagnosis.report.Report`: views know a report by its attributes."""


def make_report(**changes):
    values = {
        "verdict": "The loop waits for data, because every read waits.", "headroom": make_headroom(),
        "timing": make_timing(), "profile": make_stages(), "gil": make_gil(), "findings": make_findings(),
        "portability": (), "environment": make_environment(), "facts": make_facts(), "notes": ("A note.",),
        "steps_run": 24, "elapsed_s": 12.5,
    }  # fmt: skip
    return Report(**(values | changes))


FAULT = Outcome("exception", "worker", 1.0, error_type="OSError", error_text=EVIL)
DRAWN = {
    "timing": make_timing(),
    "many batches": make_timing(2000, 5),
    "loader alone": make_timing(compute_time_s=NotMeasured("no step was given")),
    "one batch": make_timing(1, 1),
    "headroom": make_headroom(),
    "stages": make_stages(),
    "gil": make_gil(),
    "comparison": make_comparison(),
    "few samples": Samples((0.1, 0.12, 0.11)),
    "many samples": Samples((*(0.1 + 0.001 * (i % 17) for i in range(200)), 9.0)),
    "report": make_report(),
}
TABLES = [
    make_facts(),
    make_environment(),
    FAULT,
    *(record for record in DRAWN.values() if not isinstance(record, Report)),
]


def evil_records():
    facts = make_facts(loader=EVIL, dataset=EVIL, sampler=EVIL, collate=EVIL, start_method=EVIL, rebuild_refused=EVIL)
    fault = dataclasses.replace(FAULT, stderr_tail=EVIL)
    missing = NotMeasured(EVIL)
    environment = make_environment(python=EVIL, torch=EVIL, platform=EVIL, start_method=EVIL, gpu=missing)
    timing = make_timing(fault=fault, compute_time_s=missing)
    stages = make_stages(names=(EVIL,), fault=fault, delay_s=missing)
    gil = make_gil(user=missing, why=EVIL, fault=fault)
    comparison = make_comparison(label=EVIL, before_label=EVIL, after_label=EVIL, note=EVIL)
    checks = (Check(EVIL, "fail", EVIL, EVIL),)
    return [
        facts, environment, fault, timing, stages, gil, comparison, Preflight(environment, facts, checks),
        make_headroom(cached_s=missing, both=missing),
        make_report(
            verdict=EVIL, facts=facts, environment=environment, timing=timing, profile=stages, gil=gil,
            headroom=missing, findings=(*make_findings(EVIL), Finding(EVIL, EVIL, explained=(EVIL,))), notes=(EVIL,),
            portability=make_findings(EVIL),
        ),
    ]  # fmt: skip
