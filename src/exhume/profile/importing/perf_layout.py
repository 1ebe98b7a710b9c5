"""What a perf.data says of its events (struct perf_event_attr): their names, and where their samples have what."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from exhume.profile.records import Layout
from exhume.text import decode

# enum perf_event_sample_format.
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD, STREAM_ID = (1 << bit for bit in range(10))
STACK_USER: Final = 1 << 13
IDENTIFIER, AUX, CGROUP, DATA_PAGE_SIZE, CODE_PAGE_SIZE = 1 << 16, 1 << 20, 1 << 21, 1 << 22, 1 << 23

# The order in which perf_output_sample (kernel/events/core.c) writes a sample up to what is read with it, a word each.
_WRITTEN: Final = (IDENTIFIER, IP, TID, TIME, ADDR, ID, STREAM_ID, CPU, PERIOD)
# What ends all other records after the time (__perf_event__output_id_sample).
_AFTER_TIME: Final = (ID, STREAM_ID, CPU, IDENTIFIER)
# enum perf_event_read_format.
_ENABLED, _RUNNING, _READ_ID, _GROUP, _LOST = (1 << bit for bit in range(5))
# Bits of struct perf_event_attr, from `disabled` on.
_FREQ, _SAMPLE_ID_ALL, _NO_USER_CHAIN, _USE_CLOCKID = 1 << 10, 1 << 18, 1 << 22, 1 << 25
_SMALLEST: Final = 64  # PERF_ATTR_SIZE_VER0
_ATTR = struct.Struct("<IIQQQQQ")  # type, size, config, period or frequency, sample_type, read_format, bits
_CLOCKID = struct.Struct("<i")
_CLOCKID_AT: Final = 92

# enum perf_hw_id and enum perf_sw_ids, as perf calls them.
_HARDWARE: Final = (
    "cycles", "instructions", "cache-references", "cache-misses", "branches", "branch-misses", "bus-cycles",
    "stalled-cycles-frontend", "stalled-cycles-backend", "ref-cycles",
)  # fmt: skip
_SOFTWARE: Final = (
    "cpu-clock", "task-clock", "page-faults", "context-switches", "cpu-migrations", "minor-faults", "major-faults",
    "alignment-faults", "emulation-faults", "dummy", "bpf-output", "cgroup-switches",
)  # fmt: skip
CLOCKS: Final = ("cycles", "cpu-cycles", "cpu-clock", "task-clock")
"""What cores are sampled by, the better first."""


class Event(NamedTuple):
    """An event that was recorded."""

    kind: int
    config: int
    period: int
    sample: int
    read: int
    bits: int
    clockid: int
    ids: tuple[int, ...] = ()
    name: str = ""

    @property
    def hz(self) -> int:
        """0 where samples were taken after so many events, not so often."""
        return min(self.period, 1 << 31) if self.bits & _FREQ else 0

    @property
    def kernel_only(self) -> bool:
        return bool(self.bits & _NO_USER_CHAIN)

    @property
    def clock(self) -> int:
        """The clock it was told to use (clockid_t); -1 for perf's own, which is that of the kernel's log."""
        return self.clockid if self.bits & _USE_CLOCKID else -1


def parse_event(raw: bytes, ids: Sequence[int] = (), name: str = "") -> Event | None:
    """None where it is too short to be one."""
    if len(raw) < _SMALLEST:
        return None
    kind, _, config, period, sample, read, bits = _ATTR.unpack_from(raw)
    clockid = _CLOCKID.unpack_from(raw, _CLOCKID_AT)[0] if len(raw) >= _CLOCKID_AT + 4 else 0
    return Event(kind, config, period, sample, read, bits, clockid, tuple(ids), name or _called(kind, config))


def _called(kind: int, config: int) -> str:
    names = {0: _HARDWARE, 1: _SOFTWARE}.get(kind, ())
    return names[config] if config < len(names) else f"type {kind}, config {config:#x}"


def plain_name(name: str) -> str:
    """Without PMU and modifiers: cycles of `cpu_core/cycles/`, `cycles:ppp` and `cycles:P`."""
    inner = name.split("/")[1] if name.count("/") >= 2 else name.split(":")[0]
    return inner or name


def choose(events: Sequence[Event], wanted: str = "") -> list[int]:
    """Whose samples to take: all of one name, since a machine with two kinds of cores counts cycles by two events."""
    if wanted:
        same = [at for at, event in enumerate(events) if wanted == event.name]
        return same or [at for at, event in enumerate(events) if wanted == plain_name(event.name)]
    names = [plain_name(event.name) for event in events]
    sampling = [at for at, event in enumerate(events) if event.period and names[at] != "dummy"]
    for preferred in CLOCKS:
        if found := [at for at in sampling if names[at] == preferred]:
            return found
    first = next(iter(sampling), 0)
    return [at for at in range(len(events)) if names[at] == names[first]]


def layout(event: Event) -> Layout:
    """Where this event's samples have what."""
    places: dict[int, int] = {}
    at = 1
    for bit in _WRITTEN:
        if event.sample & bit:
            places[bit] = at
            at += 1
    group, group_words = -1, (0, 0)
    if event.sample & READ:
        times = bool(event.read & _ENABLED) + bool(event.read & _RUNNING)
        each = 1 + bool(event.read & _READ_ID) + bool(event.read & _LOST)
        if event.read & _GROUP:
            group, group_words = at, (1 + times, each)
        else:
            at += times + each
    identifier = places.get(IDENTIFIER, places.get(ID, -1))
    return Layout(
        task=places.get(TID, -1),
        time=places.get(TIME, -1),
        core=places.get(CPU, -1),
        chain=at if event.sample & CALLCHAIN else -1,
        ip=places.get(IP, -1),
        identifier=identifier,
        cgroup=_cgroup(event.sample),
        group=group,
        group_words=group_words,
    )


def _cgroup(sample: int) -> int:
    """In words from the end: two that have one word each may follow, and what an AUX area held, which has any size."""
    if not sample & CGROUP or sample & AUX:
        return 0
    return 1 + bool(sample & DATA_PAGE_SIZE) + bool(sample & CODE_PAGE_SIZE)


def clock(event: Event) -> int:
    """Where records other than samples have their time, in words from their end; 0 if they have none."""
    if not event.bits & _SAMPLE_ID_ALL or not event.sample & TIME:
        return 0
    return 1 + sum(bool(event.sample & bit) for bit in _AFTER_TIME)


def text_of(raw: bytes) -> str:
    """A string as perf writes it: its length with all padding, then itself (do_write_string in tools/perf/util/header.c)."""
    if len(raw) < 4:
        return ""
    (length,) = struct.unpack_from("<I", raw)
    return decode(raw[4 : 4 + length].split(b"\0", 1)[0])
