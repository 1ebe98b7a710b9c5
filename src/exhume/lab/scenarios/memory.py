"""Too little memory, without a leak: a container that needs more than its limit, and a mapping whose pages never stay."""

import os
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from exhume.errors import Refused
from exhume.lab import measure, rates
from exhume.lab.cgroup import Cgroup
from exhume.lab.scenario import Number, Promise, Scenario, Settings, Truth
from exhume.lab.tenant import Tenant, without
from exhume.lab.workshop import FILES, Lab

_PRESSURE = """\
A container may have 64 MB, and what its program works on is half as much again. The kernel gives it memory by taking away what
it used a moment ago, which is read from the disk again right after: the threads spend their time waiting for their own pages.
The node has memory in plenty and its own reclaim does nothing; only the pressure files show it, and the container's count of
times at its limit. A good verdict says that tasks wait for memory, and in which container; it does not speak of zombies,
though the kernel functions are the same."""

_STORM = """\
A program works on a file through a mapping, and its pages are dropped from the page cache as fast as it touches them: each
touch is a major page fault that waits for the disk, thousands a second. On a real node it is a mapping larger than memory, or
a tool that drops caches. The incident's team looked at page faults for weeks because they were there; here they are the
cause, there they were not."""

LIMIT_MB, WORKED_ON_MB, THREADS = 64, 96, 6
MAPPED_MB, MAPPERS = 64, 4
_MB = 1 << 20
_SETTLES_S = 2  # until the kernel has learned what is in use: before, it takes pages away that nobody misses


def fill(path: Path, megabytes: int) -> None:
    """A file on the disk of which nothing is in memory any more."""
    piece = os.urandom(1 << 16) * 16
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            for _ in range(megabytes):
                os.write(fd, piece)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    except OSError as error:
        raise Refused(f"{path} cannot be written: {error.strerror}") from None


def limit(group: Cgroup, megabytes: int) -> None:
    group.set("memory.max" if group.hierarchy.version == 2 else "memory.limit_in_bytes", megabytes * _MB)


def times_at_limit(group: Cgroup) -> int:
    if group.hierarchy.version == 2:
        return rates.named((group.directory / "memory.events").read_text(), "max")
    return int((group.directory / "memory.failcnt").read_text())


def _no_disk() -> str:
    """A file that is only in memory cannot be read from it again."""
    place = FILES[1]
    kind, longest = "", -1
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, of, *_ = line.split()
        if (f"{place}/").startswith(f"{point.rstrip('/')}/") and len(point) >= longest:
            kind, longest = of, len(point)
    return f"{place} is no disk but {kind}" if kind in ("tmpfs", "ramfs") else ""


def _no_limit() -> str:
    return without("memory") or rates.no_pressure() or _no_disk()


class Pressure:
    def __init__(self, lab: Lab) -> None:
        file = lab.file("working-set", memory=False)
        fill(file, WORKED_ON_MB)
        container = Tenant(lab, "kubepods", "small-container")
        self._group = container.group("memory")
        limit(self._group, LIMIT_MB)
        work = measure.Heard(container.work("thrash", file, THREADS, "lab-analytics"))
        if work.wait("read_bytes", 20) is None:
            raise Refused("the program that needs memory did not live: see dmesg")
        time.sleep(_SETTLES_S)
        self._waited = rates.Rate(lambda: rates.pressure_us("memory"))
        self._at_limit = rates.Rate(lambda: times_at_limit(self._group))
        self._again = rates.Rate(
            lambda: rates.vmstat("workingset_refault_file") + rates.vmstat("workingset_refault")
        )  # the latter until 5.9, for all kinds of pages
        self._work = work

    def measured(self) -> dict[str, Number]:
        return {
            "waited_share": round(self._waited.per_second / 1e6, 3),
            "at_limit_per_s": round(self._at_limit.per_second),
            "read_again_pages_s": round(self._again.per_second),
            "read_mb": int(self._work.get("read_bytes")) // _MB,
        }


def _make_pressure(lab: Lab, settings: Settings) -> AbstractContextManager[Pressure]:
    return nullcontext(Pressure(lab))


def _pressure_promises(settings: Settings) -> tuple[Promise, ...]:
    return (
        Promise("waited_share", ">=", 0.2, "/proc/pressure/memory some"),
        Promise("at_limit_per_s", ">=", 100, "memory.failcnt, or memory.events max on v2"),
        Promise("read_again_pages_s", ">=", 2000, "/proc/vmstat workingset_refault_file"),
    )


class Storm:
    def __init__(self, lab: Lab) -> None:
        file = lab.file("mapped", memory=False)
        fill(file, MAPPED_MB)
        part = MAPPED_MB * _MB // MAPPERS
        service = Tenant(lab, "web", "index")
        mappers = [measure.Heard(service.work("fault", file, i * part, part, "lab-mapper")) for i in range(MAPPERS)]
        for mapper in mappers:
            mapper.wait("touched", 30)
        self._faults = rates.Rate(lambda: rates.vmstat("pgmajfault"))

    def measured(self) -> dict[str, Number]:
        return {"major_faults_per_s": round(self._faults.per_second)}


def _make_storm(lab: Lab, settings: Settings) -> AbstractContextManager[Storm]:
    return nullcontext(Storm(lab))


def _storm_missing() -> str:
    return without("memory") or _no_disk()


def _storm_promises(settings: Settings) -> tuple[Promise, ...]:
    return (Promise("major_faults_per_s", ">=", 2000, "/proc/vmstat pgmajfault"),)


SCENARIOS = [
    Scenario(
        name="memory-pressure",
        summary="a container that needs more memory than it may have, without any zombies",
        story=_PRESSURE,
        truth=Truth(
            cause="reclaim",
            culprits=("{run}/kubepods/small-container", "lab-analytics"),
            innocent=("kswapd", "systemd"),
        ),
        promises=_pressure_promises,
        make=_make_pressure,
        missing=_no_limit,
    ),
    Scenario(
        name="page-fault-storm",
        summary="thousands of major page faults a second: a mapping whose pages never stay in memory",
        story=_STORM,
        truth=Truth(cause="page-fault-storm", culprits=("lab-mapper", "{run}/web/index"), innocent=("kswapd",)),
        promises=_storm_promises,
        make=_make_storm,
        missing=_storm_missing,
    ),
]
