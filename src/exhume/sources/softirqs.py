"""Softirqs by core and vector from /proc/softirqs: where NET_RX is run, and where it is not."""

from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons
from exhume.sources.interrupts import CpuTable, add_changes
from exhume.text import decode


class Softirqs:
    name = "softirqs"
    every_ns = 1_000_000_000

    def __init__(self, root: Root) -> None:
        self._root = root
        self._table = CpuTable("proc/softirqs")

    def read(self, recording: Recording, time: int) -> Reasons:
        # All possible CPUs have a column, online or not (show_softirqs in fs/proc/softirqs.c); those without stay at 0.
        for row, cells in self._table.changes(self._root.read("proc/softirqs")):
            add_changes(recording, time, self._table, cells, "softirqs", (("vector", decode(row.name)),))
        self._table.time = time
        return ()
