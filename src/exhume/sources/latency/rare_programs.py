"""The programs on events that come seldom, and may therefore be attached all the time: reclaim, the lock of the cgroup
statistics, and transmit queues that a driver's watchdog gave up on.

Beginnings are noted by thread and kind, because a thread can be in two at once: it reclaims for its cgroup while it reclaims
for the node. What is counted goes to one of two banks, as in `hot_maps`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from enum import IntEnum
from functools import partial
from typing import Final, Self

import numpy as np

from exhume.kernel.bpf import R0, R1, R2, R6, R7, R8, R9, Address, Array, Block, Btf, Builder, Hash, Helper, PerCpuArray
from exhume.sources.latency.histogram import HISTOGRAM, add, place
from exhume.sources.latency.hot_maps import NAME_BYTES
from exhume.sources.latency.instructions import find_or_make, increment, leave, note
from exhume.sources.latency.probes import Probe

STARTS: Final = 4096
RECLAIMS: Final = 4096
"""Kinds, cores and cgroups, in both banks together."""
QUEUES: Final = 1024


class Kind(IntEnum):
    """What a thread is in the middle of."""

    DIRECT = 0
    MEMCG = 1
    RSTAT = 2


CONTROL: Final = np.dtype([("bank", "u8"), ("unkept", "u8")])
START_KEY: Final = np.dtype([("tid", "u4"), ("kind", "u4")])
RECLAIM_KEY: Final = np.dtype([("cgroup", "u8"), ("cpu", "u4"), ("kind", "u2"), ("bank", "u2")])
FLUSHES: Final = np.dtype([("all", "u8"), ("forced", "u8")])
QUEUE_KEY: Final = np.dtype([("device", f"V{NAME_BYTES}"), ("netns", "u4"), ("queue", "u4"), ("bank", "u8")])
QUEUE: Final = np.dtype([("count", "u8"), ("last_ns", "u8")])


class Maps:
    """All memory of the programs."""

    def __init__(self) -> None:
        with ExitStack() as undo:
            self.control = undo.enter_context(Block(CONTROL.itemsize))
            self.starts = undo.enter_context(Hash(START_KEY.itemsize, 8, STARTS, lru=True))
            self.reclaims = undo.enter_context(Hash(RECLAIM_KEY.itemsize, HISTOGRAM.itemsize, RECLAIMS))
            self.blank = undo.enter_context(Array(HISTOGRAM.itemsize, 1))
            self.rstat = undo.enter_context(PerCpuArray(HISTOGRAM.itemsize, 2))
            self.flushes = undo.enter_context(PerCpuArray(FLUSHES.itemsize, 2))
            self.queues = undo.enter_context(Hash(QUEUE_KEY.itemsize, QUEUE.itemsize, QUEUES))
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def probes(maps: Maps, types: Callable[[], Btf]) -> list[Probe]:
    def probe(name: str, label: str, build: Callable[[], Builder]) -> Probe:
        return Probe(name, (name,), label, build)

    return [
        probe("mm_vmscan_direct_reclaim_begin", "dir_from", partial(begin, maps, Kind.DIRECT)),
        probe("mm_vmscan_direct_reclaim_end", "dir_to", lambda: reclaim_end(maps, Kind.DIRECT, types())),
        probe("mm_vmscan_memcg_reclaim_begin", "mem_from", partial(begin, maps, Kind.MEMCG)),
        probe("mm_vmscan_memcg_reclaim_end", "mem_to", lambda: reclaim_end(maps, Kind.MEMCG, types())),
        probe("cgroup_rstat_lock_contended", "rst_from", partial(begin, maps, Kind.RSTAT)),
        probe("cgroup_rstat_locked", "rst_to", partial(rstat_locked, maps)),
        probe("memcg_flush_stats", "flush", partial(memcg_flush_stats, maps)),
        probe("net_dev_xmit_timeout", "xmit", lambda: net_dev_xmit_timeout(maps, types())),
    ]


def begin(maps: Maps, kind: Kind) -> Builder:
    """Whatever its arguments are: this thread has begun."""
    p = Builder()
    key = _start_key(p, kind)
    p.call(Helper.ktime_get_ns)
    p.mov(R9, R0)
    note(p, maps.starts, key, R9)
    p.exit(0)
    return p


def reclaim_end(maps: Maps, kind: Kind, btf: Btf) -> Builder:
    """How long this thread reclaimed, by the memory cgroup that it is in."""
    memory = btf.enum("memory_cgrp_id", of="cgroup_subsys_id")
    p = Builder()
    key = p.stack(RECLAIM_KEY.itemsize)
    _took_or_leave(p, maps, kind)
    p.store(key + place(RECLAIM_KEY, "cgroup"), 0)
    p.call(Helper.get_current_task)
    p.read(R6, R0 + btf.offset("task_struct", "cgroups"))
    p.read(R6, R6 + btf.offset("css_set", f"subsys[{memory}]"))
    p.read(R6, R6 + btf.offset("cgroup_subsys_state", "cgroup"))
    p.read(R6, R6 + btf.offset("cgroup", "kn"))
    number = btf.member("kernfs_node", "id")
    p.copy(key + place(RECLAIM_KEY, "cgroup"), number.size, R6 + number.offset)
    p.call(Helper.get_smp_processor_id)
    p.store(key + place(RECLAIM_KEY, "cpu"), R0, 4)
    p.store(key + place(RECLAIM_KEY, "kind"), kind, 2)
    _bank(p, maps)
    p.store(key + place(RECLAIM_KEY, "bank"), R2, 2)
    find_or_make(p, maps.reclaims, key, maps.blank, maps.control, place(CONTROL, "unkept"))
    p.mov(R6, R0)
    add(p, R6 + 0, R8, R9)
    leave(p)
    return p


def rstat_locked(maps: Maps) -> Builder:
    """(struct cgroup *cgrp, int cpu, bool contended): how long this thread waited for the lock, if it did.

    The tracepoints came with 6.10 (fc29e04ae1ad); most hits are without a wait, and end here at once.
    """
    p = Builder()
    key = p.stack(4)
    p.argument(R1, 2)
    p.bit_and(R1, 0xFF)
    p.jump_if(R1, "==", 0, "leave")
    _took_or_leave(p, maps, Kind.RSTAT)
    _bank(p, maps)
    p.store(key, R2, 4)
    p.lookup(maps.rstat, key)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R6, R0)
    add(p, R6 + 0, R8, R9)
    leave(p)
    return p


def memcg_flush_stats(maps: Maps) -> Builder:
    """(struct mem_cgroup *memcg, s64 stats_updates, bool force, bool needs_flush), as 6.13 has it (f914ac96ee88)."""
    p = Builder()
    key = p.stack(4)
    p.argument(R7, 2)
    p.bit_and(R7, 0xFF)
    _bank(p, maps)
    p.store(key, R2, 4)
    p.lookup(maps.flushes, key)
    p.jump_if(R0, "==", 0, "leave")
    increment(p, R0 + place(FLUSHES, "all"))
    with p.when(R7, "!=", 0):
        increment(p, R0 + place(FLUSHES, "forced"))
    leave(p)
    return p


def net_dev_xmit_timeout(maps: Maps, btf: Btf) -> Builder:
    """(struct net_device *dev, int queue_index): the watchdog of a device gave up on a queue (dev_watchdog)."""
    p = Builder()
    key = p.stack(QUEUE_KEY.itemsize)
    p.argument(R6, 0)
    p.argument(R7, 1)
    for at in range(0, QUEUE_KEY.itemsize, 8):
        p.store(key + at, 0)
    p.store(key + place(QUEUE_KEY, "queue"), R7, 4)
    p.copy_string(key + place(QUEUE_KEY, "device"), NAME_BYTES, R6 + btf.offset("net_device", "name"))
    net, inum = btf.offset("net_device", "nd_net.net", optional=True), btf.offset("net", "ns.inum", optional=True)
    if net is not None and inum is not None:
        p.read(R1, R6 + net)
        p.copy(key + place(QUEUE_KEY, "netns"), 4, R1 + inum)
    _bank(p, maps)
    p.store(key + place(QUEUE_KEY, "bank"), R2)
    find_or_make(p, maps.queues, key, maps.blank, maps.control, place(CONTROL, "unkept"))
    p.mov(R6, R0)
    increment(p, R6 + place(QUEUE, "count"))
    p.call(Helper.ktime_get_ns)
    p.store(R6 + place(QUEUE, "last_ns"), R0)
    leave(p)
    return p


# What they have in common


def _start_key(p: Builder, kind: Kind) -> Address:
    key = p.stack(START_KEY.itemsize)
    p.call(Helper.get_current_pid_tgid)
    p.store(key + place(START_KEY, "tid"), R0, 4)
    p.store(key + place(START_KEY, "kind"), kind, 4)
    return key


def _took_or_leave(p: Builder, maps: Maps, kind: Kind) -> None:
    """R9 = now, R8 = nanoseconds since this thread began, which is forgotten; no further if it was not seen to."""
    key = _start_key(p, kind)
    p.lookup(maps.starts, key)
    p.jump_if(R0, "==", 0, "leave")
    p.load(R8, R0 + 0)
    p.mov(R2, key)
    p.map_fd(R1, maps.starts.fd)
    p.call(Helper.map_delete_elem)
    p.call(Helper.ktime_get_ns)
    p.mov(R9, R0)
    p.sub(R0, R8)
    p.mov(R8, R0)


def _bank(p: Builder, maps: Maps) -> None:
    """R2 = the bank to write to."""
    p.address_of(R0, maps.control)
    p.load(R2, R0 + place(CONTROL, "bank"))
