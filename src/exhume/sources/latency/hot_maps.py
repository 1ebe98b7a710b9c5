"""The memory that we share with the programs on frequent events: what they remember for each other, and what they count.

What a program remembers for the next one (when a softirq was raised, when a thread was woken) is worth something only if it
was noted in the same window: in between nobody was looking. `since_ns` is when the window began, all that is older is not
believed, and as long as no window is open it is the end of time, which makes every program end at once. It is set when all
programs are attached already; otherwise those that are attached first would note beginnings whose ends nobody sees.

What they count goes to one of two banks. Whoever takes it turns the bank first, so that nothing is emptied while it is written
to, except by a program that began before that and is not over yet.
"""

from contextlib import ExitStack
from enum import IntEnum
from typing import Final, Self

import numpy as np

from exhume.kernel.bpf import R0, R2, R8, Array, Block, Builder, Hash, PerCpuArray
from exhume.sources.latency.histogram import HISTOGRAM, place

NAME_BYTES: Final = 16  # IFNAMSIZ in include/uapi/linux/if.h
NAPIS: Final = 2048
"""NAPI instances and cores that poll them, in both banks together."""
TASK_BITS: Final = 14
"""A thread's place among those that wait for a core is by so many bits of its number."""
TASKS: Final = 1 << TASK_BITS
NEVER: Final = (1 << 64) - 1


class Vector(IntEnum):
    """Softirqs in the order of their numbers (include/linux/interrupt.h), which /proc/softirqs has by these names."""

    HI = 0
    TIMER = 1
    NET_TX = 2
    NET_RX = 3
    BLOCK = 4
    IRQ_POLL = 5
    TASKLET = 6
    SCHED = 7
    HRTIMER = 8
    RCU = 9


CONTROL: Final = np.dtype(
    [
        ("since_ns", "u8"),
        ("bank", "u8"),
        ("unkept", "u8"),
        ("switches", "u8"),  # whether switches of threads are seen, without which a thread's sleep looks like a long poll
    ]
)

STATE: Final = np.dtype(
    [
        ("raised", "u8", (len(Vector),)),  # when each was raised first since it ran last
        ("entered", "u8", (len(Vector),)),  # when it began to run; 0 when it is over
        ("rx_raised", "u8"),  # when the NET_RX softirq that runs now was raised; 0 if that is not known
        ("rx_polled", "u8"),  # until when it is accounted for: its beginning, or the end of its last poll
        ("switched", "u8"),  # when the thread that has the core now got it
        ("switched_wait", "u8"),  # how long it had waited for that; 0 if that is not known, or has been used
        ("thread_polled", "u8"),  # when the last poll by a NAPI thread ended here
    ]
)
VECTOR: Final = np.dtype([("wait", HISTOGRAM), ("run", HISTOGRAM)])
NAPI_KEY: Final = np.dtype([("napi", "u8"), ("cpu", "u4"), ("bank", "u4")])
NAPI: Final = np.dtype(
    [
        ("device", f"V{NAME_BYTES}"),
        ("netns", "u4"),
        ("ifindex", "u4"),
        ("napi_id", "u4"),
        ("unused", "u4"),
        ("softirq", "u8"),  # when the softirq of its last poll began: which one it was
        ("polls", "u8"),
        ("packets", "u8"),
        ("exhausted", "u8"),
        ("threaded", "u8"),
        ("untimed", "u8"),
        ("wait", HISTOGRAM),
        ("gap", HISTOGRAM),
        ("poll", HISTOGRAM),
    ]
)


class Maps:
    """All memory of the programs."""

    def __init__(self) -> None:
        with ExitStack() as undo:
            self.control = undo.enter_context(Block(CONTROL.itemsize))
            self.state = undo.enter_context(PerCpuArray(STATE.itemsize, 1))
            self.vectors = undo.enter_context(PerCpuArray(VECTOR.itemsize, 2 * len(Vector)))
            self.runqueues = undo.enter_context(PerCpuArray(HISTOGRAM.itemsize, 2))
            self.napis = undo.enter_context(Hash(NAPI_KEY.itemsize, NAPI.itemsize, NAPIS))
            self.blank = undo.enter_context(Array(NAPI.itemsize, 1))
            # By napi_struct: when a poll ended that left packets behind. Not with the rest, because the next one may come on
            # another core.
            self.pending = undo.enter_context(Hash(8, 8, NAPIS, lru=True))
            # When the thread was woken that was noted last in a place: see run_queue.py.
            self.wakes = undo.enter_context(Array(8, TASKS))
            self._undo = undo.pop_all()

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def window_or_leave(p: Builder, maps: Maps) -> None:
    """R8 = when the window began, R2 = the bank; no further if none is open. Leaves R6, R7 and R9 alone."""
    p.address_of(R0, maps.control)
    p.load(R8, R0 + place(CONTROL, "since_ns"))
    p.load(R2, R0 + place(CONTROL, "bank"))
    with p.when(R8, "==", -1):
        p.exit(0)
