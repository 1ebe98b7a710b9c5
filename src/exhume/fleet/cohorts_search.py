"""The search for what separates sick from healthy: every candidate, and pairs of them, given the causes that are known already.

A claim needs an exact test whose chance, times the number of tries, is below the level. Of those, the likeliest is chosen;
another that acts, and beside which the first explains nothing, is chosen in its place.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from exhume.fleet.cohorts_facts import Bools, Candidate
from exhume.fleet.statistics import Floats, Table, log_tail, smallest, surplus, tries

Ints = NDArray[np.int64]

# Candidates that get the exact test, by the quick one.
_EXACT = 60
# Those of them that may stand in for the first.
_RIVALS = 25
# Candidates that are paired with each other; the tries counted are all pairs that there are.
_PAIRED = 120
_PAIRS_EXACT = 30
# A pair must be this many times less likely by chance than one of it alone.
_BETTER = math.log(10)
# From this chance on, a fact explains nothing beside another.
NOTHING = math.log(0.01)
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Scored:
    candidate: Candidate
    log_chance: float
    tries: int

    @property
    def log_corrected(self) -> float:
        return min(0.0, self.log_chance + math.log(self.tries))


@dataclass(frozen=True, slots=True)
class Judged:
    """The nodes that count, whether they are sick, and which stratum of the causes known already they are in (-1: none)."""

    sick: Bools
    strata: Ints

    @property
    def count(self) -> int:
        return int(self.strata.max(initial=-1)) + 1

    def within(self, candidates: Sequence[Candidate]) -> "Judged":
        """Split further by causes; where one of them is not known, nothing can be told, and the node is left out."""
        strata = self.strata.copy()
        for each in candidates:
            strata = np.where((strata >= 0) & each.known, strata * 2 + each.having, -1)
        _, numbered = np.unique(np.concatenate(([-1], strata)), return_inverse=True)
        return Judged(self.sick, numbered[1:].astype(np.int64) - 1)


def tables(judged: Judged, candidate: Candidate) -> list[Table]:
    found = []
    for stratum in range(judged.count):
        here = candidate.known & (judged.strata == stratum)
        having = here & candidate.having
        sick = here & judged.sick
        found.append(Table(int((having & judged.sick).sum()), int(having.sum()), int(sick.sum()), int(here.sum())))
    return found


def chance(judged: Judged, candidate: Candidate, given: Sequence[Candidate] = ()) -> float:
    """Of so many sick nodes by nothing but luck, its logarithm, among nodes that are alike in what is given."""
    return log_tail(tables(judged.within(given) if given else judged, candidate))


@dataclass(frozen=True, slots=True)
class _Counts:
    both: Floats
    having: Floats
    sick: Floats
    total: Floats


def _count(judged: Judged, candidates: Sequence[Candidate]) -> _Counts:
    """Tables of all candidates at once: rows of candidates, columns of strata."""
    in_strata = np.zeros((len(judged.strata), judged.count), dtype=np.float32)
    there = judged.strata >= 0
    in_strata[there, judged.strata[there]] = 1
    sick_in = in_strata * judged.sick[:, None]
    parts: list[tuple[Floats, ...]] = []
    for begin in range(0, len(candidates), _BLOCK):
        block = candidates[begin : begin + _BLOCK]
        having = np.array([each.having for each in block], dtype=np.float32)
        known = np.array([each.known for each in block], dtype=np.float32)
        counted = (having @ sick_in, having @ in_strata, known @ sick_in, known @ in_strata)
        parts.append(tuple(each.astype(np.float64) for each in counted))
    return _Counts(*(np.concatenate([part[i] for part in parts]) for i in range(4)))


@dataclass(frozen=True, slots=True)
class Scan:
    """A quick look at all candidates: how far each is above what luck would give, and how many of them count as tries."""

    candidates: Sequence[Candidate]
    above: Floats
    tries: int

    def best(self, most: int) -> list[Candidate]:
        order = np.argsort(-self.above, kind="stable")[:most].tolist()
        return [self.candidates[i] for i in order if self.above[i] > 0]


def scan(judged: Judged, candidates: Sequence[Candidate], alpha: float) -> Scan:
    if not candidates or judged.count == 0:
        return Scan((), np.zeros(0), 1)
    counts = _count(judged, candidates)
    tried = tries(smallest(counts.having, counts.sick, counts.total).sum(axis=1), alpha)
    return Scan(candidates, surplus(counts.both, counts.having, counts.sick, counts.total), tried)


def singles(judged: Judged, scanned: Scan, alpha: float) -> list[Scored]:
    """Those whose chance is below the level, the least likely first."""
    found = [Scored(each, chance(judged, each), scanned.tries) for each in scanned.best(_EXACT)]
    return _ranked([each for each in found if each.log_corrected < math.log(alpha)])


def _ranked(found: list[Scored]) -> list[Scored]:
    return sorted(found, key=lambda each: (each.log_chance, each.candidate.rank, [str(c) for c in each.candidate.conditions]))


def choose(judged: Judged, ranked: Sequence[Scored]) -> Scored:
    """The least likely by chance, unless another says it as well: one of a rank that is rather believed and beside which it
    explains nothing, or one of its rank that, the other way round, explains something beside it."""
    best = ranked[0]
    for rival in ranked[1:_RIVALS]:
        one, other = best.candidate, rival.candidate
        if other.rank > one.rank or chance(judged, one, [other]) < NOTHING:
            continue
        if other.rank < one.rank or chance(judged, other, [one]) < NOTHING:
            best = rival
    return best


def pairs(judged: Judged, scanned: Scan, alone: Scored | None, alpha: float) -> list[Scored]:
    """Two conditions that separate together: far better than the best one alone, and each adds to the other.

    All pairs count as tries, unless one of the two is claimed already: then the other is searched among the nodes that have
    it, and what counts is what was tried there. That is a second test behind a gate that the first has passed, so that the
    chance of a false claim stays what it is for each of them.
    """
    count = len(scanned.candidates)
    tried = max(1, count * (count - 1) // 2)
    to_beat = min(math.log(alpha), alone.log_corrected - _BETTER if alone else 0.0)
    adding = math.log(alpha / max(1, count))
    inside = within_tries(judged, scanned.candidates, alone.candidate, alpha) if alone else 1
    found = []
    for first, second in _promising(judged, scanned.best(_PAIRED)):
        both = first.together(second)
        scored = Scored(both, chance(judged, both), tried)
        adds = {id(more): chance(_only(judged, here), more) for here, more in ((first, second), (second, first))}
        if scored.log_corrected < to_beat and max(adds.values()) < adding:
            found.append(scored)
        elif alone is not None and (alone.candidate is first or alone.candidate is second):
            other = second if alone.candidate is first else first
            better = scored.log_chance < alone.log_chance - _BETTER
            if better and adds[id(other)] < math.log(alpha / inside) and max(adds.values()) < math.log(alpha):
                found.append(Scored(both, scored.log_chance, max(alone.tries, inside)))
    return _ranked(found)


def within_tries(judged: Judged, candidates: Sequence[Candidate], first: Candidate, alpha: float) -> int:
    """How many facts count as tries among the nodes that have the first."""
    others = [each for each in candidates if not each.facts & first.facts]
    return scan(_only(judged, first), others, alpha).tries


def could_add(judged: Judged, candidates: Sequence[Candidate], first: Candidate, alpha: float) -> bool:
    """Whether a second fact that parts its sick nodes from its healthy ones to a node could be told from luck at all."""
    (here,) = tables(Judged(judged.sick, np.where(judged.strata >= 0, 0, -1).astype(np.int64)), first)
    healthy = here.having - here.both
    if not healthy or not here.both:
        return True
    best = log_tail([Table(here.both, here.both, here.both, here.having)])
    return best < math.log(alpha / within_tries(judged, candidates, first, alpha))


def _only(judged: Judged, candidate: Candidate) -> Judged:
    return Judged(judged.sick, np.where(candidate.known & candidate.having, judged.strata, -1))


def _promising(judged: Judged, chosen: Sequence[Candidate]) -> list[tuple[Candidate, Candidate]]:
    if len(chosen) < 2:
        return []
    having = np.array([each.having for each in chosen], dtype=np.float32)
    known = np.array([each.known for each in chosen], dtype=np.float32)
    columns: list[tuple[Floats, Floats, Floats, Floats]] = []
    for stratum in range(judged.count):
        here = (judged.strata == stratum).astype(np.float32)
        sick = here * judged.sick
        columns.append(
            (
                ((having * sick) @ having.T).astype(np.float64).ravel(),
                ((having * here) @ having.T).astype(np.float64).ravel(),
                ((known * sick) @ known.T).astype(np.float64).ravel(),
                ((known * here) @ known.T).astype(np.float64).ravel(),
            )
        )
    counted = [np.stack([column[i] for column in columns], axis=1) for i in range(4)]
    above = surplus(*counted)
    size = len(chosen)
    found = []
    for place in np.argsort(-above, kind="stable"):
        first, second = divmod(int(place), size)
        if first < second and above[place] > 0 and not chosen[first].facts & chosen[second].facts:
            found.append((chosen[first], chosen[second]))
            if len(found) == _PAIRS_EXACT:
                break
    return found
