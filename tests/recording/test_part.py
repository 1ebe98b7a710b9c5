"""A part of a recording: what is in it, what was known by then, and nothing else."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.recording.part import part
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.source_state import Failed, SourceState
from tests.examples import examples

NODE = Node("node-7", "boot", "5.4.0", "v1", 4)


def recording() -> Recording:
    made = Recording(NODE)
    for time in range(0, 100, 10):
        made["cpu"].add(time, 0, *(time + i for i in range(10)))
        made["memcg"].add(time, "/", 1, time, 1 + time, "proc-cgroups", "node", 1)
        made["events"].add(time, "kind", "subject", "info", f"at {time}", ())
        made["samples"].add(time, 0, 1, 2)
    made["stacks"].add(2, "system", [7])
    made["anchors"].add(0, 0, 0, 10**18, 1)
    made.add_source(0, "cpu", SourceState("on"), 5)
    made.add_source(55, "cpu", SourceState.off(Failed("gone")), 9)
    made.count(0, "slow", 7)
    made.count(10, "fast", 1)
    made.count(45, "fast", 2, labels(core=1))
    made.count(48, "fast", 3)
    return made


def test_rows_of_the_time_and_what_holds_from_before() -> None:
    cut = part(recording(), 40, 60)
    assert cut["cpu"].ints("time").tolist() == [40, 50]
    assert cut["samples"].ints("time").tolist() == [40, 50]
    assert [row["message"] for row in cut["events"].rows()] == ["at 40", "at 50"]
    assert cut["memcg"].ints("dying").tolist() == [0, 10, 20, 30, 40, 50]  # how it grew, up to then
    assert cut["stacks"].lists("frames") == [[7]]
    assert cut.window == (40, 50)
    slow, fast = cut.counter("slow"), cut.counter("fast")
    assert slow is not None
    assert (slow.times.tolist(), slow.values.tolist()) == ([40], [7])
    assert fast is not None
    assert (fast.times.tolist(), fast.values.tolist()) == ([40, 48], [1, 3])
    assert not cut.on("cpu")
    assert part(recording(), 40, 50).on("cpu")


def test_the_whole_is_left_as_it_was() -> None:
    whole = recording()
    part(whole, 40, 60)["cpu"].add(99, *range(11))
    assert len(whole["cpu"]) == 10


@settings(max_examples=examples(60))
@given(st.integers(-20, 120), st.integers(-20, 120), st.lists(st.tuples(st.integers(0, 99), st.sampled_from("abc"))))
def test_a_counter_has_at_every_moment_the_value_it_had(start: int, end: int, rows: list[tuple[int, str]]) -> None:
    whole = Recording(NODE)
    for value, (time, name) in enumerate(sorted(rows)):
        whole.count(time, name, value)
    cut = part(whole, start, end)
    for name in "abc":
        series, other = whole.counter(name), cut.counter(name)
        for moment in range(start, end):
            known = [] if series is None else series.values[series.times <= moment].tolist()
            found = [] if other is None else other.values[other.times <= moment].tolist()
            assert found[-1:] == known[-1:]
