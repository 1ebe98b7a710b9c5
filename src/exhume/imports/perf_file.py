"""The frame of a perf.data: its header, its events and the sections of features (tools/perf/util/header.c).

A file that perf wrote to a pipe has all of that as records, at its beginning; they are read here, too.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from exhume.errors import ExhumeError
from exhume.host.quantities import counted
from exhume.imports import perf_command, perf_layout
from exhume.imports.incoming import Damaged, Input
from exhume.imports.perf_layout import Event, text_of
from exhume.text import decode

MAGIC: Final = b"PERFILE2"
_FOREIGN: Final = b"2ELIFREP"
_OLD: Final = b"PERFFILE"
MAGICS: Final = (MAGIC, _FOREIGN, _OLD)
_HEADER = struct.Struct("<8s12Q")  # magic, size, size of an attr, then offset and size of attrs, data and types; 4 of features
_PIPE_SIZE: Final = 16
_SECTION = struct.Struct("<QQ")
_RECORD = struct.Struct("<IHH")
_BUILD_ID = struct.Struct("<i20sBBH")  # pid, build id, its length, reserved
_BUILD_ID_SIZE: Final = 1 << 15  # PERF_RECORD_MISC_BUILD_ID_SIZE
_WORD = struct.Struct("<Q")

# HEADER_*: bits of the header.
TRACING_DATA, BUILD_ID, HOSTNAME, OSRELEASE, ARCH, NRCPUS, CMDLINE, EVENT_DESC = 1, 2, 3, 4, 6, 7, 11, 12
AUXTRACE, SAMPLE_TIME, DIR_FORMAT, PACKED, CLOCK_DATA = 18, 21, 24, 27, 29
_READ: Final = frozenset((BUILD_ID, HOSTNAME, OSRELEASE, ARCH, NRCPUS, CMDLINE, EVENT_DESC, SAMPLE_TIME, CLOCK_DATA))
_FEATURES: Final = 256

# PERF_RECORD_*, of perf's own (tools/lib/perf/include/perf/event.h).
HEADER_ATTR, HEADER_TRACING_DATA, HEADER_BUILD_ID, FINISHED_ROUND, RECORD_AUXTRACE = 64, 66, 67, 68, 71
EVENT_UPDATE, HEADER_FEATURE, COMPRESSED, COMPRESSED2 = 78, 80, 81, 83
OWN: Final = 64
_UPDATE_NAME: Final = 2  # PERF_EVENT_UPDATE__NAME

MOST_EVENTS: Final = 1024
MOST_IDS: Final = 1 << 20
_MOST_WORDS: Final = 4096
_LARGEST_SECTION: Final = 16 << 20
_LARGEST_BEGIN: Final = 64 << 20
_MOST_BUILD_IDS: Final = 1 << 16


class ClockData(NamedTuple):
    """The wall clock and the clock of the samples at one moment."""

    clockid: int
    real: int
    time: int


@dataclass(slots=True)
class Described:
    """What a file says besides its records."""

    events: list[Event] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    """Of the events with that id."""
    hostname: str = ""
    kernel: str = ""
    arch: str = ""
    cpus: int = 0
    of_some: bool = False
    """perf was told to sample some processes, and not whatever ran."""
    build_ids: dict[bytes, bytes] = field(default_factory=dict)
    """Of files by path; b"" where two have been at one path."""
    kernel_build_id: bytes = b""
    last_sample: int = 0
    clock_data: ClockData | None = None
    packed: bool = False
    """By zstd (HEADER_COMPRESSED)."""
    notes: list[str] = field(default_factory=list)

    def named_events(self) -> list[Event]:
        """The events with the names that were written down for them."""
        return [
            event._replace(name=next((self.names[one] for one in event.ids if one in self.names), event.name))
            for event in self.events
        ]


@dataclass(slots=True)
class PerfFile:
    described: Described
    begin: bytes
    """What was read of the records already."""
    left: int
    """How many bytes of records follow in the input; -1 if they go on to its end."""
    pipe: bool


def opened(source: Input) -> PerfFile:
    magic = source.head(8)
    if magic == _FOREIGN:
        raise ExhumeError(
            f"{source.name} was recorded on a machine of the other byte order: run perf script there, and import its text"
        )
    if magic == _OLD:
        raise ExhumeError(
            f"{source.name} was recorded by a perf older than Linux 3.2: run perf script there, and import its text"
        )
    head = source.head(_HEADER.size)
    if len(head) < _PIPE_SIZE:
        raise Damaged(f"{source.name} ends at byte {len(head)}, in the middle of its header")
    (size,) = _WORD.unpack_from(head, 8)
    if size == _PIPE_SIZE:
        source.exactly(_PIPE_SIZE)
        return _opened_pipe(source)
    if len(head) < _HEADER.size:
        raise Damaged(f"{source.name} ends at byte {len(head)}, in the middle of its header")
    if size != _HEADER.size:
        raise Damaged(
            f"{source.name} has a header of {counted(size, 'byte')}, at byte 8: perf.data has {_HEADER.size}, or {_PIPE_SIZE}"
        )
    return _opened_file(source, head)


def _opened_file(source: Input, head: bytes) -> PerfFile:
    _, _, attr_size, attrs_at, attrs_size, data_at, data_size, _, _, *bits = _HEADER.unpack(head)
    features = [bit for bit in range(_FEATURES) if bits[bit // 64] >> bit % 64 & 1]
    described = Described(packed=PACKED in features)
    if DIR_FORMAT in features:
        raise ExhumeError(
            f"{source.name} is of a recording with --threads, whose samples are in the files beside it: "
            "run perf script on their directory, and import its text"
        )
    if not _HEADER.size <= data_at <= _LARGEST_BEGIN:
        raise Damaged(f"{source.name} has its records at byte {data_at}, says byte 40 of its header")
    begin = source.exactly(data_at)
    if len(begin) < data_at:
        raise Damaged(f"{source.name} ends at byte {len(begin)}, before its records, which begin at byte {data_at}")

    def piece(offset: int, size: int) -> bytes:
        if offset + size <= len(begin):
            return begin[offset : offset + size]
        if size > _LARGEST_SECTION or offset >= 1 << 62 or not source.seekable:
            return b""
        return os.pread(source.fileno(), size, offset)

    _read_attrs(source, described, piece(attrs_at, min(attrs_size, _LARGEST_SECTION)), attr_size, attrs_at, piece)
    left = data_size
    if not data_size:
        described.notes.append("perf was ended before it could finish the file: it is read to its end")
        left = -1
    elif source.seekable and data_at + data_size > source.size:
        pass  # it is cut, as who reads the records will find
    elif not source.seekable:
        described.notes.append(
            "what perf writes at the end (names of events, the host, build ids) is not read of a pipe or of a packed file: "
            "give the plain file"
        )
    else:
        table = piece(data_at + data_size, _SECTION.size * len(features))
        for bit, at in zip(features, range(0, len(table) - _SECTION.size + 1, _SECTION.size), strict=False):
            if bit in _READ:
                _feature(described, bit, piece(*_SECTION.unpack_from(table, at)))
    if AUXTRACE in features:
        described.notes.append(
            "what the processor traced (AUXTRACE: Intel PT, Arm SPE ...) is passed over: only samples are read"
        )
    return PerfFile(described, b"", left, pipe=False)


def _read_attrs(
    source: Input, described: Described, raw: bytes, each: int, at: int, piece: Callable[[int, int], bytes]
) -> None:
    if not 64 + _SECTION.size <= each <= 4096:
        raise Damaged(f"{source.name} has events of {counted(each, 'byte')}, says byte 16 of its header")
    for place in range(0, len(raw) - each + 1, each):
        ids_at, ids_size = _SECTION.unpack_from(raw, place + each - _SECTION.size)
        event = perf_layout.parse_event(
            raw[place : place + each - _SECTION.size], _words(piece(ids_at, min(ids_size, 8 * MOST_IDS)))
        )
        if event is not None and len(described.events) < MOST_EVENTS:
            described.events.append(event)
    if not described.events:
        raise Damaged(f"{source.name} has no event, at byte {at}")


def _opened_pipe(source: Input) -> PerfFile:
    """Records of perf's own come first; what is not one of them is where the samples begin."""
    described = Described()
    data, at = b"", 0
    while True:
        if len(data) - at < 1 << 16 and (more := source.read()):
            data, at = data[at:] + more, 0
            continue
        if len(data) - at < _RECORD.size:
            break
        kind, misc, size = _RECORD.unpack_from(data, at)
        if (
            kind not in (HEADER_ATTR, EVENT_UPDATE, HEADER_FEATURE, HEADER_BUILD_ID)
            or not _RECORD.size <= size <= len(data) - at
        ):
            break
        take_record(described, kind, misc, data[at : at + size])
        at += size
    if not described.events:
        raise Damaged(f"{source.name} has no event before its records, which begin at byte {source.at - len(data) + at}")
    return PerfFile(described, data[at:], -1, pipe=True)


def take_record(described: Described, kind: int, misc: int, raw: bytes) -> None:
    """A record that stands for what is a section in a file that is no pipe's."""
    if kind == HEADER_ATTR and len(raw) >= 16:
        (size,) = struct.unpack_from("<I", raw, 12)
        size = size or 64
        event = perf_layout.parse_event(raw[8 : 8 + size], _words(raw[8 + size :]))
        if event is not None and len(described.events) < MOST_EVENTS:
            described.events.append(event)
    elif kind == EVENT_UPDATE and len(raw) >= 24:
        what, number = struct.unpack_from("<QQ", raw, 8)
        if what == _UPDATE_NAME and len(described.names) < MOST_IDS:
            described.names[number] = decode(raw[24:].split(b"\0", 1)[0])
    elif kind == HEADER_FEATURE and len(raw) >= 16:
        (bit,) = _WORD.unpack_from(raw, 8)
        _feature(described, bit, raw[16:])
    elif kind == HEADER_BUILD_ID:
        _take_build_id(described, misc, raw)


def _words(raw: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(raw) // 8}Q", raw[: len(raw) & ~7])


def _feature(described: Described, bit: int, raw: bytes) -> None:
    if bit == HOSTNAME:
        described.hostname = text_of(raw)
    elif bit == OSRELEASE:
        described.kernel = text_of(raw)
    elif bit == ARCH:
        described.arch = text_of(raw)
    elif bit == NRCPUS and len(raw) >= 8:
        described.cpus = min(struct.unpack_from("<II", raw)[1], 1 << 16)  # those online
    elif bit == CMDLINE:
        described.of_some = perf_command.of_some(list(_strings(raw)))
    elif bit == EVENT_DESC:
        for ids, name in _descriptions(raw):
            described.names.update((number, name) for number in ids)
    elif bit == SAMPLE_TIME and len(raw) >= 16:
        last = struct.unpack_from("<QQ", raw)[1]
        described.last_sample = last if last < 1 << 62 else 0
    elif bit == CLOCK_DATA and len(raw) >= 24:
        _, clockid, real, time = struct.unpack_from("<IiQQ", raw)
        if real < 1 << 62 and time < 1 << 62:
            described.clock_data = ClockData(clockid, real, time)
    elif bit == BUILD_ID:
        at = 0
        while at + _RECORD.size <= len(raw):
            _, misc, size = _RECORD.unpack_from(raw, at)
            if size < _RECORD.size:
                break
            _take_build_id(described, misc, raw[at : at + size])
            at += size


def _strings(raw: bytes) -> Iterator[str]:
    """How many, then each with its length (write_cmdline)."""
    at = 4
    for _ in range(min(struct.unpack_from("<I", raw)[0], _MOST_WORDS) if len(raw) >= 4 else 0):
        if at + 4 > len(raw):
            return
        end = at + 4 + int(struct.unpack_from("<I", raw, at)[0])
        yield text_of(raw[at:end])
        at = end


def _descriptions(raw: bytes) -> Iterator[tuple[tuple[int, ...], str]]:
    """HEADER_EVENT_DESC: how many, how long an attr is; then each with its number of ids, its name and the ids."""
    if len(raw) < 8:
        return
    number, attr_size = struct.unpack_from("<II", raw)
    at = 8
    for _ in range(min(number, MOST_EVENTS)):
        at += attr_size
        if at + 8 > len(raw):
            return
        ids, length = struct.unpack_from("<II", raw, at)
        name = text_of(raw[at + 4 : at + 8 + length])
        at += 8 + length
        if at + 8 * ids > len(raw):
            return
        yield _words(raw[at : at + 8 * ids]), name
        at += 8 * ids


def _take_build_id(described: Described, misc: int, raw: bytes) -> None:
    if len(raw) < _RECORD.size + _BUILD_ID.size or len(described.build_ids) >= _MOST_BUILD_IDS:
        return
    _, build_id, length, _, _ = _BUILD_ID.unpack_from(raw, _RECORD.size)
    if misc & _BUILD_ID_SIZE:
        build_id = build_id[:length]
    build_id = build_id.rstrip(b"\0")
    path = raw[_RECORD.size + _BUILD_ID.size :].split(b"\0", 1)[0]
    if path.startswith(b"[kernel.kallsyms]") or path == b"[kernel]":
        described.kernel_build_id = build_id
    elif build_id:
        known = described.build_ids.setdefault(path, build_id)
        if known != build_id:
            described.build_ids[path] = b""
