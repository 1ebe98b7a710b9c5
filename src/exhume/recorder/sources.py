"""Which readers there are, in the order they are asked: what is cheap and time-critical first, what may be slow last."""

from exhume.host.cgroups import Tree
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.sources.cgroup_dirs import CgroupDirs
from exhume.sources.cgroup_events import CgroupEvents
from exhume.sources.cpu import Cpu
from exhume.sources.interrupts import Interrupts
from exhume.sources.journal import UnitJournal
from exhume.sources.kernel_log import KernelLog
from exhume.sources.memcg import Memcg
from exhume.sources.meminfo import Meminfo
from exhume.sources.nic import Nic
from exhume.sources.pressure import Pressure
from exhume.sources.processes import Processes
from exhume.sources.reader import Reader
from exhume.sources.softirqs import Softirqs
from exhume.sources.softnet import Softnet
from exhume.sources.throttling import Throttling
from exhume.sources.units import Units
from exhume.sources.vmstat import Vmstat
from exhume.sources.zombies import Zombies

# Fewer zombies than these a check counts and does not name.
FEW = 100


def fast(root: Root) -> list[Reader]:
    """Those that must keep their rhythm to the millisecond."""
    return [Cpu(root)]


def steady(root: Root, tree: Tree, log: Root | None = None, for_hours: bool = False) -> list[Reader]:
    """The kernel's log may be another root's."""
    return [
        Vmstat(root),
        Softnet(root),
        Softirqs(root),
        Meminfo(root),
        Interrupts(root),
        Throttling(root, tree),
        Pressure(root, tree),
        Memcg(root, tree, lazy=for_hours),
        CgroupDirs(root, tree),
        Zombies(root, tree, few=FEW),
        Nic(root),
        KernelLog(log or root),
        Processes(root),
        Units(root, thorough=False),
    ]


# How often a flight recorder reads each source; those that are not named keep the rhythm of a check. Who ran where the stack
# samples tell, so the process table is for the defunct and for what cannot be sampled.
RHYTHM = {
    "memcg": SECOND,
    "vmstat": 2 * SECOND,
    "softnet": 2 * SECOND,
    "softirqs": 2 * SECOND,
    "pressure": 2 * SECOND,
    "meminfo": 10 * SECOND,
    "interrupts": 10 * SECOND,
    "throttling": 10 * SECOND,
    "nic": 10 * SECOND,
    "units": 10 * SECOND,
    "processes": 30 * SECOND,
    "cgroup-dirs": 60 * SECOND,
    "journal": 60 * SECOND,
    "zombies": 60 * SECOND,
}

# Who follow a stream: they know how far they have come. One that begins anew would read again what was, or miss what came
# meanwhile.
STREAMS = ("kernel-log", "cgroup-events", "journal")


def flight(root: Root, tree: Tree, log: Root | None = None) -> list[Reader]:
    """What a flight recorder reads beside the cores."""
    readers: list[Reader] = [*steady(root, tree, log, for_hours=True), CgroupEvents(root), UnitJournal(root)]
    for reader in readers:
        reader.every_ns = RHYTHM.get(reader.name, reader.every_ns)
    return readers
