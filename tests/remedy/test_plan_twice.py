"""What a plan has nothing to do about any more: applied already, gone since the report; and zombies, place by place."""

from dataclasses import replace

import pytest

from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.host.root import Root
from exhume.remedy import carry_out, plan_zombies
from exhume.remedy.carry_out import Consent
from exhume.remedy.plan import Wishes
from exhume.remedy.plan_unit import KEEPS, Keep
from exhume.remedy.plan_words import document
from exhume.remedy.plan_zombies import Zombies, afterwards, topmost
from exhume.remedy.purge import rows_by_home
from exhume.remedy.steps import reversible
from exhume.sources.memcg_walk import walk
from tests import zombies
from tests.diagnosis.findings.facts import finding
from tests.remedy.pretended import pretend_cgroups
from tests.remedy.test_plan import AGENT, ETC, LEAK, LIB, Place, kinds, leaked_directories, place, report

__all__ = ["place"]  # a fixture

ZOMBIES = Zombies(going=900, staying=3000, why=("3,000 in /x, kernel objects: wait",))


def test_zombies_are_purged_before_anybody_speaks_of_a_reboot() -> None:
    made = afterwards({"/system.slice": ZOMBIES, "/a": Zombies(7)}, "no", 1000)
    assert [(step.kind, step.target, reversible(step)) for step in made.steps] == [
        ("purge", "/system.slice", False),
        ("purge", "/a", False),
    ]
    assert [step.reason for step in made.steps] == [
        "900 zombies below /system.slice can be freed without a reboot",
        "7 zombies below /a can be freed without a reboot",
    ]
    assert "--reboot sentinel" in made.relief[0].text
    assert afterwards({"/": ZOMBIES}, "no", 5000).relief == ()


def test_page_cache_of_the_living_is_never_given_up_by_a_plan_alone() -> None:
    made = afterwards({"/pods": Zombies(going=5, most_lost_bytes=3 << 20, asking=4000)}, "no", 1000)
    (step,) = made.steps
    assert (step.risk, step.reason) == (
        "medium",
        "5 zombies below /pods can be freed without a reboot; live groups lose or read again at most 3 MiB",
    )
    (relief,) = made.relief
    assert relief.text.startswith("exhume zombies purge --dry-run --under /pods ")
    assert afterwards({"/pods": Zombies(going=5)}, "no", 1000).steps[0].risk == "low"
    few = afterwards({"/pods": Zombies(asking=40)}, "no", 1000)
    assert (few.steps, few.relief) == ((), ())
    assert few.settled == ("40 zombies below /pods hold page cache that live groups use, fewer than matter (1,000)",)


@pytest.mark.parametrize(("how", "kind"), [("sentinel", "reboot-sentinel"), ("now", "reboot")])
def test_a_reboot_is_in_the_plan_only_where_it_was_asked_for_and_is_needed(how: plan_zombies.Reboot, kind: str) -> None:
    last = afterwards({"/": ZOMBIES}, how, 1000).steps[-1]
    assert (last.kind, reversible(last)) == (kind, False)
    assert [step.kind for step in afterwards({"/": Zombies(going=900, staying=3)}, how, 1000).steps] == ["purge"]


def test_zombies_that_nobody_could_look_at_are_said() -> None:
    made = afterwards({"/a": Zombies(unseen="no root"), "/b": Zombies(unseen="no root")}, "no", 1)
    assert not made.steps
    (relief,) = made.relief
    assert "no root" in relief.why


def test_places_that_have_no_zombies_any_more_are_said_and_not_purged() -> None:
    made = afterwards({"/gone": Zombies(), "/few": Zombies(staying=12), "/": Zombies()}, "now", 1000)
    assert not made.steps
    assert not made.relief
    assert made.settled == (
        "no zombie memory cgroup is left below /gone",
        "12 zombies below /few stay, fewer than matter (1,000); no purge frees them",
        "no zombie memory cgroup is left on the whole node",
    )


@pytest.mark.parametrize(
    ("homes", "walked"),
    [
        ((), ("/",)),
        (("/a", "/a", "/b"), ("/a", "/b")),
        (("/a/b", "/a", "/ab"), ("/a", "/ab")),
        (("/a", "/"), ("/",)),
        (tuple(f"/{number}" for number in range(20)), ("/",)),
    ],
)
def test_each_place_is_walked_once_and_many_are_the_whole_node(homes: tuple[str, ...], walked: tuple[str, ...]) -> None:
    assert topmost(homes) == walked


def test_each_place_of_a_report_is_counted_by_itself(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    there = {"/system.slice": Zombies(12), "/docker": Zombies()}
    monkeypatch.setattr(plan_zombies, "look", lambda node, homes: {home: there[home] for home in homes})
    elsewhere = finding(MemcgLeak, subject="/docker/x", home="/docker")
    plan = place.plan("memcg-leak", report(LEAK, elsewhere))
    (purge,) = [step for step in plan.steps if step.kind == "purge"]
    assert (purge.target, purge.reason) == ("/system.slice", "12 zombies below /system.slice can be freed without a reboot")
    assert "no zombie memory cgroup is left below /docker" in plan.settled


def test_directories_and_dead_processes_that_are_gone_are_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_cgroups(place.root, monkeypatch)
    (place.root / "proc").mkdir()
    leaked, dead = leaked_directories("/kubepods", "/sys/fs/cgroup/memory/kubepods"), finding(DefunctProcesses, subject="x")
    plan = place.plan("node", report(leaked, dead, cause=None))
    assert not plan.steps
    assert plan.settled == ("no directory is left below /sys/fs/cgroup/memory/kubepods", "no defunct process is left")
    (place.root / "proc").rmdir()
    (relief,) = place.plan("defunct-processes", report(dead)).relief
    assert "/proc is not there" in relief.text


@pytest.mark.parametrize("keep", [None, *KEEPS])
@pytest.mark.parametrize("where", [ETC, LIB, "/run/systemd/generator.early", "/run/systemd/generator.late"])
@pytest.mark.parametrize("state", ["activating", "failed", "inactive"])
def test_what_was_applied_leaves_nothing_to_plan(place: Place, keep: Keep | None, where: str, state: str) -> None:
    assert place.manager is not None
    place.put(f"{where}/own.service", AGENT)
    place.put(f"{LIB}/own.timer", "[Timer]\nOnBootSec=1\n")
    place.link(f"{ETC}/timers.target.wants/own.timer", f"{LIB}/own.timer")
    place.link(f"{ETC}/multi-user.target.wants/own.service", f"{where}/own.service")
    place.manager.set(**{"own.service": state, "own.timer": "active"})
    wishes = Wishes(keep=keep)
    assert carry_out.apply(place.plan("own.service", wishes=wishes), place.node, Consent(True, True)).exit_code == 0
    again = place.plan("own.service", wishes=wishes)
    assert not again.steps
    assert "own.service is " in again.settled[0]
    assert "already" in again.settled[0]
    place.manager = None
    assert not place.plan("own.service", wishes=wishes).steps


def test_a_mask_that_systemd_has_not_read_is_read(place: Place) -> None:
    place.link(f"{ETC}/own.service", "/dev/null")
    assert kinds(place.plan("own.service")) == [("reload", "systemd")]


def test_a_failed_unit_that_has_nothing_to_run_any_more_is_started(place: Place) -> None:
    assert place.manager is not None
    place.manager.set(**{"ecs.service": "failed"})
    plan = place.plan("ecs.service", wishes=Wishes(keep="do-nothing"))
    assert [step.kind for step in plan.steps] == ["write-file", "reload", "start-unit"]
    assert "it has failed" in plan.steps[-1].reason
    assert "ResetFailedUnit" in document(plan, place.node)["steps"][-1]["change"]  # type: ignore[index]
    assert carry_out.apply(plan, place.node, Consent(True)).exit_code == 0
    assert place.manager.calls[-2:] == ["reset ecs.service", "start ecs.service replace"]
    assert carry_out.undo(place.node).exit_code == 0
    assert place.manager.units()["ecs.service"] == "inactive"


def test_a_unit_that_is_off_stays_off_with_nothing_to_run(place: Place) -> None:
    plan = place.plan("ecs.service", wishes=Wishes(keep="do-nothing"))
    assert [step.kind for step in plan.steps] == ["write-file", "reload"]
    assert any("it is not started now" in one.why for one in plan.relief)


@pytest.mark.skipif(bool(zombies.unavailable()), reason=zombies.unavailable() or "-")
def test_real_zombies_are_counted_where_they_are_and_not_where_none_are(place: Place) -> None:
    """On this kernel: what others leak elsewhere is in neither count."""
    with zombies.zombies(12, "planned") as parent, zombies.directories(1, "empty") as empty:
        homes = [f"/{path.relative_to(zombies.MEMORY)}" for path in (parent, empty)]
        homes.append("/exhume-test-never/there")
        looked = plan_zombies.look(replace(place.node, root=Root("/")), homes)
        # The kernel may have evicted some of their pages by itself.
        going, after = looked[homes[0]].going, sum(map(len, rows_by_home(walk(), homes[0]).values()))
        assert after <= going <= 12
        assert {home: (one.going, one.staying) for home, one in looked.items()} == {
            homes[0]: (going, 0),
            homes[1]: (0, 0),
            homes[2]: (0, 0),
        }
        made = afterwards(looked, "no", 1000)
        freed = [f"{going} zombies below {homes[0]} can be freed without a reboot"] if going > 1 else []
        assert [step.reason for step in made.steps if going > 1] == freed
        assert made.settled[-2:] == tuple(f"no zombie memory cgroup is left below {home}" for home in homes[1:])
