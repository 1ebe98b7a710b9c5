"""What every reader looks like."""

from typing import Protocol

from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons


class Reader(Protocol):
    """What every reader looks like: a name for the sources table, a rhythm, and one call that adds rows.

    `read` returns notes for the sources table (how it counted, what it had to leave out: one that limits what is seen makes the
    source partial) and raises Unreadable when the source cannot be seen, which switches it off and stops nothing else.
    """

    name: str
    every_ns: int
    """How often it wants to be read; 0 means once at the beginning and once at the end."""

    def read(self, recording: Recording, time: int) -> Reasons: ...
