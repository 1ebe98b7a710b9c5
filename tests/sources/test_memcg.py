"""Live and dying memory cgroups, by every way of counting, and never across namespaces."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import sentences
from exhume.sources.memcg import AT_LATEST, Memcg, parse_proc_cgroups
from tests.trees import Tree, cgroup_stat


def read(tree: Tree) -> tuple[list[dict[str, Any]], str]:
    root = Root(str(tree.path))
    recording = Recording(Node("", "", "", "", 1))
    note = sentences(Memcg(root, CgroupTree(root)).read(recording, 1))
    return list(recording["memcg"].rows()), note


def test_v1_zombies_are_what_the_kernel_counts_less_the_directories(tmp_path: Path) -> None:
    (row,), note = read(Tree(tmp_path).v1(["a", "a/b", "c"], total=104))
    assert (row["live"], row["dying"], row["total"]) == (4, 100, 104)
    assert (row["method"], row["scope"], row["complete"]) == ("proc-cgroups", "node", 1)
    assert "/proc/cgroups" in note


def test_v2_counts_by_cgroup_stat_and_points_at_the_parent(tmp_path: Path) -> None:
    rows, note = read(
        Tree(tmp_path).v2(
            {
                "/": cgroup_stat(3, 70),
                "/system.slice": cgroup_stat(1, 69),
                "/system.slice/ecs.service": cgroup_stat(0, 68),
                "/quiet": cgroup_stat(0, 0),
            }
        )
    )
    by_path = {row["path"]: row for row in rows}
    assert (by_path["/"]["live"], by_path["/"]["dying"], by_path["/"]["method"]) == (4, 70, "cgroup-stat")
    assert by_path["/system.slice"]["dying"] == 69
    assert by_path["/system.slice/ecs.service"]["dying"] == 68
    assert "/quiet" not in by_path
    assert "every controller" in note


def test_v2_prefers_the_memory_controllers_own_count(tmp_path: Path) -> None:
    (row,), _ = read(
        Tree(tmp_path).v2({"/": cgroup_stat(9, 5, memory=True).replace("nr_dying_descendants 5", "nr_dying_descendants 8")})
    )
    assert (row["live"], row["dying"], row["method"]) == (10, 5, "cgroup-stat-memory")


def test_v2_without_cgroup_stat_is_counted_by_subtraction(tmp_path: Path) -> None:
    (row,), _ = read(Tree(tmp_path).v2({"/": "", "/a": ""}, row=True, total=12))
    assert (row["live"], row["dying"], row["method"]) == (2, 10, "proc-cgroups")


def test_inside_a_v1_cgroup_namespace_nothing_is_subtracted(tmp_path: Path) -> None:
    (row,), note = read(Tree(tmp_path).v1(["mine"], total=68_680, whole=False))
    assert (row["dying"], row["total"], row["scope"]) == (-1, 68_680, "container")
    assert "only this container" in note


def test_inside_a_v2_cgroup_namespace_only_its_own_zombies_are_counted(tmp_path: Path) -> None:
    (row,), note = read(Tree(tmp_path).v2({"/": cgroup_stat(0, 3)}, whole=False, row=True, total=9000))
    assert (row["dying"], row["total"], row["scope"]) == (3, 9000, "container")
    assert "only this container" in note


def test_without_a_memory_row_a_v1_count_is_not_made_up(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1(["a"], total=5)
    tree.proc_cgroups(0, row=False)
    with pytest.raises(Unreadable, match="no row for memory"):
        read(tree)


def test_without_the_controller_it_is_off(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="memory controller"):
        read(Tree(tmp_path))


def test_a_group_that_vanishes_between_the_counts_makes_no_negative_zombies(tmp_path: Path) -> None:
    (row,), _ = read(Tree(tmp_path).v1(["a", "b", "c"], total=2))
    assert row["dying"] == 0


@given(st.binary(max_size=300))
def test_proc_cgroups_may_be_garbage(raw: bytes) -> None:
    assert all(value >= 0 for value in parse_proc_cgroups(raw).values())


def test_a_disabled_controller_has_no_count() -> None:
    assert parse_proc_cgroups(b"#subsys_name hierarchy num_cgroups enabled\nmemory 0 1 0\ncpu 1 4 1\n") == {"cpu": 4}


def test_a_lazy_reader_looks_at_the_directories_when_the_count_changed_and_now_and_then(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v1(["a", "b"], total=13)
    root = Root(str(tree.path))
    reader = Memcg(root, CgroupTree(root), lazy=True)

    def dying() -> int:
        recording = Recording(Node("", "", "", "", 1))
        reader.read(recording, 1)
        (row,) = recording["memcg"].rows()
        return int(row["dying"])

    assert dying() == 10
    tree.v1(["a", "b"], total=14)
    assert dying() == 11
    shutil.rmtree(tmp_path / "sys/fs/cgroup/memory/b")
    assert [dying() for _ in range(AT_LATEST)] == [11] * (AT_LATEST - 1) + [12]


def test_v2_follows_the_dying_down_again_when_their_number_changed(tmp_path: Path) -> None:
    tree = Tree(tmp_path).v2({"/": cgroup_stat(2, 5), "/a": cgroup_stat(0, 5), "/b": cgroup_stat(0, 0)})
    root = Root(str(tree.path))
    reader = Memcg(root, CgroupTree(root), lazy=True)

    def by_path() -> dict[str, int]:
        recording = Recording(Node("", "", "", "", 1))
        reader.read(recording, 1)
        return {row["path"]: row["dying"] for row in recording["memcg"].rows()}

    assert by_path() == {"/": 5, "/a": 5}
    tree.v2({"/": cgroup_stat(2, 7), "/a": cgroup_stat(0, 5), "/b": cgroup_stat(0, 2)})
    assert by_path() == {"/": 7, "/a": 5, "/b": 2}
    assert by_path() == {"/": 7, "/a": 5, "/b": 2}
