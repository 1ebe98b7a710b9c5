"""cgroups as they come and go, by the kernel's tracepoints: who leaks, how fast and in which rhythm, seen while it happens.

A group that was removed and not released is a zombie. Those that were there before we looked do not show here. The task that
made or removed a group is only the hand (PID 1 for units, runc or dockerd for containers); whose it is, its path tells.
"""

import struct
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.perf import Comm, Hit, Tracepoints
from exhume.recording.recording import Recording, Table
from exhume.recording.schema import TABLES
from exhume.recording.source_state import Limit, Reasons
from exhume.sources.facts import online_cpus
from exhume.sources.zombie_groups import Shapes
from exhume.text import decode

if TYPE_CHECKING:
    from exhume.kernel.bpf.tracefs import Field

KINDS = ("mkdir", "rmdir", "release")

# From rmdir to release the kernel waits for RCU and a worker: 16 ms for each level of the tree when tried on an idle 6.18.
SETTLE_NS = 1_000_000_000

_MOST_NAMES = 4096
_LARGEST_INT = (1 << 63) - 1
_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}  # struct's letter for a signed number of so many bytes


class CgroupEvents:
    """Reads cgroup:cgroup_mkdir, cgroup_rmdir and cgroup_release. Everything it set up dies with the process."""

    name = "cgroup-events"
    every_ns = 1_000_000_000

    def __init__(self, root: Root, memory_only: bool = True) -> None:
        """With `memory_only` nothing is kept but the hierarchy that holds the memory controller: on v1 a unit or container
        has a group in each of a dozen."""
        self._root = root
        self._memory_only = memory_only
        self._hierarchy: int | None = None
        self._kinds: dict[int, tuple[str, Layout]] = {}
        self._tracepoints: Tracepoints | None = None
        self._refusal = ""
        self._names: dict[int, str] = {}
        self._damaged = 0

    def open(self) -> None:
        """Begin to listen; `read` does so itself when it is first called."""
        if self._tracepoints is not None:
            return
        if self._refusal:
            raise Unreadable(self._refusal)
        try:
            self._open()
        except Unreadable as error:
            self._refusal = str(error)  # neither privilege nor tracefs will come: not to be tried again every second
            raise

    def _open(self) -> None:
        from exhume.kernel.bpf.tracefs import Tracefs

        if not self._root.same_kernel():
            raise Unreadable("cgroup events are of the running kernel, and this root is not")
        if self._memory_only:
            self._hierarchy = memory_hierarchy(self._root)
        with Tracefs() as tracefs:
            for kind in KINDS:
                tracepoint = tracefs.tracepoint("cgroup", f"cgroup_{kind}")
                for name in Layout.NEEDED:
                    tracepoint.field(name)
                self._kinds[tracepoint.id] = kind, Layout(tracepoint.fields)
        condition = "" if self._hierarchy is None else f"root == {self._hierarchy}"
        self._tracepoints = Tracepoints(dict.fromkeys(self._kinds, condition), online_cpus(Root()), comm=True)
        weakref.finalize(self, self._tracepoints.close)

    def close(self) -> None:
        if self._tracepoints is not None:
            self._tracepoints.close()
            self._tracepoints = None

    def read(self, recording: Recording, time: int) -> Reasons:
        self.open()
        assert self._tracepoints is not None
        table = recording["cgroup_events"]
        looked_up: dict[int, str] = {}
        for event in self._tracepoints.read():
            if isinstance(event, Comm):
                if event.pid == event.tid:
                    self._keep_name(event.pid, decode(event.name))
            elif (row := self._row(event)) is not None:
                kind, said = row
                pid = event.pid or said.pid
                comm = self._names.get(pid, "")
                if not comm and kind != "release":
                    if pid not in looked_up:
                        looked_up[pid] = self._comm(pid)
                    comm = looked_up[pid]
                table.add(event.time, kind, said.hierarchy, said.id, said.level, said.path, pid, comm)
        lost = self._tracepoints.lost
        recording.count(time, "cgroup_events_lost", lost)
        return self._notes(lost)

    def _row(self, hit: Hit) -> "tuple[str, Said] | None":
        kind, layout = self._kinds.get(tracepoint_of(hit.raw), ("", None))
        said = layout.read(hit.raw) if layout is not None else None
        if said is None:
            self._damaged += 1
            return None
        if self._hierarchy is not None and said.hierarchy != self._hierarchy:
            return None
        return kind, said

    def _keep_name(self, pid: int, name: str) -> None:
        self._names.pop(pid, None)
        self._names[pid] = name
        if len(self._names) > _MOST_NAMES:
            del self._names[next(iter(self._names))]

    def _comm(self, pid: int) -> str:
        """Of a process that had its name before we listened: PID 1, dockerd, the kubelet."""
        if pid <= 0:
            return ""
        with suppress(Unreadable):
            return decode(self._root.read(f"proc/{pid}/comm", 64).rstrip(b"\n"))
        return ""

    def _notes(self, lost: int) -> Reasons:
        notes = []
        if lost:
            notes.append(Limit(f"{lost:,} events were lost, too many came at once: some that look like zombies may not be"))
        if self._damaged:
            notes.append(Limit(f"{self._damaged:,} events could not be understood"))
        return tuple(notes)


class KeptEvents(CgroupEvents):
    """Keeps what it has read, for a reader that names zombies by it (zombies.py). For seconds only: it is not bounded."""

    def __init__(self, root: Root) -> None:
        super().__init__(root)
        self.kept = Table(TABLES["cgroup_events"])

    def read(self, recording: Recording, time: int) -> Reasons:
        notes = super().read(recording, time)
        self.kept.extend(recording["cgroup_events"])
        return notes


class Said(NamedTuple):
    """What a record of the three tracepoints says (event class `cgroup` in include/trace/events/cgroup.h)."""

    hierarchy: int
    id: int
    level: int
    path: str
    pid: int
    """The thread, as the node's own PID namespace numbers it."""


class Layout:
    """Where a tracepoint's record has its fields, by its own description: `id` has 4 bytes before 5.5, 8 after."""

    NEEDED = ("root", "id", "level", "path", "common_pid")

    def __init__(self, fields: "Mapping[str, Field]") -> None:
        form, end = "=", 0
        order = sorted(self.NEEDED, key=lambda name: fields[name].offset)
        for name in order:
            field = fields[name]
            code = _CODES.get(field.size, "")
            if not code or field.offset < end or (name == "path" and (not field.data_loc or field.size != 4)):
                raise Unreadable(f"the field {name} of the cgroup tracepoints has a form that is not known")
            form += f"{field.offset - end}x" + (code if field.signed and not field.data_loc else code.upper())
            end = field.offset + field.size
        self._struct = struct.Struct(form)
        self._in_order = itemgetter(*(order.index(name) for name in self.NEEDED))

    def read(self, raw: bytes) -> Said | None:
        if len(raw) < self._struct.size:
            return None
        hierarchy, number, level, place, pid = self._in_order(self._struct.unpack_from(raw))
        # __data_loc: where the string begins, and in the upper half how long it is, with its end.
        start, length = place & 0xFFFF, place >> 16
        if start + length > len(raw):
            return None
        path = raw[start : start + length].split(b"\0", 1)[0]
        # A recording's numbers are signed; an id is an inode number and a generation, and does not come near that.
        return Said(hierarchy, number & _LARGEST_INT, level, decode(path), pid)


def tracepoint_of(raw: bytes) -> int:
    """Whose record this is: all of them begin with struct trace_entry (include/linux/trace_events.h), and that with `type`."""
    return int.from_bytes(raw[:2], sys.byteorder)


def memory_hierarchy(root: Root) -> int:
    """The number of the hierarchy that holds the memory controller: 0 is cgroup v2, which has no row from 6.12 on."""
    return parse_hierarchies(root.read("proc/cgroups", 1 << 16)).get("memory", 0)


def parse_hierarchies(raw: bytes) -> dict[str, int]:
    """Controller to hierarchy by /proc/cgroups."""
    found = {}
    for line in raw.split(b"\n"):
        words = line.split()
        if len(words) == 4 and words[1].isdigit() and len(words[1]) < 10:
            found[decode(words[0])] = int(words[1])
    return found


@dataclass(frozen=True, slots=True)
class Life:
    """One cgroup, as far as its life was seen; -1 for what was not."""

    hierarchy: int
    id: int
    path: str
    made: int = -1
    removed: int = -1
    released: int = -1

    @property
    def times(self) -> tuple[int, int, int]:
        return self.made, self.removed, self.released

    def zombie(self, now: int, settle_ns: int = SETTLE_NS) -> bool:
        """Whether it is a zombie now: its directory went, and it did not follow within the time that always takes."""
        return self.released < 0 <= self.removed <= now - settle_ns

    @property
    def lifetime_ns(self) -> int:
        """From mkdir to rmdir; -1 if not both were seen."""
        return self.removed - self.made if self.made >= 0 and self.removed >= 0 else -1


def lives(events: Table) -> list[Life]:
    """The lives that a table `cgroup_events` tells of, in the order in which they were first seen."""
    done: list[Life] = []
    paths: dict[tuple[int, int], str] = {}
    times: dict[tuple[int, int], dict[str, int]] = {}
    numbers = (events.ints(name).tolist() for name in ("time", "hierarchy", "id"))
    rows = zip(*numbers, events.texts("kind"), events.texts("path"), strict=True)
    for time, hierarchy, number, kind, path in sorted(rows, key=itemgetter(0)):
        key = hierarchy, number
        if kind == "mkdir" and key in times:  # before 5.5 a number is used again, once it was released
            done.append(_life(key, paths[key], times.pop(key)))
        paths[key] = path  # the last one counts: a group of v1 can be renamed
        times.setdefault(key, {})[kind] = time
    done += (_life(key, paths[key], known) for key, known in times.items())
    return sorted(done, key=lambda life: min(time for time in life.times if time >= 0))


def _life(key: tuple[int, int], path: str, known: Mapping[str, int]) -> Life:
    return Life(*key, path, *(known.get(kind, -1) for kind in KINDS))


@dataclass(frozen=True, slots=True)
class Churn:
    """What came and went at one place."""

    place: str
    example: str
    """The path of the youngest."""
    made: int
    removed: int
    zombies: int
    """Removed while we looked, and not released."""
    made_per_s: float
    zombies_per_s: float
    lifetime_ns: int
    """The median from mkdir to rmdir; -1 if none was seen from one to the other."""
    rhythm_ns: int
    """The median from one mkdir to the next: of a crash loop, its period. -1 with fewer than three."""


def parent(path: str) -> str:
    return path.rsplit("/", 1)[0] or "/"


def churn(seen: list[Life], start: int, end: int, place: Callable[[str], str] | None = None) -> list[Churn]:
    """What came and went between two moments, the worst first. A place is all that differs in nothing but what a machine
    made up (as zombies are grouped), or what `place` says: `parent`, to have siblings of any name together."""
    place = place or Shapes().__getitem__
    places: dict[str, list[Life]] = {}
    for life in seen:
        if life.made >= 0 or life.removed >= 0:
            places.setdefault(place(life.path), []).append(life)
    seconds = max(1, end - start) / 1e9
    found = []
    for name, members in places.items():
        made = sorted(life.made for life in members if life.made >= 0)
        zombies = sum(life.zombie(end) for life in members)
        found.append(
            Churn(
                place=name,
                example=members[-1].path,
                made=len(made),
                removed=sum(life.removed >= 0 for life in members),
                zombies=zombies,
                made_per_s=len(made) / seconds,
                zombies_per_s=zombies / seconds,
                lifetime_ns=_median([life.lifetime_ns for life in members if life.lifetime_ns >= 0]),
                rhythm_ns=_median([b - a for a, b in pairwise(made)]) if len(made) >= 3 else -1,
            )
        )
    found.sort(key=lambda one: (-one.zombies, -one.made, one.place))
    return found


def _median(values: list[int]) -> int:
    if not values:
        return -1
    values.sort()
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
