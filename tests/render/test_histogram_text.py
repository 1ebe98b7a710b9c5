"""A histogram as one line."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.render.histogram_text import BLOCKS, EMPTY, axis, strip
from exhume.sources.latency.histogram import BUCKETS, edges


def test_nothing_is_a_dot_and_more_is_higher() -> None:
    assert strip([0, 1, 10, 100, 1000, 0]) == "·▁▃▅█·"


def test_one_among_a_million_is_to_be_seen() -> None:
    assert strip([1_000_000, 1]) == "█▁"


def test_a_few_are_not_drawn_as_if_they_were_many() -> None:
    assert strip([1, 2, 3]) == "▁▃▄"
    assert strip([1]) == "▁"


def test_what_is_marked_is_an_exclamation_mark_wherever_it_is() -> None:
    assert strip([5, 0, 0], [0, 0, 2]) == "▅·!"
    assert strip([5, 10], [1]) == "!█"
    assert strip([0, 0], [0, 0, 9]) == "··"


def test_without_columns_there_is_nothing() -> None:
    assert strip([]) == axis(0) == ""


def test_the_axis_says_where_the_powers_of_two_are() -> None:
    assert axis(BUCKETS) == " 1µs 16µs  1ms 16ms  1s  16s"
    bounds = edges()
    assert [bounds[axis(BUCKETS).index(word)] for word in ("1µs", "16µs", "1ms", "16ms", "1s")] == [1, 16, 1024, 16384, 1 << 20]
    assert axis(7) == " 1µs 16"
    assert len(axis(3)) == 3


@given(st.lists(st.integers(0, 2**64), max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_any_histogram_has_a_character_for_each_column(buckets: list[int], marked: list[int]) -> None:
    line = strip(buckets, marked)
    assert len(line) == len(buckets)
    for i, (count, character) in enumerate(zip(buckets, line, strict=True)):
        if i < len(marked) and marked[i]:
            assert character == "!"
        else:
            assert (character == EMPTY) == (count == 0)
            assert character in BLOCKS + EMPTY
    if buckets and not any(marked):
        top = buckets.index(max(buckets))
        assert all(line[i] <= line[top] or line[i] == EMPTY for i in range(len(line)))
