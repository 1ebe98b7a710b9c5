"""What a soak can promise: from the zombies that were seen in it to the slowest leak that it excludes, and to a node's life.

Leaks are taken for a Poisson process of constant rate. One that is more regular, as a crash loop is, is excluded all the surer.
One that comes in bursts, as by a timer of the night, is not excluded by any soak that misses the burst.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

ALPHA = 0.05


@dataclass(frozen=True, slots=True)
class Bound:
    """So many came in so long; what rates that excludes, on either side, each with an error of `alpha`."""

    seen: int
    seconds: float
    alpha: float = ALPHA

    @property
    def upper_per_s(self) -> float:
        """Faster leaks are excluded: they would have shown more than were seen, but for one case in 1 / alpha."""
        return most(self.seen, self.alpha) / self.seconds if self.seconds > 0 else math.inf

    @property
    def lower_per_s(self) -> float:
        """Slower ones are excluded: they would have shown fewer."""
        return fewest(self.seen, self.alpha) / self.seconds if self.seconds > 0 else 0.0

    def most_in(self, seconds: float) -> float:
        """That so long a life may bring, as far as this soak can tell."""
        return self.upper_per_s * seconds

    def fewest_in(self, seconds: float) -> float:
        return self.lower_per_s * seconds


def needed_s(life_s: float, headroom: float, alpha: float = ALPHA) -> float:
    """How long nothing may come, for a promise that no more than `headroom` come in a life."""
    return -math.log(alpha) * life_s / headroom if headroom > 0 else math.inf


def most(seen: int, alpha: float) -> float:
    """The mean from which on so few are less probable than alpha: half the (1 - alpha) quantile of chi-square with 2 seen + 2
    degrees of freedom (Garwood 1936); of none seen -ln(alpha)."""
    if seen <= 0:
        return -math.log(alpha)
    low, high = float(seen), 2.0 * seen + 50.0 - 10 * math.log(alpha)
    return _between(low, high, lambda mean: _at_most(seen, mean) > alpha)


def fewest(seen: int, alpha: float) -> float:
    """The mean up to which so many are less probable than alpha."""
    if seen <= 0:
        return 0.0
    return _between(0.0, float(seen), lambda mean: _at_least(seen, mean) < alpha)


def _between(low: float, high: float, still: Callable[[float], bool]) -> float:
    for _ in range(80):
        middle = (low + high) / 2
        if still(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _exactly(seen: int, mean: float) -> float:
    return math.exp(seen * math.log(mean) - mean - math.lgamma(seen + 1)) if mean > 0 else float(seen == 0)


def _at_most(seen: int, mean: float) -> float:
    """P(X <= seen) where the mean is no less: terms fall from `seen` downwards, so that few of many matter."""
    total = term = _exactly(seen, mean)
    for count in range(seen, 0, -1):
        term *= count / mean
        total += term
        if term < total * 1e-15:
            break
    return total


def _at_least(seen: int, mean: float) -> float:
    """P(X >= seen) where the mean is no more: terms fall from `seen` upwards."""
    total = term = _exactly(seen, mean)
    count = seen
    while term > total * 1e-15:
        count += 1
        term *= mean / count
        total += term
    return total
