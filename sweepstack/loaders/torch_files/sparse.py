"""Checks that the indices of a sparse tensor fit its size, as torch's own restricted load does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sweepstack.loaders.base import Unreadable, Unsupported
from sweepstack.loaders.torch_files.foreign import TORCH
from sweepstack.loaders.torch_files.unpickle import Sparse

ROWS = ("torch.sparse_csr", "torch.sparse_bsr")
COLUMNS = ("torch.sparse_csc", "torch.sparse_bsc")
BLOCKS = ("torch.sparse_bsr", "torch.sparse_bsc")

Numbers = NDArray[Any]


def check(name: str, sparse: Sparse, indices: list[Numbers]) -> None:
    """Raises Unreadable where they don't; Unsupported for a layout that is not known here. `indices`: the numbers of
    `sparse.indices`."""
    if sparse.layout == "torch.sparse_coo":
        good = _places_each(sparse, indices[0])
    elif sparse.layout in ROWS + COLUMNS and len(indices) == 2:
        good = _compressed(sparse, *indices)
    else:
        raise Unsupported(f"holds a sparse tensor ({name}) of a layout that this reader does not take; {TORCH}")
    if not good:
        raise Unreadable(f"holds a sparse tensor ({name}) whose indices do not fit its size")


def _places_each(sparse: Sparse, indices: Numbers) -> bool:
    """Of COO: one column of indices for each number, in order and each once where it says so."""
    if indices.ndim != 2:
        return False
    dimensions, count = indices.shape
    if sparse.values.size != (count, *sparse.size[dimensions:]) or dimensions > len(sparse.size):
        return False
    if not _within(indices, 0, np.array(sparse.size[:dimensions]).reshape(-1, 1)):
        return False
    before, after = indices[:, :-1], indices[:, 1:]
    smaller, equal = np.zeros(max(count - 1, 0), bool), np.ones(max(count - 1, 0), bool)
    for one, next_ in zip(before, after, strict=True):
        smaller |= equal & (one < next_)
        equal &= one == next_
    return not sparse.coalesced or bool(smaller.all())


def _compressed(sparse: Sparse, starts: Numbers, places: Numbers) -> bool:
    """Of CSR, CSC and their blocks: where each row (or column) begins, and its places, in order, each once."""
    batch = starts.ndim - 1
    if batch < 0 or len(sparse.size) < batch + 2 or places.ndim != batch + 1:
        return False
    count = places.shape[-1]
    block = sparse.values.size[batch + 1 : batch + 3] if sparse.layout in BLOCKS else (1, 1)
    if sparse.values.size[: batch + 1] != places.shape or len(block) != 2 or not all(block):
        return False
    rows, columns = (length // of for length, of in zip(sparse.size[batch : batch + 2], block, strict=True))
    lines, places_in_line = (rows, columns) if sparse.layout in ROWS else (columns, rows)
    if starts.shape != (*sparse.size[:batch], lines + 1) or places.shape[:-1] != starts.shape[:-1]:
        return False
    groups = math.prod(starts.shape[:-1])
    starts, places = starts.reshape(groups, lines + 1), places.reshape(groups, count)
    if (starts[:, 0] != 0).any() or (starts[:, -1] != count).any() or not _within(places, 0, places_in_line):
        return False
    if not _within(np.diff(starts, axis=1), 0, places_in_line + 1):
        return False
    for start, place in zip(starts, places, strict=True):
        rising = np.diff(place) > 0
        begins = start[1:-1]
        rising[begins[(begins > 0) & (begins < count)] - 1] = True
        if not rising.all():
            return False
    return True


def _within(values: Numbers, least: int, below: Any) -> bool:
    return not values.size or bool((values >= least).all() and (values < below).all())
