"""What do the sick nodes share that the healthy ones do not? Pure: a fleet in, cohorts out, the best first.

The first cause is what separates best (cohorts_search); then nodes are compared only with nodes that are alike in it, and the
search is repeated, until nothing is left that luck does not explain. Nodes that were up too briefly to be sick yet are no
evidence of health (dose), and facts that only go along with a cause are named as that (confounding).
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from exhume.fleet import words
from exhume.fleet.cohorts_facts import Bools, Candidate, Condition, candidates
from exhume.fleet.cohorts_search import NOTHING, Judged, Scan, Scored, chance, choose, could_add, pairs, scan, singles
from exhume.fleet.confounding import Confounded, confounded
from exhume.fleet.dose import Dose, Outcomes, dose, outcomes
from exhume.fleet.model import Fleet

ALPHA = 0.01
"""The chance of a claim where there is nothing to claim."""
_MOST_CAUSES = 5
_MOST_CONFIDENCE = 0.999999
UPTIME = "uptime_s"


@dataclass(frozen=True, slots=True)
class Cohort:
    conditions: tuple[Condition, ...]
    having: int
    sick_having: int
    others: int
    sick_others: int
    log_corrected: float
    """The chance of it by nothing but luck, corrected for the tries; a logarithm."""
    tries: int
    same: tuple[Condition, ...] = ()
    """What holds on the very same nodes."""
    given: tuple[Condition, ...] = ()
    """Of the causes before it: nodes are compared with nodes that are alike in these."""
    confounded: tuple[Confounded, ...] = ()
    too_few: bool = False
    """Whether a second fact is needed besides this one could not be told by so few nodes, even if there were one."""
    because: str = ""

    @property
    def share(self) -> float:
        return self.sick_having / self.having if self.having else 0.0

    @property
    def share_others(self) -> float:
        return self.sick_others / self.others if self.others else 0.0

    @property
    def lift(self) -> float:
        """How much more often its nodes are sick than nodes are in general."""
        sick, total = self.sick_having + self.sick_others, self.having + self.others
        return self.share * total / sick if sick else 0.0

    @property
    def support(self) -> float:
        """The share of the judged nodes that have the facts and are sick."""
        total = self.having + self.others
        return self.sick_having / total if total else 0.0

    @property
    def confidence(self) -> float:
        return min(_MOST_CONFIDENCE, 1 - math.exp(self.log_corrected))


@dataclass(frozen=True, slots=True)
class Misfit:
    node: str
    sick: bool
    because: str


@dataclass(frozen=True, slots=True)
class Cohorts:
    source: str
    sick: int
    healthy: int
    unknown: int
    leaking: int
    young: int
    cohorts: tuple[Cohort, ...]
    dose: Dose | None
    misfits: tuple[Misfit, ...]
    tried: int
    """Candidates: values of facts, splits of numbers."""
    left_out: tuple[str, ...]


def cohorts(fleet: Fleet, alpha: float = ALPHA) -> Cohorts:
    outcome = outcomes(fleet.nodes, alpha)
    judged = Judged(outcome.states == 1, np.where(outcome.states >= 0, 0, -1).astype(np.int64))
    facts = candidates(fleet.nodes)
    both = bool((outcome.states == 1).any() and (outcome.states == 0).any())
    scanned = scan(judged, facts.candidates if both else (), alpha)
    alone = singles(judged, scanned, alpha)
    causes = _causes(judged, scanned, alone, alpha)
    found = [_cohort(judged, each, causes[:index]) for index, each in enumerate(causes)]
    if causes:
        others = confounded(judged, alone, [each.candidate for each in causes])
        first = causes[0].candidate
        few = len(first.conditions) == 1 and not could_add(judged, scanned.candidates, first, alpha)
        found[0] = replace(found[0], confounded=others, too_few=few)
    elif outcome.sick_from_s is not None:
        found = [_by_uptime(fleet, outcome)]
    members = causes[0].candidate.having if causes else outcome.states != 0
    given = dose(fleet, members, outcome.sick_from_s)
    return Cohorts(
        fleet.source,
        int((outcome.states == 1).sum()),
        int((outcome.states == 0).sum()) + int(outcome.young.sum()),
        int((outcome.states == -1).sum()) - int(outcome.young.sum()),
        int(outcome.leaking.sum()),
        int(outcome.young.sum()),
        tuple(replace(each, because=words.because(each)) for each in found),
        given,
        _misfits(fleet, judged, [each.candidate for each in causes], found),
        len(facts.candidates),
        facts.left_out,
    )


def _causes(judged: Judged, scanned: Scan, alone: list[Scored], alpha: float) -> list[Scored]:
    causes: list[Scored] = []
    every, ranked, here = scanned.candidates, alone, judged
    while len(causes) < _MOST_CAUSES:
        best = choose(here, ranked) if ranked else None
        together = pairs(here, scanned, best, alpha)
        if together:
            best = choose(here, together)
        if best is None:
            break
        causes.append(best)
        here = judged.within([each.candidate for each in causes])
        scanned = scan(here, every, alpha)
        ranked = singles(here, scanned, alpha)
    return _needed(judged, causes)


def _needed(judged: Judged, causes: list[Scored]) -> list[Scored]:
    """What came first may have stood for others that were found after it: without it nothing is left to explain."""
    kept = list(causes)
    for cause in causes:
        others = [each.candidate for each in kept if each is not cause]
        if others and chance(judged, cause.candidate, others) >= NOTHING:
            kept.remove(cause)
    if len(kept) == len(causes):
        return kept
    tried = max(each.tries for each in causes)
    again: list[Scored] = []
    for each in sorted(kept, key=lambda one: chance(judged, one.candidate)):
        before = [one.candidate for one in again]
        again.append(Scored(each.candidate, chance(judged, each.candidate, before), tried))
    return again


def _cohort(judged: Judged, cause: Scored, before: list[Scored]) -> Cohort:
    candidate = cause.candidate
    here = (judged.strata >= 0) & candidate.known
    having, others = here & candidate.having, here & ~candidate.having
    return Cohort(
        candidate.conditions,
        int(having.sum()),
        int((having & judged.sick).sum()),
        int(others.sum()),
        int((others & judged.sick).sum()),
        cause.log_corrected,
        cause.tries,
        candidate.same,
        tuple(condition for each in before for condition in each.candidate.conditions),
    )


def _by_uptime(fleet: Fleet, outcome: Outcomes) -> Cohort:
    """Nothing but the time up separates them."""
    sick_from = outcome.sick_from_s or 0.0
    up = [node.uptime_s if node.exposed_s is None else node.exposed_s for node in fleet.nodes]
    known = np.array([each is not None for each in up]) & ((outcome.states >= 0) | outcome.young)
    long = np.array([each is not None and each >= sick_from for each in up]) & known
    sick = outcome.states == 1
    return Cohort(
        (Condition(UPTIME, "at least", sick_from),),
        int(long.sum()),
        int((long & sick).sum()),
        int((known & ~long).sum()),
        int((known & ~long & sick).sum()),
        outcome.log_chance,
        1,
    )


def _misfits(fleet: Fleet, judged: Judged, causes: list[Candidate], found: list[Cohort]) -> tuple[Misfit, ...]:
    """Sick without any of the facts, or healthy with those of a cohort that is mostly sick."""
    if not causes:
        return ()
    known = judged.strata >= 0
    having: Bools = np.zeros(len(known), dtype=np.bool_)
    for cause in causes:
        known = known & cause.known
        having = having | cause.having
    misfits = []
    for index in np.flatnonzero(known & judged.sick & ~having).tolist():
        node = fleet.nodes[index]
        misfits.append(Misfit(node.name, True, words.misfit_sick(node, [c for cause in causes for c in cause.conditions])))
    for index in np.flatnonzero((judged.strata >= 0) & ~judged.sick).tolist():
        for cause, cohort in zip(causes, found, strict=True):
            if cause.having[index] and cohort.share > 0.5:
                misfits.append(Misfit(fleet.nodes[index].name, False, words.misfit_healthy(cohort.conditions)))
                break
    return tuple(misfits)
