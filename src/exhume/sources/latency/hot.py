"""Softirqs, NAPI polls and the run queue, measured in windows.

These events can come a million times a second, and a hit costs about 90 ns (softirqs, NAPI), 80 ns (wake-ups) or 150 ns
(switches), 40 ns of them for a program that does nothing: 30 % of a flood over veth, 12 % of a pipe ping-pong on one core, as
long as they are attached. So they are loaded once, attached for a short time and detached again (2 ms each): what is late for
long is found by those who look at what is outstanding, and the windows say how the node does otherwise. Those of the run queue
can be detached sooner: there is more than enough to count.
"""

import struct
import time
from dataclasses import dataclass
from typing import Self

import numpy as np

from exhume.kernel.bpf import Program
from exhume.sources.latency import map_memory
from exhume.sources.latency.histogram import HISTOGRAM, Histogram, place, read, text
from exhume.sources.latency.hot_maps import CONTROL, NAPI, NAPI_KEY, NAPIS, NEVER, STATE, TASKS, VECTOR, Maps, Vector
from exhume.sources.latency.hot_programs import RUN_QUEUE, probes
from exhume.sources.latency.per_cpu import emptied, possible_cpus
from exhume.sources.latency.probes import Probes, kernel_types


@dataclass(frozen=True, slots=True)
class Softirq:
    """A vector on a core."""

    cpu: int
    vector: Vector
    wait: Histogram
    """From being raised first to running."""
    run: Histogram


@dataclass(frozen=True, slots=True)
class Napi:
    """A NAPI instance and a core that polled it."""

    device: str
    netns: int
    """Inode number of its network namespace, as /proc/PID/ns/net has it; 0 if the kernel has none."""
    ifindex: int
    napi_id: int
    cpu: int
    polls: int
    packets: int
    exhausted: int
    """Polls that used up their budget: there was more to do."""
    threaded: int
    """Polls by its own kernel thread."""
    untimed: int
    """Polls whose beginning is not known: by a process that waits for packets itself, or at the beginning of a window."""
    wait: Histogram
    """From being due to being polled: at most so long, because the softirq may have been raised for another device first."""
    gap: Histogram
    """From a poll that used up its budget to the next."""
    poll: Histogram


@dataclass(frozen=True, slots=True)
class RunQueue:
    """Threads that got a core, after they were woken or had to make room for others."""

    cpu: int
    wait: Histogram


@dataclass(frozen=True, slots=True)
class Taken:
    """What was counted since the last time. Times are of CLOCK_MONOTONIC."""

    attached_ns: int
    """How much of that time was looked at."""
    run_queue_ns: int
    """How much of it at the run queue."""
    softirqs: tuple[Softirq, ...]
    napis: tuple[Napi, ...]
    runqueues: tuple[RunQueue, ...]
    unkept: int
    """Polls that found no room."""


class _Open:
    """How long something was open, all in all."""

    def __init__(self) -> None:
        self._before_ns = 0
        self.since_ns = NEVER

    def open(self) -> None:
        self.since_ns = time.monotonic_ns()

    def close(self) -> None:
        self._before_ns, self.since_ns = self.ns, NEVER

    @property
    def ns(self) -> int:
        return self._before_ns + (0 if self.since_ns == NEVER else time.monotonic_ns() - self.since_ns)


class Hot:
    """Nothing is attached at first. A context manager; all is gone with the process, however that ends."""

    def __init__(self) -> None:
        self._cpus = possible_cpus()
        self._bank = self._unkept = self._taken_ns = self._run_queue_taken_ns = 0
        self._window, self._run_queue = _Open(), _Open()
        self._maps = Maps()
        try:
            self._write("since_ns", NEVER)
            self._probes = Probes(probes(self._maps, kernel_types))
        except BaseException:
            self._maps.close()
            raise

    @property
    def off(self) -> dict[str, str]:
        """Each program that is not there, and why."""
        return self._probes.off

    @property
    def attached_ns(self) -> int:
        """How long windows were open, all in all."""
        return self._window.ns

    @property
    def sees_run_queue(self) -> bool:
        """Whether the run queue is looked at now."""
        return self._run_queue.since_ns != NEVER

    def program(self, name: str) -> Program:
        return self._probes.program(name)

    def attach(self) -> None:
        """Open a window."""
        self._probes.attach()
        self._write("switches", int("sched_switch" in self._probes.on))
        self._window.open()
        self._run_queue.open()
        self._write("since_ns", self._window.since_ns)

    def detach_run_queue(self) -> None:
        """Close a part of it: threads are no longer timed, those that poll devices included; softirqs and their polls are."""
        self._write("switches", 0)
        self._run_queue.close()
        self._probes.detach(RUN_QUEUE)

    def detach(self) -> None:
        """Close it; nothing happens if none is open."""
        if self._window.since_ns != NEVER:
            self._write("since_ns", NEVER)
            self._window.close()
            self._run_queue.close()
        self._probes.detach()

    def take(self) -> Taken:
        """What was counted since the last time, in an open window or after it."""
        attached_ns, run_queue_ns = self._window.ns, self._run_queue.ns
        if attached_ns == self._taken_ns:
            return Taken(0, 0, (), (), (), 0)
        bank, self._bank = self._bank, 1 - self._bank
        self._write("bank", self._bank)
        unkept = self._read("unkept")
        taken = Taken(
            attached_ns=attached_ns - self._taken_ns,
            run_queue_ns=run_queue_ns - self._run_queue_taken_ns,
            softirqs=self._softirqs(bank),
            napis=self._napis(bank),
            runqueues=self._runqueues(bank),
            unkept=unkept - self._unkept,
        )
        self._taken_ns, self._run_queue_taken_ns, self._unkept = attached_ns, run_queue_ns, unkept
        return taken

    def close(self) -> None:
        self.detach()
        self._probes.close()
        self._maps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _softirqs(self, bank: int) -> tuple[Softirq, ...]:
        found = []
        for vector in Vector:
            records = emptied(self._maps.vectors, bank * len(Vector) + vector, VECTOR)
            for index in np.flatnonzero(records["wait"]["count"] | records["run"]["count"]).tolist():
                wait, run = read(records["wait"][index]), read(records["run"][index])
                found.append(Softirq(self._cpus[index], vector, wait, run))
        return tuple(sorted(found, key=lambda s: (s.cpu, s.vector)))

    def _runqueues(self, bank: int) -> tuple[RunQueue, ...]:
        records = emptied(self._maps.runqueues, bank, HISTOGRAM)
        return tuple(RunQueue(self._cpus[index], read(records[index])) for index in np.flatnonzero(records["count"]).tolist())

    def _napis(self, bank: int) -> tuple[Napi, ...]:
        found = []
        for raw_key, raw in self._maps.napis.snapshot().items():
            key = np.frombuffer(raw_key, NAPI_KEY)[0]
            if key["bank"] == bank:
                self._maps.napis.delete(raw_key)
                found.append(_napi(int(key["cpu"]), np.frombuffer(raw, NAPI)[0]))
        return tuple(sorted(found, key=lambda n: (n.netns, n.ifindex, n.napi_id, n.cpu)))

    def _write(self, name: str, value: int) -> None:
        self._maps.control.write(struct.pack("=Q", value), place(CONTROL, name))

    def _read(self, name: str) -> int:
        return int(np.frombuffer(self._maps.control.read(), CONTROL)[0][name])


def memory_bytes(cpus: int) -> int:
    """What the maps take, on a machine that can have so many CPUs."""
    return (
        map_memory.array(CONTROL.itemsize, 1)
        + map_memory.array(NAPI.itemsize, 1)
        + map_memory.per_cpu_array(STATE.itemsize, 1, cpus)
        + map_memory.per_cpu_array(VECTOR.itemsize, 2 * len(Vector), cpus)
        + map_memory.per_cpu_array(HISTOGRAM.itemsize, 2, cpus)
        + map_memory.table(NAPI_KEY.itemsize, NAPI.itemsize, NAPIS, cpus)
        + map_memory.table(8, 8, NAPIS, cpus)
        + map_memory.array(8, TASKS)
    )


def _napi(cpu: int, record: np.void) -> Napi:
    return Napi(
        device=text(record["device"].tobytes()),
        netns=int(record["netns"]),
        ifindex=int(record["ifindex"]),
        napi_id=int(record["napi_id"]),
        cpu=cpu,
        polls=int(record["polls"]),
        packets=int(record["packets"]),
        exhausted=int(record["exhausted"]),
        threaded=int(record["threaded"]),
        untimed=int(record["untimed"]),
        wait=read(record["wait"]),
        gap=read(record["gap"]),
        poll=read(record["poll"]),
    )
