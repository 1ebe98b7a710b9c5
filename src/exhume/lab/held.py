"""A verdict held against the truth: cause, culprit, and everybody who was accused and had nothing to do with it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from exhume.diagnosis.report import Report
from exhume.lab.scenario import Truth

# Names of somebody: a cgroup, a unit, a process with its number. "core 1", "eth0" and "node" are things, which nobody accuses.
_SOMEBODY = re.compile(r"/.+|\S+\.(service|scope|slice|socket|timer)|.+ \[\d+.*\].*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Held:
    """What a verdict is worth."""

    cause_right: bool
    culprit_right: bool
    health_right: bool
    accused: tuple[str, ...]
    """Falsely; each name once."""

    @property
    def right(self) -> bool:
        return self.cause_right and self.culprit_right and self.health_right and not self.accused


def held(truth: Truth, report: Report) -> Held:
    """The truth has the run's name in it."""
    verdict = report.verdict
    cause, subject = verdict.cause, verdict.subject
    culprits = [culprit.subject for culprit in verdict.culprits]
    cause_right = cause == truth.cause or (cause is not None and cause in truth.also_right)
    return Held(
        cause_right,
        _culprit_right(truth, cause, subject, culprits),
        report.health in truth.health,
        tuple(_accused(truth, cause, subject, culprits, cause_right)),
    )


def _culprit_right(truth: Truth, cause: str | None, subject: str, culprits: Sequence[str]) -> bool:
    if cause is None and truth.cause is None:
        # Nobody need be named where nothing is wrong; who is, must be one of those whose own affair it is.
        return all(_is(name, truth.culprits) for name in culprits)
    if not truth.culprits:
        return not culprits
    first = _is(subject, truth.culprits) or any(_is(name, truth.culprits) for name in culprits[: None if truth.shared else 1])
    return first and (not truth.lesser or any(_is(name, truth.lesser) for name in culprits))


def _accused(truth: Truth, cause: str | None, subject: str, culprits: Sequence[str], cause_right: bool) -> Iterable[str]:
    # Without a cause the subject is what suffers.
    named = [*culprits, *([subject] if cause is not None and subject else [])]
    guilty = (*truth.culprits, *truth.lesser)
    for name in dict.fromkeys(named):
        if _is(name, truth.innocent) or (not truth.shared and not _is(name, guilty) and _somebody(name, culprits)):
            yield name
    if cause is not None and truth.cause is None and not cause_right:
        yield cause


def _somebody(name: str, culprits: Sequence[str]) -> bool:
    return name in culprits or _SOMEBODY.fullmatch(name) is not None


def _is(name: str, parts: Iterable[str]) -> bool:
    return any(part in name for part in parts)
