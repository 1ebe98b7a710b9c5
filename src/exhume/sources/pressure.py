"""Pressure stall information: of the node, and on v2 that of memory of the cgroups nearest to the root."""

import re

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.root import Root
from exhume.recording.recording import Recording, labels
from exhume.recording.source_state import Note, Reasons
from exhume.text import from_path

RESOURCES = ("cpu", "memory", "io", "irq")
# Breadth first, so that units and pods come before what is inside them.
MOST_CGROUPS = 150

_LINE = re.compile(rb"^(some|full) avg10=(\d{1,3})\.(\d\d) .*?total=(\d{1,18})$", re.MULTILINE)


class Pressure:
    name = "pressure"
    every_ns = 0

    def __init__(self, root: Root, tree: Tree) -> None:
        self._root = root
        self._tree = tree

    def read(self, recording: Recording, time: int) -> Reasons:
        found = False
        for resource in RESOURCES:
            found |= self._add(recording, time, f"proc/pressure/{resource}", resource, "")
        if not found:
            # The files exist with psi=0 on the command line too; then reading them fails with EOPNOTSUPP.
            raise Unreadable("/proc/pressure cannot be read (kernel before 4.20, or booted without psi=1)")
        unified = self._tree.layout.unified
        if unified is None:
            return (Note("node only: cgroup v1 has no pressure per cgroup"),)
        # Memory alone: reclaim inside a group's limit shows nowhere else.
        for path in self._tree.walk(unified).paths[1 : 1 + MOST_CGROUPS]:
            self._add(recording, time, f"{unified.path}{path}/memory.pressure", "memory", path)
        return ()

    def _add(self, recording: Recording, time: int, name: str, resource: str, cgroup: str) -> bool:
        try:
            values = parse_pressure(self._root.read(name, 4096))
        except Unreadable:
            return False
        for kind, (avg10, total) in values.items():
            at = labels(cgroup=from_path(cgroup), kind=kind, resource=resource)
            recording.count(time, "pressure_us", total, at)
            recording.count(time, "pressure_avg10_bp", avg10, at)
        return bool(values)


def parse_pressure(raw: bytes) -> dict[str, tuple[int, int]]:
    """some/full to (avg10 in hundredths of a per cent, total stall time in us)."""
    return {m[1].decode(): (int(m[2]) * 100 + int(m[3]), int(m[4])) for m in _LINE.finditer(raw)}
