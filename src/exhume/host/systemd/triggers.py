"""What starts units from outside the graph of units: D-Bus activation and rules of udev."""

import re
from collections.abc import Iterator

from exhume.host.systemd import names
from exhume.host.systemd.unit_file import merge, parse
from exhume.host.tree import Tree
from exhume.text import from_path

_SYSTEM = ("/etc/dbus-1", "/usr/local/share/dbus-1", "/usr/share/dbus-1", "/lib/dbus-1")
_RULES = ("/etc/udev/rules.d", "/run/udev/rules.d", "/usr/local/lib/udev/rules.d", "/usr/lib/udev/rules.d", "/lib/udev/rules.d")
_WANTS = re.compile(rb'ENV\{SYSTEMD_WANTS\}\s*\+?:?=\s*"([^"\n]{1,1000})"')


def bus_names(tree: Tree, manager: str = "system") -> Iterator[tuple[str, str]]:
    """Units with the bus name that starts each: SystemdService= of the D-Bus specification, "Message Bus Starting Services"."""
    seen: set[str] = set()
    directory = "system-services" if manager == "system" else "services"
    for place in _SYSTEM:
        for file in tree.names(f"{place}/{directory}"):
            if not file.endswith(".service") or file in seen:
                continue
            seen.add(file)
            sections = merge([parse(tree.read(f"{place}/{directory}/{file}") or b"")])
            unit = sections.last("D-BUS Service", "SystemdService")
            if names.valid(unit):
                yield unit, sections.last("D-BUS Service", "Name") or from_path(file.removesuffix(".service"))


def device_units(tree: Tree) -> Iterator[tuple[str, str]]:
    """Units that a rule of udev starts with a device, and the rule's file; names with substitutions are left out."""
    seen: set[str] = set()
    for place in _RULES:
        for file in tree.names(place):
            if not file.endswith(".rules") or file in seen:
                continue
            seen.add(file)
            for words in _WANTS.findall(tree.read(f"{place}/{file}") or b""):
                for word in words.decode("ascii", "replace").split():
                    if names.valid(word) and names.form(word) != "template":
                        yield word, f"{place}/{from_path(file)}"
