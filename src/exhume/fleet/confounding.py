"""Facts that separate sick from healthy only because they go along with the cause, shown as such.

Among nodes that are alike in the cause, the sick ones must be spread over such a fact as luck would spread them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from exhume.fleet.cohorts_facts import Candidate, Condition
from exhume.fleet.cohorts_search import Judged, Scored, chance

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

    @property
    def explains_nothing(self) -> bool:
        return self.log_given >= _NOTHING


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
        found[condition.fact] = Confounded(condition, scored.log_corrected, given, by)
        if len(found) == _MOST:
            break
    return tuple(found.values())
