"""What holds each zombie memory cgroup, and what frees it.

Pages, swap entries and (on old kernels) kernel objects show in the group's own counters. A process that has ended and was
not waited for shows in none: it keeps its css_set, and with that its cgroups, until its parent reaps it (since 4.4,
2e91fa7f6d45 "cgroup: keep zombies associated with their original cgroups"). /proc/PID/cgroup of such a process shows `/` on
cgroup v1, so the kernel is asked: a BPF iterator (5.8) goes through the tasks and writes down those that have ended and whose
memory cgroup is dying. Open files and directories of a cgroup hold nothing.
"""

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.host.owners import owner
from exhume.host.root import Root
from exhume.kernel.bpf import R1, R2, R3, R6, R7, R8, R9, Btf, Builder, Features, Helper, Tasks
from exhume.kernel.bpf.features import HERE
from exhume.sources.memcg_program import Fields
from exhume.sources.memcg_walk import MemcgWalk
from exhume.sources.processes import INIT_PID_NAMESPACE, cgroup_of, stats
from exhume.text import decode

MOST_PARENTS: Final = 64
"""Parents whose cgroup is looked up, those with the most children first."""
MOST_PATHS: Final = 8192
"""Processes whose /proc/PID/cgroup is read where the kernel cannot be asked."""
ENOUGH: Final = 5
"""Fewer zombies than this without a page on a list prove nothing about the kernel."""
_DELETED: Final = " (deleted)"  # proc_cgroup_show in kernel/cgroup/cgroup.c, on v2 only


class Holder(IntEnum):
    """What holds a zombie. Where several things do: the one that is left when those that are easier to free are gone."""

    PAGE_CACHE = 0
    SHARED_MEMORY = 1
    """tmpfs, shared and anonymous memory, locked pages."""
    SWAP = 2
    """Pages in swap. A swap entry also keeps the group's 16-bit id: these zombies count against the limit of 65,535."""
    KERNEL_OBJECTS = 3
    """Only where `MemcgWalk.pinning_kernel_bytes` says so."""
    UNREAPED_PROCESS = 4
    CHILDREN = 5
    """Nothing but zombies that were inside it."""
    SOCKET_OR_INODE = 6
    """cgroup v2: nothing is charged. A socket that was opened inside, or an inode that was dirtied inside."""
    UNKNOWN = 7

    @property
    def label(self) -> str:
        return _WORDS[self].label

    @property
    def frees(self) -> str:
        """What frees such zombies, in one sentence."""
        return _WORDS[self].frees

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that find or free the holder, to be copied one by one; what has to be filled in is in capitals."""
        return _WORDS[self].commands


@dataclass(frozen=True, slots=True)
class _Words:
    label: str
    frees: str
    commands: tuple[str, ...] = ()


_WORDS: Final = {
    Holder.PAGE_CACHE: _Words("page cache", "a purge evicts the pages", ("exhume zombies purge --dry-run",)),
    Holder.SHARED_MEMORY: _Words(
        "shared memory or tmpfs",
        "delete the files on tmpfs (/dev/shm, /run, emptyDir in memory) or the shared memory segments that they wrote; "
        "memory of a process that was moved to another cgroup is freed when that process ends",
        ("du -xsh /dev/shm /run", "ipcs -m"),
    ),
    Holder.SWAP: _Words(
        "swap",
        "delete the files on tmpfs or the shared memory segments whose pages are in swap, or swap them in again by swapoff, "
        "which needs as much free memory",
        ("swapon --show", "du -xsh /dev/shm /run", "ipcs -m", "swapoff DEVICE && swapon DEVICE"),
    ),
    Holder.KERNEL_OBJECTS: _Words(
        "kernel objects",
        "dropping dentries and inodes, on the whole node, frees most of them; the others need a reboot",
        ("echo 2 > /proc/sys/vm/drop_caches",),
    ),
    Holder.UNREAPED_PROCESS: _Words(
        "unreaped processes",
        "the parent has to wait for its dead children: fix or restart the parent; neither a purge nor drop_caches frees them",
        ("exhume fix defunct-processes", "ps -eo stat,pid,ppid,comm | awk '$1 ~ /^Z/'"),
    ),
    Holder.CHILDREN: _Words("zombies below them", "they are freed together with the zombies that lived inside them"),
    Holder.SOCKET_OR_INODE: _Words(
        "a socket or a dirty inode",
        "a socket that was opened inside is freed when the process that has it now closes it or ends; an inode that was "
        "written to inside is freed in time, or by dropping dentries and inodes on the whole node",
        ("ss -xtuap", "echo 2 > /proc/sys/vm/drop_caches"),
    ),
    Holder.UNKNOWN: _Words(
        "unknown",
        "nothing is charged to them and no ended process was found: look again in a minute; if they stay, only a reboot is "
        "known to free them",
        ("exhume zombies",),
    ),
}

# From what is freed most easily to what stays longest. Kernel objects come first: up to 5.10 charges of slab that are long
# free count as such, and a page of cache is real.
_ORDER: Final = (
    Holder.CHILDREN,
    Holder.KERNEL_OBJECTS,
    Holder.PAGE_CACHE,
    Holder.UNKNOWN,
    Holder.SOCKET_OR_INODE,
    Holder.SWAP,
    Holder.SHARED_MEMORY,
    Holder.UNREAPED_PROCESS,
)


@dataclass(frozen=True, slots=True)
class UnreapedProcess:
    """A process that has ended, and the parent that has not waited for it. One whose first thread has ended while others run
    cannot be waited for, and is named as its own parent: it is what has to end."""

    row: int
    """Of the zombie that it holds, in the walk; -1 where that is not known."""
    pid: int
    comm: str
    parent_pid: int
    parent_comm: str
    parent_cgroup: str = ""
    """Empty where it is not known, or of a parent that has few of them."""

    @property
    def parent_unit(self) -> str:
        return owner(self.parent_cgroup).unit


@dataclass(frozen=True, slots=True)
class Holders:
    rows: NDArray[np.int64]
    """Rows of the walk: the zombies that were asked about."""
    kind: NDArray[np.int8]
    """A Holder for each of them."""
    behind: NDArray[np.int8]
    """The same, but of those that wait for zombies below them: what holds the one below that stays longest."""
    processes: tuple[UnreapedProcess, ...] = ()
    exact: bool = True
    """False if the processes were not found by asking the kernel, so that which zombie each one holds is a guess."""
    note: str = ""
    """Why not."""

    def of(self, holder: Holder) -> NDArray[np.int64]:
        """Rows of the walk that this holds."""
        held: NDArray[np.int64] = self.rows[self.kind == holder]
        return held

    def parents(self, rows: Iterable[int] | None = None) -> list[tuple[UnreapedProcess, int]]:
        """One process of each parent that does not reap, with how many unreaped ones it has here; the most first. Where it is
        not known which zombie a process holds, it counts for all rows."""
        wanted = None if rows is None else {*map(int, rows), -1}
        some = [one for one in self.processes if wanted is None or one.row in wanted]
        counts = Counter(one.parent_pid for one in some)
        first = {one.parent_pid: one for one in reversed(some)}
        return [(first[pid], count) for pid, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def holders(seen: MemcgWalk, root: Root, rows: Iterable[int] | None = None, features: Features = HERE) -> Holders:
    """What holds the zombies of a walk, all or some rows. Raises nothing: where the kernel cannot be asked, `note` says so."""
    some = seen.zombies if rows is None else np.fromiter(rows, np.int64)
    some = some[seen.dying[some]]
    whole = seen.zombies
    kind = charged(seen)
    if not len(some):
        return Holders(some, kind[some], kind[some])
    exact, note = True, ""
    try:
        processes = _ask(seen, root, features)
    except Unreadable as why:
        exact = False
        try:
            processes, how = _by_proc(seen, root, kind)
        except Unreadable as error:
            processes, how = [], f"/proc could not be read either: {error}"
        note = f"{why}; {how}"
    held = [one.row for one in processes if one.row >= 0]
    if exact or held:
        kind[np.array(held, np.int64)] = Holder.UNREAPED_PROCESS
    elif len(processes) >= (empty := np.count_nonzero(_pageless(kind[whole]))) > 0:
        # One process holds one group at most, so that as many as there are such groups may hold them all.
        kind[whole[_pageless(kind[whole])]] = Holder.UNREAPED_PROCESS
        note += f": {len(processes):,} unreaped processes against {empty:,} zombies without a page"
    behind = _behind(seen, kind)
    return Holders(some, kind[some], behind[some], _with_parents(root, processes), exact, note)


def charged(seen: MemcgWalk) -> NDArray[np.int8]:
    """A Holder for every row of a walk (of meaning for zombies only), by what is charged to it and by what is below it."""
    kind = np.full(len(seen), Holder.SOCKET_OR_INODE if seen.hierarchy == 2 else Holder.UNKNOWN, np.int8)
    zombies = seen.zombies
    below = np.zeros(len(seen), bool)
    below[seen.parent[zombies]] = True
    listed = seen.file_bytes + seen.anon_bytes + seen.unevictable_bytes
    # On v1 kernel memory has its own counter: what is left are pages on their way to a list.
    resident = seen.usage_bytes - (seen.kernel_bytes if seen.hierarchy == 1 else 0) > 0
    if seen.hierarchy == 2 and seen.kinds and not listed_elsewhere(seen):
        resident = np.zeros(len(seen), bool)
    holding = {
        Holder.CHILDREN: below,
        Holder.KERNEL_OBJECTS: seen.pinning_kernel_bytes > 0,
        Holder.PAGE_CACHE: (seen.file_bytes > 0) | ((listed == 0) & resident),
        Holder.SWAP: seen.swap_bytes > 0,
        Holder.SHARED_MEMORY: seen.anon_bytes + seen.unevictable_bytes > 0,
    }
    for holder in _ORDER:
        if holder in holding:
            kind[holding[holder]] = holder
    return kind


def listed_elsewhere(seen: MemcgWalk) -> bool:
    """Whether this kernel moves a dying group's pages to its parent's lists (7.1 does, f1cf8d2f36dc): something is charged to
    the zombies, and not one of them has a page on a list. They are freed when the parent is reclaimed from."""
    zombies = seen.zombies
    kernel = seen.kernel_bytes[zombies] if seen.hierarchy == 1 else 0
    some = np.count_nonzero(seen.usage_bytes[zombies] - kernel > 0)
    pages = (seen.file_bytes + seen.anon_bytes + seen.unevictable_bytes)[zombies]
    return seen.kinds and bool(some >= ENOUGH and not pages.any())


def _pageless(kind: NDArray[np.int8]) -> NDArray[np.bool_]:
    """What a process may hold that has ended: it has no page, but kernel objects, its task_struct among them."""
    return np.isin(kind, (Holder.SOCKET_OR_INODE, Holder.UNKNOWN, Holder.KERNEL_OBJECTS))


def _behind(seen: MemcgWalk, kind: NDArray[np.int8]) -> NDArray[np.int8]:
    """From the last row up: those below a group come after it."""
    rank = np.zeros(len(Holder), np.int64)
    rank[list(_ORDER)] = np.arange(len(_ORDER))
    ranks, parent, dying = rank[kind].tolist(), seen.parent.tolist(), seen.dying.tolist()
    waits = (kind == Holder.CHILDREN).tolist()
    for row in reversed(seen.zombies.tolist()):
        above = parent[row]
        if above >= 0 and dying[above] and waits[above]:
            ranks[above] = max(ranks[above], ranks[row])
    return np.array([_ORDER[one] for one in ranks], np.int8)


_TASK: Final = np.dtype(
    [("css", "u8"), ("serial", "u8"), ("pid", "u4"), ("parent", "u4"), ("comm", "V16"), ("parent_comm", "V16")]
)


def _ask(seen: MemcgWalk, root: Root, features: Features) -> list[UnreapedProcess]:
    """Every ended task whose memory cgroup is a zombie of this walk."""
    if not root.same_kernel():
        raise Unreadable("only the running kernel can be asked which processes hold zombies")
    if not len(seen.css):
        raise Unreadable("the walk does not say where the kernel keeps the groups")
    try:
        if os.readlink("/proc/self/ns/pid") != INIT_PID_NAMESPACE:
            raise Unreadable("the kernel shows only the processes of this PID namespace: run with the host's (hostPID: true)")
    except OSError as error:
        raise Unreadable(f"/proc/self/ns/pid is not readable: {error.strerror}") from None
    btf = Btf.vmlinux()
    with Tasks(_program(btf, features), btf, name="exhume_reap") as tasks:
        raw = tasks.read()
    found = np.frombuffer(raw[: len(raw) // _TASK.itemsize * _TASK.itemsize], _TASK)
    if not len(found):
        return []
    zombies = seen.zombies
    names = zip(seen.css[zombies].tolist(), seen.serial[zombies].tolist(), strict=True)
    rows = dict(zip(names, zombies.tolist(), strict=True))
    return [
        UnreapedProcess(row, int(one["pid"]), _text(one["comm"]), int(one["parent"]), _text(one["parent_comm"]))
        for one in found
        if (row := rows.get((int(one["css"]), int(one["serial"])))) is not None
    ]


def _program(btf: Btf, features: Features) -> Builder:
    groups = Fields.of(btf, generations=False)
    place = {name: btf.offset("task_struct", name) for name in ("exit_state", "tgid", "comm", "real_parent", "signal")}
    p = Builder(features)
    record = p.stack(_TASK.itemsize)

    def at(name: str) -> Any:
        assert _TASK.fields is not None
        return record + int(_TASK.fields[name][1])

    Tasks.begin(p, btf)
    p.read(R8, R7 + place["exit_state"], 4)
    p.jump_if(R8, "!=", 0, "ended")
    p.exit(0)
    p.label("ended")
    p.read(R8, R7 + groups.task_cgroups)
    p.read(R8, R8 + groups.css_sets_memory)
    p.read(R9, R8 + groups.css_flags, 4)
    if groups.dying is not None:
        p.jump_if(R9, "&", groups.dying, "write")
        p.exit(0)
    else:
        with p.when(R9, "&", groups.online):
            p.exit(0)
    p.label("write")
    p.store(at("css"), R8)
    p.copy(at("serial"), 8, R8 + groups.css_serial)
    p.copy(at("pid"), 4, R7 + place["tgid"])
    p.copy(at("comm"), 16, R7 + place["comm"])
    p.read(R9, R7 + place["signal"])
    p.read(R9, R9 + btf.offset("signal_struct", "nr_threads"), 4)
    p.mov(R8, R7)
    p.jump_if(R9, ">", 1, "parent")
    p.read(R8, R7 + place["real_parent"])
    p.label("parent")
    p.copy(at("parent"), 4, R8 + place["tgid"])
    p.copy(at("parent_comm"), 16, R8 + place["comm"])
    p.mov(R1, R6)
    p.mov(R2, record)
    p.mov(R3, _TASK.itemsize)
    p.call(Helper.seq_write)
    p.exit(0)
    return p


def _text(raw: np.void) -> str:
    return decode(raw.tobytes().split(b"\0", 1)[0])


def _by_proc(seen: MemcgWalk, root: Root, kind: NDArray[np.int8]) -> tuple[list[UnreapedProcess], str]:
    """The ended processes that /proc shows. On v2 it shows the path of each one's cgroup, too."""
    known = dict(stats(root))
    dead = [(pid, stat) for pid, stat in known.items() if stat.state == "Z" and stat.ppid != 1]
    free: dict[str, list[int]] = {}
    if dead and seen.hierarchy == 2:
        zombies = seen.zombies
        first = np.argsort(~_pageless(kind[zombies]), kind="stable")[::-1]  # taken from the end
        for row, path in zip(zombies[first].tolist(), seen.paths(zombies[first]), strict=True):
            free.setdefault(path, []).append(row)
    found = []
    for number, (pid, stat) in enumerate(dead):
        row = -1
        if free and number < MOST_PATHS:
            try:
                path = cgroup_of(root, pid)
            except Unreadable:
                continue
            if not path.endswith(_DELETED):
                continue  # its cgroup is still there
            rows = free.get(path.removesuffix(_DELETED))
            row = rows.pop() if rows else -1
        parent = known.get(stat.ppid)
        found.append(UnreapedProcess(row, pid, stat.comm, stat.ppid, parent.comm if parent is not None else ""))
    how = "by the paths in /proc/PID/cgroup" if seen.hierarchy == 2 else "by their number"
    return found, f"ended processes are matched {how}"


def _with_parents(root: Root, processes: list[UnreapedProcess]) -> tuple[UnreapedProcess, ...]:
    most = Counter(one.parent_pid for one in processes).most_common(MOST_PARENTS)
    paths: dict[int, str] = {}
    for pid, _ in most:
        try:
            paths[pid] = cgroup_of(root, pid)
        except Unreadable:
            continue
    return tuple(
        UnreapedProcess(
            one.row, one.pid, one.comm, one.parent_pid, one.parent_comm, paths.get(one.parent_pid, "").removesuffix(_DELETED)
        )
        for one in processes
    )
