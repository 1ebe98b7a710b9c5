"""The lanes of a timeline, as every drawing of them reads them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exhume.recording.recording import Recording
from exhume.render.lanes import CLASSES, STATES, Bar, Counted, Flag, Marks, by_name, edges_of, joined, of_samples
from tests.diagnosis.findings import made

SECOND = 1_000_000_000
EDGES = edges_of(0, 3 * SECOND, 3)


def counted(a_second: float, **of_user: list[int]) -> Counted:
    counts = np.zeros((len(of_user), len(CLASSES), 3))
    counts[:, CLASSES.index("user")] = list(of_user.values())
    return Counted(list(range(len(of_user))), counts, a_second)


def user(found: Counted, core: int) -> list[float]:
    shares: list[float] = found.states(EDGES, (0, 3 * SECOND))[core, STATES.index("user")].round(2).tolist()
    return shares


def test_a_core_without_ticks_was_not_accounted_and_one_without_samples_slept() -> None:
    ticks = counted(0.0, busy=[100, 100, 100], stuck=[100, 0, 50])
    assert np.isnan(user(ticks, 1)).tolist() == [False, True, False]
    assert user(ticks, 1)[2] == 1.0
    samples = counted(100.0, busy=[100, 100, 0], asleep=[100, 0, 0])
    assert user(samples, 1)[:2] == [1.0, 0.0]
    assert user(samples, 0)[:2] == [1.0, 1.0]


def test_a_sample_of_another_rate_counts_for_more() -> None:
    recording = made.recording(cpus=1)
    recording["stacks"].add(1, "system", ())
    recording["stacks"].add(2, "idle", ())
    recording["samples"].add_rows([(SECOND // 2, 0, 1, 1), (SECOND, 0, 1, 2), (5 * SECOND, 0, 1, 1)])
    found = of_samples(recording, EDGES, 1.0, np.array([2.0, 1.0, 1.0]))
    assert found.cores == [0]
    assert found.counts[0, CLASSES.index("system")].tolist() == [2, 0, 0]
    assert found.counts[0, CLASSES.index("idle")].tolist() == [0, 1, 0]
    assert of_samples(Recording(recording.node), EDGES).states(EDGES).shape == (0, len(STATES), 3)


@given(st.integers(0, 1 << 62), st.integers(0, 1 << 61), st.integers(1, 500))
def test_edges_are_in_order_and_hold_the_window(start: int, length: int, columns: int) -> None:
    edges = edges_of(start, start + length, columns)
    assert len(edges) == columns + 1
    assert (np.diff(edges) > 0).all()
    assert edges[0] == start
    assert edges[-1] == start + max(length, columns)


def test_marks_of_parts_that_overlap_are_there_once_and_the_longest_wait_comes_first() -> None:
    flag = Flag(5, "critical", "line", "text")
    short, long = Bar("eth1", 0, 3, 0, ""), Bar("eth0", 2, 9, 0, "")
    part = Marks((flag, Flag(6, "warning", "line", "text")), 0, (short, long), (), ())
    whole = joined([part, part], 0, 10, most_flags=1)
    assert whole.flags == (flag,)
    assert whole.left_out == 1
    assert by_name(whole.bars, 12) == [("eth0", [long]), ("eth1", [short])]
    assert joined([part], 3, 10).bars == (long,)
