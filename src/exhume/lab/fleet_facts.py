"""A fleet that never was, of which the truth is known: its nodes' facts, what was planted, and when each node was booted.

Modelled on the published incident: an agent that is enabled everywhere, crash-loops where it starts, does not start in one
zone, and leaks 8,640 memory cgroups a day. Around it stand facts that go along with the cause, and many that correlate with it
by nothing but luck.
"""

from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from exhume.fleet.model import Fact

Cause = Literal["agent", "kernel", "driver", "two", "pair", "none"]
CAUSES: Final[tuple[Cause, ...]] = ("agent", "kernel", "driver", "two", "pair", "none")

AGENT, KERNEL, DRIVER, ZONE = "unit:ecs.service", "kernel", "driver:ena", "topology.kubernetes.io/zone"
LEAK_PER_DAY = 8640.0
DAY_MINUTES = 1440
# Nodes that differ from the zone's rule, that have the cause and do not suffer, that suffer for a reason of their own.
_STRAY, _IMMUNE, _OTHERWISE = 0.03, 0.02, 0.02
_MOST_MISSING = 0.08
_REBOOTS_PER_DAY = 1 / 12

Column = NDArray[np.object_]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Settings:
    nodes: int = 2000
    days: int = 14
    seed: int = 1
    cause: Cause = "agent"


@dataclass(frozen=True, slots=True)
class Made:
    """What was made, node by node."""

    settings: Settings
    names: list[str]
    facts: dict[str, Column]
    """None where the inventory has no value."""
    planted: list[dict[str, Fact]]
    """What the analysis should find: a cause each, of one fact or of two."""
    leak_per_day: NDArray[np.float64]
    starved: Flags
    """Late polls and resets for a reason other than zombies."""
    boots: list[list[int]]
    """Minutes from the window's begin at which each node was booted; the first is not after 0."""
    strays: dict[str, list[str]] = field(default_factory=dict)


def make(settings: Settings) -> Made:
    draws = np.random.default_rng([settings.seed, settings.nodes, CAUSES.index(settings.cause)])
    count = settings.nodes
    facts = _facts(draws, count)
    acts = {AGENT: "active", KERNEL: _usual(facts[KERNEL]), DRIVER: _usual(facts[DRIVER])}
    wanted: dict[Cause, list[list[str]]] = {
        "agent": [[AGENT]],
        "kernel": [[KERNEL]],
        "driver": [[DRIVER]],
        "two": [[AGENT], [DRIVER]],
        "pair": [[AGENT, KERNEL]],
        "none": [],
    }
    planted: list[dict[str, Fact]] = [{name: acts[name] for name in names} for names in wanted[settings.cause]]
    leak, starved = np.zeros(count), np.zeros(count, dtype=np.bool_)
    strays: dict[str, list[str]] = {}
    for cause in planted:
        struck = np.all([facts[name] == value for name, value in cause.items()], axis=0)
        immune = struck & (draws.random(count) < _IMMUNE)
        strays["immune"] = strays.get("immune", []) + _names(count, immune)
        if list(cause) == [DRIVER]:
            starved |= struck & ~immune
        else:
            leak[struck & ~immune] = LEAK_PER_DAY
    # Without a cause, as many are sick as an incident may have, each for a reason of its own that knows no uptime.
    alone = settings.cause == "none"
    otherwise = draws.random(count) < (draws.uniform(0.05, 0.4) if alone else _OTHERWISE)
    leak[otherwise & (leak == 0)] = draws.uniform(500, 1500) if alone else LEAK_PER_DAY
    starved |= otherwise & alone
    strays["otherwise"] = _names(count, otherwise)
    leak *= draws.normal(1, 0.01, count)
    for column in facts.values():
        column[draws.random(count) < draws.uniform(0, _MOST_MISSING)] = None
    return Made(settings, _names(count), facts, planted, leak, starved, _boots(draws, settings), strays)


def _names(count: int, chosen: Flags | None = None) -> list[str]:
    every = [f"node-{i:05d}" for i in range(count)]
    return every if chosen is None else [every[i] for i in np.flatnonzero(chosen)]


def _usual(column: Column) -> str:
    """The value whose share is nearest to three in ten: common enough to be seen in a small fleet."""
    values, counts = np.unique(column.astype(str), return_counts=True)
    return str(values[np.argmin(np.abs(counts / len(column) - 0.3))])


def _boots(draws: np.random.Generator, settings: Settings) -> list[list[int]]:
    minutes = settings.days * DAY_MINUTES
    before = draws.integers(0, 20 * DAY_MINUTES, settings.nodes)
    often = draws.poisson(_REBOOTS_PER_DAY * settings.days, settings.nodes)
    return [
        [-int(up), *sorted(draws.integers(10, max(11, minutes - 10), times).tolist())]
        for up, times in zip(before.tolist(), often.tolist(), strict=True)
    ]


def _drawn(draws: np.random.Generator, count: int, values: list[str]) -> Column:
    """Values of uneven shares."""
    shares = draws.dirichlet(np.full(len(values), 4.0))
    return draws.choice(np.array(values, dtype=object), count, p=shares)


def _follows(draws: np.random.Generator, leader: Column, values: list[str], share: float) -> Column:
    """A fact that goes along with another: each of its values has a usual one here, kept to by that share of the nodes."""
    heads = np.unique(leader.astype(str))
    usual = {head: values[i % len(values)] for i, head in enumerate(draws.permutation(heads))}
    own = draws.choice(np.array(values, dtype=object), len(leader))
    along = np.array([usual[str(each)] for each in leader], dtype=object)
    return np.where(draws.random(len(leader)) < share, along, own)


def _facts(draws: np.random.Generator, count: int) -> dict[str, Column]:
    facts: dict[str, Column] = {}
    zones = ["zone-a", "zone-b", "zone-c"]
    # At least a tenth in each zone.
    shares = 0.1 + 0.7 * draws.dirichlet(np.full(3, 4.0))
    facts[ZONE] = draws.choice(np.array(zones, dtype=object), count, p=shares)
    spared = draws.choice(zones)
    starts = np.where(facts[ZONE] == spared, draws.random(count) < _STRAY, draws.random(count) >= _STRAY)
    stopped = draws.choice(np.array(["failed", "inactive"], dtype=object), count, p=[0.8, 0.2])
    facts[AGENT] = np.where(starts, "active", stopped).astype(object)
    facts["unit:ecs.service:enabled"] = np.full(count, "enabled", dtype=object)
    facts["image"] = _follows(draws, facts[ZONE], [f"base-2025.{i:02d}" for i in range(1, 7)], 0.4)
    facts[KERNEL] = _follows(draws, facts["image"], [f"5.4.0-{n}-aws" for n in (1045, 1071, 1088, 1103)], 0.88)
    facts[DRIVER] = _follows(draws, facts[KERNEL], ["2.7.4g", "2.10.0g", "2.11.0g", "2.12.3g"], 0.5)
    facts["pool"] = _follows(draws, facts[ZONE], [f"pool-{i}" for i in range(8)], 0.7)
    facts["container-runtime"] = _follows(draws, facts["image"], ["1.6.8", "1.6.20", "1.7.2"], 0.7)
    facts["unit:node-exporter.service"] = _follows(draws, facts[ZONE], ["active", "inactive"], 0.8)
    facts["instance-type"] = _drawn(
        draws, count, ["p4d.24xlarge", "p4de.24xlarge", "p5.48xlarge", "g5.48xlarge", "g6.48xlarge"]
    )
    facts["label:team"] = _drawn(draws, count, [f"team-{i}" for i in range(12)])
    facts["purchase-batch"] = _drawn(draws, count, [f"batch-{i}" for i in range(10)])
    facts["rack"] = draws.choice(np.array([f"rack-{i}" for i in range(max(2, count // 16))], dtype=object), count)
    for name, values in {"bios": 4, "microcode": 4, "driver:nvidia": 3, "nic-firmware": 3}.items():
        facts[name] = _drawn(draws, count, [f"{draws.integers(1, 9)}.{i}" for i in range(values)])
    for i in range(10):
        facts[f"label:{i}"] = _drawn(draws, count, [f"value-{j}" for j in range(draws.integers(2, 7))])
    for name in "chronyd nvidia-persistenced snapd unattended-upgrades amazon-ssm-agent cups rpcbind multipathd".split():
        facts[f"unit:{name}.service"] = np.where(draws.random(count) < draws.uniform(0.1, 0.9), "active", "inactive").astype(
            object
        )
    for name in "transparent-hugepages numa-balancing swap hyperthreading".split():
        facts[name] = (draws.random(count) < draws.uniform(0.1, 0.9)).astype(object)
    facts["memory-gib"] = draws.choice([768.0, 1152.0, 2048.0], count).astype(object)
    facts["disk-used-percent"] = np.round(draws.beta(2, 3, count) * 100, 1).astype(object)
    facts["age-days"] = np.round(draws.uniform(10, 900, count)).astype(object)
    facts["hostname"] = np.array([f"ip-10-{i // 65536}-{i // 256 % 256}-{i % 256}" for i in range(count)], dtype=object)
    return facts
