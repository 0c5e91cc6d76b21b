"""How many samples a batch holds, told from its structure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import PackedSequence

from loaderscope.loaders.inspection import RAISED, given

DEEPEST = 6
WIDEST = 64  # elements of one container that are looked at
CANDIDATES = 16
_TENSOR = torch.Tensor
_ARRAYS = (torch.Tensor, np.ndarray)
_ATOMS = (str, bytes, bytearray, int, float, complex, type(None))
# Exactly these types, no subclasses: known to be no arrays without being asked.
_BUILT_IN = frozenset((*_ATOMS, bool, list, tuple, dict, set))


def batch_size_of(batch: Any) -> int | None:
    """Number of samples in a batch, or None where the structure does not tell.

    A tensor or array: its first dimension (0-d: None). A mapping or dataclass: its first array, else its first value
    that tells. Objects with `num_graphs` or `batch_size`: that. A tuple or list of equally long arrays: their first
    dimension; with other things among them (images, list of targets): that of the first array. Any other list: its
    length. A tuple of sequences, as `tuple(zip(*samples))` gives: the sequences' length. Text is not a sequence.
    A list of samples that happen to be equally long arrays looks like a list of fields; `LoaderSpec.samples_in`
    knows the loader and tells the two apart.
    """
    return next(iter(_plausible(batch)), None)


class SampleCounter:
    """Counts samples for one loader, whose batch size says which reading of an ambiguous batch is right.

    What a full batch has taught is used for the shorter last one.
    """

    def __init__(self, expected: int | None, default_collate: bool):
        self.expected, self.default_collate, self._reading = expected, default_collate, 0

    def count(self, batch: Any) -> int | None:
        """Runs once per batch in every timed loop, so the usual batch is looked at first and in few steps."""
        rows = _rows_of_first(batch)
        if rows is not None and (self.default_collate or self._settled(rows, batch)):
            return rows
        return self._count_carefully(batch)

    def _settled(self, rows: int, batch: Any) -> bool:
        """The loader's batch size confirms it; in a list the first array may be one of several samples instead."""
        return rows == self.expected and self._reading == 0 and type(batch) is not list

    def _count_carefully(self, batch: Any) -> int | None:
        if self.default_collate:
            told = _first_field(batch)
            if told is not None:
                return told
        elif self._reading == 0:
            first = _first_candidate(batch)
            # A later reading is better only where this one is not the loader's batch size.
            if first is not None and (self.expected is None or first == self.expected):
                return first
        found = _plausible(batch)
        if self.expected in found and found[min(self._reading, len(found) - 1)] != self.expected:
            self._reading = found.index(self.expected)
        return found[min(self._reading, len(found) - 1)] if found else None


def _rows_of_first(batch: Any) -> int | None:
    """First dimension of a plain tensor, or of the one that is first in a plain list, tuple or dict; None for others.

    Under 1 µs in a tight loop, about 2 µs between batches, when the processor's caches hold other things.
    """
    kind = type(batch)
    try:
        if kind is list or kind is tuple:
            batch = batch[0]
        elif kind is dict:
            batch = next(iter(batch.values()))
        return batch.shape[0] if type(batch) is _TENSOR else None
    except (IndexError, StopIteration, RuntimeError):  # empty; 0-d; a nested tensor has no shape
        return None


def _first_candidate(batch: Any) -> int | None:
    """The likeliest of `_plausible`; 1 to 2 µs for a tensor and for a tuple, list or dict of tensors."""
    try:
        plain = _rows(batch) if isinstance(batch, _ARRAYS) else _of_plain(batch)
        return next(_candidates(batch, 0), None) if plain is None else plain
    except RAISED:
        return None


def _of_plain(value: Any) -> int | None:
    """What `_of_fields` or `_of_sequence` would give first, where nothing but tensors and built-ins is inside."""
    kind = type(value)
    if (kind is not dict and kind is not list and kind is not tuple) or len(value) > WIDEST:
        return None
    sizes: list[int | None] = []
    for part in value.values() if kind is dict else value:
        if isinstance(part, _ARRAYS):
            sizes.append(_rows(part))
        elif type(part) in _BUILT_IN:
            sizes.append(None)
        else:
            return None  # may be an array of another library: that needs the careful look
    if kind is dict or None in sizes:
        return next((size for size in sizes if size is not None), None)
    if not sizes or sizes.count(sizes[0]) == len(sizes):
        return sizes[0] if sizes else None
    return len(value) if kind is list else None


def _first_field(batch: Any) -> int | None:
    """default_collate turns samples into fields at every level, so the first field that tells is right."""
    try:
        plain = _leading_array(batch)
        rows = None if plain is None else _rows(plain)
        return next(_fields(batch, 0), None) if rows is None else rows
    except RAISED:
        return None


def _leading_array(value: Any) -> Any:
    """The array that is first at every level of built-in containers, as in most batches; None if there is none."""
    for _ in range(DEEPEST + 1):
        if isinstance(value, _ARRAYS):
            return value
        kind = type(value)
        if (kind is not dict and kind is not list and kind is not tuple) or not value:
            return None
        value = next(iter(value.values())) if kind is dict else value[0]
    return None


def _fields(value: Any, depth: int) -> Iterator[int]:
    if depth > DEEPEST or isinstance(value, _ATOMS):
        return
    if _is_array(value):
        yield from _first_dimension(value)
        return
    if isinstance(value, (list, tuple)) and value and all(isinstance(v, (str, bytes)) for v in value[:WIDEST]):
        yield len(value)
        return
    inside = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    for field in islice(inside, WIDEST):
        yield from _fields(field, depth + 1)


def _plausible(batch: Any) -> list[int]:
    """Every sample count this batch may have, likeliest first."""
    try:
        return list(islice(_candidates(batch, 0), CANDIDATES))
    except RAISED:
        return []


def _candidates(value: Any, depth: int) -> Iterator[int]:
    if depth > DEEPEST or isinstance(value, _ATOMS):
        return
    if isinstance(value, PackedSequence):
        yield int(value.batch_sizes[0])
    elif _is_array(value):
        yield from _first_dimension(value)
    elif (told := _told(value)) is not None:
        yield told
    elif isinstance(value, Mapping):
        yield from _of_fields(list(islice(value.values(), WIDEST)), depth)
    elif isinstance(value, (list, tuple)):
        yield from _of_sequence(value, depth)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from _of_fields([given(value, f.name) for f in dataclasses.fields(value)[:WIDEST]], depth)


def _is_array(value: Any) -> bool:
    if isinstance(value, _ARRAYS):
        return True
    if type(value) in _BUILT_IN:
        return False  # asking these for attributes they never have is slow
    return isinstance(given(value, "shape"), tuple) and given(value, "dtype") is not None


def _rows(array: Any) -> int | None:
    """The first dimension, or None for a 0-d array."""
    if isinstance(array, torch.Tensor):
        return int(array.size(0)) if array.dim() else None  # `.shape` raises for nested tensors
    return int(array.shape[0]) if array.shape else None


def _first_dimension(array: Any) -> Iterator[int]:
    """The same as a generator."""
    rows = _rows(array)
    if rows is not None:
        yield rows


def _told(value: Any) -> int | None:
    """What the object itself says: `num_graphs` (PyG), `batch_size` as a number or, in TensorDict, a shape."""
    for name in ("num_graphs", "batch_size"):
        size = given(value, name)
        size = size[0] if isinstance(size, tuple) and size else size
        if isinstance(size, int) and not isinstance(size, bool) and size >= 0:
            return size
    return None


def _of_fields(fields: list[Any], depth: int) -> Iterator[int]:
    arrays = [field for field in fields if _is_array(field)]
    for array in arrays:
        yield from _first_dimension(array)
    for field in fields:
        if not _is_array(field):
            yield from _candidates(field, depth + 1)


def _of_sequence(value: list | tuple, depth: int) -> Iterator[int]:
    parts = list(value[:WIDEST])
    if not parts:
        return
    sizes = [next(_first_dimension(part), None) if _is_array(part) else None for part in parts]
    if all(size is not None for size in sizes):
        if len(set(sizes)) == 1:
            yield from (sizes[0], len(value))
        elif isinstance(value, list):
            yield len(value)  # arrays of different lengths: samples that were not stacked
    elif any(size is not None for size in sizes):
        yield from dict.fromkeys(size for size in sizes if size is not None)
    elif all(isinstance(part, (list, tuple)) for part in parts):
        yield from _of_nested(value, parts)
    elif isinstance(value, list):
        yield len(value)
        yield from _of_fields(parts, depth)
    else:
        yield from _of_fields(parts, depth)
        if not all(isinstance(part, _ATOMS) or _is_array(part) for part in parts):
            yield len(value)


def _of_nested(value: list | tuple, parts: Iterable[list | tuple]) -> Iterator[int]:
    leaves = [leaf for part in parts for leaf in part[:WIDEST]]
    same = {next(_first_dimension(leaf), None) if _is_array(leaf) else None for leaf in leaves}
    inner = {len(part) for part in parts}
    if len(same) == 1 and None not in same:
        yield from same  # fields within fields
    if isinstance(value, tuple) and len(inner) == 1:
        yield from inner  # tuple(zip(*samples))
    yield len(value)
    if isinstance(value, list) and len(inner) == 1:
        yield from inner
