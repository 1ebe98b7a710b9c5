"""What the cores did, read often, and whether all of them are quiet.

To wake for a reading costs more than the reading itself. Where stalls are looked for as often, the latency thread reads the
cores as well, and the recorder's own sleeps from batch to batch; otherwise the recorder reads them. Rows are made once a batch.

While all cores are quiet, batches are longer. The cores themselves are read at the same rate whatever they do: read half as
often, a burst of 400 ms would be found in half of the cases (diagnosis/findings/core_saturated.py), read ten times a second
always.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Callable

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recorder.policy import DEFAULT, Policy
from exhume.recorder.readers import Source
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Failed, SourceState
from exhume.sources.cpu import MEASURED, Cpu

TICK_NS = 10_000_000  # USER_HZ is 100 on every architecture that has a perf clock
# idle and iowait of each core: the fourth and fifth number of its line (proc_stat(5))
_IDLE = re.compile(rb"^cpu\d+ \d+ \d+ \d+ (\d{1,18}) (\d{1,18})", re.MULTILINE)


class Cores:
    """`take` may be called in any thread, the rest in the recorder's."""

    def __init__(
        self, root: Root, node: Node, now: Callable[[], int], interval_ns: int, strict: bool = False, policy: Policy = DEFAULT
    ) -> None:
        """Read once with everything that goes with it: whether they can be read, and which cores have no tick. `now` is the
        recording's clock."""
        self._reader, self._now = Cpu(root), now
        self.source = Source(self._reader, now())
        self._first = Recording(node)
        self.source.read(self._first, now, strict)
        for _ in range(MEASURED - 1):  # the first readings find cold caches
            if self._reader.every_ns > interval_ns:
                self.source.read(Recording(node), now, strict)
        self.interval_ns = max(interval_ns, self._reader.every_ns)
        """As often as asked for, or as the reader finds itself cheap enough."""
        self._due = time.monotonic_ns()
        self._quiet = Quiet(policy)
        self._unseen: deque[tuple[bytes, int]] = deque()
        self._taking = threading.Lock()
        self._cost = 0

    @property
    def cost_ns(self) -> int:
        """What one reading takes."""
        return self._cost

    def keep_time(self, now: int) -> int:
        """Reads them if it is time, and says when it will be again, on CLOCK_MONOTONIC. A reading that came late is not made up
        for."""
        if now >= self._due:
            self.take()
            self._due = (self._due if now - self._due < self.interval_ns else now) + self.interval_ns
        return self._due

    def take(self) -> None:
        """Read them now, unless another thread does so."""
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

    def collect(self, rows: Recording) -> None:
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
            self._quiet.see(*self._unseen.popleft())
        return self._quiet(self._now())


class Quiet:
    """Whether all cores are quiet: shown each reading, asked between them."""

    def __init__(self, policy: Policy = DEFAULT) -> None:
        self._policy = policy
        self._before: list[int] = []
        self._at = 0
        self._awake_until = 1 << 63

    def __call__(self, now: int) -> bool:
        return now >= self._awake_until

    def see(self, raw: bytes, now: int) -> None:
        """`raw` is what /proc/stat said at `now`."""
        idle = parse_idle(raw)
        if self._at == 0 or not self._without_work(idle, now):
            self._awake_until = now + round(self._policy.awake_s * 1e9)
        self._before, self._at = idle, now

    def _without_work(self, idle: list[int], now: int) -> bool:
        """Cores that came or went, and a file that is none, are not known to be quiet."""
        if not idle or len(idle) != len(self._before):
            return False
        least = self._policy.quiet_core_ratio * (now - self._at) / TICK_NS
        return all(after - before >= least for before, after in zip(self._before, idle, strict=True))


def parse_idle(raw: bytes) -> list[int]:
    """Ticks without work of each core that is online."""
    end = raw.find(b"\nintr")  # what follows is long, one number an interrupt, and has no core in it
    return [int(idle) + int(waiting) for idle, waiting in _IDLE.findall(raw if end < 0 else raw[:end])]
