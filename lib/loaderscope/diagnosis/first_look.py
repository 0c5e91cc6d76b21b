"""A look at the first items in a child process, before a loader without workers is iterated in the reader's own."""

from __future__ import annotations

import pickle
from itertools import islice
from typing import Any

from torch.utils.data import IterableDataset

from loaderscope import isolation
from loaderscope.loaders import LoaderSpec
from loaderscope.records import NotMeasured, Outcome

BATCHES = 2


# A fresh process that has less time than this is not through with its imports.
FRESH_LEAST_S = 3.0


def first_look(spec: LoaderSpec, deadline_s: float) -> Outcome:
    """Iterate the first batches in a forked child.

    Returns:
        Outcome; where it is ok, its value says whether iterating would use the dataset up.
    """
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


def _first_batches(loader: Any) -> bool:
    for _ in islice(loader, BATCHES):
        pass
    return _hands_out_one_iterator(getattr(loader, "dataset", None))


def _hands_out_one_iterator(dataset: Any) -> bool:
    """Whether each `iter()` of an iterable dataset gives the same iterator, as far along as it is.

    A dataset that is its own iterator may start over in `__iter__`: the preflight looks at those.
    """
    if not isinstance(dataset, IterableDataset):
        return False
    first = iter(dataset)
    return first is not dataset and first is iter(dataset)
