"""Cohorts of fleets: small ones written out, and those of the lab, in which a cause was planted."""

from collections.abc import Callable, Sequence

import numpy as np

from exhume.fleet import cohorts as fleet_cohorts
from exhume.fleet.model import Node
from exhume.lab.fleet_facts import Cause, Settings, make
from exhume.lab.fleet_summary import as_fleet
from tests.fleet.made import fleet, group
from tests.golden import adapter
from tests.golden.adapter import Data

UNIT = "unit:leaky.service"
ACTIVE, FAILED = {UNIT: "active"}, {UNIT: "failed"}
NODES, DAYS, SEED = 100, 14, 3
PLANTED: tuple[Cause, ...] = ("agent", "driver", "two", "pair", "none")


def _squares(sick: Callable[[str, str], int]) -> list[Node]:
    """All four combinations of two kernels and two drivers."""
    nodes = []
    for kernel in ("5.4", "6.1"):
        for driver in ("2.10", "2.11"):
            nodes += group(50, sick(kernel, driver), {"kernel": kernel, "driver": driver}, kernel + driver)
    return nodes


def _luck() -> list[Node]:
    """Sixty facts that have nothing to do with who is sick."""
    draws = np.random.default_rng(3)
    values, sick = draws.integers(0, 3, (120, 60)).tolist(), (draws.random(120) < 0.3).tolist()
    facts = [{f"fact-{j}": f"v{v}" for j, v in enumerate(row)} for row in values]
    return [Node(f"n{i}", has, sick=ill) for i, (has, ill) in enumerate(zip(facts, sick, strict=True))]


def _zones() -> list[Node]:
    nodes = group(90, 88, {**ACTIVE, "zone": "a"}, "a") + group(5, 0, {**FAILED, "zone": "a"}, "b")
    return nodes + group(60, 1, {**FAILED, "zone": "c"}, "c") + group(4, 4, {**ACTIVE, "zone": "c"}, "d")


def _zone_or_unit() -> list[Node]:
    nodes = group(40, 40, {**ACTIVE, "zone": "a"}, "a") + group(40, 0, {**FAILED, "zone": "b"}, "b")
    return nodes + group(1, 0, {**FAILED, "zone": "a"}, "c")


FLEETS: dict[str, Callable[[], Sequence[Node]]] = {
    "one_fact": lambda: group(40, 38, ACTIVE, "a") + group(60, 3, FAILED, "b"),
    "unit_before_zone": lambda: group(30, 30, {**ACTIVE, "zone": "a"}, "a") + group(30, 0, {**FAILED, "zone": "b"}, "b"),
    "zone_is_confounded": _zones,
    "zone_cannot_be_told_apart": _zone_or_unit,
    "two_facts_together": lambda: _squares(lambda kernel, driver: 48 if (kernel, driver) == ("5.4", "2.11") else 1),
    "two_causes": lambda: _squares(lambda kernel, driver: 1 if (kernel, driver) == ("6.1", "2.10") else 49),
    "number_is_split": lambda: [Node(f"n{i}", {"disk-used": float(i)}, sick=i >= 70) for i in range(100)],
    "one_healthy_value": lambda: [node for i in range(6) for node in group(20, 18 if i else 0, {"kernel": f"k{i}"}, f"k{i}")],
    "measures_are_no_causes": lambda: [
        Node(f"n{i}", {"resets": float(i >= 50), "uptime-days": float(i)}, sick=i >= 50) for i in range(100)
    ],
    "luck": _luck,
    "none_sick": lambda: group(40, 0, ACTIVE, "a"),
    "all_sick": lambda: group(40, 40, ACTIVE, "a"),
    "empty": list,
}


def cohorts() -> dict[str, Data]:
    found = {name: fleet(nodes()) for name, nodes in FLEETS.items()}
    for cause in PLANTED:
        found[f"planted_{cause}"] = as_fleet(make(Settings(NODES, DAYS, SEED, cause)))
    found["planted_agent_without_counts"] = as_fleet(make(Settings(NODES, DAYS, SEED, "agent")), by_zombies=False)
    return {name: adapter.cohorts(fleet_cohorts.cohorts(one)) for name, one in found.items()}
