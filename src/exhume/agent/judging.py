"""All kinds of findings over the last minute. A detector that fails must not stop the others."""

from collections.abc import Callable
from typing import NamedTuple

from exhume.diagnosis.findings import crash_loop
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.model import Facts, Finding, of
from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable


class Judged(NamedTuple):
    found: list[Finding[Facts]]
    loops: list[Finding[CrashLoop]]
    """All crash loops; among what was found are the worst."""
    whole: bool
    """All of them could look."""


def judge(recording: Recording, thresholds: Thresholds, since: int, trouble: Callable[[str], None]) -> Judged:
    """What was found that did not end before `since`; `trouble` is told of those that could not look."""
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
            trouble(
                f"could not judge {kind.facts.kind} ({type(error).__name__}: {printable(str(error), 200)}); the others go on"
            )
    return Judged([one for one in found if one.end >= since], [one for one in loops if one.end >= since], whole)
