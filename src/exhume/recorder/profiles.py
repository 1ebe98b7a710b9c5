"""What a recording is made of: which readers, how often each, and what goes with them. One profile a command.

A profile is data. The recorder (recorder.py) reads it, and does everything else the same way for all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from exhume.host.cgroups import Tree
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.recorder.latency import Options as LatencyOptions
from exhume.sources.cgroup_dirs import CgroupDirs
from exhume.sources.cgroup_events import CgroupEvents, KeptEvents
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

# Fewer zombies than these are counted and not named.
FEW = 100
# Sources that follow a stream: they know how far they have come. One that starts over would read again what was, or miss what
# came meanwhile.
STREAMS = ("kernel-log", "cgroup-events", "journal")

Made = Callable[[Root, Tree, Root], list[Reader]]
"""The readers of a root with its cgroups; the kernel's log may be another root's."""


@dataclass(frozen=True, slots=True)
class Profile:
    readers: Made
    """In the order they are asked: what is cheap and time-critical first, what may be slow last."""
    intervals: Mapping[str, int] = field(default_factory=dict)
    """How often each is read, where that is not the reader's own choice; 0 is at the beginning and at the end."""
    share: float = 0.0
    """Of a core, what one source may take; dearer ones are read less often. 0: each keeps its interval."""
    once: bool = False
    """Whether everything is read only once, and not again at the end."""
    stuck_ns: int = 2_500_000_000
    """How long one read may be blocked in the kernel before the others go on without it. systemd has a timeout of its own, of
    1.5 s."""
    grace_ns: int = 10 * SECOND
    """How long the last readings may take."""
    cores_ns: int = 0
    """How often the cores are read; 0 for not at all."""
    latency: LatencyOptions | None = None
    """How stalls are watched for; None for not at all."""
    needs_latency: bool = False
    """Whether the recording is of no use without that."""
    batch_ns: int = SECOND
    """How often what was seen is handed over, with an anchor of the clocks."""
    quiet_batch_ns: int = 0
    """The same while all cores are quiet, if that is longer."""
    first_ns: int = 0
    """The first batch may come sooner, so that there is something to open."""
    tell_ns: int = 0
    """Sources tell of themselves when they change and at the end; and this often meanwhile, with our own cost."""
    wake_ns: int = 100_000_000
    """How often it looks whether it is time to stop, and tells how far it is."""
    own_wait: bool = False
    """Whether it counts how long this thread waited for a core."""


def _node(root: Root, tree: Tree, log: Root, for_hours: bool = False) -> list[Reader]:
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
        KernelLog(log),
        Processes(root),
        Units(root, thorough=False),
    ]


def _flight(root: Root, tree: Tree, log: Root) -> list[Reader]:
    return [*_node(root, tree, log, for_hours=True), CgroupEvents(root), UnitJournal(root)]


def _network(root: Root, tree: Tree, log: Root) -> list[Reader]:
    """They say which device a core serves."""
    return [Softnet(root), Interrupts(root), Nic(root)]


def _zombies(root: Root, tree: Tree, log: Root) -> list[Reader]:
    return [Zombies(root, tree, again_ns=0)]


def _followed(root: Root, tree: Tree, log: Root) -> list[Reader]:
    """Events first: what dies between the first count and the first event would be seen by neither."""
    events = KeptEvents(root)
    return [events, Zombies(root, tree, again_ns=0, events=events)]


def _leaks(root: Root, tree: Tree, log: Root) -> list[Reader]:
    zombies = Zombies(root, tree, again_ns=0)
    return [CgroupEvents(root), Memcg(root, tree), zombies, Units(root), UnitJournal(root), Processes(root)]


CHECK = Profile(_node, cores_ns=50_000_000, latency=LatencyOptions(brief=True), own_wait=True)
"""A few seconds of everything."""

# Nothing waits for a walk of many zombies on a node that is starved: it may take its time.
ZOMBIES = Profile(_zombies, once=True, stuck_ns=600 * SECOND, grace_ns=600 * SECOND)
"""The zombies alone, walked once."""

FOLLOW = Profile(_followed, {"cgroup-events": SECOND // 5}, stuck_ns=600 * SECOND, grace_ns=600 * SECOND)
"""The zombies, walked twice, with the cgroup events in between. What was removed last must have had its time (SETTLE_NS) to be
released before it is called a zombie."""

LATENCY = Profile(_network, dict.fromkeys(("softnet", "interrupts", "nic"), 0), latency=LatencyOptions(), needs_latency=True)
"""Stalls, and the devices that suffer from them."""

_TICK_NS = 100_000_000

FLIGHT = Profile(
    _flight,
    # Which threads ran where is in the stack samples: the process table is for defunct processes and for what is not sampled.
    {
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
    },
    share=0.005,
    cores_ns=_TICK_NS,
    # Looked for with each reading of the cores; what comes too often is measured in half a second of each half minute.
    latency=LatencyOptions(look_ns=_TICK_NS, window_ns=500_000_000, every_ns=30 * SECOND, each_core=False),
    # A kill may cost two seconds at most; every batch finds cold caches, so that fewer of them cost less.
    batch_ns=1_400_000_000,
    quiet_batch_ns=1_800_000_000,
    first_ns=200_000_000,
    tell_ns=10 * SECOND,
)
"""Hours of everything, with stack samples: `record`, `diagnose`, `verify` and the agent."""

# What one source of a soak may take of a core: it is to show what the image does, not what we do.
_SOAK_SHARE = 0.01
# Readings of each source, about, however long the soak is; never more often than at the interval given.
_COUNTS, MOMENTS = 600, 60
_SOAKED = {"memcg": (SECOND, _COUNTS), "units": (5 * SECOND, MOMENTS), "processes": (10 * SECOND, MOMENTS)}


def soak(for_ns: int) -> Profile:
    """Minutes or hours of what tells of leaks and loops; intervals grow with the time, so that what is kept does not."""
    intervals = {name: max(shortest, for_ns // readings) for name, (shortest, readings) in _SOAKED.items()}
    return Profile(_leaks, intervals, share=_SOAK_SHARE, wake_ns=SECOND)
