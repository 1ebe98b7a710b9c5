"""What one line of the kernel log says, as data."""

from dataclasses import dataclass, replace

from exhume.recording.recording import Labels, labels


@dataclass(frozen=True, slots=True)
class Event:
    """What one line says. Ages and thresholds are in milliseconds, whatever unit the line has them in."""

    kind: str
    subject: str
    severity: str
    fields: Labels

    def get(self, name: str) -> str | None:
        for key, value in self.fields:
            if key == name:
                return value
        return None

    def with_fields(self, **pairs: str | int) -> "Event":
        return replace(self, fields=labels(**{**dict(self.fields), **pairs}))
