"""LoaderSpec: a reader's loader, read without touching its data, and copied with changes."""

from __future__ import annotations

import contextlib
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, default_collate

from loaderscope.errors import BadInputError, CannotRebuildError
from loaderscope.loaders import inspection as look
from loaderscope.loaders import refusals, wording
from loaderscope.loaders.batches import SampleCounter
from loaderscope.loaders.changes import check
from loaderscope.loaders.cloning import clone, edit
from loaderscope.loaders.facts import kind_of, read_facts, start_method_of
from loaderscope.loaders.inputs import Factory, role_of
from loaderscope.loaders.states import preserved_states
from loaderscope.records import LoaderFacts

# What a measurement needs exactly as asked, whatever a factory makes of it.
_ENFORCED = {"num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "timeout", "in_order"}


class LoaderSpec:
    """The live side of LoaderFacts. Make one with `LoaderSpec.read(loader)`.

    loader: the object given, or what the factory made. kind: "map", "iterable" or "any". facts: LoaderFacts.
    """

    def __init__(self, loader: Any, factory: Factory | None = None):
        self.loader, self.factory = loader, factory
        self.kind = kind_of(loader)
        self.facts: LoaderFacts = read_facts(loader, self.kind, self._standing_refusal())
        self._counter = self._make_counter()

    @classmethod
    def read(cls, loader: Any) -> LoaderSpec:
        """Read a DataLoader, a factory `make_loader(**overrides)`, or any iterable of batches.

        Nothing is iterated or indexed, and no `iter()` is called. A factory is called once, now; the global random
        states are put back after it.

        Raises:
            BadInputError: it is none of the three, or a factory that raised or returned something else.
        """
        if role_of(loader) != "factory":
            return cls(loader)
        factory = Factory(loader)
        with preserved_states(None):
            made = factory.make()
        return cls(made, factory)

    @property
    def dataset(self) -> Any:
        """The loader's dataset, or None where it is not a DataLoader."""
        return self._part("dataset")

    @property
    def collate_fn(self) -> Any:
        return self._part("collate_fn")

    @property
    def worker_init_fn(self) -> Any:
        return self._part("worker_init_fn")

    @property
    def generator(self) -> Any:
        return self._part("generator")

    def _part(self, name: str) -> Any:
        return None if self.kind == "any" else look.given(self.loader, name)

    def refusal(self, *, allow_resharding: bool = False, **changes: Any) -> str:
        """Why `copy` with these changes is refused, or "". Makes no copy and calls no factory.

        Raises:
            BadInputError: the changes are not valid (see `copy`).
        """
        check(changes, self._part("num_workers"))
        resharding = "" if allow_resharding else refusals.of_resharding(self.loader, self.kind, changes)
        if resharding:
            return resharding
        left = changes
        if self.factory is not None:
            left = {name: value for name, value in changes.items() if not self.factory.takes(name)}
        if self.kind == "any":
            return f"{look.class_name(self.loader)} is not a DataLoader" if left else ""
        # What a factory makes is private, so what speaks against copying the first does not count.
        against_copy = "" if self.factory is not None else refusals.of_copy(self.loader, changes)
        return against_copy or refusals.of_edit(self.loader, self.kind, left)

    def copy(self, *, allow_resharding: bool = False, **changes: Any) -> Any:
        """A private loader with changed DataLoader arguments (`loaders.ARGUMENTS`); the original is not altered.

        Without changes even a faulty configuration is kept, so that its own error shows. When the number of workers
        changes, what needs workers is dropped at 0 and gets DataLoader's defaults above it. The copy shares the
        dataset, the sampler objects and whatever else the loader holds with the original: iterate it inside
        `preserved()`. A factory is called again with the changes it takes; the others are put on what it returned.
        For kind "any" without a factory, `copy()` is the object itself.

        allow_resharding: the reader says that the iterable dataset shares itself out among workers.

        Raises:
            BadInputError: an unknown argument, or a value DataLoader would not take.
            CannotRebuildError: the copy would use up the original, or would give other data.
        """
        reason = self.refusal(allow_resharding=allow_resharding, **changes)
        if reason:
            asked = f" with {', '.join(changes)} changed" if changes else ""
            way_out = "pass a function make_loader(**overrides) that makes the loader"
            raise CannotRebuildError(f"This loader cannot be copied{asked}", likely=reason, way_out=way_out)
        if self.factory is not None:
            return self._from_factory(changes)
        return self.loader if self.kind == "any" else edit(clone(self.loader), changes)

    def _from_factory(self, changes: dict[str, Any]) -> Any:
        taken = {name: value for name, value in changes.items() if self.factory.takes(name)}
        if changes and not taken and not refusals.of_copy(self.loader, changes):
            return edit(clone(self.loader), changes)  # spares making the dataset once more
        try:
            made = self.factory.make(**taken)
        except BadInputError:
            # Often `DataLoader(…, num_workers=4, **overrides)`, which takes no second num_workers.
            if not taken or self.kind == "any":
                raise
            made, taken = self.factory.make(), {}
        if not look.is_loader(made):
            return made
        trusted = {name for name in taken if self.factory.takes(name) == "name" and name not in _ENFORCED}
        left = {n: v for n, v in changes.items() if n not in trusted and not _in_effect(made, n, v)}
        return self._made_private(made, left)

    def _made_private(self, made: DataLoader, left: dict[str, Any]) -> DataLoader:
        """What the factory made as a copy of our own (it may give out one object many times), with `left` changed."""
        reason = refusals.of_copy(made, left)
        if reason and made is self.loader:
            raise CannotRebuildError(
                "The factory returned the same loader twice, and it cannot be copied",
                likely=reason,
                way_out="make a new DataLoader in each call",
            )
        reason_left = refusals.of_edit(made, kind_of(made), left)
        if reason_left:
            raise CannotRebuildError(f"The factory did not take {', '.join(left)}", likely=reason_left)
        return edit(made if reason else clone(made), left)

    def preserved(self) -> contextlib.AbstractContextManager[None]:
        """Puts back, on exit, every random state and sampler counter that iterating a copy moves on.

        See `states.preserved_states` for the list; the dataset is never looked at.
        """
        return preserved_states(self.loader)

    def describe_changes(self, changes: dict[str, Any]) -> str:
        """The line that makes this loader with the changes: Python source to paste.

        Arguments at their default are left out unless changed; objects appear under the argument's name, functions
        under their own. A factory that takes the changes is shown as its call. Changes that `copy` refuses are
        written all the same: what only measuring must not do, the reader may.

        Raises:
            BadInputError: the changes are not valid.
        """
        check(changes, self._part("num_workers"))
        if self.factory is not None and self.factory.accepts(changes):
            return wording.call(self.factory.name, changes)
        if self.kind == "any":
            return wording.call("DataLoader", changes, "dataset")
        return wording.construction(self.loader, changes)

    def samples_in(self, batch: Any) -> int | None:
        """Samples in one of this loader's batches, or None where it cannot be told.

        With batch_size=None and no batch sampler a batch is what the dataset returned: one sample from a map-style
        dataset, unless the sampler hands it lists of indices (then by structure); from an iterable dataset it may
        be a sample or a whole batch, which cannot be told. Otherwise by structure (see `batch_size_of`), where the
        loader's batch size and default_collate settle what the structure leaves open.
        """
        if self._counter is None:
            return 1 if self.kind == "map" else None
        return self._counter.count(batch)

    def _make_counter(self) -> SampleCounter | None:
        """How batches are counted; None where DataLoader does no batching (see `samples_in`)."""
        if self.kind == "any":
            return SampleCounter(None, default_collate=False)
        batches, size = self._part("batch_sampler"), self.facts.batch_size
        if batches is None:
            sampler = self._part("sampler")
            lists = self.kind == "map" and isinstance(sampler, BatchSampler)
            return SampleCounter(look.given(sampler, "batch_size"), default_collate=False) if lists else None
        expected = size if isinstance(size, int) else look.given(batches, "batch_size")
        by_default = self.collate_fn is default_collate
        return SampleCounter(expected if isinstance(expected, int) else None, default_collate=by_default)

    def _standing_refusal(self) -> str:
        """Why this loader cannot be rebuilt at all, whatever the change."""
        if self.kind == "any":
            taken = self.factory is not None and self.factory.takes("num_workers")
            return "" if taken else f"{look.class_name(self.loader)} is not a DataLoader"
        return self.refusal()

    def __repr__(self) -> str:
        made_by = f" made by {self.factory.name}()" if self.factory is not None else ""
        return f"<LoaderSpec: {self.facts.loader}, {self.kind}{made_by}>"


def _in_effect(made: DataLoader, name: str, value: Any) -> bool:
    """Whether a factory's loader has an argument as it was asked for (it may swallow **overrides)."""
    if name == "shuffle":
        return look.is_default_shuffle(made) if value else look.is_default_order(made)
    found = look.given(made, name)
    if name == "multiprocessing_context" and value is not None and found is not None:
        return value is found or value == start_method_of(found)
    return found is value or (isinstance(value, (int, float)) and found == value)
