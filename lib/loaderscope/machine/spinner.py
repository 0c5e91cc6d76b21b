"""A program of its own, started by `cores.measure_cores`: spins on N cores and prints the CPU time received.

    python -S spinner.py PROCESSES SECONDS

It forks the spinning processes itself, so nothing is ever forked from the reader's kernel, whose threads, CUDA
context or locks would come along. It ends when its window ends, and at once when its standard input is closed.
"""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import sys

# Spinners are told the start this much ahead, so that all have read it when it comes.
LEAD_S = 0.002


def _system_clock():
    """clock.py without the package around it, whose import would cost more than the measurement."""
    path = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "clock.py")
    spec = importlib.util.spec_from_file_location("clock", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SYSTEM


def spin(clock, start: float, seconds: float) -> float:
    """CPU seconds received by this process between `start` and `start + seconds`."""
    now = clock.now
    while now() < start:
        pass
    received, end = clock.process_cpu(), start + seconds
    while now() < end:
        pass
    return clock.process_cpu() - received


def _start_spinner(clock, seconds: float, go: int, answers: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        # A message this short arrives whole, so each spinner reads one.
        os.write(answers, b"%16.9f" % spin(clock, float(os.read(go, 16)), seconds))
    finally:
        os._exit(0)


def _collect(answers: int, processes: int) -> list[float] | None:
    """One number from each spinner, or None as soon as the parent closes our standard input or a spinner is lost."""
    received = b""
    while len(received) < 16 * processes:
        ready, _, _ = select.select([answers, 0], [], [])
        if 0 in ready:
            return None
        part = os.read(answers, 4096)
        if not part:
            return None
        received += part
    return [float(received[i : i + 16]) for i in range(0, len(received), 16)]


def main(processes: int, seconds: float) -> int:
    # A caller that ignores it hands that down, and then nobody could be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    clock, pids = _system_clock(), []
    (go_in, go_out), (answers_in, answers_out) = os.pipe(), os.pipe()
    values = None
    try:
        for _ in range(processes):
            pids.append(_start_spinner(clock, seconds, go_in, answers_out))
        os.close(answers_out)
        os.write(go_out, b"%16.6f" % (clock.now() + LEAD_S) * processes)
        values = _collect(answers_in, processes)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    if values is None:
        return 1
    os.write(1, b"%.6f\n" % sum(values))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]), float(sys.argv[2])))
