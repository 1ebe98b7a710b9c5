"""A histogram of times in powers of two, as BPF programs add to it and as it is read: how often, how long, and the worst case.

The program keeps, beside the counts, the longest time, when it ended and whom it befell, because that is what a person asks
next. What was between the powers of two is lost, so a percentile is an estimate within its bucket; the maximum is exact.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from exhume.kernel.bpf import R0, R1, R2, R3, R4, R5, Address, Builder, Helper, Register
from exhume.text import decode

BUCKETS: Final = 28
"""Bucket 0 is below 1 us, bucket i is [2^(i-1), 2^i) us, the last takes the rest: 67 s and more."""
COMM_BYTES: Final = 16  # TASK_COMM_LEN in include/linux/sched.h

HISTOGRAM: Final = np.dtype(
    [
        ("count", "u8"),
        ("sum_ns", "u8"),
        ("max_ns", "u8"),
        ("max_at_ns", "u8"),
        ("pid", "u4"),
        ("unused", "u4"),
        ("comm", f"V{COMM_BYTES}"),
        # Four bytes each: they are emptied at least once a minute, and nothing here happens 70 million times a second.
        ("buckets", "u4", (BUCKETS,)),
    ]
)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Times that were measured since the last look."""

    count: int = 0
    sum_ns: int = 0
    max_ns: int = 0
    max_at_ns: int = 0
    """When the longest ended, by the clock of BPF (CLOCK_MONOTONIC)."""
    pid: int = 0
    """The thread that the longest befell, or that was running when it ended; its number in the node's own PID namespace."""
    comm: str = ""
    buckets: tuple[int, ...] = (0,) * BUCKETS


EMPTY: Final = Histogram()


@dataclass(frozen=True, slots=True)
class Task:
    """A task_struct whose address is in a register, and where its thread number and name are in it."""

    register: Register
    pid: int
    comm: int


def read(record: np.void) -> Histogram:
    """One as a program left it."""
    return Histogram(
        count=int(record["count"]),
        sum_ns=int(record["sum_ns"]),
        max_ns=int(record["max_ns"]),
        max_at_ns=int(record["max_at_ns"]),
        pid=int(record["pid"]),
        comm=text(record["comm"].tobytes()),
        buckets=tuple(record["buckets"].tolist()),
    )


def text(raw: bytes) -> str:
    """A name from the kernel, up to its NUL."""
    return decode(raw.split(b"\0", 1)[0])


def edges() -> tuple[float, ...]:
    """Where each bucket begins, in microseconds, and where the last one ends: nowhere."""
    return (0.0, *(float(1 << i) for i in range(BUCKETS - 1)), float("inf"))


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All of them as one; the worst case is the worst of all, the first of equals."""
    given = [h for h in histograms if h.count]
    if not given:
        return EMPTY
    worst = max(given, key=lambda h: h.max_ns)
    return Histogram(
        count=sum(h.count for h in given),
        sum_ns=sum(h.sum_ns for h in given),
        max_ns=worst.max_ns,
        max_at_ns=worst.max_at_ns,
        pid=worst.pid,
        comm=worst.comm,
        buckets=tuple(map(sum, zip(*(h.buckets for h in given), strict=True))),
    )


def percentile(histogram: Histogram, q: float) -> float:
    """The time, in microseconds, that `q` percent of all did not pass; 0 if there are none, never more than the maximum.

    The bucket is that of the true value. Within it the times are taken to be spread evenly on a scale of powers, evenly on a
    plain one in bucket 0, which begins at zero.
    """
    if not 0 <= q <= 100:
        raise ValueError(f"a percentile is between 0 and 100, not {q}")
    total = sum(histogram.buckets)
    if not total:
        return 0.0
    longest = histogram.max_ns / 1000
    # Rounded first: 55 percent of 100 are 55.00000000000001 in floating point, and must not become the 56th.
    rank = max(1, math.ceil(round(q * total / 100, 6)))
    below = 0
    bounds = edges()
    for bucket, count in enumerate(histogram.buckets):
        if below + count >= rank:
            low, high = bounds[bucket], min(bounds[bucket + 1], longest)
            part = (rank - below) / count
            value = low * (high / low) ** part if low else high * part
            return min(max(value, low), longest)
        below += count
    return longest


def add(p: Builder, histogram: Address, value: Register, now: Register, *, task: Task | None = None) -> None:
    """Instructions that add a time to the histogram at an address: `value` in nanoseconds, which ended at `now`.

    The worst case is said to be that of `task`, or of the current one. All registers that are given must be of R6 to R9;
    R0 to R5 are spoilt. Nothing is locked: only one CPU writes to a histogram.
    """
    _require_kept(histogram.base, value, now, *(() if task is None else (task.register,)))
    for name, amount in (("count", 1), ("sum_ns", value)):
        p.load(R1, histogram + place(HISTOGRAM, name))
        p.add(R1, amount)
        p.store(histogram + place(HISTOGRAM, name), R1)
    _bucket(p, value)
    p.shift_left(R3, 2)
    p.mov(R2, histogram.base)
    p.add(R2, R3)
    buckets = R2 + (histogram.offset + place(HISTOGRAM, "buckets"))
    p.load(R1, buckets, 4)
    p.add(R1, 1)
    p.store(buckets, R1, 4)
    p.load(R1, histogram + place(HISTOGRAM, "max_ns"))
    with p.when(value, ">", R1):
        p.store(histogram + place(HISTOGRAM, "max_ns"), value)
        p.store(histogram + place(HISTOGRAM, "max_at_ns"), now)
        _name(p, histogram, task)


def _bucket(p: Builder, value: Register) -> None:
    """R3 = which bucket: 0 below 1 us, else 1 + floor(log2(us)), at most the last.

    Without branches: the verifier would have to follow each of 32 ways through every one of them.
    """
    p.mov(R1, value)
    p.div(R1, 1000)
    p.mov(R3, 0)
    for power in (4, 3, 2, 1, 0):
        # R4 = 2^power if R1 needs more than 2^power bits, else 0: the sign of what is left when it is taken from 2^2^power - 1.
        p.mov(R4, (1 << (1 << power)) - 1)
        p.sub(R4, R1)
        p.shift_right(R4, 63)
        p.shift_left(R4, power)
        p.shift_right(R1, R4)
        p.add(R3, R4)
    p.add(R3, R1)  # what is left is 1, or 0 if there was nothing at all, or a lot if the time was years
    with p.when(R3, ">", BUCKETS - 1):
        p.mov(R3, BUCKETS - 1)


def _name(p: Builder, histogram: Address, task: Task | None) -> None:
    if task is None:
        p.call(Helper.get_current_pid_tgid)
        p.store(histogram + place(HISTOGRAM, "pid"), R0, 4)
        p.mov(R1, histogram + place(HISTOGRAM, "comm"))
        p.mov(R2, COMM_BYTES)
        p.call(Helper.get_current_comm)
        return
    p.copy(histogram + place(HISTOGRAM, "pid"), 4, task.register + task.pid)
    p.copy(histogram + place(HISTOGRAM, "comm"), COMM_BYTES, task.register + task.comm)


def _require_kept(*registers: Register) -> None:
    for register in registers:
        if register in (R0, R1, R2, R3, R4, R5):
            raise ValueError(f"{register} does not outlive a call")


def place(of: np.dtype[np.void], name: str) -> int:
    """Where a column of a record begins."""
    fields = of.fields
    assert fields is not None
    return int(fields[name][1])
