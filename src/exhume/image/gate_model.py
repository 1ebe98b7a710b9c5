"""The gate's judgement as data: checks that passed, failed, warn, or could not be made (schema exhume.gate/1)."""

from dataclasses import dataclass
from typing import Any, Literal

from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, EXIT_WARNING
from exhume.host.quantities import DAY_S
from exhume.image.gate_bound import ALPHA, Bound
from exhume.text import from_path

SCHEMA = "exhume.gate/1"

Status = Literal["passed", "warning", "failed", "unknown"]
"""A warning is what was not shown to be wrong, and not shown to be right either; unknown is what could not be looked at."""

CODES = {"passed": EXIT_HEALTHY, "warning": EXIT_WARNING, "failed": EXIT_CRITICAL, "unknown": EXIT_CANNOT_JUDGE}
# The worst first: a fault that was shown stands, whatever else could not be seen.
_ORDER: tuple[Status, ...] = ("failed", "unknown", "warning", "passed")


@dataclass(frozen=True, slots=True)
class Options:
    """What an image is held against."""

    limit: int = 1_000
    """Memory cgroups, live and dying, that a node may have at the end of its life."""
    life_s: float = 14 * DAY_S
    settle_s: float = 0.0
    """Of the soak, from its beginning, in which groups may die without being counted: what a boot leaves behind comes once."""
    under: str = "/"
    """Only cgroups below this one are judged."""
    alpha: float = ALPHA

    @property
    def confidence(self) -> str:
        return f"{100 * (1 - self.alpha):g} %"


@dataclass(frozen=True, slots=True)
class Blamed:
    """One of those that a check failed for."""

    subject: str
    message: str
    path: str = ""
    """The file in the image that makes it start, where that is known."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    message: str
    measured: float | int | None = None
    limit: float | int | None = None
    blamed: tuple[Blamed, ...] = ()
    help: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    subject: str
    """The node's name, or the image's."""
    checks: tuple[Check, ...]
    options: Options
    soak_s: float = 0.0
    early: bool = False
    """A leak was certain before the time was over."""
    bound: Bound | None = None

    @property
    def status(self) -> Status:
        return min((check.status for check in self.checks), key=_ORDER.index, default="unknown")

    def exit_code(self, strict: bool = False, allow_warnings: bool = False) -> int:
        status = self.status
        if status == "warning" and strict:
            status = "failed"
        if status == "warning" and allow_warnings:
            status = "passed"
        return CODES[status]


def as_json(gate: Gate) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "passed": gate.status == "passed",
        "status": gate.status,
        "subject": from_path(gate.subject),
        "soak_s": round(gate.soak_s, 3),
        "ended_early": gate.early,
        "node_life_s": round(gate.options.life_s),
        "bound": _bound(gate),
        "checks": [
            {
                "name": check.name,
                "status": check.status,
                "measured": _number(check.measured),
                "limit": _number(check.limit),
                "message": check.message,
                "blamed": [
                    {"subject": from_path(one.subject), "path": from_path(one.path), "message": one.message}
                    for one in check.blamed
                ],
            }
            for check in gate.checks
        ],
    }


def _bound(gate: Gate) -> dict[str, Any] | None:
    """The slowest leak that the soak excludes, and what a leak just below it would come to."""
    bound = gate.bound
    if bound is None or bound.seconds <= 0:
        return None
    return {
        "seen": bound.seen,
        "seconds": round(bound.seconds, 3),
        "confidence": round(1 - bound.alpha, 6),
        "excluded_above_per_minute": round(60 * bound.upper_per_s, 6),
        "at_end_of_life": round(bound.most_in(gate.options.life_s)),
    }


def _number(value: float | int | None) -> float | int | None:
    return round(value, 6) if isinstance(value, float) else value
