"""Save what a measured training step changes, and put it back."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from loaderscope.errors import BadInputError


@contextmanager
def restored(objects: Iterable[Any]):
    """Inside, the objects may train; on leaving, their `state_dict` is what it was.

    Raises:
        BadInputError: an object has no state_dict and load_state_dict.
    """
    objects = tuple(objects)
    for thing in objects:
        if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
            raise BadInputError(
                "An object in state= cannot be saved and restored",
                seen=f"{type(thing).__name__} without state_dict and load_state_dict",
                way_out="pass the model and the optimizer: state=(model, optimizer)",
            )
    saved = [copy.deepcopy(thing.state_dict()) for thing in objects]
    try:
        yield
    finally:
        for thing, state in zip(objects, saved, strict=True):
            thing.load_state_dict(state)


class CountedStep:
    """The reader's step, counting its calls and remembering whether it ever went through."""

    def __init__(self, step):
        self.step, self.calls, self.done = step, 0, 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        result = self.step(batch)
        self.done += 1
        return result
