"""The tests behind a proof: exact bounds of rates and shares, ranks of windows, and one that may be looked at all the time.

All are one-sided and pure. Counts are taken as Poisson; where they come in heaps, as containers that are removed together do,
`dispersion` says how many of them stand for one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 200
_TINY = 1e-300
_CLOSE = 1e-12
# Windows of both sides together up to which the distribution of ranks is counted out; beyond, the normal one is near enough.
_EXACT = 40


def gamma_below(shape: float, x: float) -> float:
    """P(X <= x) of a gamma variable with that shape and scale 1: the regularised incomplete gamma function (DLMF 8.11.4 and
    8.9.2). It is also P(N >= shape) of a Poisson count with mean x."""
    if x <= 0:
        return 0.0
    log = shape * math.log(x) - x - math.lgamma(shape)
    if x < shape + 1:
        term = total = 1.0 / shape
        denominator = shape
        while term > total * _CLOSE:
            denominator += 1
            term *= x / denominator
            total += term
        return min(1.0, total * math.exp(log))
    b = x + 1.0 - shape
    c, d = 1.0 / _TINY, 1.0 / b
    fraction = d
    for i in range(1, 100_000):
        a = -i * (i - shape)
        b += 2.0
        d = 1.0 / (a * d + b or _TINY)
        c = b + a / c or _TINY
        fraction *= d * c
        if abs(d * c - 1.0) < _CLOSE:
            break
    return max(0.0, 1.0 - fraction * math.exp(log))


def beta_below(a: float, b: float, x: float) -> float:
    """P(X <= x) of a beta variable: the regularised incomplete beta function (DLMF 8.17.22). It is also P(K >= a) of a binomial
    count of a + b - 1 draws with the chance x."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1.0 - beta_below(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1.0 / (1.0 - (a + b) * x / (a + 1) or _TINY)
    fraction = d
    for m in range(1, 100_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / (1.0 + numerator * d or _TINY)
            c = 1.0 + numerator / c or _TINY
            fraction *= d * c
        if abs(d * c - 1.0) < _CLOSE:
            break
    return min(1.0, front * fraction)


def poisson_upper(count: float, confidence: float) -> float:
    """The largest mean that so few are still likely of; of none it is 3.0 for 95 %."""
    return _gamma_quantile(count + 1, confidence)


def poisson_lower(count: float, confidence: float) -> float:
    """The smallest mean that so many are still likely of."""
    return _gamma_quantile(count, 1 - confidence) if count > 0 else 0.0


def poisson_most(mean: float, confidence: float) -> int:
    """How many there may be by chance: more come with less than the remaining probability."""
    low, high = -1, 1
    while gamma_below(high + 1, mean) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if gamma_below(middle + 1, mean) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _gamma_quantile(shape: float, probability: float) -> float:
    low, high = 0.0, shape + 10 * math.sqrt(shape) + 20
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if gamma_below(shape, middle) < probability:
            low = middle
        else:
            high = middle
        if high - low <= _CLOSE * high:
            break
    return high


def share_bounds(count: int, of: int, confidence: float) -> tuple[float, float]:
    """Between what a share surely lies, each bound by itself with that confidence (Clopper and Pearson, 1934)."""
    if of <= 0:
        return 0.0, 1.0
    low = _beta_quantile(count, of - count + 1, 1 - confidence) if count > 0 else 0.0
    high = _beta_quantile(count + 1, of - count, confidence) if count < of else 1.0
    return low, high


def _beta_quantile(a: float, b: float, probability: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if beta_below(a, b, middle) < probability:
            low = middle
        else:
            high = middle
        if high - low <= _CLOSE:
            break
    return high


def rarer(before: int, before_s: float, after: int, after_s: float) -> float:
    """The chance of so few after, or fewer, if the rate were what it was: given how many there are in all, where each of them
    falls is a binomial draw (Przyborowski and Wilenski, 1940)."""
    total = before + after
    if not total or before_s <= 0 or after_s <= 0:
        return 1.0
    chance = after_s / (before_s + after_s)
    return 1.0 - beta_below(after + 1, total - after, chance) if after < total else 1.0


def dispersion(counts: Sequence[int] | NDArray[Any]) -> float:
    """Variance over mean of counts of equal windows, 1 unless it is more than Poisson's for sure (95 %)."""
    seen = np.asarray(counts, dtype=np.float64)
    if len(seen) < 2 or seen.mean() <= 0:
        return 1.0
    index = float(seen.var(ddof=1) / seen.mean())
    degrees = len(seen) - 1
    return index if index * degrees > 2 * _gamma_quantile(degrees / 2, 0.95) else 1.0


def abrupt(counts: Sequence[int] | NDArray[Any]) -> float:
    """The same by what neighbouring windows differ by (von Neumann, 1941): a rate that rises, or begins, comes in no heaps."""
    seen = np.asarray(counts, dtype=np.float64)
    if len(seen) < 2 or seen.mean() <= 0:
        return 1.0
    return max(1.0, min(dispersion(counts), float((np.diff(seen) ** 2).mean() / 2 / seen.mean())))


def ranked_lower(after: Sequence[float] | Floats, before: Sequence[float] | Floats) -> float:
    """The chance that the windows after rank so low among all if nothing changed (Mann and Whitney, 1947; ties by mid-ranks):
    counted out for few windows, by the normal distribution for many."""
    some, others = np.asarray(after, dtype=np.float64), np.asarray(before, dtype=np.float64)
    if not len(some) or not len(others):
        return 1.0
    every = np.concatenate((some, others))
    _, inverse, counts = np.unique(every, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    doubled = (2 * ends - counts + 1)[inverse]  # twice the mid-rank, a whole number
    observed = int(doubled[: len(some)].sum())
    if len(every) <= _EXACT:
        return _share_of_sums(doubled, len(some), observed)
    n, m = len(some), len(every)
    mean = n * (m + 1)
    ties = float((counts.astype(np.float64) ** 3 - counts).sum())
    variance = n * (m - n) / 3 * ((m + 1) - ties / (m * (m - 1)))
    return NormalDist().cdf((observed - mean + 1) / math.sqrt(variance)) if variance > 0 else 1.0


def _share_of_sums(ranks: NDArray[np.int64], chosen: int, observed: int) -> float:
    """Of all choices of so many, those whose sum is not above what was observed."""
    ways = np.zeros((chosen + 1, int(ranks.sum()) + 1))
    ways[0, 0] = 1.0
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank]
    return float(ways[chosen, : observed + 1].sum() / ways[chosen].sum())


@dataclass(slots=True)
class Sequential:
    """Whether a rate is above what is harmless, by a test that may be looked at after every second and stopped at will.

    A second with at least one event multiplies the likelihood of a rate r times as high by r, and each second divides it by
    exp((r - 1) * harmless). While the true rate is harmless, the mean of these over several r is a supermartingale that begins
    at 1, so that it ever reaches 1/alpha has a chance of at most alpha (Ville, 1939; as in Wald's test, 1945). A heap that
    comes within one second counts once.
    """

    harmless_per_s: float
    times: tuple[float, ...] = (2.0, 4.0, 16.0, 64.0)
    seconds: int = 0
    hit: int = 0

    def look(self, hits: Iterable[bool]) -> None:
        """The next seconds, each with whether something happened in it."""
        for happened in hits:
            self.seconds += 1
            self.hit += happened

    @property
    def odds(self) -> float:
        """Against a harmless rate; 1/alpha is enough."""
        logs = [self.hit * math.log(r) - (r - 1) * self.harmless_per_s * self.seconds for r in self.times]
        most = max(logs)
        log = most + math.log(sum(math.exp(each - most) for each in logs) / len(logs))
        return math.exp(min(log, 700.0))
