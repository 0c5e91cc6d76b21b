"""Changes to a DataLoader's arguments: which there are, which are valid, and what each means for the object."""

from __future__ import annotations

import math
import multiprocessing
import numbers
from collections.abc import Callable
from multiprocessing.context import BaseContext
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)
from torch.utils.data.dataloader import _DatasetKind

from loaderscope.errors import BadInputError
from loaderscope.loaders import inspection as look

DEFAULT_PREFETCH = 2  # what DataLoader takes with workers when nothing is said


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _is_context(value: Any) -> bool:
    if isinstance(value, str):
        return value in multiprocessing.get_all_start_methods()
    return value is None or isinstance(value, BaseContext)


def _is_time(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not math.isnan(value) and value >= 0


_FLAG = (lambda v: isinstance(v, bool), "True or False")
_FUNCTION = (lambda v: v is None or callable(v), "a function or None")
_CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_workers": (lambda v: _is_whole(v) and v >= 0, "a whole number, 0 or more"),
    "prefetch_factor": (lambda v: v is None or (_is_whole(v) and v > 0), "a whole number, 1 or more, or None"),
    "persistent_workers": _FLAG,
    "pin_memory": _FLAG,
    "timeout": (_is_time, "seconds, 0 or more"),
    "worker_init_fn": _FUNCTION,
    "multiprocessing_context": (_is_context, f"one of {multiprocessing.get_all_start_methods()}, a context or None"),
    "in_order": _FLAG,
    "collate_fn": _FUNCTION,
    "dataset": (lambda v: v is not None, "a stand-in for the same data"),
    "generator": (lambda v: v is None or isinstance(v, torch.Generator), "a torch.Generator or None"),
    "batch_size": (lambda v: _is_whole(v) and v > 0, "a whole number, 1 or more"),
    "drop_last": _FLAG,
    "shuffle": (lambda v: v is None or isinstance(v, bool), "True, False or None"),
    "sampler": (lambda v: v is None or _can_be_iterated(v), "an iterable of indices or None"),
    "batch_sampler": (lambda v: _can_be_iterated(v), "an iterable of lists of indices"),
}
ARGUMENTS = tuple(_CHECKS)
"""The DataLoader arguments that `LoaderSpec.copy` can change."""

NEED_WORKERS = {"prefetch_factor": None, "persistent_workers": False, "timeout": 0, "multiprocessing_context": None}
ORDERING = {"batch_size", "drop_last", "shuffle", "sampler", "batch_sampler"}


def _can_be_iterated(value: Any) -> bool:
    return hasattr(type(value), "__iter__") or hasattr(type(value), "__getitem__")


def check(changes: dict[str, Any], workers: Any) -> None:
    """Refuse what DataLoader would refuse, now or when it is iterated.

    workers: the loader's num_workers before the changes, or None where it is not known.

    Raises:
        BadInputError: an unknown name, a value of the wrong kind, or changes that exclude each other.
    """
    unknown = [name for name in changes if name not in _CHECKS]
    if unknown:
        raise BadInputError(
            "This is not a DataLoader argument that a copy can change",
            seen=", ".join(unknown),
            way_out=f"use one of {', '.join(ARGUMENTS)}",
        )
    for name, value in changes.items():
        valid, wanted = _CHECKS[name]
        if not valid(value):
            seen = repr(value) if isinstance(value, (str, int, float, type(None))) else look.class_name(value)
            raise BadInputError(f"{name} must be {wanted}", seen=f"{name}={seen}")
    _check_workers(changes, changes.get("num_workers", workers))
    _check_order(changes)


def _check_workers(changes: dict[str, Any], workers: Any) -> None:
    if not (_is_whole(workers) and workers == 0):
        return
    for name, without in NEED_WORKERS.items():
        if changes.get(name, without) != without:
            raise BadInputError(
                f"{name} needs workers",
                seen=f"{name}={changes[name]!r} with num_workers=0",
                way_out="ask for num_workers of 1 or more as well",
            )


def _check_order(changes: dict[str, Any]) -> None:
    both = "sampler" if changes.get("sampler") is not None and changes.get("shuffle") else ""
    clash = [name for name in ORDERING - {"batch_sampler"} if name in changes] if "batch_sampler" in changes else []
    if both or clash:
        first, second = ("sampler", ["shuffle"]) if both else ("batch_sampler", sorted(clash))
        raise BadInputError(f"{first} excludes {', '.join(second)}", way_out=f"drop {first} or {', '.join(second)}")


def edits(loader: DataLoader, changes: dict[str, Any]) -> dict[str, Any]:
    """The attributes to set on a copy of `loader` so that it is as DataLoader(…, **changes) would have made it.

    `changes` have passed `check` and `refusals.of_edit`. Only what differs in consequence is set: a copy
    without changes keeps even a faulty configuration.
    """
    out = {name: value for name, value in changes.items() if name not in ORDERING}
    if changes.get("num_workers", loader.num_workers) != loader.num_workers:
        if changes["num_workers"] == 0:
            out.update(NEED_WORKERS)
        elif loader.num_workers == 0:
            out = {"prefetch_factor": DEFAULT_PREFETCH, "persistent_workers": False, **out}
    if out.get("prefetch_factor", 0) is None and out.get("num_workers", loader.num_workers):
        out["prefetch_factor"] = DEFAULT_PREFETCH
    out.update(_order_edits(loader, changes))
    if out.get("collate_fn", 0) is None:
        together = out.get("batch_sampler", loader.batch_sampler) is not None
        out["collate_fn"] = default_collate if together else default_convert
    return out


def _order_edits(loader: DataLoader, changes: dict[str, Any]) -> dict[str, Any]:
    if "batch_sampler" in changes:
        return {"batch_sampler": changes["batch_sampler"], "batch_size": None, "drop_last": False}
    sampler = loader.sampler if loader._dataset_kind == _DatasetKind.Iterable else _new_sampler(loader, changes)
    size = changes.get("batch_size", loader.batch_size)
    drop_last = changes.get("drop_last", loader.drop_last)
    if sampler is loader.sampler and size == loader.batch_size and drop_last == loader.drop_last:
        return {}
    out = {"sampler": sampler, "batch_size": size, "drop_last": drop_last}
    if size is not None:
        out["batch_sampler"] = BatchSampler(sampler, size, drop_last)
    return out


def _new_sampler(loader: DataLoader, changes: dict[str, Any]) -> Any:
    """The sampler of the copy: the loader's own object unless the changes ask for another order."""
    if changes.get("sampler") is not None:
        return changes["sampler"]
    dataset = changes.get("dataset", loader.dataset)
    generator = changes.get("generator", loader.generator)
    if "shuffle" in changes or "sampler" in changes:
        shuffle = bool(changes.get("shuffle"))
        as_asked = look.is_default_shuffle(loader) if shuffle else look.is_default_order(loader)
        if as_asked and "generator" not in changes:
            return loader.sampler
        return RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    # DataLoader(shuffle=True, generator=g) hands g to the sampler, so a new g must arrive there too.
    if generator is not loader.generator and look.is_default_shuffle(loader) and look.has_stock_batches(loader):
        return RandomSampler(dataset, generator=generator)
    return loader.sampler
