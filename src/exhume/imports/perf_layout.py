"""What a perf.data says of its events (struct perf_event_attr): their names, and where their samples have what."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from exhume.imports import event_names
from exhume.sources.sampling.records import Layout
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
_NO_USER, _NO_KERNEL, _NO_HOST, _NO_GUEST = 1 << 4, 1 << 5, 1 << 19, 1 << 20
_ENABLE_ON_EXEC: Final = 1 << 12
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
# enum perf_type_id; units have numbers of their own from there on, and the first unit of the cores has that of RAW.
_TYPE_HARDWARE, _TYPE_SOFTWARE, _TYPE_TRACEPOINT, _TYPE_CACHE, _TYPE_RAW, _TYPE_BREAKPOINT = range(6)
_UNIT_SHIFT: Final = 32  # PERF_PMU_TYPE_SHIFT: of a machine with two kinds of cores, whose cycles
_LOW: Final = (1 << 32) - 1
_DUMMY: Final = (_TYPE_SOFTWARE, 9)


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
        """How often samples were taken; 0 where they were taken after so many events, or stand for no time."""
        if not self.called_clock:
            return 0
        if self.bits & _FREQ:
            return min(self.period, 1 << 31)
        # These count nanoseconds (cpu_clock_event_* in kernel/events/core.c).
        return round(1e9 / self.period) if self.kind == _TYPE_SOFTWARE and self.period else 0

    @property
    def called_clock(self) -> str:
        """Which clock it is (event_names.CLOCKS), whatever it is called; "" if it is none."""
        if self.kind in (_TYPE_HARDWARE, _TYPE_SOFTWARE):
            return event_names.clock(_called(self.kind, self.config))
        if self.kind in (_TYPE_TRACEPOINT, _TYPE_CACHE, _TYPE_BREAKPOINT):
            return ""
        # Only a unit knows what its numbers stand for: perf has written the name.
        return "cycles" if event_names.plain(self.name) in event_names.CYCLES else ""

    @property
    def counts(self) -> tuple[object, ...]:
        """The same for events that count the same, on the same kind of cores or on another."""
        if self.kind in (_TYPE_HARDWARE, _TYPE_CACHE):
            return self.kind, self.config & _LOW
        if self.kind in (_TYPE_SOFTWARE, _TYPE_TRACEPOINT) or not event_names.parse(self.name).unit:
            return self.kind, self.config, self.name if self.kind == _TYPE_BREAKPOINT else ""
        return ("unit", event_names.plain(self.name))

    @property
    def unit(self) -> int:
        return self.config >> _UNIT_SHIFT or _TYPE_RAW if self.kind in (_TYPE_HARDWARE, _TYPE_CACHE) else self.kind

    def apart(self, other: "Event") -> bool:
        """Nothing can have been counted by both."""
        return self.unit != other.unit or any(
            (self.bits & one and other.bits & another) or (self.bits & another and other.bits & one)
            for one, another in ((_NO_USER, _NO_KERNEL), (_NO_HOST, _NO_GUEST))
        )

    @property
    def kernel_only(self) -> bool:
        return bool(self.bits & _NO_USER_CHAIN)

    @property
    def every_core(self) -> bool:
        """Whether whatever ran was sampled, and not one command or process (evsel__config in tools/perf/util/evsel.c)."""
        return bool(self.sample & CPU) and not self.bits & _ENABLE_ON_EXEC

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
    names = {_TYPE_HARDWARE: _HARDWARE, _TYPE_SOFTWARE: _SOFTWARE}.get(kind, ())
    config = config & _LOW if kind == _TYPE_HARDWARE else config
    return names[config] if config < len(names) else f"type {kind}, config {config:#x}"


def choose(events: Sequence[Event], wanted: str = "") -> list[int]:
    """Whose samples to take: one event's, and of those that count the same what it does not: a machine with two kinds of
    cores counts cycles by two events, and some count those of the kernel and of user space apart."""
    if wanted:
        names = (
            [event.name for event in events],
            [_called(event.kind, event.config) for event in events],
            [event_names.plain(event.name) for event in events],
            [event.name.split("/")[0] for event in events],
        )
        return next((_together(events, found) for each in names if (found := _where(each, wanted))), [])
    sampling = [at for at, event in enumerate(events) if event.period and (event.kind, event.config) != _DUMMY]
    clocks = [event.called_clock for event in events]
    for preferred in event_names.CLOCKS:
        if found := [at for at in sampling if clocks[at] == preferred]:
            return _together(events, found)
    first = next(iter(sampling), 0)
    return _together(events, [at for at in sampling if events[at].counts == events[first].counts] or [0])


def _where(names: Sequence[str], wanted: str) -> list[int]:
    return [at for at, name in enumerate(names) if name == wanted]


def _together(events: Sequence[Event], found: Sequence[int]) -> list[int]:
    """Those of them that have no sample in common, the one that counts most before others."""
    first = events[found[0]]
    same = [at for at in found if events[at].counts == first.counts or (events[at].called_clock and first.called_clock)]
    taken: list[int] = []
    for at in sorted(same, key=lambda at: (events[at].bits & (_NO_USER | _NO_KERNEL)).bit_count()):
        if all(events[at].apart(events[other]) for other in taken):
            taken.append(at)
    return sorted(taken)


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


def period_at(event: Event) -> int:
    """Where this event's samples have how many events each stands for; -1 if nowhere."""
    if not event.sample & PERIOD:
        return -1
    return 1 + sum(bool(event.sample & bit) for bit in _WRITTEN[: _WRITTEN.index(PERIOD)])


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
