"""Which interrupts serve which queues of a network device, by their names and by the list of a PCI device's interrupts.

Names are given by the drivers, and not all say the device: what the device's own list has is its, whatever it is called.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from exhume.sources.interrupts import Line, Sides, served

# gve calls them gve-ntfy-blk5@pci:0000:00:04.0, before 843711459391 (6.4) eth%d-ntfy-block.5, with the %d.
_GVE = re.compile(r"gve-ntfy-blk(?P<new>\d{1,5})@pci:\S+|\S+-ntfy-block\.(?P<old>\d{1,5})")
# Interrupts of a device that serve no queue. virtio1-virtqueues is not one: all its queues share it.
_CONTROL = re.compile(
    r"config|mgmn?t|async|misc|ctrl|control|event|hwc|admin|fdir|ptp|unused|other|link|slow|err|aux|mbox|cmd|health|fault|-sp\b"
    r"|pcie|aer|pme",
    re.IGNORECASE,
)
# The number at the end: eth0-fp-3, eth0-q3, mlx4-3@0000:05:00.0
_NUMBER = re.compile(r"[-.:_q ](\d{1,5})(?:@\S+)?$")


@dataclass(frozen=True, slots=True)
class Port:
    """What is known of a device before its interrupts are."""

    name: str
    bus: str
    """Its place on its bus: 0000:3b:00.0, virtio2."""
    pci: str
    """The PCI address, of a virtio device too; empty where there is none."""
    irqs: frozenset[int]
    """All interrupts of the PCI device; other ports of it have the same."""
    rx: int
    tx: int
    """How many queues it has; 0 where not known."""


@dataclass(frozen=True, slots=True)
class Serves:
    number: int | None
    """The queue; None where one interrupt serves all, or where its name does not say."""
    side: Sides
    line: Line


def serving(port: Port, lines: Iterable[Line], others: frozenset[str] = frozenset()) -> list[Serves]:
    """The interrupts of a device's queues. `others` are the names of the other network devices that are known."""
    named: list[Serves] = []
    blocks: list[Serves] = []
    rest: list[Serves] = []
    for line in lines:
        # An interrupt of another network namespace's device may bear our device's name: the list is the judge.
        if port.irqs and line.irq not in port.irqs:
            continue
        for name in line.names:
            if (found := served(name)) is not None and _CONTROL.search(found[0]) is None:
                whom, number, side = found
                # A name that nobody bears any more: the device was renamed after it had asked for its interrupts.
                ours = whom in (port.name, port.bus, port.pci) or (port.irqs and whom not in others)
                if whom and ours and _exists(port, number, side):
                    named.append(Serves(number, side, line))
            elif (block := _GVE.fullmatch(name)) is not None:
                if port.irqs or name.endswith(f"@pci:{port.pci}"):
                    blocks.append(Serves(int(block["new"] or block["old"]), "both", line))
            elif name in (port.name, port.bus) or (port.irqs and not _CONTROL.search(name) and name not in others):
                rest.append(Serves(_number(port, name), "both", line))
    return sorted(named + _gve(port, blocks), key=_order) or sorted(rest, key=_order)


def _exists(port: Port, number: int, side: Sides) -> bool:
    """A driver may ask for more interrupts than it has queues in use: mlx5 for RDMA, gve for the queues it could have."""
    most = {"rx": port.rx, "tx": port.tx, "both": max(port.rx, port.tx)}[side]
    return number < most or most == 0


def _gve(port: Port, blocks: list[Serves]) -> list[Serves]:
    """The first half of the notify blocks are of transmit queues (gve_tx_idx_to_ntfy, gve_rx_idx_to_ntfy in gve.h)."""
    half = len(blocks) // 2
    found = []
    for block in blocks:
        number, side = block.number or 0, "tx"
        if number >= half:
            number, side = number - half, "rx"
        if side == "tx" and _exists(port, number, "tx"):
            found.append(Serves(number, "tx", block.line))
        elif side == "rx" and _exists(port, number, "rx"):
            found.append(Serves(number, "rx", block.line))
    return found


def _number(port: Port, name: str) -> int | None:
    match = _NUMBER.search(name.removeprefix(port.name)) if name not in (port.name, port.bus) else None
    return int(match[1]) if match else None


def _order(serves: Serves) -> tuple[int, str, int]:
    return (-1 if serves.number is None else serves.number, serves.side, serves.line.irq)
