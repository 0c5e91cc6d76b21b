"""A look at the first items in a child process, before a loader without workers is iterated in the reader's own."""

from __future__ import annotations

import pickle
from typing import Any

from loaderscope import isolation
from loaderscope.loaders import LoaderSpec
from loaderscope.records import NotMeasured, Outcome

BATCHES = 2


def first_look(spec: LoaderSpec, deadline_s: float, fresh_deadline_s: float) -> tuple[Outcome, Outcome | NotMeasured]:
    """Iterate the first batches in a forked child; where that fails, again in a spawned one if the loader pickles.

    Args:
        deadline_s: for the forked child. fresh_deadline_s: for the spawned one, which first has to import everything.

    Returns:
        (outcome in the forked child, outcome in the fresh one or why there is none).
    """
    outcome = isolation.run_in_child(_first_batches, spec.loader, deadline_s=deadline_s, method="fork")
    if outcome.ok or outcome.status == "exception":
        # The same exception would be raised in the reader's process: the loop there will tell it better.
        return outcome, NotMeasured("not needed")
    return outcome, _fresh(spec, fresh_deadline_s)


def _fresh(spec: LoaderSpec, deadline_s: float) -> Outcome | NotMeasured:
    try:
        pickle.dumps(spec.loader)
    except Exception as error:  # whatever the reader's objects raise
        return NotMeasured(f"the loader cannot be pickled to a fresh process ({type(error).__name__}: {error})")
    return isolation.run_in_child(_first_batches, spec.loader, deadline_s=deadline_s, method="spawn")


def _first_batches(loader: Any) -> int:
    count = 0
    for _ in loader:
        count += 1
        if count >= BATCHES:
            break
    return count
