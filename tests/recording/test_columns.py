"""Columns of numbers: whatever goes in comes out, in a fraction of the room."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.columns import CHUNK, IntColumn
from exhume.recording.recording import Node, Recording

NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.lists(st.one_of(NUMBERS, st.integers(0, 300)), max_size=8), max_size=5))
def test_what_goes_in_comes_out_however_it_is_packed(chunks: list[list[int]]) -> None:
    column = IntColumn()
    for chunk in chunks:
        for value in chunk:
            column.append(value)
        column.pack()
    expected = [value for chunk in chunks for value in chunk]
    assert column.ints().tolist() == list(column) == expected
    assert len(column) == len(expected)


@given(st.lists(NUMBERS, max_size=6), st.lists(NUMBERS, max_size=6))
def test_a_column_takes_over_another(left: list[int], right: list[int]) -> None:
    one, two = IntColumn(), IntColumn()
    for column, values in ((one, left), (two, right)):
        for value in values:
            column.append(value)
    two.pack()
    one.extend(two)
    assert list(one) == left + right
    assert list(two) == right


def test_a_number_that_is_none_is_refused_and_not_cut() -> None:
    with pytest.raises(OverflowError):
        IntColumn().append(1 << 63)


def test_a_long_recording_of_many_cores_takes_less_than_a_third_of_its_numbers() -> None:
    recording = Recording(Node("", "", "", "v2", 96))
    rows = 3 * CHUNK
    for i in range(rows):
        reading, core = divmod(i, 96)
        recording["cpu"].add(reading * 50_000_000, core, *(core * 10**6 + reading * state for state in range(8)), 0, 0)
    packed = sum(offsets.nbytes for column in recording["cpu"]._columns for _, offsets in column._packed)
    assert packed <= rows * 12 * 8 / 2
    assert packed <= rows * 12 * sys.getsizeof(10**9) / 3
    assert recording["cpu"].ints("core").tolist() == [i % 96 for i in range(rows)]
    assert recording["cpu"].ints("time")[-1] == (rows - 1) // 96 * 50_000_000
