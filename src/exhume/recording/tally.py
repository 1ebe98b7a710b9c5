"""Samples counted by core, thread and stack: what flame graphs and profiles are made of, without a row for each sample."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exhume.recording.recording import Ints, Recording


class Tally(NamedTuple):
    """How often each core ran each thread in each stack."""

    core: Ints
    thread: Ints
    stack: Ints
    count: Ints  # type: ignore[assignment]  # a tuple's own count() is not missed


def tally(core: Ints, thread: Ints, stack: Ints) -> Tally:
    """Sorted by core, thread and stack; each of them once."""
    if not len(core):
        return _EMPTY
    columns = (core, thread, stack)
    lows = [int(column.min()) for column in columns]
    spans = [int(column.max()) - low + 1 for column, low in zip(columns, lows, strict=True)]
    if spans[0] * spans[1] * spans[2] < 1 << 63:
        return _by_one_key(columns, lows, spans)
    order = np.lexsort((stack, thread, core))
    sorted_columns = [column[order] for column in columns]
    first = _firsts(*sorted_columns)
    return Tally._make([*(column[first] for column in sorted_columns), _lengths(first, len(order))])


def merge(parts: Sequence[Tally]) -> Tally:
    """One tally of several, whose ids mean the same."""
    parts = [part for part in parts if len(part.count)]
    if len(parts) < 2:
        return parts[0] if parts else _EMPTY
    core, thread, stack, count = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    order = np.lexsort((stack, thread, core))
    core, thread, stack = core[order], thread[order], stack[order]
    first = _firsts(core, thread, stack)
    return Tally(core[first], thread[first], stack[first], np.add.reduceat(count[order], first))


def of_recording(recording: Recording) -> Tally:
    samples = recording["samples"]
    return tally(samples.ints("core"), samples.ints("thread"), samples.ints("stack"))


def _by_one_key(columns: Sequence[Ints], lows: Sequence[int], spans: Sequence[int]) -> Tally:
    """The same, several times faster: numbers are sorted by value, not columns by their place."""
    key = ((columns[0] - lows[0]) * spans[1] + (columns[1] - lows[1])) * spans[2] + (columns[2] - lows[2])
    key.sort()
    first = _firsts(key)
    rest, stack = np.divmod(key[first], spans[2])
    core, thread = np.divmod(rest, spans[1])
    return Tally(core + lows[0], thread + lows[1], stack + lows[2], _lengths(first, len(key)))


def _firsts(*columns: Ints) -> Ints:
    """Where a row differs from the one before it. np.unique would do, but imports numpy.ma (25 ms)."""
    changed = np.zeros(len(columns[0]), dtype=np.bool_)
    changed[0] = True
    for column in columns:
        changed[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(changed)


def _lengths(first: Ints, rows: int) -> Ints:
    return np.diff(np.append(first, rows))


_EMPTY = Tally._make(np.empty(0, dtype=np.int64) for _ in Tally._fields)
