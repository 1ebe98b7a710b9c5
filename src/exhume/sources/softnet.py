"""The network backlog of each core from /proc/net/softnet_stat: packets taken in, dropped, and polls cut short."""

from exhume.errors import Unreadable
from exhume.host.cpu_list import cpu_list
from exhume.host.root import Root
from exhume.recording.recording import Labels, Recording, labels
from exhume.recording.source_state import Limit, Note, Reasons

# softnet_seq_show in net/core/net-procfs.c. Columns that are not listed have been 0 for long.
# received_rps came with 2.6.35, flow_limit with 99bbc7074190 (3.11), backlog and CPU with 7d58e6555870 (5.10, and in
# RHEL from 4.18.0-348), two more lengths that add up to the backlog with 59da2d7b0e99 (6.4).
_COLUMNS = {
    "softnet_processed": 0,
    "softnet_dropped": 1,
    "softnet_squeezed": 2,
    "softnet_received_rps": 9,
    "softnet_flow_limit": 10,
    "softnet_backlog": 11,
}
_GAUGE = "softnet_backlog"
_CPU = 12
_FEWEST, _WIDEST = 9, 64  # 2.6 kernels have nine
_HEX = frozenset(b"0123456789abcdef")


class Softnet:
    name = "softnet"
    every_ns = 1_000_000_000

    def __init__(self, root: Root) -> None:
        self._root = root
        self._last: dict[tuple[str, Labels], tuple[int, int]] = {}
        """As the kernel says it, and added up."""

    def read(self, recording: Recording, time: int) -> Reasons:
        rows = parse_softnet(self._raw())
        if not rows:
            raise Unreadable("/proc/net/softnet_stat has no line that can be read")
        cpus, notes = self._cpus(rows)
        for cpu, row in zip(cpus, rows, strict=False):
            at = labels(cpu=cpu)
            for name, column in _COLUMNS.items():
                if column < len(row) and self._last.get((name, at), (-1, 0))[0] != row[column]:
                    recording.count(time, name, self._added_up(name, at, row[column]), at)
        return notes

    def _added_up(self, name: str, at: Labels, value: int) -> int:
        """Counts are unsigned int in struct softnet_data and nobody resets them: one that is smaller than before went round."""
        before, total = self._last.get((name, at), (value, value))
        total = value if name == _GAUGE else total + (value - before) % (1 << 32)
        self._last[name, at] = (value, total)
        return total

    def _raw(self) -> bytes:
        """The counts are the same in every network namespace. /proc/net is a link to self/net, and below another's root
        there may be no `self`: the process that asks need not exist in that /proc."""
        if not self._root.own:
            try:
                return self._root.read("proc/1/net/softnet_stat")
            except Unreadable:
                pass
        return self._root.read("proc/net/softnet_stat")

    def _cpus(self, rows: list[tuple[int, ...]]) -> tuple[tuple[int, ...], Reasons]:
        if all(len(row) > _CPU for row in rows):
            return tuple(row[_CPU] for row in rows), ()
        # Older kernels do not name the CPU; there is a row for each that is online, in order.
        try:
            online = cpu_list(self._root.read("sys/devices/system/cpu/online", 1 << 16))
        except Unreadable:
            return tuple(range(len(rows))), (Note("rows are numbered in order: this kernel names no core in them"),)
        if len(online) != len(rows):  # a core came or went between the two reads, or a line was lost: better none than wrong
            return (), (Limit(f"{len(rows)} rows for {len(online)} cores: not read this time"),)
        return online, ()


def parse_softnet(raw: bytes) -> list[tuple[int, ...]]:
    """The columns of each line that is whole."""
    rows = []
    for line in raw.split(b"\n")[:-1]:
        words = line.split(None, _WIDEST)
        if _FEWEST <= len(words) <= _WIDEST and all(len(word) <= 8 and _HEX.issuperset(word) for word in words):
            rows.append(tuple(int(word, 16) for word in words))
    return rows
