"""Who listens on what, and who is connected: the sockets of each unit's processes, and the processes at their other ends.

For the audit of a live node: an agent with a socket that nobody has ever connected to is another thing than one that a dozen
pods talk to. Bounded, by /proc alone, and nothing is connected to.
"""

import errno
import os
import time as clock
from collections import defaultdict
from collections.abc import Iterable

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.sources.processes import MOST_PROCESSES
from exhume.sources.unit_sockets_model import INIT, Endpoint, Sockets
from exhume.sources.unit_sockets_mounts import mounted_by
from exhume.sources.unit_sockets_owner import Owners
from exhume.sources.unit_sockets_peers import unix_peers
from exhume.sources.unit_sockets_tables import Inet, Unix, parse_inet, parse_unix

MOST_DESCRIPTORS = 200_000
_MOST_NAMES = 12
_LARGEST_TABLE = 32 << 20  # 100,000 TCP sockets with 150 bytes each


def read_sockets(root: Root) -> tuple[dict[str, Sockets], str]:
    """By the unit's name, for units that have any socket; and a note where not all could be seen."""
    try:
        inet, unix = _tables(root)
        holders, note = _holders(root)
    except Unreadable as error:
        return {}, str(error)
    owners = Owners(root)
    held = {inode: _best(owners, pids) for inode, pids in holders.items()}
    try:
        peers = unix_peers(None if root.own else root.at("proc/1/ns/net"))
    except OSError:
        peers = {}
        note = note or "who is connected to Unix sockets was not told by the kernel"
    shared = mounted_by(root, owners, [one.path for one in unix if one.listening and one.path.startswith("/")])
    found = _assemble(root, inet, unix, held, peers, shared)
    return found, note


def _tables(root: Root) -> tuple[list[Inet], list[Unix]]:
    net = f"{root.proc_self()}/net"
    inet = []
    for protocol in ("tcp", "tcp6", "udp", "udp6"):
        try:
            inet += parse_inet(root.read(f"{net}/{protocol}", _LARGEST_TABLE), protocol.rstrip("6"))
        except Unreadable:
            continue  # without IPv6 there is no such file
    return inet, parse_unix(root.read(f"{net}/unix", _LARGEST_TABLE))


def _holders(root: Root) -> tuple[dict[int, list[int]], str]:
    """Which processes have each socket open, by /proc/PID/fd."""
    pids = sorted(int(name) for name in root.names("proc") if name.isascii() and name.isdigit() and len(name) < 10)
    found: dict[int, list[int]] = defaultdict(list)
    seen = denied = 0
    for pid in pids[:MOST_PROCESSES]:
        directory = root.at(f"proc/{pid}/fd")
        try:
            names = os.listdir(directory)
        except OSError as error:
            denied += error.errno in (errno.EACCES, errno.EPERM)
            continue
        for name in names:
            seen += 1
            if seen > MOST_DESCRIPTORS:
                return found, f"only {MOST_DESCRIPTORS:,} open files were looked at"
            try:
                target = os.readlink(f"{directory}/{name}")
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM):
                    denied += 1
                    break
                continue
            if target.startswith("socket:[") and target[8:-1].isdigit() and len(target) < 30:
                found[int(target[8:-1])].append(pid)
    if len(pids) > MOST_PROCESSES:
        return found, f"only {MOST_PROCESSES:,} of {len(pids):,} processes were looked at"
    why = "not readable without root" if os.geteuid() else "kept from us, root or not"
    return found, f"the open files of {denied:,} process{'es' * (denied > 1)} are {why}" if denied else ""


def _best(owners: Owners, pids: Iterable[int]) -> str:
    """Whose a socket is that several have open: PID 1 and the service that it made it for, a daemon and its children."""
    names = list(dict.fromkeys(owners.of(pid) for pid in list(pids)[:8]))
    return next((name for name in names if name != INIT), names[0] if names else "")


def _assemble(
    root: Root, inet: list[Inet], unix: list[Unix], held: dict[int, str], peers: dict[int, int], shared: dict[str, list[str]]
) -> dict[str, Sockets]:
    listening: dict[str, dict[tuple[str, str], Endpoint]] = defaultdict(dict)
    outgoing: dict[str, int] = defaultdict(int)
    talks_to: dict[str, set[str]] = defaultdict(set)
    here = {(one.protocol, one.local, one.remote): one for one in inet if one.connected}
    ports = {(one.protocol, one.local[1]) for one in inet if one.listening}
    taken: dict[tuple[str, int], list[Inet]] = defaultdict(list)
    for one in here.values():
        if (one.protocol, one.local[1]) in ports:
            taken[one.protocol, one.local[1]].append(one)
            continue
        whose = held.get(one.inode, "")
        other = here.get((one.protocol, one.remote, one.local))
        if other is None:
            outgoing[whose] += 1
        elif held.get(other.inode, whose) != whose:
            talks_to[whose].add(held[other.inode])
    for one in inet:
        if one.listening:
            address = f"{one.local[0]}:{one.local[1]}" if ":" not in one.local[0] else f"[{one.local[0]}]:{one.local[1]}"
            ends = [
                (other, here.get((other.protocol, other.remote, other.local))) for other in taken[one.protocol, one.local[1]]
            ]
            names = {held.get(peer.inode, "somebody of this node") for _, peer in ends if peer is not None}
            remotes = {other.remote[0] for other, peer in ends if peer is None}
            whose = held.get(one.inode, "")
            endpoint = Endpoint(one.protocol, address, len(ends), _few(names - {whose}), len(remotes))
            listening[whose][one.protocol, address] = endpoint
    accepted: dict[str, list[Unix]] = defaultdict(list)
    for socket in unix:
        if socket.connected and socket.path:
            accepted[socket.path].append(socket)
            whose, peer = held.get(socket.inode, ""), held.get(peers.get(socket.inode, 0), "")
            if peer and whose and peer != whose:
                talks_to[peer].add(whose)
    for socket in unix:
        if socket.listening and socket.path:
            whose = held.get(socket.inode, "")
            ends_of = accepted[socket.path]
            known = {held.get(peers[one.inode], "somebody of this node") for one in ends_of if one.inode in peers}
            made, touched = _times(root, socket.path)
            endpoint = Endpoint("unix", socket.path, len(ends_of), _few(known - {whose}), 0, made, touched)
            listening[whose]["unix", socket.path] = endpoint
    units = {*listening, *outgoing, *talks_to} - {""}
    return {
        unit: Sockets(
            tuple(end for _, end in sorted(listening[unit].items())),
            outgoing[unit],
            _few(talks_to[unit]),
            _few(name for (kind, path) in listening[unit] if kind == "unix" for name in shared.get(path, ()) if name != unit),
        )
        for unit in units
    }


def _few(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))[:_MOST_NAMES]


def _times(root: Root, path: str) -> tuple[float, float]:
    """How long ago a socket file was made, and connected to; -1 for what is not known or never was."""
    try:
        status = root.status(path) if path.startswith("/") else None
    except OSError:
        status = None
    if status is None:
        return -1.0, -1.0
    now = clock.time()
    never = status.st_atime_ns <= status.st_mtime_ns
    return max(0.0, now - status.st_mtime), -1.0 if never else max(0.0, now - status.st_atime)
