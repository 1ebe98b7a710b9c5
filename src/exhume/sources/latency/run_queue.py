"""The programs that measure how long threads wait for a core: from being woken, or having to make room, to running.

They are hit at every switch of every core, so what they remember is kept where it is found without a search: a thread's place
in an array is the lower bits of its number. An entry is one word,

    when it was woken, in nanoseconds, without the highest 8 bits │ the other bits of its number

so that nobody sees half of one, and a thread that finds another's there knows it. Two that share a place and wait at the same
time are rare, and one of the two waits is then not counted.
"""

from dataclasses import dataclass
from typing import Final, Self

from exhume.kernel.bpf import R0, R1, R2, R3, R6, R7, R8, R9, Address, Btf, Builder, Helper, Member, Register
from exhume.sources.latency.histogram import Task, add, place
from exhume.sources.latency.hot_maps import STATE, TASK_BITS, TASKS, Maps, window_or_leave
from exhume.sources.latency.instructions import leave

OTHER_BITS: Final = 22 - TASK_BITS  # a thread's number is less than 2^22 (PID_MAX_LIMIT in include/linux/threads.h)


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
    p.read(R7, R6 + fields.pid, 4)
    p.jump_if(R7, "==", 0, "leave")
    p.call(Helper.ktime_get_ns)
    p.mov(R9, R0)
    _note(p, maps, R7, R9, key)
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
    key, bank, preempt, number = p.stack(4), p.stack(4), p.stack(8), p.stack(8)
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
    p.read(R6, R6 + fields.pid, 4)
    p.jump_if(R6, "==", 0, "asleep")
    _note(p, maps, R6, R9, key)
    p.label("asleep")

    p.address_of(R6, maps.state)
    p.store(R6 + place(STATE, "switched"), R9)
    p.store(R6 + place(STATE, "switched_wait"), 0)
    p.read(R1, R7 + fields.pid, 4)
    p.jump_if(R1, "==", 0, "leave")  # idle never waits
    p.store(number, R1)
    _take(p, maps, number, key)
    p.store(R6 + place(STATE, "switched_wait"), R8)
    p.lookup(maps.runqueues, bank)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R6, R0)
    add(p, R6 + 0, R8, R9, task=Task(R7, fields.pid, fields.comm))
    leave(p)
    return p


def _note(p: Builder, maps: Maps, number: Register, now: Register, key: Address) -> None:
    """Write down that a thread waits from now on. Spoils the register that its number is in."""
    _place_of(p, number, key)
    p.lookup(maps.wakes, key)
    p.jump_if(R0, "==", 0, "leave")
    p.mov(R1, now)
    p.shift_left(R1, OTHER_BITS)
    p.shift_right(number, TASK_BITS)
    p.bit_or(R1, number)
    p.store(R0 + 0, R1)


def _take(p: Builder, maps: Maps, number: Address, key: Address) -> None:
    """R8, when the window began, becomes for how long a thread has waited at R9, now; no further if that is not known.

    What was noted before the window, or a hair later than now by another core's clock, or not at all, would have taken longer
    than the window is open.
    """
    p.load(R1, number)
    _place_of(p, R1, key)
    p.lookup(maps.wakes, key)
    p.jump_if(R0, "==", 0, "leave")
    p.load(R1, R0 + 0)
    p.mov(R2, R1)
    p.bit_and(R2, (1 << OTHER_BITS) - 1)
    p.load(R3, number)
    p.shift_right(R3, TASK_BITS)
    p.jump_if(R2, "!=", R3, "leave")
    p.store(R0 + 0, 0)
    p.sub(R1, R2)
    p.mov(R2, R9)
    p.shift_left(R2, OTHER_BITS)
    p.sub(R2, R1)
    p.shift_right(R2, OTHER_BITS)
    p.mov(R1, R9)
    p.sub(R1, R8)
    p.jump_if(R2, ">", R1, "leave")
    p.mov(R8, R2)


def _place_of(p: Builder, number: Register, key: Address) -> None:
    """Where a thread's entry is."""
    p.mov(R2, number)
    p.bit_and(R2, TASKS - 1)
    p.store(key, R2, 4)
