"""Ctrl-C at any moment, scripts that spawn, threads, warm thread pools, odd folders: each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import psutil
import pytest
from torch.utils.data import DataLoader

import bad_data as bad
import loaderscope as ls
from bad_data import load
from running import causes, check_report

TESTS = Path(__file__).parent
pytestmark = pytest.mark.slow

# A script tells when it is about to call diagnose, and what came of it.
HEAD = """
    import sys, threading
    import torch
    from torch.utils.data import DataLoader, Dataset
    import loaderscope as ls
    import bad_data as bad
    ls.diagnose  # what it imports is not what is interrupted

    class Mine(Dataset):
        def __len__(self):
            return 400
        def __getitem__(self, index):
            return torch.full((4,), float(index))
"""


class Script:
    """A script in a session of its own; afterwards nothing of the session is left."""

    def __init__(self, folder: Path, body: str, cwd: str | None = None):
        self.path = folder / "reader.py"
        self.path.write_text(textwrap.dedent(HEAD) + textwrap.dedent(body))
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen(
            [sys.executable, "-u", str(self.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment, start_new_session=True, cwd=cwd or folder,
        )  # fmt: skip

    def wait_for(self, word: str) -> None:
        for line in self.process.stdout:
            if word in line:
                return
        raise AssertionError(self.process.communicate()[1])

    def end(self, patience_s: float = 90.0) -> tuple[str, str]:
        try:
            out, err = self.process.communicate(timeout=patience_s)
            deadline = time.monotonic() + 3
            while (left := session(self.process.pid)) and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            for process in session(self.process.pid):
                process.kill()
        assert not left, f"left in its session: {left}"
        return out, err


def session(leader: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (OSError, psutil.Error):
            pass
    return found


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

INTERRUPTED = """
    if __name__ == "__main__":
        loader = bad.load(bad.slow, {workers})
        print("begin", flush=True)
        report = ls.diagnose(loader, {step}, budget_s=20)
        print(report)
        print("ended", report.ended, "threads", threading.active_count())
"""


MOMENTS = [
    (0, 0.05, "main"), (0, 0.5, "group"), (0, 1.5, "main"), (0, 3.0, "group"), (0, 5.0, "main"),
    (2, 0.05, "group"), (2, 0.5, "main"), (2, 1.5, "group"), (2, 3.0, "main"), (2, 5.0, "group"), (2, 9.0, "main"),
]  # fmt: skip


@pytest.mark.parametrize(("workers", "after_s", "whom"), MOMENTS)
def test_ctrl_c_gives_the_report_so_far(workers, after_s, whom, tmp_path):
    script = Script(tmp_path, INTERRUPTED.format(workers=workers, step="bad.ignore"))
    script.wait_for("begin")
    time.sleep(after_s)
    # A terminal sends it to the whole foreground group, a notebook to the kernel alone.
    (os.killpg if whom == "group" else os.kill)(script.process.pid, signal.SIGINT)
    pressed = time.monotonic()
    out, err = script.end(30)
    assert time.monotonic() - pressed < 12
    assert script.process.returncode == 0, err
    assert "loaderscope report" in out and "ended interrupted" in out and "threads 1" in out
    assert "interrupted: this is what was measured until then" in out
    assert "Traceback" not in err


def test_ctrl_c_in_the_readers_step(tmp_path):
    script = Script(tmp_path, INTERRUPTED.format(workers=2, step="lambda batch: __import__('time').sleep(0.3)"))
    script.wait_for("begin")
    time.sleep(2.5)
    os.kill(script.process.pid, signal.SIGINT)
    out, err = script.end(30)
    assert script.process.returncode == 0 and "ended interrupted" in out, err


# --- scripts and start methods ----------------------------------------------------------------------------------------


def test_a_class_of_a_script_works_under_spawn(tmp_path):
    script = Script(tmp_path, """
        if __name__ == "__main__":
            loader = DataLoader(Mine(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
            report = ls.diagnose(loader, budget_s=10)
            print(report)
            print("batches", report.timing.batches, [f.cause for f in report.findings])
        """)  # fmt: skip
    out, err = script.end()
    assert script.process.returncode == 0, err
    assert "Traceback" not in err
    batches = int(out.split("batches ")[-1].split()[0])
    # On a machine so busy that a worker imports for longer than that, it is undecided, and never a wrong accusation.
    assert batches > 0 or "it may be slow rather than hung" in out


def test_a_script_without_the_usual_guard_is_told_where_it_goes_wrong(tmp_path):
    script = Script(tmp_path, """
        loader = DataLoader(Mine(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
        print(ls.diagnose(loader, budget_s=6))
        """)  # fmt: skip
    out, err = script.end()
    assert script.process.returncode == 0, err
    assert 'put it under if __name__ == "__main__"' in err
    assert out.count("loaderscope report") == 1, "a worker made a report of its own"
    assert "worker-crash" in out or "it may be slow rather than hung" in out, "that machine is too busy to tell"


# --- where and when it is called --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_on_a_thread(workers):
    reports = []
    thread = threading.Thread(target=lambda: reports.append(ls.diagnose(load(bad.slow, workers), budget_s=3)))
    thread.start()
    thread.join(60)
    assert reports and check_report(reports[0]) and reports[0].timing.batches and not causes(reports[0], "safety")


@pytest.mark.parametrize("make", [bad.hang, bad.leave, bad.raise_at_7])
@pytest.mark.parametrize("workers", [0, 2])
def test_faults_on_a_thread(make, workers):
    reports = []
    thread = threading.Thread(target=lambda: reports.append(ls.diagnose(load(make, workers), budget_s=2)))
    thread.start()
    thread.join(60)
    wanted = {bad.hang: "hang", bad.leave: "worker-crash", bad.raise_at_7: "worker-error"}[make]
    assert reports and check_report(reports[0]) and reports[0].findings[0].cause == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_after_parallel_torch_operations_in_the_main_process(workers, tmp_path):
    """The copied thread pool of a forked child has no threads: whoever uses it waits for ever."""
    script = Script(tmp_path, f"""
        class Multiplies(Mine):
            def __getitem__(self, index):
                return (torch.ones(300, 300) @ torch.ones(300, 300))[0, :4]

        if __name__ == "__main__":
            torch.set_num_threads(2)
            torch.ones(1500, 1500) @ torch.ones(1500, 1500)
            report = ls.diagnose(DataLoader(Multiplies(), batch_size=4, num_workers={workers}), budget_s=3)
            print("batches", report.timing.batches, "threads", torch.get_num_threads())
            print(report)
        """)  # fmt: skip
    out, err = script.end()
    assert script.process.returncode == 0, err
    assert "threads 2" in out and "batches 0" not in out and "hang" not in out


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="no /proc here")
def test_in_a_folder_that_cannot_be_written(tmp_path):
    script = Script(tmp_path, """
        if __name__ == "__main__":
            for workers in (0, 1):
                print(ls.diagnose(DataLoader(Mine(), batch_size=4, num_workers=workers), budget_s=1))
            try:
                ls.diagnose([1, 2, 3], budget_s=0.5).save("report.html")
            except ls.errors.RecordError as error:
                print(error)
        """.replace("ls.errors", "__import__('loaderscope.errors').errors"), cwd="/proc")  # fmt: skip
    out, err = script.end()
    assert script.process.returncode == 0, err
    assert out.count("loaderscope report") == 2 and "could not be written" in out and "Traceback" not in err


def test_two_at_once_on_two_threads():
    """Not a sensible thing to measure by, and no reason to break."""
    reports = []
    threads = [
        threading.Thread(target=lambda w=w: reports.append(ls.diagnose(load(bad.slow, w), budget_s=2))) for w in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(reports) == 2 and all(check_report(r) and r.timing.batches for r in reports)


def test_a_factory_and_a_persistent_loader_leave_no_worker():
    made = []

    def make_loader(**overrides):
        made.append(DataLoader(bad.Rows(), batch_size=4, **{"num_workers": 1, "persistent_workers": True, **overrides}))
        return made[-1]

    report = ls.diagnose(make_loader, bad.ignore, budget_s=3)
    assert check_report(report) and len(made) > 1 and not any(loader._iterator for loader in made)
