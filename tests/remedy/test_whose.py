"""Units of users and of containers bear the names of the node's: they are named, and the node's are left alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.makers import Maker
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.subjects import Process
from exhume.errors import ExhumeError, Refused
from exhume.host.owners import own_unit, owner
from exhume.remedy.steps.cgroups_claimed import Claims
from exhume.remedy.whose import elsewhere, not_a_unit, units
from tests.diagnosis.findings.facts import finding
from tests.examples import examples
from tests.remedy.nodes import FileManager
from tests.remedy.test_plan import AGENT, LIB, Place, kinds, place, report

__all__ = ["place"]  # a fixture

OWNER = PlaceOwner(unit="ecs.service")
AGENTD = Process("agentd", 7)
ID = "0123456789abcdef" * 4
POD = "pod12345678-1234-1234-1234-123456789abc"
THEIRS = {
    "/user.slice/user-1000.slice/user@1000.service/app.slice/ecs.service": "of the user 1000, not of the node: systemctl",
    f"/docker/{ID}/system.slice/ecs.service": "inside container 0123456789ab, not of the node",
    f"/system.slice/docker-{ID}.scope/system.slice/ecs.service": "inside container 0123456789ab",
    f"/kubepods/burstable/{POD}/{ID}/ecs.service": "inside container 0123456789ab of pod 12345678",
    "/machine.slice/systemd-nspawn@box.service/payload/system.slice/ecs.service": "inside systemd-nspawn@box.service",
    "/machine.slice/machine-box.scope/system.slice/ecs.service/inner": "inside machine-box.scope",
    "/lxc.payload.web/system.slice/ecs.service": "inside /lxc.payload.web, not of the node",
    "/lxc.payload.x.slice/ecs.service": "inside /lxc.payload.x.slice",
    "/lxc.monitor.web/ecs.service": "inside /lxc.monitor.web",
    "/lxc/100/ns/system.slice/ecs.service": "inside /lxc/100/ns",
    "/lxc/web/ecs.service": "inside /lxc/web",
    "/nomad/job/ecs.service": "inside /nomad/job",
    "/nomad.slice/share.slice/ecs.service": "inside /nomad.slice/share.slice",
    "/firecracker/vm/system.slice/ecs.service": "inside /firecracker/vm",
    "/garden/box/system.slice/ecs.service": "inside /garden/box",
    "/box/payload/system.slice/ecs.service": "inside /box/payload",
    "/libpod_parent/x/ecs.service": "inside /libpod_parent/x",
    "/kubepods/burstable/x/system.slice/ecs.service": "inside /kubepods/burstable/x",
    "/system.slice/box.service/lxc/100/ecs.service": "inside box.service",
    "/system.slice/../lxc/ecs.service": "inside /system.slice/../lxc",
    "/a-b.slice/ecs.service": "inside /a-b.slice",
    "/system.slice/other.slice/ecs.service": "inside /system.slice/other.slice",
    "/-.slice/ecs.service": "inside /-.slice",
    "/system.slice/box.socket/ecs.service": "inside box.socket",
    "/system.slice/box.mount/system.slice/ecs.service": "inside box.mount",
    "/system.slice/box.swap/ecs.service": "inside box.swap",
}


@pytest.mark.parametrize("path", THEIRS)
def test_the_nodes_unit_of_the_same_name_is_left_alone(place: Place, path: str) -> None:
    leak = finding(MemcgLeak, subject=path, owner=OWNER)
    plan = place.plan("node", report(leak))
    assert not [step for step in plan.steps if step.kind != "purge"]
    assert any(THEIRS[path] in one.text for one in plan.relief)
    for target in (path, f"/sys/fs/cgroup/memory{path}", f"/sys/fs/cgroup{path}"):
        with pytest.raises(Refused, match="not of the node"):
            place.plan(target)
    with pytest.raises(Refused, match="not of the node"):  # by the name that the report gives it
        place.plan("ecs.service", report(leak))


@pytest.mark.parametrize(
    "path",
    [
        *("/system.slice/ecs.service", "/system.slice/ecs.service/inner", "/ecs.service", "/custom.slice/ecs.service"),
        *("/system.slice/system-a.slice/system-a-b.slice/ecs.service", "/system.slice/system-x\\x2dy.slice/ecs.service"),
    ],
)
def test_the_nodes_own_is_found(place: Place, path: str) -> None:
    assert elsewhere(path) == ""
    assert ("stop-unit", "ecs.service") in kinds(place.plan(path))


@pytest.mark.parametrize("path", [*THEIRS, "/docker/<id>/system.slice/ecs.service", "/user.slice/user@*.service/ecs.service"])
@pytest.mark.parametrize("cgroup", ["path", "example", "home", "made in", "loops"])
def test_the_nodes_unit_is_left_alone_where_a_cgroup_of_the_finding_is_anothers(place: Place, path: str, cgroup: str) -> None:
    """As detectors find it: the subject is the unit's name alone, or a place that a program in it leaks into."""
    for subject in ("ecs.service", "/batch/<id>"):
        found: dict[str, Finding[Facts]] = {
            "path": finding(MemcgLeak, subject=subject, owner=OWNER, path=path),
            "example": finding(MemcgLeak, subject=subject, owner=PlaceOwner(unit="ecs.service", example=path)),
            "home": finding(MemcgLeak, subject=subject, owner=OWNER, home=path),
            "made in": finding(MemcgLeak, subject=subject, maker=Maker(process=AGENTD, cgroup=path, unit="ecs.service")),
            "loops": finding(CrashLoop, subject=subject, unit_name="ecs.service", cgroup=path),
        }
        seen = report(found[cgroup], cause=found[cgroup].kind)
        plan = place.plan("node", seen)
        assert not [step for step in plan.steps if step.kind != "purge"]
        assert any("not of the node" in one.text for one in plan.relief)
        with pytest.raises(Refused, match="not of the node"):
            place.plan("f1", seen)


def test_a_group_that_is_not_the_one_systemd_keeps_the_unit_in_is_anothers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its form is the node's; a running systemd knows better."""
    monkeypatch.setattr(FileManager, "control_group", lambda self, unit: f"/apps.slice/{unit}")
    for path in ("/system.slice/ecs.service", "/ecs.service/inner"):
        with pytest.raises(Refused, match=r"has its processes in /apps.slice/ecs.service, not in"):
            place.plan(path)
        leak = finding(MemcgLeak, subject="ecs.service", owner=PlaceOwner(example=path))
        plan = place.plan("node", report(leak))
        assert not [step for step in plan.steps if step.kind != "purge"]
        assert any("that is another's" in one.text for one in plan.relief)
    assert ("stop-unit", "ecs.service") in kinds(place.plan("/apps.slice/ecs.service/job-1"))


@pytest.mark.parametrize("hand", [True, False])
def test_a_program_elsewhere_that_makes_groups_is_named_where_it_is(place: Place, hand: bool) -> None:
    """What it makes for others is not its own affair."""
    path = f"/docker/{ID}/system.slice/ecs.service"
    leak = finding(MemcgLeak, subject="/batch/<id>", maker=Maker(process=AGENTD, cgroup=path, hand=hand))
    plan = place.plan("node", report(leak))
    assert not [step for step in plan.steps if step.kind != "purge"]
    assert ("is no unit" if hand else "inside container 0123456789ab, not of the node") in plan.relief[0].text


def test_who_made_the_groups_of_a_container_is_meant_and_not_what_is_in_it(place: Place) -> None:
    place.put(f"{LIB}/inner.service", AGENT)
    maker = Maker(process=AGENTD, unit="ecs.service")
    leak = finding(MemcgLeak, subject=f"/docker/{ID}/system.slice/inner.service", maker=maker)
    stopped = [target for kind, target in kinds(place.plan("node", report(leak))) if kind == "stop-unit"]
    assert stopped == ["ecs.service"]


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (f"/docker/{ID}", "is a container, which docker starts for somebody"),
        (f"/kubepods/{POD}", "its workload in the cluster"),
        ("/batch/job-7", "is no unit: what starts it (a unit, cron, a program)"),
    ],
)
def test_what_is_no_unit_is_named_by_what_it_is(place: Place, subject: str, said: str) -> None:
    plan = place.plan("node", report(finding(MemcgLeak, subject=subject), culprits=(subject,)))
    assert said in plan.relief[0].text
    assert not [step for step in plan.steps if step.kind != "purge"]
    assert not_a_unit(subject, "x.service") == ""


PARTS = st.sampled_from(
    [*("system.slice", "user.slice", "ecs.service", "user@7.service", "a.scope", "x.mount", "payload", ID, POD, "docker", "")]
)


@given(st.lists(PARTS | st.text(max_size=9), max_size=7).map("/".join))
def test_any_path_has_one_that_is_the_nodes_at_most(path: str) -> None:
    """What is below a unit or a container is never the node's, whatever is between."""
    held = elsewhere(f"/user@7.service/{path}/ecs.service")
    assert "not of the node" in held
    assert "not of the node" in elsewhere(f"/docker/{ID}/{path}/ecs.service")
    assert "\x1b" not in elsewhere(path)
    assert set(units(path)) <= set(path.split("/"))


UNIT_TYPES = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")
DIRECTORIES: st.SearchStrategy[str] = st.from_regex(r"[a-z0-9@.:_-]{1,12}", fullmatch=True).filter(
    lambda name: not str(name).endswith(UNIT_TYPES)
)


@given(
    st.lists(DIRECTORIES, min_size=1, max_size=3), st.sampled_from(["", "system.slice/", "user.slice/", "a.slice/a-b.slice/"])
)
def test_a_unit_below_any_directory_that_is_not_systemds_is_a_tenants(above: list[str], slices: str) -> None:
    path = f"/{'/'.join(above)}/{slices}ecs.service"
    assert "not of the node" in elsewhere(path)
    assert owner(path).unit == own_unit(path)[0] == ""
    assert own_unit(f"/system.slice/x.service/{path}")[0] == "x.service"


@settings(max_examples=examples(30))
@given(st.text(max_size=40))
def test_no_target_below_a_users_manager_reaches_the_nodes_unit(text: str) -> None:
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory() as made:
        there = Place(Path(made))
        there.put(f"{LIB}/ecs.service", AGENT)
        with pytest.raises(ExhumeError):
            there.plan(f"/user.slice/user@7.service/{text.replace('.', '')}/ecs.service")


@pytest.mark.parametrize(
    ("path", "claimed"),
    [
        ("/user.slice/user-7.slice/user@7.service/app.slice/x.service", True),
        ("/user.slice/user-8.slice/user@8.service/app.slice/x.service", True),  # protected by name
        ("/system.slice/ecs.service/inner", True),
        ("/system.slice/other.service", False),
        (f"/docker/{ID}/system.slice/x.service", True),
        (f"/docker/{ID}", False),
        ("/batch/left", False),
    ],
)
def test_an_empty_group_of_somebody_who_lives_is_not_removed(place: Place, path: str, claimed: bool) -> None:
    assert place.manager is not None
    place.manager.set(**{"user@7.service": "active", "ecs.service": "activating"})
    assert Claims(place.node).unit_or_pod(path) is claimed
