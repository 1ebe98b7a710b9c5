"""Per-core CPU time from /proc/stat, often enough to see a burst of 300 ms on one core."""

from exhume.errors import Unreadable
from exhume.node.root import Root
from exhume.recording.recording import Recording
from exhume.recording.schema import CPU_STATES

_STATES = len(CPU_STATES)


class Cpu:
    name = "cpu"
    every_ns = 50_000_000

    def __init__(self, root: Root) -> None:
        self._root = root

    def read(self, recording: Recording, time: int) -> str:
        cores = parse_stat(self._root.read("proc/stat"))
        if not cores:
            raise Unreadable("/proc/stat has no line for any core")
        add = recording["cpu"].add
        for core, ticks in cores:
            add(time, core, *ticks)
        return ""


def parse_stat(raw: bytes) -> list[tuple[int, tuple[int, ...]]]:
    """(core, ten counters) of each core that is online. Kernels before 2.6.33 have fewer counters; those are 0."""
    cores: list[tuple[int, tuple[int, ...]]] = []
    for line in raw.split(b"\n"):
        if not line.startswith(b"cpu"):
            if cores:
                break  # the cores come in one block; what follows is long (one number an interrupt) and not ours
            continue
        words = line.split()
        number = words[0][3:]
        if not number.isdigit() or len(number) > 6 or len(words) < 5:
            continue
        try:
            ticks = tuple(int(word) for word in words[1 : _STATES + 1])
        except ValueError:
            continue
        if all(0 <= tick < 1 << 63 for tick in ticks):
            cores.append((int(number), ticks + (0,) * (_STATES - len(ticks))))
    return cores
