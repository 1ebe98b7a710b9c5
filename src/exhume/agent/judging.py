"""The judges of the last minute, each by itself: one that stumbles is no reason to miss what the others see."""

from collections.abc import Callable
from typing import NamedTuple

from exhume.findings import crash_loop
from exhume.findings.detectors import DETECTORS
from exhume.findings.model import Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable


class Judged(NamedTuple):
    found: list[Finding]
    loops: list[Finding]
    """All crash loops; among what was found are the worst."""
    whole: bool
    """All of them could look."""


def judge(recording: Recording, thresholds: Thresholds, since: int, trouble: Callable[[str], None]) -> Judged:
    """What was found that did not end before `since`; `trouble` is told of those that could not look."""
    found: list[Finding] = []
    loops: list[Finding] = []
    whole = True
    for detect in DETECTORS:
        try:
            found += detect(recording, thresholds).findings
            if detect is crash_loop.detect:
                loops += crash_loop.every(recording, thresholds).findings
        except Exception as error:
            whole = False
            name = detect.__module__.rpartition(".")[2].replace("_", "-")
            trouble(f"could not judge {name} ({type(error).__name__}: {printable(str(error), 200)}); the others go on")
    return Judged([one for one in found if one.end >= since], [one for one in loops if one.end >= since], whole)
