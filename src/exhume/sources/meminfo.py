"""Memory of the node, and what zombies cost it: their structs are in SUnreclaim and Percpu."""

from exhume.errors import Unreadable
from exhume.host.root import Root, key_values
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons

_NAMES = frozenset(
    "MemTotal MemFree MemAvailable Cached Shmem SwapTotal SwapFree Dirty Writeback Slab SReclaimable SUnreclaim "
    "Percpu KernelStack PageTables".split()
)


class Meminfo:
    name = "meminfo"
    every_ns = 1_000_000_000

    def __init__(self, root: Root) -> None:
        self._root = root

    def read(self, recording: Recording, time: int) -> Reasons:
        found = False
        for name, kib in key_values(self._root.read("proc/meminfo", 1 << 16)):
            if name in _NAMES and kib < 1 << 53:
                recording.count(time, "meminfo_bytes", kib * 1024, (("field", name),))
                found = True
        if not found:
            raise Unreadable("/proc/meminfo has none of the fields that are looked for")
        return ()
