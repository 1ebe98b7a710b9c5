"""Which threads to watch: those that poll network devices, and others by name. Found by going through all tasks, seldom.

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

PF_KTHREAD: Final = 0x0020_0000  # include/linux/sched.h

RECORD: Final = np.dtype(
    [
        ("task", "u8"),
        ("napi", "u8"),
        ("pid", "u4"),
        ("tgid", "u4"),
        ("netns", "u4"),
        ("ifindex", "i4"),
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
    ifindex: int | None
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
            ifindex=btf.offset("net_device", "ifindex", optional=True),
            netns=btf.offset("net_device", "nd_net.net", optional=True),
            inode=btf.offset("net", "ns.inum", optional=True),
        )


class Discover:
    """Goes through all tasks: NAPI's own threads, and with `names` those whose name it matches."""

    def __init__(self, btf: Btf, names: re.Pattern[str] | None = None, features: Features = HERE) -> None:
        self._names = names
        self.left_out = 0
        """Threads beyond MOST, the last time."""
        self._tasks = Tasks(_program(btf, names is not None, features), btf, name="exhume_tasks")

    def threads(self) -> list[Thread]:
        raw = self._tasks.read()
        found = [_thread(row) for row in np.frombuffer(raw[: len(raw) // RECORD.itemsize * RECORD.itemsize], dtype=RECORD)]
        wanted = [thread for thread in found if thread.napi or self._is_wanted(thread.comm)]
        wanted.sort(key=lambda thread: (not thread.napi, thread.tid))
        self.left_out = max(0, len(wanted) - MOST)
        return wanted[:MOST]

    def _is_wanted(self, comm: str) -> bool:
        return comm.startswith("napi/") or (self._names is not None and self._names.search(comm) is not None)

    def close(self) -> None:
        self._tasks.close()


def _thread(row: np.void) -> Thread:
    comm, device = (decode(row[name].tobytes().split(b"\0", 1)[0]) for name in ("comm", "device"))
    if not device and comm.startswith("napi/"):
        device = device_of(comm)
    return Thread(int(row["task"]), int(row["napi"]), int(row["pid"]), int(row["tgid"]), comm, device, int(row["netns"]))


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
    if everybody:
        p.jump_if(R8, "&", PF_KTHREAD, "kernel thread")
        p.jump("write")
        p.label("kernel thread")
    else:
        with p.when(R8, "&", PF_KTHREAD):
            p.jump("kernel thread")
        p.exit(0)
        p.label("kernel thread")
    # "napi/", in the order of bytes that the machine has
    p.load(R1, fields["comm"])
    p.mov(R2, int.from_bytes(b"\xff" * 5 + b"\0" * 3, sys.byteorder))
    p.mov(R3, int.from_bytes(b"napi/\0\0\0", sys.byteorder))
    p.mov(R9, R1)
    p.bit_and(R9, R2)
    p.jump_if(R9, "==", R3, "poller")
    if everybody:
        p.jump("write")
    else:
        p.exit(0)
    p.label("poller")
    if None not in (places.kthread, places.data, places.device, places.name):
        assert places.kthread is not None and places.data is not None
        assert places.device is not None and places.name is not None
        p.read(R8, R7 + places.kthread)
        p.read(R8, R8 + places.data)
        if places.thread is not None:
            p.read(R9, R8 + places.thread)
            p.jump_if(R9, "!=", R7, "write")
        p.store(fields["napi"], R8)
        p.read(R8, R8 + places.device)
        p.copy_string(fields["device"], 16, R8 + places.name)
        if places.ifindex is not None:
            p.copy(fields["ifindex"], 4, R8 + places.ifindex)
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
