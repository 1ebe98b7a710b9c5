"""The map of the network devices: which queue of which device is served by which interrupt, and on which core.

So that a core that starved can be named by the device that starved with it, and a queue by its core.
"""

import contextlib
import re
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.kernel.ethtool import Driver, Ethtool
from exhume.kernel.netdev import Napi, NapiQueue, Netdev
from exhume.sources import nic_files as files
from exhume.sources.interrupts import Sides
from exhume.sources.nic_files import Cores
from exhume.sources.nic_queues import serving
from exhume.text import decode, from_path

MOST_DEVICES = 64
"""Of those with hardware behind them and of bonds."""
MOST_VIRTUAL = 32
"""A Kubernetes node has hundreds of veths."""
# A driver that resets holds the rtnl lock that ethtool waits for; then we go on without, and say so. An answer takes a
# millisecond or two (ENA asks the device); whoever drives the readers samples the cores meanwhile, and must not stand still.
PATIENCE_S = 0.5

_THREAD = re.compile(r"napi/(?P<device>.*)-(?P<napi>\d{1,10})", re.DOTALL)
_CUT = 15  # TASK_COMM_LEN with its NUL

Kind = Literal["hardware", "bond", "virtual"]


@dataclass(frozen=True, slots=True)
class Task:
    """The kernel thread of a NAPI in threaded mode. It runs wherever the scheduler puts it."""

    pid: int
    name: str
    napi: int | None
    """The NAPI's id, which no other of the node has; None for one that has none, as virtio_net's of a transmit queue."""


@dataclass(frozen=True, slots=True)
class Queue:
    number: int | None
    """None where one interrupt serves all queues, or where its name does not say which."""
    side: Sides
    irq: int | None
    """None where it has none of its own: on Hyper-V the bus tells the cores of packets."""
    cpus: tuple[int, ...]
    """Where its interrupt goes: the effective affinity, or what is allowed where the kernel does not tell."""
    busiest: int | None
    """The core that took most of its interrupts since boot."""
    task: Task | None = None

    @property
    def cores(self) -> tuple[int, ...]:
        """The cores that its interrupts come to, as far as can be known: of several that may take them, the one that did."""
        if self.busiest is not None and (not self.cpus or (len(self.cpus) > 1 and self.busiest in self.cpus)):
            return (self.busiest,)
        return self.cpus


@dataclass(frozen=True, slots=True)
class Device:
    name: str
    kind: Kind
    netns: int | None = None
    """The inode of the network namespace it is in; None in a tree without a live node."""
    ifindex: int = 0
    driver: str = ""
    driver_version: str = ""
    bus: str = ""
    """Its place on its bus, as its interrupts may name it: 0000:3b:00.0, virtio2."""
    pci: str = ""
    """The PCI address, of a virtio device too."""
    numa_node: int | None = None
    threaded: bool | None = None
    """Whether kernel threads poll it instead of softirqs; None where that could not be asked."""
    queues: tuple[Queue, ...] = ()
    queues_rx: int = 0
    queues_tx: int = 0
    rps: Cores = ()
    """Receive queue → cores that its packets are handed to: these get NET_RX without any interrupt of the device."""
    xps: Cores = ()
    """Transmit queue → cores that send by it. Empty where that could not be asked."""
    tasks: tuple[Task, ...] = ()
    """Threads that poll it, those too that are not known by queue."""
    lower: tuple[str, ...] = ()
    """What a bond or a bridge is made of; of Hyper-V's device the virtual function behind it."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Why a core has to do with a device."""

    device: Device
    queue: Queue
    how: Literal["interrupt", "thread", "rps"]
    """interrupt: it comes here, and the poll runs here. thread: it comes here and wakes a thread, which may run elsewhere.
    rps: packets of the device are handed to this core."""


def devices_of(devices: Iterable[Device], core: int) -> list[Serving]:
    """What of which device is served by a core, interrupts first. Several devices may share a core."""
    found: list[Serving] = []
    handed: list[Serving] = []
    for device in devices:
        found += [
            Serving(device, queue, "thread" if device.threaded or queue.task else "interrupt")
            for queue in device.queues
            if core in queue.cores
        ]
        for number, cpus in device.rps:
            if core in cpus:
                of_number = (queue for queue in device.queues if queue.number == number and queue.side != "tx")
                handed.append(Serving(device, next(of_number, Queue(number, "rx", None, (), None)), "rps"))
    return found + handed


def device_names(devices: Iterable[Device], core: int) -> tuple[str, ...]:
    """The devices whose polls are due in softirqs on that core: one, several, or none that is known."""
    return tuple(dict.fromkeys(found.device.name for found in devices_of(devices, core) if found.how != "thread"))


def read_map(root: Root) -> list[Device]:
    """The devices of the root's network namespace; Unreadable without /sys/class/net. Who asks repeatedly keeps a NicMap."""
    return NicMap(root).read()


def list_devices(root: Root) -> tuple[list[tuple[str, Kind]], int]:
    """The devices, those first that matter most, and how many were left out. Names are as the os module has them."""
    hardware, bonds, virtual = files.kinds(root)
    real: list[tuple[str, Kind]] = [*((name, "hardware") for name in hardware), *((name, "bond") for name in bonds)]
    taken: list[tuple[str, Kind]] = [*real[:MOST_DEVICES], *((name, "virtual") for name in virtual[:MOST_VIRTUAL])]
    return taken, len(real) + len(virtual) - len(taken)


def read_plain(root: Root, names: Iterable[tuple[str, Kind]]) -> list[Device]:
    """As much of the map as needs no lock: nothing of it waits for a driver."""
    netns = files.namespace_inode(root)
    found = [(name, kind, files.port(root, name)) for name, kind in names]
    interrupts = files.interrupts(root, [port for _, kind, port in found if kind == "hardware"])
    known = frozenset(port.name for _, _, port in found)
    devices = []
    for name, kind, port in found:
        queues: list[Queue] = []
        if kind == "hardware":
            for one in serving(port, interrupts, known - {port.name})[: files.MOST_QUEUES]:
                cpus = files.affinity(root, one.line.irq)
                queues.append(Queue(one.number, one.side, one.line.irq, cpus, one.line.busiest))
            if not queues:
                queues = [Queue(queue, "both", None, (core,), None) for queue, core in files.channels(root, name)]
        devices.append(
            Device(
                name=port.name,
                kind=kind,
                netns=netns,
                ifindex=files.number(files.file(root, name, "ifindex")) or 0,
                driver=files.link(root, name, "device/driver"),
                driver_version=decode(files.file(root, name, "device/driver/module/version")),  # none where it is built in
                bus=port.bus,
                pci=port.pci,
                numa_node=files.numa_node(root, name) if kind == "hardware" else None,
                queues=tuple(queues),
                queues_rx=port.rx,
                queues_tx=port.tx,
                rps=files.rps(root, name, port.rx),
                lower=files.lower(root, name),
            )
        )
    return devices


@dataclass(slots=True)
class _Told:
    """What was told so far under locks that a driver in a reset holds; the thread that asks fills it."""

    drivers: dict[str, Driver] = field(default_factory=dict)
    threaded: dict[str, bool | None] = field(default_factory=dict)
    xps: dict[str, Cores] = field(default_factory=dict)
    napis: list[Napi] = field(default_factory=list)
    queues: list[NapiQueue] = field(default_factory=list)

    def copy(self) -> "_Told":
        return _Told(dict(self.drivers), dict(self.threaded), dict(self.xps), list(self.napis), list(self.queues))


class NicMap:
    def __init__(self, root: Root) -> None:
        self._root = root
        self._asking: threading.Thread | None = None
        self.note = ""
        """What is missing from the map that was read last, for people."""

    def read(self) -> list[Device]:
        names, left_out = list_devices(self._root)
        devices = read_plain(self._root, names)
        told, note = self._ask([(name, device.queues_tx) for (name, _), device in zip(names, devices, strict=True)])
        notes = (note, f"{left_out} devices more were not read" if left_out else "")
        self.note = "; ".join(part for part in notes if part)
        threaded = [device.name for device in devices if told.threaded.get(device.name)]
        tasks = _tasks_by_name(self._root, threaded) if threaded and not any(napi.pid for napi in told.napis) else {}
        return [_complete(self._root, device, told, tasks.get(device.name, ())) for device in devices]

    def _ask(self, devices: list[tuple[str, int]]) -> tuple[_Told, str]:
        told = _Told()
        if self._asking is not None and self._asking.is_alive():
            return told, "the drivers have not answered since they were last asked"
        self._asking = threading.Thread(target=_ask_all, args=(self._root, devices, told), name="exhume-nic-map", daemon=True)
        try:
            self._asking.start()
        except RuntimeError:  # what Python makes of EAGAIN: a limit of threads is reached
            self._asking = None
            return told, "the drivers were not asked: no thread can be started"
        self._asking.join(PATIENCE_S)
        if not self._asking.is_alive():
            return told, ""
        return (
            told.copy(),
            f"the drivers did not answer within {duration(PATIENCE_S * SECOND)}: one of them, or the rtnl lock, is held up",
        )


def _ask_all(root: Root, devices: list[tuple[str, int]], told: _Told) -> None:
    """ethtool first, which waits for the lock asleep: the files that are read after it hardly ever find it held."""
    with contextlib.ExitStack() as opened:
        ethtool: Ethtool | None = None
        netdev: Netdev | None = None
        # Not in a fixture, nor in a namespace that may not be entered, and not on every kernel: then the files are left.
        with contextlib.suppress(OSError):
            namespace = files.namespace_path(root)
            ethtool = opened.enter_context(contextlib.closing(Ethtool(namespace)))
            netdev = opened.enter_context(contextlib.closing(Netdev(namespace)))
        for name, queues_tx in devices:
            known = from_path(name)
            if ethtool is not None:
                with contextlib.suppress(OSError):  # a device without a driver that tells
                    told.drivers[known] = ethtool.driver(name)
            told.threaded[known] = files.threaded(root, name)
            told.xps[known] = files.xps(root, name, queues_tx)
        if netdev is not None:
            with contextlib.suppress(OSError):  # the family is there since 6.3, these commands since 6.8
                told.napis += netdev.napis()
                told.queues += netdev.queues()


def _complete(root: Root, device: Device, told: _Told, tasks: tuple[Task, ...]) -> Device:
    """The device with what was told under locks."""
    driver = told.drivers.get(device.name)
    threaded = told.threaded.get(device.name)
    mine = [napi for napi in told.napis if device.ifindex and napi.ifindex == device.ifindex]
    # A thread that was made stays, before 6.17, when the device is no longer polled by it.
    polled = [napi for napi in mine if napi.pid and (threaded if napi.threaded is None else napi.threaded)]
    tasks = tuple(Task(napi.pid or 0, files.task_name(root, napi.pid or 0), napi.id or None) for napi in polled) or tasks
    queues = list(device.queues)
    napis = {napi.id: napi for napi in mine if napi.id}
    of_queue = [(queue, napis[queue.napi]) for queue in told.queues if queue.ifindex == device.ifindex and queue.napi in napis]
    if not queues and device.kind == "hardware":
        queues = _told_queues(root, of_queue)
    if tasks:
        of_napi = {task.napi: task for task in tasks if task.napi is not None}
        queues = [replace(queue, task=_task_of(queue, of_queue, of_napi)) for queue in queues]
        if len(tasks) == len(queues) == 1:
            queues = [replace(queues[0], task=tasks[0])]
    return replace(
        device,
        driver=driver.name if driver else device.driver,
        driver_version=driver.version if driver else device.driver_version,
        threaded=threaded,
        queues=tuple(queues),
        xps=told.xps.get(device.name, ()),
        tasks=tasks,
    )


def _told_queues(root: Root, of_queue: list[tuple[NapiQueue, Napi]]) -> list[Queue]:
    """From what the kernel itself tells, where no name of an interrupt does."""
    sides: dict[tuple[int, int], set[Sides]] = {}
    for queue, napi in of_queue:
        if napi.irq is not None:
            sides.setdefault((queue.number, napi.irq), set()).add(queue.side)
    return [
        Queue(number, "both" if len(side) == 2 else next(iter(side)), irq, files.affinity(root, irq), None)
        for (number, irq), side in sorted(sides.items())
    ]


def _task_of(queue: Queue, of_queue: list[tuple[NapiQueue, Napi]], of_napi: dict[int, Task]) -> Task | None:
    for one, napi in of_queue:
        same = queue.number == one.number if napi.irq is None else queue.irq == napi.irq
        if same and napi.id in of_napi and queue.side in (one.side, "both"):
            return of_napi[napi.id]
    return None


def _tasks_by_name(root: Root, devices: list[str]) -> dict[str, tuple[Task, ...]]:
    """Threads by the device that their names have, for kernels that do not tell; which queue is whose cannot be told so.

    A device of the same name in another network namespace cannot be told apart.
    """
    found: dict[str, tuple[Task, ...]] = {}
    for pid, name in files.napi_threads(root):
        match = _THREAD.fullmatch(name)
        if match is not None and match["device"] in devices:
            device, napi = match["device"], int(match["napi"]) or None
        else:
            cut = [device for device in devices if len(name) == _CUT and f"napi/{device}-".startswith(name[: len(device) + 6])]
            if len(cut) != 1:
                continue
            device, napi = cut[0], None
        found[device] = (*found.get(device, ()), Task(pid, name, napi))
    return found
