"""The purge: what is planned, what is left out, what is refused, and a real one with a live sibling beside it."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from exhume.node.cgroups import Hierarchy
from exhume.node.memcg_walk import MemcgWalk
from exhume.node.root import Root
from exhume.remedy.protected import protected
from exhume.remedy.purge import PurgePlan, plan
from tests import zombies

MIB = 1 << 20


def tree(*rows: tuple[str, int, bool, int, int], charged: int = 0) -> MemcgWalk:
    """A walk from (name, parent row, dying, file bytes, anon bytes); the root is row 0."""
    everything = (("", -1, False, 0, 0), *rows)
    ints = [np.array([row[i] for row in everything], dtype=np.int64) for i in (1, 3, 4)]
    parent, file, anon = ints
    zero = np.zeros(len(everything), dtype=np.int64)
    serial = np.arange(1, len(everything) + 1, dtype=np.uint64)
    dying = np.array([row[2] for row in everything])
    names = [row[0].encode() for row in everything]
    usage = file + anon + np.where(dying, charged, 0)
    return MemcgWalk(
        serial, serial, parent, dying, usage, file, anon, zero, zero, zero, names, 1, True, False, len(everything), False,
        True, 1, 1,
    )  # fmt: skip


V1 = Hierarchy(1, "/sys/fs/cgroup/memory", "/", frozenset({"memory"}), True)
V2 = Hierarchy(2, "/sys/fs/cgroup", "/", frozenset({"memory"}), True)


def planned(walk: MemcgWalk, hierarchy: Hierarchy = V1, under: str = "/", root: str = "/", swap: bool = False) -> PurgePlan:
    return plan(Root(root), hierarchy, walk, under, swap)


AGENT = (
    ("agents", 0, False, 0, 0),
    ("live", 1, False, 100 * MIB, 50 * MIB),
    ("run1", 1, True, 4096, 0),
    ("run2", 1, True, 8192, 0),
    ("shm", 1, True, 0, 4096),
    ("idle", 1, True, 0, 0),
)


def test_page_cache_is_reclaimed_from_the_nearest_live_parent_and_the_rest_is_left_out() -> None:
    made = planned(tree(*AGENT))
    (target,) = made.targets
    assert (target.home, target.zombies, target.pinned_bytes) == ("/agents", 2, 12_288)
    assert (target.cache_bytes, target.swap_bytes, target.watched) == (100 * MIB, 0, ("/agents/live",))
    assert {left.why: left.zombies for left in made.left} == {"shared memory or tmpfs": 1, "nothing charged": 1}
    assert all(left.way for left in made.left)


def test_where_the_kernel_moves_pages_to_the_parents_lists_the_parent_is_reclaimed_from() -> None:
    """From 7.1 on a dying group has no page on a list of its own, though they are charged to it still."""
    moved = tree(("agents", 0, False, 9 * MIB, 0), *((f"run{i}", 1, True, 0, 0) for i in range(8)), charged=8192)
    (target,) = planned(moved).targets
    assert (target.home, target.zombies) == ("/agents", 8)
    few = tree(("agents", 0, False, 0, 0), *((f"run{i}", 1, True, 0, 0) for i in range(3)), charged=8192)
    assert planned(few).targets == ()


def test_with_swap_anonymous_memory_is_at_stake_too() -> None:
    (target,) = planned(tree(*AGENT), swap=True).targets
    assert target.swap_bytes == 50 * MIB


def test_directly_below_the_root_there_is_nothing_to_reclaim_from() -> None:
    made = planned(tree(("gone", 0, True, 4096, 0)))
    assert made.targets == ()
    assert "drop_caches" in made.left[0].way


def test_what_goes_by_its_files_needs_no_parent_to_reclaim_from() -> None:
    walk = tree(("gone", 0, True, 4096, 0), ("stays", 0, True, 4096, 0))
    made = plan(Root(), V1, walk, by_file=[1])
    (target,) = made.targets
    assert (target.home, target.zombies, target.by_file, target.by_reclaim) == ("/", 1, 1, 0)
    assert [(left.zombies, left.why) for left in made.left] == [(1, "page cache, directly below the root")]


def test_a_protected_unit_is_no_reason_to_decline_where_nothing_is_reclaimed() -> None:
    walk = tree(("system.slice", 0, False, 0, 0), ("kubelet.service", 1, False, MIB, 0), ("ecs.service", 1, True, 4096, 0))
    assert plan(Root(), V1, walk, by_file=[3]).refusals() == ()
    assert plan(Root(), V1, walk).refusals() != ()


def test_under_a_path_directly_below_the_root() -> None:
    walk = tree(("gone", 0, True, 4096, 0), ("other", 0, True, 4096, 0))
    assert plan(Root(), V1, walk, under="/gone", by_file=[1, 2]).zombies == 1


def test_v2_needs_memory_reclaim(tmp_path: Path) -> None:
    walk = tree(*AGENT)
    assert planned(walk, V2, root=str(tmp_path)).targets == ()
    directory = tmp_path / "sys/fs/cgroup/agents"
    directory.mkdir(parents=True)
    (directory / "memory.reclaim").write_text("")
    assert planned(walk, V2, root=str(tmp_path)).zombies == 2


def test_under_narrows_it() -> None:
    walk = tree(*AGENT, ("other", 0, False, 0, 0), ("x", 7, True, 4096, 0))
    assert {target.home for target in planned(walk).targets} == {"/agents", "/other"}
    assert {target.home for target in planned(walk, under="/other").targets} == {"/other"}
    assert planned(walk, under="/oth").targets == ()


def test_a_protected_unit_below_the_same_parent_is_a_reason_to_decline() -> None:
    walk = tree(("system.slice", 0, False, 0, 0), ("kubelet.service", 1, False, MIB, 0), ("ecs.service", 1, True, 4096, 0))
    (refusal,) = planned(walk).refusals()
    assert "kubelet.service" in refusal


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("kubelet.service", True),
        ("sshd@3.service", True),
        ("containerd.service", True),
        ("ecs.service", False),
        ("sshdlike.service", False),
        ("sshd-vsock.socket", True),
        ("", False),
    ],
)
def test_what_is_protected(unit: str, expected: bool) -> None:
    assert protected(unit) is expected


def exhume(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "exhume", *argv], capture_output=True, text=True, check=False)


@pytest.fixture
def real() -> None:
    if why := zombies.unavailable():
        pytest.skip(why)


@pytest.mark.usefixtures("real")
def test_a_real_purge_lets_the_cache_go_keeps_tmpfs_and_spares_the_sibling() -> None:
    with zombies.beside_a_sibling(cache=2000, on_tmpfs=1000, sibling_mib=400) as parent:
        under = "/" + str(parent.relative_to(zombies.MEMORY))
        usage = parent / "live" / "memory.usage_in_bytes"
        before, there = int(usage.read_text()), zombies.total()
        dry = exhume("zombies", "purge", "--under", under, "--dry-run")
        assert dry.returncode == 0, dry.stderr
        # A machine may drop cache by itself meanwhile (DAMON does here); a dry run does not drop 2,000 groups' worth of it.
        assert zombies.total() > there - 1000
        assert int(usage.read_text()) > 0.9 * before
        refused = exhume("zombies", "purge", "--under", under)
        assert refused.returncode == 2
        assert "--yes" in refused.stderr
        done = exhume("zombies", "purge", "--under", under, "--yes", "--json")
        after = int(usage.read_text())
    document: dict[str, Any] = json.loads(done.stdout)
    (outcome,) = document["outcomes"]
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcome["gone"] >= 0.99 * outcome["zombies"]
    assert outcome["zombies"] >= 1900
    assert (outcome["by_file"], outcome["bites"]) == (outcome["zombies"], 0)
    # Eviction takes nothing from it (test_evict counts that); a machine drops cache for reasons of its own meanwhile.
    assert after >= 0.9 * before
    assert [left for left in document["left"] if left["why"] == "shared memory or tmpfs" and left["zombies"] >= 950]


@pytest.mark.usefixtures("real")
def test_a_purge_that_is_killed_leaves_no_child_behind() -> None:
    with zombies.beside_a_sibling(cache=3000, on_tmpfs=2000, sibling_mib=1) as parent:
        under = "/" + str(parent.relative_to(zombies.MEMORY))
        running = subprocess.Popen([sys.executable, "-m", "exhume", "zombies", "purge", "--under", under, "--yes"])
        time.sleep(0.5)
        running.kill()
        running.wait()
        time.sleep(0.3)
        left = [pid for pid in os.listdir("/proc") if pid.isdigit() and under.encode() in _command(pid)]
    assert left == []


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
