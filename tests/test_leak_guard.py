"""The leak guard of conftest.py sees each kind of leak, and stays silent about what is no leak.

A pytest of its own runs a planted file in a child process, with the guard's grace period shortened.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow

LEAKS = """
import os, signal, subprocess, sys, threading, time
from multiprocessing import shared_memory
kept = []

def test_thread():
    threading.Thread(target=time.sleep, args=(1.5,)).start()

def test_child():
    kept.append(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]))

def test_file():
    kept.append(open(__file__))

def test_pipe():
    kept.append(os.pipe())

def test_segment():
    kept.append(shared_memory.SharedMemory(create=True, size=64))

def test_variable():
    os.environ["LEFT_BY_TEST"] = "1"

def test_signal():
    signal.signal(signal.SIGUSR1, lambda *_: None)

def test_folder():
    os.chdir("/")

def test_switch_interval():
    sys.setswitchinterval(0.001)

def test_workers():
    from torch.utils.data import DataLoader
    iterator = iter(DataLoader(range(64), num_workers=1))
    next(iterator)
    kept.append(iterator)
"""

NO_LEAKS = """
import os, threading, time
import pytest
from torch.utils.data import DataLoader

def test_workers_collected_late():
    iterator = iter(DataLoader(range(64), num_workers=1))
    next(iterator)
    cycle = [iterator]
    cycle.append(cycle)

def test_thread_that_is_about_to_end():
    threading.Thread(target=time.sleep, args=(0.05,)).start()

def test_variable(monkeypatch):
    monkeypatch.setenv("SET_AND_TAKEN_BACK", "1")

@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_loader(method):
    assert len(list(DataLoader(range(8), num_workers=1, multiprocessing_context=method))) == 8

@pytest.mark.leaks_ok(reason="shows the marker")
def test_marked():
    os.environ["MARKED"] = "1"
"""


def run_planted(folder: Path, code: str) -> str:
    conftest = (HERE / "conftest.py").read_text()
    assert "GRACE_S = 2.0" in conftest
    (folder / "conftest.py").write_text(conftest.replace("GRACE_S = 2.0", "GRACE_S = 0.5"))
    (folder / "test_planted.py").write_text(code)
    config = ["-c", str(HERE.parent / "pyproject.toml"), "--rootdir", str(folder), "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *config, str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300).stdout


@pytest.fixture(scope="module")
def leaking(tmp_path_factory) -> str:
    return run_planted(tmp_path_factory.mktemp("leaking"), LEAKS)


EXPECTED = {
    "test_thread": r"thread '.*' .*is still running",
    "test_child": r"child process \d+ is still there: .*time\.sleep\(60\)",
    "test_file": r"1 more open: .*test_planted\.py",
    "test_pipe": r"2 more open: pipe:",
    "test_segment": r"shared memory left in /dev/shm: ",
    "test_variable": r"os\.environ\['LEFT_BY_TEST'\] was set, changed or removed",
    "test_signal": r"handler of SIGUSR1 was .*, is now <function",
    "test_folder": r"working folder was '.*', is now '/'",
    "test_switch_interval": r"switch interval was 0\.005, is now 0\.001",
    "test_workers": r"child process \d+ is still there: .*pytest",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_leak_is_named(leaking, name):
    section = re.search(rf"_ ERROR at teardown of {name} _+\n(.*?)(?=\n_____|\n=====)", leaking, re.DOTALL)
    assert section, f"the guard said nothing about {name}:\n{leaking}"
    assert re.search(EXPECTED[name], section[1]), section[1]


def test_nothing_else_failed(leaking):
    assert re.search(rf"{len(EXPECTED)} passed, {len(EXPECTED)} errors", leaking), leaking[-2000:]


def test_what_is_no_leak_passes(tmp_path):
    output = run_planted(tmp_path, NO_LEAKS)
    assert re.search(r"6 passed in", output), output[-3000:]
