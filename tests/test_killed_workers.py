"""A worker killed from outside while `diagnose` runs, in each of its parts: told, and nothing left behind."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import psutil
import pytest

import bad_data as bad
from bad_data import load
from running import causes, reported

pytestmark = pytest.mark.slow


class Killer:
    """A `progress` that kills one forked process of ours a moment after a part has begun."""

    def __init__(self, part: str, after_s: float):
        self.part, self.after_s, self.timer, self.killed = part, after_s, None, []

    def __call__(self, what: str, share: float) -> None:
        if what == self.part and self.timer is None:
            self.timer = threading.Timer(self.after_s, self.kill)
            self.timer.start()

    def kill(self) -> None:
        me, end = psutil.Process(), time.monotonic() + 1
        while not self.killed and time.monotonic() < end:
            for process in me.children():
                with contextlib.suppress(psutil.Error):  # it may have ended meanwhile
                    # Only what was forked from here, and not multiprocessing's own helpers.
                    if process.cmdline() == me.cmdline() and not self.killed:
                        process.kill()
                        self.killed.append(process.pid)


@pytest.mark.parametrize("part", ["loader alone", "loader and step together"])
def test_a_worker_killed_while_the_loader_is_timed_is_a_finding(part):
    killer = Killer(part, 0.1)
    report = reported(load(bad.slow, 2), bad.ignore, budget_s=6, progress=killer)
    killer.timer.join()
    assert killer.killed and causes(report) == ["worker-killed"]
    assert "SIGKILL" in report.verdict and any("memory available" in e for e in report.top.evidence)


@pytest.mark.parametrize("part", ["where a sample's time goes", "GIL check", "as it is"])
def test_a_process_killed_in_a_later_part_is_told_where_it_was(part):
    killer = Killer(part, 0.1)
    report = reported(load(bad.slow, 2), bad.ignore, budget_s=8, progress=killer)
    if killer.timer is None:
        pytest.skip("the machine is too busy: this part did not fit into the budget")
    killer.timer.join()
    # A finding, or the reason why a part was not measured or a fix not tried.
    assert killer.killed and "SIGKILL" in json.dumps(report.to_dict())
