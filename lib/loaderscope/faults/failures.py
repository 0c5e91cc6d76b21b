"""Datasets that end badly: hang, crash, raise, or start processes of their own."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading

import torch

from loaderscope.errors import BadInputError
from loaderscope.faults import work
from loaderscope.faults.speed import Sized

CRASH_EXIT_CODE = 3
_DAY_S = 86_400.0


class HangingDataset(Sized):
    """Gives every sample at once but number `at`, which never comes.

    how: "lock" (waits for a lock that is never released, 0 CPU), "sleep" (sleeps, 0 CPU) or "spin" (loops for ever,
    a whole core). Right: hang, with the stack of the process that hangs.
    """

    def __init__(self, n: int, at: int, how: str = "lock"):
        super().__init__(n)
        if how not in ("lock", "sleep", "spin"):
            work.reject("how", how, '"lock", "sleep" or "spin"')
        self.at, self.how = at, how

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if index == self.at:
            self.hang()
        return work.vector(index)

    def hang(self) -> None:
        """Never return."""
        lock = threading.Lock()
        lock.acquire()
        while True:
            if self.how == "lock":
                lock.acquire()
            elif self.how == "sleep":
                work.wait(_DAY_S)


class CrashingDataset(Sized):
    """Gives every sample but number `at`, which ends the process that reads it.

    how: "segfault" (reads address 0), "abort" (SIGABRT), "exit" (leaves with code 3), "kill" (SIGKILL, as the
    out-of-memory killer does). Right: worker-crash; for "kill" worker-killed.
    The process that made the dataset is spared (BadInputError instead): a notebook must survive its own lesson.
    """

    def __init__(self, n: int, at: int, how: str = "segfault"):
        super().__init__(n)
        if how not in ("segfault", "abort", "exit", "kill"):
            work.reject("how", how, '"segfault", "abort", "exit" or "kill"')
        self.at, self.how, self.home = at, how, os.getpid()

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if index == self.at:
            self.crash()
        return work.vector(index)

    def crash(self) -> None:
        """End this process."""
        if os.getpid() == self.home:
            raise BadInputError(
                "This sample would end your own process",
                seen=f"how={self.how!r}, sample {self.at}, num_workers=0",
                way_out="read it from a worker (num_workers=1 or more)",
            )
        if self.how == "segfault":
            ctypes.string_at(0)
        elif self.how == "abort":
            os.abort()
        elif self.how == "kill":
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        os._exit(CRASH_EXIT_CODE)


class RaisingDataset(Sized):
    """Gives every sample but number `at`, which raises `error` (an exception or its class).

    Right: worker-error, naming the exception and the sample.
    """

    def __init__(self, n: int, at: int, error: Exception | type[Exception] = ValueError):
        super().__init__(n)
        self.at, self.error = at, error

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if index == self.at:
            if isinstance(self.error, type):
                raise self.error(f"sample {index} cannot be read")
            # The same object is raised each time: without this its traceback would grow.
            raise self.error.with_traceback(None)
        return work.vector(index)


class ForkingDataset(Sized):
    """Starts a process of its own for every sample.

    how: "command" (runs a program to its end; costs its start), "process" (multiprocessing.Process, refused inside a
    worker: right is nested-workers), "left" (forks a child that outlives the sample by `left_s` seconds and keeps the
    worker's pipes open; whoever waits for those pipes to close waits that long; POSIX only).
    """

    def __init__(self, n: int, how: str = "command", left_s: float = 5.0):
        super().__init__(n)
        if how not in ("command", "process", "left"):
            work.reject("how", how, '"command", "process" or "left"')
        self.how, self.left_s = how, left_s

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        index = self.place(index)
        if self.how == "command":
            subprocess.run([sys.executable, "-I", "-S", "-c", ""], check=True, timeout=60)
        elif self.how == "process":
            child = multiprocessing.Process(target=work.label, args=(index,))
            child.start()
            child.join()
        elif os.fork() == 0:
            work.wait(self.left_s)
            os._exit(0)
        return work.vector(index)
