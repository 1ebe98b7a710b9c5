"""Zombie memory cgroups that unreaped processes hold: how many of how many, and whose children these are.

The walk asks the kernel which ended process is in which zombie. Where the kernel could not be asked, the number of defunct
processes against that of zombies to which nothing is charged is an estimate.
"""

from collections import Counter
from typing import Any

from exhume.diagnosis.findings.subjects import Process
from exhume.host.owners import owner
from exhume.record import record
from exhume.recording.recording import Recording
from exhume.text import printable

# Defunct processes for each zombie without a charge, from which on and up to which one may hold the other.
_FEWEST, _MOST = 0.8, 2.0


@record(frozen=True, slots=True)
class Parent:
    """A process that has not reaped its children."""

    pid: int
    comm: str
    cgroup: str

    def __str__(self) -> str:
        return str(self.pid)

    @property
    def process(self) -> Process:
        return Process(printable(self.comm), self.pid)

    @property
    def unit(self) -> str:
        return owner(self.cgroup).unit

    @property
    def pod(self) -> str:
        return owner(self.cgroup).pod


@record(frozen=True, slots=True)
class Unreaped:
    held: int
    """Zombies that unreaped processes hold."""
    zombies: int
    """In all."""
    exact: bool
    """Whether the kernel was asked; else it is an estimate by number."""
    parent: Parent | None
    by_number: bool = False
    """Whether not even the walk said which they are."""

    def of(self, row: dict[str, Any]) -> int:
        """Of the zombies of one row of the walk."""
        return int(row["empty"] if self.by_number else row["unreaped"])


def unreaped(recording: Recording) -> Unreaped | None:
    """By the last walk; None where zombies were not named."""
    rows = [row for row in recording["memcg_walk"].rows() if row["method"] == "bpf-walk"]
    latest = max((row["time"] for row in rows), default=0)
    rows = [row for row in rows if row["time"] == latest]
    if not rows:
        return None
    held = sum(row["unreaped"] for row in rows)
    exact = recording.counter("memcg_walk_unreaped") is not None
    by_number = not held and not exact
    if by_number:
        held = _by_number(recording, sum(row["empty"] for row in rows))
    children: Counter[Parent] = Counter()
    for row in rows:
        if row["parent_pid"]:
            children[Parent(row["parent_pid"], row["parent_comm"], row["parent_cgroup"])] += row["unreaped"]
    parent = max(children, key=lambda one: (children[one], one.pid), default=None)
    return Unreaped(held, sum(row["zombies"] for row in rows), exact, parent, by_number and held > 0)


def _by_number(recording: Recording, empty: int) -> int:
    series = recording.counter("processes_defunct")
    defunct = series.last if series is not None else 0
    return min(defunct, empty) if empty and _FEWEST <= defunct / empty <= _MOST else 0
