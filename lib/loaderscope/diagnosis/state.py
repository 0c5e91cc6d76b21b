"""Save what a measured training step changes, and put it back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from contextlib import contextmanager
from typing import Any

import torch

from loaderscope.errors import BadInputError, LoaderscopeError, StepFailedError
from loaderscope.isolation import signals
from loaderscope.records import Outcome

WAY_OUT = "pass the model and the optimizer: state=(model, optimizer)"


def stateful(state: Any) -> tuple[Any, ...]:
    """The objects of `state`, a single one too.

    Raises:
        BadInputError: an object has no state_dict and load_state_dict, or state is no collection of objects.
    """
    if _has_state(state):
        return (state,)
    if not isinstance(state, Iterable) or isinstance(state, (str, bytes)):
        raise BadInputError("state= holds nothing to save", seen=type(state).__name__, way_out=WAY_OUT)
    objects = tuple(state)
    for thing in objects:
        if not _has_state(thing):
            raise BadInputError(
                "An object in state= cannot be saved and restored",
                seen=f"{type(thing).__name__} without state_dict and load_state_dict",
                way_out=WAY_OUT,
            )
    return objects


def _has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


@contextmanager
def restored(objects: tuple[Any, ...]):
    """Inside, the objects may train; on leaving, their `state_dict` is what it was, and so are a module's gradients
    and training flags.

    Raises:
        BadInputError: an object could not be saved.
        LoaderscopeError: an object could not be put back; the others were.
    """
    saved = [(thing, _saved(thing)) for thing in objects]
    try:
        yield
    finally:
        # Loading twice does no harm: an interrupt must not leave a model half restored.
        signals.run_to_the_end(lambda: _restore(saved))


def _saved(thing: Any) -> Callable[[], None]:
    try:
        return _saver(thing)
    except Exception as error:  # whatever the reader's state_dict raises
        raise BadInputError(
            "An object in state= could not be saved",
            seen=f"{type(thing).__name__}: {type(error).__name__}: {error}",
            way_out="leave it out of state=, or make its state_dict something that can be copied",
        ) from error


def _saver(thing: Any) -> Callable[[], None]:
    """What puts the object back to where it is now."""
    state = copy.deepcopy(thing.state_dict())
    modules = list(thing.modules()) if isinstance(thing, torch.nn.Module) else []
    flags = [module.training for module in modules]
    parameters = [p for module in modules for p in module.parameters(recurse=False)]
    gradients = [None if p.grad is None else p.grad.detach().clone() for p in parameters]

    def restore() -> None:
        thing.load_state_dict(state)
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient

    return restore


def _restore(saved: list[tuple[Any, Callable[[], None]]]) -> None:
    failed: list[tuple[str, Exception]] = []
    for thing, restore in saved:
        try:
            restore()
        except Exception as error:  # whatever the reader's load_state_dict raises
            failed.append((type(thing).__name__, error))
    if failed:
        name, error = failed[0]
        raise LoaderscopeError(
            "An object in state= could not be put back to what it was",
            seen=f"{name}.load_state_dict raised {type(error).__name__}: {error}",
            way_out="load its last checkpoint before you train on; the other objects were restored",
        ) from error


class CountedStep:
    """The reader's step, counting its calls and remembering whether it ever went through."""

    def __init__(self, step):
        self.step, self.calls, self.done = step, 0, 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        result = self.step(batch)
        self.done += 1
        return result


def step_failed(fault: Outcome) -> StepFailedError:
    """The error for a step that raised on the first batch it was given."""
    return StepFailedError(
        "Your step raised on the first batch it was given",
        seen=f"{fault.error_type}: {fault.error_text}",
        likely="step= takes one batch as the loader gives it; moving it to the device is the step's own work",
        way_out="call step(next(iter(loader))) by hand, or leave step= out to look at the loader alone",
    )
