"""Time in which nobody looked is not quiet: a recorder that was started anew, sampling that ended, and zombies nobody can see
walked."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.remedy.criteria_cores import WINDOW_NS, bursts, full, walked, walks
from exhume.remedy.criteria_leak import by_events, leak_rate
from exhume.remedy.criteria_looked import Looked, recorded, sampled
from exhume.remedy.criteria_signs import restarts
from exhume.remedy.proof import prove
from tests.remedy.made_proof import Made, holed, node

LIMITS = Thresholds()
SICK = Made(1, seconds=300)
CURED = Made(2, seconds=600, leak=0, walk_s=0, zombies=60)


@pytest.fixture(scope="module")
def sick() -> Recording:
    return node(SICK)


@pytest.fixture(scope="module")
def mostly_unseen() -> Recording:
    """Ten minutes in which the recorder ran for the first and the last six seconds only."""
    return holed(node(CURED), (6.0, 594.0))


def test_without_holes_all_of_it_was_looked_at(sick: Recording) -> None:
    assert recorded(sick).ns == 300 * 10**9
    assert len(full(sick, LIMITS).windows) == len(walked(sick).windows) == 300 * 10**9 // WINDOW_NS


def test_where_no_core_is_read_samples_tell_and_where_neither_is_nothing_does() -> None:
    """An import has stacks, or a log, and a clock at its ends at most."""
    made = holed(node(replace(CURED, seconds=300, off=("cpu",))), (100.0, 200.0))
    assert recorded(made).ns == pytest.approx(200e9, rel=0.01)
    log = holed(node(replace(CURED, seconds=300, off=("cpu", "samples"))), (1.0, 299.0), tables=("anchors",))
    assert recorded(log).ns == 300 * 10**9


def test_windows_in_which_nothing_was_recorded_are_not_quiet_ones(sick: Recording, mostly_unseen: Recording) -> None:
    for judge, held in ((walks, walked(mostly_unseen)), (bursts, full(mostly_unseen, LIMITS))):
        assert len(held.windows) == 2
        found = judge(sick, mostly_unseen, LIMITS)
        assert found.status == "too-little", found
    assert prove(sick, mostly_unseen, LIMITS).passed is None
    assert prove(None, mostly_unseen, LIMITS).passed is None


def test_a_rate_is_that_of_the_time_in_which_events_were_watched(sick: Recording, mostly_unseen: Recording) -> None:
    found = by_events(mostly_unseen)
    assert found is not None
    assert found.seconds == pytest.approx(12 - 2, abs=0.5)
    assert leak_rate(None, mostly_unseen, LIMITS).status == "too-little"
    whole, part = by_events(sick), by_events(holed(node(SICK), (60.0, 240.0)))
    assert whole is not None
    assert part is not None
    assert part.rate(part.at()) == pytest.approx(whole.rate(whole.at()), rel=0.2)
    assert part.steady(part.at()), "it came all along while somebody looked"
    assert part.leaking(LIMITS.leak_per_minute) == whole.leaking(LIMITS.leak_per_minute)


def test_who_was_removed_just_before_a_hole_may_have_been_released_in_it() -> None:
    after = node(CURED)
    for second in (99.5, 50.0):
        moment = after.window[0] + round(second * 1e9)
        after["cgroup_events"].add(moment, "rmdir", 9, 500 + int(second), 2, f"/ci/{second}", 31, "runc")
    found = by_events(holed(after, (100.0, 200.0)))
    assert found is not None
    assert len(found.at()) == 1


def test_sampling_that_ended_says_nothing_of_the_time_after(sick: Recording) -> None:
    after = holed(node(CURED), (12.0, 601.0), tables=("samples",))
    assert sampled(after).ns == pytest.approx(12e9, rel=0.02)
    found = walks(None, after, LIMITS)
    assert found.status == "too-little"
    assert found.because == "looked at for 10 s only"
    assert walks(sick, after, LIMITS).status == "too-little"
    assert bursts(sick, after, LIMITS).status == "passed", "the cores were read all along"


def test_a_loop_is_not_over_because_nobody_looked(sick: Recording, mostly_unseen: Recording) -> None:
    assert restarts(sick, mostly_unseen, LIMITS).status == "too-little"


def test_what_a_hole_is_known_to_hold_counts() -> None:
    """The counters of the cores go on in a hole: a core that was full of kernel time all through it was."""
    after = node(replace(CURED, seconds=60))
    whole = full(node(replace(CURED, seconds=60, walk_s=9.0)), LIMITS).a_minute
    starved = full(holed(node(replace(CURED, seconds=60, walk_s=9.0)), (20.0, 28.0), tables=("cpu",)), LIMITS).a_minute
    assert full(after, LIMITS).a_minute < starved
    assert starved == pytest.approx(whole, rel=0.5)


@pytest.mark.parametrize("off", [("samples",), ("samples", "units")])
def test_many_zombies_whose_walkers_nobody_can_see_are_no_pass(sick: Recording, off: tuple[str, ...]) -> None:
    """The leak is stopped, and 60,000 are left."""
    after = node(replace(CURED, zombies=60_000, off=off))
    blind = node(replace(SICK, off=("samples", "cpu")))
    for before in (None, blind):
        found = walks(before, after, LIMITS)
        assert found.status == "too-little"
        assert "60,0" in found.because
        assert prove(before, after, LIMITS).passed is None
    assert prove(None, node(replace(CURED, off=off)), LIMITS).passed is True


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(1, 40))
def test_pieces_and_holes_make_up_the_whole(times: list[int], longest: int) -> None:
    from exhume.remedy.criteria_looked import _pieces

    looked = _pieces(np.array(times, dtype=np.int64), (100, 300), longest)
    marks = [100, *sorted(time for time in times if 100 <= time <= 300), 300]
    inside = len(marks) > 2
    expected = sum(b - a for a, b in pairwise(marks) if b - a <= longest) if inside else 0
    assert looked.ns == expected
    clock = looked.before(np.arange(0, 400, dtype=np.int64))
    assert clock[0] == 0
    assert clock[-1] == expected
    assert set(np.diff(clock).tolist()) <= {0, 1}


def test_of_nothing_nothing_was_looked_at() -> None:
    nothing = Looked(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    assert nothing.ns == nothing.without(5) == 0
    assert nothing.before(np.array([3, 4])).tolist() == [0, 0]
    assert recorded(Recording(node(replace(CURED, seconds=5)).node)).ns == 0
