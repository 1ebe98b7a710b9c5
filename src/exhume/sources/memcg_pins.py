"""Which pages of which files pin a dying memory cgroup: the kernel has them on the LRU lists of the group's own lruvec.

    mem_cgroup.nodeinfo[node] ─▶ lruvec.lists[], or lrugen.folios[] where the lists are generations
                                   ◀─▶ folio.lru ◀─▶ folio.lru ◀─▶ ... back to the head
                                         ├ memcg_data ─▶ the group; otherwise it has just gone elsewhere
                                         ├ index, flags, _mapcount
                                         └ mapping ─▶ host: i_ino, i_generation, i_nlink ─▶ i_sb: s_dev, s_magic

The lists are read without their lock. That can make an answer old, never dangerous: every read is a probe read, a run takes a
bounded number of steps, and a folio counts only while it says itself that it is charged to the group. During a run, which is
one RCU read section, neither the group nor an inode that a page leads to is freed (css_free_rwork_fn, i_callback). Who acts on
an answer opens the file by inode number and generation: an old one opens nothing, or where ext4 has generation 0, which it
takes for any (ext4_nfs_get_inode), a file that loses a clean page.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.kernel.bpf import (
    R0,
    R1,
    R2,
    R6,
    R7,
    R8,
    R9,
    Address,
    Block,
    Btf,
    Builder,
    Features,
    Helper,
    Register,
    Routine,
)  # fmt: skip
from exhume.sources.memcg_program import SECTION_NS, Fields
from exhume.sources.memcg_walk import MemcgWalk, has_generations, memory_nodes

# Steps of one run: each is a folio, or the beginning or the end of a list. Where a kernel has no loops they are unrolled, and a
# jump passes at most 32,767 instructions.
STEPS = 128
REQUESTS = 64

TMPFS_MAGIC = 0x01021994  # include/uapi/linux/magic.h
BDEVFS_MAGIC = 0x62646576

_MAPPING_FLAGS = 3  # include/linux/page-flags.h: a page that is anonymous or the kernel's own to move has no address_space
_LIST_HEAD = 16
_NO_REQUEST = 0xFFFF_FFFF

PINS = np.dtype(
    [
        ("row", "i8"),
        ("magic", "u8"),
        ("dev", "u4"),  # of the file system; of the device itself where it is its own pages that pin (BDEVFS_MAGIC)
        ("generation", "u4"),
        ("ino", "u8"),
        ("index", "u8"),
        ("pages", "u4"),
        ("nlink", "u4"),
        ("size", "i8"),
        ("dirty", "?"),
        ("writeback", "?"),
        ("mapped", "?"),  # this folio, into a running program
        ("file_mapped", "?"),  # any part of the file, by any program
        ("referenced", "?"),  # PG_referenced: read at least once since it was charged
        ("hot", "?"),  # PG_active or PG_workingset: used more than once, or read again after it was reclaimed
        ("held", "?"),  # more references than the page cache's own: eviction would fail and drain every CPU
    ]
)
"""A folio that pins a group. `dev` is the kernel's own dev_t: twelve bits of major, twenty of minor number."""

Pins = NDArray[np.void]


_STATE = np.dtype(
    [
        ("began_ns", "u8"),
        ("at", "u8"),
        ("count", "u8"),
        ("cursor", "u8"),  # 0 between two lists
        ("head", "u8"),
        ("memcg", "u8"),
        ("left", "u8"),
        ("mapping", "u8"),
        ("host", "u8"),
        ("steps", "u8"),
        ("section_ns", "u8"),
    ]
)
_REQUEST = np.dtype([(name, "u8") for name in ("css", "serial", "parent", "node", "list", "most")])
_FOUND = np.dtype(
    [
        ("request", "u4"),
        ("dev", "u4"),
        ("rdev", "u4"),
        ("generation", "u4"),
        ("nlink", "u4"),
        ("pages", "u4"),
        ("mapcount", "i4"),
        ("refcount", "i4"),
        ("ino", "u8"),
        ("index", "u8"),
        ("flags", "u8"),
        ("size", "i8"),
        ("magic", "u8"),
        ("private", "u8"),
        ("file_mapped", "u8"),
    ]
)


@dataclass(frozen=True, slots=True)
class PinFields:
    """Where the running kernel keeps what is asked here; what `folio` is today was `page` before 5.16."""

    lru: int
    mapping: int
    index: int
    flags: int
    mapcount: int
    refcount: int
    private: int
    file_mapped: int | None
    """Root of the tree of a file's mappings, from an address_space."""
    memcg: int
    """memcg_data with flags in its low bits (5.11, bcfe06bf2622), before that a plain pointer."""
    pages: int | None
    """Pages of a large folio; only such a one has it."""
    host: int
    inode_mapping: int
    inode_sb: int
    inode: tuple[tuple[str, int, int], ...]
    """Column, size and offset of what is copied from the inode."""
    sb_dev: int
    sb_magic: int
    css: int
    file_lists: tuple[int, ...]
    """Offsets of list heads from a mem_cgroup_per_node."""
    anon_lists: tuple[int, ...]
    head_bit: int
    dirty_bit: int
    writeback_bit: int
    referenced_bit: int
    hot_bits: int
    """PG_active, which generations of an LRU (CONFIG_LRU_GEN) do not use, and PG_workingset (4.20), which they do."""

    @classmethod
    def of(cls, btf: Btf, walked: Fields) -> Self:
        """Raises BtfError with the name of what the kernel does not have."""
        kind = "folio" if btf.size("folio", optional=True) is not None else "page"
        memcg = btf.offset(kind, "memcg_data", optional=True)
        lruvec = btf.offset("mem_cgroup_per_node", "lruvec")
        lists = lruvec + btf.offset("lruvec", "lists")
        inactive_anon, active_anon, inactive_file, active_file, _ = (lists + _LIST_HEAD * i for i in walked.list_names)
        anon, file = [inactive_anon, active_anon], [inactive_file, active_file]
        if walked.generations is not None:
            # `lists` until 6.2 (6df1b2212950): [generation][anon, file][zone]
            heads = btf.member("lruvec", "lrugen.folios", optional=True) or btf.member("lruvec", "lrugen.lists")
            for i in range(heads.size // _LIST_HEAD):
                (file if i // walked.zones % 2 else anon).append(lruvec + heads.offset + _LIST_HEAD * i)
        columns = {"ino": "i_ino", "generation": "i_generation", "nlink": "i_nlink", "size": "i_size", "rdev": "i_rdev"}
        members = [(name, btf.member("inode", member)) for name, member in columns.items()]
        hot = [btf.enum(name, optional=True) for name in ("PG_active", "PG_workingset")]
        return cls(
            lru=btf.offset(kind, "lru"),
            mapping=btf.offset(kind, "mapping"),
            index=btf.offset(kind, "index"),
            flags=btf.offset(kind, "flags"),
            mapcount=btf.offset(kind, "_mapcount"),
            refcount=btf.offset(kind, "_refcount"),
            private=btf.offset(kind, "private"),
            file_mapped=btf.offset("address_space", "i_mmap.rb_root.rb_node", optional=True),
            memcg=btf.offset(kind, "mem_cgroup") if memcg is None else memcg,
            pages=_pages(btf),
            host=btf.offset("address_space", "host"),
            inode_mapping=btf.offset("inode", "i_mapping"),
            inode_sb=btf.offset("inode", "i_sb"),
            inode=tuple((name, member.size, member.offset) for name, member in members),
            sb_dev=btf.offset("super_block", "s_dev"),
            sb_magic=btf.offset("super_block", "s_magic"),
            css=btf.offset("mem_cgroup", "css"),
            file_lists=tuple(file),
            anon_lists=tuple(anon),
            head_bit=1 << btf.enum("PG_head"),
            dirty_bit=1 << btf.enum("PG_dirty"),
            writeback_bit=1 << btf.enum("PG_writeback"),
            referenced_bit=1 << btf.enum("PG_referenced"),
            hot_bits=sum(1 << bit for bit in hot if bit is not None),
        )


def _pages(btf: Btf) -> int | None:
    for name in ("_nr_pages", "_folio_nr_pages"):
        found = btf.offset("folio", name, optional=True)
        if found is not None:
            return found
    second = btf.offset("page", "compound_nr", optional=True)
    return None if second is None else btf.size("page") + second


class Pinning:
    """Asks the kernel for the pages that pin groups of a walk. A context manager: the program is gone afterwards.

    Raises Unreadable where the kernel does not let it, or does not have a field that is needed.
    """

    def __init__(self, features: Features | None = None) -> None:
        features = features or Features()
        btf = Btf.vmlinux()
        self._walked = Fields.of(btf, generations=has_generations())
        if self._walked.nodeinfo is None or self._walked.lists is None:
            raise Unreadable("this kernel's memory cgroups have no lists of pages that could be read")
        self._fields = PinFields.of(btf, self._walked)
        self._nodes = memory_nodes()
        self._block = Block(_STATE.itemsize + REQUESTS * _REQUEST.itemsize + STEPS * _FOUND.itemsize, features=features)
        try:
            program = _PinProgram(self._walked, self._fields, self._block, features).assemble()
            self._routine = Routine(program, name="exhume_pins", features=features)
        except BaseException:
            self._block.close()
            raise
        self.longest_call_ns = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._routine.close()
        self._block.close()

    def read(
        self, seen: MemcgWalk, rows: Iterable[int], most: int = 8, file: bool = True, pause: Callable[[], None] = lambda: None
    ) -> Pins:
        """Up to `most` pages of each list of each of these groups: its file lists, or those of anonymous memory, where tmpfs
        is. Groups that are gone by now have none. `pause` is called after every stay in the kernel."""
        wanted = self._requests(
            seen, np.fromiter(rows, np.int64), most, self._fields.file_lists if file else self._fields.anon_lists
        )
        parts = []
        at = 0
        while at < len(wanted):
            through, found = self._run(wanted[at : at + REQUESTS]["request"])
            parts.append(self._pins(found, wanted["row"][at : at + REQUESTS]))
            at += through
            pause()
        return np.concatenate(parts) if parts else np.zeros(0, PINS)

    def _requests(self, seen: MemcgWalk, rows: NDArray[np.int64], most: int, lists: tuple[int, ...]) -> NDArray[np.void]:
        rows = rows[seen.parent[rows] >= 0]
        places = [(8 * node, offset) for node in self._nodes for offset in lists]
        wanted = np.zeros((len(rows), len(places)), np.dtype([("row", "i8"), ("request", _REQUEST)]))
        wanted["row"] = rows[:, None]
        asked = wanted["request"]
        asked["css"], asked["serial"] = seen.css[rows, None], seen.serial[rows, None]
        asked["parent"] = seen.css[seen.parent[rows], None]
        asked["node"], asked["list"] = np.array(places, np.uint64).reshape(-1, 2).T
        asked["most"] = most
        return wanted.reshape(-1)

    def _run(self, asked: NDArray[np.void]) -> tuple[int, NDArray[np.void]]:
        """How many requests are done with, and what was found for them."""
        state = np.zeros(1, _STATE)
        state["count"] = len(asked)
        self._block.write(state.tobytes() + np.ascontiguousarray(asked).tobytes())
        self._routine.run()
        raw = self._block.read()
        state = np.frombuffer(raw, _STATE, 1)
        found = np.frombuffer(raw, _FOUND, int(state["steps"][0]), _STATE.itemsize + REQUESTS * _REQUEST.itemsize)
        self.longest_call_ns = max(self.longest_call_ns, int(state["section_ns"][0]))
        # One that time ran out on is asked again from its beginning, unless that would be without end.
        through = max(1, int(state["at"][0]))
        return through, found[found["request"] < through]

    def _pins(self, found: NDArray[np.void], rows: NDArray[np.int64]) -> Pins:
        f = self._fields
        pins = np.zeros(len(found), PINS)
        pins["row"] = rows[found["request"]]
        for name in ("generation", "ino", "index", "nlink", "size", "magic"):
            pins[name] = found[name]
        pins["dev"] = np.where(found["magic"] == BDEVFS_MAGIC, found["rdev"], found["dev"])
        large = (found["flags"] & f.head_bit) != 0
        pins["pages"] = np.where(large, np.clip(found["pages"], 1, 1 << 18), 1)
        for name, bits in (
            ("dirty", f.dirty_bit),
            ("writeback", f.writeback_bit),
            ("referenced", f.referenced_bit),
            ("hot", f.hot_bits),
        ):
            pins[name] = (found["flags"] & bits) != 0
        pins["file_mapped"] = found["file_mapped"] != 0
        # One reference for each page in the cache, one for buffers (folio_attach_private). A mapped folio has more, and so
        # has one in a batch of some CPU. Where the size of a large folio is not known, it counts as held.
        pins["held"] = found["refcount"] != pins["pages"] + (found["private"] != 0)
        # _mapcount is -1 for no mapping; a large folio counts elsewhere, by kernel, and is held while it is mapped.
        pins["mapped"] = np.where(large, pins["held"] & pins["file_mapped"], found["mapcount"] >= 0)
        return pins


class _PinProgram:
    """Assembles the program. R6 is the shared block, R7 the list head of the folio at hand, R8 counts steps, R9 is where the
    folio is written down. What lives from step to step is in the block, where the verifier does not follow it."""

    def __init__(self, walked: Fields, fields: PinFields, block: Block, features: Features) -> None:
        self._walked, self._fields, self._block = walked, fields, block
        self._p = Builder(features)

    def assemble(self) -> Builder:
        p = self._p
        p.address_of(R6, self._block)
        p.call(Helper.ktime_get_ns)
        p.store(_state("began_ns"), R0)
        with p.loop(R8, STEPS) as turn:
            self._step(turn.next)
        p.label("pause")
        p.store(_state("steps"), R8)
        p.call(Helper.ktime_get_ns)
        p.load(R1, _state("began_ns"))
        p.sub(R0, R1)
        p.store(_state("section_ns"), R0)
        p.exit(0)
        return p

    def _step(self, following: str) -> None:
        p = self._p
        p.jump_if(R8, "==", 0, "in time")
        p.call(Helper.ktime_get_ns)
        p.load(R1, _state("began_ns"))
        p.sub(R0, R1)
        p.jump_if(R0, ">", SECTION_NS, "pause")
        p.label("in time")
        p.mov(R9, R8)
        p.mul(R9, _FOUND.itemsize)
        p.add(R9, R6)
        p.add(R9, _STATE.itemsize + REQUESTS * _REQUEST.itemsize)
        p.store(_found("request"), _signed(_NO_REQUEST), 4)
        p.load(R7, _state("cursor"))
        p.jump_if(R7, "!=", 0, "on the list")
        self._begin()
        p.label("on the list")
        self._next()
        p.jump(following)
        p.label("ended")
        p.load(R1, _state("at"))
        p.add(R1, 1)
        p.store(_state("at"), R1)
        p.store(_state("cursor"), 0)

    def _request(self, into: Register) -> None:
        """`into` = the request at hand; ends the run behind the last one."""
        p = self._p
        p.load(R1, _state("at"))
        p.load(into, _state("count"))
        p.jump_if(R1, ">=", into, "pause")
        p.jump_if(R1, ">=", REQUESTS, "pause")
        p.mul(R1, _REQUEST.itemsize)
        p.mov(into, R6)
        p.add(into, R1)
        p.add(into, _STATE.itemsize)

    def _begin(self) -> None:
        """To the head of a list, if the group still is the one that was meant: see WalkProgram._check_cursor."""
        p, f, w = self._p, self._fields, self._walked
        assert w.nodeinfo is not None
        self._request(R7)
        p.load(R0, R7 + _place(_REQUEST, "most"))
        p.store(_state("left"), R0)
        p.load(R0, R7 + _place(_REQUEST, "css"))
        p.sub(R0, f.css)
        p.store(_state("memcg"), R0)
        for name, place in (("serial", w.css_serial), ("parent", w.css_parent)):
            p.load(R1, R7 + _place(_REQUEST, "css"))
            p.read(R0, R1 + place)
            p.load(R1, R7 + _place(_REQUEST, name))
            p.jump_if(R0, "!=", R1, "ended")
        p.load(R1, R7 + _place(_REQUEST, "css"))
        p.read(R0, R1 + w.css_flags, 4)
        p.jump_if(R0, "&", w.released, "ended")
        p.load(R1, R7 + _place(_REQUEST, "css"))
        p.read(R0, R1 + w.css_sibling)
        p.read(R0, R0 + 8)
        p.load(R1, R7 + _place(_REQUEST, "css"))
        p.mov(R1, R1 + w.css_sibling)
        p.jump_if(R0, "!=", R1, "ended")
        p.load(R1, R7 + _place(_REQUEST, "css"))
        p.load(R2, R7 + _place(_REQUEST, "node"))
        p.add(R1, R2)
        p.read(R0, R1 + w.nodeinfo)
        p.jump_if(R0, "==", 0, "ended")
        p.load(R1, R7 + _place(_REQUEST, "list"))
        p.add(R0, R1)
        p.store(_state("head"), R0)
        p.mov(R7, R0)

    def _next(self) -> None:
        """One folio on. Anonymous ones are passed over; one that is not the group's shows that the list has changed."""
        p, f = self._p, self._fields
        p.load(R1, _state("left"))
        p.jump_if(R1, "==", 0, "ended")
        p.sub(R1, 1)
        p.store(_state("left"), R1)
        p.read(R7, R7)
        p.load(R1, _state("head"))
        p.jump_if(R7, "==", R1, "ended")
        p.jump_if(R7, "==", 0, "ended")
        p.store(_state("cursor"), R7)
        p.sub(R7, f.lru)
        p.read(R0, R7 + f.memcg)
        p.bit_and(R0, ~7)
        p.load(R1, _state("memcg"))
        p.jump_if(R0, "!=", R1, "ended")
        p.copy(_state("mapping"), 8, R7 + f.mapping)
        p.load(R1, _state("mapping"))
        p.jump_if(R1, "==", 0, "passed over")
        p.jump_if(R1, "&", _MAPPING_FLAGS, "passed over")
        p.copy(_state("host"), 8, R1 + f.host)
        p.load(R1, _state("host"))
        p.read(R0, R1 + f.inode_mapping)
        p.load(R1, _state("mapping"))
        p.jump_if(R0, "!=", R1, "passed over")
        for name, size, place in (
            ("index", 8, f.index),
            ("flags", 8, f.flags),
            ("mapcount", 4, f.mapcount),
            ("refcount", 4, f.refcount),
            ("private", 8, f.private),
            ("pages", 4, f.pages),
        ):
            if place is not None:
                p.copy(_found(name), size, R7 + place)
        if f.file_mapped is not None:
            p.load(R1, _state("mapping"))
            p.copy(_found("file_mapped"), 8, R1 + f.file_mapped)
        for name, size, place in f.inode:
            p.load(R1, _state("host"))
            p.copy(_found(name), size, R1 + place)
        p.load(R1, _state("host"))
        p.read(R7, R1 + f.inode_sb)
        p.copy(_found("dev"), 4, R7 + f.sb_dev)
        p.copy(_found("magic"), 8, R7 + f.sb_magic)
        p.load(R1, _state("at"))
        p.store(_found("request"), R1, 4)
        p.label("passed over")


def _state(name: str) -> Address:
    return R6 + _place(_STATE, name)


def _found(name: str) -> Address:
    return R9 + _place(_FOUND, name)


def _place(of: np.dtype[Any], name: str) -> int:
    fields = of.fields
    assert fields is not None
    return int(fields[name][1])


def _signed(value: int) -> int:
    return value - (1 << 32)
