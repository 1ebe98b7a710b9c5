"""perf.data made by hand, as perf would write it (tools/perf/util/header.c): a header, events, records, features."""

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from exhume.imports.perf_layout import CALLCHAIN, CPU, IDENTIFIER, IP, PERIOD, TID, TIME
from exhume.sources.sampling.records import CONTEXT_KERNEL, CONTEXT_USER
from tests.sources.sampling.made_records import record, text

USUAL = IP | TID | TIME | CPU | PERIOD | CALLCHAIN
SAMPLE_ID_ALL = 1 << 18
FREQ = 1 << 10


class Attr(NamedTuple):
    kind: int = 1
    config: int = 0
    period: int = 99
    sample: int = USUAL
    read: int = 0
    bits: int = SAMPLE_ID_ALL | FREQ
    ids: tuple[int, ...] = (1,)
    clockid: int = 0

    def pack(self) -> bytes:
        head = struct.pack("=IIQQQQQ", self.kind, 128, self.config, self.period, self.sample, self.read, self.bits)
        return (head.ljust(92, b"\0") + struct.pack("=i", self.clockid)).ljust(128, b"\0")


def string(value: str) -> bytes:
    raw = value.encode() + b"\0"
    raw = raw.ljust(-(-len(raw) // 64) * 64, b"\0")
    return struct.pack("=I", len(raw)) + raw


def words(*values: str) -> bytes:
    return struct.pack("=I", len(values)) + b"".join(map(string, values))


def trailer(pid: int, time: int, core: int, sample: int = USUAL, number: int = 1) -> bytes:
    """What ends every record that is no sample, with sample_id_all."""
    found = b""
    if sample & TID:
        found += struct.pack("=II", pid, pid)
    if sample & TIME:
        found += struct.pack("=Q", time)
    if sample & CPU:
        found += struct.pack("=II", core, 0)
    if sample & IDENTIFIER:
        found += struct.pack("=Q", number)
    return found


def sample(
    pid: int,
    time: int,
    core: int = 0,
    kernel: Sequence[int] = (),
    user: Sequence[int] = (),
    tid: int = 0,
    fields: int = USUAL,
    number: int = 1,
) -> bytes:
    """Innermost first."""
    innermost = next(iter((*kernel, *user)), 0)
    chain = [*([CONTEXT_KERNEL, *kernel] if kernel else []), *([CONTEXT_USER, *user] if user else [])]
    body = b""
    if fields & IDENTIFIER:
        body += struct.pack("=Q", number)
    if fields & IP:
        body += struct.pack("=Q", innermost)
    if fields & TID:
        body += struct.pack("=II", pid, tid or pid)
    if fields & TIME:
        body += struct.pack("=Q", time)
    if fields & CPU:
        body += struct.pack("=II", core, 0)
    if fields & PERIOD:
        body += struct.pack("=Q", 1)
    if fields & CALLCHAIN:
        body += struct.pack(f"={1 + len(chain)}Q", len(chain), *chain)
    return record(9, body, misc=1 if kernel else 2)


def comm(pid: int, name: bytes, time: int, by_exec: bool = False) -> bytes:
    body = struct.pack("=II", pid, pid) + text(name) + trailer(pid, time, 0)
    return record(3, body, 1 << 13 if by_exec else 0)


def mmap2(
    pid: int, start: int, length: int, path: bytes, time: int, offset: int = 0, device: int = 0, inode: int = 7, misc: int = 0
) -> bytes:
    head = struct.pack("=IIQQQIIQQII", pid, pid, start, length, offset, device >> 8, device & 0xFF, inode, 3, 5, 2)
    return record(10, head + text(path) + trailer(pid, time, 0), misc)


def mmap2_by_build_id(pid: int, start: int, length: int, path: bytes, time: int, build_id: bytes, offset: int = 0) -> bytes:
    head = struct.pack("=IIQQQBBH20sII", pid, pid, start, length, offset, len(build_id), 0, 0, build_id, 5, 2)
    return record(10, head + text(path) + trailer(pid, time, 0), 1 << 14)


def fork(pid: int, parent: int, time: int, bare: bool = False) -> bytes:
    return record(7, struct.pack("=IIIIQ", pid, parent, pid, parent, time) + trailer(pid, time, 0), 1 << 13 if bare else 0)


def kernel_map(symbol: bytes, address: int) -> bytes:
    head = struct.pack("=iIQQQ", -1, 0, address, 1 << 24, address)
    return record(1, head + text(b"[kernel.kallsyms]" + symbol) + trailer(0, 0, 0), misc=1)


def lost(count: int) -> bytes:
    return record(2, struct.pack("=QQ", 1, count) + trailer(0, 1, 0))


def end_of_round() -> bytes:
    return record(68, b"")


def build_id(path: bytes, value: bytes, pid: int = -1) -> bytes:
    body = struct.pack("=i20sBBH", pid, value, len(value), 0, 0) + path.ljust(-(-(len(path) + 1) // 64) * 64, b"\0")
    return record(67, body, misc=1 << 15 | 2)


def file(
    records: bytes, attrs: Sequence[Attr] = (Attr(),), features: Mapping[int, bytes] | None = None, size: int = -1
) -> bytes:
    """`size` is what it says of its records; -1 for what they have."""
    features = dict(sorted((features or {}).items()))
    ids_at = 104
    ids = b"".join(struct.pack(f"={len(attr.ids)}Q", *attr.ids) for attr in attrs)
    packed, at = b"", ids_at
    for attr in attrs:
        packed += attr.pack() + struct.pack("=QQ", at, 8 * len(attr.ids))
        at += 8 * len(attr.ids)
    attrs_at = ids_at + len(ids)
    data_at = attrs_at + len(packed)
    said = len(records) if size < 0 else size
    bits = sum(1 << bit for bit in features)
    head = struct.pack("=8s8Q", b"PERFILE2", 104, 144, attrs_at, len(packed), data_at, said, 0, 0)
    head += bits.to_bytes(32, "little")
    table, rest = b"", b""
    after = data_at + len(records) + 16 * len(features)
    for content in features.values():
        table += struct.pack("=QQ", after + len(rest), len(content))
        rest += content
    return head + ids + packed + records + table + rest


def pipe(records: bytes, attrs: Sequence[Attr] = (Attr(),), features: Mapping[int, bytes] | None = None) -> bytes:
    told = b"".join(record(64, attr.pack() + struct.pack(f"={len(attr.ids)}Q", *attr.ids)) for attr in attrs)
    told += b"".join(
        record(80, struct.pack("=Q", bit) + content.ljust(-(-len(content) // 8) * 8, b"\0"))
        for bit, content in (features or {}).items()
    )
    return struct.pack("=8sQ", b"PERFILE2", 16) + told + records
