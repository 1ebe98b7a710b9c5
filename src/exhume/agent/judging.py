"""The judges of the last minute, each by itself: one that stumbles is no reason to miss what the others see."""

from collections.abc import Callable

from exhume.findings.detectors import DETECTORS
from exhume.findings.model import Finding
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable


def judge(recording: Recording, thresholds: Thresholds, trouble: Callable[[str], None]) -> tuple[list[Finding], bool]:
    """What was found, and whether all of them could look; `trouble` is told of those that could not."""
    found: list[Finding] = []
    whole = True
    for detect in DETECTORS:
        try:
            found += detect(recording, thresholds).findings
        except Exception as error:
            whole = False
            name = detect.__module__.rpartition(".")[2].replace("_", "-")
            trouble(f"could not judge {name} ({type(error).__name__}: {printable(str(error), 200)}); the others go on")
    return found, whole
