"""The programs that measure softirqs and the run queue, and how they work together with that for NAPI polls.

    softirq_raise ──wait──▶ softirq_entry ──run──▶ softirq_exit           per core and vector
                                │
                                └─ poll ─▶ napi_poll ─ poll ─▶ napi_poll  one after the other in a NET_RX softirq
    sched_waking ──wait──▶ sched_switch ─ poll ─▶ napi_poll               the same in a NAPI thread

`napi_poll` is hit when a poll is over, so that each begins where the one before it ended.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

from exhume.kernel.bpf import (
    R0,
    R1,
    R2,
    R6,
    R7,
    R8,
    R9,
    Address,
    Btf,
    Builder,
    Helper,
    Member,
)
from exhume.node.latency.histogram import Task, add, place
from exhume.node.latency.hot_maps import STATE, VECTOR, Maps, Vector, window_or_leave
from exhume.node.latency.instructions import leave, note
from exhume.node.latency.napi_program import napi_poll
from exhume.node.latency.probes import Probe


def probes(maps: Maps, types: Callable[[], Btf]) -> list[Probe]:
    """`types` raises BtfError where there is no BTF; the softirqs need none."""

    def built(program: Callable[[Maps, Btf], Builder]) -> Callable[[], Builder]:
        return lambda: program(maps, types())

    def probe(name: str, label: str, build: Callable[[], Builder], *instead: str) -> Probe:
        return Probe(name, (name, *instead), label, build)

    return [
        probe("softirq_raise", "raise", partial(softirq_raise, maps)),
        probe("softirq_entry", "entry", partial(softirq_entry, maps)),
        probe("softirq_exit", "exit", partial(softirq_exit, maps)),
        probe("napi_poll", "napi", built(napi_poll)),
        # Hit by whoever wakes, before the thread is put on a queue (4.3, fbd705a0c618); sched_wakeup only when it is on one.
        probe("sched_waking", "waking", built(sched_waking), "sched_wakeup"),
        probe("sched_wakeup_new", "new", built(sched_waking)),
        probe("sched_switch", "switch", built(sched_switch)),
    ]


# Softirqs. They are raised on the core that will run them (raise_softirq_irqoff), and none interrupts another.


def softirq_raise(maps: Maps) -> Builder:
    """(unsigned int vec): note the time, unless it is raised already. The common case, raised again, asks for no time."""
    p = Builder()
    p.argument(R7, 0)
    _vector_or_leave(p)
    window_or_leave(p, maps)
    p.address_of(R6, maps.state)
    p.shift_left(R7, 3)
    p.add(R6, R7)
    p.load(R1, R6 + place(STATE, "raised"))
    with p.when(R1, "<", R8):
        p.call(Helper.ktime_get_ns)
        p.store(R6 + place(STATE, "raised"), R0)
    p.exit(0)
    return p


def softirq_entry(maps: Maps) -> Builder:
    """(unsigned int vec): how long it was due. A device's interrupt may raise it again right now: the time is asked last."""
    p = Builder()
    key, now, raised = p.stack(4), p.stack(8), p.stack(8)
    p.argument(R7, 0)
    _vector_or_leave(p)
    window_or_leave(p, maps)
    _vector_key(p, key)
    p.address_of(R6, maps.state)
    p.mov(R9, R7)
    p.shift_left(R9, 3)
    p.add(R9, R6)
    p.load(R1, R9 + place(STATE, "raised"))
    p.store(raised, R1)
    p.store(R9 + place(STATE, "raised"), 0)
    p.call(Helper.ktime_get_ns)
    p.store(now, R0)
    p.store(R9 + place(STATE, "entered"), R0)
    p.load(R1, raised)
    with p.when(R7, "==", Vector.NET_RX):
        p.store(R6 + place(STATE, "rx_raised"), R1)
        p.store(R6 + place(STATE, "rx_polled"), R0)
    p.jump_if(R1, "<", R8, "leave")
    p.lookup(maps.vectors, key)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R6, R0)
    p.load(R7, now)
    p.mov(R8, R7)
    p.load(R1, raised)
    p.sub(R8, R1)
    add(p, R6 + place(VECTOR, "wait"), R8, R7)
    leave(p)
    return p


def softirq_exit(maps: Maps) -> Builder:
    """(unsigned int vec): how long it ran."""
    p = Builder()
    key = p.stack(4)
    p.argument(R7, 0)
    _vector_or_leave(p)
    window_or_leave(p, maps)
    _vector_key(p, key)
    p.address_of(R6, maps.state)
    p.shift_left(R7, 3)
    p.add(R6, R7)
    p.load(R9, R6 + place(STATE, "entered"))
    p.store(R6 + place(STATE, "entered"), 0)
    p.jump_if(R9, "<", R8, "leave")
    p.lookup(maps.vectors, key)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R6, R0)
    p.call(Helper.ktime_get_ns)
    p.mov(R7, R0)
    p.mov(R8, R0)
    p.sub(R8, R9)
    add(p, R6 + place(VECTOR, "run"), R8, R7)
    leave(p)
    return p


# The run queue


@dataclass(frozen=True, slots=True)
class TaskFields:
    pid: int
    comm: int
    state: Member

    @classmethod
    def of(cls, btf: Btf) -> Self:
        # 5.14 (2f064a59a11f) gave it another name and half the size.
        state = btf.member("task_struct", "__state", optional=True) or btf.member("task_struct", "state")
        return cls(
            pid=btf.offset("task_struct", "pid"),
            comm=btf.offset("task_struct", "comm"),
            state=state,
        )


def sched_waking(maps: Maps, btf: Btf) -> Builder:
    """(struct task_struct *p): note when it was woken. A thread that waits already is not woken again (ttwu_state_match)."""
    fields = TaskFields.of(btf)
    p = Builder()
    key = p.stack(4)
    p.argument(R6, 0)
    window_or_leave(p, maps)
    p.read(R1, R6 + fields.pid, 4)
    p.jump_if(R1, "==", 0, "leave")
    p.store(key, R1, 4)
    p.call(Helper.ktime_get_ns)
    p.mov(R9, R0)
    note(p, maps.wakes, key, R9)
    leave(p)
    return p


def sched_switch(maps: Maps, btf: Btf) -> Builder:
    """(bool preempt, struct task_struct *prev, *next, ...): from here `prev` waits, if it could go on, and `next` does not.

    The fourth argument, the state of `prev` (5.18, fa2c3254d7cf and 9c2136be0878), is not there on all kernels, so the state
    is read. A thread that goes to sleep and is being woken at this moment is in TASK_WAKING by then, not yet in TASK_RUNNING,
    which is 0.
    """
    fields = TaskFields.of(btf)
    p = Builder()
    key, bank, preempt = p.stack(4), p.stack(4), p.stack(8)
    p.argument(R6, 1)
    p.argument(R7, 2)
    p.argument(R2, 0)
    p.store(preempt, R2)
    window_or_leave(p, maps)
    p.store(bank, R2, 4)
    p.call(Helper.ktime_get_ns)
    p.mov(R9, R0)

    p.load(R1, preempt)
    p.bit_and(R1, 1)
    p.jump_if(R1, "!=", 0, "runnable")
    p.read(R1, R6 + fields.state.offset, 8 if fields.state.size == 8 else 4)
    p.jump_if(R1, "!=", 0, "asleep")
    p.label("runnable")
    p.read(R1, R6 + fields.pid, 4)
    p.jump_if(R1, "==", 0, "asleep")
    p.store(key, R1, 4)
    note(p, maps.wakes, key, R9)
    p.label("asleep")

    p.address_of(R6, maps.state)
    p.store(R6 + place(STATE, "switched"), R9)
    p.store(R6 + place(STATE, "switched_wait"), 0)
    p.read(R1, R7 + fields.pid, 4)
    p.jump_if(R1, "==", 0, "leave")  # idle never waits
    p.store(key, R1, 4)
    p.lookup(maps.wakes, key)
    p.jump_if(R0, "==", 0, "leave")
    p.load(R1, R0 + 0)
    p.store(R0 + 0, 0)
    p.jump_if(R1, "<", R8, "leave")
    p.jump_if(R1, ">", R9, "leave")  # noted on another core, whose clock may be a hair ahead
    p.mov(R8, R9)
    p.sub(R8, R1)
    p.store(R6 + place(STATE, "switched_wait"), R8)
    p.lookup(maps.runqueues, bank)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R6, R0)
    add(p, R6 + 0, R8, R9, task=Task(R7, fields.pid, fields.comm))
    leave(p)
    return p


# What they have in common


def _vector_or_leave(p: Builder) -> None:
    """R7 is a vector that we know."""
    with p.when(R7, ">=", len(Vector)):
        p.exit(0)


def _vector_key(p: Builder, key: Address) -> None:
    """The index of the vector in R7 in the bank in R2."""
    p.mul(R2, len(Vector))
    p.add(R2, R7)
    p.store(key, R2, 4)
