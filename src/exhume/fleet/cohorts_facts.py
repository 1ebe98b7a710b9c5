"""What can be said of a node by its facts, each as a row of yes and no over all nodes: the candidates of a cohort."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from exhume.fleet.cohorts_kinds import Kind, kind
from exhume.fleet.model import Fact, Node

Bools = NDArray[np.bool_]
Operator = Literal["is", "is not", "at least", "below"]

# Values that fewer nodes have than this, or than a thousandth of the fleet, are not tried: they could not be believed.
FEWEST = 3
_FLEET_SHARE = 1000
# Values of a fact up to which "is not" is tried for each, too.
_MOST_NEGATED = 12
# Places at which a number is split, at most, spread evenly over the nodes. Each counts as a try.
_SPLITS = 31
# Candidates in all: those that most nodes have come first.
_MOST = 6000


@dataclass(frozen=True, slots=True)
class Condition:
    fact: str
    operator: Operator
    value: Fact

    @property
    def kind(self) -> Kind:
        return kind(self.fact)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One or two conditions that hold together, and further ones that hold on the very same nodes."""

    conditions: tuple[Condition, ...]
    having: Bools
    known: Bools
    same: tuple[Condition, ...] = ()

    @property
    def rank(self) -> tuple[Kind, bool]:
        """The lower, the rather believed when two say the same: what acts first, and what is before what is not."""
        return max(each.kind for each in self.conditions), any(each.operator == "is not" for each in self.conditions)

    @property
    def facts(self) -> frozenset[str]:
        return frozenset(each.fact for each in self.conditions)

    def together(self, other: "Candidate") -> "Candidate":
        return Candidate(self.conditions + other.conditions, self.having & other.having, self.known & other.known)


@dataclass(frozen=True, slots=True)
class Facts:
    candidates: tuple[Candidate, ...]
    left_out: tuple[str, ...]
    """Names of facts that measure the sickness or the time up."""


def candidates(nodes: Sequence[Node]) -> Facts:
    names = sorted({name for node in nodes for name in node.facts})
    left_out = tuple(name for name in names if kind(name) in (Kind.SYMPTOM, Kind.DOSE))
    fewest = max(FEWEST, len(nodes) // _FLEET_SHARE)
    found: list[Candidate] = []
    for name in names:
        if name not in left_out:
            found += _of_fact(name, [_clean(node.facts.get(name)) for node in nodes], fewest)
    if len(found) > _MOST:
        found = sorted(found, key=lambda each: (-int(each.having.sum()), each.conditions[0].fact))[:_MOST]
    return Facts(tuple(_distinct(found)), left_out)


def _clean(value: object) -> Fact | None:
    """Numbers that are none, and text that is empty, say nothing."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        number = float(value) if abs(value) < 1e300 else math.inf
        return number if math.isfinite(number) else None
    return str(value) if value is not None and value != "" else None


def _of_fact(name: str, values: list[Fact | None], fewest: int) -> list[Candidate]:
    known = np.array([value is not None for value in values], dtype=np.bool_)
    there = int(known.sum())
    numbers = [value for value in values if isinstance(value, float)]
    if there and len(numbers) == there:
        return _splits(name, np.array([value if isinstance(value, float) else 0.0 for value in values]), known, fewest)
    # True and "True" are two values; a fact of mixed types is compared by type and text.
    keys = [None if value is None else (type(value).__name__, str(value)) for value in values]
    distinct: dict[tuple[str, str], Fact] = {}
    rows: dict[tuple[str, str], list[int]] = {}
    for index, (key, value) in enumerate(zip(keys, values, strict=True)):
        if key is not None and value is not None:
            distinct.setdefault(key, value)
            rows.setdefault(key, []).append(index)
    found = []
    for key in sorted(distinct):
        size = len(rows[key])
        if not fewest <= size < there:
            continue
        having = np.zeros(len(values), dtype=np.bool_)
        having[rows[key]] = True
        found.append(Candidate((Condition(name, "is", distinct[key]),), having, known))
        if 3 <= len(distinct) <= _MOST_NEGATED and there - size >= fewest:
            found.append(Candidate((Condition(name, "is not", distinct[key]),), known & ~having, known))
    return found


def _splits(name: str, numbers: NDArray[np.float64], known: Bools, fewest: int) -> list[Candidate]:
    found = []
    for split in splits(numbers[known]):
        above = known & (numbers >= split)
        if fewest <= int(above.sum()) <= int(known.sum()) - fewest:
            found.append(Candidate((Condition(name, "at least", split),), above, known))
            found.append(Candidate((Condition(name, "below", split),), known & ~above, known))
    return found


def splits(numbers: NDArray[np.float64], most: int = _SPLITS) -> list[float]:
    """Values that numbers can be split at: every one but the lowest, or as many as are allowed."""
    distinct = np.unique(numbers)[1:]
    if len(distinct) > most:
        places = np.quantile(numbers, np.linspace(0, 1, most + 2)[1:-1], method="higher")
        distinct = np.unique(places[places > numbers.min()])
    return [float(each) for each in distinct]


def _distinct(found: list[Candidate]) -> list[Candidate]:
    """Candidates that hold on the very same nodes are one; the one that acts speaks for the others."""
    groups: dict[tuple[bytes, bytes], list[Candidate]] = {}
    for each in found:
        groups.setdefault((np.packbits(each.having).tobytes(), np.packbits(each.known).tobytes()), []).append(each)
    distinct = []
    for group in groups.values():
        first, *others = sorted(group, key=lambda each: preference(each.conditions[0]))
        same = tuple(each.conditions[0] for each in others)
        distinct.append(Candidate(first.conditions, first.having, first.known, same))
    return distinct


def preference(condition: Condition) -> tuple[int, bool, str, str]:
    return condition.kind, condition.operator == "is not", condition.fact, str(condition.value)
