"""perf records as the kernel would have written them into a ring of the sampler (include/uapi/linux/perf_event.h)."""

import struct
from collections.abc import Sequence

from exhume.kernel.perf import Record
from exhume.sources.sampling.records import CONTEXT_KERNEL, CONTEXT_USER

COMM_EXEC = 1 << 13


def record(kind: int, body: bytes, misc: int = 0) -> bytes:
    return struct.pack("=IHH", kind, misc, 8 + len(body)) + body


def text(raw: bytes) -> bytes:
    """Ends with a zero byte, and is a whole number of words."""
    return raw + b"\0" * (8 - len(raw) % 8)


def sample(
    pid: int,
    tid: int,
    time: int,
    core: int = 0,
    kernel: Sequence[int] = (),
    user: Sequence[int] = (),
    cgroup: int | None = 1,
    depth: int | None = None,
) -> bytes:
    """Innermost first. `depth` is what it says of its own length."""
    chain = [*([CONTEXT_KERNEL, *kernel] if kernel else []), *([CONTEXT_USER, *user] if user else [])]
    tail = b"" if cgroup is None else struct.pack("=Q", cgroup)
    head = struct.pack("=IIQIIQ", pid, tid, time, core, 0, len(chain) if depth is None else depth)
    return record(Record.SAMPLE, head + struct.pack(f"={len(chain)}Q", *chain) + tail)


def comm(pid: int, tid: int, name: bytes, time: int, by_exec: bool = False) -> bytes:
    body = struct.pack("=II", pid, tid) + text(name) + struct.pack("=Q", time)
    return record(Record.COMM, body, COMM_EXEC if by_exec else 0)


def mmap2(pid: int, start: int, length: int, path: bytes, time: int, offset: int = 0, inode: int = 7) -> bytes:
    head = struct.pack("=IIQQQIIQQII", pid, pid, start, length, offset, 8, 1, inode, 3, 5, 2)
    return record(Record.MMAP2, head + text(path) + struct.pack("=Q", time))


def fork(pid: int, parent: int, time: int, tid: int = 0) -> bytes:
    return record(Record.FORK, struct.pack("=IIIIQQ", pid, parent, tid or pid, parent, time, time))


def exit_of(pid: int, time: int, tid: int = 0) -> bytes:
    return record(Record.EXIT, struct.pack("=IIIIQQ", pid, 1, tid or pid, 1, time, time))


def cgroup(number: int, path: bytes, time: int = 1) -> bytes:
    return record(Record.CGROUP, struct.pack("=Q", number) + text(path) + struct.pack("=Q", time))


def lost(count: int) -> bytes:
    return record(Record.LOST, struct.pack("=QQQ", 1, count, 9))


def lost_samples(count: int) -> bytes:
    return record(Record.LOST_SAMPLES, struct.pack("=QQ", count, 9))


def throttle() -> bytes:
    return record(Record.THROTTLE, struct.pack("=QQQ", 9, 1, 1))
