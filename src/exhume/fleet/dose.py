"""Uptime as a dose: who was up too briefly to be evidence of health, how fast zombies grow, and whether a reboot resets it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.fleet.cohorts_facts import Bools, splits
from exhume.fleet.model import Boot, Fleet, Node
from exhume.fleet.statistics import Floats, Slope, Table, log_tail, rank_correlation, slope
from exhume.host.quantities import DAY_S

# Places at which the time up is split to find from when on nodes are sick. Each counts as a try.
_SPLITS = 63
# Zombies a day below which nothing is called a leak.
_LEAK = 100.0
# A node that is not sick but leaks at this share of what the sick ones do will be: it is one of them.
_SHARE = 0.5
_FEWEST = 5
# The rank correlation from which zombies are said to grow with uptime.
_GROWS = 0.5
# Zombies that a reboot may leave, of those before it, to count as gone.
_LEFT = 0.1
_MOST_SHOWN = 2000


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of each node: 1 sick, 0 healthy, -1 not known or too young to tell."""

    states: NDArray[np.int8]
    leaking: Bools
    """Not sick yet; counted as sick because it leaks as fast as they do."""
    young: Bools
    """Not sick, and up for less time than it takes."""
    sick_from_s: float | None
    """The time up from which nodes are sick, if it matters."""
    log_chance: float
    """That it matters by nothing but luck, corrected for the places tried; a logarithm."""


@dataclass(frozen=True, slots=True)
class Dose:
    slope: Slope | None
    """Zombies a day of uptime, over nodes."""
    nodes: int
    reboots: int
    """Seen of nodes that had zombies."""
    reset: int
    """Of them, those after which the count was a tenth or less."""
    sick_from_s: float | None
    points: tuple[tuple[float, float], ...]
    """Days up and zombies, of the nodes that it was judged by; some of them where there are many."""


def outcomes(nodes: Sequence[Node], alpha: float) -> Outcomes:
    states = np.array([-1 if node.sick is None else int(node.sick) for node in nodes], dtype=np.int8)
    leaking = _leaking(nodes, states)
    states[leaking] = 1
    exposure = np.array([_number(_exposure(node)) for node in nodes], dtype=np.float64)
    judged = (states >= 0) & ~np.isnan(exposure)
    at, log_chance = _onset(exposure[judged], states[judged] == 1)
    if at is None or log_chance >= math.log(alpha):
        return Outcomes(states, leaking, np.zeros(len(nodes), dtype=np.bool_), None, 0.0)
    young = judged & (states == 0) & (exposure < at)
    states[young] = -1
    return Outcomes(states, leaking, young, at, log_chance)


def _exposure(node: Node) -> float | None:
    return node.uptime_s if node.exposed_s is None else node.exposed_s


def _number(value: float | None) -> float:
    return math.nan if value is None or not math.isfinite(value) or value < 0 else float(value)


def _leaking(nodes: Sequence[Node], states: NDArray[np.int8]) -> Bools:
    rates = np.array([_number(node.leak_per_day) for node in nodes], dtype=np.float64)
    of_sick = rates[(states == 1) & (rates >= _LEAK)]
    if len(of_sick) < _FEWEST:
        return np.zeros(len(nodes), dtype=np.bool_)
    return np.asarray((states == 0) & (rates >= _SHARE * float(np.median(of_sick))), dtype=np.bool_)


def _onset(exposure: Floats, sick: Bools) -> tuple[float | None, float]:
    """The split of the time up that separates best, and how likely by chance, all splits counted."""
    if not len(exposure) or sick.all() or not sick.any():
        return None, 0.0
    places = splits(exposure, _SPLITS)
    found = []
    for place in places:
        above = exposure >= place
        table = Table(int((above & sick).sum()), int(above.sum()), int(sick.sum()), len(sick))
        found.append((log_tail([table]), place))
    if not found:
        return None, 0.0
    best, at = min(found)
    return at, min(0.0, best + math.log(len(found)))


def dose(fleet: Fleet, members: Bools, sick_from_s: float | None) -> Dose | None:
    """Judged by the nodes of the first cohort, or by all where there is none."""
    chosen = [node for node, member in zip(fleet.nodes, members.tolist(), strict=True) if member]
    uptime = np.array([_number(node.uptime_s) / DAY_S for node in chosen], dtype=np.float64)
    zombies = np.array([_number(node.zombies) for node in chosen], dtype=np.float64)
    there = ~(np.isnan(uptime) | np.isnan(zombies))
    uptime, zombies = uptime[there], zombies[there]
    line = None
    if len(uptime) >= _FEWEST and rank_correlation(uptime, zombies) >= _GROWS:
        line = slope(uptime, zombies)
        if line is not None and line.low <= 0:
            line = None
    reboots, reset = _reboots(fleet.boots, {node.name for node in chosen})
    if line is None and sick_from_s is None:
        return None
    step = max(1, len(uptime) // _MOST_SHOWN)
    order = np.argsort(uptime, kind="stable")[::step]
    points = tuple(zip(uptime[order].tolist(), zombies[order].tolist(), strict=True))
    return Dose(line, len(uptime), reboots, reset, sick_from_s, points)


def _reboots(boots: Sequence[Boot], names: set[str]) -> tuple[int, int]:
    seen = reset = 0
    before: dict[str, float] = {}
    for boot in boots:
        if boot.node not in names:
            continue
        had = before.get(boot.node, 0.0)
        if had >= _LEAK:
            seen += 1
            reset += boot.zombies_from <= _LEFT * had
        before[boot.node] = boot.zombies
    return seen, reset
