"""A look at the first items in a child process, before a loader without workers is iterated in the reader's own."""

from __future__ import annotations

import pickle
from typing import Any

from loaderscope import isolation
from loaderscope.loaders import LoaderSpec
from loaderscope.records import NotMeasured, Outcome

BATCHES = 2


# A fresh process that has less time than this is not through with its imports.
FRESH_LEAST_S = 3.0


def first_look(spec: LoaderSpec, deadline_s: float) -> Outcome:
    """Iterate the first batches in a forked child."""
    return isolation.run_in_child(_first_batches, spec.loader, deadline_s=deadline_s, method="fork")


def second_look(spec: LoaderSpec, deadline_s: float) -> Outcome | NotMeasured:
    """The same in a spawned child, which first has to import everything; or why it was not done."""
    if deadline_s < FRESH_LEAST_S:
        return NotMeasured("the budget left no time for a fresh one")
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
