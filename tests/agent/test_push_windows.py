"""Which stretches of a recording become profiles."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.push_windows import AFTER_NS, BEFORE_NS, LONGEST_NS, Window, Windows
from tests.render.made import SECOND


def test_incidents_close_together_are_one_profile_and_later_ones_do_not_overlap() -> None:
    windows, now = Windows(), 1000 * SECOND
    windows.incident(now - 5 * SECOND, now)
    windows.incident(now - 50 * SECOND, now + 10 * SECOND)
    assert windows.due(now + AFTER_NS - 1, 0) == []
    assert windows.due(now + AFTER_NS, 0) == [Window("incident", now - 50 * SECOND - BEFORE_NS, now + AFTER_NS)]
    windows.incident(now, now + 40 * SECOND)
    assert windows.due(now + 80 * SECOND, 0) == [Window("incident", now + AFTER_NS, now + 40 * SECOND + AFTER_NS)]
    assert windows.due(now + 500 * SECOND, 0) == []


@given(st.lists(st.tuples(st.integers(0, 120), st.integers(0, 400), st.booleans()), max_size=40), st.sampled_from([0, 10, 60]))
def test_windows_of_one_kind_never_overlap_and_are_bounded(steps: list[tuple[int, int, bool]], every: int) -> None:
    windows, now = Windows(), 10_000 * SECOND
    found: dict[str, list[Window]] = {"incident": [], "continuous": []}
    for forward, ago, incident in steps:
        now += forward * SECOND
        for one in windows.due(now, every * SECOND):
            found[one.what].append(one)
        if incident:
            windows.incident(now - ago * SECOND, now)
    for kind, mine in found.items():
        assert all(one.start < one.end <= now for one in mine)
        assert all(before.end <= after.start for before, after in pairwise(mine))
        longest = LONGEST_NS + 2 * AFTER_NS if kind == "incident" else 2 * every * SECOND
        assert all(one.end - one.start <= longest for one in mine)
