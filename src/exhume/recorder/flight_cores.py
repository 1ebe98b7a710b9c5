"""What the cores did, ten times a second, and whether all of them are quiet.

To wake for a reading costs more than the reading itself. Where stalls are looked for as often, the thread that does so reads
the cores as well, and the recorder's own sleeps from batch to batch; otherwise that one reads them. Nothing is made of what was
read before the batch is, when all of it is in the caches.
"""

import threading
import time
from collections import deque
from collections.abc import Callable

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recorder.loop import Source
from exhume.recorder.pace import Pace
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Failed, SourceState
from exhume.sources.cpu import MEASURED, Cpu

TICK_NS = 100_000_000


class Cores:
    """`take` may be called in any thread, the rest in the recorder's."""

    def __init__(self, root: Root, node: Node, now: Callable[[], int], strict: bool = False) -> None:
        """Read once as a check does it: whether they can be read, and which cores have no tick. `now` is the recording's
        clock."""
        self._reader, self._now = Cpu(root), now
        self.source = Source(self._reader, now())
        self._first = Recording(node)
        self.source.read(self._first, now, strict)
        for _ in range(MEASURED - 1):  # the first readings find cold caches
            if self._reader.every_ns > TICK_NS:
                self.source.read(Recording(node), now, strict)
        self.rhythm_ns = max(TICK_NS, self._reader.every_ns)
        """Ten times a second, or as often as the reader finds itself cheap enough."""
        self._due = time.monotonic_ns()
        self._pace = Pace()
        self._unseen: deque[tuple[bytes, int]] = deque()
        self._taking = threading.Lock()
        self._cost = 0

    @property
    def cost_ns(self) -> int:
        """What one reading takes."""
        return self._cost

    def keep_time(self, now: int) -> int:
        """For whoever reads them in their rhythm: reads them if it is time, and says when it will be again, on CLOCK_MONOTONIC.
        A reading that came late is not made up for."""
        if now >= self._due:
            self.take()
            self._due = (self._due if now - self._due < self.rhythm_ns else now) + self.rhythm_ns
        return self._due

    def take(self) -> None:
        """Read them now. Who comes while another thread does so has nothing to do."""
        known = self.source.state
        if known is None or not known.up or not self._taking.acquire(blocking=False):
            return
        measured = not self._reader.waiting  # the first of a batch stands for all: asking for the time is half of the work
        start = time.thread_time_ns() if measured else 0
        now = self._now()
        try:
            self._unseen.append((self._reader.take(now), now))
        except Unreadable as error:
            self.source.state, self.source.since = SourceState.off(Failed(str(error))), now
        finally:
            if measured:
                self._cost = time.thread_time_ns() - start
            self._taking.release()

    def give(self, rows: Recording) -> None:
        """All that was taken, as rows of a batch."""
        start = time.thread_time_ns()
        self.source.cost += self._cost * self._reader.waiting
        rows.extend(self._first)
        self._first = Recording(rows.node)
        self._reader.give(rows)
        self.source.cost += time.thread_time_ns() - start

    def quiet(self) -> bool:
        """Whether there was no sign of work lately."""
        while self._unseen:
            self._pace.see(*self._unseen.popleft())
        return self._pace.quiet(self._now())
