"""Which node this is: its name, its boot, its kernel, its CPUs."""

import os

from exhume.errors import Unreadable
from exhume.host.cgroups import Layout
from exhume.host.cpu_list import cpu_list
from exhume.host.root import Root
from exhume.recording.recording import Node
from exhume.text import decode, from_path

NAME = "EXHUME_NODE_NAME"
"""In the environment of a container: the name that the cluster has for the node it runs on."""


def facts(root: Root, layout: Layout) -> Node:
    return Node(
        hostname=_hostname(root),
        boot_id=_line(root, "proc/sys/kernel/random/boot_id"),
        kernel=_line(root, "proc/sys/kernel/osrelease"),
        cgroups=layout.version,
        cpus=len(online_cpus(root)),
    )


def online_cpus(root: Root) -> list[int]:
    """CPU numbers from /sys/devices/system/cpu/online; empty if it cannot be read."""
    try:
        return list(cpu_list(root.read("sys/devices/system/cpu/online", 4096)))
    except Unreadable:
        return []


def _hostname(root: Root) -> str:
    """Of another's root as we are told, or by its file: what /proc says is the name of whoever reads it (its UTS namespace)."""
    if not root.own and (told := os.environ.get(NAME, "").strip()) and root.same_kernel():
        return from_path(told)
    named = b"" if root.own else root.regular("etc/hostname", 4096) or b""
    for line in named.split(b"\n"):
        if (name := line.strip()) and not name.startswith(b"#"):  # hostname(5)
            return decode(name)
    return _line(root, "proc/sys/kernel/hostname")


def _line(root: Root, name: str) -> str:
    try:
        return decode(root.read(name, 4096).strip())
    except Unreadable:
        return ""


def isolated_cpus(root: Root) -> set[int]:
    """Cores that somebody wants left alone: without a tick (nohz_full), or outside the scheduler's care (isolcpus)."""
    found: set[int] = set()
    for name in ("nohz_full", "isolated"):
        try:
            found |= set(cpu_list(root.read(f"sys/devices/system/cpu/{name}", 1 << 16)))
        except Unreadable:
            continue
    return found
