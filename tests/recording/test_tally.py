"""Tallies: every sample is counted once, however they are put together."""

import subprocess
import sys
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.recording import Ints, Node, Recording
from exhume.recording.tally import Tally, merge, of_recording, tally

SMALL = st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3))
EXTREME = st.tuples(*[st.integers(-(1 << 63), (1 << 63) - 1)] * 3)
SAMPLES = st.lists(st.one_of(SMALL, EXTREME), max_size=30)


def columns(samples: list[tuple[int, int, int]]) -> tuple[Ints, Ints, Ints]:
    table = np.array(samples, dtype=np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 1], table[:, 2]


def as_counter(tallied: Tally) -> Counter[tuple[int, int, int]]:
    keys = zip(tallied.core.tolist(), tallied.thread.tolist(), tallied.stack.tolist(), strict=True)
    return Counter(dict(zip(keys, tallied.count.tolist(), strict=True)))


@given(st.one_of(SAMPLES, st.lists(SMALL, max_size=60)))
def test_every_sample_is_counted_and_rows_are_sorted_and_unique(samples: list[tuple[int, int, int]]) -> None:
    tallied = tally(*columns(samples))
    assert as_counter(tallied) == Counter(samples)
    rows = list(zip(tallied.core.tolist(), tallied.thread.tolist(), tallied.stack.tolist(), strict=True))
    assert rows == sorted(set(samples))


@given(st.lists(SAMPLES, max_size=4))
def test_merging_is_the_tally_of_all(parts: list[list[tuple[int, int, int]]]) -> None:
    merged = merge([tally(*columns(part)) for part in parts])
    whole = tally(*columns([sample for part in parts for sample in part]))
    for one, other in zip(merged, whole, strict=True):
        assert one.tolist() == other.tolist()


def test_a_recording_is_tallied() -> None:
    recording = Recording(Node("", "", "", "v2", 1))
    for stack in (4, 4, 9):
        recording["samples"].add(1, 0, 2, stack)
    assert as_counter(of_recording(recording)) == {(0, 2, 4): 2, (0, 2, 9): 1}


def test_tallying_does_not_import_what_it_does_not_need() -> None:
    code = (
        "import sys, numpy as np; from exhume.recording import summary, tally; a = np.arange(9) % 3; tally.tally(a, a, a);"
        "summary.summarise(a, a, a.astype(np.int8)); print([m for m in ('numpy.ma', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
