"""Stack samples of the whole machine by perf_event_open(2): two rings for each CPU, one for samples, one for the side-band.

The side-band (who was started, what it mapped, what it is called) has a ring of its own, so that a storm of short processes
costs no sample, and so that nobody need look at it for processes that have none. All of it is gone with its descriptors.
"""

import errno
import os
import resource
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.kernel.perf import CPU_CLOCK, CPU_CYCLES, DUMMY, Attributes, Flag, Kind, Ring, Sample, enable, open_on_cpu, refusal

LOWEST_HZ, HIGHEST_HZ = 1, 999

_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED, PERF_FORMAT_TOTAL_TIME_RUNNING
_SAMPLE = Sample.TID | Sample.TIME | Sample.CALLCHAIN | Sample.CPU
_TASKS = Flag.MMAP | Flag.MMAP2 | Flag.COMM | Flag.COMM_EXEC | Flag.TASK | Flag.SAMPLE_ID_ALL
_SMALLEST, _LARGEST = 1 << 17, 1 << 20
_ALL_RINGS = 48 << 20
# No counter (ENOENT, EOPNOTSUPP, EINVAL), or one that somebody has for himself alone (EBUSY).
_NO_COUNTER = (errno.ENOENT, errno.EOPNOTSUPP, errno.EBUSY, errno.EINVAL)
_OTHER_FILES = 256
# Others count with the same counters, and the kernel lets them take turns: worth telling below that share of the time.
_SHARED = 0.95
# 127 frames (kernel.perf_event_max_stack) and what surrounds them.
_LARGEST_SAMPLE = 1100


class Taken(NamedTuple):
    """What a CPU's rings held: records as the kernel wrote them."""

    samples: bytes
    tasks: bytes


@dataclass(slots=True)
class _Cpu:
    sample_fd: int
    task_fd: int
    samples: Ring
    tasks: Ring | None
    enabled_ns: int = -1
    running_ns: int = 0

    @property
    def descriptors(self) -> list[int]:
        return [self.sample_fd, self.task_fd] if self.tasks is not None else [self.sample_fd]

    def close(self) -> None:
        self.samples.close()
        if self.tasks is not None:
            self.tasks.close()
        for fd in self.descriptors:
            os.close(fd)


class Sampler:
    """Takes the stack of every CPU so many times a second. A context manager."""

    def __init__(self, cpus: Iterable[int], hz: int, kernel_only: bool = False, side_band: bool = True) -> None:
        """With `kernel_only` the kernel leaves user frames out; without `side_band` nothing is told of processes that come
        and go. Raises Unreadable where there is no sampling."""
        self.hz = hz
        self.event = ""
        """cycles, where the machine counts them; otherwise cpu-clock, a timer."""
        self.cgroups = True
        """Whether samples carry their cgroup (5.7)."""
        self.shared = 1.0
        """The share of the time in which samples were taken lately, of the CPU that has least."""
        self._kernel_only, self._side_band = kernel_only, side_band
        self._cpus: dict[int, _Cpu] = {}
        wanted = list(cpus)
        _make_room(len(wanted))
        self._size = _ring_size(len(wanted), 4 * hz * _LARGEST_SAMPLE)  # some seconds of the deepest stacks
        self._task_size = _ring_size(len(wanted), _LARGEST)
        try:
            self._add_all(wanted)
        except OSError as error:
            self.close()
            if isinstance(error, _Locked):
                raise Unreadable(
                    "stack samples need more memory than this user may lock: take CAP_IPC_LOCK, or raise "
                    "kernel.perf_event_mlock_kb"
                ) from None
            if error.errno == errno.EINVAL and hz > (highest := _highest_hz()):
                raise Unreadable(
                    f"the kernel takes at most {highest} stack samples a second: ask for fewer, or raise "
                    "kernel.perf_event_max_sample_rate, which it lowers when samples take it too long"
                ) from None
            raise refusal("stack samples", error) from None
        except BaseException:
            self.close()
            raise
        if not self._cpus:
            raise Unreadable("no CPU is there to take samples on")

    @property
    def reason(self) -> str:
        """What is not as it should be; "" for nothing."""
        if self.shared >= _SHARED:
            return ""
        return f"other profilers count, too: samples are taken in {max(0.0, 100 * self.shared):.0f} % of the time"

    @property
    def cpus(self) -> list[int]:
        return list(self._cpus)

    def descriptors(self) -> list[int]:
        """To poll: readable when a ring is half full."""
        return [fd for cpu in self._cpus.values() for fd in cpu.descriptors]

    def take(self) -> list[Taken]:
        """What came since the last time. Samples are taken first: what the side-band says about them is then there, too."""
        samples = [cpu.samples.take() for cpu in self._cpus.values()]
        return [
            Taken(taken, cpu.tasks.take() if cpu.tasks is not None else b"")
            for taken, cpu in zip(samples, self._cpus.values(), strict=True)
        ]

    def follow(self, online: Iterable[int]) -> list[str]:
        """CPUs came, went, or went and came back: the kernel takes an event off a CPU that goes and never puts it back.

        Returns what changed, for people. What a leaving CPU's rings still hold should have been taken before.
        """
        changed = []
        now = set(online)
        for number in [number for number in self._cpus if number not in now]:
            self._cpus.pop(number).close()
            changed.append(f"CPU {number} went offline")
        self.shared = 1.0
        for number, cpu in list(self._cpus.items()):
            enabled, running = _times(cpu.sample_fd)
            if enabled == cpu.enabled_ns:
                self._cpus.pop(number).close()
                changed.append(f"CPU {number} was away")
            elif cpu.enabled_ns >= 0:
                self.shared = min(self.shared, (running - cpu.running_ns) / (enabled - cpu.enabled_ns))
            cpu.enabled_ns, cpu.running_ns = enabled, running
        for number in sorted(now - self._cpus.keys()):
            try:
                self._add(number)
            except OSError as error:
                changed.append(str(refusal(f"stack samples of CPU {number}", error)))
                continue
            if number in self._cpus:
                changed.append(f"CPU {number} came online")
        return changed

    def close(self) -> None:
        for cpu in self._cpus.values():
            cpu.close()
        self._cpus = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _add_all(self, cpus: list[int]) -> None:
        try:
            for cpu in cpus:
                self._add(cpu)
        except OSError as error:
            if self.event != "cycles" or error.errno not in _NO_COUNTER:
                raise
            # CPUs of two kinds: the event without a PMU's number is that of one kind alone (perf_event_open(2), config).
            self.close()
            self.event = "cpu-clock"
            for cpu in cpus:
                self._add(cpu)

    def _add(self, number: int) -> None:
        try:
            sample_fd = self._open_samples(number)
        except OSError as error:
            if error.errno == errno.ENODEV:  # a CPU that went offline
                return
            raise
        fds, rings = [sample_fd], []
        try:
            rings.append(_ring(sample_fd, self._size))
            if self._side_band:
                fds.append(self._open_tasks(number))
                rings.append(_ring(fds[1], self._task_size))
            for fd in fds:
                enable(fd)
        except BaseException:
            for ring in rings:
                ring.close()
            for fd in fds:
                os.close(fd)
            raise
        self._cpus[number] = _Cpu(sample_fd, fds[-1], rings[0], rings[1] if self._side_band else None)

    def _open_samples(self, cpu: int) -> int:
        """The first CPU finds out what the machine has, the others take the same."""
        events = {"cycles": (Kind.HARDWARE, CPU_CYCLES), "cpu-clock": (Kind.SOFTWARE, CPU_CLOCK)}
        for event, (kind, config) in events.items():
            if self.event not in ("", event):
                continue
            try:
                fd = self._with_cgroups(kind, config, cpu)
            except OSError as error:
                if event == "cycles" and error.errno in _NO_COUNTER:
                    continue
                raise
            self.event = event
            return fd
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    def _with_cgroups(self, kind: Kind, config: int, cpu: int) -> int:
        flags = Flag.DISABLED | Flag.FREQ | Flag.WATERMARK | Flag.EXCLUDE_GUEST
        if self._kernel_only:
            flags |= Flag.EXCLUDE_CALLCHAIN_USER
        for sample in (_SAMPLE | Sample.CGROUP, _SAMPLE):
            if self.event and self.cgroups != bool(sample & Sample.CGROUP):
                continue
            attributes = Attributes(kind, config, sample, flags, self.hz, _TIMES, self._size // 2)
            try:
                fd = open_on_cpu(attributes, cpu)
            except OSError as error:
                if error.errno == errno.EINVAL and sample & Sample.CGROUP:
                    continue
                raise
            self.cgroups = bool(sample & Sample.CGROUP)
            return fd
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def _open_tasks(self, cpu: int) -> int:
        flags = Flag.DISABLED | Flag.WATERMARK | _TASKS
        if self.cgroups:
            flags |= Flag.CGROUP
        return open_on_cpu(Attributes(Kind.SOFTWARE, DUMMY, Sample.TIME, flags, watermark=self._task_size // 2), cpu)


class _Locked(OSError):
    """The memory of rings is locked, and there is a limit to that."""


def _ring(fd: int, size: int) -> Ring:
    try:
        return Ring(fd, size)
    except PermissionError as error:
        raise _Locked(error.errno, error.strerror) from None


def _times(fd: int) -> tuple[int, int]:
    """For how long the event has been on a CPU that was there, and for how long of that it counted."""
    try:
        _, enabled, running = struct.unpack("=QQQ", os.read(fd, 24))
        return enabled, running
    except (OSError, struct.error):
        return -1, 0


def _highest_hz() -> int:
    try:
        return int(Root().read("proc/sys/kernel/perf_event_max_sample_rate", 64))
    except (Unreadable, ValueError):
        return HIGHEST_HZ


def _make_room(cpus: int) -> None:
    """Two events a CPU, and Python holds another descriptor for each ring: more than the 1,024 files that are usual."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * cpus + _OTHER_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ring_size(cpus: int, wanted: int) -> int:
    """A power of two: less than wanted where all of a machine's rings would take more than 48 MiB together."""
    size = min(wanted, _ALL_RINGS // max(1, 2 * cpus))
    return max(_SMALLEST, min(_LARGEST, 1 << (size.bit_length() - 1)))
