"""Reclaim, the lock of the cgroup statistics and transmit timeouts: seldom enough to be measured all the time."""

import struct
from dataclasses import dataclass
from typing import Self

import numpy as np

from exhume.kernel.bpf import Program
from exhume.sources.latency import map_memory
from exhume.sources.latency.histogram import HISTOGRAM, Histogram, place, read, text
from exhume.sources.latency.per_cpu import emptied, possible_cpus
from exhume.sources.latency.probes import Probes, kernel_types
from exhume.sources.latency.rare_programs import (
    CONTROL,
    FLUSHES,
    QUEUE,
    QUEUE_KEY,
    QUEUES,
    RECLAIM_KEY,
    RECLAIMS,
    START_KEY,
    STARTS,
    Kind,
    Maps,
    probes,
)


@dataclass(frozen=True, slots=True)
class Reclaim:
    """Threads of a memory cgroup that had to free memory themselves, on a core."""

    kind: str
    """`direct` because the node had no free memory, `memcg` because a cgroup was at its limit or told to."""
    cpu: int
    cgroup_id: int
    """Of the cgroup that the threads are in; see `cgroup_paths`."""
    duration: Histogram


@dataclass(frozen=True, slots=True)
class RstatWait:
    """Threads that waited for the lock of the cgroup statistics, by the core that got it."""

    cpu: int
    wait: Histogram


@dataclass(frozen=True, slots=True)
class TransmitTimeout:
    device: str
    netns: int
    queue: int
    count: int
    last_ns: int
    """By CLOCK_MONOTONIC."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What was counted since the last time."""

    reclaims: tuple[Reclaim, ...]
    rstat_waits: tuple[RstatWait, ...]
    flushes: int
    """How often somebody asked for memory cgroup statistics to be brought up to date."""
    forced_flushes: int
    timeouts: tuple[TransmitTimeout, ...]
    unkept: int
    """Events that found no room."""


class Rare:
    """Attached from the beginning, unless told otherwise. A context manager; all is gone with the process."""

    def __init__(self, *, attach: bool = True) -> None:
        self._cpus = possible_cpus()
        self._bank = self._unkept = 0
        self._maps = Maps()
        try:
            self._probes = Probes(probes(self._maps, kernel_types))
        except BaseException:
            self._maps.close()
            raise
        try:
            if attach:
                self.attach()
        except BaseException:
            self.close()
            raise

    @property
    def off(self) -> dict[str, str]:
        """Each program that is not there, and why."""
        return self._probes.off

    def program(self, name: str) -> Program:
        return self._probes.program(name)

    def attach(self) -> None:
        self._probes.attach()

    def detach(self) -> None:
        self._probes.detach()

    def take(self) -> Taken:
        """What was counted since the last time."""
        bank, self._bank = self._bank, 1 - self._bank
        self._maps.control.write(struct.pack("=Q", self._bank), place(CONTROL, "bank"))
        unkept = int(np.frombuffer(self._maps.control.read(), CONTROL)[0]["unkept"])
        flushes = emptied(self._maps.flushes, bank, FLUSHES)
        taken = Taken(
            reclaims=self._reclaims(bank),
            rstat_waits=self._rstat_waits(bank),
            flushes=int(flushes["all"].sum()),
            forced_flushes=int(flushes["forced"].sum()),
            timeouts=self._timeouts(bank),
            unkept=unkept - self._unkept,
        )
        self._unkept = unkept
        return taken

    def close(self) -> None:
        self._probes.close()
        self._maps.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reclaims(self, bank: int) -> tuple[Reclaim, ...]:
        found = []
        for raw_key, raw in self._maps.reclaims.snapshot().items():
            key = np.frombuffer(raw_key, RECLAIM_KEY)[0]
            if key["bank"] == bank:
                self._maps.reclaims.delete(raw_key)
                kind = Kind(int(key["kind"])).name.lower()
                duration = read(np.frombuffer(raw, HISTOGRAM)[0])
                found.append(Reclaim(kind, int(key["cpu"]), int(key["cgroup"]), duration))
        return tuple(sorted(found, key=lambda r: (r.kind, r.cgroup_id, r.cpu)))

    def _rstat_waits(self, bank: int) -> tuple[RstatWait, ...]:
        records = emptied(self._maps.rstat, bank, HISTOGRAM)
        return tuple(RstatWait(self._cpus[index], read(records[index])) for index in np.flatnonzero(records["count"]).tolist())

    def _timeouts(self, bank: int) -> tuple[TransmitTimeout, ...]:
        found = []
        for raw_key, raw in self._maps.queues.snapshot().items():
            key = np.frombuffer(raw_key, QUEUE_KEY)[0]
            if key["bank"] == bank:
                self._maps.queues.delete(raw_key)
                value = np.frombuffer(raw, QUEUE)[0]
                name = text(key["device"].tobytes())
                netns, queue = int(key["netns"]), int(key["queue"])
                found.append(TransmitTimeout(name, netns, queue, int(value["count"]), int(value["last_ns"])))
        return tuple(sorted(found, key=lambda t: (t.netns, t.device, t.queue)))


def memory_bytes(cpus: int) -> int:
    """What the maps take, on a machine that can have so many CPUs."""
    return (
        map_memory.array(CONTROL.itemsize, 1)
        + map_memory.array(HISTOGRAM.itemsize, 1)
        + map_memory.per_cpu_array(HISTOGRAM.itemsize, 2, cpus)
        + map_memory.per_cpu_array(FLUSHES.itemsize, 2, cpus)
        + map_memory.table(START_KEY.itemsize, 8, STARTS, cpus)
        + map_memory.table(RECLAIM_KEY.itemsize, HISTOGRAM.itemsize, RECLAIMS, cpus)
        + map_memory.table(QUEUE_KEY.itemsize, QUEUE.itemsize, QUEUES, cpus)
    )
