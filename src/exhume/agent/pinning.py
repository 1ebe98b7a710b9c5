"""Which minutes of an incident are pinned: those around its begin, and those around its end when that has come.

A finding that goes on all day is found at every look. To pin all of it would fill the disk with more of the same, and the
incidents before it would go; meanwhile its latest minutes are kept by their age.
"""

from collections.abc import Iterable
from typing import NamedTuple

from exhume.recorder.trigger import WINDOW_NS, Incident


class Pin(NamedTuple):
    start: int
    end: int
    reason: str


class Pinning:
    def __init__(self) -> None:
        self._going: dict[tuple[str, str], Incident] = {}
        """Those of the last look: each begins where it was seen first and ends where it was seen last."""

    def look(self, found: Iterable[Incident], around_ns: int) -> list[Pin]:
        """What to pin now that this was found; what was found before and is not now has ended."""
        pins: list[Pin] = []
        before, self._going = self._going, {}
        for one in found:
            key = one.kind, one.subject
            known = self._going.get(key) or before.get(key)
            if known is not None and one.start <= known.end + WINDOW_NS:
                until = known.start + around_ns
                if one.start <= until:
                    pins.append(Pin(one.start - around_ns, min(one.end, until) + around_ns, _reason(one)))
                one = one._replace(start=min(one.start, known.start), end=max(one.end, known.end))
            else:
                pins.append(Pin(one.start - around_ns, one.end + around_ns, _reason(one)))
            self._going[key] = one
        for key, one in before.items():
            now = self._going.get(key)
            if (now is None or now.start > one.end) and one.end > one.start + around_ns:
                pins.append(Pin(one.end - around_ns, one.end + around_ns, _reason(one)))
        return pins


def _reason(incident: Incident) -> str:
    return f"{incident.kind}: {incident.summary}"
