"""What is known about one cause, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """One reason why a loader is slow, wrong, greedy or unsafe.

    Args:
        id: a contract: once released it is not renamed.
        family: "speed", "memory", "correctness" or "safety".
        meaning: what it is, in one line.
        decided_by: the measurement that decides whether it is present.
        look_alike: the id of the cause most easily taken for it.
        differs: the quantity that tells the two apart.
        fixes: what helps, most usual first.
        notebook: the number of the notebook that teaches it.
        explains: ids whose findings are only evidence for this one when both are present.
        role_dependent: whether it is a fault only for a training loader, or only for an evaluation loader;
            without a role such a finding is at most undecided.
    """

    id: str
    family: str
    meaning: str
    decided_by: str
    look_alike: str
    differs: str
    fixes: tuple[str, ...]
    notebook: str
    explains: tuple[str, ...] = ()
    role_dependent: bool = False
