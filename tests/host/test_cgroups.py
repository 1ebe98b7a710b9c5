"""Hierarchies as they are mounted, and a bounded walk of them."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.cgroups import Hierarchy, layout, parse_mountinfo, walk
from exhume.host.root import Root
from tests.trees import Tree, cgroup_stat


def root(tree: Tree) -> Root:
    return Root(str(tree.path))


def test_v1_has_each_controller_in_its_own_hierarchy(tmp_path: Path) -> None:
    found = layout(root(Tree(tmp_path).v1(["a"], 5)))
    assert found.version == "v1"
    memory, cpu = found.of("memory"), found.of("cpu")
    assert memory is not None
    assert cpu is not None
    assert (memory.path, memory.version, memory.whole) == ("/sys/fs/cgroup/memory", 1, True)
    assert cpu.path == "/sys/fs/cgroup/cpu,cpuacct"


def test_v2_has_all_in_one(tmp_path: Path) -> None:
    found = layout(root(Tree(tmp_path).v2({"/": cgroup_stat(1, 0), "/a": ""})))
    assert found.version == "v2"
    assert found.of("memory") == found.of("cpu") == found.unified
    assert found.unified is not None
    assert found.unified.whole


def test_hybrid_has_memory_on_v1_and_an_empty_v2_beside_it(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1(["a"], 5)
    tree.mounts(
        "/ /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "/ /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw",
    )
    tree.write("sys/fs/cgroup/unified/cgroup.controllers", "\n")
    tree.write("sys/fs/cgroup/unified/cgroup.procs", "1\n")
    found = layout(root(tree))
    assert found.version == "hybrid"
    memory = found.of("memory")
    assert memory is not None
    assert memory.version == 1


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_namespace_is_not_taken_for_the_node(tmp_path: Path, version: int) -> None:
    tree = Tree(tmp_path)
    tree = tree.v1(["a"], 5000, whole=False) if version == 1 else tree.v2({"/": cgroup_stat(0, 0)}, whole=False)
    memory = layout(root(tree)).of("memory")
    assert memory is not None
    assert not memory.whole


def test_hidden_mounts_are_found_at_the_usual_places(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    tree.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n")
    tree.write("sys/fs/cgroup/memory/release_agent", "")
    assert layout(root(tree)).version == "v1"
    assert layout(Root(str(tmp_path / "nowhere"))).version == "none"


def test_a_mount_point_with_a_space_is_unescaped() -> None:
    (mount,) = parse_mountinfo(b"31 23 0:28 / /mnt/my\\040cgroup rw - cgroup2 cgroup2 rw\n")
    assert mount[2] == "/mnt/my cgroup"


@given(st.binary(max_size=400))
def test_mountinfo_may_be_garbage(raw: bytes) -> None:
    for kind, inner, point, options in parse_mountinfo(raw + b" - cgroup x x"):
        assert kind in ("cgroup", "cgroup2")
        assert isinstance(inner + point, str)
        assert options


def hierarchy(path: str) -> Hierarchy:
    return Hierarchy(1, path, "/", frozenset({"memory"}), True)


def test_a_walk_finds_every_directory_once(tmp_path: Path) -> None:
    made = {"/", "/a", "/a/b", "/a/b/c", "/d"} | {f"/d/{i}" for i in range(50)}
    for path in made:
        (tmp_path / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
        (tmp_path / path.lstrip("/") / "cgroup.procs").write_text("")
    found = walk(Root(str(tmp_path)), hierarchy("/"))
    assert set(found.paths) == made
    assert len(found.paths) == len(made) == found.directories
    assert found.complete
    assert found.children == {"/": 2, "/a": 1, "/a/b": 1, "/d": 50}
    assert set(found.leaves["/d"]) == {f"/d/{i}" for i in range(50)}


def test_too_many_directories_are_counted_by_their_links_and_said_to_be_incomplete(tmp_path: Path) -> None:
    for i in range(300):
        (tmp_path / "crowd" / f"d{i}").mkdir(parents=True)
    found = walk(Root(str(tmp_path)), hierarchy("/"), most=50)
    assert not found.complete
    assert len(found.paths) <= 51
    # The parent's link count tells how many there are without listing them, where the file system counts links.
    links = (tmp_path / "crowd").stat().st_nlink
    assert found.directories == (302 if links == 302 else len(found.paths))


@pytest.mark.parametrize(("number", "complete"), [(errno.ENOENT, True), (errno.ENODEV, True), (errno.EMFILE, False)])
def test_a_directory_that_cannot_be_listed_leaves_the_walk_incomplete_unless_it_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, complete: bool
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    scandir = os.scandir

    def failing(path: str) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("/a"):
            raise OSError(number, os.strerror(number))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    assert walk(Root(str(tmp_path)), hierarchy("/")).complete is complete


def test_what_is_mounted_over_a_directory_is_not_a_cgroup() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount")
    code = (
        "import os, subprocess, sys, tempfile\nfrom exhume.host.cgroups import Hierarchy, walk\n"
        "from exhume.host.root import Root\ntop = tempfile.mkdtemp()\nos.makedirs(top + '/real/below')\n"
        "os.makedirs(top + '/covered')\nsubprocess.run(['mount', '-t', 'tmpfs', 'none', top + '/covered'], check=True)\n"
        "os.makedirs(top + '/covered/strange')\n"
        "print(*walk(Root(top), Hierarchy(1, '/', '/', frozenset(), True)).paths)\n"
        "subprocess.run(['umount', top + '/covered'], check=True)\nimport shutil\nshutil.rmtree(top)"
    )
    done = subprocess.run(["unshare", "--mount", sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"no mount here: {done.stderr.strip()[-200:]}")
    assert done.stdout.split() == ["/", "/real", "/real/below"]


def test_directories_that_come_and_go_do_not_disturb_a_walk(tmp_path: Path) -> None:
    import threading

    stop = threading.Event()

    def churn() -> None:
        i = 0
        while not stop.is_set():
            path = tmp_path / "churn" / f"x{i % 7}" / "y"
            path.mkdir(parents=True, exist_ok=True)
            path.rmdir()
            path.parent.rmdir()
            i += 1

    (tmp_path / "still" / "here").mkdir(parents=True)
    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(100):
            found = walk(Root(str(tmp_path)), hierarchy("/"))
            assert len(found.paths) == len(set(found.paths))
            assert "/still/here" in found.paths
    finally:
        stop.set()
        thread.join()
