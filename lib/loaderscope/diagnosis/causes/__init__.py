"""The table of causes: `CAUSES` maps each id to what is known about it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from loaderscope.diagnosis.causes.cause import Cause
from loaderscope.diagnosis.causes.correctness import CORRECTNESS
from loaderscope.diagnosis.causes.memory import MEMORY
from loaderscope.diagnosis.causes.safety import SAFETY
from loaderscope.diagnosis.causes.speed import SPEED

__all__ = ["CAUSES", "Cause"]

# The order is part of the table: findings that are otherwise equal are shown in it.
CAUSES: Mapping[str, Cause] = MappingProxyType({cause.id: cause for cause in (*SPEED, *MEMORY, *CORRECTNESS, *SAFETY)})
