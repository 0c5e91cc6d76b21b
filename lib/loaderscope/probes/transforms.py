"""Find the transforms a dataset applies, and time each call of them by name.

Finding is pure and gives the same list in every process. Timing changes the objects, so it happens only in a
worker's or a child's own copy of the dataset.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

WORDS = ("transform", "augment", "preprocess", "pipeline")
MAX_STAGES = 40
MAX_DEPTH = 5


@dataclass(frozen=True)
class Place:
    """Where a callable sits: `holder[key]` in a list or dict, `holder.key` otherwise; path as a reader writes it."""

    holder: Any
    key: Any
    path: str
    name: str

    def get(self) -> Any:
        return self.holder[self.key] if isinstance(self.holder, (list, dict)) else vars(self.holder)[self.key]

    def put(self, value: Any) -> None:
        if isinstance(self.holder, (list, dict)):
            self.holder[self.key] = value
        else:
            vars(self.holder)[self.key] = value


def find_transforms(dataset: Any) -> tuple[Place, ...]:
    """The innermost named callables among the attributes that look like transforms.

    Looks through wrappers (`dataset.dataset`, as in Subset) and containers with a `.transforms` list (torchvision
    v1 and v2 Compose, albumentations), and lists of callables. Bounded in depth and number; properties are not run.
    """
    found: list[Place] = []
    _search(dataset, "dataset", found, set(), 0)
    return tuple(found[:MAX_STAGES])


def _attributes(owner: Any) -> dict[str, Any]:
    try:
        return dict(vars(owner))
    except TypeError:
        return {}


def _search(owner: Any, path: str, found: list[Place], seen: set[int], depth: int) -> None:
    if id(owner) in seen or depth > MAX_DEPTH:
        return
    seen.add(id(owner))
    for name, value in _attributes(owner).items():
        where = f"{path}.{name}"
        if name in ("dataset", "datasets"):
            for k, inner in enumerate(value if isinstance(value, (list, tuple)) else (value,)):
                _search(inner, f"{where}[{k}]" if isinstance(value, (list, tuple)) else where, found, seen, depth + 1)
        elif any(word in name.lower() for word in WORDS):
            _collect(Place(vars(owner), name, where, _name_of(value)), found, seen, depth + 1)


def _collect(place: Place, found: list[Place], seen: set[int], depth: int) -> None:
    value = place.get()
    if value is None or depth > MAX_DEPTH or len(found) >= MAX_STAGES:
        return
    inner, within = (value, "") if isinstance(value, list) else (_attributes(value).get("transforms"), ".transforms")
    if isinstance(inner, list) and inner and all(callable(t) for t in inner):
        if id(inner) not in seen:
            seen.add(id(inner))
            for k, item in enumerate(inner):
                _collect(Place(inner, k, f"{place.path}{within}[{k}]", _name_of(item)), found, seen, depth + 1)
        return
    nested = {k: v for k, v in _attributes(value).items() if k in ("transform", "target_transform") and callable(v)}
    if nested:  # torchvision's StandardTransform
        for name, item in nested.items():
            _collect(Place(vars(value), name, f"{place.path}.{name}", _name_of(item)), found, seen, depth + 1)
    elif callable(value) and id(value) not in seen:
        seen.add(id(value))
        found.append(place)


def _name_of(value: Any) -> str:
    if isinstance(value, functools.partial):
        return _name_of(value.func)
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return value.__name__
    return type(value).__name__


Timer = Callable[[int, Callable[..., Any], tuple, dict], Any]


def instrument(places: tuple[Place, ...], timer: Timer) -> None:
    """Let every call at `places` go through `timer(number, call, args, kwargs)`. Changes the holders."""
    for number, place in enumerate(places):
        place.put(_timed(place.get(), number, timer))


def _timed(target: Any, number: int, timer: Timer) -> Any:
    """The same object under a subclass whose call is timed, so isinstance checks still hold; else a wrapper."""
    cls = type(target)

    def __call__(self, *args, **kwargs):
        return timer(number, functools.partial(cls.__call__, self), args, kwargs)

    try:
        timed = type(cls.__name__, (cls,), {"__call__": __call__, "__module__": cls.__module__})
        object.__setattr__(target, "__class__", timed)
        return target
    except (
        Exception
    ):  # functions, builtins, classes with slots, metaclasses that refuse: any of these can raise anything
        return _TimedCall(target, number, timer)


class _TimedCall:
    def __init__(self, target: Any, number: int, timer: Timer):
        self._target, self._number, self._timer = target, number, timer

    def __call__(self, *args, **kwargs):
        return self._timer(self._number, self._target, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        # Transparent on purpose: the dataset may look at attributes of its own transform.
        if name in ("_target", "_number", "_timer"):
            raise AttributeError(name)
        return getattr(self._target, name)
