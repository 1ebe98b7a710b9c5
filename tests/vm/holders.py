"""Played inside a machine: zombies held by unreaped processes, a socket, tmpfs and nothing. Prints what exhume says."""

import json
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.sources import zombie_holders
from exhume.sources.memcg_walk import walk
from exhume.sources.zombie_holders import Holder, holders

CHILDREN = 10


def memory() -> Path:
    v1 = Path("/sys/fs/cgroup/memory")
    if v1.exists():
        return v1
    Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+memory")
    return Path("/sys/fs/cgroup")


def ended(group: Path, work: Callable[[], object] = lambda: None) -> int:
    """A child that does its work in a new group, ends, and is not reaped. The group is removed."""
    group.mkdir()
    child = os.fork()
    if child == 0:
        (group / "cgroup.procs").write_text("0")
        work()
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    group.rmdir()
    return child


def reaped(group: Path, work: Callable[[], object] = lambda: None) -> None:
    os.waitpid(ended(group, work), 0)


def look(home: Path) -> dict[str, object]:
    """Holders by the names of the groups below a directory, without their numbers; and the parents that do not reap."""
    seen = walk()
    places = dict(zip(seen.zombies.tolist(), seen.places(seen.zombies), strict=True))
    rows = [row for row, (above, _) in places.items() if above == f"/{home.name}"]
    found = holders(seen, Root(), rows)
    kinds: dict[str, dict[str, int]] = {}
    for row, kind in zip(found.rows.tolist(), found.kind.tolist(), strict=True):
        counts = kinds.setdefault(places[row][1].strip("/").rstrip("0123456789"), {})
        counts[Holder(kind).name] = counts.get(Holder(kind).name, 0) + 1
    parents = [[one.parent_pid, one.parent_comm, count] for one, count in found.parents(rows)]
    return {"kinds": kinds, "exact": found.exact, "note": found.note, "parents": parents}


def settled(home: Path, gone: set[str]) -> dict[str, object]:
    """When the kernel has freed these, which takes it a grace period; or after a while as it is then."""
    deadline = time.monotonic() + 120
    while True:
        seen = look(home)
        kinds = seen["kinds"]
        if (isinstance(kinds, dict) and not gone & kinds.keys()) or time.monotonic() > deadline:
            return seen
        time.sleep(0.1)


def no_iterator(*_: object) -> list[zombie_holders.UnreapedProcess]:
    raise Unreadable("this kernel has no BPF iterator over tasks (5.8)")


def main() -> None:
    home = memory() / "exhume-test"
    home.mkdir()
    unified = (home / "cgroup.subtree_control").exists()
    if unified:
        (home / "cgroup.subtree_control").write_text("+memory")
    ours, theirs = socket.socketpair()

    def listen() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.send_fds(theirs, [b"x"], [server.fileno()])

    children = [ended(home / f"unreaped{i}") for i in range(CHILDREN)]
    reaped(home / "socket", listen)
    kept = socket.recv_fds(ours, 1, 1)[1]
    reaped(home / "tmpfs", lambda: Path("/dev/shm/exhume-test").write_bytes(bytes(1 << 20)))
    reaped(home / "nothing")
    before = settled(home, {"nothing"} if unified else {"nothing", "socket"})
    asked = zombie_holders._ask
    zombie_holders._ask = no_iterator  # type: ignore[assignment]
    by_proc = look(home)
    zombie_holders._ask = asked
    for child in children:
        os.waitpid(child, 0)
    for fd in kept:
        os.close(fd)
    after = settled(home, {"unreaped", "socket"})
    print(json.dumps({"pid": os.getpid(), "before": before, "by_proc": by_proc, "after": after}))
