"""Which threads to watch: ksoftirqd, those that poll network devices, and others by name. All tasks are gone through, seldom.

A device whose NAPI is threaded (`/sys/class/net/DEVICE/threaded`) is polled by kernel threads of its own, napi/DEVICE-ID
(napi_kthread_create in net/core/dev.c). What such a thread polls is the data that it was made with.
"""

import re
import sys
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from exhume.kernel.bpf import R1, R2, R3, R6, R7, R8, R9, Btf, Builder, Features, Helper, Tasks
from exhume.kernel.bpf.features import HERE
from exhume.text import decode

MOST: Final = 512
"""Threads that are watched at a time."""
MOST_NAMES: Final = 10_000

PF_KTHREAD: Final = 0x0020_0000  # include/linux/sched.h

RECORD: Final = np.dtype(
    [
        ("task", "u8"),
        ("napi", "u8"),
        ("pid", "u4"),
        ("tgid", "u4"),
        ("netns", "u4"),
        ("flags", "u4"),
        ("comm", "V16"),
        ("device", "V16"),
    ]
)


class Thread(NamedTuple):
    """A thread to watch. `task` and `napi` are addresses in the kernel: good for reading while `tid` is still the same."""

    task: int
    napi: int
    tid: int
    pid: int
    comm: str
    device: str
    netns: int
    kernel: bool = True
    """Whether it is one of the kernel's own threads."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the kernel keeps what tells a NAPI thread. What it polls is known where `kthread` can be followed."""

    flags: int
    pid: int
    tgid: int
    comm: int
    kthread: int | None
    data: int | None
    thread: int | None
    device: int | None
    name: int | None
    netns: int | None
    inode: int | None

    @classmethod
    def of(cls, btf: Btf) -> "Places":
        # struct kthread hung on set_child_tid until 5.17 (e32cf5dfbe22)
        kthread = btf.offset("task_struct", "worker_private", optional=True)
        return cls(
            flags=btf.offset("task_struct", "flags"),
            pid=btf.offset("task_struct", "pid"),
            tgid=btf.offset("task_struct", "tgid"),
            comm=btf.offset("task_struct", "comm"),
            kthread=kthread if kthread is not None else btf.offset("task_struct", "set_child_tid", optional=True),
            data=btf.offset("kthread", "data", optional=True),
            thread=btf.offset("napi_struct", "thread", optional=True),  # 5.12, 29863d41bb6e
            device=btf.offset("napi_struct", "dev", optional=True),
            name=btf.offset("net_device", "name", optional=True),
            netns=btf.offset("net_device", "nd_net.net", optional=True),
            inode=btf.offset("net", "ns.inum", optional=True),
        )


class Found(NamedTuple):
    threads: list[Thread]
    """NAPI's own, and those that were asked for."""
    ksoftirqd: list[Thread]
    """One a core, in the order of cores."""


class Discover:
    """Goes through all tasks: ksoftirqd, NAPI's own threads, and with `names` those whose name it matches."""

    def __init__(self, btf: Btf, names: re.Pattern[str] | None = None, features: Features = HERE) -> None:
        self._names = names
        self.left_out = 0
        """Threads beyond MOST, the last time."""
        self._known: dict[bytes, bool] = {}
        self._tasks = Tasks(_program(btf, names is not None, features), btf, name="exhume_tasks")

    def find(self) -> Found:
        raw = self._tasks.read()
        rows = np.frombuffer(raw[: len(raw) // RECORD.itemsize * RECORD.itemsize], dtype=RECORD)
        threads = [_thread(rows[i]) for i, comm in enumerate(rows["comm"].tolist()) if self._may_be_wanted(comm)]
        found, self.left_out = chosen(threads, self._names)
        return found

    def _may_be_wanted(self, comm: bytes) -> bool:
        """A node has tens of thousands of threads and some hundred names: each name is looked at once."""
        known = self._known.get(comm)
        if known is None:
            text = decode(bytes(comm).split(b"\0", 1)[0])
            known = text.startswith(("napi/", "ksoftirqd/", "backlog_napi/")) or (
                self._names is not None and self._names.search(text) is not None
            )
            if len(self._known) > MOST_NAMES:
                self._known.clear()
            self._known[comm] = known
        return known

    def close(self) -> None:
        self._tasks.close()


def chosen(threads: list[Thread], names: re.Pattern[str] | None) -> tuple[Found, int]:
    """Those to be watched, NAPI's first, and how many are too many."""
    cores = {core_of(thread): thread for thread in threads if core_of(thread) >= 0}
    wanted = [thread for thread in threads if polls(thread) or (names is not None and names.search(thread.comm) is not None)]
    wanted.sort(key=lambda thread: (not polls(thread), thread.tid))
    return Found(wanted[:MOST], [cores[core] for core in sorted(cores)]), max(0, len(wanted) - MOST)


def core_of(thread: Thread) -> int:
    """ksoftirqd/39 → 39; -1 for any other thread. A program may call itself that: the kernel's own are children of kthreadd,
    and are found by a flag."""
    name, slash, number = thread.comm.partition("/")
    return int(number) if name == "ksoftirqd" and slash and number.isdecimal() and len(number) < 7 and thread.kernel else -1


def polls(thread: Thread) -> bool:
    """Whether it is a thread of the kernel's that polls a network device."""
    return thread.kernel and thread.comm.startswith(("napi/", "backlog_napi/"))


def _thread(row: np.void) -> Thread:
    comm, device = (decode(row[name].tobytes().split(b"\0", 1)[0]) for name in ("comm", "device"))
    kernel = bool(int(row["flags"]) & PF_KTHREAD)
    if not device and kernel and comm.startswith("napi/"):
        device = device_of(comm)
    task, napi, tid, pid, netns = (int(row[name]) for name in ("task", "napi", "pid", "tgid", "netns"))
    return Thread(task, napi, tid, pid, comm, device, netns, kernel)


def device_of(comm: str) -> str:
    """napi/eth0-8193 → eth0. A name is cut at 15 letters, and then the number, or part of the device, is not there."""
    device, dash, number = comm.removeprefix("napi/").rpartition("-")
    return device if dash and (number.isdecimal() or not number) else comm.removeprefix("napi/")


def _program(btf: Btf, everybody: bool, features: Features) -> Builder:
    places = Places.of(btf)
    p = Builder(features)
    record = p.stack(RECORD.itemsize)
    fields = {name: record + int(RECORD.fields[name][1]) for name in RECORD.names or ()} if RECORD.fields else {}
    Tasks.begin(p, btf)
    for at in range(0, RECORD.itemsize, 8):
        p.store(record + at, 0)
    p.copy(fields["comm"], 16, R7 + places.comm)
    p.read(R8, R7 + places.flags, 4)
    p.store(fields["flags"], R8, 4)
    p.jump_if(R8, "&", PF_KTHREAD, "kernel thread")
    _leave(p, everybody)
    p.label("kernel thread")
    p.load(R8, fields["comm"])
    for beginning in (b"ksoftirq", b"backlog_"):  # ksoftirqd, and backlog_napi/N (6.10, dad6b9770263)
        p.mov(R1, int.from_bytes(beginning, sys.byteorder))
        p.jump_if(R8, "==", R1, "write")
    p.mov(R1, int.from_bytes(b"\xff" * 5 + b"\0" * 3, sys.byteorder))
    p.bit_and(R8, R1)
    p.mov(R1, int.from_bytes(b"napi/\0\0\0", sys.byteorder))
    p.jump_if(R8, "==", R1, "poller")
    _leave(p, everybody)
    p.label("poller")
    if places.kthread is not None and places.data is not None and places.device is not None and places.name is not None:
        p.read(R8, R7 + places.kthread)
        p.read(R8, R8 + places.data)
        if places.thread is not None:
            p.read(R9, R8 + places.thread)
            p.jump_if(R9, "!=", R7, "write")
        p.store(fields["napi"], R8)
        p.read(R8, R8 + places.device)
        p.copy_string(fields["device"], 16, R8 + places.name)
        if places.netns is not None and places.inode is not None:
            p.read(R8, R8 + places.netns)
            p.copy(fields["netns"], 4, R8 + places.inode)
    p.label("write")
    p.store(fields["task"], R7)
    p.copy(fields["pid"], 4, R7 + places.pid)
    p.copy(fields["tgid"], 4, R7 + places.tgid)
    p.mov(R1, R6)
    p.mov(R2, record)
    p.mov(R3, RECORD.itemsize)
    p.call(Helper.seq_write)
    p.exit(0)
    return p


def _leave(p: Builder, everybody: bool) -> None:
    """Not one of the kernel's that matter: told only to those who choose by name."""
    if everybody:
        p.jump("write")
    else:
        p.exit(0)
