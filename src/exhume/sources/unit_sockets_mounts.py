"""Which containers have a socket of the node mounted, or the directory that it is in: who could talk to it at any time."""

import os
from collections import defaultdict
from collections.abc import Iterable

from exhume.errors import Unreadable
from exhume.host.mounts import Mount, mounts, parse_mounts
from exhume.host.root import Root
from exhume.sources.processes import MOST_PROCESSES
from exhume.sources.unit_sockets_owner import Owners

MOST_NAMESPACES = 500
# Directories that are mounted for many reasons; below them a socket is meant only if it is mounted itself.
_WIDE = frozenset({"/", "/run", "/var", "/var/run", "/var/lib", "/tmp", "/dev", "/proc", "/sys", "/etc", "/usr", "/home"})


def mounted_by(root: Root, owners: Owners, paths: Iterable[str]) -> dict[str, list[str]]:
    """For each path of the node, the containers and pods that have it mounted."""
    wanted = set(paths)
    try:
        ours = mounts(root)
        pids = sorted(int(name) for name in root.names("proc") if name.isascii() and name.isdigit() and len(name) < 10)
    except Unreadable:
        return {}
    found: dict[str, set[str]] = defaultdict(set)
    seen = {_namespace(root, int(root.proc_self().removeprefix("proc/")) if not root.own else os.getpid())}
    for pid in pids[:MOST_PROCESSES]:
        namespace = _namespace(root, pid)
        if not namespace or namespace in seen or len(seen) > MOST_NAMESPACES:
            continue
        seen.add(namespace)
        try:
            theirs = parse_mounts(root.read(f"proc/{pid}/mountinfo"))
        except Unreadable:
            continue
        whose = owners.owner(pid)
        if not (whose.container or whose.pod):
            continue  # services with PrivateTmp= and the like see the node's own files, and mount nothing to talk to it
        for path in shared(ours, theirs, wanted):
            found[path].add(owners.of(pid))
    return {path: sorted(names) for path, names in found.items()}


def shared(ours: Iterable[Mount], theirs: Iterable[Mount], wanted: set[str]) -> set[str]:
    """Which of the wanted paths of ours are seen in another's mounts: themselves, or their directory."""
    above: dict[str, set[str]] = defaultdict(set)
    for path in wanted:
        above[path].add(path)
        parent = os.path.dirname(path)
        while parent not in _WIDE and parent not in ("", "/"):
            above[parent].add(path)
            parent = os.path.dirname(parent)
    places: dict[tuple[int, int], list[Mount]] = defaultdict(list)
    for mount in ours:
        places[mount.device].append(mount)
    found: set[str] = set()
    for mount in theirs:
        for place in places.get(mount.device, ()):
            base = place.root.rstrip("/")
            if mount.root == place.root or mount.root.startswith(base + "/"):
                found |= above.get((place.point.rstrip("/") + mount.root[len(base) :]).rstrip("/") or "/", set())
    return found


def _namespace(root: Root, pid: int) -> str:
    try:
        return os.readlink(root.at(f"proc/{pid}/ns/mnt"))
    except OSError:
        return ""
