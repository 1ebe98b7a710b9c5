"""How recent an event is and what that makes of it, for the detectors that judge the kernel log."""

from dataclasses import dataclass
from datetime import UTC, datetime

from exhume.diagnosis.findings.model import Severity
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, ago
from exhume.recording.events import Event
from exhume.recording.recording import Recording

# A log without a time of day has seconds since boot for it: no machine runs for twenty years.
_NO_TIME_OF_DAY_S = 20 * 365 * 86_400


def severity(event: Event, thresholds: Thresholds, current: Severity = "critical") -> Severity:
    return aged(event.age_s, thresholds, current)


def aged(age_s: int, thresholds: Thresholds, current: Severity) -> Severity:
    """What is current is as bad as it is; what is a day old is a warning; older is history."""
    if age_s <= thresholds.recent_s:
        return current
    return "warning" if age_s <= 24 * 3600 and current == "critical" else "info"


@dataclass(frozen=True, slots=True)
class Moment:
    """When something happened, as it is displayed."""

    age_s: int
    real_ns: int | None = None
    """Set for a log that was read from a file, which ends with its last line: there an age says nothing."""

    def __str__(self) -> str:
        """The time of day in UTC, or as dmesg shows it if the time of day is unknown."""
        if self.real_ns is None:
            return ago(self.age_s * SECOND)
        if self.real_ns // 10**9 < _NO_TIME_OF_DAY_S:
            return f"at {self.real_ns / 1e9:.3f}"
        return f"at {datetime.fromtimestamp(self.real_ns // 10**9, UTC):%Y-%m-%d %H:%M:%S} UTC"


def moment(recording: Recording, event: Event) -> Moment:
    if recording.on("cpu") or not len(recording["anchors"]):
        return Moment(event.age_s)
    return Moment(event.age_s, recording.real_ns(event.time))
