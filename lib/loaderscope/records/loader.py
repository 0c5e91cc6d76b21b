"""How a loader is configured: the facts of a LoaderSpec, without the live objects."""

from __future__ import annotations

from dataclasses import dataclass

from loaderscope.records import text
from loaderscope.records.base import NotMeasured, Record, Row, is_measured, row


@dataclass(frozen=True, repr=False)
class LoaderFacts(Record):
    """Configuration of a loader, as read.

    kind: "map" (DataLoader over a map-style dataset), "iterable" (DataLoader over an IterableDataset) or
    "any" (some other iterable of batches: what only a DataLoader can say is NotMeasured).
    length is in samples, batches in batches of one epoch; either is NotMeasured where `len` says nothing.
    batch_size None means that batching is done elsewhere (batch_sampler or the dataset itself).
    rebuild_refused: why a changed copy cannot be made, or "" where it can.
    """

    kind: str
    loader: str
    dataset: str
    length: int | NotMeasured
    batches: int | NotMeasured
    batch_size: int | NotMeasured | None
    num_workers: int | NotMeasured
    prefetch_factor: int | NotMeasured | None
    persistent_workers: bool | NotMeasured
    pin_memory: bool | NotMeasured
    drop_last: bool | NotMeasured
    in_order: bool | NotMeasured
    timeout_s: float | NotMeasured
    start_method: str | NotMeasured
    sampler: str | NotMeasured
    batch_sampler: str | NotMeasured
    collate: str | NotMeasured
    worker_init: str | NotMeasured
    has_generator: bool | NotMeasured
    has_getitems: bool | NotMeasured
    rebuild_refused: str = ""

    title = "Loader"

    @property
    def workers(self) -> int:
        """Worker processes, 0 where the loader is not a DataLoader."""
        return self.num_workers if is_measured(self.num_workers) else 0

    @property
    def can_rebuild(self) -> bool:
        return not self.rebuild_refused

    def rows(self) -> tuple[Row, ...]:
        out = [
            Row(
                "loader",
                f"{self.loader} over {self.dataset} ({self.kind}-style)" if self.kind != "any" else self.loader,
            ),
            row("samples", self.length, lambda v: f"{v:,}"),
            row(
                "batch", self.batch_size, lambda v: "made outside the loader" if v is None else text.count(v, "sample")
            ),
            row("workers", self.num_workers, self._workers_text),
            row("order", self.sampler),
            row("collate", self.collate),
        ]
        if self.rebuild_refused:
            out.append(Row("changed copies", f"not possible: {self.rebuild_refused}", "warning"))
        return tuple(out)

    def _workers_text(self, workers: int) -> str:
        if workers == 0:
            return "0: batches are made in the main process"
        keep = "persistent" if self.persistent_workers is True else "new ones every epoch"
        return f"{workers} ({self.start_method}), prefetch {self.prefetch_factor} each, {keep}"
