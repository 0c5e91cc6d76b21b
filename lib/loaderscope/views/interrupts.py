"""Raising KeyboardInterrupt in another thread, at a moment when it does no harm.

An interrupt may arrive between any two instructions. Between taking a lock and holding it, it leaves the lock taken
for ever: in `logging`, whose lock is taken around every fork, that hangs the whole process with the next message. In
the middle of starting or ending workers it leaves processes that nobody knows. A signal has the same trouble in the
main thread, and is held back there by `isolation.signals.held`; for other threads the stack says where they are.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from types import CodeType, FrameType

# Modules that take locks, start or end processes, or tidy up. Written as they name themselves, with what lies below.
_FRAGILE = (
    "_frozen_importlib",
    "atexit",
    "concurrent",
    "contextlib",
    "importlib",
    "ipykernel",
    "logging",
    "loaderscope.isolation",
    "loaderscope.views.job",
    "multiprocessing",
    "queue",
    "shutil",
    "subprocess",
    "tempfile",
    "threading",
    "torch.multiprocessing",
    "weakref",
    "zmq",
)
# In these of their functions a thread may be for long: it waits there, and they mend what they leave.
_WAITING = {
    "concurrent.futures._base": {"result", "wait", "as_completed"},
    "concurrent.futures.process": {"map"},
    "concurrent.futures.thread": {"map"},
    "contextlib": {"inner"},  # a decorated function: what counts is what it calls
    "loaderscope.isolation.child": {"run_in_child", "_listen"},
    "loaderscope.isolation.watch": {"next"},
    "multiprocessing.connection": {"poll", "recv", "recv_bytes", "wait", "_poll", "_recv", "_recv_bytes"},
    "multiprocessing.pool": {"get", "map", "next", "wait"},
    "multiprocessing.queues": {"get"},
    "queue": {"get"},
    "subprocess": {"communicate", "run", "wait", "_communicate", "_wait"},
    "threading": {"join", "wait", "wait_for", "_wait_for_tstate_lock"},
}
_FRAGILE_NAMES = {"__del__", "__enter__", "__exit__", "_shutdown_workers"}
_MAKES_WORKERS = ("torch.utils.data.dataloader", "__init__")


def interrupt(thread: threading.Thread, end: CodeType) -> bool:
    """Raise KeyboardInterrupt in `thread` at its next instruction if it is in no fragile place; False if it is.

    Call it right after waiting for something: the thread that has just got the GIL keeps it for the microseconds
    between looking and raising.

    Args:
        end: the function whose call is at risk; it is ready for the interrupt itself, and so is what called it.
    """
    frame = sys._current_frames().get(thread.ident)
    if frame is None or not is_safe(frame, end):
        return False
    _raise_in(thread, ctypes.py_object(KeyboardInterrupt))
    return True


def call_back(thread: threading.Thread) -> None:
    """An interrupt under way to `thread` that has not arrived yet does not arrive."""
    _raise_in(thread, None)


def is_safe(frame: FrameType | None, end: CodeType) -> bool:
    """Whether no function on the stack, from `frame` outwards to `end`, is in a fragile place."""
    while frame is not None and frame.f_code is not end:
        name, module = frame.f_code.co_name, frame.f_globals.get("__name__", "")
        if name in _FRAGILE_NAMES or (module, name) == _MAKES_WORKERS:
            return False
        if _is_fragile(module) and name not in _WAITING.get(module, ()):
            return False
        frame = frame.f_back
    return True


def _is_fragile(module: str) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in _FRAGILE)


def _raise_in(thread: threading.Thread, error: ctypes.py_object | None) -> None:
    if thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), error)
