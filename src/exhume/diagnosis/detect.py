"""All detectors over the last minute, for a recorder that runs. One that fails does not stop the others."""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from exhume.diagnosis.findings import crash_loop
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.model import Facts, Finding, of
from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recorder.trigger import Incident
from exhume.recording.recording import Recording
from exhume.text import printable


class Detected(NamedTuple):
    found: list[Finding[Facts]]
    loops: list[Finding[CrashLoop]]
    """All crash loops; among what was found are the worst."""
    whole: bool
    """No detector failed."""


def detect(recording: Recording, thresholds: Thresholds, since: int, report: Callable[[str], None]) -> Detected:
    """What was found that did not end before `since`; `report` is told of detectors that failed."""
    found: list[Finding[Facts]] = []
    loops: list[Finding[CrashLoop]] = []
    whole = True
    for kind in KINDS:
        try:
            found += kind.detect(recording, thresholds).findings
            if kind.facts is CrashLoop:
                loops += of(crash_loop.every(recording, thresholds).findings, CrashLoop)
        except Exception as error:
            whole = False
            report(
                f"could not judge {kind.facts.kind} ({type(error).__name__}: {printable(str(error), 200)}); the others go on"
            )
    return Detected([one for one in found if one.end >= since], [one for one in loops if one.end >= since], whole)


def incidents(recording: Recording, found: Iterable[Finding[Facts]], kinds: Collection[str]) -> list[Incident]:
    """The findings that make an incident."""
    return [
        Incident(one.kind, one.subject, one.start, one.end, one.summary, one.severity, recording.real_ns(one.start))
        for one in found
        if one.kind in kinds and one.serious
    ]
