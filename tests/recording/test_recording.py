"""The contract: rows in, columns out, counters by name and label, one clock."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.recording import Node, Recording, Series, labels
from exhume.recording.schema import TABLES
from exhume.recording.source_state import Failed, SourceState

NODE = Node("n", "b", "6.1", "v2", 2)


def test_rows_come_back_as_columns() -> None:
    recording = Recording(NODE)
    recording.add_source(5, "cpu", SourceState("on"), 10)
    recording.add_source(9, "cpu", SourceState.off(Failed("gone")), 20)
    assert recording["sources"].ints("time").tolist() == [5, 9]
    assert recording["sources"].texts("state") == ["on", "off"]
    assert not recording.on("cpu")
    assert recording.why_off("cpu") == "gone"


def test_a_row_of_the_wrong_width_is_refused() -> None:
    with pytest.raises(TypeError, match="memcg has"):
        Recording(NODE)["memcg"].add(1, "/")


def test_counters_are_found_by_name_and_label_in_whatever_order_they_were_added() -> None:
    recording = Recording(NODE)
    recording.count(1, "drops", 10, labels(cpu=1))
    recording.count(1, "drops", 5, labels(cpu=0))
    recording.count(2, "drops", 17, labels(cpu=1))
    assert recording.counters("drops")[labels(cpu=1)].delta == 7
    assert recording.counter("drops", labels(cpu=0)) is not None
    assert recording.counter("drops", labels(cpu=9)) is None
    assert recording.counters("nothing") == {}


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=20))
def test_a_counter_never_shrinks(values: list[int]) -> None:
    series = Series(np.arange(len(values)), np.array(values, dtype=np.int64))
    expected = sum(b - a if b >= a else b for a, b in pairwise(values))
    assert series.delta == expected >= 0


def test_wall_time_is_taken_from_the_nearest_anchor() -> None:
    recording = Recording(NODE)
    recording["anchors"].add(1_000, 0, 0, 5_000_000, 1)
    recording["anchors"].add(9_000, 0, 0, 5_009_000, 1)  # the wall clock was stepped by 1,000 in between
    assert recording.real_ns(1_500) == 5_000_500
    assert recording.real_ns(9_500) == 5_009_500


def test_one_recording_takes_over_the_rows_of_another() -> None:
    one, two = Recording(NODE), Recording(NODE)
    two.count(3, "x", 1)
    two.add_source(1, "cpu", SourceState("on"))
    one.extend(two)
    assert one.counter("x") is not None
    assert one.on("cpu")


def test_every_column_is_documented_and_every_table_begins_with_its_time_or_its_id() -> None:
    for table in TABLES.values():
        assert table.columns[0].kind == "time" or table.columns[0].name == "id"
        assert table.doc
        assert all(column.doc for column in table.columns)
