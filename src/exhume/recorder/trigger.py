"""What a recorder in trigger mode waits for: the last minute in memory, judged every few seconds, and the incidents found."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from exhume.recording.recording import Labels, Node, Recording

WINDOW_NS = 60_000_000_000
EVERY_NS = 5_000_000_000
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


class Trigger:
    """`judge` says what is wrong in a recording; this holds the recording it is given."""

    def __init__(self, node: Node, judge: Callable[[Recording], list[Incident]]) -> None:
        self._node = node
        self._judge = judge
        self._seconds: deque[tuple[int, int, Recording]] = deque()
        self._base: dict[tuple[str, Labels], int] = {}
        """Counters as they were before the window: a series that does not change has no row in it."""
        self._said: dict[str, dict[str, object]] = {}
        self._judged = 0
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
        self._seconds.append((begin, now, kept))
        while self._seconds[0][1] < now - WINDOW_NS:
            self._let_go(self._seconds.popleft()[2])
        if now - self._judged < EVERY_NS:
            return [], []
        self._judged = now
        found = self._judge(self._window())
        new = []
        for each in found:
            key = each.kind, each.subject
            known = self._known.get(key)
            if known is None or known < each.start - WINDOW_NS:
                new.append(each)
            self._known[key] = each.end if known is None else max(each.end, known)
        return new, found

    def _let_go(self, rows: Recording) -> None:
        for row in rows["counters"].rows():
            key = row["name"], row["labels"]
            self._base.pop(key, None)
            self._base[key] = row["value"]
        while len(self._base) > MOST_SERIES:
            del self._base[next(iter(self._base))]
        for row in rows["sources"].rows():
            self._said[row["name"]] = row

    def _window(self) -> Recording:
        window = Recording(self._node)
        start = self._seconds[0][0]
        for (name, at), value in self._base.items():
            window.count(start, name, value, at)
        for row in self._said.values():
            window["sources"].add(*row.values())  # type: ignore[arg-type]
        for _, _, rows in self._seconds:
            window.extend(rows)
        return window
