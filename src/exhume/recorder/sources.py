"""Which readers there are, in the order they are asked: what is cheap and time-critical first, what may be slow last."""

from exhume.node.cgroup_dirs import CgroupDirs
from exhume.node.cgroup_events import CgroupEvents
from exhume.node.cgroups import Tree
from exhume.node.cpu import Cpu
from exhume.node.interrupts import Interrupts
from exhume.node.journal import UnitJournal
from exhume.node.kernel_log import KernelLog
from exhume.node.memcg import Memcg
from exhume.node.meminfo import Meminfo
from exhume.node.nic import Nic
from exhume.node.pressure import Pressure
from exhume.node.processes import Processes
from exhume.node.root import Reader, Root
from exhume.node.softirqs import Softirqs
from exhume.node.softnet import Softnet
from exhume.node.throttling import Throttling
from exhume.node.units import Units
from exhume.node.vmstat import Vmstat
from exhume.node.zombies import Zombies

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


SECOND = 1_000_000_000
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
