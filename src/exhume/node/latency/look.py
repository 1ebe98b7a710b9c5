"""One look at who waits, all cores and all watched threads at once, by a BPF program that runs when we say so.

Nothing hangs on the paths of packets and of the scheduler: the kernel itself keeps when a runnable thread began to wait
(sched_info.last_queued, zero while it runs or sleeps), for how long it waited in all (run_delay) and how often it got to
run (pcount), which softirqs of a core are due (softirq_pending), how often each ran (kstat), and what runs there (rq.curr).
A look reads that for some microseconds, however busy the machine is.

Where a core's variables are is found by way of its ksoftirqd: the task leads to the run queue, and BTF knows how far from
there the other variables of that core lie. That the one named ksoftirqd then points back to the task proves it.

    threads   sched_info of each, its core, and of a NAPI thread whether its poll is due (NAPI_STATE_SCHED)
    cores     pending softirqs, how many ran, who runs, sched_info of ksoftirqd, and the first NAPI in line (softnet_data)
"""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.kernel.bpf import R0, R1, R6, R7, R8, R9, Address, Block, Btf, BtfError, Builder, Features, Routine
from exhume.kernel.bpf.asm import Loop
from exhume.kernel.bpf.features import HERE
from exhume.node.latency.discover import Thread

NET_TX, NET_RX = 2, 3  # include/linux/interrupt.h; their order is part of the names in /proc/softirqs, and has never changed
NET: Final = 1 << NET_TX | 1 << NET_RX
VECTORS: Final = 10
VECTOR_NAMES: Final = ("hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu")
NAPI_DUE: Final = 1  # NAPI_STATE_SCHED is the first bit of napi_struct.state (include/linux/netdevice.h)

_ROWS = 64
"""So many threads and so many cores are looked at in one run, which is one section that cannot be preempted."""

_INFO = [("pcount", "u8"), ("run_delay", "u8"), ("last_queued", "u8")]
THREAD: Final = np.dtype([("task", "u8"), ("napi", "u8"), ("tid", "u4"), ("cpu", "u4"), *_INFO, ("state", "u8")])
CORE: Final = np.dtype(
    [
        ("task", "u8"),
        ("known", "u4"),
        ("pending", "u4"),
        ("softirqs", "u4", VECTORS),
        ("curr_tid", "u4"),
        ("curr_pid", "u4"),
        ("curr_comm", "V16"),
        ("tid", "u4"),
        ("netns", "u4"),
        *_INFO,
        ("device", "V16"),
    ]
)
HEAD: Final = np.dtype([("threads", "u4"), ("cores", "u4")])
_CORES_AT = HEAD.itemsize + _ROWS * THREAD.itemsize
_SIZE = _CORES_AT + _ROWS * CORE.itemsize

Rows = NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, on the recording's clock, which is the run queues' clock as well."""

    time: int
    threads: Rows
    cores: Rows


@dataclass(frozen=True, slots=True)
class _Places:
    """All in bytes; from the beginning of the run queue for what a core has for itself."""

    pid: int
    tgid: int
    comm: int
    task_cpu: int
    info: dict[str, int]
    napi_state: int | None
    queue: int
    """From a task to the queue of the fair class that it is or would be in, and from there to the run queue."""
    run_queue: int
    curr: int
    ksoftirqd: int
    softirqs: int | None
    pending: int | None
    softnet: "_Softnet | None"

    @classmethod
    def of(cls, btf: Btf) -> Self:
        # thread_info.cpu since 5.16 where thread_info is part of the task (bcf9033e5449), task_struct.cpu before
        cpu = btf.offset("task_struct", "thread_info.cpu", optional=True)
        return cls(
            pid=btf.offset("task_struct", "pid"),
            tgid=btf.offset("task_struct", "tgid"),
            comm=btf.offset("task_struct", "comm"),
            task_cpu=cpu if cpu is not None else btf.offset("task_struct", "cpu"),
            info={name: btf.offset("task_struct", f"sched_info.{name}") for name, _ in _INFO},
            napi_state=btf.offset("napi_struct", "state", optional=True),
            queue=btf.offset("task_struct", "se.cfs_rq"),
            run_queue=btf.offset("cfs_rq", "rq"),
            curr=btf.offset("rq", "curr"),
            ksoftirqd=_distance(btf, "ksoftirqd"),
            softirqs=_within(btf, "kstat", "kernel_stat", "softirqs"),
            pending=_pending(btf),
            softnet=_Softnet.of(btf),
        )


@dataclass(frozen=True, slots=True)
class _Softnet:
    """A core's list of NAPIs to be polled, and the way from an entry to the device's name and network namespace."""

    poll_list: int
    entry: int
    device: int
    name: int
    net: int
    inode: int

    @classmethod
    def of(cls, btf: Btf) -> "_Softnet | None":
        try:
            return cls(
                poll_list=_distance(btf, "softnet_data") + btf.offset("softnet_data", "poll_list"),
                entry=btf.offset("napi_struct", "poll_list"),
                device=btf.offset("napi_struct", "dev"),
                name=btf.offset("net_device", "name"),
                net=btf.offset("net_device", "nd_net.net"),
                inode=btf.offset("net", "ns.inum"),
            )
        except BtfError:
            return None


def _distance(btf: Btf, variable: str) -> int:
    """From a core's run queue to another variable of that core."""
    here, there = btf.per_cpu("runqueues"), btf.per_cpu(variable)
    if here is None or there is None:
        raise BtfError(f"this kernel's BTF does not say where a core keeps {variable if here is not None else 'runqueues'}")
    return there - here


def _within(btf: Btf, variable: str, of: str, member: str) -> int | None:
    place = btf.offset(of, member, optional=True)
    if place is None or btf.per_cpu(variable) is None:
        return None
    return _distance(btf, variable) + place


def _pending(btf: Btf) -> int | None:
    """Where the softirqs that are due are kept: apart since 6.15, in pcpu_hot from 6.2 on, in irq_stat before."""
    if btf.per_cpu("__softirq_pending") is not None:
        return _distance(btf, "__softirq_pending")
    hot = _within(btf, "pcpu_hot", "pcpu_hot", "softirq_pending")
    return hot if hot is not None else _within(btf, "irq_stat", "irq_cpustat_t", "__softirq_pending")


class Looker:
    """Looks at cores, each by its ksoftirqd, and at threads. Raises Unreadable where it cannot."""

    def __init__(self, btf: Btf, features: Features = HERE) -> None:
        self._cores: list[Thread] = []
        self._threads: list[Thread] = []
        self._questions: list[bytes] = []
        try:
            places = _Places.of(btf)
        except BtfError as error:
            raise Unreadable(f"who waits for a core cannot be looked at: {error}") from None
        self.sees_softirqs = places.pending is not None and places.softirqs is not None
        """Whether this kernel's BTF tells which softirqs are due and which ran."""
        self._block = Block(_SIZE, features=features)
        try:
            self._routine = Routine(_program(places, self._block, features), name="exhume_look", features=features)
        except BaseException:
            self._block.close()
            raise

    def watch(self, threads: list[Thread], ksoftirqd: list[Thread]) -> None:
        """Rows of the looks from now on are in this order."""
        self._threads, self._cores = threads, ksoftirqd
        most = max(len(threads), len(ksoftirqd))
        self._questions = [_question(threads[at : at + _ROWS], ksoftirqd[at : at + _ROWS]) for at in range(0, most, _ROWS)]

    @property
    def threads(self) -> list[Thread]:
        return self._threads

    @property
    def cores(self) -> list[Thread]:
        return self._cores

    def look(self, time: int) -> Look:
        """`time` is now. A thread that is gone, or is another one by now, has `task` 0; a core that was not read `known` 0."""
        threads, cores = [], []
        for question in self._questions:
            self._block.write(question)
            self._routine.run()
            raw = self._block.read()
            counts = np.frombuffer(raw, HEAD, 1)[0]
            threads.append(np.frombuffer(raw, THREAD, int(counts["threads"]), HEAD.itemsize))
            cores.append(np.frombuffer(raw, CORE, int(counts["cores"]), _CORES_AT))
        return Look(time, _joined(threads, THREAD), _joined(cores, CORE))

    def close(self) -> None:
        self._routine.close()
        self._block.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _joined(pieces: list[Rows], kind: np.dtype[Any]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.zeros(0, kind)


def _question(threads: list[Thread], ksoftirqd: list[Thread]) -> bytes:
    head, rows, cores = np.zeros(1, HEAD), np.zeros(_ROWS, THREAD), np.zeros(_ROWS, CORE)
    head["threads"], head["cores"] = len(threads), len(ksoftirqd)
    for row, thread in zip(rows, threads, strict=False):
        row["task"], row["napi"], row["tid"] = thread.task, thread.napi, thread.tid
    for row, thread in zip(cores, ksoftirqd, strict=False):
        row["task"], row["tid"] = thread.task, thread.tid
    return head.tobytes() + rows.tobytes() + cores.tobytes()


def _program(places: _Places, block: Block, features: Features) -> Builder:
    p = Builder(features)
    p.address_of(R6, block)
    with p.loop(R8, _ROWS) as turn:
        _row(p, "threads", HEAD.itemsize, THREAD, turn)
        _same_task(p, places, THREAD, turn)
        _copy_info(p, places, THREAD)
        p.copy(R9 + _place(THREAD, "cpu"), 4, R7 + places.task_cpu)
        if places.napi_state is not None:
            p.load(R7, R9 + _place(THREAD, "napi"))
            with p.when(R7, "!=", 0):
                p.copy(R9 + _place(THREAD, "state"), 8, R7 + places.napi_state)
    held = p.stack(8)
    with p.loop(R8, _ROWS) as turn:
        _row(p, "cores", _CORES_AT, CORE, turn)
        _same_task(p, places, CORE, turn)
        p.read(R0, R7 + places.queue)
        p.read(R0, R0 + places.run_queue)
        p.store(held, R0)
        p.read(R0, R0 + places.ksoftirqd)
        p.jump_if(R0, "!=", R7, turn.next)
        _copy_info(p, places, CORE)
        p.load(R7, held)
        _core(p, places, held)
    p.exit(0)
    return p


def _row(p: Builder, count: str, start: int, of: np.dtype[Any], turn: Loop) -> None:
    """R9 = the row of this turn."""
    p.load(R1, R6 + _place(HEAD, count), 4)
    p.jump_if(R8, ">=", R1, turn.done)
    p.mov(R9, R8)
    p.mul(R9, of.itemsize)
    p.add(R9, R6)
    p.add(R9, start)


def _same_task(p: Builder, places: _Places, of: np.dtype[Any], turn: Loop) -> None:
    """R7 = the task, if it is still the one that we mean: its memory may be another's by now."""
    p.load(R7, R9 + _place(of, "task"))
    p.read(R0, R7 + places.pid, 4)
    p.load(R1, R9 + _place(of, "tid"), 4)
    with p.when(R0, "!=", R1):
        p.store(R9 + _place(of, "task"), 0)
        p.jump(turn.next)


def _core(p: Builder, places: _Places, held: Address) -> None:
    """R7 is the core's run queue."""
    p.store(_core_column("known"), 1, 4)
    if places.softirqs is not None:
        p.copy(_core_column("softirqs"), 4 * VECTORS, R7 + places.softirqs)
    if places.pending is not None:
        p.copy(_core_column("pending"), 4, R7 + places.pending)
        if places.softnet is not None:
            p.load(R1, _core_column("pending"), 4)
            with p.when(R1, "&", NET):
                _first_in_line(p, places.softnet, held)
    p.read(R7, R7 + places.curr)
    p.copy(_core_column("curr_tid"), 4, R7 + places.pid)
    p.copy(_core_column("curr_pid"), 4, R7 + places.tgid)
    p.copy(_core_column("curr_comm"), 16, R7 + places.comm)


def _first_in_line(p: Builder, softnet: _Softnet, held: Address) -> None:
    """The device whose poll that core does next. Its list is read without a lock while that core may change it: what cannot
    be read stays empty. An empty list leads back to itself, and then there is no device."""
    p.read(R0, R7 + softnet.poll_list)
    p.mov(R1, R7 + softnet.poll_list)
    with p.when(R0, "!=", R1):
        p.copy(held, 8, R0 + (softnet.device - softnet.entry))
        p.load(R1, held)
        with p.when(R1, "!=", 0):  # the backlog, by which loopback and most veths go, belongs to no device
            p.copy_string(_core_column("device"), 16, R1 + softnet.name)
            p.load(R1, held)
            p.read(R1, R1 + softnet.net)
            p.copy(_core_column("netns"), 4, R1 + softnet.inode)


def _copy_info(p: Builder, places: _Places, into: np.dtype[Any]) -> None:
    for name, place in places.info.items():
        p.copy(R9 + _place(into, name), 8, R7 + place)


def _core_column(name: str) -> Address:
    return R9 + _place(CORE, name)


def _place(of: np.dtype[Any], name: str) -> int:
    fields = of.fields
    assert fields is not None
    return int(fields[name][1])
