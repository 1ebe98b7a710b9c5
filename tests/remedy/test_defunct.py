"""Defunct processes: whose unit is restarted for them, when it is left to people, and when nothing is to be done any more."""

import os
from pathlib import Path

import pytest

from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.errors import Refused
from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
from exhume.image.policy import Listed, Policy
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.defunct import parents
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import kind_of
from exhume.remedy.steps.processes import uncollected
from exhume.remedy.steps.units import restart_unit
from tests.diagnosis.findings.facts import finding
from tests.remedy.nodes import FileManager
from tests.remedy.test_plan import AGENT, LEAK, LIB, Place, kinds, place, report

__all__ = ["place"]  # a fixture

ALL = Consent(True, True)
ID = "0123456789abcdef" * 4
FOUND = finding(DefunctProcesses, subject="node")


def process(root: Path, pid: int, ppid: int, state: str = "S", cgroup: str = "/", start: int = 100) -> None:
    numbers = " ".join(["0"] * 17)
    (root / f"proc/{pid}").mkdir(parents=True, exist_ok=True)
    (root / f"proc/{pid}/stat").write_text(f"{pid} (x) {state} {ppid} {numbers} {start} {' '.join(['0'] * 30)}\n")
    (root / f"proc/{pid}/cgroup").write_text(f"0::{cgroup}\n")


def parent_in(place: Place, cgroup: str) -> None:
    """A process there with two children that it has not collected."""
    (place.root / "proc").mkdir(exist_ok=True)
    (place.root / "proc/uptime").write_text("100.00 1.0\n")
    process(place.root, 4711, 1, cgroup=cgroup)
    process(place.root, 4712, 4711, "Z")
    process(place.root, 4713, 4711, "Z")


def collect(place: Place) -> None:
    for pid in (4712, 4713):
        for name in ("stat", "cgroup"):
            (place.root / f"proc/{pid}/{name}").unlink(missing_ok=True)


def offered(place: Place, wishes: Wishes | None = None) -> Plan:
    return place.plan("defunct-processes", report(FOUND), wishes)


def test_the_parent_is_told_and_its_unit_restarted_if_that_did_not_help(place: Place) -> None:
    parent_in(place, "/system.slice/ecs.service")
    plan = offered(place)
    assert kinds(plan) == [("signal-parent", "4711:100"), ("restart-unit", "ecs.service")]
    assert (plan.steps[1].link, plan.steps[1].deadline_s, plan.steps[1].undoable) == ("4711:100", 330, False)
    assert not plan.relief


@pytest.mark.parametrize(
    ("cgroup", "said"),
    [
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/ecs.service", "of the user 1000, not of the node"),
        (f"/docker/{ID}/system.slice/ecs.service", "inside container 0123456789ab, not of the node"),
        ("/machine.slice/systemd-nspawn@box.service/payload/system.slice/ecs.service", "inside systemd-nspawn@box.service"),
    ],
)
def test_the_nodes_unit_is_not_restarted_for_another_of_the_same_name(place: Place, cgroup: str, said: str) -> None:
    parent_in(place, cgroup)
    plan = offered(place, Wishes(force=True))
    assert kinds(plan) == [("signal-parent", "4711:100")]
    (relief,) = plan.relief
    assert said in relief.why
    assert "restarted there" in relief.text


def test_where_unreaped_children_are_the_cause_their_parent_is_restarted_and_not_disabled(place: Place) -> None:
    """Also where the zombies that they hold lived in the parent's own unit."""
    parent_in(place, "/system.slice/ecs.service")
    found = finding(DefunctProcesses, subject="ecs.service")
    plan = place.plan("node", report(found, LEAK, cause="defunct-processes", chain=(found,)))
    assert kinds(plan) == [("signal-parent", "4711:100"), ("restart-unit", "ecs.service")]


@pytest.mark.parametrize("where", ["/system.slice", f"/docker/{ID}/system.slice"])
def test_of_a_protected_unit_nobody_is_told_anything(place: Place, where: str) -> None:
    parent_in(place, f"{where}/kubelet.service")
    plan = offered(place, Wishes(force=True))
    assert not plan.steps
    assert "kubelet.service is left alone" in plan.relief[0].why


@pytest.mark.parametrize("cgroup", [f"/docker/{ID}", "/batch"])
def test_what_no_restart_helps_is_left_to_its_end(place: Place, cgroup: str) -> None:
    parent_in(place, cgroup)
    plan = offered(place)
    assert kinds(plan) == [("signal-parent", "4711:100")]
    assert "only its own end does" in plan.relief[0].text


@pytest.mark.parametrize(
    ("lines", "unit"),
    [
        ("4:memory:/system.slice\n1:name=systemd:/system.slice/ecs.service\n0::/\n", "ecs.service"),
        ("4:memory:/above\n1:name=systemd:/\n0::/system.slice/ecs.service\n", "ecs.service"),
        (f"1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service\n", ""),
        ("4:memory:/system.slice/ecs.service\n", "ecs.service"),
        ("nonsense\n", ""),
    ],
)
def test_the_unit_is_told_by_where_systemd_has_put_the_process(place: Place, lines: str, unit: str) -> None:
    parent_in(place, "/")
    (place.root / "proc/4711/cgroup").write_text(lines)
    (one,) = parents(place.node.root)
    assert one.unit == unit


def test_what_others_need_is_restarted_by_force_only(place: Place) -> None:
    place.put(f"{LIB}/client.service", f"[Unit]\nRequires=ecs.service\n{AGENT}")
    parent_in(place, "/system.slice/ecs.service")
    plan = offered(place)
    assert kinds(plan) == [("signal-parent", "4711:100")]
    assert "it is needed by client.service; --force restarts it all the same" in plan.relief[0].why
    assert plan.relief[0].text.endswith("systemctl restart ecs.service")
    assert ("restart-unit", "ecs.service") in kinds(offered(place, Wishes(force=True)))


def test_what_the_policy_keeps_is_restarted_by_force_only(place: Place) -> None:
    policy = Policy((Listed("ecs.service", "batch", keep=True),))
    parent_in(place, "/system.slice/ecs.service")
    with Directory(str(place.root)) as tree:
        protection = Protection(read_units(tree), policy=policy)
        made = [Planner(place.node, tree, protection, Wishes(force=force)).plan("f1", report(FOUND)) for force in (False, True)]
    assert [("restart-unit", "ecs.service") in kinds(plan) for plan in made] == [False, True]
    assert "the policy keeps it" in made[0].relief[0].why


def test_what_takes_the_machine_down_when_it_ends_is_not_restarted(place: Place) -> None:
    place.put(f"{LIB}/ecs.service", f"[Unit]\nSuccessAction=reboot\n{AGENT}")
    parent_in(place, "/system.slice/ecs.service")
    plan = offered(place, Wishes(force=True))
    assert kinds(plan) == [("signal-parent", "4711:100")]
    assert "takes the machine down when it ends" in plan.relief[0].why


def test_what_conflicts_with_a_protected_unit_is_not_restarted(place: Place) -> None:
    place.put(f"{LIB}/ecs.service", f"[Unit]\nConflicts=kubelet.service\n{AGENT}")
    parent_in(place, "/system.slice/ecs.service")
    plan = offered(place, Wishes(force=True))
    assert kinds(plan) == [("signal-parent", "4711:100")]
    assert "ecs.service is not started: ecs.service conflicts with kubelet.service" in plan.relief[0].why


def test_a_name_that_no_unit_has_is_not_restarted(place: Place) -> None:
    parent_in(place, "/system.slice/e c\x1bs.service")
    plan = offered(place)
    assert kinds(plan) == [("signal-parent", "4711:100")]
    assert "is not the name of a unit" in plan.relief[0].why
    assert "\x1b" not in plan.relief[0].why + plan.relief[0].text


class Parent(FileManager):
    """Whose restart ends the process with its children."""

    def __init__(self, place: Place, ends: str = "active") -> None:
        super().__init__(place.root, place.root / "manager")
        self._place, self._ends = place, ends

    def restart(self, unit: str) -> None:
        super().restart(unit)
        collect(self._place)
        process(self._place.root, 4711, 1, start=900)
        self._become([unit], self._ends, f"now {self._ends}")


def test_a_restart_is_one_call_so_that_what_stops_with_it_is_started_again(place: Place) -> None:
    place.put(f"{LIB}/client.service", f"[Unit]\nRequires=ecs.service\n{AGENT}")
    parent_in(place, "/system.slice/ecs.service")
    manager = place.manager = Parent(place)
    manager.set(**{"ecs.service": "active", "client.service": "active"})
    step = restart_unit("ecs.service", "r", "4711:100")
    assert kind_of(step).preview(step, place.node).endswith("Manager RestartUnit ss ecs.service replace\n")
    outcome = carry_out.apply(Plan("ecs.service", "w", (step,)), place.node, ALL)
    assert outcome.exit_code == 0, outcome
    assert manager.calls == ["restart ecs.service", "now active"]
    assert manager.units() == {"ecs.service": "active", "client.service": "active"}


def test_a_restart_that_fails_is_said(place: Place) -> None:
    parent_in(place, "/system.slice/ecs.service")
    manager = place.manager = Parent(place, ends="failed")
    manager.set(**{"ecs.service": "active"})
    outcome = carry_out.apply(Plan("x", "w", (restart_unit("ecs.service", "r", "4711:100"),)), place.node, ALL)
    assert "was restarted, and is failed" in outcome.events[0].note


def test_what_was_collected_meanwhile_needs_no_restart_nor_does_a_resumed_one_need_another(place: Place) -> None:
    parent_in(place, "/system.slice/ecs.service")
    assert place.manager is not None
    step = restart_unit("ecs.service", "r", "4711:100")
    assert uncollected(place.node.root, 4711, 100) == 2
    assert not kind_of(step).done(step, place.node)
    process(place.root, 4711, 1, start=900)  # another process of that PID
    assert kind_of(step).done(step, place.node)
    process(place.root, 4711, 1)
    collect(place)
    assert kind_of(step).done(step, place.node)
    assert carry_out.apply(Plan("x", "w", (step,)), place.node, ALL).events[0].note == carry_out.ALREADY
    assert kind_of(step).apply(step, place.node, {}, "t") == "its children are collected"
    assert place.manager.calls == []
    with pytest.raises(Refused, match="named by its PID and its start"):
        kind_of(step).done(restart_unit("ecs.service", "r", "1:1"), place.node)


def test_a_process_that_has_nobody_to_collect_is_not_told(place: Place) -> None:
    parent_in(place, "/batch")
    (step,) = offered(place).steps
    assert not kind_of(step).done(step, place.node)
    collect(place)
    assert kind_of(step).done(step, place.node)
    os.rename(place.root / "proc/4711", place.root / "proc/gone")
    assert kind_of(step).done(step, place.node)
