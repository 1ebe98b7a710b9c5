"""From a target or a report to steps: what is in a plan, in which order, and what is left to people."""

import json
import os
import signal
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.cpu_full import CpuFull
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.defunct_processes import DefunctProcesses
from exhume.diagnosis.findings.kind import Remedy
from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.report import Report
from exhume.errors import Refused, UsageError
from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.defunct import offers, parents
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.plan import MOST_PLACES, Planner, Wishes
from exhume.remedy.plan_model import Limits, Plan, Relief, Step, from_json, to_json
from exhume.remedy.plan_target import is_finding
from exhume.remedy.plan_words import document, precondition, undo
from exhume.remedy.protected_plan import known_agents
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import KINDS, reversible
from exhume.remedy.steps.processes import signal_parent
from tests.diagnosis import made
from tests.diagnosis.findings.facts import finding
from tests.remedy.nodes import FileManager, node
from tests.remedy.pretended import pretend_cgroups

ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
AGENT = "[Service]\nExecStart=/usr/libexec/agent\nRestart=always\nRestartSec=10s\nTimeoutStopSec=5min\n"


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "etc/systemd/system").mkdir(parents=True)
        (root / "usr/lib/systemd/system").mkdir(parents=True)
        self.manager: FileManager | None = FileManager(root, root / "manager")
        self.manager.set()

    def put(self, path: str, text: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def link(self, path: str, target: str) -> None:
        place = self.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)

    @property
    def node(self) -> Node:
        return node(self.root, manager=self.manager)

    def plan(self, target: str, report: Report | None = None, wishes: Wishes | None = None) -> Plan:
        there = node(self.root, manager=self.manager) if self.manager else replace(self.node, manager=None)
        with Directory(str(self.root)) as tree:
            return Planner(there, tree, Protection(read_units(tree), known_agents()), wishes).plan(target, report)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.put(f"{LIB}/ecs.service", AGENT + "[Install]\nWantedBy=multi-user.target\n")
    made.put(f"{LIB}/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    made.link(f"{ETC}/multi-user.target.wants/ecs.service", f"{LIB}/ecs.service")
    return made


def kinds(plan: Plan) -> list[tuple[str, str]]:
    return [(step.kind, step.target) for step in plan.steps]


def report(
    *findings: Finding[Facts],
    cause: str | None = "memcg-leak",
    culprits: tuple[str, ...] = ("ecs.service",),
    chain: Sequence[Finding[Facts]] | None = None,
) -> Report:
    return made.report(*findings, cause=cause, culprits=culprits, summary="This node starves", chain=chain)


def loop(unit: str) -> Finding[CrashLoop]:
    return finding(CrashLoop, "critical", unit)


def leaked_directories(path: str, directory: str) -> Finding[CgroupDirsLeak]:
    return finding(CgroupDirsLeak, "critical", path, directory=directory)


LEAK: Final = finding(
    MemcgLeak, "critical", "/system.slice/ecs.service", owner=PlaceOwner(unit="ecs.service"), home="/system.slice"
)


def test_a_unit_is_stopped_then_disabled_by_its_links_then_masked_then_systemd_reads_it(place: Place) -> None:
    place.link(f"{ETC}/agent.service", f"{LIB}/ecs.service")
    plan = place.plan("ecs.service")
    assert kinds(plan) == [
        ("stop-unit", "ecs.service"),
        ("remove-link", f"{ETC}/agent.service"),
        ("remove-link", f"{ETC}/multi-user.target.wants/ecs.service"),
        ("make-link", f"{ETC}/ecs.service"),
        ("reload", "systemd"),
    ]
    assert plan.steps[0].deadline_s == 330  # its own TimeoutStopSec= and half a minute
    assert plan.steps[2].link == f"{LIB}/ecs.service"
    assert plan.limits == Limits(1, 1)
    assert all(step.reason for step in plan.steps)


@pytest.mark.parametrize("name", ["ecs", "agent.service", f"{LIB}/ecs.service", "/system.slice/ecs.service/inner"])
def test_a_unit_is_found_by_any_of_its_names(place: Place, name: str) -> None:
    place.link(f"{ETC}/agent.service", f"{LIB}/ecs.service")
    assert ("stop-unit", "ecs.service") in kinds(place.plan(name))


def test_a_unit_that_an_alias_hid_is_told_before_the_alias_is_removed(place: Place) -> None:
    place.link(f"{ETC}/agent.service", f"{LIB}/ecs.service")
    assert not [relief for relief in place.plan("ecs.service").relief if relief.target == "agent.service"]
    place.put(f"{LIB}/agent.service", AGENT)
    (relief,) = (relief for relief in place.plan("ecs.service").relief if relief.target == "agent.service")
    assert f"{LIB}/agent.service is found by this name" in relief.text


def test_a_unit_whose_file_is_in_etc_is_masked_in_its_place(place: Place) -> None:
    place.put(f"{ETC}/own.service", AGENT)
    mask = next(step for step in place.plan("own.service").steps if step.kind == "make-link")
    assert (mask.target, mask.link, mask.over_file) == (f"{ETC}/own.service", "/dev/null", True)


def test_a_linked_unit_is_masked_in_place_of_the_link(place: Place) -> None:
    place.put("/opt/linked.service", AGENT)
    place.link(f"{ETC}/linked.service", "/opt/linked.service")
    assert kinds(place.plan("linked.service"))[1:] == [("make-link", f"{ETC}/linked.service"), ("reload", "systemd")]


def test_what_starts_it_is_stopped_first_and_silenced_too(place: Place) -> None:
    place.put(f"{LIB}/ecs.timer", "[Timer]\nOnBootSec=1\n")
    place.put(f"{LIB}/door.socket", "[Socket]\nListenStream=/run/x\nService=ecs.service\n")
    place.link(f"{ETC}/timers.target.wants/ecs.timer", f"{LIB}/ecs.timer")
    found = kinds(place.plan("ecs.service"))
    assert [target for kind, target in found if kind == "stop-unit"][-1] == "ecs.service"
    assert {target for kind, target in found if kind == "stop-unit"} == {"ecs.timer", "door.socket", "ecs.service"}
    assert ("remove-link", f"{ETC}/timers.target.wants/ecs.timer") in found
    assert {target for kind, target in found if kind == "make-link"} == {
        f"{ETC}/{name}" for name in ("ecs.timer", "door.socket", "ecs.service")
    }


def test_a_vendors_link_is_left_to_the_mask(place: Place) -> None:
    place.link(f"{LIB}/multi-user.target.wants/ecs.service", "../ecs.service")
    assert [target for kind, target in kinds(place.plan("ecs.service")) if kind == "remove-link"] == [
        f"{ETC}/multi-user.target.wants/ecs.service"
    ]


def test_what_stops_with_it_is_stopped_by_name_so_that_undo_starts_it(place: Place) -> None:
    assert place.manager is not None
    place.put(f"{LIB}/client.service", "[Unit]\nRequires=ecs.service\n[Service]\nExecStart=/bin/true\n")
    place.manager.set(**{"client.service": "active", "ecs.service": "active"})
    with pytest.raises(Refused, match=r"it is needed by client.service"):
        place.plan("ecs.service")
    assert kinds(place.plan("ecs.service", wishes=Wishes(force=True)))[:2] == [
        ("stop-unit", "client.service"),
        ("stop-unit", "ecs.service"),
    ]


def test_a_unit_that_comes_before_etc_cannot_be_masked_and_is_given_nothing_to_run(place: Place) -> None:
    place.put("/run/systemd/generator.early/early.service", AGENT)
    steps = place.plan("early.service").steps
    assert [step.kind for step in steps] == ["stop-unit", "write-file", "reload"]
    assert steps[1].target == f"{ETC}/early.service.d/zz-exhume.conf"
    assert b"ExecStart=\nExecStartPost=" in steps[1].content
    place.put("/run/systemd/transient/run-1.service", AGENT)
    assert place.plan("run-1.service").settled == ("run-1.service is down already",)
    assert place.manager is not None
    place.manager.set(**{"run-1.service": "active"})
    assert [step.kind for step in place.plan("run-1.service").steps] == ["stop-unit"]


def test_of_an_image_only_files_are_changed(place: Place) -> None:
    place.manager = None
    assert kinds(place.plan("ecs.service")) == [
        ("remove-link", f"{ETC}/multi-user.target.wants/ecs.service"),
        ("make-link", f"{ETC}/ecs.service"),
    ]


def test_a_drop_in_comes_after_all_others(place: Place) -> None:
    place.put(f"{ETC}/ecs.service.d/zz-last.conf", "[Service]\nRestart=always\n")
    step = place.plan("ecs.service", wishes=Wishes(keep="no-restart")).steps[0]
    assert step.target == f"{ETC}/ecs.service.d/zz-lastz-exhume.conf"
    assert b"Restart=no" in step.content
    for name in ("~.conf", "é.conf", "\udcff.conf"):  # no number of z's comes after these
        place.put(f"{ETC}/ecs.service.d/{name}", "[Service]\nRestart=always\n")
        ours = place.plan("ecs.service", wishes=Wishes(keep="no-restart")).steps[0].target
        assert os.fsencode(os.path.basename(ours)) > os.fsencode(name)
        place.put(ours, "[Service]\nRestart=on-failure\n")
        assert place.plan("ecs.service", wishes=Wishes(keep="no-restart")).steps[0].target == ours


def test_what_does_nothing_is_started_so_that_what_needs_it_goes_on(place: Place) -> None:
    assert place.manager is not None
    place.put(f"{LIB}/client.service", "[Unit]\nRequires=ecs.service\n[Service]\nExecStart=/bin/true\n")
    place.manager.set(**{"client.service": "active", "ecs.service": "activating"})
    assert kinds(place.plan("ecs.service", wishes=Wishes(keep="do-nothing"))) == [
        ("write-file", f"{ETC}/ecs.service.d/zz-exhume.conf"),
        ("reload", "systemd"),
        ("stop-unit", "client.service"),
        ("stop-unit", "ecs.service"),
        ("start-unit", "ecs.service"),
        ("start-unit", "client.service"),
    ]


@pytest.mark.parametrize("whose", ["ecs", "client"])
def test_what_conflicts_with_a_protected_unit_is_not_started(place: Place, whose: str) -> None:
    assert place.manager is not None
    place.put(f"{LIB}/client.service", f"[Unit]\nRequires=ecs.service\n{AGENT}")
    place.put(f"{ETC}/{whose}.service.d/x.conf", "[Unit]\nConflicts=kubelet.service\n")
    place.manager.set(**{"client.service": "active", "ecs.service": "activating"})
    with pytest.raises(Refused, match=rf"{whose}\.service is not started: {whose}\.service conflicts with kubelet\.service"):
        place.plan("ecs.service", wishes=Wishes(keep="do-nothing"))
    assert place.plan("ecs.service", wishes=Wishes(keep="no-restart")).steps


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("nobody.service", "there is no unit nobody.service"),
        ("ecz.service", "did you mean ecs.service"),
        ("w@.service", "is a template: name one of its instances"),
        ("a b", "is not the name of a unit"),
        ("/no/such/thing", "neither a file nor a cgroup"),
        ("/etc/passwd", "the file of no unit"),
        ("", "is not the name of a unit"),
        ("node", "needs a report"),
        ("memcg-leak", "of a finding the report must be named"),
    ],
)
def test_what_is_not_there_is_said(place: Place, target: str, said: str) -> None:
    place.put(f"{LIB}/w@.service", AGENT)
    place.put("/etc/passwd", "")
    place.manager = None
    with pytest.raises(UsageError, match=said):
        place.plan(target)


@given(st.text())
def test_any_text_is_a_target_or_a_sentence(text: str) -> None:
    with tempfile.TemporaryDirectory() as made:
        place = Place(Path(made))
        place.manager = None
        with pytest.raises((UsageError, Refused)):
            place.plan(text)


def test_the_verdict_names_whom_the_plan_is_about(place: Place) -> None:
    plan = place.plan("node", report(LEAK))
    assert kinds(plan)[0] == ("stop-unit", "ecs.service")
    assert plan.why == "This node starves"
    assert plan.steps[0].reason == LEAK.summary


@pytest.mark.parametrize("target", ["f1", "memcg-leak"])
def test_a_finding_is_a_target_by_its_id_and_its_kind(place: Place, target: str) -> None:
    assert is_finding(target)
    assert ("make-link", f"{ETC}/ecs.service") in kinds(place.plan(target, report(LEAK)))


@pytest.mark.parametrize("target", ["ecs.service", "cgroup-dirs-leak", "defunct-processes", "\0"])
@pytest.mark.parametrize("cause", ["memcg-leak", "defunct-processes"])
def test_a_remedy_for_something_that_is_not_found_makes_no_step(place: Place, target: str, cause: str) -> None:
    """A report may be anyone's."""
    found = report(finding(CpuFull, subject="node"), cause=cause, culprits=("ecs.service",))
    offered = (Remedy("fix", target, "exhume fix", "x"), Remedy("purge-zombies", target, "exhume zombies purge", "x"))
    plan = place.plan("node", replace(found, verdict=replace(found.verdict, remedies=offered)))
    assert {step.kind for step in plan.steps} <= {"purge"}


def test_a_finding_that_the_report_does_not_have_is_said(place: Place) -> None:
    with pytest.raises(UsageError, match=r"there is no finding f9 in the report; it has memcg-leak$"):
        place.plan("f9", report(LEAK))


def test_leaked_directories_are_removed_where_they_are(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = "/sys/fs/cgroup/memory/kubepods"
    (pretend_cgroups(place.root, monkeypatch) / "kubepods/left").mkdir(parents=True)
    leaked = leaked_directories("/kubepods", directory)
    (step,) = place.plan("node", report(leaked, cause="cgroup-dirs-leak")).steps
    assert (step.kind, step.target, step.paths, reversible(step)) == (
        "remove-empty-cgroups",
        "/sys/fs/cgroup/memory",
        ("/kubepods",),
        False,
    )


@pytest.mark.parametrize("directory", ["", "x", "/elsewhere"])
def test_directories_of_which_the_report_does_not_say_where_they_are_are_left(place: Place, directory: str) -> None:
    leaked = leaked_directories("/kubepods", directory)
    plan = place.plan("node", report(leaked, cause="cgroup-dirs-leak"))
    assert not plan.steps
    assert "in which hierarchy" in plan.relief[0].text


def test_for_a_protected_culprit_relief_is_told_and_nothing_is_done(place: Place) -> None:
    found = loop("kubelet.service")
    plan = place.plan("node", report(found, cause="crash-loop", culprits=("kubelet.service",)))
    assert not [step for step in plan.steps if step.kind != "purge"]
    assert any("is left alone" in one.text for one in plan.relief)
    assert any("--print-template kubelet" in one.text for one in plan.relief)
    with pytest.raises(Refused, match=r"kubelet.service is left alone"):
        place.plan("f1", report(found, cause="crash-loop"))


@pytest.mark.parametrize(
    ("unit", "said"),
    [
        ("lp.service", "the report has no remedy for lp.service: exhume fix lp.service plans by its name"),
        ("lp.mount", "lp.mount is no service, socket, timer or path of this node's systemd"),
    ],
)
def test_a_unit_without_a_remedy_in_the_report_is_left_to_people(place: Place, unit: str, said: str) -> None:
    place.put(f"{LIB}/{unit}", AGENT)
    plan = place.plan("node", report(LEAK, loop(unit)))
    assert unit not in [step.target for step in plan.steps]
    assert [said in one.text for one in plan.relief if one.target == unit] == [True]


def test_what_is_no_unit_is_left_to_people(place: Place) -> None:
    plan = place.plan("node", report(finding(MemcgLeak, subject="/docker/abc"), culprits=("/docker/abc",)))
    assert "is no unit" in plan.relief[0].text


def test_a_plan_is_the_same_after_json_and_every_step_tells_what_it_needs(place: Place) -> None:
    plan = replace(place.plan("ecs.service"), limits=Limits(3, 2), settled=("x",), relief=(Relief("a", "b", "c"),))
    assert from_json(json.loads(json.dumps(to_json(plan)))) == plan
    told_of = document(plan, place.node)
    assert from_json(json.loads(json.dumps(told_of))) == plan
    assert "(link to /dev/null)" in json.dumps(told_of)
    assert told_of["limits"] == {"max_at_once": 3, "pause_when_failed": 2}


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if not type(kind).__module__.endswith("cluster")])
def test_every_kind_has_its_words(kind: str) -> None:
    step = Step(kind, "x", "r")
    assert precondition(step)
    assert bool(undo(step)) == reversible(step)


@pytest.mark.parametrize("limits", [[], {"max_at_once": 0}, {"pause_when_failed": True}, {"max_at_once": "1"}])
def test_limits_that_are_none_are_refused(limits: object) -> None:
    with pytest.raises(UsageError):
        from_json({"schema": "exhume.plan/1", "target": "x", "why": "y", "steps": [], "limits": limits})


@pytest.fixture
def defunct() -> Iterator[int]:
    """A child of ours that is dead and not collected."""
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    yield child
    os.waitpid(child, 0)


def test_a_defunct_process_is_told_by_its_parent_and_its_age(defunct: int) -> None:
    (mine,) = [one for one in parents(Root()) if one.pid == os.getpid()]
    assert mine.children >= 1
    assert 0 <= mine.oldest_s < 3600


def test_its_parent_is_told_and_nobody_pretends_to_kill_it(defunct: int, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.remedy.steps.processes.HEARS_S", 0.1)
    heard: list[int] = []
    before = signal.signal(signal.SIGCHLD, lambda number, frame: heard.append(number))
    try:
        with Directory(str(place.root)) as tree:
            steps, _ = offers(Root(), Protection(read_units(tree)), None)
        mine = next(step for step in steps if step.target.startswith(f"{os.getpid()}:"))
        kind, here = KINDS["signal-parent"], Node(Root(), None, Operations())
        assert kind.preview(mine, here) == f"kill -CHLD {os.getpid()}\n"
        note = kind.apply(mine, here, kind.before(mine, here), "")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert heard == [signal.SIGCHLD]
    assert note.endswith("of its children are left")  # this parent has heard, and not collected
    assert not reversible(mine)


@pytest.mark.parametrize("target", ["1:0", "", "x:1", "-5:1", "SELF:1", "4194303:1", "²:1"])
def test_another_process_than_the_one_that_was_meant_is_left_alone(target: str) -> None:
    step = replace(signal_parent(2, 1, "r"), target=target.replace("SELF", str(os.getpid())))
    with pytest.raises(Refused):
        KINDS["signal-parent"].before(step, Node(Root(), None, Operations()))


@pytest.mark.parametrize(
    "setting",
    [
        *("SuccessAction=reboot", "FailureAction=poweroff-force", "OnSuccess=reboot.target"),
        *("OnFailure=systemd-reboot.service", "OnSuccess=systemd-poweroff.service", "OnFailure=emergency.service"),
        *("OnSuccess=reboots.service", "JobTimeoutSec=90\nJobTimeoutAction=reboot-force"),
    ],
)
def test_what_takes_the_machine_down_when_it_ends_is_not_stopped(place: Place, setting: str) -> None:
    place.put(f"{LIB}/down.service", f"[Unit]\n{setting}\n{AGENT}")
    place.put(f"{LIB}/with.service", f"[Unit]\nPartOf=ecs.service\n{setting}\n{AGENT}")
    place.put(f"{LIB}/reboots.service", "[Service]\nType=oneshot\nExecStart=/usr/bin/systemctl --force reboot\n")
    with pytest.raises(Refused, match=r"down\.service takes the machine down when it ends"):
        place.plan("down.service")
    with pytest.raises(Refused, match=r"with\.service takes the machine down when it ends"):
        place.plan("ecs.service", wishes=Wishes(force=True))


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("OnSuccess=rival.service", "it starts rival.service then, and rival.service conflicts with kubelet.service"),
        ("OnFailure=pulls.service", "and rival.service, which pulls.service starts, conflicts with kubelet.service"),
        ("OnFailure=stops.service", "acts on kubelet.service, which is protected, when it ends"),
        ("OnFailure=maint.target\nOnFailureJobMode=isolate", "what else runs gives way"),
        ("OnFailure=notify.service\nOnFailureIsolate=yes", "what else runs gives way"),
        ("OnSuccess=notify.service\nOnSuccessJobMode=flush", "what else runs gives way"),
        ("OnFailure=notify.service\nOnSuccessJobMode=isolate", ""),
        ("OnFailure=notify.service\nOnFailureJobMode=replace", ""),
        ("OnFailureJobMode=isolate", ""),
        ("JobTimeoutAction=reboot", ""),
    ],
)
def test_what_is_started_when_it_ends_meets_no_protected_unit(place: Place, setting: str, told: str) -> None:
    place.put(f"{LIB}/rival.service", f"[Unit]\nConflicts=kubelet.service\n{AGENT}")
    place.put(f"{LIB}/pulls.service", f"[Unit]\nWants=rival.service\n{AGENT}")
    place.put(f"{LIB}/stops.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'systemctl stop kubelet'\n")
    place.put(f"{LIB}/notify.service", "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'systemctl status kubelet | mail root'\n")
    place.put(f"{LIB}/maint.target", "[Unit]\nAllowIsolate=yes\n")
    place.put(f"{LIB}/ends.service", f"[Unit]\n{setting}\n{AGENT}")
    if told:
        with pytest.raises(Refused, match=told):
            place.plan("ends.service", wishes=Wishes(force=True))
    else:
        assert ("stop-unit", "ends.service") in kinds(place.plan("ends.service"))


def test_a_start_limit_is_no_end(place: Place) -> None:
    place.put(f"{LIB}/down.service", f"[Unit]\nStartLimitAction=reboot\n{AGENT}")
    assert ("stop-unit", "down.service") in kinds(place.plan("down.service"))
    written = next(step for step in place.plan("down.service", wishes=Wishes(keep="start-limit")).steps if step.content)
    assert b"StartLimitAction=none" in written.content


def test_a_drop_in_makes_it_safe_to_stop(place: Place) -> None:
    place.put(f"{LIB}/down.service", f"[Unit]\nSuccessAction=reboot\n{AGENT}")
    assert place.manager is not None
    place.manager.set(**{"down.service": "active"})
    with pytest.raises(Refused, match=r"exhume fix down\.service --keep no-restart switches that off"):
        place.plan("down.service", wishes=Wishes(keep="do-nothing"))
    planned = place.plan("down.service", wishes=Wishes(keep="no-restart"))
    assert [step.kind for step in planned.steps] == ["write-file", "reload"]
    place.put(f"{ETC}/down.service.d/zz-exhume.conf", planned.steps[0].content.decode())
    assert ("stop-unit", "down.service") in kinds(place.plan("down.service"))
    again = place.plan("down.service", wishes=Wishes(keep="do-nothing"))
    assert [step.kind for step in again.steps] == ["write-file", "reload", "stop-unit", "start-unit"]
    assert b"SuccessAction=none" in again.steps[0].content


def test_what_may_be_a_unit_or_a_finding_and_is_neither_is_told_as_both(place: Place) -> None:
    with pytest.raises(UsageError, match=r"no finding my-agent in the report; .*; nor is there a unit my-agent\.service"):
        place.plan("my-agent", report(finding(MemcgLeak, subject="ecs.service")))
    place.manager = None
    with pytest.raises(UsageError, match=r"there is no unit nosuch\.service on this node$"):
        place.plan("nosuch")


def test_of_a_transient_unit_nothing_is_left_to_undo(place: Place) -> None:
    place.put("/run/systemd/transient/run-1.service", AGENT)
    assert place.manager is not None
    place.manager.set(**{"run-1.service": "active"})
    planned = place.plan("run-1.service")
    assert any("undo cannot start it again" in one.text for one in planned.relief if one.target == "run-1.service")
    assert [(step.target, reversible(step)) for step in planned.steps if step.kind == "stop-unit"] == [("run-1.service", False)]


def test_what_stops_a_transient_unit_with_it_is_confirmed_apart(place: Place) -> None:
    place.put("/run/systemd/transient/run-1.service", f"[Unit]\nBindsTo=ecs.service\n{AGENT}")
    place.put(f"{LIB}/client.service", f"[Unit]\nPartOf=ecs.service\n{AGENT}")
    assert place.manager is not None
    up = dict.fromkeys(("ecs.service", "run-1.service", "client.service"), "active")
    place.manager.set(**up)
    plan = place.plan("ecs.service", wishes=Wishes(force=True))
    assert {step.target for step in plan.steps if not reversible(step)} == set(up)
    assert [one.target for one in plan.relief if "undo cannot start it again" in one.text] == ["run-1.service"]
    outcome = carry_out.apply(plan, place.node, Consent(True, False))
    assert {event.step.target for event in outcome.of("skipped")} == set(up)
    assert place.manager.units() == up


def test_a_transient_unit_is_not_restarted_with_nothing_to_run(place: Place) -> None:
    place.put("/run/systemd/transient/run-1.service", f"[Unit]\nBindsTo=ecs.service\n{AGENT}")
    assert place.manager is not None
    place.manager.set(**{"ecs.service": "active", "run-1.service": "active"})
    for unit in ("run-1.service", "ecs.service"):
        plan = place.plan(unit, wishes=Wishes("do-nothing"))
        assert [step.kind for step in plan.steps] == ["write-file", "reload"]
        assert [one.target for one in plan.relief if "undo cannot start it again" in one.text] == ["run-1.service"]


def test_a_loop_that_the_verdict_does_not_blame_is_told_and_left_alone(place: Place) -> None:
    full = finding(CpuFull, "critical", "node")
    plan = place.plan("node", report(full, loop("lp.service"), cause="cpu-full", culprits=(), chain=(full,)))
    assert ("stop-unit", "lp.service") not in kinds(plan)
    told_of = next(one for one in plan.relief if one.target == "lp.service")
    assert told_of.text.endswith("exhume fix lp.service")
    assert not any(
        one.target == "ecs.service" and "does not blame" in one.text for one in place.plan("node", report(LEAK)).relief
    )


@pytest.mark.parametrize(
    ("line", "refused"),
    [
        ("ExecStop=/bin/systemctl stop kubelet", True),
        ("ExecStopPost=-/bin/sh -c 'sleep 1; systemctl restart node-agent.service'", True),
        ("ExecStop=/usr/bin/systemctl stop frr.service", True),
        ("ExecStop=/usr/bin/systemctl stop renamed", True),
        ("ExecStop=/usr/bin/systemctl stop 'kube*'", True),
        ("ExecStop=/bin/sh -c 'systemctl stop \"r[a-e]named*\"'", True),
        ("ExecStop=/usr/bin/systemctl stop below.service", True),
        ("ExecStop=/usr/bin/systemctl stop system.slice", True),
        ("ExecStop=/usr/sbin/service kubelet stop", True),
        ("ExecStop=/etc/init.d/kubelet stop", True),
        ("ExecStop=/usr/bin/python3 -c 'os.system(\"systemctl stop kube*\")'", True),
        ("ExecStop=/opt/stop.sh", True),
        ("ExecStop=/bin/sh -e /opt/stop.sh now", True),
        ("ExecStop=/opt/stop.py", True),
        ("ExecStop=/usr/bin/pkill -x kubelet", True),
        ("ExecStop=/usr/bin/killall dockerd", True),
        ("ExecStopPost=/bin/sh -c 'kill $$(pidof kubelet)'", True),
        ("ExecStop=/opt/good.sh", False),
        ("ExecStop=/usr/bin/pkill -f agent", False),
        ("ExecStop=/bin/sh -c 'pidof kubelet && agentctl stop'", False),
        ("ExecStop=/usr/bin/systemctl stop 'agent*'", False),
        ("ExecStop=/usr/bin/systemctl is-active kubelet", False),
        ("ExecStop=/usr/sbin/service agent stop", False),
        ("ExecStop=/opt/agent --service kubelet stop", False),
        ("ExecStop=/bin/sh -c 'systemctl stop agent.service; exit 0'", False),
        ("ExecStop=/bin/sh -c 'agentctl shutdown; logger reboot of kubelet'", False),
        ("ExecStop=/usr/bin/systemctl --no-block kill agent.service", False),
        ("ExecStop=/usr/bin/agent --stop --socket /run/dbus/socket", False),
    ],
)
def test_a_unit_whose_stop_acts_on_a_protected_one_is_not_stopped(place: Place, line: str, refused: bool) -> None:
    place.link(f"{ETC}/node-agent.service", f"{LIB}/kubelet.service")
    place.put(f"{LIB}/frr.service", AGENT)
    place.put(f"{LIB}/renamed.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    place.put(f"{LIB}/below.service", AGENT)
    place.put(f"{LIB}/sshd.service", "[Unit]\nBindsTo=below.service\n")
    place.put(f"{LIB}/stopper.service", f"{AGENT}{line}\n")
    place.put("opt/stop.sh", "#!/bin/sh\n# ends all\nif true; then\n  systemctl stop kubelet || true\nfi\n")
    place.put("opt/stop.py", "#!/usr/bin/python3\nrun(['systemctl', 'stop', 'kubelet'])\n")
    place.put("opt/good.sh", "#!/bin/sh\n# systemctl stop kubelet\nsystemctl is-active kubelet\nagentctl stop\n")
    if refused:
        with pytest.raises(Refused, match=r"stopper\.service acts on .*, which is protected, when it is stopped \(ExecStop"):
            place.plan("stopper.service", wishes=Wishes(force=True))
    else:
        assert ("stop-unit", "stopper.service") in kinds(place.plan("stopper.service"))


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/systemctl reboot",
        "/sbin/reboot",
        "/bin/sh -c 'sleep 1; /sbin/shutdown -r now'",
        "systemctl -f isolate x.target",
    ],
)
def test_a_unit_whose_stop_command_takes_the_machine_down_is_not_stopped(place: Place, line: str) -> None:
    place.put(f"{LIB}/stopper.service", f"{AGENT}ExecStopPost={line}\n")
    with pytest.raises(Refused, match=r"stopper\.service takes the machine down when it is stopped \(ExecStopPost="):
        place.plan("stopper.service", wishes=Wishes(force=True))


def test_what_is_left_to_people_is_bounded_whatever_a_report_says(place: Place) -> None:
    """A journal with more could not be read back."""
    gone = [loop(f"gone-{i}.service") for i in range(1001)]
    place.manager = None
    plan = place.plan("node", report(LEAK, *gone))
    assert [kind for kind, _ in kinds(plan)] == ["remove-link", "make-link"]
    assert len(plan.relief) == 101
    assert plan.relief[-1].target == "902 more"  # of 1,001, and of the image
    assert from_json(to_json(plan)) == plan
    assert len(place.plan("node", report(LEAK, *gone, chain=(LEAK,))).relief) == 101
    below = [loop(f"off-{i}.service") for i in range(150)]
    for one in below:
        place.link(f"{ETC}/{one.subject}", "/dev/null")
    settled = place.plan("crash-loop", report(*below)).settled
    assert (len(settled), settled[-1]) == (101, "and 50 more")


def test_a_node_is_looked_at_once_however_often_a_report_says_the_same(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def gone(step: Step, node: Node) -> bool:
        looked.append(step.paths[0])
        return True

    def none(root: Root) -> tuple[()]:
        looked.append("processes")
        return ()

    monkeypatch.setattr("exhume.remedy.defunct.parents", none)
    monkeypatch.setattr(KINDS["remove-empty-cgroups"], "done", gone)
    dead = finding(DefunctProcesses, subject="node")
    leaks = [leaked_directories(f"/x{i}", f"/sys/fs/cgroup/x{i}") for i in range(MOST_PLACES + 2)]
    plan = place.plan("node", report(dead, dead, leaks[0], *leaks, dead, cause=None))
    assert looked.count("processes") == 1
    assert [one for one in looked if one != "processes"] == [f"/x{i}" for i in range(MOST_PLACES)]
    assert [one.target for one in plan.relief] == [f"/x{MOST_PLACES}", f"/x{MOST_PLACES + 1}"]
    assert "no more are looked at" in plan.relief[0].text
