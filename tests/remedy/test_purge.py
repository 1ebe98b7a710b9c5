"""The purge plan: which zombies go by which way, at what cost, and what stays."""

from pathlib import Path

import numpy as np
import pytest

from exhume.cli.purge import promise
from exhume.host.cgroups import Hierarchy
from exhume.host.programs import protected_unit
from exhume.host.root import Root
from exhume.remedy.evict import Sorted
from exhume.remedy.purge import ACCEPTED_LOSS, MOST_EVICTED_BYTES, PurgePlan, Way, plan
from exhume.remedy.reclaim import Limit, worst_step_bytes
from exhume.remedy.steps.purge import most_lost_bytes, purge
from exhume.sources.memcg_walk import MemcgWalk
from exhume.sources.zombie_holders import Holder, Holders, charged

MIB = 1 << 20


def tree(*rows: tuple[str, int, bool, int, int], charged: int = 0, hierarchy: int = 1) -> MemcgWalk:
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
        serial, serial, parent, dying, usage, file, anon, zero, zero, zero, names, 2 if hierarchy == 2 else 1, True, False,
        len(everything), False, True, 1, 1,
    )  # fmt: skip


V1 = Hierarchy(1, "/sys/fs/cgroup/memory", "/", frozenset({"memory"}), True)
V2 = Hierarchy(2, "/sys/fs/cgroup", "/", frozenset({"memory"}), True)


def rows(*some: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(some, np.int64)


def by_use(cold: tuple[int, ...] = (), in_use: tuple[int, ...] = (), small: tuple[int, ...] = ()) -> Sorted:
    return Sorted(rows(*cold), rows(*small), rows(*in_use), dict.fromkeys(in_use, ("server[7]",)))


def planned(
    walk: MemcgWalk,
    hierarchy: Hierarchy = V1,
    under: str = "/",
    root: str = "/",
    use: Sorted | None = None,
    swap: bool = False,
) -> PurgePlan:
    zombies = walk.zombies
    kind = charged(walk)[zombies]
    return plan(Root(root), hierarchy, walk, Holders(zombies, kind, kind), under, use, swap)


def ways(made: PurgePlan) -> dict[Way, int]:
    return {part.way: part.zombies for part in made.parts}


AGENT = (
    ("agents", 0, False, 0, 0),
    ("live", 1, False, 400 * MIB, 50 * MIB),
    ("run1", 1, True, 4096, 0),
    ("run2", 1, True, 8192, 0),
    ("shm", 1, True, 0, 4096),
    ("idle", 1, True, 0, 0),
)


@pytest.fixture
def v2(tmp_path: Path) -> str:
    """A root whose /agents can be reclaimed from."""
    directory = tmp_path / "sys/fs/cgroup/agents"
    directory.mkdir(parents=True)
    (directory / "memory.reclaim").write_text("")
    (tmp_path / "sys/kernel/mm/transparent_hugepage").mkdir(parents=True)
    (tmp_path / "sys/kernel/mm/transparent_hugepage/hpage_pmd_size").write_text("2097152\n")
    return str(tmp_path)


def test_cold_page_cache_is_evicted_at_no_cost_and_what_else_holds_zombies_stays() -> None:
    made = planned(tree(*AGENT), use=by_use(cold=(3, 4)))
    (part,) = made.parts
    assert (part.home, part.way, part.zombies, part.pinned_bytes) == ("/agents", Way.EVICT, 2, 12_288)
    assert (part.most_lost_bytes, part.needs_acceptance) == (0, False)
    assert {left.holder: left.zombies for left in made.left} == {Holder.SHARED_MEMORY: 1, Holder.UNKNOWN: 1}
    assert all(left.frees for left in made.left)


def test_page_cache_in_use_needs_acceptance_and_names_its_users() -> None:
    made = planned(tree(*AGENT), use=by_use(cold=(3,), in_use=(4,)))
    evicted, in_use = made.parts
    assert (evicted.way, in_use.way) == (Way.EVICT, Way.EVICT_IN_USE)
    assert (in_use.needs_acceptance, in_use.most_lost_bytes, in_use.users) == (True, 8192, ("server[7]",))
    assert made.allowed() == (evicted,)
    assert made.allowed(accept_loss=True) == (evicted, in_use)


def test_small_zombies_that_were_used_twice_cost_what_they_hold() -> None:
    made = planned(tree(*AGENT), use=by_use(cold=(3, 4), small=(4,)))
    assert ways(made) == {Way.EVICT: 1, Way.EVICT_SMALL: 1}
    assert sum(part.most_lost_bytes for part in made.allowed()) == 8192
    assert [part.way for part in made.allowed(most_lost_bytes=0)] == [Way.EVICT]
    assert len(made.allowed(most_lost_bytes=8192)) == 2


def test_more_than_a_gibibyte_is_not_evicted_without_asking_and_the_small_ones_go_first() -> None:
    large = MOST_EVICTED_BYTES // 2 + 4096
    walk = tree(
        ("pods", 0, False, 0, 0), ("a", 1, True, large, 0), ("b", 1, True, large, 0), ("c", 1, True, 4096, 0)
    )  # fmt: skip
    made = planned(walk, use=by_use(cold=(2, 3, 4)))
    assert ways(made) == {Way.EVICT: 2, Way.EVICT_LARGE: 1}
    assert sum(part.pinned_bytes for part in made.allowed()) == large + 4096


def test_force_empty_takes_no_size_so_it_may_take_all_and_needs_acceptance() -> None:
    made = planned(tree(*AGENT), V1, use=by_use())
    (part,) = made.parts
    assert (part.way, part.zombies, part.needs_acceptance) == (Way.RECLAIM_ALL, 2, True)
    assert part.most_lost_bytes == 400 * MIB + 12_288
    assert made.allowed() == ()
    (swapping,) = planned(tree(*AGENT), V1, use=by_use(), swap=True).parts
    assert swapping.most_lost_bytes == 450 * MIB + 12_288


def test_force_empty_takes_the_page_cache_of_other_zombies_too() -> None:
    """Of one that tmpfs holds, and of one below a live directory: live groups may read what is charged to them."""
    others = (("both", 1, True, 64 * MIB, 4096), ("sub", 1, False, 0, 0), ("deep", 8, True, 32 * MIB, 0))
    made = planned(tree(*AGENT, *others), V1, use=by_use(cold=(9,)))
    (part,) = (part for part in made.parts if part.way is Way.RECLAIM_ALL)
    assert (part.home, part.zombies, part.most_lost_bytes) == ("/agents", 2, 496 * MIB + 12_288)
    assert "all 496 MiB of page cache" in promise(part, 1)


def test_memory_reclaim_takes_a_size_so_it_is_bounded(v2: str) -> None:
    (part,) = planned(tree(*AGENT, hierarchy=2), V2, root=v2).parts
    assert (part.way, part.needs_acceptance) == (Way.RECLAIM, False)
    assert part.most_lost_bytes == int(400 * MIB * ACCEPTED_LOSS)
    assert part.live is not None
    assert part.live.watched == ("/agents/live",)


def test_mapped_pages_are_in_use_whatever_the_kernel_can_bound(v2: str) -> None:
    """Zombies that eviction looked at and cannot reach."""
    (part,) = planned(tree(*AGENT, hierarchy=2), V2, root=v2, use=by_use()).parts
    assert part.way is Way.RECLAIM_ALL


def test_no_limit_is_promised_that_one_step_could_break(v2: str) -> None:
    little = (AGENT[0], ("live", 1, False, 20 * MIB, 0), *AGENT[2:])
    (part,) = planned(tree(*little, hierarchy=2), V2, root=v2).parts
    assert part.way is Way.RECLAIM_ALL
    none = (AGENT[0], ("live", 1, False, 0, 0), *AGENT[2:])
    (part,) = planned(tree(*none, hierarchy=2), V2, root=v2).parts
    assert (part.way, part.most_lost_bytes) == (Way.RECLAIM, 0)


def test_cache_of_the_directory_itself_cannot_be_watched(v2: str) -> None:
    own = (("agents", 0, False, 300 * MIB, 0), *AGENT[1:])
    (part,) = planned(tree(*own, hierarchy=2), V2, root=v2).parts
    assert part.way is Way.RECLAIM_ALL


def test_a_protected_unit_below_needs_acceptance_for_reclaim_and_none_for_eviction(v2: str) -> None:
    protected_one = (AGENT[0], ("kubelet.service", 1, False, 400 * MIB, 0), *AGENT[2:])
    (part,) = planned(tree(*protected_one, hierarchy=2), V2, root=v2).parts
    assert part.live is not None
    assert (part.way, part.live.protected) == (Way.RECLAIM_ALL, ("kubelet.service",))
    assert ways(planned(tree(*protected_one), use=by_use(cold=(3, 4)))) == {Way.EVICT: 2}


def test_where_the_kernel_moves_pages_to_the_parents_lists_the_parent_is_reclaimed_from(v2: str) -> None:
    """From 7.1 on a dying group has no page on a list, though they are charged to it still."""
    moved = tree(
        ("agents", 0, False, 0, 0),
        ("live", 1, False, 400 * MIB, 0),
        *((f"run{i}", 1, True, 0, 0) for i in range(8)),
        charged=8192,
        hierarchy=2,
    )
    (part,) = planned(moved, V2, root=v2, use=by_use()).parts
    assert (part.home, part.zombies, part.way) == ("/agents", 8, Way.RECLAIM)


def test_the_root_cannot_be_reclaimed_from_but_eviction_needs_no_parent() -> None:
    walk = tree(("gone", 0, True, 4096, 0), ("stays", 0, True, 4096, 0))
    made = planned(walk, use=by_use(cold=(1,)))
    assert [(part.home, part.zombies, part.way) for part in made.parts] == [("/", 1, Way.EVICT)]
    (left,) = made.left
    assert (left.zombies, left.holder, left.commands) == (1, Holder.PAGE_CACHE, ("echo 1 > /proc/sys/vm/drop_caches",))


def test_v2_without_memory_reclaim_has_only_eviction(tmp_path: Path) -> None:
    made = planned(tree(*AGENT, hierarchy=2), V2, root=str(tmp_path), use=by_use(cold=(3,)))
    assert ways(made) == {Way.EVICT: 1}
    assert any("5.19" in left.frees for left in made.left)


def test_under_narrows_it() -> None:
    walk = tree(*AGENT, ("other", 0, False, 0, 0), ("x", 7, True, 4096, 0))
    assert {part.home for part in planned(walk).parts} == {"/agents", "/other"}
    assert {part.home for part in planned(walk, under="/other").parts} == {"/other"}
    assert planned(walk, under="/oth").parts == ()
    top = tree(("gone", 0, True, 4096, 0), ("other", 0, True, 4096, 0))
    assert planned(top, under="/gone", use=by_use(cold=(1, 2))).zombies == 1


@pytest.mark.parametrize("groups", [1, 7, 100])
def test_a_limit_allows_no_step_whose_worst_case_is_beyond_it(groups: int) -> None:
    most = 64 * MIB
    limit = Limit(most, groups, 2 * MIB)
    for size in range(5):
        worst = worst_step_bytes(groups, 2 * MIB, size)
        assert limit.allows(max(0, most - worst), size) is (most >= worst)
        assert not limit.allows(most - worst + 1, size)
    assert Limit(None, groups, 2 * MIB).allows(1 << 60, 4)


def test_a_step_of_a_remedy_has_the_risk_of_its_cost_and_keeps_to_it() -> None:
    assert purge("/x", "because").risk == "low"
    assert most_lost_bytes(purge("/x", "because")) == 0
    dear = purge("/x", "because", 5 * MIB)
    assert (dear.risk, dear.undoable, most_lost_bytes(dear)) == ("medium", False, 5 * MIB)


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
    assert protected_unit(unit) is expected
