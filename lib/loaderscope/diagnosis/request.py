"""What `diagnose` may be asked, and what it is told instead."""

from __future__ import annotations

import multiprocessing
from typing import Any

from loaderscope import arguments
from loaderscope.errors import BadInputError, LoaderscopeError

CHECKS = ("speed", "memory", "correctness", "safety")
ROLES = (None, "train", "eval")


def refuse_while_spawning() -> None:
    """A spawned process imports the script first; a script without the usual guard would diagnose there again.

    Raises:
        LoaderscopeError: this is such a process.
    """
    process = multiprocessing.process.current_process()
    if getattr(process, "_inheriting", False):
        raise LoaderscopeError(
            "diagnose was called while a worker process imports your script",
            seen=f"process {process.name}",
            likely='the call stands at the top level of the script, without if __name__ == "__main__":',
            way_out='put it under if __name__ == "__main__":',
        )


def check_arguments(step: Any, budget_s: Any, checks: Any, role: Any, progress: Any) -> None:
    """Refuse what cannot be used, before anything is read or run.

    Raises:
        BadInputError: an argument cannot be used.
    """
    arguments.step(step)
    arguments.seconds("budget_s", budget_s, "leave it out for 60 s")
    if progress is not None and not callable(progress):
        raise BadInputError("progress must be callable with a text and a share", seen=arguments.shown(progress))
    asked = (checks,) if isinstance(checks, str) else checks
    known = isinstance(asked, (tuple, list, set, frozenset)) and all(c in (*CHECKS, "auto", "all") for c in asked)
    if not known or not asked:
        raise BadInputError(
            "checks names what is not there",
            seen=arguments.shown(checks),
            way_out=f'use "auto", "all" or any of {", ".join(CHECKS)}',
        )
    if not (role is None or (isinstance(role, str) and role in ROLES)):
        raise BadInputError("role is not known", seen=arguments.shown(role), way_out='use "train", "eval" or None')


def unanswered(checks: Any, val: Any) -> tuple[str, ...]:
    """What was asked for and cannot be answered yet, as notes for the report: silence would read as "nothing found"."""
    asked = (checks,) if isinstance(checks, str) else checks
    missing = [c for c in ("memory", "correctness") if c in asked or "all" in asked]
    notes = [f"the checks of {' and '.join(missing)} are not built yet: nothing is said about them"] if missing else []
    if val is not None:
        notes.append("val= is not looked at yet: nothing is said about what the two splits share")
    return tuple(notes)
