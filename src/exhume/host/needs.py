"""When an agent is needed: conditions as data, and the facts of a node or an image that decide them.

A condition is a table of the words below; all of them must hold. An agent is needed if any of its conditions holds. What cannot
be known of an image at rest (its cloud, its hardware, who talks to what) is undecided there, never "not needed".
"""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from exhume.host.programs import Condition, Program, services
from exhume.host.service import Service
from exhume.host.tree import Tree
from exhume.text import decode

_ONLY_LIVE = ("cloud", "hardware", "mount", "used")


@dataclass(frozen=True, slots=True)
class Facts:
    exists: Callable[[str], bool]
    filled: Callable[[str], bool]
    read: Callable[[str], bytes | None]
    units: frozenset[str] = frozenset()
    """Names of everything that runs or will start by itself."""
    live: bool = False
    kubernetes: bool = False
    cloud: str = ""
    """Empty if it is in none, or if that is not known (of an image)."""
    hardware: frozenset[str] = frozenset()
    mounts: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()

    def holds(self, condition: Condition) -> str:
        """Why the condition holds, as the end of a sentence; empty if it does not."""
        words = dict(condition)
        reasons = [self._reason(word, value, words) for word, value in condition if word != "contains"]
        return " and ".join(reasons) if reasons and all(reasons) else ""

    def need(self, program: Program) -> str | None:
        """Why a program is needed here, as the end of a sentence, or None if nothing that is known needs it."""
        return next((reason for condition in program.needed_if if (reason := self.holds(condition))), None)

    def undecided(self, program: Program) -> bool:
        """Whether something may need it that these facts cannot tell: an image at rest does not know its cloud."""
        if not program.needed_if:
            return not program.needless
        return self.need(program) is None and any(not self.decides(condition) for condition in program.needed_if)

    def decides(self, condition: Condition) -> bool:
        """Whether these facts are enough to say that the condition does not hold."""
        return self.live or not any(word in _ONLY_LIVE for word, _ in condition)

    def _reason(self, word: str, value: str, words: dict[str, str]) -> str:
        if word == "always":
            return value
        if word == "unit_active":
            found = next((name for name in sorted(self.units) if fnmatchcase(name, value)), "")
            return f"{found} runs here" if found else ""
        if word == "path":
            pattern = words.get("contains")
            if pattern is None:
                return f"{value} is there" if self.exists(value) else ""
            return f"{value} sets {pattern}" if _says(self.read(value) or b"", pattern) else ""
        if word == "filled":
            return f"{value} is filled in" if self.filled(value) else ""
        if word == "kubernetes":
            return "the node runs Kubernetes" if self.kubernetes else ""
        if word == "cloud":
            return f"the node runs in {value}" if self.cloud == value else ""
        if word == "hardware":
            return f"the node has {value}" if value in self.hardware else ""
        if word == "mount":
            kind = next((kind for kind in sorted(self.mounts) if fnmatchcase(kind, value)), "")
            return f"a file system of type {kind} is mounted" if kind else ""
        return f"something is connected to {value}" if value in self.used else ""


def _says(text: bytes, pattern: str) -> bool:
    expression = re.compile(pattern)
    return any(expression.search(line) for line in _lines(text))


def _lines(text: bytes) -> list[str]:
    lines = (decode(raw[:1000]).strip() for raw in text[: 1 << 20].split(b"\n"))
    return [line for line in lines if line and not line.startswith(("#", ";", "//"))]


def facts(tree: Tree, started: Iterable[Service], used: Collection[str] = ()) -> Facts:
    """Of a tree and what starts in it. The live root has /proc and /sys; an image has neither, and is not judged by them."""
    units = frozenset(service.name for service in started if service.starts)

    def filled(path: str) -> bool:
        entry = tree.entry(path)
        if entry is not None and entry.kind == "directory":
            return bool([name for name in tree.names(path) if not name.startswith((".", "README"))])
        return bool(_lines(tree.read(path) or b""))

    return Facts(
        exists=lambda path: tree.entry(path) is not None,
        filled=filled,
        read=tree.read,
        units=units,
        live=tree.live,
        kubernetes=not units.isdisjoint(services("kubelet")),
        cloud=_cloud(tree) if tree.live else "",
        hardware=_hardware(tree) if tree.live else frozenset(),
        mounts=_mounts(tree),
        used=frozenset(used),
    )


def _cloud(tree: Tree) -> str:
    """By what the firmware says of the machine, as cloud-init's ds-identify does."""

    def said(name: str) -> str:
        return decode(tree.read(f"/sys/class/dmi/id/{name}", 256) or b"").strip()

    if said("sys_vendor").startswith("Amazon EC2") or said("bios_vendor").startswith("Amazon EC2"):
        return "aws"
    if said("product_name").startswith("Google Compute Engine"):
        return "gcp"
    # The asset tag of every Azure machine (cloud-init, DataSourceAzure).
    if said("chassis_asset_tag") == "7783-7084-3265-9085-8269-3286-77":
        return "azure"
    return "oracle" if said("chassis_asset_tag") == "OracleCloud.com" else ""


def _hardware(tree: Tree) -> frozenset[str]:
    found = set()
    for name in tree.names("/sys/bus/pci/devices")[:4096]:
        place = f"/sys/bus/pci/devices/{name}"
        vendor, kind = ((tree.read(f"{place}/{file}", 16) or b"").strip() for file in ("vendor", "class"))
        if vendor == b"0x10de" and kind.startswith((b"0x0302", b"0x0300")):
            found.add("nvidia")
        if vendor == b"0x10de" and kind.startswith(b"0x0680"):
            found.add("nvswitch")
        # Amazon's EFA: 1d0f:efa0 and later (drivers/infiniband/hw/efa/efa_main.c)
        if vendor == b"0x1d0f" and (tree.read(f"{place}/device", 16) or b"").startswith(b"0xefa"):
            found.add("efa")
    if any(not name.startswith("efa_") for name in tree.names("/sys/class/infiniband")):
        found.add("infiniband")
    if tree.names("/sys/class/fc_host"):
        found.add("fibre-channel")
    if any(
        name.startswith(("ttyACM", "cdc-wdm", "wwan"))
        for place in ("tty", "usbmisc", "wwan")
        for name in tree.names(f"/sys/class/{place}")
    ):
        found.add("modem")
    if any(name.startswith("BAT") for name in tree.names("/sys/class/power_supply")):
        found.add("battery")
    return frozenset(found)


def _mounts(tree: Tree) -> frozenset[str]:
    """Types of file systems: the third field of fstab(5), and of /proc/mounts of the live root."""
    texts = [tree.read("/etc/fstab") or b"", (tree.read("/proc/self/mounts") or b"") if tree.live else b""]
    fields = (line.split() for text in texts for line in _lines(text))
    return frozenset(field[2] for field in fields if len(field) > 2)
