"""Whose samples are asked for: the same choice for pictures, maps and exports."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from exhume.recording.recording import Ints, Table
from exhume.recording.schema import TABLES


class Search(Protocol):
    """A regular expression: a compiled one, or one that looks at no more than it may."""

    def search(self, string: str, /) -> object: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What is None is not asked."""

    cores: Collection[int] | None = None
    comm: Search | None = None
    pids: Collection[int] | None = None
    cgroup: Search | None = None
    idle: bool = True
    """Samples of idle cores, too."""
    tids: Collection[int] | None = None

    @property
    def of_threads(self) -> bool:
        """Whether it asks for some threads only."""
        return any(asked is not None for asked in (self.comm, self.pids, self.cgroup, self.tids))

    def threads(self, threads: Table) -> Ints | None:
        """The ids of those that are meant, sorted; None if all are."""
        if not self.of_threads:
            return None
        found = []
        for row in threads.rows():
            if self.comm is not None and not (self.comm.search(row["comm"]) or self.comm.search(row["process"])):
                continue
            if self.cgroup is not None and not self.cgroup.search(row["cgroup"]):
                continue
            if (self.pids is None or row["pid"] in self.pids) and (self.tids is None or row["tid"] in self.tids):
                found.append(row["id"])
        return np.array(sorted(found), dtype=np.int64)


ALL = Choice()


def filters(table: str) -> frozenset[str]:
    """The filters that mean something to a table: window, cpu, comm, pid, cgroup, idle."""
    if table == "samples":
        return frozenset(("window", "cpu", "comm", "pid", "cgroup", "idle"))
    names = {column.name for column in TABLES[table].columns}
    asked = {"window": "time", "cpu": "core", "comm": "comm", "pid": "pid", "cgroup": "cgroup"}
    return frozenset(name for name, column in asked.items() if column in names)
