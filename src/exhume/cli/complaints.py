"""What a recording complains of, and which of it to show where there is not room for all."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from exhume.recording.readable import Readable


class Complaint(NamedTuple):
    time: int
    message: str
    critical: bool


def complaints(folder: "Readable", start: int, end: int) -> list[Complaint]:
    """All but information, by time."""
    table = folder.load(start, end, ["events"])["events"]
    rows = zip(table.ints("time").tolist(), table.texts("severity"), table.texts("message"), strict=True)
    return sorted(Complaint(time, message, severity == "critical") for time, severity, message in rows if severity != "info")


def chosen(found: list[Complaint], most: int) -> list[Complaint]:
    """The latest, critical ones before others; by time."""
    return sorted(sorted(found, key=lambda one: (one.critical, one.time))[-most:])
