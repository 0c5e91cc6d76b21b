"""LoaderFacts from a live loader: every setting as read, NotMeasured with the reason where it cannot be."""

from __future__ import annotations

import multiprocessing
import operator
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _DatasetKind

from loaderscope.loaders import inspection as look
from loaderscope.records import LoaderFacts, NotMeasured, is_measured

NONE_PASSED = ""
UNKNOWN_DATASET = "a dataset that cannot be seen from outside"


def kind_of(loader: Any) -> str:
    """ "map", "iterable" or "any"; asks neither the loader nor its dataset for an item."""
    if not look.is_loader(loader):
        return "any"
    kind = look.given(loader, "_dataset_kind")
    if kind is None:
        return "iterable" if issubclass(type(look.given(loader, "dataset")), IterableDataset) else "map"
    return "iterable" if kind == _DatasetKind.Iterable else "map"


def read_facts(loader: Any, kind: str, refused: str) -> LoaderFacts:
    """The configuration of `loader` (see LoaderFacts).

    batch_sampler and worker_init are "" where none was passed; with a batch sampler, sampler is the one
    inside it. refused: why a changed copy cannot be made.
    """
    return _facts_of_any(loader, refused) if kind == "any" else _facts_of_loader(loader, kind, refused)


def _facts_of_any(loader: Any, refused: str) -> LoaderFacts:
    name = look.class_name(loader)
    unknown = NotMeasured(f"{name} is not a DataLoader")
    settings = (
        "length batch_size num_workers prefetch_factor persistent_workers pin_memory drop_last in_order timeout_s "
        "start_method sampler batch_sampler collate worker_init has_generator has_getitems"
    ).split()
    return LoaderFacts(
        kind="any",
        loader=name,
        dataset=UNKNOWN_DATASET,
        batches=look.length(loader, "loader"),
        rebuild_refused=refused,
        **dict.fromkeys(settings, unknown),
    )


def _facts_of_loader(loader: DataLoader, kind: str, refused: str) -> LoaderFacts:
    dataset = look.attribute(loader, "dataset", "loader")
    seen = is_measured(dataset)
    return LoaderFacts(
        kind=kind,
        loader=look.class_name(loader),
        dataset=look.class_name(dataset) if seen else UNKNOWN_DATASET,
        length=look.length(dataset, "dataset") if seen else _or_none(dataset, "dataset"),
        batches=_batches(loader),
        batch_size=_setting(loader, "batch_size", operator.index, "a whole number", optional=True),
        num_workers=_setting(loader, "num_workers", operator.index, "a whole number"),
        prefetch_factor=_setting(loader, "prefetch_factor", operator.index, "a whole number", optional=True),
        persistent_workers=_setting(loader, "persistent_workers", bool, "true or false"),
        pin_memory=_setting(loader, "pin_memory", bool, "true or false"),
        drop_last=_setting(loader, "drop_last", bool, "true or false"),
        in_order=_setting(loader, "in_order", bool, "true or false"),
        timeout_s=_setting(loader, "timeout", float, "a number"),
        start_method=_start_method(loader),
        sampler=_order(loader, kind),
        batch_sampler=_own_batch_sampler(loader),
        collate=_named(loader, "collate_fn"),
        worker_init=_named(loader, "worker_init_fn"),
        has_generator=_present(loader, "generator"),
        has_getitems=seen and kind == "map" and callable(look.given(dataset, "__getitems__")),
        rebuild_refused=refused,
    )


def _or_none(value: Any, name: str) -> NotMeasured:
    return value if isinstance(value, NotMeasured) else NotMeasured(f"loader.{name} is None")


def _batches(loader: DataLoader) -> int | NotMeasured:
    """`len(loader)`. With an IterableDataset torch notes in the loader that it was asked, and warns by it later."""
    noted = "_IterableDataset_len_called"
    holder = look.state_holder(loader)
    before = look.own_attributes(holder).get(noted) if holder is not None else None
    batches = look.length(loader, "loader")
    if holder is not None and noted in vars(holder):
        vars(holder)[noted] = before
    return batches


def _setting(loader: DataLoader, name: str, convert: Callable, wanted: str, optional: bool = False) -> Any:
    value = look.attribute(loader, name, "loader")
    if isinstance(value, NotMeasured) or (value is None and optional):
        return value
    try:
        return convert(value)
    except look.RAISED:
        return NotMeasured(f"loader.{name} is a {look.class_name(value)}, not {wanted}")


def _start_method(loader: DataLoader) -> str | NotMeasured:
    context = look.attribute(loader, "multiprocessing_context", "loader")
    if isinstance(context, NotMeasured):
        return context
    return start_method_of(context)


def start_method_of(context: Any) -> str | NotMeasured:
    """ "fork", "spawn" or "forkserver" for a context object; None stands for this process's default.

    Asked with allow_none=True: a plain `get_start_method()` would fix the default for the rest of the process.
    """
    source = multiprocessing if context is None else context
    try:
        return source.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    except look.RAISED as error:
        return NotMeasured(f"the multiprocessing context does not tell its start method: {look.said(error)}")


def _order(loader: DataLoader, kind: str) -> str | NotMeasured:
    if kind == "iterable":
        return NotMeasured("an iterable dataset makes its own order")
    if look.has_own_batch_sampler(loader):
        inside = look.given(look.given(loader, "batch_sampler"), "sampler")
        return look.class_name(inside) if inside is not None else NotMeasured("the batch sampler makes its own order")
    sampler = look.attribute(loader, "sampler", "loader")
    return look.class_name(sampler) if is_measured(sampler) else _or_none(sampler, "sampler")


def _own_batch_sampler(loader: DataLoader) -> str | NotMeasured:
    batches = look.attribute(loader, "batch_sampler", "loader")
    if isinstance(batches, NotMeasured):
        return batches
    return look.class_name(batches) if look.has_own_batch_sampler(loader) else NONE_PASSED


def _named(loader: DataLoader, name: str) -> str | NotMeasured:
    function = look.attribute(loader, name, "loader")
    if function is None or isinstance(function, NotMeasured):
        return NONE_PASSED if function is None else function
    return look.callable_name(function)


def _present(loader: DataLoader, name: str) -> bool | NotMeasured:
    value = look.attribute(loader, name, "loader")
    return value if isinstance(value, NotMeasured) else value is not None
