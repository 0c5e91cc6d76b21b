"""What to change: code to paste, what the model predicts, and what it costs. Proof comes later, by running it."""

from __future__ import annotations

from typing import Any

from loaderscope.diagnosis import costs
from loaderscope.diagnosis.evidence import Evidence
from loaderscope.experiments.predict import CANDIDATES, Cost, best_workers, predicted_rate
from loaderscope.records import Fix, Outcome, is_measured, text


def for_io_latency(evidence: Evidence) -> tuple[Fix, ...]:
    """More samples in flight: workers beyond the core count, then threads inside the dataset."""
    cost = costs.cost_of(evidence)
    why = "more samples wait at the same time"
    more = _workers_fix(evidence, cost, at_most=CANDIDATES[-1], why=why) if cost else None
    return (more, _threads_fix()) if more else (_threads_fix(),)


def for_cpu_bound(evidence: Evidence) -> tuple[Fix, ...]:
    """Workers up to the cores, then less work per sample."""
    return _computing_fixes(evidence, _cheaper_fix(evidence))


def for_python_bound(evidence: Evidence) -> tuple[Fix, ...]:
    return _computing_fixes(evidence, _vectorise_fix(evidence))


def for_no_overlap(evidence: Evidence) -> tuple[Fix, ...]:
    cost = costs.cost_of(evidence)
    if cost is None:
        return (
            _change(evidence, {"num_workers": 1}, "Load in a worker while the step runs", None, "one more process"),
        )
    fix = _workers_fix(evidence, cost, at_most=CANDIDATES[-1], why="the next batches are loaded while the step runs")
    return (fix,) if fix else ()


def for_interference(evidence: Evidence) -> tuple[Fix, ...]:
    """Give the step its cores back: fewer workers where one still keeps up, fewer step threads otherwise."""
    out = []
    workers = evidence.facts.workers
    if workers > 1:
        out.append(
            _change(
                evidence,
                {"num_workers": workers - 1},
                f"Use {workers - 1} workers, so that the step keeps its cores",
                None,
                "",
            )
        )
    cores = evidence.environment.cores_allowed
    threads = max(1, int(cores) - max(1, workers))
    out.append(
        Fix(
            f"Let the step use {text.count(threads, 'thread')}",
            f"import torch\n\ntorch.set_num_threads({threads})  # in the training process, before the first step",
            unverified="not tried: it changes your process, not the loader",
            cost="a step that runs alone becomes slower",
        )
    )
    return tuple(out)


def for_error(fault: Outcome) -> tuple[Fix, ...]:
    index = fault.last_index if is_measured(fault.last_index) else None
    if index is None:
        return ()
    code = f"dataset = loader.dataset\ndataset[{index}]  # raises here, in your own process, with the whole traceback"
    return (Fix(f"Read sample {index} by itself", code, unverified="shows the error; does not mend it"),)


def for_death(fault: Outcome, killed: bool) -> tuple[Fix, ...]:
    if killed:
        code = "import loaderscope as ls\n\nls.preflight(loader)  # memory, /dev/shm, open files"
        return (Fix("See whether memory ran out", code, unverified="shows the limits; does not mend them"),)
    index = fault.last_index if is_measured(fault.last_index) else 0
    code = (
        "import faulthandler\n\nfrom loaderscope import isolation\n\nfaulthandler.enable()\n"
        f"isolation.run_in_child(loader.dataset.__getitem__, {index}, deadline_s=30)  # dies there, not here"
    )
    return (
        Fix(
            f"Read sample {index} in a child process, with native stacks",
            code,
            unverified="shows where; does not mend it",
        ),
    )


def for_hang(fault: Outcome) -> tuple[Fix, ...]:
    if fault.where != "worker":
        code = "# see the stack in the evidence: the innermost line is what it waits for"
        return (Fix("Give what it waits for a time limit", code, unverified="turns the hang into an error"),)
    code = 'loader.multiprocessing_context = "spawn"  # workers that inherit no lock, thread or open handle'
    return (
        Fix(
            "Start the workers afresh instead of forking them",
            code,
            unverified="decides whether the fork is to blame",
            cost="the dataset is pickled to every worker",
        ),
    )


# --- parts ----------------------------------------------------------------------------------------------------------


def _computing_fixes(evidence: Evidence, otherwise: Fix | None) -> tuple[Fix, ...]:
    cost = costs.cost_of(evidence)
    fix = None
    if cost is not None:
        at_most = max(1, int(evidence.environment.cores_allowed))
        fix = _workers_fix(evidence, cost, at_most=at_most, why="every core loads")
    return tuple(f for f in (fix, otherwise) if f is not None)


def _workers_fix(evidence: Evidence, cost: Cost, *, at_most: int, why: str) -> Fix | None:
    """The smallest worker count the model holds for near the best, where that is more than there are now."""
    now = evidence.facts.workers
    best = best_workers(cost, at_most)
    if best <= now:
        return None
    changes: dict[str, Any] = {"num_workers": best}
    expected = predicted_rate(best, cost) / predicted_rate(now, cost)
    each = evidence.environment
    memory = "each worker is a process of its own" + (
        "" if each.start_method == "fork" else ", with its own copy of the dataset"
    )
    return _change(evidence, changes, f"Use num_workers={best}: {why}", expected, memory)


def _change(evidence: Evidence, changes: dict[str, Any], title: str, expected: float | None, cost: str) -> Fix:
    """A configuration change; `diagnose` fills in code that fits the reader's loader and the proof."""
    arguments = ", ".join(f"{k}={v!r}" for k, v in changes.items())
    return Fix(title, f"DataLoader(dataset, {arguments})", expected, None, "not tried here", cost, changes)


def _threads_fix() -> Fix:
    code = '''import os
from concurrent.futures import ThreadPoolExecutor

from torch.utils.data import Dataset


class Concurrent(Dataset):
    """Reads the samples of a batch on threads; the pool is made in each worker, never before the fork."""

    def __init__(self, dataset, threads=8):
        self.dataset, self.threads, self.pool, self.pid = dataset, threads, None, None

    def __len__(self):
        return len(self.dataset)

    def __getitems__(self, indices):
        if self.pid != os.getpid():
            self.pool, self.pid = ThreadPoolExecutor(self.threads), os.getpid()
        return list(self.pool.map(self.dataset.__getitem__, indices))


dataset = Concurrent(dataset)'''
    return Fix(
        "Read the samples of a batch on threads", code, cost="the dataset must be safe to call from several threads"
    )


def _cheaper_fix(evidence: Evidence) -> Fix | None:
    parts = _costliest(evidence)
    if not parts:
        return None
    code = _price_list(parts) + (
        "# Do once what never changes (decode, resize) and store the result.\n"
        "# For large JPEG files, decode at a smaller scale:\n"
        "image = Image.open(path)\n"
        'image.draft("RGB", (2 * size, 2 * size))  # before load(): decodes at 1/2, 1/4 or 1/8'
    )
    return Fix(f"Make a sample cheaper: {parts[0]}", code, cost="pixels differ slightly from a full decode")


def _vectorise_fix(evidence: Evidence) -> Fix | None:
    parts = _costliest(evidence)
    if not parts:
        return None
    code = _price_list(parts) + (
        "# Replace the Python loop by array operations:\n"
        "# one NumPy or torch call over the whole sample instead of one per element."
    )
    return Fix(f"Take the Python loop out of the sample: {parts[0]}", code)


def _price_list(parts: list[str]) -> str:
    return "# What one sample costs, measured (mean seconds a call):\n" + "".join(f"#   {p}\n" for p in parts)


def _costliest(evidence: Evidence) -> list[str]:
    profile = evidence.profile
    if not is_measured(profile) or not profile.n:
        return []
    whole = sum(profile.wall_s)
    stages = sorted(((sum(s.wall_s), s.name) for s in profile.transforms), reverse=True)
    rest = whole - sum(t for t, _ in stages)
    parts = [*stages, (rest, "the rest of __getitem__")] if stages else [(whole, "__getitem__")]
    parts.sort(reverse=True)
    each = profile.n * profile.per_read
    return [f"{name} {text.seconds(total / each)} ({text.share(total / whole)})" for total, name in parts[:4]]
