"""Runs in a guest with cgroup v2: purges beside a live group with hot cache, and prints what each promised and took."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from exhume.errors import Unreadable
from exhume.host.root import Root
from exhume.remedy import purging

MIB = 1 << 20
PAGE = 4096
TOP = Path("/sys/fs/cgroup/exhume-test")
DATA = Path("/var/exhume-test")


class NoPins:
    """A kernel that does not let pages be read: what is left is memory.reclaim."""

    def __enter__(self) -> None:
        raise Unreadable("pages cannot be read")


def spawn(group: Path, work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            (group / "cgroup.procs").write_text("0")
            work()
        finally:
            os._exit(0)
    return pid


def write_page(fd: int, page: int) -> None:
    os.pwrite(fd, b"x" * PAGE, page * PAGE)


def leak(count: int) -> None:
    """Zombies, each pinned by one page of a file."""
    with open(DATA / "leak", "wb") as file:
        for i in range(count):
            group = TOP / f"agent/z{i}"
            group.mkdir()
            os.waitpid(spawn(group, partial(write_page, file.fileno(), i)), 0)
            group.rmdir()
        os.fsync(file.fileno())


def serve(path: Path) -> None:
    """Read a file without end, so that it is hot."""
    while True:
        with open(path, "rb") as file:
            while file.read(MIB):
                pass
        time.sleep(0.05)


def file_bytes(group: Path) -> int:
    fields = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return int(fields["file"])


def from_disk(pid: int) -> int:
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["read_bytes"])


def one(live: Path, pid: int, zombies: int) -> dict[str, Any]:
    leak(zombies)
    with purging.Purging(Root(), "/exhume-test/agent") as work:
        parts = work.plan.allowed()
        before, read = file_bytes(live), from_disk(pid)
        _, outcomes = work.carry_out(parts, lambda _: None)
        after = file_bytes(live)
    return {
        "ways": [part.way.value for part in work.plan.parts],
        "promised": sum(part.most_lost_bytes for part in parts),
        "lost": max(before - after, from_disk(pid) - read),
        "zombies": sum(part.zombies for part in parts),
        "gone": sum(outcome.gone for outcome in outcomes),
    }


def main(runs: int, live_mib: int, zombies: int) -> None:
    DATA.mkdir()
    TOP.mkdir()
    (TOP / "cgroup.subtree_control").write_text("+memory")
    (TOP / "agent").mkdir()
    (TOP / "agent/cgroup.subtree_control").write_text("+memory")
    live = TOP / "agent/live"
    live.mkdir()
    with open(DATA / "model", "wb") as file:
        for _ in range(live_mib):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    pid = spawn(live, lambda: serve(DATA / "model"))
    while file_bytes(live) < 0.95 * live_mib * MIB:
        time.sleep(0.1)
    story: dict[str, list[dict[str, Any]]] = {"evict": [], "reclaim": []}
    for _ in range(runs):
        story["evict"].append(one(live, pid, zombies))
    vars(purging)["Pinning"] = NoPins
    for _ in range(runs):
        story["reclaim"].append(one(live, pid, zombies))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    print(json.dumps(story))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
