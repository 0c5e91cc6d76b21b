"""Run something dangerous in a child process with a deadline."""

from __future__ import annotations

import contextlib
import gc
import glob
import multiprocessing
import os
import select
import shutil
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loaderscope.clock import SYSTEM
from loaderscope.errors import BadInputError, LoaderscopeError
from loaderscope.isolation import answers, family, inside, signals, spawning, stacks
from loaderscope.records import NotMeasured, Outcome

_POLL_S = 0.1
# An answer that is on its way when the deadline passes may still arrive.
ANSWER_GRACE_S = 2.0
_CHUNK = 1 << 20


def run_in_child(
    fn: Callable, *args: Any, deadline_s: float, method: str = "fork", torch_threads: int | None = 1, clock=SYSTEM
) -> Outcome:
    """Run `fn(*args)` in a child process and say what became of it. Nothing of the child is left afterwards.

    The child has its own session, default signals, no input, its output thrown away and its errors kept. Inside it
    `isolation.report_index(i)` tells which index is being read.

    Args:
        deadline_s: seconds from the start of the child to its answer. A hang is reported within 5 s after that.
        method: "fork", or "spawn" (`fn` and `args` must pickle, and `fn` be importable by the child).
        torch_threads: what the child passes to `torch.set_num_threads` before anything else, where torch is loaded;
            None leaves it. A child forked after a parallel torch operation hangs at more than one thread.

    Returns:
        Outcome with status "ok" (`value`), "exception" (also when the value cannot be pickled), "hang" (`stacks`
        of the child and of what it has forked), "signal" or "exit". `cpu_s` counts the child and its ended
        children, for a hang all that still ran: near 0 means it waited, near `elapsed_s` or above that it worked.

    Raises:
        BadInputError: an argument is unusable, or cannot be pickled for "spawn".
        LoaderscopeError: the system refuses another process.
    """
    _check(fn, deadline_s, method)
    started = clock.now()
    with _running(fn, args, method, torch_threads) as child:
        status = _listen(child, started + deadline_s, clock)
        elapsed = clock.now() - started
        if status == "hang":
            child.examine()
    return answers.outcome(child, status, elapsed, deadline_s, method)


def _check(fn, deadline_s, method) -> None:
    if os.name != "posix":
        raise BadInputError(
            "run_in_child needs process groups and signals",
            seen=f"os.name = {os.name!r}",
            way_out="run it on Linux or macOS",
        )
    if method not in ("fork", "spawn"):
        raise BadInputError("Unknown start method", seen=repr(method), way_out='use "fork" or "spawn"')
    if not callable(fn):
        raise BadInputError("run_in_child needs a function", seen=repr(fn), way_out="pass run_in_child(fn, *args, …)")
    if not deadline_s > 0:
        raise BadInputError("A deadline must be positive", seen=repr(deadline_s), way_out="give seconds, e.g. 15")


@dataclass
class Child:
    """The parent's view of one child."""

    folder: str = ""
    pid: int = 0
    process: Any = None
    ours: socket.socket | None = None
    answer: bytearray = field(default_factory=bytearray)
    stacks: tuple = ()
    cpu_s: float | NotMeasured = NotMeasured("the child was reaped by someone else")
    busy_s: float | None = None
    exit_code: int | None = None
    stderr: str = ""
    index: int = inside.NO_INDEX

    @property
    def complete(self) -> bool:
        head = inside.HEADER.size
        return len(self.answer) >= head and len(self.answer) >= head + inside.HEADER.unpack_from(self.answer)[1]

    def ended(self) -> bool:
        """Whether the child is dead; it stays a zombie, so that its number is not given away."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self.exit_code is not None or self._reap(os.WNOHANG)
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    def examine(self) -> None:
        """Stacks and CPU seconds of a child that is about to be ended for hanging."""
        self.busy_s = family.tree_cpu_seconds(self.pid)
        path = os.path.join(self.folder, inside.STACKS)
        if not stacks.Answering(self.pid, path, "child").ready:
            return
        below = [
            stacks.Answering(p.pid, self._answers_into(p.pid), f"child's child {p.pid}")
            for p in family.descendants(self.pid)
        ]
        self.stacks = stacks.ask([stacks.Answering(self.pid, path, "child")]) + stacks.ask_in_turn(below)

    def _answers_into(self, pid: int) -> str:
        """Workers that are watched inside the child have files of their own; others share the child's."""
        own = glob.glob(os.path.join(glob.escape(self.folder), "*", f"{pid}.stacks"))
        return own[0] if own else os.path.join(self.folder, inside.STACKS)

    def end(self) -> None:
        """End the child and all it has started, reap it, read what it left, remove its files. May be called again."""
        if self.pid:
            family.end(self.pid)
            self._wait_for_zombie()
            self.pid = 0
        if self.process is not None:
            self.process.join(0)
            with contextlib.suppress(ValueError):
                self.process.close()
        if self.ours is not None:
            self.ours.close()
        if self.folder:
            self.stderr, self.index = answers.read_left(self.folder)
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""

    def _wait_for_zombie(self) -> None:
        end_s = SYSTEM.now() + family.KILL_GRACE_S
        while self.exit_code is None and not self._reap(os.WNOHANG) and SYSTEM.now() < end_s:
            SYSTEM.sleep(0.005)

    def _reap(self, flags: int) -> bool:
        try:
            pid, status, usage = os.wait4(self.pid, flags)
        except ChildProcessError:
            self.exit_code = getattr(self.process, "exitcode", None)
            return True
        if pid:
            self.exit_code = os.waitstatus_to_exitcode(status)
            self.cpu_s = usage.ru_utime + usage.ru_stime
            if self.process is not None:
                self.process._popen.returncode = self.exit_code  # it was ours to reap, for the exact CPU time
        return bool(pid)


@contextmanager
def _running(fn, args, method: str, torch_threads: int | None) -> Iterator[Child]:
    child = Child()
    try:
        # An interrupt between the fork and the note of its number would leave a child nobody knows.
        with signals.held(signal.SIGINT):
            child.folder = inside.new_folder()
            with open(os.path.join(child.folder, inside.INDEX), "wb") as file:
                file.write(inside.INDEX_FORMAT.pack(inside.NO_INDEX))
            start = _fork if method == "fork" else _spawn
            start(child, fn, args, torch_threads)
        yield child
    finally:
        signals.run_to_the_end(child.end)


def _fork(child: Child, fn, args, torch_threads) -> None:
    inside.libc()
    ours, theirs = socket.socketpair()
    child.ours, collecting = ours, gc.isenabled()
    gc.disable()  # a collection in the child would finalise the parent's objects before they are frozen
    try:
        with warnings.catch_warnings() if sys.version_info >= (3, 12) else contextlib.nullcontext():
            # Python 3.12 warns that a threaded process forks; the child is written for that.
            warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
            child.pid = os.fork()
        if child.pid == 0:
            if collecting:
                gc.enable()
            ours.close()
            inside.run_forked((fn, args), theirs, child.folder, torch_threads)
    except OSError as error:
        raise _refused(error) from error
    finally:
        theirs.close()
        if collecting:
            gc.enable()


def _spawn(child: Child, fn, args, torch_threads) -> None:
    child.ours, theirs = socket.socketpair()
    call = spawning.Call(fn, args, os.path.join(child.folder, inside.CALL))
    default = multiprocessing.get_start_method(allow_none=True)
    process = multiprocessing.get_context("spawn").Process(
        target=spawning.enter, args=(call, theirs, child.folder, torch_threads, default), name="loaderscope-child"
    )
    try:
        process.start()
        child.process, child.pid = process, process.pid
    except spawning.CannotPickle as error:
        raise BadInputError(
            "What should run in a spawned process cannot be pickled",
            seen=error.args[0],
            likely="it holds a lock, an open file, a lambda or a class defined inside a function",
            way_out='make it in the child, drop it in __getstate__, or use method="fork"',
        ) from error.__cause__
    except OSError as error:
        raise _refused(error) from error
    finally:
        theirs.close()


def _refused(error: OSError) -> LoaderscopeError:
    return LoaderscopeError(
        "A child process could not be started", seen=str(error), way_out="free memory, or raise the limit `ulimit -u`"
    )


def _listen(child: Child, deadline: float, clock) -> str:
    """Read until the answer is whole ("answer"), the child is dead ("dead") or the deadline has passed ("hang")."""
    poller, open_ = select.poll(), True
    poller.register(child.ours, select.POLLIN)
    while not child.complete:
        left = deadline - clock.now()
        if left <= (-ANSWER_GRACE_S if child.answer else 0):
            return "hang"
        wait_ms = max(1, int(1000 * min(_POLL_S, left)))
        if not open_:
            SYSTEM.sleep(0.01)
        elif poller.poll(wait_ms):
            open_ = _receive(child)
        if not child.complete and child.ended():
            while open_ and poller.poll(0):
                open_ = _receive(child)
            break
    return "answer" if child.complete else "dead"


def _receive(child: Child) -> bool:
    try:
        chunk = child.ours.recv(_CHUNK)
    except ConnectionError:
        return False
    child.answer += chunk
    return bool(chunk)
