"""Careful looks at the reader's objects: nothing here iterates, indexes, or trusts an attribute to answer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from loaderscope.records import NotMeasured

# What a reader's attribute may raise at us. KeyboardInterrupt is not in it: ■ must keep working.
RAISED = (Exception, SystemExit, GeneratorExit)
LONGEST_MESSAGE = 200


def said(error: BaseException) -> str:
    """An exception as one short line, even where its own `__str__` raises."""
    try:
        text = " ".join(str(error).split())
    except RAISED:
        text = "(its message cannot be read)"
    text = text if len(text) <= LONGEST_MESSAGE else text[: LONGEST_MESSAGE - 1] + "…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def attribute(owner: Any, name: str, label: str) -> Any:
    """`owner.name`, or NotMeasured saying what reading it raised."""
    try:
        return getattr(owner, name)
    except RAISED as error:
        return NotMeasured(f"{label}.{name} raises {said(error)}")


def given(owner: Any, name: str) -> Any:
    """`owner.name`, or None where it is absent or cannot be read."""
    try:
        return getattr(owner, name, None)
    except RAISED:
        return None


def length(thing: Any, label: str) -> int | NotMeasured:
    """`len(thing)`, or NotMeasured saying what asking raised."""
    try:
        return len(thing)
    except RAISED as error:
        return NotMeasured(f"len({label}) raises {said(error)}")


def own_attributes(thing: Any) -> dict[str, Any]:
    """A copy of the object's `__dict__`; empty where it has none."""
    try:
        return dict(vars(thing))
    except RAISED:
        return {}


def class_name(thing: Any) -> str:
    """The qualified name of an object's class, e.g. "torchvision.datasets.folder.ImageFolder"."""
    return _qualified(type(thing))


def callable_name(thing: Any) -> str:
    """The qualified name of a function, of what a partial wraps, or of a callable object's class."""
    if isinstance(thing, functools.partial):
        return f"functools.partial({callable_name(thing.func)})"
    named = inspect.isroutine(thing) or isinstance(thing, type)
    return _qualified(thing) if named else class_name(thing)


def _qualified(named: Any) -> str:
    name = given(named, "__qualname__") or "unknown"
    module = given(named, "__module__")
    return name if module in (None, "builtins") else f"{module}.{name}"


def is_loader(thing: Any) -> bool:
    """Whether it is a DataLoader. Asks the type, because `__class__` can be made to say anything."""
    return issubclass(type(thing), DataLoader)


def is_used_up_by_reading(thing: Any) -> bool:
    """Whether it is an iterator (its own `iter`), so that going through it once empties it."""
    return hasattr(type(thing), "__next__")


def state_holder(loader: DataLoader) -> DataLoader | None:
    """The DataLoader whose `__dict__` holds the settings, or None where there is not exactly one.

    Some subclasses (accelerate's) never run `DataLoader.__init__` and pass everything on to one they hold.
    """
    for _ in range(4):
        own = own_attributes(loader)
        if "_dataset_kind" in own:
            return loader
        inner = [value for value in own.values() if is_loader(value)]
        if len(inner) != 1:
            return None
        loader = inner[0]
    return None


def has_own_batch_sampler(loader: DataLoader) -> bool:
    """Whether the reader passed `batch_sampler=` (then the loader's batch_size is None)."""
    return given(loader, "batch_sampler") is not None and attribute(loader, "batch_size", "loader") is None


def has_stock_batches(loader: DataLoader) -> bool:
    """Whether batches are cut from the sampler the way DataLoader itself does it, or not at all."""
    batches = given(loader, "batch_sampler")
    return batches is None or (type(batches) is BatchSampler and batches.sampler is given(loader, "sampler"))


def is_default_shuffle(loader: DataLoader) -> bool:
    """Whether the sampler equals what `shuffle=True` makes."""
    sampler = given(loader, "sampler")
    return (
        type(sampler) is RandomSampler
        and not sampler.replacement
        and sampler._num_samples is None
        and sampler.data_source is given(loader, "dataset")
        and sampler.generator is given(loader, "generator")
    )


def is_default_order(loader: DataLoader) -> bool:
    """Whether the sampler equals what `shuffle=False` makes."""
    sampler = given(loader, "sampler")
    return type(sampler) is SequentialSampler and sampler.data_source is given(loader, "dataset")


def accepted_keywords(function: Callable) -> Callable[[str], str]:
    """Tells for a keyword whether `function` takes it: by "name", by "kwargs", or "" for not at all."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return lambda name: ""
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return lambda name: "name" if name in named else "kwargs" if anything else ""
