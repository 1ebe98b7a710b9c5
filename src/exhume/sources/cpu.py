"""Per-core CPU time from /proc/stat, often enough to see a burst of 300 ms on one core."""

import os
import re
import time as clock
import weakref

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.host.cpu_list import cpu_list
from exhume.host.quantities import duration
from exhume.host.root import LARGEST, Root, unreadable
from exhume.recording.recording import Recording, labels
from exhume.recording.schema import CPU_STATES
from exhume.recording.source_state import Limit, Note, Reasons

_STATES = len(CPU_STATES)
_CORE = rb"cpu\d{1,6}(?: \d{1,18}){10}"
_USUAL = re.compile(_CORE + rb"(?:\n" + _CORE + rb")*")

EVERY_NS = 50_000_000
# What reading may take of one core. The file ends with a sum over all cores for every interrupt there is, which kernels
# before 5.1 (c2da3f1b7114, "proc/stat: Make the interrupt statistics more efficient") added up anew for each reader.
DEAREST = 0.02
# Readings that are measured; the cheapest counts, because the first ones find cold caches.
MEASURED = 5


class Cpu:
    name = "cpu"

    def __init__(self, root: Root) -> None:
        self._root = root
        self._costs: list[int] = []
        self._fd = -1
        self._size = 1 << 14
        self._taken: list[tuple[int, bytes]] = []
        self.every_ns = EVERY_NS

    def read(self, recording: Recording, time: int) -> Reasons:
        start = clock.thread_time_ns()
        if not self._costs:
            self._tickless(recording, time)
        self._read(recording, time)
        if len(self._costs) < MEASURED:
            self._costs.append(clock.thread_time_ns() - start)
            self.every_ns = max(EVERY_NS, round(min(self._costs) / DEAREST))
        if self.every_ns == EVERY_NS:
            return ()
        takes = f"a reading takes {duration(min(self._costs))}"
        said = f"read every {duration(self.every_ns)} only, because {takes}: shorter bursts are not seen"
        return (Limit(said) if self.every_ns >= 2 * EVERY_NS else Note(said),)

    def take(self, time: int) -> bytes:
        """Read now, for `give` to make rows of later: a recorder that wakes ten times a second does as little as it can. What
        was read is returned as well."""
        if self._fd < 0:
            try:
                self._fd = self._root.open("proc/stat", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise unreadable("proc/stat", error) from None
            weakref.finalize(self, os.close, self._fd)
        try:
            raw = os.pread(self._fd, self._size, 0)
            while len(raw) == self._size and self._size < LARGEST:  # a buffer of its size is made for each reading
                self._size *= 4
                raw = os.pread(self._fd, self._size, 0)
        except OSError as error:
            raise unreadable("proc/stat", error) from None
        self._taken.append((time, raw))
        return raw

    @property
    def waiting(self) -> int:
        """Readings that were taken and not given."""
        return len(self._taken)

    def give(self, recording: Recording) -> None:
        taken = self._taken[:]
        del self._taken[: len(taken)]  # another thread may take one more meanwhile
        if (columns := _columns(taken)) is not None:
            recording["cpu"].add_columns(columns)
        else:
            recording["cpu"].add_rows([(time, core, *ticks) for time, raw in taken for core, ticks in parse_stat(raw)])

    def _tickless(self, recording: Recording, time: int) -> None:
        """The cores that may run without a tick (nohz_full=): their time can stand still without anything being wrong."""
        try:
            numbers = cpu_list(self._root.read("sys/devices/system/cpu/nohz_full", 4096))
        except Unreadable:
            return
        for number in numbers:
            recording.count(time, "cpu_nohz_full", 1, labels(cpu=number))

    def _read(self, recording: Recording, time: int) -> None:
        cores = parse_stat(self._root.read("proc/stat"))
        if not cores:
            raise Unreadable("/proc/stat has no line for any core")
        add = recording["cpu"].add
        for core, ticks in cores:
            add(time, core, *ticks)


def _columns(taken: list[tuple[int, bytes]]) -> dict[str, NDArray[np.int64]] | None:
    """All readings at once, where they look as they do on every kernel since 2.6.33; None where they do not."""
    if not all(raw.startswith(b"cpu ") and b"\nintr" in raw for _, raw in taken):
        return None
    blocks = [raw[raw.find(b"\n") + 1 : raw.find(b"\nintr")] for _, raw in taken]
    text = b"\n".join(blocks)
    if _USUAL.fullmatch(text) is None:
        return None
    cores = [block.count(b"cpu") for block in blocks]
    numbers = np.fromstring(text.replace(b"cpu", b" "), dtype=np.int64, sep=" ")
    if not all(cores) or len(numbers) != sum(cores) * (1 + _STATES):
        return None
    table = numbers.reshape(-1, 1 + _STATES)
    times = np.repeat(np.array([time for time, _ in taken], dtype=np.int64), cores)
    return {"time": times, "core": table[:, 0], **{state: table[:, 1 + i] for i, state in enumerate(CPU_STATES)}}


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
