"""Summaries: what a core did in a second, counted, and the same however the samples were split."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.summary import CLASSES, EMPTY, OFFSETS, Summary, between, join, summarise

SECOND = 1_000_000_000
SAMPLE = st.tuples(st.integers(0, 4 * SECOND), st.integers(0, 3), st.integers(0, len(CLASSES) - 1))
FAR = st.tuples(st.integers(0, (1 << 63) - 1), st.integers(0, 1 << 15), st.integers(0, len(CLASSES) - 1))
SAMPLES = st.lists(st.one_of(SAMPLE, FAR), max_size=40)


def summary_of(samples: list[tuple[int, int, int]]) -> Summary:
    table = np.array(samples, dtype=np.int64).reshape(-1, 3)
    return summarise(table[:, 0], table[:, 1], table[:, 2].astype(np.int8))


@given(SAMPLES)
def test_every_sample_is_counted_in_its_second_class_and_fiftieth(samples: list[tuple[int, int, int]]) -> None:
    made = summary_of(samples)
    keys = list(zip(made.time.tolist(), made.core.tolist(), strict=True))
    assert keys == sorted({(time // SECOND * SECOND, core) for time, core, _ in samples})
    counted = Counter((time // SECOND * SECOND, core, CLASSES[kind]) for time, core, kind in samples)
    busy = Counter((time // SECOND * SECOND, core, time % SECOND * OFFSETS // SECOND) for time, core, kind in samples if kind)
    for row, (time, core) in enumerate(keys):
        for kind in CLASSES:
            assert getattr(made, kind)[row] == counted[time, core, kind]
        assert made.offsets[row].tolist() == [busy[time, core, part] for part in range(OFFSETS)]


@given(st.lists(SAMPLES, max_size=4))
def test_joining_parts_is_the_summary_of_all(parts: list[list[tuple[int, int, int]]]) -> None:
    joined = join([summary_of(part) for part in parts])
    whole = summary_of([sample for part in parts for sample in part])
    for name in Summary._fields:
        assert np.array_equal(getattr(joined, name), getattr(whole, name))


def test_a_fiftieth_that_is_too_full_says_so_and_does_not_wrap() -> None:
    many = summary_of([(5, 0, 1)] * 300)
    assert many.offsets[0, 0] == 255
    assert many.user[0] == 300
    twice = join([summary_of([(5, 0, 1)] * 200)] * 2)
    assert twice.offsets[0, 0] == 255
    assert twice.user[0] == 400


def test_a_window_has_the_seconds_that_it_touches() -> None:
    made = summary_of([(second * SECOND, 0, 1) for second in range(5)])
    assert between(made, SECOND + 5, 3 * SECOND).time.tolist() == [SECOND, 2 * SECOND]
    assert between(made, None, None).time.tolist() == made.time.tolist()
    assert len(join([]).time) == len(EMPTY.time) == 0
