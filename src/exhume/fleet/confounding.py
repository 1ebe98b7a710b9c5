"""Facts that separate sick from healthy only because they go along with the cause, shown as such.

Among nodes that are alike in the cause, the sick ones must be spread over such a fact as luck would spread them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exhume.fleet.cohorts_facts import Candidate, Condition
from exhume.fleet.cohorts_search import Judged, Scored, chance, tables
from exhume.fleet.statistics import smallest

# Facts that are told of, the most misleading first.
_MOST = 12
_NOTHING = math.log(0.05)


@dataclass(frozen=True, slots=True)
class Confounded:
    """A fact that looks like a cause, and what is left of it beside the causes."""

    condition: Condition
    log_alone: float
    """Its chance by luck when it is looked at alone, corrected; a logarithm."""
    log_given: float
    """The same among nodes that are alike in the causes."""
    by: tuple[Condition, ...]
    tellable: bool = True
    """Whether it could have shown beside the causes at all: not if nearly every node has both or neither."""

    @property
    def explains_nothing(self) -> bool:
        return self.tellable and self.log_given >= _NOTHING


def confounded(judged: Judged, alone: Sequence[Scored], causes: Sequence[Candidate]) -> tuple[Confounded, ...]:
    """Of each fact the value that misleads most, given all causes that are claimed."""
    claimed = {fact for cause in causes for fact in cause.facts}
    by = tuple(condition for cause in causes for condition in cause.conditions)
    found: dict[str, Confounded] = {}
    for scored in alone:
        condition = scored.candidate.conditions[0]
        if condition.fact in claimed or condition.fact in found:
            continue
        given = chance(judged, scored.candidate, causes)
        tellable = _least(judged, scored.candidate, causes) < _NOTHING
        found[condition.fact] = Confounded(condition, scored.log_corrected, given, by, tellable)
        if len(found) == _MOST:
            break
    return tuple(found.values())


def _least(judged: Judged, candidate: Candidate, causes: Sequence[Candidate]) -> float:
    """The smallest chance that its test beside the causes could come to, its logarithm."""
    strata = tables(judged.within(causes), candidate)
    columns = [np.array([getattr(each, name) for each in strata], dtype=np.float64) for name in ("having", "sick", "total")]
    return float(smallest(*columns).sum()) if strata else 0.0
