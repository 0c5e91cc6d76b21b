"""How many cores this process may use, and how many it really gets."""

from __future__ import annotations

import math
import os
import select
import subprocess
import sys

from loaderscope.clock import SYSTEM, SystemClock
from loaderscope.errors import BadInputError
from loaderscope.machine.cgroups import Quota, cpu_quota
from loaderscope.records import NotMeasured, is_measured

# More spinning processes than this would disturb a shared machine for a figure that nobody needs so exactly.
MAX_SPINNERS = 64
# A quota is dealt out once a period: over fewer periods than this the last, cut one moves the result by 20 % or more.
QUOTA_PERIODS = 5
# The longest window, whatever the period (the kernel allows one of 1 s).
MAX_WINDOW_S = 2.0
# Starting Python takes 10 to 50 ms; on a machine so loaded that it takes this long, nothing can be measured.
PATIENCE_S = 10.0

_SPINNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "spinner.py")


def affinity_cores() -> int | NotMeasured:
    """Cores the scheduler may put this thread, and what it starts, on."""
    if not hasattr(os, "sched_getaffinity"):
        return NotMeasured(f"{sys.platform} does not tell a process which cores it may use")
    try:
        return len(os.sched_getaffinity(0))
    except OSError as error:
        return NotMeasured(f"the affinity could not be read: {error.strerror}")


def logical_cores() -> int:
    """Cores the machine has, whether we may use them or not."""
    return os.cpu_count() or 1


def allowed_cores(affinity: int | NotMeasured, quota: float | NotMeasured) -> float:
    """The lesser of affinity and quota; the machine's cores where neither is known."""
    limits = [float(limit) for limit in (affinity, quota) if is_measured(limit)]
    return min(limits, default=float(logical_cores()))


def measure_cores(
    seconds: float = 0.3, cores: float | None = None, *, root: str = "/", clock: SystemClock = SYSTEM
) -> float | NotMeasured:
    """CPU seconds a second that as many spinning processes as there are allowed cores receive together.

    Other jobs, a CPU quota and pinning all lower it, whether or not the system tells about them. The window is
    `seconds`, and longer where a quota is dealt out in long periods. Takes the window plus about 0.1 s.

    Args:
        seconds: wall time of the window.
        cores: how many cores to ask for; by default those that affinity and quota allow.
        root: where /proc and /sys are.

    Raises:
        BadInputError: seconds or cores is not above 0.
    """
    if seconds <= 0 or (cores is not None and cores <= 0):
        raise BadInputError(
            "A measurement of cores needs a window and at least one core",
            seen=f"seconds={seconds}, cores={cores}",
            way_out="pass positive numbers, or leave them out",
        )
    quota = cpu_quota(root)
    if cores is None:
        cores = allowed_cores(affinity_cores(), quota.cores if isinstance(quota, Quota) else quota)
    processes = math.ceil(cores)
    if processes > MAX_SPINNERS:
        return NotMeasured(f"{processes} cores are allowed, and the measurement loads at most {MAX_SPINNERS}")
    return _run_spinners(processes, _window(seconds, quota), clock)


def _window(seconds: float, quota: Quota | NotMeasured) -> float:
    if not isinstance(quota, Quota):
        return seconds
    periods = max(QUOTA_PERIODS, math.ceil(seconds / quota.period_s))
    return max(seconds, min(MAX_WINDOW_S, periods * quota.period_s))


def _run_spinners(processes: int, window_s: float, clock: SystemClock) -> float | NotMeasured:
    if os.name != "posix" or not sys.executable or not os.path.exists(_SPINNER):
        return NotMeasured("spinning processes can be started only on Linux and macOS, from an installed Python")
    command = [sys.executable, "-S", _SPINNER, str(processes), repr(window_s)]
    try:
        # A group of its own: a Ctrl-C reaches only us, and we end it in order. Not a session of its own: Linux shares
        # cores out between sessions first (autogroup), and the reader's workers will run in this one.
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, process_group=0
        )
    except OSError as error:
        return NotMeasured(f"no process could be started: {error.strerror}")
    try:
        answer = _answer(child, clock.now() + window_s + PATIENCE_S, clock)
    finally:
        _end(child)
    try:
        return float(answer) / window_s
    except ValueError:
        return NotMeasured("the spinning processes gave no answer: too many processes, or an overloaded machine")


def _answer(child: subprocess.Popen, deadline: float, clock: SystemClock) -> bytes:
    # poll, because select refuses descriptors above 1023, which a reader with many open files has.
    received, poll = b"", select.poll()
    poll.register(child.stdout, select.POLLIN | select.POLLHUP)
    while (left := deadline - clock.now()) > 0 and poll.poll(left * 1000):
        part = os.read(child.stdout.fileno(), 4096)
        if not part:
            break
        received += part
    return received


def _end(child: subprocess.Popen) -> None:
    """Closing its input makes the child end its spinners; one that does not answer is killed with them."""
    try:
        child.stdin.close()
        child.stdout.close()
        child.wait(timeout=PATIENCE_S)
    finally:
        if child.poll() is None:
            os.killpg(child.pid, 9)
            child.wait()
