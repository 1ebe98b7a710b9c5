"""Whose samples are taken from a text that has those of several events, and how many there were of each."""

from collections.abc import Iterable
from dataclasses import dataclass

from exhume.imports import event_names
from exhume.text import printable

# Names beyond this are counted together: a text that was not made by perf may have a new one in each line.
_MOST = 1000
_OTHER = "all others"
# Events of one name that are taken together: those of several kinds of cores, of user space and of the kernel.
_MOST_TAKEN = 64


def choose(known: Iterable[str], wanted: str) -> str:
    """The event to take: what was asked for, else the best of those known, else the first; "" while none is known."""
    if wanted:
        return wanted
    names = [event_names.plain(event) for event in known if not event.startswith("dummy")]
    clocks = {event_names.clock(name): name for name in reversed(names)}
    return next((clocks[clock] for clock in event_names.CLOCKS if clock in clocks), names[0] if names else "")


def matches(event: str, chosen: str) -> bool:
    return chosen in (event, event_names.plain(event), event.split("/")[0])


@dataclass(slots=True)
class Count:
    samples: int = 0


class Counts:
    """Samples by event."""

    def __init__(self, chosen: str, asked: bool, known: Iterable[str] = ()) -> None:
        """`known` are events that it has: of those that count the same twice, the one that counts most is taken."""
        self.chosen = chosen
        self._asked = asked
        self._counts: dict[str, Count] = {}
        self._taken: dict[str, event_names.Name] = {}
        if chosen:
            mine = [event for event in known if matches(event, chosen)]
            for event in sorted(mine, key=lambda event: (event != chosen or not asked, -len(event_names.parse(event).modes))):
                self.taken(event)

    def taken(self, event: str) -> bool:
        """Whether samples of this event are taken; the first decides where nothing is known before."""
        if not self.chosen and not self._asked:
            self.chosen = event_names.plain(event)
        if event in self._taken:
            return True
        if not matches(event, self.chosen) or len(self._taken) >= _MOST_TAKEN:
            return False
        name = event_names.parse(event)
        if any(not name.apart(other) or name.plain != other.plain for other in self._taken.values()):
            return False
        self._taken[event] = name
        return True

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
