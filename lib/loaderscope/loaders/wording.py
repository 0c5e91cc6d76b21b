"""The line of code that makes a loader as it is, with changes: what a fix shows for pasting."""

from __future__ import annotations

import inspect
import keyword
import math
import multiprocessing
import numbers
from multiprocessing.context import BaseContext, DefaultContext
from typing import Any

from torch.utils.data import DataLoader, default_collate, default_convert

from loaderscope.loaders import inspection as look
from loaderscope.loaders.changes import DEFAULT_PREFETCH, NEED_WORKERS
from loaderscope.loaders.facts import start_method_of
from loaderscope.records import is_measured

_DEFAULTS = {
    name: parameter.default
    for name, parameter in inspect.signature(DataLoader.__init__).parameters.items()
    if name not in ("self", "dataset")
}
_SHOWN_BY_ROLE = ("sampler", "batch_sampler", "generator", "dataset")
_EXCLUDED_BY_BATCH_SAMPLER = ("batch_size", "shuffle", "sampler", "drop_last")


def construction(loader: DataLoader, changes: dict[str, Any]) -> str:
    """`DataLoader(dataset, …)` with the loader's own arguments that are not the default, and every change."""
    holder = look.state_holder(loader)
    arguments = _own_arguments(loader if holder is None else holder)  # a loader's truth value is its length
    for name in _ruled_out(arguments, changes):
        arguments.pop(name, None)
    arguments.update({name: value for name, value in changes.items() if name != "dataset"})
    written = [f"{name}={_written(name, arguments[name])}" for name in _DEFAULTS if name in arguments]
    return f"{_name_of(type(loader), 'DataLoader')}({', '.join(['dataset', *written])})"


def call(name: str, changes: dict[str, Any], *first: str) -> str:
    """`name(first, num_workers=8, …)`: a factory's call, or a DataLoader of which nothing else is known."""
    changed = [f"{key}={_written(key, value)}" for key, value in changes.items() if key not in first]
    return f"{name}({', '.join([*first, *changed])})"


def _ruled_out(arguments: dict[str, Any], changes: dict[str, Any]) -> list[str]:
    """The loader's own arguments that the changed ones leave no room for."""
    out: list[str] = []
    if changes.get("num_workers", arguments.get("num_workers", 0)) == 0:
        out += NEED_WORKERS if "num_workers" in changes else [name for name in NEED_WORKERS if name != "timeout"]
    if "batch_sampler" in changes:
        out += _EXCLUDED_BY_BATCH_SAMPLER
    elif any(name in changes for name in _EXCLUDED_BY_BATCH_SAMPLER):
        out.append("batch_sampler")
    if "shuffle" in changes or "sampler" in changes:
        out += ["shuffle", "sampler"]
    return out


def _own_arguments(loader: DataLoader) -> dict[str, Any]:
    """The arguments DataLoader would need to make this loader again, without those at their default."""
    now = {name: look.given(loader, name) for name in _DEFAULTS if name != "shuffle"}
    special = ("sampler", "batch_sampler", "collate_fn", "batch_size", "prefetch_factor")
    # None is the default, or an attribute that could not be read.
    kept = {
        name: value
        for name, value in now.items()
        if name not in special and value is not None and not _is_default(name, value)
    }
    if now["prefetch_factor"] not in (None, DEFAULT_PREFETCH):
        kept["prefetch_factor"] = now["prefetch_factor"]
    if not _is_default_collate(loader, now):
        kept["collate_fn"] = now["collate_fn"]
    if now["batch_sampler"] is not None and now["batch_size"] is None:
        return {**kept, "batch_sampler": now["batch_sampler"]}
    if not _is_default("batch_size", now["batch_size"]):
        kept["batch_size"] = now["batch_size"]
    return {**kept, **_own_order(loader)}


def _is_default(name: str, value: Any) -> bool:
    default = _DEFAULTS[name]
    return value is default or (isinstance(value, (int, float, str)) and value == default)


def _is_default_collate(loader: DataLoader, now: dict[str, Any]) -> bool:
    function = now["collate_fn"]
    if inspect.ismethod(function) and function.__self__ is loader:
        return True  # the subclass passes it to itself
    return function is None or function is (default_collate if now["batch_sampler"] is not None else default_convert)


def _own_order(loader: DataLoader) -> dict[str, Any]:
    if look.given(loader, "_dataset_kind") or look.is_default_order(loader):
        return {}
    return {"shuffle": True} if look.is_default_shuffle(loader) else {"sampler": look.given(loader, "sampler")}


def _written(name: str, value: Any) -> str:
    """A value as Python source: literals as such, functions by name, other objects by the argument's name."""
    if name in _SHOWN_BY_ROLE and value is not None:
        return name
    if isinstance(value, (bool, str, type(None))):
        return repr(value)
    if isinstance(value, numbers.Integral):
        return repr(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value)) if math.isfinite(value) else f'float("{float(value)}")'
    if isinstance(value, BaseContext) and not isinstance(value, DefaultContext):
        method = start_method_of(value)
        return repr(method) if is_measured(method) and method in multiprocessing.get_all_start_methods() else name
    return _name_of(value, name) if inspect.isfunction(value) or isinstance(value, type) else name


def _name_of(value: Any, otherwise: str) -> str:
    """Its `__name__` where Python could have it as a variable (a lambda's it could not)."""
    name = look.given(value, "__name__")
    usable = isinstance(name, str) and name.isidentifier() and not keyword.iskeyword(name)
    return name if usable else otherwise
