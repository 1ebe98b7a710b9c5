"""The files of /sys and /proc that tell of a network device, its queues and its interrupts, each as plain data.

None of them waits for a lock that a driver in a reset holds, but where it says so. Devices go by their names as the os module
has them.
"""

import os
import re

from exhume.errors import Unreadable
from exhume.host.cpu_list import cpu_list, cpu_mask
from exhume.host.root import Root
from exhume.sources.interrupts import Line, lines
from exhume.sources.nic_queues import Port
from exhume.text import decode, from_path

MOST_QUEUES = 1024

CLASS = "sys/class/net"
NODE_NAMESPACE = "proc/1/ns/net"
_QUEUE = re.compile(r"([rt]x)-(\d{1,5})")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_KTHREADD = 2  # the parent of all kernel threads
_MOST_THREADS = 65_536

Cores = tuple[tuple[int, tuple[int, ...]], ...]
"""A queue's number and cores, for each queue that has any."""


def kinds(root: Root) -> tuple[list[str], list[str], list[str]]:
    """Devices with hardware behind them, bonds, and all others."""
    # A sysfs shows the network namespace that it was mounted in: below another's root these are its own devices.
    names = [name for name in sorted(root.names(CLASS)) if name != "bonding_masters"]  # a file beside the devices
    hardware = [name for name in names if os.path.lexists(root.at(f"{CLASS}/{name}/device"))]
    bonds = [name for name in names if root.exists(f"{CLASS}/{name}/bonding")]
    known = {*hardware, *bonds}
    return hardware, [name for name in bonds if name not in hardware], [name for name in names if name not in known]


def file(root: Root, device: str, name: str, largest: int = 256) -> bytes:
    try:
        return root.read(f"{CLASS}/{device}/{name}", largest).strip()
    except Unreadable:
        return b""


def number(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() and len(raw) < 10 else None


def link(root: Root, device: str, name: str) -> str:
    """The last part of where a link points: a driver's name, or the address on its bus (0000:3b:00.0, virtio2)."""
    try:
        return from_path(os.path.basename(os.readlink(root.at(f"{CLASS}/{device}/{name}"))))
    except OSError:
        return ""


def port(root: Root, device: str) -> Port:
    bus, path = link(root, device, "device"), f"{CLASS}/{device}/device"
    above = ""
    if bus.startswith("virtio"):  # its interrupts and its node are the PCI device's that it sits on
        above = from_path(os.path.basename(os.path.dirname(os.path.realpath(root.at(path)))))
        path += "/.."
    pci = next((name for name in (bus, above) if _PCI.fullmatch(name)), "")
    irqs = frozenset(int(name) for name in _names(root, f"{path}/msi_irqs") if name.isdecimal() and len(name) < 10)
    queues = [match[1] for name in _names(root, f"{CLASS}/{device}/queues") if (match := _QUEUE.fullmatch(name))]
    return Port(from_path(device), bus, pci, irqs, min(queues.count("rx"), MOST_QUEUES), min(queues.count("tx"), MOST_QUEUES))


def numa_node(root: Root, device: str) -> int | None:
    """-1, which is "no node" (NUMA_NO_NODE), is none too."""
    for place in ("device/numa_node", *(("device/../numa_node",) if link(root, device, "device").startswith("virtio") else ())):
        if (found := number(file(root, device, place))) is not None:
            return found
    return None


def interrupts(root: Root, ports: list[Port]) -> list[Line]:
    """Those of /proc/interrupts that may be of these devices."""
    try:
        raw = root.read("proc/interrupts")
    except Unreadable:
        return []
    irqs = frozenset().union(*(port.irqs for port in ports))
    keys = [key.encode() for port in ports if not port.irqs for key in (port.name, port.bus, port.pci) if key]
    return lines(raw, lambda irq, line: irq in irqs or any(key in line for key in keys))


def affinity(root: Root, irq: int) -> tuple[int, ...]:
    """Where the interrupt goes (since 0d3f54257dc3, 4.13, on most chips), else where it may go."""
    for name in ("effective_affinity_list", "smp_affinity_list"):
        try:
            found = cpu_list(root.read(f"proc/irq/{irq}/{name}", 1 << 16))
        except Unreadable:
            continue
        if found:
            return found
    return ()


def channels(root: Root, device: str) -> list[tuple[int, int]]:
    """Queue and core of hv_netvsc, whose packets the VMBus tells the cores of, by one interrupt for everything on it. A device
    has a channel for each pair of queues (vmbus_add_channel_kobj in vmbus_drv.c)."""
    found = []
    for name in _names(root, f"{CLASS}/{device}/device/channels")[:MOST_QUEUES]:
        at = f"device/channels/{name}"
        queue, core = number(file(root, device, f"{at}/subchannel_id")), number(file(root, device, f"{at}/cpu"))
        if queue is not None and core is not None:
            found.append((queue, core))
    return sorted(found)


def rps(root: Root, device: str, queues: int) -> Cores:
    """Receive queues whose packets are handed to other cores."""
    return _masks(root, device, queues, "rx-{}/rps_cpus")


def xps(root: Root, device: str, queues: int) -> Cores:
    """Which cores send by which queue. Waits for the rtnl lock (xps_cpus_show in net-sysfs.c), before b0b6fcfa6ad8 (6.15)
    not asleep but by trying again and again: only to be asked where something else has just had that lock."""
    return _masks(root, device, queues, "tx-{}/xps_cpus")


def threaded(root: Root, device: str) -> bool | None:
    """Whether threads poll it. Waits for the rtnl lock as `xps` does, until c1742dcb6bda (6.10)."""
    found = number(file(root, device, "threaded"))
    return None if found is None else found > 0


def lower(root: Root, device: str) -> tuple[str, ...]:
    """Devices below it, by the links that netdev_adjacent_sysfs_add() makes: bonding/slaves waits for the rtnl lock."""
    found = [name.removeprefix("lower_") for name in _names(root, f"{CLASS}/{device}") if name.startswith("lower_")]
    return tuple(sorted(map(from_path, found)))


def namespace_inode(root: Root) -> int | None:
    try:
        return os.stat("/proc/self/ns/net" if root.own else root.at(NODE_NAMESPACE)).st_ino
    except OSError:
        return None


def namespace_path(root: Root) -> str | None:
    """What ethtool and netlink have to enter to speak to the root's devices, None where we are there; OSError if nowhere."""
    if root.own:
        return None
    path = root.at(NODE_NAMESPACE)
    os.lstat(path)
    try:
        return None if os.path.samefile(path, "/proc/self/ns/net") else path
    except OSError:
        return path


def task_name(root: Root, pid: int) -> str:
    try:
        return decode(root.read(f"proc/{pid}/comm", 256).strip())
    except Unreadable:
        return ""


def napi_threads(root: Root) -> list[tuple[int, str]]:
    """pid and name of the threads that poll, `napi/eth0-8193` (napi_kthread_create in net/core/dev.c). Before d6986ce24fc0
    (5.17) names are cut to 15 characters."""
    try:
        text = root.read(f"proc/{_KTHREADD}/task/{_KTHREADD}/children", 1 << 20).decode("ascii", "replace")
        pids = text.split()
    except Unreadable:
        pids = _names(root, "proc")
    numbers = [int(pid) for pid in pids if pid.isdecimal() and pid.isascii() and len(pid) < 10]
    named = ((pid, task_name(root, pid)) for pid in sorted(numbers)[:_MOST_THREADS])
    return [(pid, name) for pid, name in named if name.startswith("napi/")]


def _masks(root: Root, device: str, queues: int, place: str) -> Cores:
    masks = ((queue, cpu_mask(file(root, device, "queues/" + place.format(queue), 1 << 14))) for queue in range(queues))
    return tuple((queue, cpus) for queue, cpus in masks if cpus)


def _names(root: Root, path: str) -> list[str]:
    try:
        return root.names(path)
    except Unreadable:
        return []
