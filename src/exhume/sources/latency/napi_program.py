"""The program that measures NAPI polls: when each began, how long its device was due, and whether it left packets behind."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from exhume.kernel.bpf import R0, R1, R2, R3, R6, R7, R8, R9, Address, Btf, Builder, Helper
from exhume.sources.latency.histogram import add, place
from exhume.sources.latency.hot_maps import CONTROL, NAME_BYTES, NAPI, NAPI_KEY, STATE, Maps, Vector, window_or_leave
from exhume.sources.latency.instructions import find_or_make, increment, leave, note


@dataclass(frozen=True, slots=True)
class NapiFields:
    dev: int
    thread: int | None
    """None before 5.12 (29863d41bb6e): no NAPI has a thread."""
    napi_id: int | None
    name: int
    ifindex: int | None
    net: int | None
    """None without CONFIG_NET_NS."""
    inum: int | None

    @classmethod
    def of(cls, btf: Btf) -> Self:
        return cls(
            dev=btf.offset("napi_struct", "dev"),
            thread=btf.offset("napi_struct", "thread", optional=True),
            napi_id=btf.offset("napi_struct", "napi_id", optional=True),
            name=btf.offset("net_device", "name"),
            ifindex=btf.offset("net_device", "ifindex", optional=True),
            net=btf.offset("net_device", "nd_net.net", optional=True),
            inum=btf.offset("net", "ns.inum", optional=True),
        )


class Kind(IntEnum):
    """Who polled."""

    OTHER = 0
    SOFTIRQ = 1
    THREAD = 2


def napi_poll(maps: Maps, btf: Btf) -> Builder:
    """(struct napi_struct *napi, int work, int budget), hit at the end of a poll."""
    return _NapiPoll(maps, NapiFields.of(btf)).assemble()


class _NapiPoll:
    """R7 is when the poll ended, R8 when the window began; R9 is the core's state, R6 the NAPI instance and then its entry."""

    def __init__(self, maps: Maps, fields: NapiFields) -> None:
        self._maps, self._fields = maps, fields
        self._p = p = Builder()
        self._key = p.stack(NAPI_KEY.itemsize)
        self._work, self._budget, self._dev = p.stack(8), p.stack(8), p.stack(8)
        self._start, self._kind, self._softirq = p.stack(8), p.stack(8), p.stack(8)
        self._wait, self._ended = p.stack(8), p.stack(8)

    def assemble(self) -> Builder:
        p, f = self._p, self._fields
        p.argument(R6, 0)
        p.argument(R2, 1)
        p.argument(R3, 2)
        p.store(self._work, R2)
        p.store(self._budget, R3)
        window_or_leave(p, self._maps)
        p.store(self._key + place(NAPI_KEY, "bank"), R2, 4)
        p.store(self._key + place(NAPI_KEY, "napi"), R6)
        p.address_of(R9, self._maps.state)
        p.call(Helper.ktime_get_ns)
        p.mov(R7, R0)
        self._find_start()
        p.read(R1, R6 + f.dev)
        p.jump_if(R1, "==", 0, "leave")  # the backlog of a core, which has no device
        p.store(self._dev, R1)
        self._find_entry()
        self._count()
        self._find_gap()
        p.load(R1, self._start)
        p.jump_if(R1, "==", 0, "leave")
        self._add_times()
        leave(p)
        return p

    def _find_start(self) -> None:
        """Who polls, since when (0 if that is not known), and how long that was due (0 likewise)."""
        p, f = self._p, self._fields
        p.store(self._start, 0)
        p.store(self._wait, 0)
        p.store(self._kind, Kind.OTHER)
        p.store(self._softirq, 0)
        p.load(R1, _entered(Vector.NET_RX))
        p.jump_if(R1, "<", R8, "no softirq")
        p.store(self._kind, Kind.SOFTIRQ)
        p.store(self._softirq, R1)
        p.load(R2, R9 + place(STATE, "rx_polled"))
        p.store(self._start, R2)
        p.store(R9 + place(STATE, "rx_polled"), R7)
        p.load(R1, R9 + place(STATE, "rx_raised"))
        p.jump_if(R1, "<", R8, "known")
        p.sub(R2, R1)
        p.store(self._wait, R2)
        p.jump("known")
        p.label("no softirq")
        if f.thread is not None:
            p.call(Helper.get_current_task)
            p.store(self._dev, R0)
            p.read(R1, R6 + f.thread)
            p.load(R2, self._dev)
            p.jump_if(R1, "!=", R2, "known")
            p.store(self._kind, Kind.THREAD)
            p.address_of(R0, self._maps.control)
            p.load(R1, R0 + place(CONTROL, "switches"))
            p.jump_if(R1, "==", 0, "known")
            # A thread polls with softirqs off (napi_threaded_poll_loop), so it loses the core only between two polls.
            p.load(R1, R9 + place(STATE, "switched"))
            p.load(R2, R9 + place(STATE, "thread_polled"))
            with p.when(R2, ">", R1):
                p.mov(R1, R2)
            with p.when(R1, ">=", R8):
                p.store(self._start, R1)
            p.load(R2, R9 + place(STATE, "switched_wait"))
            p.store(self._wait, R2)
            p.store(R9 + place(STATE, "switched_wait"), 0)
            p.store(R9 + place(STATE, "thread_polled"), R7)
        p.label("known")

    def _find_entry(self) -> None:
        """R6 = the entry of this NAPI on this core, made if it is not there."""
        p = self._p
        p.call(Helper.get_smp_processor_id)
        p.store(self._key + place(NAPI_KEY, "cpu"), R0, 4)
        find_or_make(p, self._maps.napis, self._key, self._maps.blank, self._maps.control, place(CONTROL, "unkept"))
        p.mov(R6, R0)
        with p.when(R1, "!=", 0):
            self._name()

    def _name(self) -> None:
        p, f = self._p, self._fields
        if f.napi_id is not None:
            p.load(R1, self._key + place(NAPI_KEY, "napi"))
            p.copy(R6 + place(NAPI, "napi_id"), 4, R1 + f.napi_id)
        p.load(R1, self._dev)
        p.copy_string(R6 + place(NAPI, "device"), NAME_BYTES, R1 + f.name)
        if f.ifindex is not None:
            p.load(R1, self._dev)
            p.copy(R6 + place(NAPI, "ifindex"), 4, R1 + f.ifindex)
        if f.net is not None and f.inum is not None:
            p.load(R1, self._dev)
            p.read(R1, R1 + f.net)
            p.copy(R6 + place(NAPI, "netns"), 4, R1 + f.inum)

    def _count(self) -> None:
        p = self._p
        increment(p, R6 + place(NAPI, "polls"))
        p.load(R2, self._work)
        p.load(R1, R6 + place(NAPI, "packets"))
        p.add(R1, R2)
        p.store(R6 + place(NAPI, "packets"), R1)
        p.load(R2, self._kind)
        with p.when(R2, "==", Kind.THREAD):
            increment(p, R6 + place(NAPI, "threaded"))
        p.load(R2, self._start)
        with p.when(R2, "==", 0):
            increment(p, R6 + place(NAPI, "untimed"))

    def _find_gap(self) -> None:
        """When the last poll ended that used up its budget, after which packets are left; and whether this one did."""
        p, pending = self._p, self._maps.pending
        p.store(self._ended, 0)
        p.lookup(pending, self._key)
        with p.when(R0, "!=", 0):
            p.load(R1, R0 + 0)
            p.store(self._ended, R1)
            p.store(R0 + 0, 0)
        p.load(R1, self._work)
        p.load(R2, self._budget)
        p.jump_if(R2, "==", 0, "drained")  # netpoll only sends (poll_one_napi)
        p.jump_if(R1, "<", R2, "drained")
        increment(p, R6 + place(NAPI, "exhausted"))
        note(p, pending, self._key, R7)
        p.label("drained")

    def _add_times(self) -> None:
        p = self._p
        p.mov(R9, R7)
        p.load(R1, self._start)
        p.sub(R9, R1)
        add(p, R6 + place(NAPI, "poll"), R9, R7)
        p.load(R7, self._start)  # both of these ended when the poll began
        p.load(R1, self._ended)
        p.jump_if(R1, "<", R8, "no gap")
        p.jump_if(R1, ">", R7, "no gap")
        p.mov(R9, R7)
        p.sub(R9, R1)
        add(p, R6 + place(NAPI, "gap"), R9, R7)
        p.label("no gap")
        self._first_of_softirq()
        p.load(R9, self._wait)
        p.jump_if(R9, "==", 0, "leave")
        add(p, R6 + place(NAPI, "wait"), R9, R7)

    def _first_of_softirq(self) -> None:
        """A NAPI that is polled again in the same softirq was not due all the time since that was raised."""
        p = self._p
        p.load(R1, self._kind)
        with p.when(R1, "==", Kind.SOFTIRQ):
            p.load(R2, self._softirq)
            p.load(R1, R6 + place(NAPI, "softirq"))
            p.jump_if(R1, "==", R2, "leave")
            p.store(R6 + place(NAPI, "softirq"), R2)


def _entered(vector: Vector) -> Address:
    return R9 + (place(STATE, "entered") + 8 * vector)
