"""Sorting out arrays. numpy's own unique and isin load 25 ms of modules and do more than is needed here."""

from collections.abc import Iterator
from itertools import pairwise
from typing import cast

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def unique(values: Ints) -> Ints:
    """Each value once, sorted. Many of few are counted, which is cheaper than sorting."""
    if len(values):
        low, high = int(values.min()), int(values.max())
        if high - low < 4 * len(values) + 1024:
            return np.add(np.flatnonzero(np.bincount(values - low)), low, dtype=np.int64)
    ordered = np.sort(values)
    return ordered[_first(ordered)]


def unique_inverse(values: Ints) -> tuple[Ints, Ints]:
    """Each value once, sorted; and where among them each of the values is."""
    order = np.argsort(values)  # which of the same comes first does not matter
    ordered = values[order]
    first = _first(ordered)
    back = np.empty(len(values), dtype=np.int64)
    back[order] = np.cumsum(first) - 1
    return ordered[first], back


def among(values: Ints, wanted: Ints) -> NDArray[np.bool_]:
    """Which of the values are wanted; `wanted` is sorted."""
    if not len(wanted):
        return np.zeros(len(values), dtype=bool)
    at = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    return cast("NDArray[np.bool_]", wanted[at] == values)


def runs(values: Ints) -> Iterator[tuple[int, int]]:
    """Where stretches of equal values begin and end."""
    edges = np.flatnonzero(values[1:] != values[:-1]) + 1
    bounds = [0, *edges.tolist(), len(values)] if len(values) else [0]
    return pairwise(bounds)


def _first(ordered: Ints) -> NDArray[np.bool_]:
    first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return first
