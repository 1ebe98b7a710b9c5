"""What a detector says: findings with numbers, or the number that rules the thing out, or that it could not see."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
CGROUPS = ("example", "path", "home", "cgroup", "made by cgroup")
"""Evidence that is the path of a cgroup: whose the unit is that a finding names, is told by these."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A number with its unit and where it was read, so that anybody can look for themselves."""

    what: str
    value: int | float | str
    unit: str
    source: str


class Span(NamedTuple):
    """A stretch of time on a core; -1 where it is not known which, or where it is none."""

    core: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Something odd, in one sentence, with its evidence. Times are on the recording's clock."""

    kind: str
    subject: str
    severity: Severity
    start: int
    end: int
    summary: str
    evidence: tuple[Evidence, ...] = ()
    spans: tuple[Span, ...] = ()
    """When exactly and on which core, where that is known: to put findings side by side."""

    def value(self, what: str) -> int | float | str | None:
        for evidence in self.evidence:
            if evidence.what == what:
                return evidence.value
        return None

    def number(self, what: str) -> float:
        value = self.value(what)
        return float(value) if isinstance(value, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class Examined:
    """The outcome of one detector. Exactly one of three: findings, ruled out (with the number), or not seen (with why)."""

    kind: str
    findings: tuple[Finding, ...] = ()
    ruled_out: str = ""
    unseen: str = ""
