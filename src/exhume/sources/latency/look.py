"""One look at who waits, all cores and all watched threads at once, by a BPF program that runs when we say so.

Nothing hangs on the paths of packets and of the scheduler: the kernel itself keeps when a runnable thread began to wait
(sched_info.last_queued, zero while it runs or sleeps), for how long it waited in all (run_delay) and how often it got to
run (pcount), which softirqs of a core are due (softirq_pending), how often each ran (kstat), and what runs there (rq.curr).
A look reads that for some microseconds, however busy the machine is.

Where a core's variables are is found by way of its ksoftirqd: the task leads to the run queue, and how far from there the
other variables of that core lie is known (variables.py). That the one named ksoftirqd then points back to the task proves it.

    threads   sched_info of each, its core, and of a NAPI thread whether its poll is due (NAPI_STATE_SCHED)
    cores     pending softirqs, how many ran, who runs, sched_info of ksoftirqd, and the first NAPI in line (softnet_data)
"""

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from exhume.errors import Unreadable
from exhume.kernel.bpf import R0, R1, R2, R6, R7, R8, R9, Address, Block, Btf, BtfError, Builder, Features, Member, Routine
from exhume.kernel.bpf.asm import Loop
from exhume.kernel.bpf.features import HERE
from exhume.sources.latency.discover import Thread
from exhume.sources.latency.variables import RUN_QUEUE, Variables

NET_TX, NET_RX = 2, 3  # include/linux/interrupt.h; their order is part of the names in /proc/softirqs, and has never changed
NET: Final = 1 << NET_TX | 1 << NET_RX
VECTORS: Final = 10
VECTOR_NAMES: Final = ("hi", "timer", "net_tx", "net_rx", "block", "irq_poll", "tasklet", "sched", "hrtimer", "rcu")
NAPI_DUE: Final = 1  # NAPI_STATE_SCHED is the first bit of napi_struct.state (include/linux/netdevice.h)
# A NAPI that is being disabled or deleted, or is not yet enabled, has that bit, too: NAPI_STATE_DISABLE, NAPI_STATE_NPSVC.
NAPI_OFF: Final = 1 << 2 | 1 << 3

_ROWS = 32
"""So many threads and so many cores are looked at in one run, which is one section that cannot be preempted."""

_INFO = [("pcount", "u8"), ("run_delay", "u8"), ("last_queued", "u8")]
_BEFORE = [("pcount_before", "u8"), ("run_delay_before", "u8")]
THREAD: Final = np.dtype(
    [
        ("task", "u8"),
        ("napi", "u8"),
        ("tid", "u4"),
        ("cpu", "u4"),
        ("there", "u4"),
        ("asleep", "u4"),
        ("asleep_before", "u4"),
        ("throttled", "u4"),
        *_BEFORE,
        *_INFO,
        ("state", "u8"),
    ]
)
CORE: Final = np.dtype(
    [
        ("task", "u8"),
        ("known", "u4"),
        ("pending_before", "u4"),
        ("softirqs_before", "u4", VECTORS),
        ("softirqs", "u4", VECTORS),
        ("pending", "u4"),
        ("curr_tid", "u4"),
        ("curr_pid", "u4"),
        ("curr_comm", "V16"),
        ("tid", "u4"),
        ("netns", "u4"),
        ("unused", "u4"),
        *_BEFORE,
        *_INFO,
        ("device", "V16"),
    ]
)
HEAD: Final = np.dtype([("threads", "u4"), ("cores", "u4"), ("late_ns", "u8"), ("telling", "u8")])
_CORES_AT = HEAD.itemsize + _ROWS * THREAD.itemsize
_SIZE = _CORES_AT + _ROWS * CORE.itemsize

Rows = NDArray[np.void]
_NOTHING = bytes(8)


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen, on the recording's clock, which is the run queues' clock as well, and beside it what the look before saw
    (0 the first time). A thread that is gone, or another one by now, is not `there`, a core that was not read not `known`."""

    time: int
    """When it was over."""
    threads: Rows
    cores: Rows
    begun: int = 0
    """When it began, if that is known: we may have been kept from the core in between."""


@dataclass(frozen=True, slots=True)
class _Places:
    """All in bytes; from the beginning of the run queue for what a core has for itself."""

    pid: int
    tgid: int
    comm: int
    exit_state: int
    task_cpu: int
    info: dict[str, int]
    state: Member
    delayed: int | None
    throttled: Member | None
    """Of the task (6.18), or else of its queue."""
    throttled_queue: Member | None
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
    def of(cls, btf: Btf, variables: Variables) -> Self:
        # thread_info.cpu since 5.16 where thread_info is part of the task (bcf9033e5449), task_struct.cpu before
        cpu = btf.offset("task_struct", "thread_info.cpu", optional=True)
        return cls(
            pid=btf.offset("task_struct", "pid"),
            tgid=btf.offset("task_struct", "tgid"),
            comm=btf.offset("task_struct", "comm"),
            exit_state=btf.offset("task_struct", "exit_state"),
            task_cpu=cpu if cpu is not None else btf.offset("task_struct", "cpu"),
            info={name: btf.offset("task_struct", f"sched_info.{name}") for name, _ in _INFO},
            state=btf.member("task_struct", "__state", optional=True) or btf.member("task_struct", "state"),
            # 152e11f6df29 (6.12): a task that went to sleep may stay queued for a while, and is no less asleep
            delayed=btf.offset("task_struct", "se.sched_delayed", optional=True),
            throttled=_plain(btf, "task_struct", "throttled"),
            throttled_queue=_plain(btf, "cfs_rq", "throttle_count"),
            napi_state=btf.offset("napi_struct", "state", optional=True),
            queue=btf.offset("task_struct", "se.cfs_rq"),
            run_queue=btf.offset("cfs_rq", "rq"),
            curr=btf.offset("rq", "curr"),
            ksoftirqd=_distance(variables, "ksoftirqd"),
            softirqs=_within(btf, variables, "kstat", "kernel_stat", "softirqs"),
            pending=_pending(btf, variables),
            softnet=_Softnet.of(btf, variables),
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
    def of(cls, btf: Btf, variables: Variables) -> "_Softnet | None":
        try:
            return cls(
                poll_list=_distance(variables, "softnet_data") + btf.offset("softnet_data", "poll_list"),
                entry=btf.offset("napi_struct", "poll_list"),
                device=btf.offset("napi_struct", "dev"),
                name=btf.offset("net_device", "name"),
                net=btf.offset("net_device", "nd_net.net"),
                inode=btf.offset("net", "ns.inum"),
            )
        except BtfError:
            return None


def _plain(btf: Btf, of: str, path: str) -> Member | None:
    """A member that may be missing, or a bitfield, and is then not read."""
    try:
        return btf.member(of, path, optional=True)
    except BtfError:
        return None


def _distance(variables: Variables, name: str) -> int:
    distance = variables.distance(name)
    if distance is None:
        name = RUN_QUEUE if variables.distance(RUN_QUEUE) is None else name
        raise BtfError(f"neither this kernel's BTF nor /proc/kallsyms says where a core keeps {name}")
    return distance


def _within(btf: Btf, variables: Variables, variable: str, of: str, member: str) -> int | None:
    place, distance = btf.offset(of, member, optional=True), variables.distance(variable)
    return None if place is None or distance is None else distance + place


def _pending(btf: Btf, variables: Variables) -> int | None:
    """Where the softirqs that are due are kept: apart since 6.15, in pcpu_hot from 6.2 on, in irq_stat before."""
    apart = variables.distance("__softirq_pending")
    if apart is not None:
        return apart
    hot = _within(btf, variables, "pcpu_hot", "pcpu_hot", "softirq_pending")
    return hot if hot is not None else _within(btf, variables, "irq_stat", "irq_cpustat_t", "__softirq_pending")


class Looker:
    """Looks at cores, each by its ksoftirqd, and at threads. Raises Unreadable where it cannot."""

    def __init__(self, btf: Btf, threshold_ns: int, features: Features = HERE) -> None:
        """A wait of `threshold_ns` that is over already is worth telling, too."""
        self._threshold_ns = threshold_ns
        self._cores: list[Thread] = []
        self._threads: list[Thread] = []
        self._used = 0
        self._blocks: list[tuple[Block, Routine]] = []
        try:
            places = _Places.of(btf, Variables(btf))
        except BtfError as error:
            raise Unreadable(f"who waits for a core cannot be looked at: {error}") from None
        self.sees_softirqs = places.pending is not None and places.softirqs is not None
        """Whether this kernel's BTF tells which softirqs are due and which ran."""
        self._places, self._features = places, features
        self._more()

    def _more(self) -> None:
        """Room for as many threads and cores again."""
        block = Block(_SIZE, features=self._features)
        try:
            program = _program(self._places, block, self._features)
            routine = Routine(program, name="exhume_look", features=self._features)
        except BaseException:
            block.close()
            raise
        self._blocks.append((block, routine))

    def watch(self, threads: list[Thread], ksoftirqd: list[Thread]) -> None:
        """Rows of the looks from now on are in this order. Who was watched before goes on from the last look."""
        last = self.seen(0)
        self._threads, self._cores = threads, ksoftirqd
        self._used = -(-max(len(threads), len(ksoftirqd)) // _ROWS)
        while len(self._blocks) < self._used:
            self._more()
        for at, (block, _) in zip(range(0, self._used * _ROWS, _ROWS), self._blocks, strict=False):
            block.write(_question(threads[at : at + _ROWS], ksoftirqd[at : at + _ROWS], self._threshold_ns, last))

    @property
    def threads(self) -> list[Thread]:
        return self._threads

    @property
    def cores(self) -> list[Thread]:
        return self._cores

    def glance(self) -> bool:
        """Look, and say whether there is anything to see: somebody waits, or waited for long, or a softirq is due."""
        telling = False
        for block, routine in self._blocks[: self._used]:
            routine.run()
            telling = telling or block.read(_TELLING, 8) != _NOTHING
        return telling

    def seen(self, time: int) -> Look:
        """What the last glance saw; `time` is when that was."""
        threads, cores = [], []
        for block, _ in self._blocks[: self._used]:
            raw = block.read()
            counts = np.frombuffer(raw, HEAD, 1)[0]
            threads.append(np.frombuffer(raw, THREAD, int(counts["threads"]), HEAD.itemsize))
            cores.append(np.frombuffer(raw, CORE, int(counts["cores"]), _CORES_AT))
        return Look(time, _joined(threads, THREAD), _joined(cores, CORE))

    def close(self) -> None:
        for block, routine in self._blocks:
            routine.close()
            block.close()
        self._blocks = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _joined(pieces: list[Rows], kind: np.dtype[Any]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    return np.concatenate(pieces) if pieces else np.zeros(0, kind)


def _question(threads: list[Thread], ksoftirqd: list[Thread], late_ns: int, last: Look) -> bytes:
    head = np.zeros(1, HEAD)
    head["threads"], head["cores"], head["late_ns"] = len(threads), len(ksoftirqd), late_ns
    rows, cores = _blank(threads, last.threads, THREAD), _blank(ksoftirqd, last.cores, CORE)
    rows["napi"][: len(threads)] = [thread.napi for thread in threads]
    return head.tobytes() + rows.tobytes() + cores.tobytes()


def _blank(threads: list[Thread], last: Rows, kind: np.dtype[Any]) -> Rows:
    """Rows to be filled in. What a look finds is compared with what the one before it left there."""
    rows = np.zeros(_ROWS, kind)
    seen = {(int(row["task"]), int(row["tid"])): row for row in last}
    for i, thread in enumerate(threads):
        if (thread.task, thread.tid) in seen:
            rows[i] = seen[thread.task, thread.tid]
        rows["task"][i], rows["tid"][i] = thread.task, thread.tid
    return rows


def _program(places: _Places, block: Block, features: Features) -> Builder:
    p = Builder(features)
    held = p.stack(8)
    p.address_of(R6, block)
    p.store(R6 + _TELLING, 0)
    with p.loop(R8, _ROWS) as turn:
        _row(p, "threads", HEAD.itemsize, THREAD, turn)
        p.store(R9 + _place(THREAD, "there"), 0, 4)
        _same_task(p, places, THREAD, turn)
        p.store(R9 + _place(THREAD, "there"), 1, 4)
        _copy_info(p, places, THREAD)
        p.copy(R9 + _place(THREAD, "cpu"), 4, R7 + places.task_cpu)
        _copy_sleep(p, places)
        _copy_throttled(p, places)
        if places.napi_state is not None:
            p.load(R7, R9 + _place(THREAD, "napi"))
            with p.when(R7, "!=", 0):
                p.copy(R9 + _place(THREAD, "state"), 8, R7 + places.napi_state)
        _tell_waits(p)
    with p.loop(R8, _ROWS) as turn:
        _row(p, "cores", _CORES_AT, CORE, turn)
        p.store(_core_column("known"), 0, 4)
        _same_task(p, places, CORE, turn)
        p.read(R0, R7 + places.queue)
        p.read(R0, R0 + places.run_queue)
        p.store(held, R0)
        p.read(R0, R0 + places.ksoftirqd)
        p.jump_if(R0, "!=", R7, turn.next)
        _copy_info(p, places, CORE)
        p.load(R7, held)
        _core(p, places, held)
        with p.when(R1, "!=", 0):
            p.store(R6 + _TELLING, 1)
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
    """R7 = the task, if it is still the one that we mean: its memory may be another's by now, or nobody's, and then there is
    left in it that it ended."""
    p.load(R7, R9 + _place(of, "task"))
    p.read(R0, R7 + places.pid, 4)
    p.load(R1, R9 + _place(of, "tid"), 4)
    p.jump_if(R0, "!=", R1, turn.next)
    p.read(R0, R7 + places.exit_state, 4)
    p.jump_if(R0, "!=", 0, turn.next)


def _copy_sleep(p: Builder, places: _Places) -> None:
    """Whether the thread sleeps. Since 6.12 a sleeper that is moved to another core while its dequeue is delayed gets the mark
    of one that waits (sched_info_enqueue), and keeps it: what is marked so and sleeps does not wait."""
    p.load(R1, R9 + _place(THREAD, "asleep"), 4)
    p.store(R9 + _place(THREAD, "asleep_before"), R1, 4)
    p.store(R9 + _place(THREAD, "asleep"), 0, 4)
    p.read(R0, R7 + places.state.offset, 8 if places.state.size == 8 else 4)
    p.jump_if(R0, "!=", 0, "asleep")
    if places.delayed is not None:
        p.read(R0, R7 + places.delayed, 1)
        p.jump_if(R0, "!=", 0, "asleep")
    p.jump("awake")
    p.label("asleep")
    p.store(R9 + _place(THREAD, "asleep"), 1, 4)
    p.store(R9 + _place(THREAD, "last_queued"), 0)
    p.label("awake")


def _copy_throttled(p: Builder, places: _Places) -> None:
    """Whether its cgroup's quota holds it back: then nobody holds the core."""
    p.store(R9 + _place(THREAD, "throttled"), 0, 4)
    if places.throttled is not None and places.throttled.size == 1:
        p.copy(R9 + _place(THREAD, "throttled"), 1, R7 + places.throttled.offset)
    elif places.throttled_queue is not None and places.throttled_queue.size == 4:
        p.read(R0, R7 + places.queue)
        p.copy(R9 + _place(THREAD, "throttled"), 4, R0 + places.throttled_queue.offset)


def _tell_waits(p: Builder) -> None:
    """A thread is worth telling of if it waits, or if it waited so long since the last look."""
    p.load(R1, R9 + _place(THREAD, "last_queued"))
    p.jump_if(R1, "!=", 0, "telling")
    p.load(R1, R9 + _place(THREAD, "run_delay"))
    p.load(R2, R9 + _place(THREAD, "run_delay_before"))
    p.sub(R1, R2)
    p.load(R2, R6 + _place(HEAD, "late_ns"))
    p.jump_if(R1, "<", R2, "not telling")
    p.label("telling")
    p.store(R6 + _TELLING, 1)
    p.label("not telling")


def _core(p: Builder, places: _Places, held: Address) -> None:
    """R7 is the core's run queue. R1 = what is due there."""
    p.store(_core_column("known"), 1, 4)
    if places.softirqs is not None:
        for at in range(0, 4 * VECTORS, 4):
            p.load(R1, _core_column("softirqs") + at, 4)
            p.store(_core_column("softirqs_before") + at, R1, 4)
        p.copy(_core_column("softirqs"), 4 * VECTORS, R7 + places.softirqs)
    if places.pending is not None:
        p.load(R1, _core_column("pending"), 4)
        p.store(_core_column("pending_before"), R1, 4)
        p.copy(_core_column("pending"), 4, R7 + places.pending)
        if places.softnet is not None:
            p.load(R1, _core_column("pending"), 4)
            with p.when(R1, "&", NET):
                _first_in_line(p, places.softnet, held)
    p.read(R7, R7 + places.curr)
    p.copy(_core_column("curr_tid"), 4, R7 + places.pid)
    p.copy(_core_column("curr_pid"), 4, R7 + places.tgid)
    p.copy(_core_column("curr_comm"), 16, R7 + places.comm)
    p.load(R1, _core_column("pending"), 4)


def _first_in_line(p: Builder, softnet: _Softnet, held: Address) -> None:
    """The device whose poll that core does next. Its list is read without a lock while that core may change it: what cannot
    be read stays empty. An empty list leads back to itself, and then there is no device."""
    p.store(_core_column("device"), 0)
    p.store(_core_column("netns"), 0, 4)
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
    for name, _ in _BEFORE:
        p.load(R1, R9 + _place(into, name.removesuffix("_before")))
        p.store(R9 + _place(into, name), R1)
    for name, place in places.info.items():
        p.copy(R9 + _place(into, name), 8, R7 + place)


def _core_column(name: str) -> Address:
    return R9 + _place(CORE, name)


def _place(of: np.dtype[Any], name: str) -> int:
    fields = of.fields
    assert fields is not None
    return int(fields[name][1])


_TELLING: Final = _place(HEAD, "telling")
