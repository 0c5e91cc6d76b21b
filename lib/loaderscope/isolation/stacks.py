"""Stacks of threads: of this process, and of other processes that answer SIGUSR1 with faulthandler."""

from __future__ import annotations

import faulthandler
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from loaderscope.clock import SYSTEM
from loaderscope.records import ThreadStack

# A dump is written by a C handler within a millisecond; a process that gets no core may need longer.
ANSWER_S = 1.0
_POLL_S = 0.02
_READY = b"# ready\n"

_HEAD = re.compile(r"^(?:Current t|T)hread (0x[0-9a-fA-F]+)(?: \[(.*?)\])? ?\(most recent call first\):")
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?+) in (.*)$')

_kept_open: list = []


def answer_on_signal(path: str) -> bool:
    """From now on this process answers SIGUSR1 by writing the stacks of all its threads to `path`.

    Returns False where the platform has no such signal. The file starts with a line that says it is safe to ask.
    """
    if not hasattr(faulthandler, "register") or not hasattr(signal, "SIGUSR1"):
        return False
    file = open(path, "ab", buffering=0)  # noqa: SIM115 - must stay open as long as the process lives
    faulthandler.register(signal.SIGUSR1, file=file, all_threads=True, chain=False)
    file.write(_READY)
    _kept_open.append(file)
    return True


@dataclass(frozen=True)
class Answering:
    """A process that may answer: its pid, the file it answers into, and the name to show."""

    pid: int
    path: str
    label: str

    @property
    def ready(self) -> bool:
        """Whether it has registered: before that, SIGUSR1 would end it."""
        return _size(self.path) >= len(_READY)


def ask(processes: Iterable[Answering], wait_s: float = ANSWER_S) -> tuple[ThreadStack, ...]:
    """Stacks of every thread of these processes, each with a file of its own; at most `wait_s` for all of them.

    A process that has not registered, is gone or does not answer contributes nothing.
    """
    asked = [(p, _size(p.path)) for p in processes if p.ready]
    asked = [(p, size) for p, size in asked if _signal(p.pid)]
    _wait_until_written([(p.path, size) for p, size in asked], wait_s)
    return tuple(stack for p, size in asked for stack in parse_dump(_text_from(p.path, size), p.label))


def ask_in_turn(processes: Iterable[Answering], wait_s: float = ANSWER_S) -> tuple[ThreadStack, ...]:
    """The same for processes that may share one file because they were forked from one another."""
    found: list[ThreadStack] = []
    end = SYSTEM.now() + wait_s
    for process in processes:
        if SYSTEM.now() < end and _catches(process.pid):
            found += ask([process], max(0.1, end - SYSTEM.now()))
    return tuple(found)


def parse_dump(text: str, process: str = "child") -> tuple[ThreadStack, ...]:
    """Read what faulthandler wrote; the process's oldest thread, listed last by faulthandler, comes first."""
    threads: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if head := _HEAD.match(line):
            threads.append((head[2] or head[1], []))
        elif (frame := _FRAME.match(line)) and threads:
            threads[-1][1].append(f"{frame[1]}:{frame[2]} in {frame[3]}")
    return tuple(ThreadStack(process, thread, tuple(frames)) for thread, frames in reversed(threads))


def own_stacks(first: int | None = None, without: Iterable[int] = ()) -> tuple[ThreadStack, ...]:
    """Stacks of this process's threads, that of thread `first` in front, those in `without` left out."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = {ident: frame for ident, frame in sys._current_frames().items() if ident not in set(without)}
    order = sorted(frames, key=lambda ident: ident != first)
    return tuple(ThreadStack("main", names.get(ident, hex(ident)), _lines(frames[ident])) for ident in order)


def _lines(frame) -> tuple[str, ...]:
    lines = []
    while frame is not None:
        code = frame.f_code
        lines.append(f"{code.co_filename}:{frame.f_lineno} in {code.co_name}")
        frame = frame.f_back
    return tuple(lines)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _signal(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError:
        return False
    return True


def _catches(pid: int) -> bool:
    """Whether the process handles SIGUSR1 (a program it has started with exec does not, and would die of it)."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            caught = next(line for line in file if line.startswith("SigCgt:"))
    except (OSError, StopIteration):
        return False
    return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)


def _wait_until_written(files: list[tuple[str, int]], wait_s: float) -> None:
    """Wait until each file has grown and none has grown since the last look: a dump has no end mark."""
    end, last = SYSTEM.now() + wait_s, None
    while files and SYSTEM.now() < end:
        SYSTEM.sleep(_POLL_S)
        sizes = [_size(path) for path, _ in files]
        if sizes == last and all(now > before for now, (_, before) in zip(sizes, files, strict=True)):
            return
        last = sizes


def _text_from(path: str, position: int) -> str:
    try:
        with open(path, "rb") as file:
            file.seek(position)
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""
