"""A child process and what it has started: look at them, add up their CPU time, end them all."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil

from loaderscope.clock import SYSTEM

# Time to leave by itself after SIGTERM (a resource tracker removes what the others left), and to go after SIGKILL.
TERM_GRACE_S = 0.5
KILL_GRACE_S = 1.5
_POLL_S = 0.01


def descendants(pid: int) -> list[psutil.Process]:
    """What the process has started, and what those have, process group or not. Takes some 10 ms."""
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def alive(process: psutil.Process) -> bool:
    """Whether it still runs; a zombie only waits for its parent and holds nothing."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def cpu_seconds(process: psutil.Process) -> float:
    """User and system seconds of the process and of its children that have ended. Steps of 10 ms on Linux.

    Raises:
        psutil.Error: it is gone.
    """
    t = process.cpu_times()
    return t.user + t.system + getattr(t, "children_user", 0.0) + getattr(t, "children_system", 0.0)


def tree_cpu_seconds(pid: int) -> float | None:
    """CPU seconds of the process and all it has started, or None where it cannot be read."""
    total = None
    with contextlib.suppress(psutil.Error):
        total = cpu_seconds(psutil.Process(pid))
        for process in descendants(pid):
            with contextlib.suppress(psutil.Error):
                total += cpu_seconds(process)
    return total


def end(leader: int) -> None:
    """End the child `leader` (not reaped yet), its process group and its descendants: SIGTERM, grace, SIGKILL.

    Takes at most TERM_GRACE_S + KILL_GRACE_S and a few ms. The caller reaps the leader.
    """
    family = _family(leader)
    _send(leader, family, signal.SIGTERM)
    if not _wait(family, TERM_GRACE_S):
        family |= _family(leader)  # what was started since the first look
    _send(leader, family, signal.SIGKILL)
    _wait(family, KILL_GRACE_S)


def kill(processes: list[psutil.Process]) -> None:
    """SIGKILL to those that still run."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _family(leader: int) -> dict[int, psutil.Process]:
    """The leader, its descendants, and the rest of its group: children of a dead leader are nobody's descendants."""
    found = {p.pid: p for p in descendants(leader)}
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.Error):
            if pid == leader or os.getpgid(pid) == leader:
                found[pid] = psutil.Process(pid)
    return found


def _send(leader: int, family: dict[int, psutil.Process], number: int) -> None:
    # Not before the leader has made its own group: the number would be that of nobody, or ours.
    with contextlib.suppress(OSError):
        if os.getpgid(leader) == leader:
            os.killpg(leader, number)
    for process in family.values():
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)


def _wait(family: dict[int, psutil.Process], seconds: float) -> bool:
    end_s = SYSTEM.now() + seconds
    while any(alive(process) for process in family.values()):
        if SYSTEM.now() > end_s:
            return False
        SYSTEM.sleep(_POLL_S)
    return True
