"""Who held a core or did the work, and what was done there: the facts that several kinds of findings share."""

from collections.abc import Mapping
from typing import Annotated, Final

from exhume.diagnosis.findings.held import Who
from exhume.diagnosis.findings.kernel_threads import is_kernel_thread
from exhume.diagnosis.findings.kernel_work import (
    CGROUPFS,
    COMPACTION,
    CONSOLE,
    FAULT,
    FLUSH,
    FORK,
    LOCK,
    MIGRATION,
    NETWORK,
    NUMA,
    OFFLINE,
    OOM,
    POLLING,
    RECLAIM,
    SHOOTDOWN,
    STATISTICS,
    TRIM,
    UNMAP,
    USER,
    WALK,
    WRITEBACK,
)
from exhume.diagnosis.findings.model import Shown
from exhume.diagnosis.findings.subjects import Process
from exhume.host.owners import owner
from exhume.record import record
from exhume.recording.recording import Recording

_CGROUP: Final = "/proc/PID/cgroup"
_MOST_FUNCTIONS: Final = 6
ROOT: Final = ("", "/")
# Their work was asked for by something else.
_KERNEL_THREADS: Final = ("ksoftirqd/", "kworker/", "kswapd", "napi/", "migration/", "rcu", "kcompactd", "khugepaged")


def process_of(who: Who) -> Process:
    return Process(who.comm, max(0, who.pid))


@record(frozen=True, slots=True, kw_only=True)
class Offender:
    """The program or kernel thread that held a core or did the work."""

    process: Annotated[Process, Shown("process", source=".seen_in")]
    seen_in: str
    """Where it was seen."""
    cgroup: Annotated[str, Shown("its cgroup", source=_CGROUP)] = ""
    unit: Annotated[str, Shown("its unit", source=_CGROUP)] = ""
    pod: Annotated[str, Shown("its pod", source=_CGROUP)] = ""
    kernel_thread: Annotated[
        bool, Shown("kernel thread", source="its parent is kthreadd, or its stack begins where the kernel's threads do")
    ] = False

    @property
    def name(self) -> str:
        """Its unit, its pod, its cgroup, else the process itself."""
        return self.unit or self.pod or (self.cgroup if self.cgroup not in ROOT else "") or str(self.process)

    @property
    def of_kernel(self) -> bool:
        """One of the kernel's own threads. Programs may take such names: the kernel's own are in the root cgroup."""
        return self.kernel_thread or (self.cgroup in ROOT and self.process.comm.startswith(_KERNEL_THREADS))

    @property
    def within(self) -> str:
        """` in CGROUP`; every process is in the root."""
        return f" in {self.cgroup}" if self.cgroup not in ROOT else ""


def offender(
    recording: Recording, who: Who, seen_in: str, stack: tuple[str, ...] = (), process: Process | None = None
) -> Offender:
    """Its unit and pod as they were recorded, else by the path of its cgroup."""
    of = owner(who.cgroup)
    return Offender(
        process=process or process_of(who),
        seen_in=seen_in,
        cgroup=who.cgroup,
        unit=who.unit or of.unit,
        pod=who.pod or of.pod,
        kernel_thread=is_kernel_thread(recording, who, stack),
    )


def _share(label: str) -> Shown:
    return Shown(label, digits=3, zero=False)


@record(frozen=True, slots=True, kw_only=True)
class WorkShares:
    """What was done on a core, as shares of the time that was seen."""

    memcg_walk_ratio: Annotated[float, _share("walked memory cgroups")] = 0.0
    rstat_flush_ratio: Annotated[float, _share("summed up statistics")] = 0.0
    memcg_stat_ratio: Annotated[float, _share("read statistics")] = 0.0
    reclaim_ratio: Annotated[float, _share("reclaimed memory")] = 0.0
    console_ratio: Annotated[float, _share("printed to a console")] = 0.0
    network_ratio: Annotated[float, _share("network itself")] = 0.0
    cgroupfs_ratio: Annotated[float, _share("listed cgroup directories")] = 0.0
    page_fault_ratio: Annotated[float, _share("served page faults")] = 0.0
    writeback_ratio: Annotated[float, _share("wrote pages back")] = 0.0
    unmap_ratio: Annotated[float, _share("gave back memory")] = 0.0
    madvise_ratio: Annotated[float, _share("trimmed its memory")] = 0.0
    compaction_ratio: Annotated[float, _share("compacted memory")] = 0.0
    numa_balancing_ratio: Annotated[float, _share("balanced memory between nodes")] = 0.0
    memory_offline_ratio: Annotated[float, _share("emptied memory to be taken away")] = 0.0
    migration_ratio: Annotated[float, _share("moved pages elsewhere")] = 0.0
    polling_ratio: Annotated[float, _share("polled")] = 0.0
    oom_ratio: Annotated[float, _share("looked for a process to kill")] = 0.0
    lock_ratio: Annotated[float, _share("spun on a lock")] = 0.0
    shootdown_ratio: Annotated[float, _share("waited for other cores")] = 0.0
    fork_ratio: Annotated[float, _share("started or ended processes")] = 0.0
    user_ratio: Annotated[float, _share("ran its own code")] = 0.0

    @property
    def of_network(self) -> bool:
        """Packets are part of the work: more than a stray sample of them."""
        return self.network_ratio >= 0.0005

    @property
    def waiting_ratio(self) -> float:
        """On a lock, or for other cores to answer: a victim by construction."""
        return self.lock_ratio + self.shootdown_ratio


def blamed(offender: Offender | None, work: WorkShares) -> str:
    """The program that held a core, unless that is a victim: it waits, it serves others, or packets are its work."""
    if offender is None or offender.of_kernel or work.network_ratio >= 0.5 or work.waiting_ratio >= 0.5:
        return ""
    return offender.name


NO_WORK: Final = WorkShares()
_FIELDS: Final[Mapping[str, str]] = {
    WALK.key: "memcg_walk_ratio",
    FLUSH.key: "rstat_flush_ratio",
    STATISTICS.key: "memcg_stat_ratio",
    RECLAIM.key: "reclaim_ratio",
    CONSOLE.key: "console_ratio",
    NETWORK.key: "network_ratio",
    CGROUPFS.key: "cgroupfs_ratio",
    FAULT.key: "page_fault_ratio",
    WRITEBACK.key: "writeback_ratio",
    UNMAP.key: "unmap_ratio",
    TRIM.key: "madvise_ratio",
    COMPACTION.key: "compaction_ratio",
    NUMA.key: "numa_balancing_ratio",
    OFFLINE.key: "memory_offline_ratio",
    MIGRATION.key: "migration_ratio",
    POLLING.key: "polling_ratio",
    OOM.key: "oom_ratio",
    LOCK.key: "lock_ratio",
    SHOOTDOWN.key: "shootdown_ratio",
    FORK.key: "fork_ratio",
    USER.key: "user_ratio",
}


def work_shares(seen: Mapping[str, float], total: float) -> WorkShares:
    """From how much was seen of each kind of work, by its key."""
    return WorkShares(**{_FIELDS[key]: amount / total for key, amount in seen.items() if key in _FIELDS and total > 0})


def innermost(stack: tuple[str, ...]) -> tuple[str, ...]:
    """As much of a stack as is kept with a finding."""
    return stack[:_MOST_FUNCTIONS]
