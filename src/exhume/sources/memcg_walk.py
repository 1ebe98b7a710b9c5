"""Every memory cgroup of the node, dying ones included: where it lives or lived, and what is still charged to it.

The kernel shows dying groups nowhere, but keeps them in the tree that it walks itself. A BPF program (see `memcg_program`)
reads that tree in sections of some ten microseconds; here its records become columns, and a walk that lost its place to a
group that was freed meanwhile finds it again, as css_next_child does: by the parent and the last serial number.
"""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.kernel.bpf import Block, Btf, Features, Routine
from exhume.sources.memcg_program import STATE, Fields, Status, WalkProgram, Want

Ints = NDArray[np.int64]
Row = tuple[int, ...]

# Steps of one run. The kernel verifies each of them, so that more make the start slower and the walk hardly faster.
STEPS: Final = 64
LARGEST_BLOCK: Final = 256 << 10
_BATCH_BYTES = 4 << 20
# A walk that takes more steps than this beyond four for each group is being led on, and ends as incomplete.
_SPARE_STEPS = 1 << 19

_MOST_NODES = 1024  # CONFIG_NODES_SHIFT is at most 10
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class MemcgWalk:
    """One row a group, in depth-first order, the root first. Bytes are the group's own: what its children have is theirs."""

    id: NDArray[np.uint64]
    """The number that cgroup events and the directory's inode carry. On v2 a group that lost the memory controller and got it
    again can be here twice, dying and live; only `serial` is unique."""
    serial: NDArray[np.uint64]
    """In the order in which the groups were made."""
    parent: NDArray[np.int64]
    """Row of the parent, -1 for the root."""
    dying: NDArray[np.bool_]
    usage_bytes: Ints
    """All that is charged, swap apart. Can exceed the sum of the kinds by pages that are on their way to an LRU list."""
    file_bytes: Ints
    anon_bytes: Ints
    """Anonymous memory, shared memory and tmpfs: what only swap can take."""
    unevictable_bytes: Ints
    kernel_bytes: Ints
    """Kernel memory. For a dying group this includes what was charged once and is gone: see `pinning_kernel_bytes`."""
    swap_bytes: Ints
    names: list[bytes]
    hierarchy: Literal[1, 2]
    kinds: bool
    """Whether file, anon and unevictable bytes are known; else they are 0, and only usage, swap and (v1) kernel bytes are."""
    kernel_pins: bool
    """Whether kernel pages can hold a dying group. From 5.13 its parent inherits them, and only the charge is left behind."""
    counted: int
    """Groups of this hierarchy, live and dying, as the kernel counts them, or -1. On v2 also those without the controller."""
    moved: bool
    """Groups came, went or died during the walk: what was found is true of each group, but not of one moment."""
    complete: bool
    """False if the tree grew faster than it could be walked."""
    calls: int
    longest_call_ns: int
    """The longest section in the kernel, by its own clock, with what interrupts and other tasks took out of it."""
    method: Literal["bpf-walk"] = "bpf-walk"
    css: NDArray[np.uint64] = field(default_factory=lambda: np.zeros(0, np.uint64))
    """Where the kernel keeps each group, for those who ask more of it (`memcg_pins`), never for output. Only together with
    `serial` does it say which group is meant: once freed, the place is another's."""
    slab_pins: bool = False
    """The same of slab objects, until 5.9."""

    def __len__(self) -> int:
        return len(self.serial)

    @property
    def zombies(self) -> NDArray[np.int64]:
        """Rows of the dying groups."""
        return np.flatnonzero(self.dying)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """No memory holds the group: if it is dying, something else does (see `zombie_holders`)."""
        pages = self.file_bytes + self.anon_bytes + self.unevictable_bytes + self.swap_bytes
        if not self.kinds:
            pages = self.usage_bytes + self.swap_bytes
        elif self.hierarchy == 1:  # here kernel memory has a counter of its own, so that pages between two lists show
            pages = pages + np.maximum(self.usage_bytes - self.kernel_bytes, 0)
        nothing: NDArray[np.bool_] = pages + self.pinning_kernel_bytes == 0
        return nothing

    @property
    def pinning_kernel_bytes(self) -> Ints:
        """Kernel memory that can hold each group if it is dying. Where pages can and slab objects cannot (5.9 to 5.12), the
        counter does not tell them apart: it is taken for pages only in groups that nothing else holds."""
        if not self.kernel_pins:
            return np.zeros_like(self.kernel_bytes)
        if self.slab_pins:
            return self.kernel_bytes
        held = self.file_bytes + self.anon_bytes + self.unevictable_bytes + self.swap_bytes > 0
        return np.where(held, 0, self.kernel_bytes)

    def paths(self, rows: Iterable[int] | None = None) -> list[str]:
        """As seen from the root of the hierarchy, in order of the rows; all of them if none are given."""
        return [home + rest for home, rest in self.places(rows)]

    def places(self, rows: Iterable[int] | None = None) -> list[tuple[str, str]]:
        """Path up to the nearest live directory (the group's own if it lives), and from there on what is not there any more."""
        parent, dying, names = self.parent.tolist(), self.dying.tolist(), self.names
        # For what is in the group of this row: the nearest live directory, and what the rest of a path begins with.
        inside: dict[int, tuple[str, str]] = {0: ("/", "")}

        def enter(row: int) -> tuple[str, str]:
            missing = []
            while row not in inside:  # a tenant may have nested groups by the thousand
                missing.append(row)
                row = parent[row]
            for below in reversed(missing):
                home, rest = inside[parent[below]]
                name = names[below].decode("utf-8", "backslashreplace")
                inside[below] = (home, f"{rest}{name}/") if dying[below] else (f"{home}{rest}{name}", "/")
                row = below
            return inside[row]

        found = []
        for row in range(len(self)) if rows is None else map(int, rows):
            above = parent[row]
            if above < 0:
                found.append(("/", ""))
                continue
            home, rest = inside.get(above) or enter(above)
            path = rest + names[row].decode("utf-8", "backslashreplace")
            found.append((home, path) if dying[row] else (home + path, ""))
        return found


def walk(features: Features | None = None) -> MemcgWalk:
    """Walk the tree once. Raises Unreadable where BPF, BTF, the privilege or the memory controller is missing."""
    features = features or Features()
    fields = Fields.of(Btf.vmlinux(), generations=has_generations())
    nodes = memory_nodes()
    record = fields.record(len(nodes))
    steps = max(8, min(STEPS, LARGEST_BLOCK // record.itemsize))
    with Block(STATE.itemsize + steps * record.itemsize, features=features) as block:
        program = WalkProgram(fields, nodes, steps, block, features).assemble()
        with Routine(program, name="exhume_memcg", features=features) as routine:
            walker = _Walker(fields, record, block, routine)
            walker.walk()
    return walker.result()


class _Walker:
    """Runs the program until the tree is through, and finds the way back where a group that it stood on is gone."""

    def __init__(self, fields: Fields, record: np.dtype[np.void], block: Block, routine: Routine) -> None:
        self._fields, self._record, self._block, self._routine = fields, record, block, routine
        self._found = _Found(fields, record)
        self._calls = self._longest_ns = self._lost = 0
        self._complete = False
        self._before = self._after = self._run()

    def walk(self) -> None:
        if not self._before["root"]:
            raise Unreadable("the kernel does not let BPF programs read its memory: the root of its cgroups is not to be seen")
        if self._fields.controllers is not None and not int(self._before["controllers"]) >> self._fields.memory_id & 1:
            raise Unreadable("the memory controller is switched off on this node (cgroup_disable=memory)")
        ways: Iterator[Row] | None = None
        left = 4 * int(self._before["total"]) + _SPARE_STEPS
        while left > 0:
            state = self._after = self._run()
            left -= 1 + int(state["steps"])
            if state["status"] == Status.GONE:
                self._lost += 1
                way = None if ways is None else next(ways, None)
                if way is None:
                    # One that was being passed over counts for nothing: the last one seen does.
                    ways = self._found.ways_back(int(state["after"]) or int(state["serial"]))
                    way = next(ways, None)
                if way is None:
                    break
                self._go_on_from(*way)
                continue
            if not state["after"]:
                ways = None
            if state["status"] == Status.DONE:
                self._complete = True
                break

    def result(self) -> MemcgWalk:
        fields, found = self._fields, self._found
        unified = fields.hierarchy is not None and int(self._before["hierarchy"]) == 0  # cgrp_dfl_root is the first to get one
        columns, names, parent = found.consistent()
        within = parent >= 0
        if fields.use_hierarchy is not None:
            within &= columns["use_hierarchy"][parent] != 0

        def own(name: str) -> Ints:
            """Counters of a group include those of its children (page_counter_charge); they are read a moment apart."""
            values = columns[name]
            below = np.bincount(parent[within], weights=values[within], minlength=len(values)).astype(np.int64)
            return np.maximum(values - below, 0) * _PAGE

        kinds = "lists" in (self._record.names or ())
        usage = own("usage")
        file, anon, unevictable = (np.maximum(columns[kind], 0) * _PAGE for kind in ("file", "anon", "unevictable"))
        swap = own("swap")
        if not unified:
            swap = np.maximum(swap - usage, 0)
        if fields.kmem is not None and not unified:
            kernel = own("kmem")
        elif kinds:
            kernel = np.maximum(usage - file - anon - unevictable, 0)
        else:
            kernel = np.zeros_like(usage)
        flags = columns["flags"]
        # CSS_DYING is set by rmdir, together with the end of the directory (kill_css in kernel/cgroup/cgroup.c). CSS_ONLINE
        # says less: a group that is just being made is on the list before it is online, one that died stays so for a while.
        dying = (flags & fields.dying) != 0 if fields.dying is not None else (flags & fields.online) == 0
        changed = any(self._before[name] != self._after[name] for name in ("total", "live", "dying"))
        # On v1 every group of the hierarchy has the controller. The kernel's count lags behind: it goes down when the memory is
        # freed, a grace period after the group has left the tree.
        elsewhere = not unified and fields.total is not None and int(self._after["total"]) != len(names)
        doubted = len(names) < len(found.names) or any(not name for name in names[1:])
        return MemcgWalk(
            id=columns["id"],
            serial=columns["serial"],
            parent=parent,
            dying=dying,
            usage_bytes=usage,
            file_bytes=file,
            anon_bytes=anon,
            unevictable_bytes=unevictable,
            kernel_bytes=kernel,
            swap_bytes=swap,
            names=names,
            hierarchy=2 if unified else 1,
            kinds=kinds,
            kernel_pins=fields.kernel_pins,
            counted=int(self._after["total"]) if fields.total is not None else -1,
            moved=changed or elsewhere or doubted or bool(self._lost) or not self._complete,
            complete=self._complete,
            calls=self._calls,
            longest_call_ns=self._longest_ns,
            css=columns["css"],
            slab_pins=fields.slab_pins,
        )

    def _run(self) -> np.void:
        self._routine.run()
        raw = self._block.read()
        state: np.void = np.frombuffer(raw, STATE, 1)[0]
        if self._calls and state["status"] != Status.GONE:
            self._found.add(raw[STATE.itemsize : STATE.itemsize + int(state["steps"]) * self._record.itemsize])
        self._calls += 1
        self._longest_ns = max(self._longest_ns, int(state["section_ns"]))
        return state

    def _go_on_from(self, css: int, serial: int, parent: int, after: int, want: int) -> None:
        state = np.frombuffer(self._block.read(0, STATE.itemsize), STATE).copy()
        state["cursor"], state["serial"], state["parent"], state["after"] = css, serial, parent, after
        state["want"], state["status"] = want, Status.MORE
        self._block.write(state.tobytes())


class _Found:
    """Records of the groups seen so far, in the order of the walk."""

    def __init__(self, fields: Fields, record: np.dtype[np.void]) -> None:
        self._fields, self._record = fields, record
        self._raw: list[bytes] = []
        self._raw_bytes = 0
        self._parts: list[dict[str, NDArray[Any]]] = []
        self.names: list[bytes] = []

    def add(self, raw: bytes) -> None:
        self._raw.append(raw)
        self._raw_bytes += len(raw)
        if self._raw_bytes > _BATCH_BYTES:
            self._sort()

    def columns(self) -> dict[str, NDArray[Any]]:
        self._sort()
        if len(self._parts) > 1:
            names = self._parts[0]
            self._parts = [{name: np.concatenate([part[name] for part in self._parts]) for name in names}]
        return self._parts[0]

    def consistent(self) -> tuple[dict[str, NDArray[Any]], list[bytes], NDArray[np.int64]]:
        """Columns, names, and the row of each group's parent. What cannot be true is left out: a group that came up before, and
        one whose parent did not. The walk has no way to find such a thing; this makes sure that nothing is built on it."""
        columns, names = self.columns(), self.names
        while True:
            serial, first = np.unique(columns["serial"], return_index=True)
            at = np.minimum(np.searchsorted(serial, columns["parent_serial"]), len(serial) - 1)
            parent = np.where(columns["parent"] == 0, -1, first[at])
            rows = np.arange(len(parent))
            known = (serial[at] == columns["parent_serial"]) & (parent >= 0) & (parent < rows)
            parent[:1], known[:1] = -1, True
            twice = np.ones(len(parent), bool)
            twice[first] = False
            keep = known & ~twice
            if keep.all():
                return columns, names, parent
            columns = {name: column[keep] for name, column in columns.items()}
            names = [name for name, kept in zip(names, keep.tolist(), strict=True) if kept]

    def ways_back(self, gone: int) -> Iterator[Row]:
        """Where to go on in place of a group that is gone, and with it all it had below: best first, the root last.

        Siblings before it, at growing distance, since those are likely still there and spare the way through all the others;
        then the parent. If that is gone as well, the same for the parent: no group is freed before its children.
        """
        columns = self.columns()
        css, serial, parent, parent_serial = (columns[name] for name in ("css", "serial", "parent", "parent_serial"))
        while len(rows := np.flatnonzero(serial == gone)):
            row = int(rows[0])
            before = np.flatnonzero(parent_serial[:row] == parent_serial[row])
            back = 1
            while back <= len(before):
                sibling = int(before[-back])
                yield int(css[sibling]), int(serial[sibling]), int(parent[sibling]), gone, Want.SIBLINGS
                back *= 2
            for above in np.flatnonzero(serial == parent_serial[row]).tolist():
                yield int(css[above]), int(serial[above]), int(parent[above]), gone, Want.CHILDREN
            gone = int(parent_serial[row])

    def _sort(self) -> None:
        if not self._raw and self._parts:
            return
        records = np.frombuffer(b"".join(self._raw), self._record)
        self._raw.clear()
        self._raw_bytes = 0
        records = records[records["css"] != 0]
        part: dict[str, NDArray[Any]] = {
            name: records[name].copy()
            for name in ("css", "serial", "parent", "parent_serial", "id", "usage", "swap", "kmem", "flags", "use_hierarchy")
        }
        part["file"], part["anon"], part["unevictable"] = self._pages(records)
        self._parts.append(part)
        names = records["name"].tobytes()
        width = self._record["name"].itemsize
        # The kernel's count includes the NUL, and is negative where nothing could be read.
        ends = np.maximum(records["name_bytes"] - 1, 0) + np.arange(len(records)) * width
        self.names += [names[at:end] for at, end in zip(range(0, len(names), width), ends.tolist(), strict=True)]

    def _pages(self, records: NDArray[Any]) -> tuple[Ints, Ints, Ints]:
        """File, anon and unevictable pages on the LRU lists."""
        if "lists" not in (self._record.names or ()):
            nothing = np.zeros(len(records), np.int64)
            return nothing, nothing, nothing
        lists = records["lists"].sum(axis=(1, 2))
        inactive_anon, active_anon, inactive_file, active_file, unevictable = self._fields.list_names
        file = lists[:, inactive_file] + lists[:, active_file]
        anon = lists[:, inactive_anon] + lists[:, active_anon]
        if "generations" in (self._record.names or ()):
            generations = records["generations"].sum(axis=(1, 2, 4))
            anon, file = anon + generations[:, 0], file + generations[:, 1]  # LRU_GEN_ANON, LRU_GEN_FILE
        return file, anon, lists[:, unevictable]


def has_generations() -> bool:
    """Whether pages are kept in generations; when that is switched off, all of them go back to the lists."""
    try:
        with open("/sys/kernel/mm/lru_gen/enabled", encoding="ascii") as file:
            return int(file.read(32), 16) != 0
    except (OSError, ValueError):
        return False


def memory_nodes() -> tuple[int, ...]:
    for name in ("has_memory", "online"):
        try:
            with open(f"/sys/devices/system/node/{name}", encoding="ascii") as file:
                return parse_nodes(file.read(1 << 16))
        except (OSError, ValueError):
            continue
    return (0,)


def parse_nodes(text: str) -> tuple[int, ...]:
    """Numbers in the kernel's notation: `0-3,8`."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if not 0 <= int(first) <= int(last or first) < _MOST_NODES:
            raise ValueError(f"not a list of memory nodes: {text!r}")
        numbers |= {*range(int(first), int(last or first) + 1)}
    return tuple(sorted(numbers))
