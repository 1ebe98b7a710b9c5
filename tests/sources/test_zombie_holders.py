"""What holds zombies: by what is charged to them, and on the real kernel by processes that were not reaped and by swap."""

import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.kernel.bpf import BpfError, Features
from exhume.recording.recording import Node, Recording
from exhume.sources import zombie_holders
from exhume.sources.memcg_walk import MemcgWalk, walk
from exhume.sources.zombie_holders import Holder, Holders, UnreapedProcess, holders
from exhume.sources.zombies import Zombies
from tests import zombies as made
from tests.kernel.bpf.needs import each_fallback, needs_bpf
from tests.sources.test_memcg_walk import below, needs_zombies, our_directory
from tests.trees import Tree

real = [needs_bpf, needs_zombies]


def walked(*rows: dict[str, object], hierarchy: int = 1, kernel_pins: bool = False) -> MemcgWalk:
    """A walk of zombies below the root; a row may name its `parent`, and whether it is `live`."""
    everything: list[dict[str, object]] = [{"live": True, "parent": -1}, *rows]

    def column(name: str, kind: type = np.int64) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        return np.array([row.get(name, 0) for row in everything], kind)

    file, anon, locked, kernel = (column(name) for name in ("file", "anon", "unevictable", "kernel"))
    serial = np.arange(1, len(everything) + 1, dtype=np.uint64)
    return MemcgWalk(
        id=serial,
        serial=serial,
        parent=column("parent"),
        dying=~column("live", bool).astype(bool),
        usage_bytes=file + anon + locked + kernel + column("flight"),
        file_bytes=file,
        anon_bytes=anon,
        unevictable_bytes=locked,
        kernel_bytes=kernel,
        swap_bytes=column("swap"),
        names=[str(row.get("name", f"g{i}")).encode() for i, row in enumerate(everything)],
        hierarchy=2 if hierarchy == 2 else 1,
        kinds=True,
        kernel_pins=kernel_pins,
        counted=len(everything),
        moved=False,
        complete=True,
        calls=1,
        longest_call_ns=1,
    )


def kinds(found: Holders) -> list[Holder]:
    return [Holder(int(kind)) for kind in found.kind]


@pytest.fixture
def nowhere(tmp_path: Path) -> Root:
    """A node that is not this one, with a /proc that has only its own first process."""
    process(Tree(tmp_path).facts(), 1, 0, "systemd")
    return Root(str(tmp_path))


def process(tree: Tree, pid: int, ppid: int, comm: str, state: str = "S", cgroup: str = "0::/") -> None:
    tree.write(f"proc/{pid}/stat", f"{pid} ({comm}) {state} {ppid} {' '.join(['0'] * 17)} 100 {' '.join(['0'] * 30)}\n")
    tree.write(f"proc/{pid}/cgroup", f"{cgroup}\n")


class TestByWhatIsCharged:
    @pytest.mark.parametrize(
        ("row", "holder"),
        [
            ({"file": 4096}, Holder.PAGE_CACHE),
            ({"flight": 4096}, Holder.PAGE_CACHE),
            ({"anon": 4096}, Holder.SHARED_MEMORY),
            ({"unevictable": 4096}, Holder.SHARED_MEMORY),
            ({"swap": 4096}, Holder.SWAP),
            ({"file": 4096, "swap": 4096}, Holder.SWAP),
            ({"file": 4096, "anon": 4096, "swap": 4096}, Holder.SHARED_MEMORY),
            ({"kernel": 8192}, Holder.UNKNOWN),
            ({"kernel": 8192, "swap": 4096}, Holder.SWAP),
            ({}, Holder.UNKNOWN),
        ],
    )
    def test_a_zombie_has_one_holder_the_one_that_stays_longest(
        self, row: dict[str, object], holder: Holder, nowhere: Root
    ) -> None:
        assert kinds(holders(walked(row), nowhere)) == [holder]

    def test_kernel_objects_hold_only_where_the_kernel_says_so(self, nowhere: Root) -> None:
        rows: tuple[dict[str, object], ...] = ({"kernel": 8192}, {"kernel": 8192, "file": 4096}, {"kernel": 8192, "swap": 4096})
        found = holders(walked(*rows, kernel_pins=True), nowhere)
        assert kinds(found) == [Holder.KERNEL_OBJECTS, Holder.PAGE_CACHE, Holder.SWAP]

    def test_nothing_charged_is_a_socket_or_an_inode_on_v2_only(self, nowhere: Root) -> None:
        """With charges of kernel memory that are long free, as they stay behind from 5.11 on."""
        assert kinds(holders(walked({"kernel": 4096}, hierarchy=2), nowhere)) == [Holder.SOCKET_OR_INODE]
        assert kinds(holders(walked({"kernel": 4096}, hierarchy=1), nowhere)) == [Holder.UNKNOWN]

    def test_a_group_that_waits_for_those_below_it_is_told_by_what_holds_them(self, nowhere: Root) -> None:
        seen = walked(
            {"name": "slice", "live": True},
            {"name": "pod", "parent": 1},
            {"name": "container", "parent": 2},
            {"name": "inner", "parent": 3, "file": 4096},
            {"name": "swapped", "parent": 2, "swap": 4096},
            {"name": "cached", "parent": 1, "file": 4096},
            {"name": "below", "parent": 6},
        )
        found = holders(seen, nowhere)
        assert found.rows.tolist() == [2, 3, 4, 5, 6, 7]
        assert kinds(found) == [
            Holder.CHILDREN, Holder.CHILDREN, Holder.PAGE_CACHE, Holder.SWAP, Holder.PAGE_CACHE, Holder.UNKNOWN,
        ]  # fmt: skip
        assert [Holder(int(kind)) for kind in found.behind] == [
            Holder.SWAP, Holder.PAGE_CACHE, Holder.PAGE_CACHE, Holder.SWAP, Holder.PAGE_CACHE, Holder.UNKNOWN,
        ]  # fmt: skip

    def test_some_rows_are_told_as_all_are_and_live_ones_not_at_all(self, nowhere: Root) -> None:
        seen = walked({"live": True}, {"parent": 1, "file": 4096}, {"parent": 1, "swap": 4096}, {"parent": 3, "file": 4096})
        found = holders(seen, nowhere, [1, 3])
        assert (found.rows.tolist(), kinds(found)) == ([3], [Holder.SWAP])
        assert found.of(Holder.SWAP).tolist() == [3]
        assert not len(holders(seen, nowhere, []).rows)
        assert not len(holders(walked(), nowhere).rows)

    def test_every_holder_says_what_frees_it_with_commands_to_copy(self) -> None:
        for holder in Holder:
            assert holder.label
            assert holder.frees
            assert all("\n" not in command and command.strip() == command for command in holder.commands)
        assert "swapoff" in Holder.SWAP.frees
        assert "reboot" not in Holder.SWAP.frees
        assert "drop_caches" not in " ".join(Holder.UNREAPED_PROCESS.commands)


class TestWithoutAskingTheKernel:
    """By /proc of the node: BPF has no iterator before 5.8, and another machine's kernel cannot be asked."""

    def test_on_v2_the_path_of_an_ended_process_names_its_group(self, tmp_path: Path) -> None:
        tree = Tree(tmp_path).facts()
        process(tree, 1, 0, "systemd")
        process(tree, 70, 1, "shim", cgroup="0::/system.slice/shim.service")
        for pid, path in ((71, "/a/job (deleted)"), (72, "/a/job (deleted)"), (73, "/a/live"), (74, "/a/gone (deleted)")):
            process(tree, pid, 70, "job", "Z", f"0::{path}")
        process(tree, 75, 1, "job", "Z", "0::/a/job (deleted)")
        seen = walked(
            {"name": "a", "live": True},
            {"name": "job", "parent": 1, "file": 4096},
            {"name": "job", "parent": 1},
            {"name": "job", "parent": 1},
            {"name": "other", "parent": 1},
            hierarchy=2,
        )
        found = holders(seen, Root(str(tmp_path)))
        assert kinds(found) == [
            Holder.PAGE_CACHE, Holder.UNREAPED_PROCESS, Holder.UNREAPED_PROCESS, Holder.SOCKET_OR_INODE,
        ]  # fmt: skip
        assert not found.exact
        assert "/proc/PID/cgroup" in found.note
        ((parent, count),) = found.parents([3, 4])
        assert (parent.parent_pid, parent.parent_comm, parent.parent_unit, count) == (70, "shim", "shim.service", 3)

    @pytest.mark.parametrize(("dead", "holder"), [(3, Holder.UNREAPED_PROCESS), (2, Holder.UNKNOWN), (0, Holder.UNKNOWN)])
    def test_on_v1_as_many_processes_as_empty_zombies_may_hold_them(self, tmp_path: Path, dead: int, holder: Holder) -> None:
        tree = Tree(tmp_path).facts()
        process(tree, 1, 0, "systemd")
        process(tree, 70, 1, "shim", cgroup="4:memory:/\n1:name=systemd:/system.slice/shim.service")
        for pid in range(dead):
            process(tree, 80 + pid, 70, "job", "Z", "4:memory:/")
        found = holders(walked({}, {}, {}, {"file": 4096}, {"swap": 4096}), Root(str(tmp_path)))
        assert kinds(found) == [holder, holder, holder, Holder.PAGE_CACHE, Holder.SWAP]
        assert not found.exact
        assert [(one.parent_unit, count) for one, count in found.parents([1])] == ([("shim.service", dead)] if dead else [])

    def test_kernel_objects_of_an_old_kernel_may_be_those_of_an_ended_process(self, tmp_path: Path) -> None:
        tree = Tree(tmp_path).facts()
        for pid in (80, 81):
            process(tree, pid, 70, "job", "Z", "4:memory:/")
        found = holders(walked({"kernel": 8192}, {"kernel": 8192}, kernel_pins=True), Root(str(tmp_path)))
        assert kinds(found) == [Holder.UNREAPED_PROCESS] * 2
        assert not found.exact

    def test_a_node_without_proc_is_judged_by_what_is_charged(self, tmp_path: Path) -> None:
        found = holders(walked({}, {"swap": 1}), Root(str(tmp_path)))
        assert kinds(found) == [Holder.UNKNOWN, Holder.SWAP]
        assert "/proc could not be read" in found.note

    def test_a_kernel_without_the_iterator_is_told_with_its_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none(*_: object, **__: object) -> object:
            raise BpfError("this kernel has no BPF iterator over tasks (5.8)")

        monkeypatch.setattr(zombie_holders, "_ask", none)
        found = holders(walked({"swap": 1}), Root())
        assert (kinds(found), found.exact) == ([Holder.SWAP], False)
        assert "iterator over tasks (5.8)" in found.note

    def test_in_a_pid_namespace_of_its_own_the_kernel_is_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "readlink", lambda _: "pid:[4026532177]")
        found = holders(dataclasses.replace(walked({}), css=np.ones(2, np.uint64)), Root())
        assert not found.exact
        assert "hostPID: true" in found.note


_PARENT = """
import os, sys
for directory in sys.argv[1:]:
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        os._exit(0)
    with open(directory + "/cgroup.procs", "w") as file:
        file.write(str(child))
    os.write(go, b"x")
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    os.close(ready), os.close(go)
print("ended", flush=True)
sys.stdin.readline()
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
print("reaped", flush=True)
sys.stdin.readline()
"""


@contextmanager
def unreaped(*directories: Path) -> Iterator[tuple[int, Callable[[], None]]]:
    """A process with a dead child in each directory: its PID, and what makes it reap them."""
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, *map(str, directories)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    told, heard = parent.stdin, parent.stdout

    def reap() -> None:
        told.write(b"\n")
        told.flush()
        assert heard.readline() == b"reaped\n"

    try:
        assert heard.readline() == b"ended\n"
        yield parent.pid, reap
    finally:
        parent.communicate(b"\n\n")


def held(path: Path, features: Features | None = None) -> tuple[dict[str, Holder], tuple[UnreapedProcess, ...]]:
    """What holds the zombies below a directory, by name; and the processes that hold any of them."""
    seen = walk()
    rows = below(seen, path)
    found = holders(seen, Root(), rows.values(), features or Features())
    assert found.exact, found.note
    names = {row: name.rsplit("/", 1)[-1] for name, row in rows.items()}
    kind = {names[row]: Holder(int(one)) for row, one in zip(found.rows.tolist(), found.kind, strict=True)}
    return kind, tuple(one for one in found.processes if one.row in names)


_FIRST_THREAD_ENDS = """
import ctypes, sys, threading
threading.Thread(target=threading.Event().wait).start()
with open(sys.argv[1] + "/tasks", "w") as file:
    file.write("0")
ctypes.CDLL(None).pthread_exit(None)
"""


def wait_until_gone(path: Path) -> None:
    """A worker of the kernel frees groups a moment after their last holder is gone."""
    wait_for(lambda: not held(path)[0])


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class TestOnThisKernel:
    pytestmark = real

    @each_fallback
    def test_every_zombie_of_an_unreaped_process_is_told_with_the_parent(self, features: Features) -> None:
        with our_directory("unreaped") as path:
            groups = [path / f"d{i}" for i in range(20)]
            for group in groups:
                group.mkdir()
            with unreaped(*groups) as (pid, reap):
                for group in groups:
                    group.rmdir()
                kind, processes = held(path, features)
                assert kind == {group.name: Holder.UNREAPED_PROCESS for group in groups}
                assert {(one.parent_pid, one.parent_comm) for one in processes} == {(pid, Path(sys.executable).name[:15])}
                assert len({one.row for one in processes}) == len({one.pid for one in processes}) == 20
                reap()
                wait_until_gone(path)

    def test_the_recording_has_how_many_are_held_so_and_by_whose_children(self) -> None:
        """Groups that only wait for those inside them included."""
        with our_directory("recorded") as path:
            groups = [path / f"job{i}" / "inner" for i in range(20)]
            for group in groups:
                group.mkdir(parents=True)
            with unreaped(*groups) as (pid, _):
                for group in groups:
                    group.rmdir()
                    group.parent.rmdir()
                recording = Recording(Node("", "", "", "v1", 2))
                Zombies(Root(), CgroupTree(Root())).read(recording, 1)
            rows = [row for row in recording["memcg_walk"].rows() if path.name in row["path"]]
            assert sum(row["zombies"] for row in rows) == sum(row["unreaped"] for row in rows) == 40
            assert {(row["parent_pid"], row["swap"]) for row in rows} == {(pid, 0)}
            counted = recording.counter("memcg_walk_unreaped")
            assert counted is not None
            assert counted.last >= 40
            wait_until_gone(path)

    def test_neither_a_file_nor_a_directory_nor_a_live_group_of_an_ended_process_makes_a_holder(self) -> None:
        with our_directory("open") as path:
            for name in ("file", "procs", "directory", "stays"):
                (path / name).mkdir()
            files = [
                os.open(path / "file/memory.usage_in_bytes", os.O_RDONLY),
                os.open(path / "procs/cgroup.procs", os.O_RDONLY),
                os.open(path / "directory", os.O_RDONLY | os.O_DIRECTORY),
            ]
            with unreaped(path / "stays"):
                try:
                    for name in ("file", "procs", "directory"):
                        (path / name).rmdir()
                    wait_until_gone(path)
                finally:
                    for file in files:
                        os.close(file)

    def test_a_zombie_of_an_unreaped_process_that_also_has_pages_is_held_by_the_process(self) -> None:
        """Freeing the pages would not free the group."""
        with our_directory("both") as path, tempfile.TemporaryFile(dir="/dev/shm") as file:
            both = path / "outer" / "both"
            both.mkdir(parents=True)
            with unreaped(both) as (_, reap):
                with made.within(both):
                    os.write(file.fileno(), bytes(1 << 20))
                both.rmdir()
                both.parent.rmdir()
                kind, _ = held(path)
                assert kind == {"outer": Holder.CHILDREN, "both": Holder.UNREAPED_PROCESS}
                reap()
                kind, processes = held(path)
                assert kind == {"outer": Holder.CHILDREN, "both": Holder.SHARED_MEMORY}
                assert not processes

    def test_of_a_process_whose_first_thread_has_ended_the_process_itself_is_named(self) -> None:
        with our_directory("leader") as path:
            (path / "first").mkdir()
            running = subprocess.Popen([sys.executable, "-c", _FIRST_THREAD_ENDS, path / "first"])
            try:
                wait_for(lambda: Path(f"/proc/{running.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z")
                (path / "first").rmdir()
                kind, (one,) = held(path)
                assert kind == {"first": Holder.UNREAPED_PROCESS}
                assert one.pid == one.parent_pid == running.pid
            finally:
                running.kill()
                running.wait()
            wait_until_gone(path)

    def test_a_zombie_whose_pages_are_in_swap_is_held_by_swap_until_the_file_is_deleted(self, tmp_path: Path) -> None:
        pages = os.urandom(2 << 20)
        with swap_file(tmp_path / "swap"), our_directory("swap") as path, ExitStack() as files:
            for i in range(5):
                group = path / f"s{i}"
                group.mkdir()
                file = files.enter_context(tempfile.TemporaryFile(dir="/dev/shm"))
                with made.within(group):
                    os.write(file.fileno(), pages)
                wait_for(partial(swapped_out, group))
                group.rmdir()
            kind, _ = held(path)
            assert kind == {f"s{i}": Holder.SWAP for i in range(5)}
            files.close()
            wait_until_gone(path)


def swapped_out(group: Path) -> bool:
    (group / "memory.force_empty").write_text("0")
    stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
    return not any(int(stat[name]) for name in ("inactive_anon", "active_anon", "unevictable", "shmem"))


@contextmanager
def swap_file(file: Path) -> Iterator[None]:
    if not (made.MEMORY / "memory.memsw.usage_in_bytes").exists():
        pytest.skip("swap is not counted by memory cgroup on this kernel")
    with file.open("wb") as empty:
        os.fchmod(empty.fileno(), 0o600)
        os.posix_fallocate(empty.fileno(), 0, 64 << 20)
    subprocess.run(["mkswap", file], check=True, capture_output=True)
    if subprocess.run(["swapon", file], capture_output=True).returncode:
        pytest.skip("this file system takes no swap file")
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)
        file.unlink()
