"""Sorting out arrays: the same as numpy's own functions, which are slower to load."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.arrays import among, runs, unique, unique_inverse

NUMBERS = st.lists(st.integers(-3, 9) | st.integers(-(1 << 63), (1 << 63) - 1), max_size=40)


def array(values: list[int]) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array(values, dtype=np.int64)


@given(NUMBERS)
def test_each_value_comes_once_and_sorted_and_leads_back(values: list[int]) -> None:
    assert unique(array(values)).tolist() == sorted(set(values))
    once, back = unique_inverse(array(values))
    assert once.tolist() == sorted(set(values))
    assert once[back].tolist() == values


@given(NUMBERS, NUMBERS)
def test_what_is_wanted_is_found_and_nothing_else(values: list[int], wanted: list[int]) -> None:
    found = among(array(values), array(sorted(set(wanted))))
    assert found.tolist() == [value in wanted for value in values]


@given(NUMBERS)
def test_stretches_of_equal_values_cover_all_and_are_as_long_as_can_be(values: list[int]) -> None:
    found = list(runs(array(values)))
    assert [value for begin, end in found for value in values[begin:end]] == values
    assert all(len(set(values[begin:end])) == 1 for begin, end in found)
    assert all(values[before[0]] != values[after[0]] for before, after in pairwise(found))
