"""Checks of what a reader passes to a public function: each refusal names the argument, the value and the way out."""

from __future__ import annotations

import math
import numbers
from typing import Any

from loaderscope.errors import BadInputError


def seconds(name: str, value: Any, instead: str = "pass a number of seconds, e.g. 15") -> float:
    """`value` as a finite number above 0.

    Args:
        name: of the argument.
        instead: the way out to name.

    Raises:
        BadInputError: it is not one.
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise BadInputError(f"{name} must be a number of seconds above 0", seen=shown(value), way_out=instead)
    return float(value)


def count(name: str, value: Any) -> None:
    """Refuse what is not a whole number above 0; None means that no number was given.

    Raises:
        BadInputError: see above.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if value is not None and not (whole and value > 0):
        raise BadInputError(
            f"{name} must be a whole number above 0",
            seen=shown(value),
            way_out=f"pass {name}=1 or more, or leave it out",
        )


def step(value: Any) -> None:
    """Refuse a step that cannot be called.

    Raises:
        BadInputError: it is neither None nor callable.
    """
    if value is not None and not callable(value):
        raise BadInputError(
            "step must be callable with one batch",
            seen=shown(value),
            way_out="pass a function, e.g. step=lambda batch: model(batch)",
        )


def shown(value: Any) -> str:
    """Plain values as they are written, other objects by their class: a reader's `__repr__` may be long, or raise."""
    plain = isinstance(value, (str, int, float, tuple, list, type(None)))
    return repr(value)[:80] if plain else type(value).__name__
