"""The programs that measure softirqs, and how they work together with those for NAPI polls and the run queue.

    softirq_raise ──wait──▶ softirq_entry ──run──▶ softirq_exit           per core and vector
                                │
                                └─ poll ─▶ napi_poll ─ poll ─▶ napi_poll  one after the other in a NET_RX softirq
    sched_waking ──wait──▶ sched_switch ─ poll ─▶ napi_poll               the same in a NAPI thread

`napi_poll` is hit when a poll is over, so that each begins where the one before it ended.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from exhume.kernel.bpf import R0, R1, R2, R6, R7, R8, R9, Address, Btf, Builder, Helper
from exhume.sources.latency.histogram import add, place
from exhume.sources.latency.hot_maps import STATE, VECTOR, Maps, Vector, window_or_leave
from exhume.sources.latency.instructions import leave
from exhume.sources.latency.napi_program import napi_poll
from exhume.sources.latency.probes import Probe
from exhume.sources.latency.run_queue import sched_switch, sched_waking

RUN_QUEUE: Final = frozenset(("sched_waking", "sched_wakeup_new", "sched_switch"))


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
