"""observer-starved: exhume itself was kept from running, or a read did not come back. Who cannot look must not say healthy."""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.kind import Case, Kind, Step
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Shown
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, duration
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.recording.source_state import Timeout


@record(frozen=True, slots=True, kw_only=True)
class ObserverStarved(Facts):
    """Either a source that did not answer, or the time that exhume itself waited for a core."""

    kind: ClassVar[str] = "observer-starved"
    stuck_source: Annotated[str, Shown("source", source="the recorder")] = ""
    stuck_reason: Annotated[str, Shown("said", source="the recorder")] = ""
    """As the recorder reports it."""
    waited_s: Annotated[float | None, Shown("waited", "s", "/proc/self/schedstat: runnable, not running", digits=2)] = None

    def summary(self) -> str:
        if self.waited_s is not None:
            return (
                f"exhume itself was kept from running for {duration(self.waited_s * SECOND)}: tasks do not get onto a core here"
            )
        return f"reading {self.stuck_source} did not come back ({self.stuck_reason}): the kernel holds the reader"

    def short(self) -> tuple[str, str]:
        if self.waited_s is not None:
            return "exhume kept from running", f"{duration(self.waited_s * SECOND)}"
        return f"blocked read of {self.stuck_source}", self.stuck_reason


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    findings = []
    start, end = recording.window
    for name, source in recording.sources().items():
        if source.state.find(Timeout) is not None:
            stuck = ObserverStarved(subject=name, stuck_source=name, stuck_reason=source.state.reason)
            findings.append(Finding(stuck, "warning", start, end))
    waited = recording.counter("own_wait_ns")
    if waited is not None and waited.last >= thresholds.observer_wait_ms * 1_000_000:
        findings.append(Finding(ObserverStarved(subject="exhume", waited_s=waited.last / 1e9), "warning", start, end))
    if findings:
        return Examined(ObserverStarved.kind, tuple(findings))
    if waited is None:
        return Examined(
            ObserverStarved.kind, unseen="how long exhume itself waited for a core was not counted (a check does, by schedstat)"
        )
    return Examined(ObserverStarved.kind, ruled_out=f"exhume waited {duration(waited.last)} for a core")


def _steps(starved: Finding[ObserverStarved], case: Case) -> Iterator[Step]:
    yield Step("run it again with chrt -r 1 exhume check, and look at what holds the cores: top -b -n 1 -H")


KIND = Kind(facts=ObserverStarved, detect=detect, role="other", steps=_steps)
