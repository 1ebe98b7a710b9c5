"""Interrupts by core from /proc/interrupts, and from them the core that serves a queue of a network device.

A driver says that "TX q 5" was not served; which core starved it is only known by the interrupt of that queue.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from exhume.errors import Unreadable
from exhume.host.quantities import size
from exhume.host.root import LARGEST, Root
from exhume.recording.recording import Labels, Recording
from exhume.recording.source_state import Limit, Reasons
from exhume.text import decode

_LONGEST_COUNT = 18  # digits that fit a signed 64 bit number whatever they are
_LONGEST_NAME = 256

# What a row of nic_queue says in place of a core: the queue is no more; or its interrupts may come to several, or who knows.
GONE, SEVERAL = -1, -2

# What the drivers call the interrupt of a queue (request_irq in each):
_QUEUES = (
    # ena eth0-Tx-Rx-5; bnxt_en, igb, ixgbe eth0-TxRx-5, eth0-rx-5, eth0-tx-5; tg3 eth0-txrx-5; vmxnet3, nfp eth0-rxtx-5;
    # i40e, iavf, ice, idpf i40e-eth0-TxRx-5; hns3 hns3-0000:7d:00.0-TxRx-5
    re.compile(
        r"(?:(?:i40e|i40evf|iavf|ice|idpf|hns3)-)?(?P<device>\S+?)"
        r"-(?P<side>[Tt]x-?[Rr]x|[Rr]x-?[Tt]x|[TtRr]x)-(?P<queue>\d{1,5})"
    ),
    # mlx5_core, by its PCI address; channel n of the device uses completion vector n
    re.compile(r"mlx5_comp(?P<queue>\d{1,5})@pci:(?P<device>\S+)(?P<side>)"),
    # virtio_net, by its place on the virtio bus: one interrupt a direction
    re.compile(r"(?P<device>virtio\d+)-(?P<side>input|output)\.(?P<queue>\d{1,5})"),
    # mana, by its PCI address; older kernels call all of them mana_intr
    re.compile(r"mana_q(?P<queue>\d{1,5})@pci:(?P<device>\S+)(?P<side>)"),
    # xen_netfront, setup_netfront_split
    re.compile(r"(?P<device>\S+?)-q(?P<queue>\d{1,5})-(?P<side>[rt]x)"),
)

Side = Literal["tx", "rx"]
Sides = Literal["rx", "tx", "both"]
_SIDES: dict[str, Side] = {"tx": "tx", "output": "tx", "rx": "rx", "input": "rx"}


class Interrupts:
    name = "interrupts"
    every_ns = 0

    def __init__(self, root: Root) -> None:
        self._root = root
        self._table = CpuTable("proc/interrupts")

    def read(self, recording: Recording, time: int) -> Reasons:
        raw = self._root.read("proc/interrupts")
        for row, cells in self._table.changes(raw):
            if row.text is None:
                row.text = decode(actions(row.rest)) if row.name.isdigit() else decode(row.name)
            irq, device = decode(row.name), row.text
            add_changes(recording, time, self._table, cells, "interrupts", (("device", device), ("irq", irq)))
        self._table.time = time
        return () if len(raw) < LARGEST else (Limit(f"only the first {size(LARGEST)} of /proc/interrupts were read"),)


@dataclass(slots=True)
class Row:
    """A line as it was read last."""

    name: bytes
    rest: bytes
    """What follows the counts."""
    line: bytes
    text: str | None = field(default=None)
    """What the reader makes of `rest`, once."""


# CPU, count before (b"" where not known), count now. Most counts never change, so most are never made into numbers.
Cell = tuple[str, bytes, bytes]


class CpuTable:
    """/proc/interrupts and /proc/softirqs: a header that names CPUs, then rows of a name, a count a CPU, and a description.

    It gives out what changed since it was last read; the first time, what is not 0. The header of the interrupts has the
    CPUs that are online, so it changes when one goes (show_interrupts in kernel/irq/proc.c). Of a row only the line is
    kept: 28,800 counts as objects take longer to find room for than to read again.
    """

    def __init__(self, path: str) -> None:
        self.time = 0
        """When it was last read. Set by the reader, after it has used the time before."""
        self._path = path
        self._cpus: list[str] = []
        self._rows: dict[bytes, Row] = {}

    def changes(self, raw: bytes) -> Iterator[tuple[Row, list[Cell]]]:
        header, *lines = raw.split(b"\n")
        cpus = _cpus(header) if lines else []
        if not cpus:
            raise Unreadable(f"/{self._path} names no CPU in its first line")
        cpus_before, self._cpus = self._cpus, cpus
        rows_before, self._rows = self._rows, {}
        for line in lines[:-1]:  # what follows the last newline was cut off
            name = line.partition(b":")[0].strip()
            old = rows_before.get(name)
            if old is not None and old.line == line and cpus == cpus_before:
                self._rows[name] = old
                continue
            counts, rest = _counts(line, len(cpus))
            if not counts or not 0 < len(name) <= _LONGEST_NAME:
                continue
            row = self._rows[name] = Row(name, rest, line)
            if old is not None and old.rest == rest:
                row.text = old.text
                counts_before = _counts(old.line, len(cpus_before))[0]
                if cpus != cpus_before:
                    of = dict(zip(cpus_before, counts_before, strict=True))
                    counts_before = [of.get(cpu, b"") for cpu in cpus]
            elif old is None and cpus_before:
                counts_before = [b"0"] * len(cpus)
            else:  # the first time, or a number that was given to another device since
                counts_before = [b""] * len(cpus)
            cells = [
                cell
                for cell in zip(cpus, counts_before, counts, strict=True)
                if cell[1] != cell[2] and (cell[1] or cell[2] != b"0") and len(cell[2]) <= _LONGEST_COUNT
            ]
            if cells:
                yield row, cells


def add_changes(recording: Recording, time: int, table: CpuTable, cells: list[Cell], name: str, rest_of_labels: Labels) -> None:
    """Add changed cells as counters. A count that was 0 until now has no row yet: it gets one, for when it was last read,
    so that what it has grown by is what it says."""
    for cpu, was, now in cells:
        at = (("cpu", cpu), *rest_of_labels)  # "cpu" sorts before "device", "irq" and "vector": as labels() would
        if was == b"0":
            recording.count(table.time, name, 0, at)
        recording.count(time, name, int(now), at)


def actions(rest: bytes) -> bytes:
    """The handlers' names from what follows the counts: `PCI-MSI 524288-edge      eth0-Tx-Rx-5` → `eth0-Tx-Rx-5`.

    show_interrupts() prints the chip, the hardware number, on some architectures Edge or Level, the flow handler after a
    dash, and then, always after two spaces, the names. On Xen there is no hardware number: `xen-dyn    -event     xenbus`.
    """
    pieces = [piece.strip() for piece in rest.split(b"  ") if piece.strip()]
    for i, piece in enumerate(pieces):
        if i == 0 and b" " not in piece:
            continue  # the chip alone
        number, dash, _ = piece.rpartition(b" ")[2].partition(b"-")
        if number.isdigit() or (dash and not number) or piece.endswith((b"Edge", b"Level")):
            names = pieces[i + 1 :]
            return b"  ".join(names[1:] if names and names[0].startswith(b"-") else names)
    return pieces[-1] if pieces else b""


def queue_cores(recording: Recording, side: Side = "tx") -> dict[tuple[str, int], int]:
    """(device, queue) → the core that took most interrupts of that queue in the recording, or since boot when it took none.

    The device is named as the interrupt names it (eth0, 0000:3b:00.0, virtio2) and, where the recording knows which network
    device sits there, by that name too. What the interrupt's name does not say, the map of the devices may (`nic_queue`).
    """
    by_irq, found = _mapped(recording, side)
    counted: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for at, series in recording.counters("interrupts").items():
        of = dict(at)
        cpu = of.get("cpu", "")
        if not cpu.isdecimal():
            continue
        named = queue_of(of.get("device", ""), side)
        for queue in by_irq.get(of.get("irq", ""), ()) if named is None else (named,):
            cores = counted.setdefault(queue, {})
            inside, since_boot = cores.get(int(cpu), (0, 0))
            cores[int(cpu)] = (inside + series.delta, since_boot + series.last)
    found |= {queue: _busiest(cores) for queue, cores in counted.items()}
    for of in (dict(at) for at, series in recording.counters("nic_driver").items() if series.last):
        named_too = {(of["device"], queue): core for (at_bus, queue), core in found.items() if at_bus == of.get("bus")}
        found = named_too | found
    return found


def _mapped(recording: Recording, side: Side) -> tuple[dict[str, list[tuple[str, int]]], dict[tuple[str, int], int]]:
    """The queues that an interrupt serves, and the core of those that have no interrupt of their own (on Hyper-V)."""
    by_irq: dict[str, list[tuple[str, int]]] = {}
    without: dict[tuple[str, int], int] = {}
    for at, series in recording.counters("nic_queue").items():
        of = dict(at)
        number = of.get("queue", "")
        if series.last == GONE or not number.isdecimal() or of.get("side") not in (side, "both"):
            continue
        queue = of.get("device", ""), int(number)
        if of.get("irq"):
            by_irq.setdefault(of["irq"], []).append(queue)
        elif series.last >= 0:
            without[queue] = series.last
    return by_irq, without


def served(interrupt: str) -> tuple[str, int, Sides] | None:
    """The device, the queue and the directions that an interrupt serves; None for any other interrupt."""
    if len(interrupt) > _LONGEST_NAME:
        return None
    for pattern in _QUEUES:
        if match := pattern.fullmatch(interrupt):
            return match["device"], int(match["queue"]), _SIDES.get(match["side"].lower(), "both")
    return None


def queue_of(interrupt: str, side: Side = "tx") -> tuple[str, int] | None:
    """The device and queue that an interrupt serves in that direction; None for any other interrupt."""
    found = served(interrupt)
    return found[:2] if found is not None and found[2] in (side, "both") else None


@dataclass(frozen=True, slots=True)
class Line:
    """An interrupt as /proc/interrupts has it now."""

    irq: int
    names: tuple[str, ...]
    """Of its handlers: several devices may share one."""
    busiest: int | None
    """The core that took most of them since boot."""


def lines(raw: bytes, wanted: Callable[[int, bytes], bool]) -> list[Line]:
    """The numbered interrupts, those that are `wanted` by number and by the line as it is."""
    header, *rows = raw.split(b"\n")
    cpus = _cpus(header)
    found = []
    for row in rows[:-1] if cpus else ():  # what follows the last newline was cut off
        name = row.partition(b":")[0].strip()
        if not (name.isdigit() and len(name) < 10 and wanted(int(name), row)):
            continue
        counts, rest = _counts(row, len(cpus))
        if not counts or max(map(len, counts)) > _LONGEST_COUNT:
            continue
        taken = list(map(int, counts))
        most = max(taken)
        names = tuple(decode(part) for part in actions(rest).split(b", ") if part)
        found.append(Line(int(name), names, int(cpus[taken.index(most)]) if most else None))
    return found


def _busiest(cores: dict[int, tuple[int, int]]) -> int:
    return max(cores, key=lambda core: (*cores[core], -core))


def _cpus(header: bytes) -> list[str]:
    words = header.split()
    if not all(word.startswith(b"CPU") and word[3:].isdigit() and len(word) < 10 for word in words):
        return []
    return [str(int(word[3:])) for word in words]


def _counts(line: bytes, cpus: int) -> tuple[list[bytes], bytes]:
    """The counts and what follows. No counts for ERR and MIS, one number for the whole machine, and where it is garbage."""
    words = line.partition(b":")[2].split(None, cpus)
    counts = words[:cpus]
    if len(counts) < cpus or not b"".join(counts).isdigit():
        return [], b""
    return counts, words[cpus] if len(words) > cpus else b""
