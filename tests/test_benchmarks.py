"""The benchmarks: their arithmetic on made-up numbers, and that each runs and writes what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks import pairing
from benchmarks.pairing import Cost, Pair, at_most, cost_of, extra_per, no_loss, ratio, run_pairs
from loaderscope.faults import work
from loaderscope.records import Estimate

FOLDER = Path(pairing.__file__).parent


def cpu(cost):
    return cost.cpu_s


def pairs_of(n, true_ratio, drift=0.0, second=1.0):
    """Made-up pairs: a machine that slows down by `drift` a run, and a side that costs `second` when it runs second."""
    out = []
    for k in range(n):
        base = 1 + drift * k
        order = "AB" if k % 2 == 0 else "BA"
        plain, watched = (1.0, second) if order == "AB" else (second, 1.0)
        whole = base * true_ratio * watched
        out.append(Pair(order, Cost(0.3 * base * plain, 0.7 * base * plain, base), Cost(0.1, whole - 0.1, base)))
    return out


# --- arithmetic ---------------------------------------------------------------------------------------------------


def test_a_constant_ratio_comes_out_exactly():
    found = ratio(pairs_of(30, 1.02), cpu)
    assert (found.value, found.low, found.high) == pytest.approx((1.02, 1.02, 1.02)) and found.n == 30


def test_drift_of_the_machine_cancels_within_pairs():
    found = ratio(pairs_of(30, 1.02, drift=0.2), cpu)
    assert (found.value, found.low, found.high) == pytest.approx((1.02, 1.02, 1.02))


def test_what_running_second_brings_cancels_over_the_order():
    found = ratio(pairs_of(30, 1.02, second=0.9), cpu)
    # Not only the mean: a block of neighbours holds as many of either order, so the interval stays narrow too.
    assert (found.value, found.low, found.high) == pytest.approx((1.02, 1.02, 1.02))
    uneven = [pair for pair in pairs_of(60, 1.02, second=0.9) if pair.order == "AB"]
    assert ratio(uneven, cpu).value == pytest.approx(1.02 * 0.9)  # had the order not alternated


def test_main_and_children_are_both_counted():
    pair = Pair("AB", Cost(1.0, 3.0, 5.0), Cost(2.0, 4.0, 5.0))
    assert ratio([pair], cpu).value == pytest.approx(1.5)
    assert ratio([pair], lambda cost: cost.wall_s).value == pytest.approx(1.0)
    assert extra_per([pair], cpu, 100).value == pytest.approx(0.02)


def test_the_interval_follows_the_spread_of_the_pairs():
    noisy = [Pair("AB", Cost(1, 0, 1), Cost(1.1 if k % 3 else 0.9, 0, 1)) for k in range(30)]
    found = ratio(noisy, cpu)
    assert 0.9 < found.low < found.value < found.high < 1.1


@pytest.mark.parametrize(
    ("low", "value", "high", "n", "capped", "lossless"),
    [
        (1.001, 1.004, 1.008, 30, "met", "missed"),
        (0.990, 1.000, 1.008, 30, "met", "met"),
        (0.990, 1.005, 1.020, 30, "undecided", "met"),
        (1.015, 1.020, 1.025, 30, "missed", "missed"),
        (1.000, 1.000, 1.000, 29, "undecided", "undecided"),
        (float("nan"), float("nan"), float("nan"), 30, "undecided", "undecided"),
    ],
)
def test_a_target_is_judged_by_the_whole_interval(low, value, high, n, capped, lossless):
    seen = Estimate(value, low, high, "ratio", n)
    assert (at_most(seen, 1.01), no_loss(seen)) == (capped, lossless)


def test_pairs_run_a_b_b_a():
    ran = []
    pairs = run_pairs(lambda: ran.append("A"), lambda: ran.append("B"), 4)
    assert "".join(ran) == "AB" + "ABBAABBA" and [pair.order for pair in pairs] == ["AB", "BA", "AB", "BA"]


class Spinning(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, index):
        work.spin_native(0.02)
        return torch.tensor(index)


def test_the_cpu_of_workers_is_counted_as_the_childrens():
    loader = DataLoader(Spinning(), batch_size=4, num_workers=2)
    cost = cost_of(lambda: sum(1 for _ in loader) and None)
    assert cost.children_s >= 16 * 0.02 and cost.wall_s > 0 and cost.main_s >= 0
    alone = cost_of(lambda: work.spin_native(0.2) and None)
    assert alone.main_s >= 0.2 and alone.children_s == 0


def test_a_run_that_leaves_workers_behind_is_refused():
    loader = DataLoader(Spinning(), batch_size=4, num_workers=1)
    kept = []

    def run():
        kept.append(iter(loader))

    with pytest.raises(RuntimeError, match="1 worker"):
        cost_of(run)
    kept.pop()._shutdown_workers()


# --- the benchmarks themselves ------------------------------------------------------------------------------------


def run_quickly(name: str, out: Path) -> tuple[dict, str]:
    """Run one as `make bench` does, with --quick; its JSON and its page."""
    command = [sys.executable, str(FOLDER / f"bench_{name}.py"), "--out", str(out), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads((out / f"{name}.json").read_text())
    page = (out / f"{name}.html").read_text()
    assert data["benchmark"] == name and data["machine"]["@"] == "Environment" and data["settings"]["quick"] is True
    assert {"python", "torch", "loaderscope"} <= data["versions"].keys()
    assert {t["verdict"] for t in data["targets"]} <= {"met", "missed", "undecided"} and data["targets"]
    assert "data:image/png;base64," in page and "http" not in page and page.count("</main>") == 1
    return data, page


@pytest.mark.slow
def test_overhead_writes_every_pair_and_concludes_nothing_from_two(tmp_path):
    data, page = run_quickly("overhead", tmp_path)
    names = [case["name"] for case in data["cases"]]
    assert sum(name.startswith("time_loop") for name in names) == 4 and len(set(names)) == len(names) == 8
    for case in data["cases"]:
        assert [pair["order"] for pair in case["pairs"]] == ["AB", "BA"] and case["name"] in page
        for pair in case["pairs"]:
            for side in (pair["plain"], pair["watched"]):
                assert side["main_s"] + side["children_s"] > 0 and side["wall_s"] > 0
                assert (side["children_s"] > 0) >= ("2 workers" in case["name"])
        found = case["cpu_ratio"]
        assert 0 < found["low"] <= found["value"] <= found["high"] and found["n"] == 2
    cheap = data["cases"][-1]
    assert cheap["loading_ratio"]["value"] > 0 and cheap["pairs"][0]["plain"]["loading_s"] > 0
    assert {t["verdict"] for t in data["targets"]} == {"undecided"} and len(data["targets"]) == 7


@pytest.mark.slow
def test_verdict_writes_what_was_said_and_how_long_it_took(tmp_path):
    data, page = run_quickly("verdict", tmp_path)
    assert [group["workers"] for group in data["loaders"]] == [2, 0]
    for group in data["loaders"]:
        (run,) = group["runs"]
        assert run["elapsed_s"] > 0 and run["steps_run"] > 0 and run["verdict"]
        assert run["ended"] in ("complete", "budget")
        assert f"photographs, {group['workers']} workers" in page
    assert len(data["targets"]) == 4
