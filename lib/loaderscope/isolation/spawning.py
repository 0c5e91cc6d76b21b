"""Carry a call to a spawned process: pickled for it into a file, and a clear word on what does not pickle."""

from __future__ import annotations

import io
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any, NoReturn

_DEPTH = 4


class CannotPickle(Exception):
    """args[0] names the part and the reason; `__cause__` is the pickler's own exception."""


class Call:
    """A function and its arguments. Pickling it for a new process writes them to a file.

    Through multiprocessing's own pipe a large call would block the parent until the child has started; and what
    fails while it is read back would fail outside the part of the child that can answer.
    """

    def __init__(self, function: Callable, args: tuple, path: str):
        self.function, self.args, self.path = function, args, path

    def __reduce__(self):
        try:
            body = _pickled((self.function, self.args))
        except Exception as error:
            raise CannotPickle(self._culprit(error)) from error
        with open(self.path, "wb") as file:
            file.write(body)
        return (str, (self.path,))

    def _culprit(self, error: Exception) -> str:
        parts = {"the function": self.function} | {f"argument {i + 1}": a for i, a in enumerate(self.args)}
        for name, part in parts.items():
            if (found := _failing_part(name, part, _DEPTH)) is not None:
                return found
        return f"{type(error).__name__}: {error}"


def enter(call, channel, folder: str, torch_threads: int | None, start_method: str | None) -> NoReturn:
    """The target of the spawned process (`call` has become the path of its file)."""
    from loaderscope.isolation import inside

    inside.run_spawned(channel, folder, torch_threads, start_method)


def _pickled(value: Any) -> bytes:
    # Inside the start of a process: locks, queues and shared tensors pickle as they do for a worker.
    file = io.BytesIO()
    ForkingPickler(file).dump(value)
    return file.getvalue()


def _failing_part(name: str, value: Any, depth: int) -> str | None:
    """The innermost part that does not pickle, as "argument 1 (Photos).reader (Lock): cannot pickle …"."""
    try:
        _pickled(value)
    except Exception as error:
        shown = f"{name} ({getattr(value, '__qualname__', None) or type(value).__name__})"
        for label, part in _parts(value) if depth else ():
            if (found := _failing_part(f"{shown}{label}", part, depth - 1)) is not None:
                return found
        return f"{shown}: {type(error).__name__}: {error}"
    return None


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, dict):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, (list, tuple)):
        return [(f"[{i}]", part) for i, part in enumerate(value)]
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return []
    return [(f".{key}", part) for key, part in vars(value).items()]
