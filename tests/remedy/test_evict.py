"""Eviction by file on the real kernel: what pins a zombie goes, and nothing else does; garbage does no harm.

The kernel may evict clean pages by itself at any time (DAMON does). So a page that must stay is held (`zombies.Held`), and what
was evicted is known by the ranges that were asked for, never by what is missing.
"""

import json
import mmap
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from exhume.host.root import Root
from exhume.kernel.bpf import Features
from exhume.remedy import evict as evict_module
from exhume.remedy.evict import (
    IN_USE,
    MAPPED,
    SPENT,
    TMPFS,
    WRITING,
    Files,
    Request,
    by_file,
    evict,
    obstacles,
    ranges,
    sort_by_use,
    used,
)
from exhume.sources.memcg_pins import BDEVFS_MAGIC, PINS, TMPFS_MAGIC, Pinning, Pins
from exhume.sources.memcg_walk import MemcgWalk, walk
from exhume.sources.open_files import Readers
from exhume.sources.tmpfs_files import tmpfs_files
from tests import zombies
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.starved import no_core_held
from tests.zombies import MEMORY, PAGE, PARENT

_WHY_NOT = zombies.unavailable()
needs_zombies = pytest.mark.skipif(bool(_WHY_NOT), reason=_WHY_NOT or "zombies can be made")
real = [needs_bpf, needs_zombies]
_numbers = count()
MIB = 1 << 20
FULL = b"x" * PAGE


def fresh() -> str:
    return f"evict-{os.getpid()}-{next(_numbers)}"


@contextmanager
def leaked(parent: Path, writes: list[tuple[int, int, int]], held: zombies.Held | None = None) -> Iterator[Path]:
    """A zombie for each (file descriptor, first page, pages), below a parent that is there only meanwhile."""
    parent.mkdir(parents=True)
    try:
        for i, (fd, first, pages) in enumerate(writes):
            group = parent / f"z{i}"
            group.mkdir()
            with zombies.within(group):
                for page in range(first, first + pages):
                    os.pwrite(fd, FULL, page * PAGE)
            if held is not None:
                for page in range(first, first + pages):
                    held.page(fd, page)
            group.rmdir()
        settle()
        yield parent
    finally:
        parent.rmdir()
        with suppress(OSError):
            PARENT.rmdir()


@dataclass
class Beside:
    """A live group with cache of its own, and the parent of 300 zombies next to it."""

    agent: Path
    inode: int
    """Of the file that pins the zombies. No process has it open."""
    path: str
    sibling_inode: int
    held: zombies.Held


@contextmanager
def beside(mib: int, name: str) -> Iterator[Beside]:
    """The zombies are held until that is released."""
    parent = PARENT / fresh()
    sibling = parent / name
    sibling.mkdir(parents=True)
    try:
        with tempfile.NamedTemporaryFile() as big, tempfile.TemporaryDirectory() as directory, zombies.Held() as held:
            with zombies.within(sibling):
                big.write(bytes(mib * MIB))
                big.flush()
                os.fsync(big.fileno())
            path = f"{directory}/pins"
            fd = os.open(path, os.O_CREAT | os.O_RDWR)
            with leaked(parent / "agent", [(fd, i, 1) for i in range(300)], held) as agent:
                os.fsync(fd)
                inode = os.fstat(fd).st_ino
                os.close(fd)
                yield Beside(agent, inode, path, os.fstat(big.fileno()).st_ino, held)
    finally:
        zombies.remove(parent)


@contextmanager
def loop_device(file: Any) -> Iterator[int]:
    """A block device of our own, on a file."""
    os.ftruncate(file.fileno(), MIB)
    done = subprocess.run(["losetup", "--find", "--show", file.name], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no loop device is to be had: {done.stderr.strip()}")
    name = done.stdout.strip()
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
        subprocess.run(["losetup", "--detach", name], check=False)


def settle() -> None:
    """Pages wait in a batch of each CPU until it is full; writing so many more puts them on their lists. POSIX_FADV_DONTNEED
    drains the batch of pages that are to become active too (lru_add_drain)."""
    allowed = os.sched_getaffinity(0)
    with tempfile.TemporaryFile() as file:
        try:
            for core in allowed:
                os.sched_setaffinity(0, {core})
                os.pwrite(file.fileno(), bytes(64 * PAGE), 64 * PAGE * core)
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.sched_setaffinity(0, allowed)


def below(seen: MemcgWalk, parent: Path) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    home = "/" + str(parent.relative_to(MEMORY))
    rows = seen.zombies
    return rows[[path.startswith(home + "/") for path in seen.paths(rows)]]


def left(parent: Path, expected: int = 0) -> int:
    """How many zombies there are below it, once the kernel has had the time to free what it can."""
    deadline = time.monotonic() + 120
    while (found := len(below(walk(), parent))) > expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


class Advised:
    """What was asked to be evicted: pages by inode. Nothing else is evicted by this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages: dict[int, set[int]] = {}
        advise = os.posix_fadvise

        def recorded(fd: int, offset: int, length: int, advice: int) -> None:
            pages = range(offset // PAGE, (offset + length) // PAGE)
            self.pages.setdefault(os.fstat(fd).st_ino, set()).update(pages)
            advise(fd, offset, length, advice)

        monkeypatch.setattr(os, "posix_fadvise", recorded)

    def of(self, fd: int) -> set[int]:
        return self.pages.get(os.fstat(fd).st_ino, set())


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> Advised:
    return Advised(monkeypatch)


def zombie_paths() -> list[str]:
    seen = walk()
    return seen.paths(seen.zombies.tolist())


def exhume(*argv: str) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, "-m", "exhume", "zombies", "purge", *argv, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def pin(**columns: object) -> Pins:
    made = np.zeros(1, PINS)
    made["pages"] = made["nlink"] = 1
    for name, value in columns.items():
        made[name] = value
    return made


class TestPins:
    pytestmark = real

    @each_fallback
    def test_the_very_pages_are_told(self, features: Features) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            zombies.Held() as held,
            leaked(PARENT / fresh(), [(file.fileno(), 3, 2), (file.fileno(), 9, 1)], held) as parent,
        ):
            os.fsync(file.fileno())
            with Pinning(features) as pinning:
                seen = walk()
                pins = pinning.read(seen, below(seen, parent).tolist())
            told = os.fstat(file.fileno())
        of_file = pins[pins["ino"] == told.st_ino]
        assert sorted(of_file["index"].tolist()) == [3, 4, 9]
        assert {(int(dev) >> 20, int(dev) & 0xFFFFF) for dev in of_file["dev"]} == {
            (os.major(told.st_dev), os.minor(told.st_dev))
        }
        assert set(of_file["nlink"].tolist()) == {1}
        assert len(set(of_file["row"].tolist())) == 2
        assert not (of_file["dirty"] | of_file["mapped"]).any()

    def test_a_dirty_page_is_called_so(self) -> None:
        with tempfile.NamedTemporaryFile() as file, leaked(PARENT / fresh(), [(file.fileno(), 0, 1)]) as parent:
            with Pinning() as pinning:
                seen = walk()
                os.pwrite(file.fileno(), FULL, 0)  # it may have been written back since
                pins = pinning.read(seen, below(seen, parent).tolist())
            (mine,) = pins[pins["ino"] == os.fstat(file.fileno()).st_ino]
        assert mine["dirty"] or mine["writeback"]

    def test_no_more_than_asked_for_are_told_and_a_stay_in_the_kernel_is_short(self) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            zombies.Held() as held,
            leaked(PARENT / fresh(), [(file.fileno(), 0, 3000)], held) as parent,
            Pinning() as pinning,
        ):
            seen = walk()
            assert 1 <= len(pinning.read(seen, below(seen, parent).tolist(), most=5)) <= 10
            assert 60 <= len(pinning.read(seen, below(seen, parent).tolist(), most=10_000)) <= 256
            assert pinning.longest_call_ns > 0

    def test_groups_that_are_gone_by_now_have_no_pages(self) -> None:
        with Pinning() as pinning:
            with tempfile.NamedTemporaryFile() as file, leaked(PARENT / fresh(), [(file.fileno(), 0, 1)] * 20) as parent:
                seen = walk()
                rows = below(seen, parent)
                os.ftruncate(file.fileno(), 0)
                assert left(parent) == 0
            assert len(pinning.read(seen, rows.tolist())) == 0

    def test_wrong_addresses_lead_nowhere(self) -> None:
        with Pinning() as pinning:
            seen = walk()
            rng = np.random.default_rng(3)
            seen.css[1:] = (
                rng.integers(0, 1 << 63, len(seen) - 1, np.uint64) | rng.integers(0, 2, len(seen) - 1, np.uint64) << 63
            )
            assert len(pinning.read(seen, range(1, len(seen)))) == 0
            assert len(pinning.read(seen, range(1, len(seen)), file=False)) == 0


class TestEviction:
    pytestmark = real

    def go(self, parent: Path, most_bytes: int = 1 << 40, in_use: bool = False) -> evict_module.Evicted:
        with Pinning() as pinning:
            seen = walk()
            rows = below(seen, parent)
            return evict(Root(), pinning, seen, Request(rows, rows[:0], rows if in_use else rows[:0], most_bytes))

    def test_no_more_than_was_agreed_to_is_evicted(self, advised: Advised) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(200)]) as parent,
        ):
            os.fsync(file.fileno())
            done = self.go(parent, most_bytes=64 * PAGE)
            assert done.pages <= 64
            assert len(advised.of(file.fileno())) <= 64
            # More than 64 were there, unless the kernel evicted them first.
            assert done.failed.get(SPENT, 0) > 0 or len(below(walk(), parent)) <= 200 - 64

    def test_pages_that_were_used_twice_stay_with_their_zombie(self) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            zombies.Held() as held,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(20)]) as parent,
        ):
            held.page(file.fileno(), 7)
            os.fsync(file.fileno())
            for _ in range(3):
                with open(file.name, "rb") as again:
                    os.pread(again.fileno(), PAGE, 7 * PAGE)
            settle()
            done = self.go(parent)
            assert done.failed[IN_USE] > 0
            assert left(parent, expected=1) == 1
            held.release()
            self.go(parent, in_use=True)
            assert left(parent) == 0

    def test_many_zombies_on_pages_of_one_file(self, advised: Advised) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(500)]) as parent,
        ):
            os.fsync(file.fileno())
            done = self.go(parent)
            assert left(parent) == 0
            assert os.pread(file.fileno(), PAGE, 499 * PAGE) == b"x" * PAGE
            asked = advised.of(file.fileno())
        assert asked <= {*range(500)}
        assert done.pages >= len(asked)
        assert done.bytes == done.pages * PAGE

    def test_many_files(self, advised: Advised) -> None:
        with tempfile.TemporaryDirectory() as directory:
            fds = [os.open(f"{directory}/{i}", os.O_CREAT | os.O_RDWR) for i in range(200)]
            with leaked(PARENT / fresh(), [(fd, 0, 2) for fd in fds]) as parent:
                inodes = {os.fstat(fd).st_ino for fd in fds}
                for fd in fds:
                    os.fsync(fd)
                    os.close(fd)
                done = self.go(parent)
                assert left(parent) == 0
        assert done.files >= len(inodes & advised.pages.keys())
        assert all(advised.pages.get(inode, set()) <= {0, 1} for inode in inodes)

    def test_dirty_pages_are_written_first_and_nothing_is_lost(self) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(300)]) as parent,
        ):
            self.go(parent)
            assert left(parent) == 0
            assert os.pread(file.fileno(), 300 * PAGE, 0) == b"x" * (300 * PAGE)

    def test_a_zombie_with_more_pages_than_a_round_sees_goes_in_more_rounds(self, advised: Advised) -> None:
        with tempfile.NamedTemporaryFile() as file, leaked(PARENT / fresh(), [(file.fileno(), 0, 3000)]) as parent:
            os.fsync(file.fileno())
            done = self.go(parent)
            assert left(parent) == 0
            assert done.pages >= len(advised.of(file.fileno()))

    def test_large_folios_go_whole(self, advised: Advised) -> None:
        with tempfile.NamedTemporaryFile() as file, leaked(PARENT / fresh(), []) as parent:
            group = parent / "z"
            group.mkdir()
            large = b"x" * MIB
            with zombies.within(group):
                for i in range(8):
                    os.pwrite(file.fileno(), large, i * MIB)
            group.rmdir()
            settle()
            os.fsync(file.fileno())
            done = self.go(parent)
            assert left(parent) == 0
            assert done.pages >= len(advised.of(file.fileno()))

    def test_a_file_that_is_deleted_but_open_is_reached_too(self) -> None:
        with tempfile.TemporaryFile() as file, leaked(PARENT / fresh(), [(file.fileno(), 0, 1)] * 1) as parent:
            os.fsync(file.fileno())
            self.go(parent)
            assert left(parent) == 0
            assert os.pread(file.fileno(), PAGE, 0) == b"x" * PAGE

    def test_nothing_of_a_live_sibling_is_asked_for(self, advised: Advised) -> None:
        with beside(64, "live") as made:
            made.held.release()
            self.go(made.agent)
            assert left(made.agent) == 0
        assert made.sibling_inode not in advised.pages
        assert advised.pages.get(made.inode, set()) <= {*range(300)}

    def test_what_a_running_program_has_mapped_stays_and_is_told(self) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            zombies.Held() as held,
            leaked(PARENT / fresh(), [(file.fileno(), 0, 1)], held) as parent,
        ):
            os.fsync(file.fileno())
            with mmap.mmap(file.fileno(), PAGE) as mapped:
                assert mapped[0] == ord("x")
                with Pinning() as pinning:
                    seen = walk()
                    sorted_ = sort_by_use(Root(), pinning, seen, below(seen, parent))
                    assert len(sorted_.cold) + len(sorted_.in_use) == 0
                assert self.go(parent).failed.get(MAPPED, 0) >= 1
                assert left(parent, expected=1) == 1

    def test_pages_of_a_block_device_itself_such_as_metadata_go_too(self) -> None:
        with (
            tempfile.NamedTemporaryFile() as file,
            loop_device(file) as fd,
            zombies.Held() as held,
            leaked(PARENT / fresh(), []) as parent,
        ):
            group = parent / "z"
            group.mkdir()
            with zombies.within(group):
                assert os.pread(fd, 2 * PAGE, 0) == bytes(2 * PAGE)
            held.page(fd, 0)
            group.rmdir()
            settle()
            with Pinning() as pinning:
                seen = walk()
                pins = pinning.read(seen, below(seen, parent).tolist())
            device = os.fstat(fd).st_rdev
            of_device = pins[pins["dev"] == (os.major(device) << 20 | os.minor(device))]
            assert set(of_device["magic"].tolist()) == {BDEVFS_MAGIC}
            held.release()
            self.go(parent, in_use=True)
            assert left(parent) == 0

    def test_tmpfs_is_not_touched_but_named(self) -> None:
        with (
            tempfile.NamedTemporaryFile(dir="/dev/shm") as file,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(40)]) as parent,
        ):
            self.go(parent)
            with Pinning() as pinning:
                seen = walk()
                rows = below(seen, parent)
                assert len(rows) == 40
                (named,) = tmpfs_files(Root(), pinning.read(seen, rows.tolist(), file=False))
        assert (named.path, named.deleted, named.zombies) == (file.name, False, 40)
        assert named.size_bytes == 40 * PAGE

    @pytest.mark.parametrize("how", ["deleted", "memfd"])
    def test_shared_memory_without_a_name_is_told_by_who_has_it_open(self, how: str) -> None:
        if how == "memfd":
            fd = os.memfd_create("exhume-test")
        else:
            fd, path = tempfile.mkstemp(dir="/dev/shm")
            os.unlink(path)
        try:
            with leaked(PARENT / fresh(), [(fd, 0, 1)]) as parent, Pinning() as pinning:
                seen = walk()
                (named,) = tmpfs_files(Root(), pinning.read(seen, below(seen, parent).tolist(), file=False))
        finally:
            os.close(fd)
        assert named.deleted
        assert named.path == ("/memfd:exhume-test" if how == "memfd" else path)
        assert named.holder.endswith(f"[{os.getpid()}]")


class TestPurge:
    pytestmark = real

    def test_zombies_directly_below_the_root_go(self) -> None:
        parent = MEMORY / f"exhume-test-root-{os.getpid()}"
        with tempfile.TemporaryDirectory() as directory, zombies.Held() as held:
            fd = os.open(f"{directory}/pins", os.O_CREAT | os.O_RDWR)
            parent.mkdir()
            with zombies.within(parent):
                os.pwrite(fd, FULL, 0)
            held.page(fd, 0)
            parent.rmdir()
            settle()
            os.fsync(fd)
            os.close(fd)
            self.planned_and_purged(parent, "/", 1, held)

    def test_a_protected_unit_below_the_same_parent_does_not_stand_in_the_way(self) -> None:
        with beside(0, "kubelet.service") as made:
            self.planned_and_purged(made.agent, str(made.agent).removeprefix(str(MEMORY)), 300, made.held)
            assert Path(made.path).read_bytes() == b"x" * (300 * PAGE)

    def planned_and_purged(self, parent: Path, home: str, count: int, held: zombies.Held) -> None:
        """All of them are in the plan while they are held. The kernel may evict some before the purge does."""
        under = str(parent).removeprefix(str(MEMORY))
        code, plan, said = exhume("--under", under, "--dry-run")
        assert code == 0, said
        assert [(part["path"], part["way"], part["zombies"]) for part in plan["parts"]] == [(home, "evict", count)]
        held.release()
        with no_core_held():
            code, document, said = exhume("--under", under, "--yes")
        assert (code, document.get("left")) == (0, []), (document, said)
        for outcome in document["outcomes"]:
            assert (outcome["path"], outcome["way"], outcome["steps"]) == (home, "evict", 0)
            assert outcome["gone"] == outcome["zombies"] <= count
        assert not [path for path in zombie_paths() if path == under or path.startswith(f"{under}/")]

    def test_the_plan_names_the_file_on_tmpfs(self) -> None:
        with (
            tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file,
            leaked(PARENT / fresh(), [(file.fileno(), i, 1) for i in range(25)]) as parent,
        ):
            code, plan, _ = exhume("--under", "/" + str(parent.relative_to(MEMORY)), "--dry-run")
            assert len(below(walk(), parent)) == 25
        assert code == 0
        (named,) = plan["tmpfs_files"]
        assert (named["path"], named["zombies"], named["deleted"]) == (file.name, 25, False)


class TestPlanning:
    pages = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 600)), max_size=60)

    @given(pages)
    def test_ranges_cover_the_pages_and_nothing_else(self, pages: list[tuple[int, int]]) -> None:
        pins = np.zeros(len(pages), PINS)
        for at, (index, length) in enumerate(sorted(pages)):
            pins[at]["index"], pins[at]["pages"] = index, length
        covered = {page for offset, length in ranges(pins) for page in range(offset // PAGE, (offset + length) // PAGE)}
        assert covered == {page for index, length in pages for page in range(index, index + length)}
        assert all(length <= 1024 * PAGE for _, length in ranges(pins))

    @given(arrays.arrays(PINS, st.integers(0, 30)))
    def test_every_page_of_a_sane_place_is_in_exactly_one_file(self, pins: Pins) -> None:
        found = list(by_file(pins))
        assert sum(len(some) for _, some in found) == (pins["index"] < evict_module._LARGEST_INDEX).sum()
        assert len({key for key, _ in found}) == len(found)
        for _, some in found:
            assert (np.diff(some["index"].astype(object)) >= 0).all() if len(some) > 1 else True
            for offset, length in ranges(some):
                assert 0 <= offset < 1 << 63
                assert 0 <= length < 1 << 63

    def test_what_cannot_go_is_said(self) -> None:
        pins = np.concatenate(
            [
                pin(magic=1, mapped=True),
                pin(magic=1),
                pin(magic=TMPFS_MAGIC),
                pin(magic=BDEVFS_MAGIC, dirty=True),
                pin(magic=1, dirty=True),
                pin(magic=1, dev=7),
            ]
        )

        def why_not(magic: int, dev: int) -> str:
            return TMPFS if magic == TMPFS_MAGIC else "on btrfs" if dev == 7 else ""

        assert obstacles(pins, why_not) == [MAPPED, "", TMPFS, WRITING, "", "on btrfs"]

    def test_what_is_in_use(self) -> None:
        pins = np.concatenate(
            [
                pin(row=1),
                pin(row=2, referenced=True, ino=5),
                pin(row=3, referenced=True, ino=6),
                pin(row=4, hot=True, ino=6),
                pin(row=5, hot=True, ino=5),
                pin(row=6, referenced=True, ino=6, file_mapped=True),
                pin(row=7, ino=5),
            ]
        )
        open_now = Readers({(0, 0, 5): ("server[7]",)})
        assert used(pins, open_now).tolist() == [False, True, False, True, True, True, False]
        assert used(pins, open_now, small=[4, 5]).tolist() == [False, True, False, False, True, True, False]
        assert used(pins, Readers({}, complete=False)).tolist() == [False, True, True, True, True, True, False]

    @given(arrays.arrays(PINS, st.integers(0, 20)))
    def test_made_up_pages_do_no_harm(self, pins: Pins) -> None:
        """Numbers of this very machine's file system among them, with inodes and generations that it never gave."""
        device = os.stat("/").st_dev
        pins["dev"][::2] = os.major(device) << 20 | os.minor(device)
        pins["magic"][::2] = 0xEF53
        pins["pages"] %= 600

        class MadeUp:
            def __init__(self) -> None:
                self.answers = [pins, pins[:0]]

            def read(self, *_: object, **__: object) -> Pins:
                return self.answers.pop(0)

        with Files(Root()) as files:
            request = Request(np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(1, np.int64), 1 << 40)
            work = evict_module._Eviction(Root(), files, MadeUp(), None, request)  # type: ignore[arg-type]
            work.groups(request.rows, lambda: None)
        assert work.pages <= int(pins["pages"].sum())
