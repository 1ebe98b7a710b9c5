"""Dictionaries that are put one after the other as Arrow has them are those that are joined row by row."""

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording import arrow, parquet, plain
from exhume.recording.dictionaries import joined

TEXTS = st.sampled_from(("", "user", "\x1b[31m", "a\0b", "ä\U0001f9df")) | st.text(st.characters(exclude_categories=["Cs"]))
STACKS = st.lists(st.tuples(st.integers(1, 40), TEXTS, st.lists(st.integers(0, 1 << 40), max_size=4)), max_size=6)


def rows(made: Any) -> list[list[Any]]:
    return [column.to_pylist() for column in made.columns]


def read_back(columns: plain.Columns) -> list[list[Any]]:
    return rows(parquet.read(parquet.write("stacks", columns), "stacks"))


def stream(each: list[tuple[int, str, list[int]]]) -> Any:
    ids, classes, frames = zip(*each, strict=True) if each else ((), (), ())
    return pa.Table.from_batches([arrow.from_columns("stacks", {"id": ids, "class": classes, "frames": frames})])


@given(STACKS, STACKS, st.booleans())
def test_one_after_the_other_is_joined_where_ids_go_up(
    first: list[tuple[int, str, list[int]]], second: list[tuple[int, str, list[int]]], sealed: bool
) -> None:
    before = stream(first)
    if sealed:  # as it is read from a chapter: narrow numbers, texts by dictionary
        before = parquet.read(parquet.write("stacks", plain.columns("stacks", before)), "stacks")
    parts = [before, stream(second)]
    made = plain.appended("stacks", parts)
    ids = [one[0] for one in (*first, *second)]
    goes_up = bool((np.diff(ids) > 0).all())
    assert goes_up or made is None
    assert made is not None or not goes_up or not len(first) or not len(second)
    if made is not None:
        assert read_back(made) == read_back(joined([plain.columns("stacks", part) for part in parts]))


def test_an_older_table_that_lacks_a_column_is_not_left_as_it_is() -> None:
    lacking = pa.table({"id": [1, 2]})
    assert plain.appended("stacks", [lacking, stream([(3, "user", [1])])]) is None
    nothing = pa.table({"id": [1], "class": pa.array([None], pa.utf8()), "frames": [[1]]})
    assert plain.appended("stacks", [nothing, stream([(3, "user", [1])])]) is None
