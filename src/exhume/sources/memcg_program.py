"""The BPF program that walks the tree of memory cgroups, a bounded number of steps a run, and what it shares with us.

    css_set.subsys[memory] of our own task ─▶ cgroup ─▶ cgroup_root.cgrp.subsys[memory]: the root of the tree

    cgroup_subsys_state (root)
      children ◀─▶ sibling ◀─▶ sibling ◀─▶ ... back to children       in the order of serial_nr, dying ones included
                      │ cgroup.kn ─▶ kernfs_node: id, name
                      │ mem_cgroup: memory, swap and kmem counters; nodeinfo[] ─▶ sizes of the LRU lists
                      └ children ...

A run is one RCU read section (__bpf_prog_test_run_raw_tp in net/bpf/test_run.c, bpf_overflow_handler in kernel/events/core.c).
A group leaves its parent's list by list_del_rcu and is freed a grace period later (css_release_work_fn in
kernel/cgroup/cgroup.c), so whatever is found on a list stays readable until the run ends. Between two runs nothing is sure:
the next one goes on from a pointer only after it has shown that it still is the same group, and still on the list.
That vouches for all its ancestors too, because a group holds a reference to its parent until it is freed (css_free_rwork_fn).
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self

import numpy as np

from exhume.kernel.bpf import R0, R1, R2, R6, R7, R8, R9, Address, Block, Btf, Builder, Features, Helper, Member

NAME_BYTES = 256  # NAME_MAX and the NUL: cgroup directories are made through the VFS, which takes no longer names
# After this long a run takes no further step: memory that is far away or slow makes runs shorter, not sections longer.
SECTION_NS = 300_000

_CSS = "cgroup_subsys_state"
_MEMCG = "mem_cgroup"


class Want(IntEnum):
    """What comes next at the cursor."""

    CHILDREN = 0
    SIBLINGS = 1
    VISIT = 2


class Status(IntEnum):
    """How a run ended."""

    MORE = 0
    DONE = 1
    GONE = 2
    """The group that the last run ended at is not on its list any more."""


STATE = np.dtype(
    [
        ("cursor", "u8"),
        ("serial", "u8"),
        ("parent", "u8"),
        ("after", "u8"),  # siblings up to this serial number have been seen: pass them over
        ("want", "u4"),
        ("status", "u4"),
        ("root", "u8"),
        ("root_cgroup", "u8"),
        ("cgroup_root", "u8"),
        ("began_ns", "u8"),
        ("section_ns", "u8"),
        ("hierarchy", "i4"),
        ("controllers", "u4"),
        ("total", "i4"),
        ("live", "i4"),
        ("dying", "i4"),
        ("steps", "u4"),  # of this run: so many records are of it
    ]
)


@dataclass(frozen=True, slots=True)
class Fields:
    """Where the running kernel keeps what the walk reads. All but the tree itself is None where the kernel does not have it."""

    memory_id: int
    task_cgroups: int
    css_sets_memory: int
    css_cgroup: int
    css_parent: int
    css_sibling: int
    css_children: int
    css_serial: int
    css_flags: int
    cgroup_kn: int
    cgroup_root: int
    root_css: int
    """From a cgroup_root to its own cgroup's css of the memory controller."""
    kn_name: int
    kn_id: Member | None
    online: int
    released: int
    dying: int | None
    usage: int | None
    swap: int | None
    kmem: int | None
    use_hierarchy: int | None
    nodeinfo: int | None
    lists: Member | None
    """Pages on each LRU list: [zone][list], from a mem_cgroup_per_node."""
    generations: Member | None
    """The same where the lists are generations (CONFIG_LRU_GEN): [generation][anon, file][zone]."""
    list_names: tuple[int, int, int, int, int]
    """Indices of the inactive and active anon, the inactive and active file, and the unevictable list."""
    list_count: int
    hierarchy: int | None
    controllers: Member | None
    total: int | None
    live: int | None
    dying_count: int | None
    kernel_pins: bool
    """Whether whole kernel pages hold the group that they are charged to. From 5.13 they hold an obj_cgroup, which goes to the
    parent at rmdir; what was charged stays in the dead group's counters for good (memcg_reparent_objcgs)."""
    slab_pins: bool
    """The same of slab objects, which hold an obj_cgroup from 5.9. One counter has both, pages and objects."""

    @classmethod
    def of(cls, btf: Btf, *, generations: bool) -> Self:
        number = btf.enum("memory_cgrp_id", of="cgroup_subsys_id")
        css = btf.offset(_MEMCG, "css")

        def memcg(path: str) -> int | None:
            found = btf.offset(_MEMCG, path, optional=True)
            return None if found is None else found - css

        names = ("LRU_INACTIVE_ANON", "LRU_ACTIVE_ANON", "LRU_INACTIVE_FILE", "LRU_ACTIVE_FILE", "LRU_UNEVICTABLE")
        inactive_anon, active_anon, inactive_file, active_file, unevictable = (
            btf.enum(name, of="lru_list", optional=True) for name in names
        )
        count = btf.enum("NR_LRU_LISTS", of="lru_list", optional=True)
        # lru_zone_size came with 4.10 (b4536f0c829c). Generations are counted apart from it (lru_gen_update_size, 6.1).
        lists = btf.member("mem_cgroup_per_node", "lru_zone_size", optional=True)
        if None in (inactive_anon, active_anon, inactive_file, active_file, unevictable, count):
            lists = None
        return cls(
            memory_id=number,
            task_cgroups=btf.offset("task_struct", "cgroups"),
            css_sets_memory=btf.offset("css_set", f"subsys[{number}]"),
            css_cgroup=btf.offset(_CSS, "cgroup"),
            css_parent=btf.offset(_CSS, "parent"),
            css_sibling=btf.offset(_CSS, "sibling"),
            css_children=btf.offset(_CSS, "children"),
            css_serial=btf.offset(_CSS, "serial_nr"),
            css_flags=btf.offset(_CSS, "flags"),
            cgroup_kn=btf.offset("cgroup", "kn"),
            cgroup_root=btf.offset("cgroup", "root"),
            root_css=btf.offset("cgroup_root", f"cgrp.subsys[{number}]"),
            kn_name=btf.offset("kernfs_node", "name"),
            kn_id=btf.member("kernfs_node", "id", optional=True),
            online=btf.enum("CSS_ONLINE"),
            released=btf.enum("CSS_RELEASED", optional=True) or 0,
            dying=btf.enum("CSS_DYING", optional=True),
            usage=memcg("memory.usage.counter"),
            # One union: `memsw` counts both on v1, `swap` swap alone on v2. Kernels without v1 have only the second.
            swap=memcg("swap.usage.counter"),
            kmem=memcg("kmem.usage.counter"),
            use_hierarchy=memcg("use_hierarchy"),  # gone with 5.11 (bef8620cd8e0): since then always so
            nodeinfo=memcg("nodeinfo"),
            lists=lists,
            generations=_generations(btf) if lists is not None and generations else None,
            list_names=(inactive_anon or 0, active_anon or 0, inactive_file or 0, active_file or 0, unevictable or 0),
            list_count=count or 1,
            hierarchy=btf.offset("cgroup_root", "hierarchy_id", optional=True),
            controllers=btf.member("cgroup_root", "subsys_mask", optional=True),
            total=btf.offset("cgroup_root", "nr_cgrps.counter", optional=True),
            live=btf.offset("cgroup", "nr_descendants", optional=True),
            dying_count=btf.offset("cgroup", "nr_dying_descendants", optional=True),
            kernel_pins=kernel_pins(btf),
            slab_pins=slab_pins(btf),
        )

    @property
    def zones(self) -> int:
        # BTF has [zone][list] as one dimension (Documentation/bpf/btf.rst, BTF_KIND_ARRAY), so the zones are what is left.
        return self.lists.size // 8 // self.list_count if self.lists is not None else 0

    def record(self, nodes: int) -> np.dtype[np.void]:
        """A group as the program writes it down. `css` is 0 for a step that found none."""
        columns: list[tuple[Any, ...]] = [
            ("css", "u8"),
            ("serial", "u8"),
            ("parent", "u8"),
            ("parent_serial", "u8"),
            ("id", "u8"),
            ("usage", "i8"),
            ("swap", "i8"),
            ("kmem", "i8"),
            ("flags", "u4"),
            ("use_hierarchy", "u4"),
            ("name_bytes", "i8"),
            ("name", f"V{NAME_BYTES}"),
        ]
        if self.nodeinfo is not None and self.lists is not None:
            columns.append(("lists", "i8", (nodes, self.zones, self.list_count)))
            if self.generations is not None:
                columns.append(("generations", "i8", (nodes, self.generations.size // 16 // self.zones, 2, self.zones)))
        return np.dtype(columns)


def slab_pins(btf: Btf) -> bool:
    """obj_cgroup came with 5.9 (bf4f059954dc), and slab objects were charged through it at once (f2fe7b09a52b)."""
    return btf.size("obj_cgroup", optional=True) is None


def kernel_pins(btf: Btf) -> bool:
    """Kernel pages were charged through obj_cgroup from 5.13 (b4e0b68fbd9d). That commit split the pages that one uncharge
    gathers into two counts, and named the first `nr_memory`: a struct of mm/memcontrol.c alone, but BTF has it."""
    return btf.member("uncharge_gather", "nr_memory", optional=True) is None


def _generations(btf: Btf) -> Member | None:
    lruvec = btf.offset("mem_cgroup_per_node", "lruvec", optional=True)
    pages = btf.member("lruvec", "lrugen.nr_pages", optional=True)
    return None if lruvec is None or pages is None else Member(lruvec + pages.offset, pages.size, pages.element_size)


class WalkProgram:
    """Assembles the program. R6 is the shared block, R7 the group at hand, R8 counts steps, R9 is where its record goes."""

    def __init__(self, fields: Fields, nodes: tuple[int, ...], steps: int, block: Block, features: Features) -> None:
        self._fields, self._nodes, self._steps, self._block = fields, nodes, steps, block
        self._record = fields.record(len(nodes))
        self._p = Builder(features)

    def assemble(self) -> Builder:
        p = self._p
        self._held = p.stack(8)
        self._name = p.stack(8)
        p.address_of(R6, self._block)
        p.call(Helper.ktime_get_ns)
        p.store(_state("began_ns"), R0)
        p.load(R7, _state("cursor"))
        p.jump_if(R7, "!=", 0, "resume")
        self._find_root()
        p.jump("over")
        p.label("resume")
        self._check_cursor()
        with p.loop(R8, self._steps) as turn:
            self._step(turn.next)
        p.label("pause")
        p.store(_state("steps"), R8, 4)
        p.store(_state("cursor"), R7)
        p.copy(_state("serial"), 8, R7 + self._fields.css_serial)
        p.copy(_state("parent"), 8, R7 + self._fields.css_parent)
        p.label("over")
        self._count()
        p.call(Helper.ktime_get_ns)
        p.load(R1, _state("began_ns"))
        p.sub(R0, R1)
        p.store(_state("section_ns"), R0)
        p.exit(0)
        return p

    def _find_root(self) -> None:
        """The root of whichever hierarchy has the memory controller. It is never freed (root_mem_cgroup)."""
        p, f = self._p, self._fields
        p.call(Helper.get_current_task)
        p.read(R7, R0 + f.task_cgroups)
        p.read(R7, R7 + f.css_sets_memory)
        p.read(R7, R7 + f.css_cgroup)
        p.read(R7, R7 + f.cgroup_root)
        p.store(_state("cgroup_root"), R7)
        if f.hierarchy is not None:
            p.copy(_state("hierarchy"), 4, R7 + f.hierarchy)
        if f.controllers is not None:
            p.copy(_state("controllers"), min(f.controllers.size, 4), R7 + f.controllers.offset)
        p.read(R7, R7 + f.root_css)
        p.store(_state("root"), R7)
        p.store(_state("cursor"), R7)
        p.read(R1, R7 + f.css_cgroup)
        p.store(_state("root_cgroup"), R1)
        p.store(_state("want"), Want.VISIT, 4)

    def _check_cursor(self) -> None:
        """Freed memory keeps its content for a while, or becomes another group: the serial number is never given twice, and
        only a group that is on the list has a successor that points back to it (list_del_rcu)."""
        p, f = self._p, self._fields
        p.load(R1, _state("root"))
        p.jump_if(R7, "==", R1, "there")
        p.read(R0, R7 + f.css_serial)
        p.load(R1, _state("serial"))
        p.jump_if(R0, "!=", R1, "gone")
        p.read(R0, R7 + f.css_parent)
        p.load(R1, _state("parent"))
        p.jump_if(R0, "!=", R1, "gone")
        p.read(R0, R7 + f.css_flags, 4)
        p.jump_if(R0, "&", f.released, "gone")
        p.read(R0, R7 + f.css_sibling)
        p.read(R0, R0 + 8)
        p.mov(R1, R7 + f.css_sibling)
        p.jump_if(R0, "==", R1, "there")
        p.label("gone")
        p.store(_state("status"), Status.GONE, 4)
        p.jump("over")
        p.label("there")

    def _step(self, following: str) -> None:
        """To the next group in depth-first order, which is written down; or up to the parent, or past one seen before."""
        p, f = self._p, self._fields
        p.jump_if(R8, "==", 0, "in time")
        p.call(Helper.ktime_get_ns)
        p.load(R1, _state("began_ns"))
        p.sub(R0, R1)
        p.jump_if(R0, ">", SECTION_NS, "pause")
        p.label("in time")
        p.mov(R9, R8)
        p.mul(R9, self._record.itemsize)
        p.add(R9, R6)
        p.add(R9, STATE.itemsize)
        p.store(self._column("css"), 0)
        p.load(R1, _state("want"), 4)
        p.jump_if(R1, "==", Want.VISIT, "visit")
        p.jump_if(R1, "==", Want.SIBLINGS, "siblings")

        p.read(R0, R7 + f.css_children)
        p.mov(R1, R7 + f.css_children)
        p.jump_if(R0, "!=", R1, "arrive")
        p.store(_state("after"), 0)

        p.label("siblings")
        p.load(R1, _state("root"))
        p.jump_if(R7, "==", R1, "done")
        p.copy(self._held, 8, R7 + f.css_parent)
        p.read(R0, R7 + f.css_sibling)
        p.load(R1, self._held)
        p.mov(R2, R1 + f.css_children)
        p.jump_if(R0, "!=", R2, "arrive")
        p.mov(R7, R1)
        p.store(_state("want"), Want.SIBLINGS, 4)
        p.store(_state("after"), 0)
        p.jump(following)

        p.label("done")
        p.store(_state("status"), Status.DONE, 4)
        p.jump("pause")

        p.label("arrive")
        p.mov(R7, R0)
        p.sub(R7, f.css_sibling)
        p.store(_state("want"), Want.SIBLINGS, 4)
        p.load(R1, _state("after"))
        p.jump_if(R1, "==", 0, "visit")
        p.read(R0, R7 + f.css_serial)
        p.load(R1, _state("after"))
        p.jump_if(R0, "<=", R1, following)

        p.label("visit")
        p.store(_state("after"), 0)
        p.store(_state("want"), Want.CHILDREN, 4)
        self._write_down()

    def _write_down(self) -> None:
        p, f = self._p, self._fields
        p.store(self._column("css"), R7)
        p.copy(self._column("serial"), 8, R7 + f.css_serial)
        p.copy(self._column("flags"), 4, R7 + f.css_flags)
        p.copy(self._column("parent"), 8, R7 + f.css_parent)
        p.load(R1, self._column("parent"))
        p.copy(self._column("parent_serial"), 8, R1 + f.css_serial)
        for name, place in (("usage", f.usage), ("swap", f.swap), ("kmem", f.kmem)):
            if place is not None:
                p.copy(self._column(name), 8, R7 + place)
        if f.use_hierarchy is not None:
            p.copy(self._column("use_hierarchy"), 1, R7 + f.use_hierarchy)
        self._write_name()
        self._write_lists()

    def _write_name(self) -> None:
        """A v1 directory can be renamed, and before 6.15 its old name is freed at once: kernfs_rename_ns puts the new one in
        place first, so that a name whose pointer is still there after the copy was not freed during it."""
        p, f = self._p, self._fields
        p.read(R1, R7 + f.css_cgroup)
        p.copy(self._held, 8, R1 + f.cgroup_kn)
        if f.kn_id is not None:
            p.load(R1, self._held)
            p.copy(self._column("id"), f.kn_id.size, R1 + f.kn_id.offset)
        for _ in range(2):
            p.load(R1, self._held)
            p.copy(self._name, 8, R1 + f.kn_name)
            p.load(R1, self._name)
            p.copy_string(self._column("name"), NAME_BYTES, R1)
            p.store(self._column("name_bytes"), R0)
            p.load(R1, self._held)
            p.read(R0, R1 + f.kn_name)
            p.load(R1, self._name)
            p.jump_if(R0, "==", R1, "named")
        p.store(self._column("name_bytes"), 0)
        p.label("named")

    def _write_lists(self) -> None:
        """LRU lists are counted exactly, under their lock; the counters of memory.stat wait for a flush."""
        p, f = self._p, self._fields
        if f.nodeinfo is None or f.lists is None:
            return
        for index, node in enumerate(self._nodes):
            p.copy(self._held, 8, R7 + f.nodeinfo + 8 * node)
            for name, member in (("lists", f.lists), ("generations", f.generations)):
                if member is not None:
                    p.load(R1, self._held)
                    p.copy(self._column(name) + index * member.size, member.size, R1 + member.offset)

    def _count(self) -> None:
        """The kernel's own numbers, to see whether they change under the walk."""
        p, f = self._p, self._fields
        if f.total is not None:
            p.load(R1, _state("cgroup_root"))
            p.copy(_state("total"), 4, R1 + f.total)
        for name, place in (("live", f.live), ("dying", f.dying_count)):
            if place is not None:
                p.load(R1, _state("root_cgroup"))
                p.copy(_state(name), 4, R1 + place)

    def _column(self, name: str) -> Address:
        return R9 + _place(self._record, name)


def _state(name: str) -> Address:
    return R6 + _place(STATE, name)


def _place(of: np.dtype[np.void], name: str) -> int:
    fields = of.fields
    assert fields is not None
    return int(fields[name][1])
