"""The proof that a fix worked: before against after, criterion by criterion, with a test for each. Pure, and JSON both ways.

Causes decide: one that goes on fails the proof, one that could not be judged leaves it open, and nothing passes for want of
data. Signs and rare effects are told; a rare effect that happens in spite of the fix fails it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Final, TypeVar, get_args

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import wall
from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND, duration
from exhume.recording.recording import Recording
from exhume.remedy.criteria import Criterion, CriterionId, Rare, RareId, Status
from exhume.remedy.criteria_cores import bursts, walks
from exhume.remedy.criteria_count import zombie_count
from exhume.remedy.criteria_leak import leak_rate
from exhume.remedy.criteria_rare import rare
from exhume.remedy.criteria_signs import late_polls, network_stalls, reclaims, restarts, throttling
from exhume.text import printable

SCHEMA: Final = "exhume.proof/2"
# Tuples, so that any JSON value can be looked for in them.
_CRITERIA: Final = get_args(CriterionId)
_RARE: Final = get_args(RareId)
_STATUSES: Final = get_args(Status)

Judge = Callable[[Recording | None, Recording, Thresholds], Criterion]
CRITERIA: Final[tuple[Judge, ...]] = (
    leak_rate,
    zombie_count,
    walks,
    bursts,
    restarts,
    throttling,
    reclaims,
    late_polls,
    network_stalls,
)


@dataclass(frozen=True, slots=True)
class Looked:
    """A recording that a proof is made of."""

    start: str
    """RFC 3339; empty where it has no time of day."""
    end: str
    seconds: float
    boot_id: str
    hostname: str = ""


@dataclass(frozen=True, slots=True)
class Proof:
    passed: bool | None
    """None where it could not be judged."""
    summary: str
    hostname: str
    before: Looked | None
    after: Looked
    criteria: tuple[Criterion, ...]
    rare: tuple[Rare, ...]
    early: bool = False
    """Whether it was ended before its time, because the leak goes on."""

    @property
    def causes(self) -> tuple[Criterion, ...]:
        return tuple(one for one in self.criteria if one.role == "cause")


def prove(before: Recording | None, after: Recording, thresholds: Thresholds, early: str = "") -> Proof:
    """Without `before` the limits are those of the thresholds. `early`: why the window was ended before its time."""
    criteria = tuple(judge(before, after, thresholds) for judge in CRITERIA)
    if early:
        criteria = tuple(_ended(one, early) if one.id == "leak-rate" else one for one in criteria)
    effects = rare(before, after)
    passed = _passed(criteria, effects)
    return Proof(
        passed,
        _summary(passed, criteria, effects),
        after.node.hostname,
        _looked(before) if before is not None else None,
        _looked(after),
        criteria,
        effects,
        bool(early),
    )


def _ended(rate: Criterion, because: str) -> Criterion:
    """The test that may be looked at all the time has spoken; a pass of the other would be of too short a time."""
    sure = max(rate.confidence or 0.0, 0.99) if rate.status == "failed" else 0.99
    return replace(rate, status="failed", confidence=sure, because=because, needed_s=None)


def _passed(criteria: tuple[Criterion, ...], effects: tuple[Rare, ...]) -> bool | None:
    causes = [one for one in criteria if one.role == "cause"]
    if any(one.status == "failed" for one in causes) or any(one.status == "failed" for one in effects):
        return False
    return None if any(_open(one) for one in causes) else True


def _open(cause: Criterion) -> bool:
    """What cannot be seen matters if it was seen to be bad, and if nothing else says whether anything leaks."""
    return cause.status == "too-little" or (cause.status == "not-seen" and (cause.id == "leak-rate" or bool(cause.before)))


def _summary(passed: bool | None, criteria: tuple[Criterion, ...], effects: tuple[Rare, ...]) -> str:
    causes = [one for one in criteria if one.role == "cause"]
    bad = [one.label for one in causes if one.status == "failed"] + [one.label for one in effects if one.status == "failed"]
    if passed is False:
        return f"it is not cured: {', '.join(bad)}"
    if passed is None:
        open_ = [one.label for one in causes if _open(one)]
        longest = max((one.needed_s or 0.0 for one in causes), default=0.0)
        return f"not judged: {', '.join(open_)}" + (
            f"; about {duration(_whole(longest) * SECOND)} would be enough" if longest else ""
        )
    signs = [one.label for one in criteria if one.role == "sign" and one.status == "failed"]
    unseen = [one.label for one in causes if one.status == "not-seen"]
    said = "the causes are gone"
    if unseen:
        said += f", as far as they can be seen ({', '.join(unseen)} cannot)"
    return said + (f"; still above what is told, and another matter: {', '.join(signs)}" if signs else "")


def _whole(seconds: float) -> int:
    """Rounded up to seconds, or to minutes where it takes more than one: less would not be enough."""
    return math.ceil(seconds) if seconds < 60 else 60 * math.ceil(seconds / 60)


def _looked(recording: Recording) -> Looked:
    start, end = recording.window
    known = len(recording["anchors"]) > 0
    times = (wall(recording, start), wall(recording, end)) if known else ("", "")
    return Looked(*times, (end - start) / 1e9, recording.node.boot_id, recording.node.hostname)


def as_json(proof: Proof) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        **asdict(proof),
        "criteria": [_labelled(one) for one in proof.criteria],
        "rare": [_labelled(one) for one in proof.rare],
    }


def _labelled(one: Criterion | Rare) -> dict[str, Any]:
    return {"id": one.id, "label": one.label, **asdict(one)}


T = TypeVar("T")


def from_json(document: Mapping[str, Any]) -> Proof:
    """What `as_json` made; anything else is refused with what is wrong about it."""
    if (schema := document.get("schema")) != SCHEMA:
        if isinstance(schema, str) and schema.startswith("exhume.proof/"):
            raise ExhumeError(
                f"the proof has schema {printable(schema)}, and this exhume reads {SCHEMA}: make it again with exhume verify"
            )
        raise ExhumeError(f"this is no proof: its schema is {schema!r}, not {SCHEMA!r}")
    try:
        before = document["before"]
        proof = Proof(
            **{
                **{key: value for key, value in document.items() if key != "schema"},
                "before": _made(Looked, before) if before is not None else None,
                "after": _made(Looked, document["after"]),
                "criteria": tuple(_made(Criterion, one) for one in document["criteria"]),
                "rare": tuple(_made(Rare, one) for one in document["rare"]),
            }
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ExhumeError(f"this is no whole proof: {error}") from None
    statuses = [one.status for one in proof.criteria] + [one.status for one in proof.rare]
    if proof.passed not in (True, False, None) or any(status not in _STATUSES for status in statuses):
        raise ExhumeError("this is no proof that exhume made: a status in it is not known")
    if any(one.id not in _CRITERIA for one in proof.criteria) or any(one.id not in _RARE for one in proof.rare):
        raise ExhumeError("this is no proof that exhume made: a criterion in it is not known")
    return proof


def _made(kind: type[T], values: Mapping[str, Any]) -> T:
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in values.items() if key in known})
