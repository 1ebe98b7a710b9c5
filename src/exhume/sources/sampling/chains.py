"""Many raw stacks at once, as arrays: which of them are the same, without an object for each."""

import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.sources.sampling.records import CONTEXT_USER, Samples

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

MANY = 1 << 13
"""Batches of so many samples, as files have them, are worth a look for what is the same in them."""
# Odd numbers with bits all over, new for each run: nobody can make two stacks that are taken for one.
_SEEDS = np.frombuffer(os.urandom(32), dtype=np.uint64) | np.uint64(1)
_HALF = np.uint64(32)
# Stacks that are worked on together: their words, and what is made of them, stay in a core's own cache.
_TOGETHER = 4096


def gather(data: bytes, begin: Ints, end: Ints) -> tuple[Words, Ints]:
    """The words of pieces of the data (in bytes), one after the other, and how many each has."""
    words = np.frombuffer(data, dtype=np.uint64, count=len(data) // 8)
    lengths = (end - begin) >> 3
    shifts = (begin >> 3) - (np.cumsum(lengths) - lengths)
    return words[np.repeat(shifts, lengths) + np.arange(int(lengths.sum()))], lengths


class Stacks(NamedTuple):
    """Of each sample."""

    hashed: Words
    """A number, the same for the same raw stack."""
    in_user: NDArray[np.bool_]
    """Whether it has frames of user space."""


def of_samples(each: Samples) -> Stacks:
    hashed, in_user = np.empty(len(each.begin), dtype=np.uint64), np.empty(len(each.begin), dtype=bool)
    for first in range(0, len(each.begin), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        words, lengths = gather(each.data, each.begin[part], each.end[part])
        hashed[part], in_user[part] = hashes(words, lengths), have_user(words, lengths)
    return Stacks(hashed, in_user)


def hashes(values: Words, lengths: Ints) -> Words:
    """A number for each stack, the same for the same. Two different ones of a million share it once in 10^7 runs."""
    # Where in its stack each value is, times a seed: what a place of all values is worth, less what the stack's first is.
    begins = (np.cumsum(lengths) - lengths).astype(np.uint64)
    place = np.arange(len(values), dtype=np.uint64)
    place *= _SEEDS[0]
    place += values
    place -= np.repeat(begins * _SEEDS[0], lengths)
    _mix(place, _SEEDS[1])
    return _mix(_sums(place, lengths) + lengths.astype(np.uint64) * _SEEDS[2], _SEEDS[3])


def with_number(hashed: Words, numbers: Ints) -> Ints:
    """The same, each for one that has a number besides."""
    return _mix(hashed + numbers.astype(np.uint64) * _SEEDS[3], _SEEDS[2]).view(np.int64)


def have_user(values: Words, lengths: Ints) -> NDArray[np.bool_]:
    """Which of them have frames of user space: all others say the same whatever is mapped."""
    marks = np.flatnonzero(values == np.uint64(CONTEXT_USER))
    found = np.zeros(len(lengths), dtype=bool)
    found[np.searchsorted(np.cumsum(lengths), marks, side="right")] = True
    return found


def _mix(values: Words, seed: np.uint64) -> Words:
    """In place."""
    high = np.empty_like(values)
    values *= seed
    values ^= np.right_shift(values, _HALF, out=high)
    values *= _SEEDS[0]
    values ^= np.right_shift(values, _HALF, out=high)
    return values


def _sums(values: Words, lengths: Ints) -> Words:
    """Of the values of each; sums that go over are those of all words before as well, so differences are right."""
    totals = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=totals[1:])
    ends = np.cumsum(lengths)
    found: Words = totals[ends] - totals[ends - lengths]
    return found
