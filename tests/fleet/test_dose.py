"""Uptime as a dose: young nodes are no evidence of health, leaking ones none either, and the slope has an interval."""

import math
from dataclasses import replace

import numpy as np
import pytest

from exhume.fleet import words
from exhume.fleet.cohorts import cohorts
from exhume.fleet.dose import dose, outcomes
from exhume.fleet.model import Boot, Fleet, Node
from exhume.host.quantities import DAY_S
from exhume.lab.fleet_facts import Settings, make
from exhume.lab.fleet_summary import as_fleet
from tests.fleet.made import fleet

LEAKY = {"unit:leaky.service": "active"}
SOUND = {"unit:leaky.service": "failed"}


def leaking_since_boot(count: int, seed: int = 1) -> list[Node]:
    """Half of the nodes run the agent and are sick from their eighth day on."""
    draws = np.random.default_rng(seed)
    nodes = []
    for i, days in enumerate(draws.uniform(0, 20, count).tolist()):
        leaky = i % 2 == 0
        facts = LEAKY if leaky else SOUND
        nodes.append(Node(f"n{i}", dict(facts), sick=leaky and days >= 8, uptime_s=days * DAY_S))
    return nodes


def test_nodes_that_were_up_too_briefly_are_not_taken_for_healthy() -> None:
    nodes = leaking_since_boot(400)
    found = outcomes(nodes, 0.01)
    assert found.sick_from_s is not None
    assert 7 <= found.sick_from_s / DAY_S <= 8.5
    young = [node for node, flag in zip(nodes, found.young.tolist(), strict=True) if flag]
    assert young
    assert all(not node.sick and (node.uptime_s or 0) < found.sick_from_s for node in young)
    assert all(found.states[found.young] == -1)


def test_the_agent_is_the_cause_and_the_uptime_its_dose() -> None:
    found = cohorts(fleet(leaking_since_boot(400)))
    assert [each.fact for each in found.cohorts[0].conditions] == ["unit:leaky.service"]
    assert len(found.cohorts) == 1
    assert found.cohorts[0].share > 0.9
    assert found.dose is not None
    assert "nodes are sick from" in words.dose(found.dose)


def test_where_every_node_runs_it_the_uptime_alone_is_told() -> None:
    nodes = [replace(node, sick=(node.uptime_s or 0) >= 8 * DAY_S, facts=LEAKY) for node in leaking_since_boot(200)]
    found = cohorts(fleet(nodes))
    (cohort,) = found.cohorts
    assert words.conditions(cohort.conditions).startswith("the node is up for at least 8 d")
    assert cohort.share == 1.0
    assert cohort.share_others < 0.05


def test_a_kernel_that_came_with_the_last_reboot_is_not_the_cure() -> None:
    """Nodes with the new kernel are healthy because they are young."""
    nodes = []
    for node in leaking_since_boot(400):
        new = (node.uptime_s or 0) < 6 * DAY_S
        nodes.append(replace(node, facts={**node.facts, "kernel": "new" if new else "old"}))
    found = cohorts(fleet(nodes))
    assert [[each.fact for each in cohort.conditions] for cohort in found.cohorts] == [["unit:leaky.service"]]


def test_the_uptime_of_nodes_that_are_sick_anyway_is_no_dose() -> None:
    draws = np.random.default_rng(4)
    nodes = [Node(f"n{i}", sick=bool(draws.random() < 0.3), uptime_s=float(draws.uniform(0, 1e6))) for i in range(300)]
    found = outcomes(nodes, 0.01)
    assert found.sick_from_s is None
    assert not found.young.any()


def test_a_node_that_leaks_as_fast_as_the_sick_ones_counts_as_one() -> None:
    nodes = [Node(f"s{i}", sick=True, leak_per_day=8640) for i in range(10)]
    nodes += [Node("soon", sick=False, leak_per_day=8000), Node("fine", sick=False, leak_per_day=20)]
    found = outcomes(nodes, 0.01)
    assert found.leaking.tolist() == [False] * 10 + [True, False]
    assert found.states.tolist() == [1] * 11 + [0]


def test_the_slope_is_the_leak_and_a_reboot_is_seen_to_reset_it() -> None:
    made = as_fleet(make(Settings(400, 14, 2, "agent")))
    found = cohorts(made).dose
    assert found is not None
    assert found.slope is not None
    assert found.slope.low <= 8640 <= found.slope.high
    assert found.slope.value == pytest.approx(8640, rel=0.01)
    assert abs(found.slope.at_zero) < 100
    assert found.reboots > 50
    assert found.reset == found.reboots
    assert f"a reboot resets it ({found.reset} of {found.reboots} seen)" in words.dose(found)


def test_a_reboot_that_resets_nothing_is_told_as_that() -> None:
    nodes = tuple(Node(f"n{i}", uptime_s=i * DAY_S, zombies=100.0 * i) for i in range(1, 30))
    boots = tuple(Boot(node.name, 0, 1, first, last) for node in nodes for first, last in ((0, 5000), (5000, 9000)))
    found = dose(Fleet("x", nodes, boots=boots), np.ones(len(nodes), dtype=np.bool_), None)
    assert found is not None
    assert (found.reboots, found.reset) == (29, 0)
    assert "a reboot does not reset it (0 of 29 seen)" in words.dose(found)


def test_zombies_that_do_not_grow_are_no_dose() -> None:
    draws = np.random.default_rng(3)
    nodes = tuple(Node(f"n{i}", uptime_s=float(u), zombies=float(z)) for i, (u, z) in enumerate(draws.uniform(0, 1e6, (80, 2))))
    assert dose(Fleet("x", nodes), np.ones(80, dtype=np.bool_), None) is None


@pytest.mark.parametrize("odd", [math.nan, math.inf, -1.0, None])
def test_an_uptime_that_is_none_is_passed_over(odd: float | None) -> None:
    nodes = [*leaking_since_boot(200), Node("odd", sick=False, uptime_s=odd, zombies=odd, leak_per_day=odd)]
    found = outcomes(nodes, 0.01)
    assert found.states[-1] == 0
    assert not found.young[-1]
