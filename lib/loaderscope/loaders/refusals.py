"""Why a copy cannot be made: each function returns a sentence, or "" where nothing stands against it."""

from __future__ import annotations

import inspect
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, IterDataPipe, MapDataPipe
from torch.utils.data.dataloader import _BaseDataLoaderIter

from loaderscope.loaders import inspection as look
from loaderscope.loaders.changes import ORDERING, edits
from loaderscope.records import NotMeasured


def of_copy(loader: DataLoader, changes: dict[str, Any]) -> str:
    """Why a copy of this very object is out of the question."""
    cls = look.class_name(loader)
    holder = look.state_holder(loader)
    if holder is None:
        return f"{cls} never ran DataLoader.__init__, so its settings are not where DataLoader keeps them"
    if hasattr(type(loader), "__del__") or hasattr(type(holder), "__del__"):
        return f"{cls} defines __del__, which would run on what the original still uses when the copy goes"
    return _live_iterator(loader) or _live_iterator(holder) or _one_shot_order(holder, changes)


def _live_iterator(loader: DataLoader) -> str:
    for name, value in look.own_attributes(loader).items():
        judged_elsewhere = name in ("_iterator", "sampler", "batch_sampler", "dataset")
        if not judged_elsewhere and (isinstance(value, _BaseDataLoaderIter) or inspect.isgenerator(value)):
            return (
                f"{look.class_name(loader)} keeps a running iterator in .{name}, which a copy would take batches from; "
                "pass a function that makes the loader"
            )
    return ""


def _one_shot_order(loader: DataLoader, changes: dict[str, Any]) -> str:
    if "batch_sampler" in changes:
        return ""
    own_batches = look.has_own_batch_sampler(loader)
    replaced = not own_batches and ("shuffle" in changes or "sampler" in changes)
    for name in () if replaced else ("batch_sampler", "sampler"):
        thing = look.given(loader, name)
        for label, part in ((name, thing), (f"{name}.sampler", look.given(thing, "sampler"))):
            if part is not None and look.is_used_up_by_reading(part):
                return (
                    f"its {label} is an iterator ({look.class_name(part)}) that can be gone through once, so a copy "
                    "would use it up; pass a function that makes the loader"
                )
    return ""


def of_resharding(loader: Any, kind: str, changes: dict[str, Any]) -> str:
    """Why the worker count of an iterable dataset stays: every worker runs the whole `__iter__` unless it shards.

    Going between 0 and 1 worker is free: both read the data once.
    """
    before, after = look.given(loader, "num_workers"), changes.get("num_workers")
    if kind != "iterable" or after is None or (isinstance(before, int) and max(1, before) == max(1, after)):
        return ""
    return (
        f"with an iterable dataset the number of workers ({before} to {after}) decides how often each sample comes, "
        "unless the dataset shares itself out by get_worker_info(); allow_resharding=True says that it does"
    )


def of_edit(loader: DataLoader, kind: str, changes: dict[str, Any]) -> str:
    """Why these changes cannot be put on a copy of this object, or would make it give other data."""
    holder = look.state_holder(loader)
    if not changes:
        return ""
    if holder is None:
        return f"{look.class_name(loader)} never ran DataLoader.__init__"
    return (
        _live_iterator(loader)
        or _live_iterator(holder)
        or _unreadable(holder)
        or _dataset_refusal(holder, changes)
        or _order_refusal(holder, kind, changes)
        or _attribute_refusal(holder, changes)
    )


def _unreadable(loader: DataLoader) -> str:
    for name in ("dataset", "num_workers", "batch_size", "drop_last", "sampler", "batch_sampler", "generator"):
        value = look.attribute(loader, name, "loader")
        if isinstance(value, NotMeasured):
            return value.reason
    return ""


def _dataset_refusal(loader: DataLoader, changes: dict[str, Any]) -> str:
    pipes = (IterDataPipe, MapDataPipe)
    sharded = "dataset" in changes and isinstance(look.given(loader, "dataset"), pipes)
    if sharded and not isinstance(changes["dataset"], pipes):
        return "the dataset is a DataPipe, which DataLoader shards itself; a stand-in would not be sharded"
    return ""


def _order_refusal(loader: DataLoader, kind: str, changes: dict[str, Any]) -> str:
    asked = sorted(ORDERING & set(changes))
    order = [name for name in asked if name in ("shuffle", "sampler", "batch_sampler")]
    if not asked:
        return ""
    if kind == "iterable" and any(changes[n] is not None and changes[n] is not False for n in order):
        return f"an iterable dataset makes its own order, so {', '.join(order)} has no meaning for it"
    own = look.has_own_batch_sampler(loader)
    if own and "batch_sampler" in changes:
        return ""
    if own:
        return f"its batches come from its batch_sampler, so {', '.join(asked)} cannot be changed from outside"
    if not look.has_stock_batches(loader):
        return _foreign_batches(loader)
    if loader.batch_size is None:
        return _unbatched_refusal(loader, asked)
    return ""


def _foreign_batches(loader: DataLoader) -> str:
    return f"its batches are cut by {look.class_name(loader.batch_sampler)}, put there by the loader's class"


def _unbatched_refusal(loader: DataLoader, asked: list[str]) -> str:
    if {"batch_size", "drop_last", "batch_sampler"} & set(asked):
        return "it has batch_size=None: the dataset makes the batches itself, and would be batched twice"
    if "shuffle" in asked and isinstance(loader.sampler, BatchSampler):
        return "its sampler hands the dataset whole lists of indices; shuffle would hand it single ones"
    return ""


def _attribute_refusal(loader: DataLoader, changes: dict[str, Any]) -> str:
    try:
        wanted = edits(loader, changes)
    except look.RAISED as error:
        return f"working out the changes raised {look.said(error)}"
    for name in wanted:
        found = inspect.getattr_static(type(loader), name, None)
        if name != "multiprocessing_context" and hasattr(type(found), "__set__"):
            return f"{look.class_name(loader)} works out .{name} itself, so it cannot be set from outside"
    return ""
