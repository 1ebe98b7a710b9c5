"""Reclaim, faults, swap and writeback from /proc/vmstat."""

import re

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.recording.source_state import Reasons

_NAMES = frozenset(
    "pgfault pgmajfault pswpin pswpout zswpin oom_kill compact_stall nr_dirty nr_writeback nr_dirty_threshold "
    "nr_vmscan_write nr_vmscan_immediate_reclaim balance_dirty_pages "
    "workingset_refault workingset_refault_file workingset_refault_anon "
    "pgscan_kswapd pgscan_direct pgsteal_kswapd pgsteal_direct drop_pagecache drop_slab".split()
)
# Before 4.8 these were counted per zone, allocstall still is (fs/proc, enum vm_event_item): the sum is what is meant.
_SUMMED = ("pgscan_kswapd", "pgscan_direct", "pgsteal_kswapd", "pgsteal_direct", "allocstall")
_ZONES = frozenset(("dma", "dma32", "normal", "high", "movable", "device"))


class Vmstat:
    name = "vmstat"
    every_ns = 1_000_000_000

    def __init__(self, root: Root) -> None:
        self._root = root

    def read(self, recording: Recording, time: int) -> Reasons:
        values = parse_vmstat(self._root.read("proc/vmstat"))
        if not values:
            raise Unreadable("/proc/vmstat has none of the counters that are looked for")
        for name, value in values.items():
            recording.count(time, f"vmstat_{name}", value)
        return ()


# One pattern over the whole file: it has 200 lines, and is read every second.
_LINE = re.compile(
    rb"^(?:(%s)|(%s)(?:_(?:%s))?) (\d{1,19})$"
    % tuple(b"|".join(sorted(name.encode() for name in names)) for names in (_NAMES - set(_SUMMED), _SUMMED, _ZONES)),
    re.MULTILINE,
)


def parse_vmstat(raw: bytes) -> dict[str, int]:
    values: dict[str, int] = {}
    for plain, summed, digits in _LINE.findall(raw):
        name = (plain or summed).decode()
        value = values.get(name, 0) + int(digits)
        if value < 1 << 63:
            values[name] = value
    return values
