"""What watching costs: `time_loop` and `profile_stages` against the plain loop, in interleaved pairs.

Promised: `time_loop` takes at most 1 % of an epoch's CPU time (main and workers together) on photographs and no
measurable wall time; `profile_stages` at most 3 % of CPU on photographs and a fifth of the throughput of cheap
samples read at 10 000 a second. The loaders do real work; the training step does nothing, which is the worst case.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from loops import BATCH, CHEAP_RATE, Ready, bare, cheap_rows, in_memory, photographs, plain, profiled, timed
from pairing import Call, Cost, Pair, at_most, extra_per, no_loss, ratio, run_pairs
from publishing import Table, Target, arguments, say, write

import loaderscope as ls
from loaderscope import samples
from loaderscope.records import Estimate, Row, text

CPU_SHARE_LOOP, CPU_SHARE_PROFILE, THROUGHPUT_KEPT = 1.01, 1.03, 0.80
QUICK_PAIRS = 2
IN_MEMORY, READY = "time_loop on rows in memory", "time_loop on ready batches"
CHEAP = "profile_stages on cheap samples"


# --- cases --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One loader, plain and watched. items: batches or samples of one run, named `item`."""

    name: str
    what: str
    plain: Call
    watched: Call
    items: int
    item: str = "batch"
    targets: Callable[[Result], list[Target]] = lambda result: []


@dataclass(frozen=True)
class Result:
    case: Case
    pairs: list[Pair]

    @property
    def cpu(self) -> Estimate:
        return ratio(self.pairs, lambda cost: cost.cpu_s)

    @property
    def wall(self) -> Estimate:
        return ratio(self.pairs, lambda cost: cost.wall_s)

    @property
    def loading(self) -> Estimate | None:
        """Ratio of the time between first and last batch, where both sides tell it."""
        told = all(cost.loading_s for pair in self.pairs for cost in (pair.plain, pair.watched))
        return ratio(self.pairs, lambda cost: cost.loading_s) if told else None

    @property
    def extra_cpu_s(self) -> Estimate:
        """CPU seconds more for each item, starting and ending spread over all of them."""
        return extra_per(self.pairs, lambda cost: cost.cpu_s, self.case.items)

    def a_run(self, of: Callable[[Cost], float]) -> float:
        """Median of the plain runs."""
        return float(np.median([of(pair.plain) for pair in self.pairs]))

    def to_dict(self) -> dict:
        case = self.case
        found = {"cpu_ratio": self.cpu, "wall_ratio": self.wall, "loading_ratio": self.loading}
        return {
            "name": case.name,
            "what": case.what,
            "items": case.items,
            "item": case.item,
            **{name: numbers(estimate) for name, estimate in found.items()},
            "extra_cpu_s_per_item": numbers(self.extra_cpu_s),
            "pairs": [finite(asdict(pair)) for pair in self.pairs],
        }

    def table(self) -> Table:
        case = self.case
        cpu, wall = self.a_run(lambda cost: cost.cpu_s), self.a_run(lambda cost: cost.wall_s)
        extra = self.extra_cpu_s
        span = f"{text.seconds(extra.low)} to {text.seconds(extra.high)}"
        lines = [
            Row("what", case.what),
            Row("a plain run", f"{case.items:,} {plural(case.item)}, {text.seconds(cpu)} CPU, {text.seconds(wall)}"),
            Row("CPU, main and workers", percent(self.cpu)),
            Row("wall time", percent(self.wall)),
            Row(f"CPU for each {case.item}", f"{text.seconds(extra.value)} more ({span})"),
        ]
        if self.loading is not None:
            rate = case.items / self.a_run(lambda cost: cost.loading_s)
            lines.append(Row("between first and last batch", f"{percent(self.loading)}, at {text.rate(rate)} plain"))
        return Table(f"{case.name} ({text.count(len(self.pairs), 'pair')})", tuple(lines))


def finite(value: Any) -> Any:
    """The same with None where a number was not measured (nan is not JSON)."""
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers(estimate: Estimate | None) -> dict | None:
    return None if estimate is None else finite({**vars(estimate)})


def plural(word: str) -> str:
    return {"batch": "batches"}.get(word, word + "s")


def percent(r: Estimate) -> str:
    """A ratio as what it adds: "+0.4 % (-0.2 to +1.1 %)"."""
    if not r.known:
        return "unknown"
    value, low, high = (100 * (x - 1) for x in (r.value, r.low, r.high))
    return f"{value:+.2f} % ({low:+.2f} to {high:+.2f} %)"


def loop_targets(result: Result) -> list[Target]:
    name = result.case.name
    return [
        Target(f"{name}: at most +1 % CPU", percent(result.cpu), at_most(result.cpu, CPU_SHARE_LOOP)),
        Target(f"{name}: no loss of wall time", percent(result.wall), no_loss(result.wall)),
    ]


def profile_targets(result: Result) -> list[Target]:
    promise = f"{result.case.name}: at most +3 % CPU"
    return [Target(promise, percent(result.cpu), at_most(result.cpu, CPU_SHARE_PROFILE))]


def cheap_targets(result: Result) -> list[Target]:
    slower = result.loading
    kept = f"{1 / slower.value:.0%} kept ({1 / slower.high:.0%} to {1 / slower.low:.0%})"
    promise = f"{result.case.name}: at least 80 % of the throughput at {CHEAP_RATE:,} samples/s"
    return [Target(promise, kept, at_most(slower, 1 / THROUGHPUT_KEPT))]


def on_photographs(files: tuple[Path, ...]) -> list[Case]:
    """Both calls with 2 workers and with none. A profile covers 2 epochs: about its default of 4 s."""
    batches = len(photographs(files, 0))
    photos = f"{len(files)} photographs, decoded and cropped to 224 pixels, batches of {BATCH}"
    out = []
    for workers in (2, 0):
        loader, what = photographs(files, workers), f"{photos}, num_workers={workers}"
        name = f"time_loop on photographs, {workers} workers"
        out.append(Case(name, what, bare(loader), timed(loader), batches, targets=loop_targets))
    for workers in (2, 0):
        loader, what = photographs(files, workers), f"{photos}, num_workers={workers}, 2 epochs"
        what += "" if workers else " (the profile in a child process, whose start is most of its cost)"
        name, sides = f"profile_stages on photographs, {workers} workers", (bare(loader, 2), profiled(loader, 2))
        out.append(Case(name, what, *sides, 2 * batches, targets=profile_targets))
    loader, none = photographs(files, 2), "the same loop on both sides: what the machine alone makes of a pair"
    out.append(Case("plain against plain, photographs, 2 workers", none, bare(loader), bare(loader), batches))
    return out


def from_memory(batches: int, rows: int) -> list[Case]:
    memory, ready, cheap = in_memory(batches), Ready(batches), cheap_rows(rows)
    small, empty = (
        "DataLoader on tensors, batches of 4, num_workers=0",
        "a list of batches: nothing but the loop itself",
    )
    cheapest = "pictures of 32 x 32 pixels from memory, num_workers=1"
    return [
        Case(IN_MEMORY, small, bare(memory), timed(memory), batches),
        Case(READY, empty, bare(ready), timed(ready), batches),
        Case(CHEAP, cheapest, plain(cheap), profiled(cheap), rows, "sample", cheap_targets),
    ]


# --- writing ------------------------------------------------------------------------------------------------------


def draw(results: list[Result], ax: Any) -> None:
    """Every pair's ratio as a dot, the interval of their mean as a bar."""
    shown = [r for r in results if r.case.name != READY]  # an empty loop: no share of anything
    for y, result in enumerate(reversed(shown)):
        each = [100 * (pair.watched.cpu_s / pair.plain.cpu_s - 1) for pair in result.pairs]
        ax.plot(each, [y] * len(each), "o", color="#56B4E9", alpha=0.6, markersize=4)
        low, high = (100 * (x - 1) for x in (result.cpu.low, result.cpu.high))
        ax.plot([low, high], [y, y], color="#0072B2", linewidth=5, solid_capstyle="butt")
    ax.set_yticks(range(len(shown)), [r.case.name for r in reversed(shown)])
    ax.axvline(0, color="#1A1A1A", linewidth=1)
    ax.axvline(1, color="#D55E00", linewidth=1, linestyle="--")
    ax.set_xscale("symlog", linthresh=2)
    ticks = (-50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50)
    ax.set_xticks(ticks, [f"{tick:+d}" if tick else "0" for tick in ticks], minor=False)
    ax.set_xticks((), minor=True)
    ax.set_xlabel("CPU time more than the plain loop (%). Dots: pairs. Bar: 95 % interval. Dashes: 1 %.")


def picture(results: list[Result]) -> tuple[Callable, tuple[float, float], str]:
    words = "CPU time more than the plain loop. " + ". ".join(f"{r.case.name}: {percent(r.cpu)}" for r in results)
    return (lambda ax: draw(results, ax)), (10.0, 4.5), words


def main(words: list[str] | None = None) -> None:
    args = arguments(__doc__, words)
    pairs = QUICK_PAIRS if args.quick else args.pairs
    torch.set_num_threads(1)  # as in workers; idle threads that spin would drown the percent that is looked for
    machine, results = ls.read_environment(), []
    images, batches, rows = (32, 300, 1000) if args.quick else (384, 10_000, 10_000)
    with tempfile.TemporaryDirectory(prefix="loaderscope-bench-") as folder:
        files = samples.make_images(folder, images, size=160 if args.quick else None, progress=False)
        for case in on_photographs(files) + from_memory(batches, rows):
            began = time.perf_counter()
            results.append(Result(case, run_pairs(case.plain, case.watched, pairs)))
            print(f"{case.name}: {pairs} pairs in {time.perf_counter() - began:.0f} s", flush=True)
    targets = [target for result in results for target in result.case.targets(result)]
    tables = [result.table() for result in results]
    say([Table("Targets", tuple(target.row() for target in targets)), *tables])
    paths = write(
        args.out,
        "overhead",
        settings={"quick": args.quick, "pairs": pairs},
        results={"cases": [result.to_dict() for result in results]},
        machine=machine,
        targets=targets,
        tables=tables,
        picture=picture(results),
    )
    print("\n" + "\n".join(map(str, paths)))


if __name__ == "__main__":
    main()
