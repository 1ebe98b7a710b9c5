"""The tests behind a cohort: exact tails of two by two tables, alone and in strata, how many tries count, a robust slope.

All is pure. Probabilities are natural logarithms where they may be smaller than a float can hold.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 80
# Pairs of points beyond which a slope is taken from evenly chosen points: 1,000 points have half a million pairs.
_MOST_POINTS = 1000


@dataclass(frozen=True, slots=True)
class Table:
    """Of `total` nodes `sick` are sick and `having` have the fact; `both` are sick and have it."""

    both: int
    having: int
    sick: int
    total: int

    @property
    def lowest(self) -> int:
        return max(0, self.having + self.sick - self.total)

    @property
    def highest(self) -> int:
        return min(self.having, self.sick)


def log_factorials(most: int) -> Floats:
    return np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, most + 1, dtype=np.float64)))))


def log_chances(table: Table) -> Floats:
    """The chance of each number of sick nodes among those that have the fact, from the lowest possible to the highest, if it
    had nothing to do with being sick (the hypergeometric distribution)."""
    logs = log_factorials(table.total)
    k = np.arange(table.lowest, table.highest + 1)
    having, sick, total = table.having, table.sick, table.total
    ways = logs[having] - logs[k] - logs[having - k] + logs[total - having] - logs[sick - k] - logs[total - having - sick + k]
    return np.asarray(ways - (logs[total] - logs[sick] - logs[total - sick]), dtype=np.float64)


def log_sum(logs: Floats) -> float:
    if not len(logs):
        return -math.inf
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).sum()))


def log_tail(tables: Iterable[Table]) -> float:
    """The chance of at least so many sick nodes with the fact, its logarithm, given the margins of every stratum.

    One table is Fisher's exact test (1935); several are its stratified form, what Cochran (1954), Mantel and Haenszel (1959)
    approximate: each distribution is tilted until the observed sum is its mean, so that the far tail is not lost when they are
    folded together.
    """
    useful = [table for table in tables if table.highest > table.lowest]
    spare = sum(table.both - table.lowest for table in useful)
    if not useful or spare == 0:
        return 0.0
    chances = [log_chances(table) for table in useful]
    if len(chances) == 1:
        return min(0.0, log_sum(chances[0][spare:]))
    if spare == sum(len(each) - 1 for each in chances):
        return min(0.0, float(sum(each[-1] for each in chances)))
    tilt = _tilt(chances, spare)
    folded, norm = np.ones(1), 0.0
    for each in chances:
        tilted = each + tilt * np.arange(len(each))
        size = log_sum(tilted)
        folded = np.convolve(folded, np.exp(tilted - size))
        norm += size
    with np.errstate(divide="ignore"):
        logs = np.log(folded[spare:]) - tilt * np.arange(spare, len(folded))
    return min(0.0, log_sum(logs) + norm)


def _tilt(chances: Sequence[Floats], observed: int) -> float:
    low, high = -60.0, 60.0
    places = [np.arange(len(each)) for each in chances]
    for _ in range(_STEPS):
        middle = (low + high) / 2
        mean = 0.0
        for each, place in zip(chances, places, strict=True):
            tilted = each + middle * place
            weights = np.exp(tilted - tilted.max())
            mean += float((weights * place).sum() / weights.sum())
        if mean < observed:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def surplus(both: Floats, having: Floats, sick: Floats, total: Floats) -> Floats:
    """How far above the expected number the sick nodes with a fact are, in standard deviations, for many facts at once: facts
    along the first axis, strata along the second. Quick, to choose what is worth the exact test."""
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.where(total > 0, having * sick / total, 0.0)
        spread = np.where(total > 1, having * (total - having) * sick * (total - sick) / (total**2 * (total - 1)), 0.0)
    variance = spread.sum(axis=1)
    above = (both - expected).sum(axis=1)
    return np.asarray(np.where(variance > 0, above / np.sqrt(np.where(variance > 0, variance, 1.0)), 0.0), dtype=np.float64)


def tries(log_smallest: Floats, alpha: float) -> int:
    """How many of the facts tried count as tries: those that could have reached the level at all, whatever the outcome
    (Tarone, 1990). A label that one node has can prove nothing, so it takes nothing from the others."""
    ranked = np.sort(log_smallest)
    for count in range(1, len(ranked) + 1):
        able = int(np.searchsorted(ranked, math.log(alpha / count), side="right"))
        if able <= count:
            return count
    return max(1, len(ranked))


def smallest(having: Floats, sick: Floats, total: Floats) -> Floats:
    """The smallest chance that the exact test could give facts of so many nodes, its logarithm."""
    have, ill, every = having.astype(np.int64), sick.astype(np.int64), total.astype(np.int64)
    logs = log_factorials(int(every.max(initial=0)))
    top = np.minimum(have, ill)
    # Everything that can be sick is: one term of the distribution is its own tail.
    ways = logs[have] - logs[top] - logs[have - top] + logs[every - have] - logs[ill - top] - logs[every - have - ill + top]
    return np.asarray(np.minimum(ways - (logs[every] - logs[ill] - logs[every - ill]), 0.0), dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Slope:
    value: float
    low: float
    high: float
    at_zero: float
    """Where the line begins."""
    points: int


def slope(x: Floats, y: Floats, confidence: float = 0.95) -> Slope | None:
    """The median of the slopes between all pairs of points (Theil, 1950; Sen, 1968), with Sen's interval from the
    distribution of Kendall's sum: one node in four may be odd without moving it far."""
    if len(x) > _MOST_POINTS:
        order = np.lexsort((y, x))
        chosen = order[np.linspace(0, len(x) - 1, _MOST_POINTS).astype(np.int64)]
        x, y = x[chosen], y[chosen]
    first, second = np.triu_indices(len(x), 1)
    apart = x[second] - x[first]
    there = apart != 0
    if there.sum() < 3:
        return None
    slopes = np.sort((y[second] - y[first])[there] / apart[there])
    n = len(x)
    _, same = np.unique(x, return_counts=True)
    ties = same.astype(np.float64)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    reach = NormalDist().inv_cdf((1 + confidence) / 2) * math.sqrt(max(variance, 0.0))
    below = max(0, math.floor((len(slopes) - reach) / 2) - 1)
    above = min(len(slopes) - 1, math.ceil((len(slopes) + reach) / 2))
    value = float(np.median(slopes))
    return Slope(value, float(slopes[below]), float(slopes[above]), float(np.median(y - value * x)), n)


def rank_correlation(x: Floats, y: Floats) -> float:
    """Spearman's: -1 to 1, 0 where one of them does not vary."""
    if len(x) < 3:
        return 0.0
    first, second = _ranks(x), _ranks(y)
    first, second = first - first.mean(), second - second.mean()
    size = math.sqrt(float((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / size if size > 0 else 0.0


def _ranks(values: Floats) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2)[inverse], dtype=np.float64)
