"""How long `diagnose` takes to a verdict on photographs, and whether it gives the same one each time.

The loader decodes and crops the bundled photographs with 2 workers and with none; a step that only waits plays the
device. Promised: the verdict comes within the budget (20 % or 5 s over it at most), and repeats agree.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

import torch
from loops import BATCH, photographs
from publishing import Table, Target, arguments, say, write

import loaderscope as ls
from loaderscope import samples
from loaderscope.faults import WaitingStep
from loaderscope.records import Row, is_measured, text

STEP_S = 0.03  # a batch of 16 takes a device about this long where a small network learns from 224 pixels
BUDGET_S, QUICK_BUDGET_S = 60.0, 6.0


@dataclass(frozen=True)
class Run:
    """One diagnosis: its wall and CPU seconds, and what it said. findings: (cause, verdict, impact or None)."""

    workers: int
    elapsed_s: float
    main_cpu_s: float
    verdict: str
    bound: str
    top: str
    findings: tuple[tuple[str, str, float | None], ...]
    fixes: tuple[str, ...]
    ended: str
    steps_run: int
    throughput: float | None


def diagnose_once(files: tuple, workers: int, budget_s: float) -> Run:
    """A loader and a step of its own, as a reader would call it."""
    loader, step = photographs(files, workers), WaitingStep(STEP_S)
    cpu, began = time.process_time(), time.perf_counter()
    report = ls.diagnose(loader, step, budget_s=budget_s)
    elapsed, cpu = time.perf_counter() - began, time.process_time() - cpu
    timing = report.timing
    rate = timing.throughput if is_measured(timing) else None
    return Run(
        workers=workers,
        elapsed_s=elapsed,
        main_cpu_s=cpu,
        verdict=report.verdict,
        bound=report.bound,
        top=report.top.cause if report.top is not None else "nothing",
        findings=tuple((f.cause, f.verdict, f.impact) for f in report.findings),
        fixes=tuple(f"{fix.title}: {fix.proof}" for f in report.findings for fix in f.fixes if fix.recommended),
        ended=report.ended,
        steps_run=report.steps_run,
        throughput=rate.value if rate is not None and rate.known else None,
    )


# --- judging ------------------------------------------------------------------------------------------------------


def times(runs: list[Run]) -> str:
    """Every time to the verdict, in the order of the runs: three are too few for an interval."""
    return ", ".join(text.seconds(run.elapsed_s) for run in runs)


def within_budget(runs: list[Run], budget_s: float) -> Target:
    """The longest run counts."""
    limit, longest = budget_s + max(0.2 * budget_s, 5.0), max(run.elapsed_s for run in runs)
    promise = f"{name_of(runs)}: a verdict within {text.seconds(limit)} (budget {text.seconds(budget_s)})"
    return Target(promise, f"longest of {len(runs)} {text.seconds(longest)}", "met" if longest <= limit else "missed")


def agreement(runs: list[Run]) -> Target:
    """Every repeat names the same bound and the same first cause; a single run agrees with itself only."""
    said = Counter((run.bound, run.top) for run in runs)
    seen = ", ".join(f"{bound}, {top} ({n} of {len(runs)})" for (bound, top), n in said.most_common())
    verdict = "undecided" if len(runs) < 2 else "met" if len(said) == 1 else "missed"
    return Target(f"{name_of(runs)}: the same verdict each time", seen, verdict)


def name_of(runs: list[Run]) -> str:
    return f"photographs, {runs[0].workers} workers"


def table(runs: list[Run]) -> Table:
    lines = [
        Row("time to verdict", times(runs)),
        Row("CPU of the main process", f"{text.seconds(sum(run.main_cpu_s for run in runs) / len(runs))} a diagnosis"),
    ]
    for k, run in enumerate(runs, 1):
        found = ", ".join(f"{cause} ({verdict})" for cause, verdict, _ in run.findings) or "none"
        lines += [
            Row(f"verdict {k}", f"{run.verdict} ({text.seconds(run.elapsed_s)}, {run.ended})"),
            Row("findings", found),
            *(Row("fix", fix) for fix in run.fixes),
        ]
    return Table(name_of(runs), tuple(lines))


def draw(groups: list[list[Run]], budget_s: float, ax: Any) -> None:
    """Seconds to the verdict, one dot a run."""
    for y, runs in enumerate(groups):
        ax.plot([run.elapsed_s for run in runs], [y] * len(runs), "o", color="#0072B2", alpha=0.7, markersize=8)
    ax.axvline(budget_s, color="#D55E00", linestyle="--", linewidth=1)
    ax.set_yticks(range(len(groups)), [name_of(runs) for runs in groups])
    ax.set(xlim=(0, None), ylim=(-0.6, len(groups) - 0.4))
    ax.set_xlabel("time to the verdict (s). Dots: diagnoses. Dashes: the budget.")


def main(words: list[str] | None = None) -> None:
    args = arguments(__doc__, words)
    images, budget_s, repeats = (96, QUICK_BUDGET_S, 1) if args.quick else (512, BUDGET_S, args.repeats)
    machine = ls.read_environment()
    runs: dict[int, list[Run]] = {2: [], 0: []}
    with tempfile.TemporaryDirectory(prefix="loaderscope-bench-") as folder:
        files = samples.make_images(folder, images, size=160 if args.quick else None, progress=False)
        for _ in range(repeats):
            for workers, done in runs.items():
                done.append(diagnose_once(files, workers, budget_s))
                print(f"{name_of(done)}: {text.seconds(done[-1].elapsed_s)}, {done[-1].verdict}", flush=True)
    groups = list(runs.values())
    targets = [judge for group in groups for judge in (within_budget(group, budget_s), agreement(group))]
    tables = [table(group) for group in groups]
    say([Table("Targets", tuple(target.row() for target in targets)), *tables])
    told = ". ".join(f"{name_of(group)}: {times(group)}" for group in groups)
    paths = write(
        args.out,
        "verdict",
        settings={
            "quick": args.quick, "repeats": repeats, "budget_s": budget_s, "images": images, "batch": BATCH,
            "step_s": STEP_S, "torch_threads": torch.get_num_threads(),
        },
        results={"loaders": [{"workers": w, "runs": [asdict(run) for run in done]} for w, done in runs.items()]},
        machine=machine,
        targets=targets,
        tables=tables,
        picture=(lambda ax: draw(groups, budget_s, ax), (8.0, 2.4), f"Time to the verdict. {told}"),
    )  # fmt: skip
    print("\n" + "\n".join(map(str, paths)))


if __name__ == "__main__":
    main()
