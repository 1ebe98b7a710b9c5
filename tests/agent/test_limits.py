"""The agent's own limits: over them for a minute one thing is given up, far below them for long one is taken back."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.agent.limits import BELOW_S, OVER_S, STEPS, Cost, Limits, steps

MIB = 1 << 20


def watched(limits: Limits, seconds: float, ratio: float, mib: int, start: Cost) -> tuple[list[str], Cost]:
    """So long at that cost, looked at every five seconds."""
    said, cost = [], start
    for _ in range(round(seconds / 5)):
        cost = Cost(cost.at_s + 5, cost.cpu_s + 5 * ratio, mib * MIB)
        if text := limits.watch(cost):
            said.append(text)
    return said, cost


def test_a_minute_over_the_limit_gives_up_one_thing_after_the_other_and_then_says_so() -> None:
    limits, cost = Limits(0.1, 250 * MIB), Cost(0, 0, 0)
    for level, (name, meaning) in enumerate(STEPS, 1):
        said, cost = watched(limits, OVER_S, 0.5, 100, cost)
        assert (said, limits.level) == ([], level - 1)
        said, cost = watched(limits, 5, 0.5, 100, cost)
        assert said == [f"the agent used 50% of a core for a minute, its limit is 10%: {name} is given up, {meaning}"]
        assert limits.given_up == tuple(each for each, _ in STEPS[:level])
    said, _ = watched(limits, OVER_S + 10, 0.5, 100, cost)
    assert said == ["the agent uses 50% of a core, its limit is 10%, and there is nothing left to give up"]


def test_what_is_not_on_is_not_given_up() -> None:
    assert [name for name, _ in steps(True, True, 49)] == [name for name, _ in STEPS]
    assert [name for name, _ in steps(False, False, 11)] == ["verdicts", "samples"]
    assert [name for name, _ in steps(False, True, 0)] == ["latency-windows", "verdicts"]
    limits = Limits(0.1, 250 * MIB, steps(False, False, 0))
    said, _ = watched(limits, 2 * OVER_S + 20, 0.5, 100, Cost(0, 0, 0))
    assert [limits.given_up, "nothing left to give up" in said[-1]] == [("verdicts",), True]


def test_a_peak_of_memory_is_no_reason_but_a_minute_is() -> None:
    limits, cost = Limits(0.1, 250 * MIB), Cost(0, 0, 0)
    for _ in range(20):
        said, cost = watched(limits, 30, 0.01, 400, cost)
        assert said == []
        said, cost = watched(limits, 30, 0.01, 100, cost)
        assert said == []
    said, _ = watched(limits, OVER_S + 10, 0.01, 400, cost)
    assert said == [f"the agent used 400 MiB for a minute, its limit is 250 MiB: {STEPS[0][0]} is given up, {STEPS[0][1]}"]


def test_far_below_for_long_takes_the_last_one_back() -> None:
    limits, cost = Limits(0.1, 250 * MIB), Cost(0, 0, 0)
    _, cost = watched(limits, 2 * OVER_S + 20, 0.5, 100, cost)
    assert limits.level == 2
    said, cost = watched(limits, BELOW_S, 0.01, 100, cost)
    assert (said, limits.level) == ([], 2)
    said, cost = watched(limits, 2 * OVER_S, 0.01, 100, cost)
    assert said == [f"the agent has been far below its limits for 30 min: {STEPS[1][0]} is taken back"]
    assert limits.given_up == (STEPS[0][0],)
    said, cost = watched(limits, 2 * BELOW_S, 0.08, 100, cost)  # below, not far below
    assert (said, limits.level) == ([], 1)


def test_a_pause_of_the_whole_node_is_not_counted_as_quiet_or_busy() -> None:
    limits, cost = Limits(0.1, 250 * MIB), Cost(0, 0, 0)
    _, cost = watched(limits, 300, 0.05, 100, cost)
    cost = Cost(cost.at_s + 7200, cost.cpu_s, 100 * MIB)
    assert limits.watch(cost) == ""
    assert limits.level == 0


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 2), st.integers(0, 1000)), max_size=300))
def test_it_never_leaves_its_steps_and_remembers_little(looks: list[tuple[float, float, int]]) -> None:
    limits, at, cpu = Limits(0.1, 250 * MIB), 0.0, 0.0
    for seconds, ratio, mib in looks:
        at, cpu, before = at + seconds, cpu + seconds * ratio, limits.level
        said = limits.watch(Cost(at, cpu, mib * MIB))
        assert abs(limits.level - before) <= 1
        assert 0 <= limits.level <= len(STEPS)
        assert bool(said) or limits.level == before
