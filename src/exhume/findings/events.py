"""Events of a recording with their age, shared by the detectors that judge the kernel log."""

from dataclasses import dataclass

from exhume.findings.model import Severity
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording


@dataclass(frozen=True, slots=True)
class Event:
    time: int
    kind: str
    subject: str
    message: str
    fields: dict[str, str]
    age_s: int
    """How long before the end of the recording it happened."""

    def number(self, name: str) -> int | None:
        value = self.fields.get(name, "")
        return int(value) if value.removeprefix("-").isdecimal() and len(value) < 19 else None


def events(recording: Recording, *kinds: str) -> list[Event]:
    """In order of time; what happened at once, in an order that does not depend on that of the rows."""
    end = recording.window[1]
    return sorted(
        (
            Event(
                row["time"],
                row["kind"],
                row["subject"],
                row["message"],
                dict(row["fields"]),
                max(0, end - row["time"]) // 1_000_000_000,
            )
            for row in recording["events"].rows()
            if row["kind"] in kinds
        ),
        key=lambda event: (event.time, event.kind, event.subject, event.message, sorted(event.fields.items())),
    )


def netdevs(recording: Recording) -> dict[str, str]:
    """PCI address to network device, from the lines that name both: the line that a reset ends with names only the first."""
    named = []
    for row in recording["events"].rows():
        fields = dict(row["fields"])
        if fields.get("pci") and fields.get("device"):
            named.append((row["time"], fields["pci"], fields["device"]))
    return {pci: device for _, pci, device in sorted(named)}


def severity(event: Event, thresholds: Thresholds, current: Severity = "critical") -> Severity:
    return aged(event.age_s, thresholds, current)


def aged(age_s: int, thresholds: Thresholds, current: Severity) -> Severity:
    """What is current is as bad as it is; what is a day old is a warning; older is history."""
    if age_s <= thresholds.recent_s:
        return current
    return "warning" if age_s <= 24 * 3600 and current == "critical" else "info"


def ago(seconds: int) -> str:
    for size, name in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size:
            count = seconds // size
            return f"{count} {name}{'s' if name == 'day' and count > 1 else ''} ago"
    return f"{seconds} s ago"
