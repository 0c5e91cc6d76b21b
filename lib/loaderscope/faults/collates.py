"""Collate functions: one that pads, one that is slow."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import default_collate

from loaderscope.faults import work


def pad_collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Sequences padded with 0 to the longest of the batch: (B x longest, lengths, labels). Healthy."""
    sequences = [sequence for sequence, _ in samples]
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return pad_sequence(sequences, batch_first=True), lengths, torch.tensor([label for _, label in samples])


class SlowCollate:
    """The default collate, then `cpu_s` CPU seconds of pure Python a batch.

    Right when it outweighs the samples: collate-bound.
    """

    def __init__(self, cpu_s: float):
        self.cpu_s = cpu_s

    def __call__(self, samples: list[Any]) -> Any:
        batch = default_collate(samples)
        work.spin_python(self.cpu_s)
        return batch
