"""Whose samples are taken from a text that has those of several events, and how many there were of each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exhume.text import printable

# perf-list(1): what may stand behind the name of an event.
_MODIFIERS = re.compile(r":[ukhIGHpPDSWebR]+$", re.ASCII)
_UNIT = re.compile(r"[^/]*/([^/]+)/[a-zA-Z]*", re.ASCII)  # cpu_core/cycles/P
# What cores are sampled by, the better first: the time they run, then the events beside them that perf may have been given.
CLOCKS = ("cycles", "cpu-cycles", "cpu-clock", "task-clock")
# Names beyond this are counted together: a text that was not made by perf may have a new one in each line.
_MOST = 1000
_OTHER = "all others"


def plain(event: str) -> str:
    """The name without unit and modifiers: one machine with two kinds of cores has two events for its cycles."""
    unit = _UNIT.fullmatch(event)
    return unit[1] if unit is not None else _MODIFIERS.sub("", event)


def choose(known: Iterable[str], wanted: str) -> str:
    """The event to take: what was asked for, else the best of those known, else the first; "" while none is known."""
    if wanted:
        return wanted
    names = [plain(event) for event in known if not event.startswith("dummy")]
    return next((name for name in CLOCKS if name in names), names[0] if names else "")


def matches(event: str, chosen: str) -> bool:
    return chosen in (event, plain(event))


@dataclass(slots=True)
class Count:
    samples: int = 0


class Counts:
    """Samples by event."""

    def __init__(self, chosen: str, asked: bool) -> None:
        self.chosen = chosen
        self._asked = asked
        self._counts: dict[str, Count] = {}

    def taken(self, event: str) -> bool:
        """Whether samples of this event are taken; the first decides where nothing is known before."""
        if not self.chosen and not self._asked:
            self.chosen = plain(event)
        return matches(event, self.chosen)

    def of(self, event: str) -> Count:
        """Where samples of this event are counted."""
        if event not in self._counts and len(self._counts) >= _MOST and not self.taken(event):
            event = _OTHER
        return self._counts.setdefault(event, Count())

    def notes(self) -> list[str]:
        """Which samples were taken, if there were others."""
        taken = [name for name, count in self._counts.items() if count.samples and self.taken(name)]
        left = {name: count.samples for name, count in self._counts.items() if count.samples and not self.taken(name)}
        if not left:
            return []
        others = ", ".join(f"{printable(name) or 'no name'}: {samples:,}" for name, samples in list(left.items())[:10])
        if not taken:
            return [f"it has no sample of the event {printable(self.chosen)}, only of others ({others})"]
        return [f"samples of {', '.join(map(printable, taken[:3]))} were taken; --event takes others ({others})"]
