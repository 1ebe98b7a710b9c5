"""Real zombie memory cgroups on this kernel (v1): made fast, under one named parent, and cleaned up.

A group is pinned by one page of a file that was first written by a task inside it. Writing 0 to `tasks` moves only the
calling thread, which spares the kernel a global lock (cgroup_procs_write_start): thousands a second instead of hundreds.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/sys/fs/cgroup/memory")
PARENT = MEMORY / "exhume-test"
PAGE = 4096
_PAGE = b"x" * PAGE
_numbers = itertools.count()


def unavailable() -> str:
    """Why real zombies cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root to make cgroups"
    if not (MEMORY / "release_agent").exists():
        return "needs the memory controller on cgroup v1"
    return ""


@contextmanager
def zombies(count: int, below: str = "zombies", tmpfs: bool = False, keep: bool = False) -> Iterator[Path]:
    """So many zombies below one parent, which is yielded. They are gone afterwards, because the file that pins them is; so is
    the parent, unless it is to be kept."""
    parent = PARENT / below
    parent.mkdir(parents=True, exist_ok=True)
    home = own_cgroup()
    before = total()
    with tempfile.NamedTemporaryFile(dir="/dev/shm" if tmpfs else None, prefix="exhume-test-") as file:
        try:
            for i in range(count):
                one(parent, f"z{i}", file.fileno(), i)
            _move(home)
            if not tmpfs:
                os.fsync(file.fileno())  # dirty pages cannot be reclaimed at once
            yield parent
        finally:
            _move(home)
            os.ftruncate(file.fileno(), 0)
            if not keep:
                remove(parent)
            # They go one by one in a worker of the kernel: the next one to count must not find them still leaving.
            deadline = time.monotonic() + 5
            while total() > before + 10 and time.monotonic() < deadline:
                time.sleep(0.02)


def one(parent: Path, name: str, fd: int, page: int) -> None:
    """One zombie: a group that is entered, writes one page of a file that nobody wrote before, is left and removed."""
    group = f"{parent}/{name}"
    os.mkdir(group)
    _enter(group)
    os.pwrite(fd, _PAGE, page * PAGE)
    _enter(str(parent))
    os.rmdir(group)


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
            with zombies(cache, name, keep=True), zombies(on_tmpfs, name, tmpfs=True, keep=True):
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
