"""Bursts and walks by what stack samples show of them: what else a kernel does is no walk, whatever its rate. A limit of one
core's time is that of one core."""

from dataclasses import replace

import numpy as np
import pytest

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.remedy.criteria_cores import bursts, full, walks
from exhume.remedy.proof import prove
from tests.incidents.rivals import KUBELET
from tests.incidents.scene import Scene
from tests.incidents.zombies import ZOMBIE_READ
from tests.remedy.made_proof import Made, holed, node

LIMITS = Thresholds()
BLIND = ("samples", "processes")
_COPY = ("copy_user_enhanced_fast_string", "vfs_write")
# About 20 copies a minute, most of a second each, beside the walks.
SICK = Made(1, seconds=180, walk_s=1.5, copies=60)
CURED = replace(SICK, seed=2, seconds=360, leak=0, walk_s=0, zombies=80, copies=120)
UNFIXED = replace(SICK, seed=3, seconds=360, copies=120)


@pytest.fixture(scope="module")
def sick() -> Recording:
    return node(SICK)


def test_copies_that_go_on_are_no_walks(sick: Recording) -> None:
    cured = node(CURED)
    found = bursts(sick, cured, LIMITS)
    assert found.status == "passed", found
    assert found.before == pytest.approx(7.4, abs=0.5), "the walks alone"
    assert found.after == 0
    assert "12 s a minute are no walks: another matter" in found.because
    assert prove(sick, cured, LIMITS).passed is True


@pytest.mark.parametrize("walk", [1.5, 0.8])
def test_walks_that_go_on_beside_copies_fail(sick: Recording, walk: float) -> None:
    before = sick if walk == 1.5 else node(replace(SICK, walk_s=walk))
    found = bursts(before, node(replace(UNFIXED, walk_s=walk, copies=0)), LIMITS)
    assert found.status == "failed", found
    assert bursts(before, node(replace(UNFIXED, walk_s=walk)), LIMITS).status == "failed"


def test_copies_that_are_worse_than_before_fail_although_the_walks_are_over() -> None:
    before = node(replace(SICK, copies=3))
    found = bursts(before, node(replace(CURED, copies=360)), LIMITS)
    assert found.status == "failed", found
    assert "worse than before" in found.because


@pytest.mark.parametrize("copies", [2, 6])
def test_without_stacks_a_few_bursts_as_before_neither_pass_nor_fail(copies: int) -> None:
    """So many a minute: nobody knows whether they are walks, and without a before they would pass."""
    before = node(replace(SICK, walk_s=0, copies=3 * copies, off=BLIND))
    after = node(replace(CURED, seconds=600, copies=10 * copies, off=BLIND))
    found = bursts(before, after, LIMITS)
    assert (found.status, found.confidence, found.needed_s) == ("too-little", None, None), found
    assert "these may be something else" in found.because
    assert bursts(None, after, LIMITS).status == "passed"


@pytest.mark.parametrize(("walk", "status"), [(2.0, "failed"), (0.8, "too-little")])
@pytest.mark.parametrize("off", [(), BLIND])
def test_walks_that_go_on_do_not_pass_because_nobody_took_stacks(walk: float, status: str, off: tuple[str, ...]) -> None:
    before = node(replace(SICK, walk_s=walk, copies=3, off=off))
    assert bursts(before, node(replace(UNFIXED, walk_s=walk, copies=6, off=BLIND)), LIMITS).status == status


def test_walks_that_go_on_do_not_pass_because_sampling_ended(sick: Recording) -> None:
    """Samples of the first twelve seconds say nothing of the bursts after."""
    after = holed(node(replace(UNFIXED, walk_s=0.8)), (12.0, 361.0), tables=("samples",))
    assert bursts(sick, after, LIMITS).status != "passed"


def test_walks_do_not_pass_as_less_of_something_else_where_nobody_took_stacks() -> None:
    """The copies are over, and all that is left is the walk: less than a quarter of all bursts before."""
    before = node(replace(SICK, copies=200))
    assert bursts(before, node(replace(UNFIXED, copies=0, off=BLIND)), LIMITS).status != "passed"


def test_stacks_after_tell_what_those_before_would_have_told() -> None:
    """Copies all along, seen by stacks after the fix only."""
    before, after = node(replace(SICK, walk_s=0, off=BLIND)), node(CURED)
    found = bursts(before, after, LIMITS)
    assert found.status == "passed", found
    assert bursts(before, node(replace(CURED, seconds=10, copies=0)), LIMITS).status == "too-little"
    assert bursts(node(replace(SICK, copies=0, walk_s=2.0, off=BLIND)), node(UNFIXED), LIMITS).status == "failed"


def walked_by_many(zombies: int) -> Recording:
    """Thirty programs, each of which walks for 110 ms at a time: none of them is told by itself."""
    generator = np.random.default_rng(1)
    scene = Scene(cpus=8, seconds=240, busy=0.4, hz=19, seed=1)
    for second in range(241):
        total = 100 + zombies
        scene.row(
            "memcg", time=scene.at(second), path="/", live=100, dying=zombies, total=total, method="proc-cgroups",
            scope="node", complete=1,
        )  # fmt: skip
    for program in range(30):
        for turn in range(13):
            at, core = turn * 17 + float(generator.uniform(0, 10)), int(generator.integers(0, 8))
            scene.hold(core, at, at + 0.11, f"app{program}", 5000 + program, ZOMBIE_READ, f"/kubepods/p{program}")
    return scene.whole()


def test_more_walks_than_before_over_as_many_groups_are_not_of_no_length() -> None:
    before = node(Made(1, seconds=120, leak=0, walk_s=1.0, copies=0))
    found = walks(before, walked_by_many(20_000), LIMITS)
    assert found.status == "failed", found
    assert walks(before, walked_by_many(50), LIMITS).because == "what is left is of no length"


def spread(length: float, worst: float) -> Recording:
    """96 cores with a burst each minute, and one with a longer one every ten seconds."""
    generator = np.random.default_rng(1)
    scene = Scene(cpus=96, seconds=120, busy=0.4, hz=19, seed=1, off=BLIND)
    for core in range(96):
        at = float(generator.uniform(0, 58))
        for begin in (at, at + 60) if core != 17 else np.arange(1.0, 119.0, 10.0).tolist():
            stays = length if core != 17 else worst
            scene.hold(core, begin, begin + stays, "cp", 20_000 + core, _COPY, KUBELET)
    return scene.whole()


def test_the_limit_is_one_cores_share_and_not_that_of_all_cores_together() -> None:
    found = bursts(None, spread(0.5, 0.5), LIMITS)
    assert found.status == "passed", found
    assert found.after is not None
    assert found.after < 6
    assert found.because == "most is on core 17, and less than is told"
    told = bursts(None, spread(0.5, 2.0), LIMITS)
    assert told.status == "failed", told
    assert told.because == "core 17 is full of kernel time for 12 s of each minute"


def test_before_against_after_is_all_cores_together() -> None:
    """Of a machine that copies all day, on as many cores as it has."""
    before, after = (node(Made(seed, seconds=300, leak=0, walk_s=0, zombies=60, copies=300)) for seed in (4, 5))
    found = bursts(before, after, LIMITS)
    assert (found.status, found.limit) == ("passed", 6)
    assert found.after is not None
    assert "no walk over cgroups: another matter" in found.because
    assert "s a minute on all cores, most on core" in found.because
    assert found.after < full(after, LIMITS).a_minute / 2
