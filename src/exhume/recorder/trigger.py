"""What a recorder in trigger mode waits for: the last minute in memory, judged every few seconds, and the incidents found.

A stall or a word of a network driver is judged with the batch that brings it: who waits for a verdict has waited long enough.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from exhume.recorder.policy import DEFAULT, Policy
from exhume.recorder.signs import Signs
from exhume.recording.recording import Labels, Node, Recording, Table

WINDOW_NS = 60_000_000_000
HARM, DRIVER = ("stall", "stall-begins"), "nic-"
# Series that are remembered from before the window; those that had no row for longest go first.
MOST_SERIES = 1 << 16
# Too many to be of use to whoever judges, and too many to hold.
_LEFT_OUT = ("samples", "stacks", "frames", "threads")


class Incident(NamedTuple):
    kind: str
    subject: str
    start: int
    end: int
    summary: str
    severity: str = "warning"
    real_ns: int = 0
    """Its start by the clock on the wall."""


class Trigger:
    """`judge` says what is wrong in a recording; this holds the recording it is given."""

    def __init__(self, node: Node, judge: Callable[[Recording], list[Incident]], policy: Policy = DEFAULT) -> None:
        self._node = node
        self._policy = policy
        longest = WINDOW_NS - 10 * 10**9  # so that two windows overlap
        self._every_ns = min(longest, round(policy.judge_every_s * 1e9))
        self._quiet_ns = max(self._every_ns, min(longest, round(policy.judge_quiet_s * 1e9)))
        self._same_ns = max(self._every_ns, min(longest, round(policy.judge_same_s * 1e9)))
        self._last: set[tuple[str, str, str]] = set()
        self._times = 0
        """How often that was found in a row."""
        self._signs = Signs(policy)
        self._quiet = False
        self._judge = judge
        self._seconds: deque[tuple[int, int, Recording]] = deque()
        self._base: dict[tuple[str, Labels], int] = {}
        """Counters as they were before the window: a series that does not change has no row in it."""
        self._said: dict[str, dict[str, object]] = {}
        self._walked: Table | None = None
        """The zombies by name as they were before the window: they are what they are until they are named anew."""
        self._judged = -1
        self._cost_ns = 0
        self._hurry = False
        self._known: dict[tuple[str, str], int] = {}

    def add(self, rows: Recording) -> tuple[list[Incident], list[Incident]]:
        """One batch of rows. Returns incidents that are new, and all that go on, if it was time to judge."""
        begin, now = rows.window
        if not now:
            return [], []
        kept = Recording(self._node)
        for name, table in rows.tables.items():
            if name not in _LEFT_OUT:
                kept.tables[name] = table
        if self._judged < 0:
            self._judged = begin  # of its own beginning, which is busy, it makes no incident
        self._seconds.append((begin, now, kept))
        while self._seconds[0][1] < now - WINDOW_NS:
            self._let_go(self._seconds.popleft()[2])
        self._hurry = self._hurry or harms(rows)
        if self._quiet_ns > self._every_ns and not self._signs.seen(rows) <= self._signs.usual(self._judged - WINDOW_NS):
            self._quiet = False
        if now - self._judged < self._pause():
            return [], []
        self._judged, self._hurry = now, False
        begun = time.thread_time_ns()
        found = self._judge(self._window())
        self._cost_ns = time.thread_time_ns() - begun
        self._quiet = not found
        kinds = {(each.kind, each.subject, each.severity) for each in found}
        self._times, self._last = self._times + 1 if kinds == self._last else 1, kinds
        new = []
        for each in found:
            key = each.kind, each.subject
            known = self._known.get(key)
            if known is None or known < each.start - WINDOW_NS:
                new.append(each)
            self._known[key] = each.end if known is None else max(each.end, known)
        still = {
            (each.kind, each.subject) for each in found
        }  # an old line of the log is told for as long as it is in the window
        self._known = {key: end for key, end in self._known.items() if key in still or end >= now - 2 * WINDOW_NS}
        return new, found

    def _pause(self) -> int:
        """How long after one judgement the next one comes."""
        if self._hurry:
            # A node that stalls all the time must not pay more than this share: to judge a minute of 96 cores takes 57 ms.
            soon = max(round(self._policy.judge_soon_s * 1e9), round(self._cost_ns / max(0.001, self._policy.judge_share)))
            return min(self._every_ns, soon)
        if self._quiet:
            return self._quiet_ns
        return self._same_ns if self._last and self._times > self._policy.judge_same_times else self._every_ns

    def _let_go(self, rows: Recording) -> None:
        for row in rows["counters"].rows():
            key = row["name"], row["labels"]
            self._base.pop(key, None)
            self._base[key] = row["value"]
        while len(self._base) > MOST_SERIES:
            del self._base[next(iter(self._base))]
        for row in rows["sources"].rows():
            self._said[row["name"]] = row
        if len(rows["memcg_walk"]):
            self._walked = rows["memcg_walk"]

    def _window(self) -> Recording:
        window = Recording(self._node)
        start = self._seconds[0][0]
        for (name, at), value in self._base.items():
            window.count(start, name, value, at)
        for row in self._said.values():
            window["sources"].add(*row.values())  # type: ignore[arg-type]
        if self._walked is not None:
            window["memcg_walk"].extend(self._walked)
        for _, _, rows in self._seconds:
            window.extend(rows)
        return window


def harms(rows: Recording) -> bool:
    """Whether a batch brings an event that is not to wait for its turn."""
    return any(kind in HARM or kind.startswith(DRIVER) for kind in rows["events"].texts("kind"))
