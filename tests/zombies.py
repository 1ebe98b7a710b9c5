"""Real zombie memory cgroups on this kernel (v1): made fast, under one named parent, and cleaned up.

A group is pinned by one page of a file that was first written by a task inside it. Writing 0 to `tasks` moves only the
calling thread, which spares the kernel a global lock (cgroup_procs_write_start): thousands a second instead of hundreds.

Clean page cache can be evicted at any time: by DAMON, by reclaim. Tests that count zombies exactly hold the pages (`Held`) or
use tmpfs, and count their own groups by path or id.
"""

import fcntl
import itertools
import os
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from exhume.errors import Unreadable
from exhume.sources.memcg_walk import walk

MEMORY = Path("/sys/fs/cgroup/memory")
OWN = "of-process-" + str(os.getpid()).translate(str.maketrans("0123456789", "aeiouyAEIO"))
"""This process, in vowels: digits, and consonants as Kubernetes makes them up, are a pattern to what groups zombies by name."""
PARENT = MEMORY / f"exhume-test-{OWN}"
"""Of this process alone: another one would remove it between two calls of this one."""
PAGE = 4096
_PAGE = b"x" * PAGE
_PIPE_BYTES = 1 << 20  # what a pipe may have without CAP_SYS_RESOURCE (/proc/sys/fs/pipe-max-size)
_numbers = itertools.count()


def unavailable() -> str:
    """Why real zombies cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    if not (MEMORY / "release_agent").exists():
        return "needs the memory controller on cgroup v1"
    return ""


class Held:
    """Pages of a file that the kernel cannot evict while this is open: a pipe has a reference to each (splice).

    They stay ordinary page cache, on the list of file pages, neither mapped nor locked. Reclaim fails on a page that has more
    references than the cache's own (__remove_mapping in mm/vmscan.c). Reading by splice sets PG_referenced once.
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._room = 0

    def page(self, fd: int, page: int) -> None:
        if not self._room:
            self._ends += os.pipe()
            self._room = fcntl.fcntl(self._ends[-1], fcntl.F_SETPIPE_SZ, _PIPE_BYTES) // PAGE
        assert os.splice(fd, self._ends[-1], PAGE, offset_src=page * PAGE) == PAGE
        self._room -= 1

    def release(self) -> None:
        while self._ends:
            os.close(self._ends.pop())
        self._room = 0

    def __enter__(self) -> "Held":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@contextmanager
def zombies(count: int, below: str = "zombies", tmpfs: bool = False, keep: bool = False, held: bool = False) -> Iterator[Path]:
    """So many zombies below one parent, which is yielded. They are gone afterwards, because the file that pins them is; so is
    the parent, unless it is to be kept. Page cache that is not `held` may be evicted by the kernel at any time."""
    parent = PARENT / below
    parent.mkdir(parents=True, exist_ok=True)
    home = own_cgroup()
    groups: list[int] = []
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if tmpfs else None, prefix="exhume-test-") as file, Held() as pages:
        try:
            for i in range(count):
                groups.append(one(parent, f"z{i}", file.fileno(), i))
                if held:
                    pages.page(file.fileno(), i)
            _move(home)
            if not tmpfs:
                os.fsync(file.fileno())  # dirty pages cannot be reclaimed at once
            yield parent
        finally:
            _move(home)
            pages.release()
            os.ftruncate(file.fileno(), 0)
            # The next one to count must not find them still leaving. Metadata of the file system may pin a few for longer.
            released(groups, most=10)
            if not keep:
                remove(parent)


def released(groups: Collection[int], most: int = 0) -> int:
    """Wait until the kernel has freed all but so many of these groups, by inode number: a worker frees one after the other.
    Returns how many are left then, or after ten seconds."""
    wanted = np.fromiter(groups, np.uint64)
    deadline = time.monotonic() + 10
    try:
        while (left := int(np.isin(wanted, walk().id).sum())) > most and time.monotonic() < deadline:
            time.sleep(0.02)
    except Unreadable:  # without BPF they cannot be seen
        return 0
    return left


def one(parent: Path, name: str, fd: int, page: int) -> int:
    """One zombie: a group that is entered, writes one page of a file that nobody wrote before, is left and removed. Returns its
    inode number. All is at hand before it is entered: a page that Python touches first inside would keep the group."""
    group = f"{parent}/{name}"
    os.mkdir(group)
    inside, outside = (os.open(f"{directory}/tasks", os.O_WRONLY) for directory in (group, parent))
    offset = page * PAGE
    os.write(inside, b"0")
    os.pwrite(fd, _PAGE, offset)
    os.write(outside, b"0")
    number = os.stat(group).st_ino
    os.close(inside)
    os.close(outside)
    os.rmdir(group)
    return number


@contextmanager
def within(group: Path) -> Iterator[None]:
    """This thread in a group. It leaves by a descriptor that is open before: memory that Python takes inside is charged there,
    and a page of ours would keep the group for as long as we live."""
    home = os.open(own_cgroup() / "tasks", os.O_WRONLY)
    tasks = os.open(group / "tasks", os.O_WRONLY)
    try:
        os.write(tasks, b"0")
        yield
    finally:
        os.write(home, b"0")
        os.close(tasks)
        os.close(home)


def _enter(group: str) -> None:
    fd = os.open(f"{group}/tasks", os.O_WRONLY)
    os.write(fd, b"0")
    os.close(fd)


@contextmanager
def beside_a_sibling(cache: int, on_tmpfs: int, sibling_mib: int) -> Iterator[Path]:
    """Zombies on page cache, zombies on tmpfs, and a live group `live` with so much cache of its own, below one parent."""
    name = f"purge-{os.getpid()}-{next(_numbers)}"  # what an earlier one left behind keeps its path
    parent = PARENT / name
    sibling = parent / "live"
    sibling.mkdir(parents=True)
    home = own_cgroup()
    with tempfile.NamedTemporaryFile(prefix="exhume-test-") as big:
        try:
            _move(sibling)
            for _ in range(sibling_mib):
                big.write(bytes(1 << 20))
            big.flush()
            os.fsync(big.fileno())
            _move(home)
            with ExitStack() as made:
                for count, tmpfs in ((cache, False), (on_tmpfs, True)):
                    if count:
                        made.enter_context(zombies(count, name, tmpfs, keep=True))
                yield parent
        finally:
            _move(home)
            remove(parent)


@contextmanager
def directories(count: int, below: str = "dirs") -> Iterator[Path]:
    """So many visible, empty directories below one parent."""
    parent = PARENT / below
    parent.mkdir(parents=True, exist_ok=True)
    try:
        for i in range(count):
            os.mkdir(f"{parent}/d{i}")
        yield parent
    finally:
        remove(parent)


def own_cgroup() -> Path:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return MEMORY / path.lstrip("/")
    return MEMORY


def _move(group: Path) -> None:
    _enter(str(group))


def remove(parent: Path) -> None:
    """Remove a directory of ours and everything below it, and the common parent when it is empty."""
    for directory, _, _ in os.walk(parent, topdown=False):
        os.rmdir(directory)
    if PARENT.exists() and not any(entry.is_dir() for entry in PARENT.iterdir()):
        PARENT.rmdir()


def total() -> int:
    """Memory cgroups, live and dying, as the kernel counts them."""
    for line in Path("/proc/cgroups").read_text().splitlines():
        if line.startswith("memory\t"):
            return int(line.split()[2])
    return 0


def dying() -> int:
    """Zombies on the machine as it is: those in it that are not ours too."""
    return total() - sum(1 for _ in os.walk(MEMORY))
