"""True at once, false after ten quiet minutes: the state machine, for any order of what is found."""

from hypothesis import given
from hypothesis import strategies as st

from exhume.cluster.conditions import KINDS, QUIET_S, Condition, Seen, begin, changed, event, patch, step

LEAK = Seen("memcg-leak", "ecs.service leaks 8,640 a day")


def by_name(conditions: tuple[Condition, ...]) -> dict[str, Condition]:
    return {one.name: one for one in conditions}


def test_a_finding_makes_it_true_at_once_and_ten_quiet_minutes_false() -> None:
    quiet = begin(1000.0)
    assert not any(one.bad for one in quiet)
    found = step(quiet, [LEAK], 1010.0)
    assert [one.name for one in changed(quiet, found)] == ["MemoryCgroupLeak"]
    leak = by_name(found)["MemoryCgroupLeak"]
    assert (leak.reason, leak.message, leak.since_s) == ("MemoryCgroupsLeak", LEAK.summary, 1010.0)
    assert step(found, [], 1010.0 + QUIET_S - 1) == found
    over = step(found, [], 1010.0 + QUIET_S)
    assert [(one.name, one.bad) for one in changed(found, over)] == [("MemoryCgroupLeak", False)]
    assert by_name(over)["MemoryCgroupLeak"].since_s == 1010.0 + QUIET_S


def test_what_is_found_again_begins_the_ten_minutes_anew_and_keeps_its_words() -> None:
    found = step(begin(0.0), [LEAK], 0.0)
    again = step(found, [Seen("memcg-leak", "other words"), Seen("zombie-memcgs", "more")], 500.0)
    assert changed(found, again) == ()
    assert by_name(again)["MemoryCgroupLeak"].message == LEAK.summary
    assert by_name(step(again, [], 1099.0))["MemoryCgroupLeak"].bad
    assert not by_name(step(again, [], 1100.0))["MemoryCgroupLeak"].bad


def test_an_agent_that_is_restarted_takes_over_what_the_node_says() -> None:
    bad = step(begin(0.0), [LEAK], 60.0)
    node = {"status": {"conditions": [{"type": "Ready", "status": "True"}, *patch(bad, 60.0)["status"]["conditions"]]}}
    taken = begin(400.0, node)
    leak = by_name(taken)["MemoryCgroupLeak"]
    assert (leak.bad, leak.since_s, leak.message) == (True, 60.0, LEAK.summary)
    assert by_name(step(taken, [], 999.0))["MemoryCgroupLeak"].bad
    assert not by_name(step(taken, [], 1000.0))["MemoryCgroupLeak"].bad


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans()), max_size=60))
def test_true_means_found_within_ten_minutes_and_never_flaps_faster(looks: list[tuple[int, bool]]) -> None:
    conditions, now, found_at, became_true = begin(0.0), 0.0, float("-inf"), 0.0
    for pause, found in looks:
        now += pause
        before, conditions = conditions, step(conditions, [LEAK] if found else [], now)
        found_at = now if found else found_at
        leak = by_name(conditions)["MemoryCgroupLeak"]
        assert leak.bad == (now - found_at < QUIET_S)
        for one in changed(before, conditions):
            if one.bad:
                became_true = now
            else:
                assert now - became_true >= QUIET_S


@given(st.lists(st.builds(Seen, st.sampled_from([name for kind in KINDS for name in kind.findings]), st.text(max_size=2000))))
def test_whatever_the_names_the_patch_holds_our_three_and_printable_text(found: list[Seen]) -> None:
    conditions = step(begin(0.0), found, 1.0)
    told = patch(conditions, 1.0)["status"]["conditions"]
    assert [one["type"] for one in told] == ["MemoryCgroupLeak", "KernelCPUStarvation", "NetworkPollStarvation"]
    assert all(one["message"].isprintable() and len(one["message"]) <= 500 for one in told)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=20,
)


@given(
    st.lists(
        st.fixed_dictionaries({"type": st.just("MemoryCgroupLeak"), "status": json_values, "lastTransitionTime": json_values})
    )
)
def test_conditions_of_any_shape_are_taken_over(told: list[dict[str, object]]) -> None:
    taken = begin(100.0, {"status": {"conditions": told}})
    assert len(taken) == 3
    assert all(one.since_s <= 100.0 for one in taken)


def test_an_event_is_as_node_problem_detector_makes_it() -> None:
    bad = by_name(step(begin(0.0), [LEAK], 0.0))["MemoryCgroupLeak"]
    made = event(bad, "n1", 0.0)
    assert made["type"] == "Warning"
    assert made["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n1"}
    assert made["message"].startswith(
        "Node condition MemoryCgroupLeak is now: True, reason: MemoryCgroupsLeak, message: ecs.service"
    )
