"""What sick nodes share: found when it is there, not claimed when it is not, told apart from what only goes along with it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.fleet import words
from exhume.fleet.cohorts import Cohorts, cohorts
from exhume.fleet.cohorts_facts import candidates
from exhume.fleet.cohorts_html import page
from exhume.fleet.cohorts_json import as_json
from exhume.fleet.cohorts_kinds import Kind, kind
from exhume.fleet.model import Fact, Fleet, Node
from exhume.lab.fleet_facts import Settings, make
from exhume.lab.fleet_summary import as_fleet
from tests.examples import examples
from tests.fleet.made import fleet, group

AGENT = "unit:leaky.service"


def facts_of(found: Cohorts) -> list[dict[str, tuple[str, Fact]]]:
    return [{each.fact: (each.operator, each.value) for each in cohort.conditions} for cohort in found.cohorts]


def test_the_fact_that_separates_is_found_with_its_figures() -> None:
    nodes = group(40, 38, {AGENT: "active", "colour": "red"}, "a") + group(60, 3, {AGENT: "failed", "colour": "red"}, "b")
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}]
    best = found.cohorts[0]
    assert (best.sick_having, best.having, best.sick_others, best.others) == (38, 40, 3, 60)
    assert best.lift == pytest.approx((38 / 40) / (41 / 100))
    assert best.support == pytest.approx(0.38)
    assert best.confidence > 0.9999
    assert "38 of 40 nodes where unit:leaky.service is active are sick (95%), of the 60 others 3 (5%)" in best.because


def test_what_acts_is_preferred_to_where_it_stands_when_both_say_the_same() -> None:
    nodes = group(30, 30, {AGENT: "active", "zone": "a"}, "a") + group(30, 0, {AGENT: "failed", "zone": "b"}, "b")
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}]
    assert "The same nodes: zone is a." in found.cohorts[0].because


def test_it_is_preferred_although_it_is_known_of_fewer_nodes() -> None:
    nodes = group(60, 60, {AGENT: "active", "zone": "a"}, "a") + group(60, 0, {AGENT: "failed", "zone": "b"}, "b")
    nodes = [replace(node, facts={"zone": node.facts["zone"]}) if i % 4 == 0 else node for i, node in enumerate(nodes)]
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}]


def test_the_zone_explains_nothing_once_the_agent_is_known() -> None:
    """The incident: sick zones, because a bug keeps the agent from starting in one."""
    nodes = group(90, 88, {AGENT: "active", "zone": "a"}, "a") + group(5, 0, {AGENT: "failed", "zone": "a"}, "b")
    nodes += group(60, 1, {AGENT: "failed", "zone": "c"}, "c") + group(4, 4, {AGENT: "active", "zone": "c"}, "d")
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}]
    assert "zone explains nothing once unit:leaky.service is known." in found.cohorts[0].because


def test_a_zone_that_could_not_show_beside_the_agent_is_not_said_to_explain_nothing() -> None:
    """All but one of the nodes have both or neither: nothing but what is known of such things speaks for the agent."""
    nodes = group(40, 40, {AGENT: "active", "zone": "a"}, "a") + group(40, 0, {AGENT: "failed", "zone": "b"}, "b")
    nodes += group(1, 0, {AGENT: "failed", "zone": "a"}, "c")
    best = cohorts(fleet(nodes)).cohorts[0]
    assert [each.condition.fact for each in best.confounded if not each.tellable] == ["zone"]
    assert "zone goes along with it so closely that it cannot be told which it is." in best.because
    assert "explains nothing" not in best.because


def test_a_zone_that_does_explain_more_is_not_called_confounded() -> None:
    nodes = group(60, 60, {AGENT: "active", "zone": "a"}, "a") + group(60, 30, {AGENT: "failed", "zone": "a"}, "b")
    nodes += group(60, 60, {AGENT: "active", "zone": "b"}, "c") + group(60, 1, {AGENT: "failed", "zone": "b"}, "d")
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}, {"zone": ("is", "a")}]
    assert "explains nothing" not in found.cohorts[0].because
    assert "alike in unit:leaky.service" in found.cohorts[1].because


def test_two_facts_that_harm_only_together_are_claimed_together() -> None:
    nodes = []
    for kernel in ("5.4", "6.1"):
        for driver in ("2.10", "2.11"):
            sick = 48 if (kernel, driver) == ("5.4", "2.11") else 1
            nodes += group(50, sick, {"kernel": kernel, "driver": driver}, kernel + driver)
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{"kernel": ("is", "5.4"), "driver": ("is", "2.11")}]


def test_a_second_fact_is_searched_among_the_nodes_that_have_the_first_and_counts_what_was_tried_there() -> None:
    """Few nodes, many labels that one or two nodes have: over all pairs nothing could be said."""
    both = {AGENT: "active", "kernel": "5.4"}
    nodes = (
        group(22, 22, both, "a") + group(9, 0, {**both, AGENT: "failed"}, "b") + group(40, 0, {**both, "kernel": "6.1"}, "c")
    )
    nodes += group(40, 0, {AGENT: "failed", "kernel": "6.1"}, "d")
    nodes = [
        replace(node, facts={**node.facts, **{f"label-{k}": str((i * (k + 3)) % 37) for k in range(60)}})
        for i, node in enumerate(nodes)
    ]
    found = cohorts(fleet(nodes))
    assert facts_of(found)[0] == {AGENT: ("is", "active"), "kernel": ("is", "5.4")}
    assert not found.cohorts[0].too_few


def test_where_so_few_nodes_could_not_tell_a_second_fact_that_is_said() -> None:
    nodes = group(30, 29, {AGENT: "active", "colour": "red"}, "a") + group(60, 0, {AGENT: "failed", "colour": "red"}, "b")
    nodes = [replace(node, facts={**node.facts, "shelf": str(i % 4), "row": str(i % 5)}) for i, node in enumerate(nodes)]
    found = cohorts(fleet(nodes))
    assert facts_of(found) == [{AGENT: ("is", "active")}]
    assert found.cohorts[0].too_few
    assert "cannot be told by so few nodes: 1 of those with it is healthy." in found.cohorts[0].because
    many = cohorts(
        fleet(group(300, 200, {AGENT: "active", "shelf": "1"}, "a") + group(60, 0, {AGENT: "failed", "shelf": "2"}, "b"))
    )
    assert not many.cohorts[0].too_few


def test_two_causes_are_two_cohorts_and_not_a_pair() -> None:
    nodes = []
    for kernel in ("5.4", "6.1"):
        for driver in ("2.10", "2.11"):
            sick = 1 if (kernel, driver) == ("6.1", "2.10") else 49
            nodes += group(50, sick, {"kernel": kernel, "driver": driver}, kernel + driver)
    found = facts_of(cohorts(fleet(nodes)))
    assert sorted(found, key=str) == [{"driver": ("is", "2.11")}, {"kernel": ("is", "5.4")}]


def test_a_number_is_split_where_it_separates() -> None:
    nodes = [Node(f"n{i}", {"disk-used": float(i)}, sick=i >= 70) for i in range(100)]
    (found,) = facts_of(cohorts(fleet(nodes)))
    operator, value = found["disk-used"]
    assert operator == "at least"
    assert 66 <= float(value) <= 74


def test_the_one_value_that_is_healthy_is_told_as_such() -> None:
    nodes = [*group(20, 0, {"kernel": "k0"}, "k0")]
    for i in range(1, 6):
        nodes += group(20, 18, {"kernel": f"k{i}"}, f"k{i}")
    assert facts_of(cohorts(fleet(nodes))) == [{"kernel": ("is not", "k0")}]


def test_what_is_goes_before_what_is_not_when_both_say_the_same() -> None:
    """A third state that few nodes are in, and that is sick or not by luck, does not turn "active" into "not failed"."""
    nodes = group(50, 47, {AGENT: "active"}, "a") + group(20, 2, {AGENT: "failed"}, "b") + group(3, 2, {AGENT: "inactive"}, "c")
    assert facts_of(cohorts(fleet(nodes))) == [{AGENT: ("is", "active")}]


def test_nodes_that_do_not_fit_are_named_with_the_fact() -> None:
    nodes = group(40, 39, {AGENT: "active"}, "a") + group(40, 1, {AGENT: "failed"}, "b")
    misfits = {each.node: (each.sick, each.because) for each in cohorts(fleet(nodes)).misfits}
    assert misfits == {
        "b-0": (True, "sick although unit:leaky.service is failed"),
        "a-39": (False, "healthy although unit:leaky.service is active"),
    }


def test_measures_of_the_sickness_are_no_causes() -> None:
    nodes = [Node(f"n{i}", {"resets": float(i >= 50), "uptime-days": float(i)}, sick=i >= 50) for i in range(100)]
    found = cohorts(fleet(nodes))
    assert found.cohorts == ()
    assert found.left_out == ("resets", "uptime-days")


@pytest.mark.ci
def test_luck_is_not_claimed() -> None:
    """Sixty facts, and sick nodes that have nothing to do with them: at a level of 1 % one fleet in fifty may be unlucky."""
    claimed = 0
    for seed in range(50):
        draws = np.random.default_rng(seed)
        values = draws.integers(0, 3, (120, 60))
        sick = draws.random(120) < 0.3
        nodes = [
            Node(f"n{i}", {f"fact-{j}": f"v{v}" for j, v in enumerate(row)}, sick=bool(ill))
            for i, (row, ill) in enumerate(zip(values.tolist(), sick.tolist(), strict=True))
        ]
        claimed += bool(cohorts(fleet(nodes)).cohorts)
    assert claimed <= 2


def test_what_only_stood_for_two_causes_is_dropped_when_both_are_known() -> None:
    """Seen with this seed: a unit that goes along with the zone came first, and explains nothing beside the two."""
    made = make(Settings(161, 14, 71, "two"))
    planted = [{name: ("is", value) for name, value in each.items()} for each in made.planted]
    assert sorted(facts_of(cohorts(as_fleet(made))), key=str) == sorted(planted, key=str)


@pytest.mark.ci
@pytest.mark.parametrize("cause", ["agent", "kernel", "driver", "two", "pair"])
def test_what_was_planted_is_found(cause: str) -> None:
    made = make(Settings(600, 14, 3, cause))  # type: ignore[arg-type]
    planted = [{name: ("is", value) for name, value in each.items()} for each in made.planted]
    for by_zombies in (True, False):
        found = facts_of(cohorts(as_fleet(made, by_zombies)))
        assert sorted(found, key=str) == sorted(planted, key=str)


def test_labels_dealt_anew_leave_nothing_to_claim() -> None:
    before = as_fleet(make(Settings(400, 14, 5, "agent")))
    dealt = np.random.default_rng(2).permutation(len(before.nodes)).tolist()
    nodes = [
        replace(node, sick=before.nodes[i].sick, leak_per_day=None, zombies=None)
        for node, i in zip(before.nodes, dealt, strict=True)
    ]
    assert cohorts(before).cohorts
    assert not cohorts(fleet(nodes)).cohorts


@pytest.mark.ci
@given(st.randoms(use_true_random=False))
@settings(max_examples=examples(5))
def test_names_and_order_change_nothing(random: object) -> None:
    """Facts and values by other names of the same kind, nodes in another order: the same nodes are told of."""
    shuffled = np.random.default_rng(random.randrange(1 << 30))  # type: ignore[attr-defined]
    before = as_fleet(make(Settings(150, 14, 8, "two")))
    names = sorted({name for node in before.nodes for name in node.facts})
    numbers = shuffled.permutation(len(names)).tolist()
    last = {Kind.ACTS: "unit", Kind.MADE_OF: "thing", Kind.STANDS: "zone"}
    renamed = {name: f"x{number}-{last[kind(name)]}" for name, number in zip(names, numbers, strict=True)}
    nodes = [replace(node, facts={renamed[name]: value for name, value in node.facts.items()}) for node in before.nodes]
    order = shuffled.permutation(len(nodes)).tolist()
    one, other = cohorts(before), cohorts(fleet([nodes[i] for i in order]))
    assert [{renamed[c.fact]: c.value for c in each.conditions} for each in one.cohorts] == [
        {c.fact: c.value for c in each.conditions} for each in other.cohorts
    ]
    assert [each.log_corrected for each in one.cohorts] == [each.log_corrected for each in other.cohorts]
    assert {each.node for each in one.misfits} == {each.node for each in other.misfits}


ANY_FACT = st.one_of(st.text(max_size=6), st.floats(), st.booleans(), st.sampled_from(["a", "b", '<script>"&', "\x1b[31m", ""]))
ANY_NODE = st.builds(
    Node,
    st.text(max_size=5),
    st.dictionaries(st.sampled_from(["zone", "unit:x.service", "<b>&", "\u202ename", "age", ""]), ANY_FACT, max_size=5),
    st.sampled_from([True, False, None]),
    uptime_s=st.none() | st.floats(),
    exposed_s=st.none() | st.floats(),
    zombies=st.none() | st.floats(),
    leak_per_day=st.none() | st.floats(),
)


@given(st.lists(ANY_NODE, max_size=30))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
def test_whatever_a_source_says_there_is_an_answer(nodes: list[Node]) -> None:
    found = cohorts(fleet(nodes), alpha=0.3)
    json.loads(json.dumps(as_json(found), allow_nan=False))
    assert "<script>" not in page(found)
    assert "\x1b" not in words.verdict(found)


@pytest.mark.parametrize(
    ("nodes", "told"),
    [
        ([], "nothing says of any node whether it is sick"),
        ([Node("one", {"zone": "a"}, sick=True)], "all 1 nodes are sick: there is nothing to compare them with"),
        ([Node("one", {"zone": "a"})], "nothing says of any node whether it is sick"),
        (group(9, 0, {"zone": "a"}, "n"), "none of 9 nodes is sick"),
        (group(9, 9, {"zone": "a"}, "n"), "all 9 nodes are sick: there is nothing to compare them with"),
        (group(9, 4, {"zone": "a"}, "n"), "4 of 9 nodes are sick, and no fact separates them from the healthy ones (0 tried)"),
    ],
)
def test_a_fleet_with_nothing_to_compare_is_told_as_it_is(nodes: list[Node], told: str) -> None:
    found = cohorts(fleet(nodes))
    assert words.verdict(found) == told
    assert as_json(found) == {"schema": "exhume.cohorts/1", "cohorts": [], "dose": {}, "misfits": []}


def test_the_page_shows_hostile_names_as_text() -> None:
    nodes = group(30, 30, {"unit:<img src=x onerror=1>": '"><script>alert(1)</script>'}, "</td><b>")
    nodes += group(30, 1, {"unit:<img src=x onerror=1>": "no"}, "\x1b[31m")
    text = page(cohorts(fleet(nodes)))
    assert "<img" not in text
    assert "<script" not in text
    assert "&lt;img src=x onerror=1&gt;" in text
    assert "\x1b" not in text


def test_the_page_draws_shares_dose_and_what_goes_along() -> None:
    text = page(cohorts(as_fleet(make(Settings(300, 14, 3, "agent")))))
    assert text.count('class="share"') == 1
    assert text.count('class="dot"') > 50
    assert "explains nothing" in text
    assert "default-src 'none'" in text


def test_values_that_nearly_every_node_has_alone_are_not_tried() -> None:
    nodes = [Node(f"n{i}", {"serial": f"s{i}", "colour": "red" if i % 2 else "blue"}) for i in range(50)]
    assert {each.conditions[0].fact for each in candidates(nodes).candidates} == {"colour"}


def test_true_and_the_word_true_are_two_values_and_nan_is_none() -> None:
    values: list[Fact] = [True, "True", float("nan"), float("inf"), ""]
    nodes = [Node(f"n{i}", {"x": values[i % 5]}) for i in range(50)]
    found = {(type(each.conditions[0].value), bool(each.having.sum() == 10)) for each in candidates(nodes).candidates}
    assert found == {(bool, True), (str, True)}
    assert all(int(each.known.sum()) == 20 for each in candidates(nodes).candidates)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("unit:ecs.service", Kind.ACTS),
        ("kernelVersion", Kind.ACTS),
        ("driver_version", Kind.ACTS),
        ("kubernetes.azure.com/agent-pool", Kind.STANDS),
        ("topology.kubernetes.io/zone", Kind.STANDS),
        ("node.kubernetes.io/instance-type", Kind.MADE_OF),
        ("wibble", Kind.MADE_OF),
        ("", Kind.MADE_OF),
        ("uptime", Kind.DOSE),
        ("nic_resets", Kind.SYMPTOM),
        ("unit:reset-nic.service", Kind.ACTS),
    ],
)
def test_the_last_known_word_says_what_kind_of_thing_a_fact_is(name: str, expected: Kind) -> None:
    assert kind(name) == expected


def test_an_empty_fleet_has_no_candidates() -> None:
    assert candidates(Fleet("x", ()).nodes).candidates == ()
