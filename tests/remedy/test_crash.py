"""Death at every single point: whatever was the last thing done, resume ends with all of the plan and undo with none of it."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from exhume.errors import UsageError
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent, Outcome
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.units import reload, reset_failed, stop_unit
from tests.remedy.nodes import (
    UNITS,
    Counting,
    Crash,
    Crashing,
    FileManager,
    Killed,
    PowerCut,
    Torn,
    node,
    scratch,
    snapshot,
    without_times,
)

ALL = Consent(True, True)
WANTS = f"/{UNITS}/multi-user.target.wants/ecs.service"
PLAN = Plan(
    "ecs.service",
    "it leaks",
    (
        stop_unit("ecs.service", "it loops"),
        remove_link(WANTS, "/lib/systemd/system/ecs.service", "not at boot"),
        write_file(f"/{UNITS}/other.service.d/50-exhume.conf", b"[Service]\nRestart=no\n", "breaks the loop"),
        write_file(f"/{UNITS}/late.service.d/zz-exhume.conf", b"[Service]\nRestartSec=60\n", "the one of before is not enough"),
        make_link(f"/{UNITS}/ecs.service", "/dev/null", "mask", over_file=True),
        remove_link("/run/systemd/system/timers.target.wants/ecs.timer", "", "it would start it again"),
        make_link(f"/{UNITS}/alias.service", "/dev/null", "the alias too"),
        reload("files changed"),
        reset_failed("ecs.service", "no failure is left to be seen"),
    ),
)


class Place:
    """A root to act on, made anew for each death."""

    def __init__(self, path: Path) -> None:
        self.root, self.path = path / "root", path
        wants = self.root / UNITS / "multi-user.target.wants"
        wants.mkdir(parents=True)
        (wants / "ecs.service").symlink_to("/lib/systemd/system/ecs.service")
        (self.root / UNITS / "alias.service").symlink_to("ecs.service")
        (self.root / UNITS / "ecs.service").write_text("[Service]\nExecStart=/usr/libexec/ecs\n")
        config = self.root / UNITS / "late.service.d/zz-exhume.conf"
        config.parent.mkdir()
        config.write_bytes(b"# \xff\n")
        config.chmod(0o640)
        if os.geteuid() == 0:
            os.chown(config, 1, 2)
        with suppress(OSError):  # where the file system keeps them
            os.setxattr(config, "user.origin", b"image")
        (self.root / "run/systemd/system/timers.target.wants").mkdir(parents=True)
        (self.root / "run/systemd/system/timers.target.wants/ecs.timer").symlink_to("/lib/systemd/system/ecs.timer")
        (path / "stash").mkdir()
        self.manager = FileManager(self.root, path / "manager")
        self.manager.set(**{"ecs.service": "activating", "kubelet.service": "active"})

    def node(self, operations: Operations | None = None) -> Node:
        return node(self.root, operations, self.manager)


@pytest.fixture
def places() -> Iterator[Callable[[], Place]]:
    count = 0
    with scratch() as path:

        def another() -> Place:
            nonlocal count
            shutil.rmtree(path / str(count), ignore_errors=True)
            count += 1
            (path / str(count)).mkdir()
            return Place(path / str(count))

        yield another


def apply(place: Place, operations: Operations) -> None:
    assert carry_out.apply(PLAN, place.node(operations), ALL).exit_code == 0


def resume_or_apply(place: Place, operations: Operations | None = None) -> None:
    """What somebody would do who finds it so: go on if there is anything to go on with, or begin."""
    node = place.node(operations)
    if carry_out.pending(node) is not None:
        assert carry_out.resume(node).exit_code == 0
    elif not carry_out.history(node):
        assert carry_out.apply(PLAN, node, ALL).exit_code == 0


def undo(place: Place, operations: Operations | None = None) -> None:
    node = place.node(operations)
    if any(one.status != "undone" for one in carry_out.history(node)):
        assert carry_out.undo(node).exit_code == 0
    else:
        with pytest.raises(UsageError, match="nothing to undo"):
            carry_out.undo(node)


def assert_done(place: Place) -> None:
    tree = snapshot(place.root)
    assert os.readlink(place.root / UNITS / "ecs.service") == os.readlink(place.root / UNITS / "alias.service") == "/dev/null"
    assert not (place.root / WANTS[1:]).is_symlink()
    assert "run/systemd/system/timers.target.wants/ecs.timer" not in tree
    assert tree[f"{UNITS}/late.service.d/zz-exhume.conf"][0] == "-rw-r-----"
    assert tree[f"{UNITS}/late.service.d/zz-exhume.conf"][4] == b"[Service]\nRestartSec=60\n"
    assert (place.root / UNITS / "other.service.d/50-exhume.conf").read_bytes() == b"[Service]\nRestart=no\n"
    assert place.manager.units() == {"ecs.service": "inactive", "kubelet.service": "active"}
    assert not [name for name in tree if ".exhume-" in name]
    assert [one.status for one in carry_out.history(place.node())] == ["applied"]


def assert_as_before(place: Place, before: dict[str, tuple[object, ...]]) -> None:
    assert snapshot(place.root) == before
    assert place.manager.units()["ecs.service"] in ("activating", "active")
    assert place.manager.units()["kubelet.service"] == "active"
    assert all(one.finished for one in carry_out.history(place.node()))


def points(places: Callable[[], Place], *acts: Callable[[Place, Operations], None]) -> int:
    """How many operations there are in the last of these acts."""
    place = places()
    for act in acts:
        counting = Counting()
        act(place, counting)
    return len(counting.did)


def die_in(place: Place, act: Callable[[Place, Operations], None], operations: Operations) -> None:
    with pytest.raises(Crash):
        act(place, operations)


WAYS = [pytest.param(0, id="crash"), pytest.param(1, id="torn", marks=pytest.mark.ci), pytest.param(2, id="power-cut")]


def deaths(place: Place, number: int) -> list[Operations]:
    return [Crashing(number), Torn(number), PowerCut(number, place.path / "stash")]


@pytest.mark.ci
@pytest.mark.parametrize("way", WAYS)
def test_resume_after_a_death_at_every_point_ends_with_the_whole_plan_done(places: Callable[[], Place], way: int) -> None:
    for number in range(1, points(places, apply) + 1):
        place = places()
        before = snapshot(place.root)
        die_in(place, apply, deaths(place, number)[way])
        resume_or_apply(place)
        assert_done(place)
        undo(place)
        assert_as_before(place, before)


@pytest.mark.ci
@pytest.mark.parametrize("way", WAYS)
def test_undo_after_a_death_at_every_point_brings_back_what_was(places: Callable[[], Place], way: int) -> None:
    for number in range(1, points(places, apply) + 1):
        place = places()
        before = snapshot(place.root)
        die_in(place, apply, deaths(place, number)[way])
        undo(place)
        assert_as_before(place, before)


@pytest.mark.ci
@pytest.mark.parametrize("way", WAYS)
def test_undo_after_a_death_at_every_point_of_an_undo_brings_back_what_was(places: Callable[[], Place], way: int) -> None:
    for number in range(1, points(places, apply, undo) + 1):
        place = places()
        before = snapshot(place.root)
        apply(place, Operations())
        die_in(place, undo, deaths(place, number)[way])
        undo(place)
        assert_as_before(place, before)


SHORT = Plan("ecs.service", "it leaks", (PLAN.steps[2], PLAN.steps[4], PLAN.steps[7]))


@pytest.mark.long
@pytest.mark.parametrize("then", [carry_out.resume, carry_out.undo], ids=["resume", "undo"])
@pytest.mark.parametrize("cut", [True, False], ids=["cut", "killed"])
def test_two_deaths_at_any_two_points_are_recovered_from(
    places: Callable[[], Place], then: Callable[[Node], Outcome], cut: bool
) -> None:
    """The first, of the machine or of the process, while a short plan is applied; then of the machine, in resume or undo."""
    first, survived = 0, False
    while not survived:
        first += 1
        second, lived = 0, False
        while not (lived or survived):
            second += 1
            place = places()
            before = snapshot(place.root)
            killed = PowerCut(first, place.path / "stash")
            killed.loses = cut
            survived = not _dies(_apply_short, place.node(killed))
            if carry_out.pending(place.node()) is None:
                lived = True
            else:
                lived = not _dies(then, _cut(place, second, None if cut else killed))
                if not lived and carry_out.pending(place.node()) is not None:
                    then(place.node())
            assert not [name for name in snapshot(place.root) if ".exhume-" in name]
            if [one.status for one in carry_out.history(place.node())] == ["applied"]:
                assert (place.root / UNITS / "other.service.d/50-exhume.conf").read_bytes() == PLAN.steps[2].content
                assert os.readlink(place.root / UNITS / "ecs.service") == "/dev/null"
            undo(place)
            assert_as_before(place, before)
    assert first > 30


def _cut(place: Place, number: int, killed: PowerCut | None) -> Node:
    return place.node(PowerCut(number, place.path / "stash", killed))


def _apply_short(node: Node) -> Outcome:
    return carry_out.apply(SHORT, node, ALL)


def _dies(act: Callable[[Node], Outcome], node: Node) -> bool:
    try:
        assert act(node).exit_code == 0
    except Crash:
        return True
    return False


def test_dying_again_and_again_while_it_is_resumed_changes_nothing_about_the_end(places: Callable[[], Place]) -> None:
    for patience in (21, 22, 25, 30, 40):  # enough for one step at least
        place = places()
        before = snapshot(place.root)
        for _ in range(100):
            try:
                resume_or_apply(place, Crashing(patience))
            except Crash:
                continue
            break
        assert_done(place)
        for _ in range(100):
            try:
                undo(place, Crashing(patience))
            except Crash:
                continue
            break
        assert_as_before(place, before)


@pytest.mark.parametrize("rest", [0, *(pytest.param(rest, marks=pytest.mark.ci) for rest in range(1, 6))])
def test_a_process_that_is_really_killed_leaves_what_both_can_go_on_from(places: Callable[[], Place], rest: int) -> None:
    for number in range(1 + rest, points(places, apply) + 1, 6):
        for then in (resume_or_apply, undo):
            place = places()
            before = snapshot(place.root)
            child = os.fork()
            if child == 0:
                try:
                    apply(place, Killed(number))
                finally:
                    os._exit(1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            then(place)
            if then is resume_or_apply:
                assert_done(place)
                undo(place)
            assert_as_before(place, before)


def test_nothing_changes_before_the_disk_has_what_was_there_and_no_step_counts_before_the_disk_has_it(
    places: Callable[[], Place],
) -> None:
    place = places()
    counting = Counting()
    apply(place, counting)
    ours = [what for what in counting.did if not what.startswith(("call", "chmod", "chown", "set", "utime"))]
    begin = ours.index("sync journal's directory", ours.index("sync journal")) + 1
    durable = True
    for earlier, what in zip(ours[begin - 1 :], ours[begin:], strict=False):
        if what.startswith(("rename", "unlink", "mkdir", "link", "create")):
            durable = False
        elif what == "sync directory":
            durable = True
        elif what == "sync journal":
            assert earlier == "write"
            assert durable
    assert durable


def test_two_applications_of_one_plan_are_one_and_undone_by_one(places: Callable[[], Place]) -> None:
    place = places()
    before = snapshot(place.root)
    apply(place, Operations())
    once = snapshot(place.root)
    again = carry_out.apply(PLAN, place.node(), ALL)
    assert {event.what for event in again.events if event.step.kind != "reload"} == {"skipped"}
    assert without_times(snapshot(place.root)) == without_times(once)
    undo(place)
    assert_as_before(place, before)
    with pytest.raises(UsageError, match="nothing to undo"):
        carry_out.undo(place.node())
