"""What a reader may pass as a loader, and what each mistake is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data import Dataset, IterableDataset, Sampler

from loaderscope.errors import BadInputError
from loaderscope.loaders.inspection import RAISED, accepted_keywords, callable_name, class_name, is_loader, said

WANTED = "pass a DataLoader, a function that makes one (make_loader), or any iterable of batches"
LOOKED_AT = 16


def role_of(thing: Any) -> str:
    """ "loader", "iterable" or "factory".

    Raises:
        BadInputError: it is none of them, or one of the things often passed by mistake.
    """
    if is_loader(thing):
        return "loader"
    _refuse_mistakes(thing)
    if getattr(type(thing), "__iter__", None) is not None:
        return "iterable"
    if inspect.iscoroutinefunction(thing):
        raise BadInputError("An async function cannot be a loader factory", seen=callable_name(thing), way_out=WANTED)
    if callable(thing):
        return "factory"
    raise BadInputError("This is neither a loader nor an iterable of batches", seen=class_name(thing), way_out=WANTED)


def _refuse_mistakes(thing: Any) -> None:
    cls, name = type(thing), class_name(thing)
    if issubclass(cls, (str, bytes, bytearray)):
        raise BadInputError("Text is not a loader", seen=repr(thing[:40]), way_out=WANTED)
    if looks_like_dataset(thing):
        raise BadInputError(
            "This is a dataset, wrap it in DataLoader", seen=name, way_out="pass DataLoader(dataset, batch_size=…)"
        )
    if issubclass(cls, Sampler):
        raise BadInputError("This is a sampler: it gives indices, not batches", seen=name, way_out=WANTED)
    inside: Any = ()
    if issubclass(cls, (list, tuple)):
        inside = thing[:LOOKED_AT]
    elif issubclass(cls, Mapping):
        raise BadInputError(
            "A mapping is not a loader", seen=name, likely="several loaders by name", way_out="pass one of its values"
        )
    if any(is_loader(value) for value in inside):
        raise BadInputError(
            "A loader among other things was given",
            seen=f"{name} of {', '.join(class_name(v) for v in inside)}",
            likely="several loaders, or a loader with its step",
            way_out="pass the loader alone (and the step as step=)",
        )


def looks_like_dataset(thing: Any) -> bool:
    """Whether it is a map-style dataset rather than an iterable of batches.

    An IterableDataset is not counted: pipelines that batch by themselves (webdataset's WebLoader) are one.
    """
    cls = type(thing)
    if issubclass(cls, Dataset):
        return not issubclass(cls, IterableDataset)
    if hasattr(cls, "__getitems__"):
        return True
    return hasattr(cls, "__getitem__") and getattr(cls, "__iter__", None) is None


class Factory:
    """The reader's `make_loader(**overrides)`: called once for the spec and again for every copy."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self.takes = accepted_keywords(function)

    @property
    def name(self) -> str:
        """The name to write in a line of code."""
        name = getattr(self.function, "__name__", "")
        return name if isinstance(name, str) and name.isidentifier() else "make_loader"

    def accepts(self, names) -> bool:
        return all(self.takes(name) for name in names)

    def make(self, **overrides: Any) -> Any:
        """A DataLoader or an iterable of batches.

        Raises:
            BadInputError: the function raised, or returned something that is neither.
        """
        shown = callable_name(self.function)
        try:
            made = self.function(**overrides)
        except RAISED as error:
            raise BadInputError(
                "The function given in place of a loader raised when called"
                + (f" with {', '.join(overrides)}" if overrides else " without arguments"),
                seen=f"{shown}: {said(error)}",
                way_out=WANTED,
            ) from error
        self._refuse_result(made, shown)
        return made

    @staticmethod
    def _refuse_result(made: Any, shown: str) -> None:
        if made is None:
            raise BadInputError("The factory returned None", seen=shown, likely="its return statement is missing")
        if type(made) is tuple:
            raise BadInputError(
                "The factory returned a tuple",
                seen=f"{shown} -> ({', '.join(class_name(v) for v in made[:LOOKED_AT])})",
                likely="a loader together with its step",
                way_out="return the loader alone, and pass the step as step=",
            )
        if role_of(made) == "factory":
            raise BadInputError("The factory returned something not iterable", seen=class_name(made), way_out=WANTED)
