"""Which stretches of the recording become profiles, and when. Pure: times are the recording's, nanoseconds.

An incident is pushed once some of what follows it is recorded; incidents that come meanwhile are in the same profile. No two
profiles of one name overlap, so that their sums are right.
"""

from typing import Literal, NamedTuple

from exhume.host.quantities import SECOND

BEFORE_NS = 30 * SECOND
AFTER_NS = 30 * SECOND
LONGEST_NS = 300 * SECOND

What = Literal["incident", "continuous"]


class Window(NamedTuple):
    what: What
    start: int
    end: int


class Windows:
    def __init__(self) -> None:
        self._incident: tuple[int, int] | None = None
        """Where the profile begins, and when it is due."""
        self._told_until = 0
        self._continued_from: int | None = None

    def incident(self, start: int, now: int) -> None:
        """It began then, and was found now."""
        begin = max(start - BEFORE_NS, now - LONGEST_NS, self._told_until)
        if self._incident is None:
            self._incident = begin, now + AFTER_NS
        else:
            self._incident = min(self._incident[0], begin), self._incident[1]

    @property
    def pending(self) -> tuple[int, int] | None:
        """The incident that waits, as `incident_again` takes it."""
        return self._incident

    def incident_again(self, begin: int, due: int) -> None:
        """One that waited when the agent ended."""
        self._incident = begin, due

    def due(self, now: int, every_ns: int) -> list[Window]:
        """What to make now; every_ns 0: nothing but incidents."""
        found = []
        if self._incident is not None and now >= self._incident[1]:
            begin, due = self._incident
            self._incident, self._told_until = None, due
            if begin < due:
                found.append(Window("incident", begin, due))
        if not every_ns:
            self._continued_from = None
        elif self._continued_from is None or now < self._continued_from:
            self._continued_from = now
        elif now - self._continued_from >= every_ns:
            # What could not be made for long is not made up for: an agent that was busy is not to be busier.
            begin = max(self._continued_from, now - 2 * every_ns)
            found.append(Window("continuous", begin, now))
            self._continued_from = now
        return found
