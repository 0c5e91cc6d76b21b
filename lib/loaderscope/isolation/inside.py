"""What runs in the child process of `run_in_child`. Entered by fork or by spawn, left by os._exit only."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import mmap
import multiprocessing.process
import multiprocessing.util
import os
import pickle
import signal
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from typing import Any, NoReturn

from loaderscope.isolation import stacks

# Files in the private folder of one run.
INDEX, STDERR, STACKS, CALL = "index", "stderr", "stacks", "call"
# An answer is one of these, the length of its body, and the body.
VALUE, ERROR = b"V", b"E"
HEADER = struct.Struct("<cQ")
INDEX_FORMAT = struct.Struct("<q")
NO_INDEX = -(2**63)

_UNANSWERED = 70
_PR_SET_PDEATHSIG = 1
_slot: mmap.mmap | None = None
_folder: str | None = None
_kept: list = []


def new_folder() -> str:
    """A private temporary folder. Made by a child, it lies in the child's own and goes with it, whatever its end."""
    return tempfile.mkdtemp(prefix=f"loaderscope-{os.getpid()}-", dir=_folder)


def report_index(index: int) -> None:
    """Say which dataset index is about to be read; the last one comes back in `Outcome.last_index`.

    For use in what `run_in_child` runs, and in processes forked from there; a no-op anywhere else. Takes under 1 µs.
    """
    if _slot is not None:
        INDEX_FORMAT.pack_into(_slot, 0, index)


def run_forked(
    call: tuple[Callable, tuple], channel: socket.socket, folder: str, torch_threads: int | None
) -> NoReturn:
    """The whole life of a forked child. Takes none of the parent's locks and runs none of its clean-up."""
    try:
        _set_torch_threads(
            torch_threads
        )  # first: the copied thread pool has no threads, the next operation waits for it
        gc.freeze()  # what the parent built must not be finalised here: a loader would stop the parent's workers
        multiprocessing.process._children.clear()
        multiprocessing.util._finalizer_registry.clear()
        multiprocessing.util._run_after_forkers()
        _settle(folder)
        _answer(call, channel)
    except BaseException:
        _last_words()
    finally:
        os._exit(_UNANSWERED)


def run_spawned(channel: socket.socket, folder: str, torch_threads: int | None, start_method: str | None) -> NoReturn:
    """The whole life of a spawned child, from the moment multiprocessing has set it up."""
    try:
        _settle(folder)
        multiprocessing.set_start_method(start_method, force=True)  # spawn must not become the default of the data
        _answer(None, channel, os.path.join(folder, CALL), torch_threads)
    except BaseException:
        _last_words()
    finally:
        os._exit(_UNANSWERED)


def _answer(call, channel: socket.socket, path: str = "", torch_threads: int | None = None) -> None:
    try:
        if call is None:
            with open(path, "rb") as file:
                call = pickle.load(file)
            _set_torch_threads(torch_threads)
        function, args = call
        kind, body = VALUE, _pickled(function(*args))
    except SystemExit as error:
        os._exit(_exit_code(error))
    except BaseException as error:
        kind, body = ERROR, _described(error)
        # What the frames hold (a loader, say) ends now, not with the process.
        traceback.clear_frames(error.__traceback__)
    _send(channel, kind, body)
    # The parent ends us, after it has seen what we have started; it closes the channel when it dies.
    with contextlib.suppress(OSError):
        channel.recv(1)
    os._exit(0)


class _Unpicklable(Exception):
    """What the function returned cannot be sent to the parent."""


def _pickled(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        text = f"the value returned ({type(value).__name__}) cannot be pickled: {type(error).__name__}: {error}"
        raise _Unpicklable(text) from error


def _described(error: BaseException) -> bytes:
    if isinstance(error, _Unpicklable):
        name = type(error.__cause__).__name__
    else:
        name = type(error).__name__
    try:
        text = str(error)
    except Exception as failure:
        text = f"(its text cannot be read: {type(failure).__name__})"
    return pickle.dumps((name, text, "".join(traceback.format_exception(error))))


def _send(channel: socket.socket, kind: bytes, body: bytes) -> None:
    channel.sendall(HEADER.pack(kind, len(body)))
    channel.sendall(body)


def _exit_code(error: SystemExit) -> int:
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    os.write(2, f"{error.code}\n".encode("utf-8", "replace"))
    return 1


def _last_words() -> None:
    with contextlib.suppress(BaseException):
        os.write(2, traceback.format_exc().encode("utf-8", "replace"))


def _set_torch_threads(threads: int | None) -> None:
    torch = sys.modules.get("torch")
    if threads is not None and torch is not None:
        torch.set_num_threads(threads)


def _settle(folder: str) -> None:
    """Own session, default signals, private output, a slot for the index, an ear for SIGUSR1."""
    global _slot, _folder
    _folder = folder
    os.setsid()
    die_with_parent()
    signal.set_wakeup_fd(-1)  # the parent's event loop listens at the other end
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _redirect(os.path.join(folder, STDERR))
    with open(os.path.join(folder, INDEX), "r+b") as file:
        _slot = mmap.mmap(file.fileno(), INDEX_FORMAT.size)
    faulthandler.enable(file=sys.stderr, all_threads=True)
    stacks.answer_on_signal(os.path.join(folder, STACKS))


def _redirect(path: str) -> None:
    """Input and output to the null device, errors to a file; new Python streams, because the old ones may be locked."""
    _kept.extend((sys.stdin, sys.stdout, sys.stderr, sys.__stdin__, sys.__stdout__, sys.__stderr__))
    null = os.open(os.devnull, os.O_RDWR)
    errors = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for source, target in ((null, 0), (null, 1), (errors, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(errors)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115


@cache
def libc() -> Any:
    """The C library; loaded in the parent before it forks, because loading takes a lock."""
    return ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Where the kernel can do it (Linux), end this process when the thread that started it is gone."""
    if libc() is not None:
        libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
