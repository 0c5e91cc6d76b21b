"""Fixtures for every test; the first of them fails a test that leaves something behind.

The library promises that after any call no extra thread, child process, open file, shared-memory segment or
changed setting is left. So the promise is checked after *every* test, not in a test of its own. How to read a
failure: CONTRIBUTING.md, "When the leak guard speaks".
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
import psutil
import pytest

# No test opens a window, whatever the reader's own settings say.
os.environ["MPLBACKEND"] = "Agg"
# On a busy machine any example may be slow once; that says nothing about the code.
hypothesis.settings.register_profile("loaderscope", deadline=None)
hypothesis.settings.load_profile("loaderscope")

GRACE_S = 2.0
SHM = Path("/dev/shm")
SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGCHLD", "SIGALRM", "SIGUSR1", "SIGUSR2", "SIGPROF")
    if hasattr(signal, name)
]
_failed = pytest.StashKey[bool]()


# --- what must be the same before and after ---------------------------------------------------------------------


@dataclass
class Snapshot:
    """What a test could leave behind, as seen at one moment."""

    threads: dict[int, threading.Thread]
    processes: dict[int, psutil.Process]
    files: Counter[str]
    segments: set[str]
    environment: dict[str, str] = field(repr=False)
    settings: dict[str, object] = field(repr=False)


def take_snapshot() -> Snapshot:
    return Snapshot(_threads(), _processes(), _open_files(), _segments(), _environment(), _settings())


def leaks(before: Snapshot, after: Snapshot) -> list[str]:
    """One line for each thing that is there now and was not before; empty when all is as it was."""
    found = [
        f"thread {thread.name!r} (daemon={thread.daemon}) is still running"
        for ident, thread in after.threads.items()
        if ident not in before.threads
    ]
    found += [
        f"child process {pid} is still there: {_describe(process)}"
        for pid, process in after.processes.items()
        if pid not in before.processes
    ]
    found += [f"{n} more open: {target}" for target, n in (after.files - before.files).items()]
    found += [f"shared memory left in {SHM}: {name}" for name in _own(after.segments - before.segments)]
    # Names only: a variable's value may be nobody's business.
    changed = sorted(name for name, _ in before.environment.items() ^ after.environment.items())
    found += [f"os.environ[{name!r}] was set, changed or removed" for name in dict.fromkeys(changed)]
    # A setting seen for the first time (torch was imported by this very test) has no earlier value to keep.
    for name, was in before.settings.items():
        now = after.settings.get(name, was)
        if now != was and not _is_torch_handler(name, now):
            found.append(f"{name} was {was!r}, is now {now!r}")
    return found


def _threads() -> dict[int, threading.Thread]:
    return {id(thread): thread for thread in threading.enumerate()}


def _processes() -> dict[int, psutil.Process]:
    """Descendants that still run. A zombie only waits to be reaped and holds nothing, so it is not counted."""
    daemons, found = _multiprocessing_daemons(), {}
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.pid not in daemons and process.status() != psutil.STATUS_ZOMBIE:
                found[process.pid] = process
    return found


def _multiprocessing_daemons() -> set[int]:
    """Pids of multiprocessing's resource tracker and fork server.

    The standard library starts each once per process, on first use, and ends it with the interpreter. They are told
    by pid, not by command line: a worker that the fork server has forked looks exactly like the fork server.
    """
    tracker, server = _multiprocessing_singletons()
    return {pid for pid in (getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None)) if pid}


def _multiprocessing_singletons():
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    return getattr(tracker, "_resource_tracker", None), getattr(server, "_forkserver", None)


def _open_files() -> Counter[str]:
    """What the open descriptors point to, counted: numbers are reused, targets are not."""
    tracker, server = _multiprocessing_singletons()
    # The two ends that keep the daemons above alive.
    kept = {getattr(tracker, "_fd", None), getattr(server, "_forkserver_alive_fd", None)}
    targets: Counter[str] = Counter()
    if not os.path.isdir("/proc/self/fd"):
        return Counter(file.path for file in psutil.Process().open_files())
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(entry.path)
            # A CUDA context, once made, holds its device files until the process ends. The scan itself is open too.
            if int(entry.name) not in kept and not target.startswith(("/dev/nvidia", f"/proc/{os.getpid()}/fd")):
                targets[target] += 1
    return targets


def _segments() -> set[str]:
    return set(os.listdir(SHM)) if SHM.is_dir() else set()


def _own(names: set[str]) -> list[str]:
    """Those of the new segments that are not another program's: the machine may run more than this suite."""
    if not names:
        return []
    time.sleep(0.25)  # a semaphore of another program lives in a name for a moment only
    family = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    own = []
    for name in sorted(name for name in names if (SHM / name).exists()):
        maker = re.match(r"(?:torch_|loaderscope-spans-)(\d+)[_-]", name)
        users = {int(maker[1])} if maker and psutil.pid_exists(int(maker[1])) else _users(SHM / name)
        if not users or users & family:
            own.append(name)
    return own


def _users(path: Path) -> set[int]:
    """Pids that map the file. Slow (it reads every process's map), so it is asked only about a suspect."""
    users = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if any(mapped.path == str(path) for mapped in process.memory_maps()):
                users.add(process.pid)
    return users


def _environment() -> dict[str, str]:
    # pytest itself rewrites this one at every phase of a test.
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _settings() -> dict[str, object]:
    settings: dict[str, object] = {f"handler of {s.name}": signal.getsignal(s) for s in SIGNALS}
    settings |= {
        "interval timer running": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "working folder": os.getcwd(),
        "sys.path": tuple(sys.path),
        "switch interval": sys.getswitchinterval(),
        "garbage collector on": gc.isenabled(),
        "cores allowed": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_num_threads"):
        settings["torch threads"] = torch.get_num_threads()
        settings["torch sharing strategy"] = torch.multiprocessing.get_sharing_strategy()
        settings["DataLoader.__iter__"] = torch.utils.data.DataLoader.__iter__
    return settings


def _is_torch_handler(name: str, now: object) -> bool:
    """The one change nobody can avoid: torch's handler that reports dead workers, set once with the first worker."""
    return name == "handler of SIGCHLD" and "torch.utils.data" in getattr(now, "__module__", "")


def _describe(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:200] or process.name()
    except psutil.Error:
        return "(already gone)"


# --- the guard ---------------------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    item.stash[_failed] = item.stash.get(_failed, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def no_leaks(request):
    """Fail a test after which something is left that was not there before it."""
    if request.node.get_closest_marker("leaks_ok"):
        yield
        return
    if request.node.get_closest_marker("gpu"):
        _start_cuda()
    before = take_snapshot()
    yield
    found = _leaks_after_grace(before)
    if not found:
        return
    _end_left_processes(before)
    text = "left behind after the test:\n  " + "\n  ".join(found)
    if request.node.stash.get(_failed, False):
        # A failed test's traceback may itself keep a loader alive: say so, but let the failure speak first.
        request.node.add_report_section("teardown", "leaks", text)
    else:
        pytest.fail(text, pytrace=False)


def _leaks_after_grace(before: Snapshot) -> list[str]:
    """Workers need a moment to end, and some only do when the object that owns them is collected."""
    found = leaks(before, take_snapshot())
    if found:
        # Collecting an iterator that hangs in a reference cycle takes torch 5 s, so the grace begins after it.
        gc.collect()
        deadline = time.monotonic() + GRACE_S
        while (found := leaks(before, take_snapshot())) and time.monotonic() < deadline:
            time.sleep(0.02)
            gc.collect()
    return found


def _end_left_processes(before: Snapshot) -> None:
    """End what the test left, so that one leak does not slow down every later test."""
    left = [process for pid, process in _processes().items() if pid not in before.processes]
    # torch's handler would raise "worker is killed" here, in the middle of the guard.
    handler = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=5)
    finally:
        signal.signal(signal.SIGCHLD, handler)


def _start_cuda() -> None:
    """A CUDA context opens files and sets a variable that stay until the process ends: make it before we look."""
    import torch

    if torch.cuda.is_available():
        torch.zeros(1, device="cuda")


# --- what a machine cannot run is skipped with a reason -----------------------------------------------------------


def pytest_collection_modifyitems(items):
    gpu = [item for item in items if item.get_closest_marker("gpu")]
    browser = [item for item in items if item.get_closest_marker("browser")]
    if gpu and not _has_cuda():
        _skip(gpu, "needs a CUDA device, and torch sees none")
    if browser and (reason := _no_browser()):
        _skip(browser, reason)


def _skip(items, reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def _no_browser() -> str:
    if chromium_path() is None:
        return "needs a Chromium on the PATH (Debian: apt-get install chromium)"
    if importlib.util.find_spec("playwright") is None:
        return "needs playwright (make setup installs it)"
    return ""


def chromium_path() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


# --- fixtures to ask for -----------------------------------------------------------------------------------------


@pytest.fixture
def fake_clock():
    """A clock that moves only when the test says so."""
    from loaderscope.clock import FakeClock

    return FakeClock()


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is, for tests marked `browser`."""
    path = chromium_path()
    assert path is not None
    return path


@pytest.fixture
def rng_unchanged():
    """Fail when the test's code moved a global random generator that belongs to the reader."""
    before = _generators()
    yield
    moved = [name for name, state in _generators().items() if state != before[name]]
    assert not moved, f"global generators moved: {', '.join(moved)}"


def _generators() -> dict[str, object]:
    import numpy as np
    import torch

    kind, keys, *rest = np.random.get_state()
    states = {
        "random": random.getstate(),
        "numpy.random": (kind, keys.tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
    }
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        states["torch.cuda"] = tuple(state.numpy().tobytes() for state in torch.cuda.get_rng_state_all())
    return states
