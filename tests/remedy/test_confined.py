"""Leaked directories are cgroups of this node and nothing else, whatever a report says: on real directories, which stay."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.report import Report, as_json, from_json
from exhume.errors import ExhumeError, Refused
from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner
from exhume.remedy.plan_model import Plan
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import cgroups, cgroups_claimed, kind_of
from exhume.remedy.steps.cgroups import remove_empty_cgroups
from tests import zombies
from tests.diagnosis.findings.facts import finding
from tests.diagnosis.made import report
from tests.remedy.nodes import FileManager, node

MOUNT = str(zombies.MEMORY)
NO_CGROUPS = zombies.unavailable()
on_cgroups = pytest.mark.skipif(bool(NO_CGROUPS), reason=NO_CGROUPS or "-")
POD = "12345678-9abc-def0-1234-56789abcdef0"
PIECES = (
    "/",
    "/sshd-x",
    "/../../../..{}",
    "/.",
    "//",
    "x",
    "/\0",
    "/\ud800",
    "/" + "a" * 5000,
)


def real(manager: FileManager | None = None) -> Node:
    return Node(Root(), manager, Operations())


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "SETTLE_S", 0.05)


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Path]:
    """A directory of ours with empty ones in it, as /run has sshd's."""
    (tmp_path / "sshd-x/sshd").mkdir(parents=True)
    yield tmp_path
    assert (tmp_path / "sshd-x/sshd").is_dir()


def hostile(subject: str, directory: str) -> Report:
    return from_json(json.loads(json.dumps(as_json(report(finding(CgroupDirsLeak, subject=subject, directory=directory))))))


@pytest.mark.parametrize("mount", ["{}", MOUNT])
@pytest.mark.parametrize("subject", PIECES)
def test_a_report_that_names_other_directories_makes_no_step(empty: Path, mount: str, subject: str) -> None:
    path = subject.format(empty)
    directory = mount.format(empty) + ("" if path == "/" else path)
    if (directory, path) == (MOUNT, "/"):
        return  # that one is what a report may well say
    with Directory("/") as tree:
        planner = Planner(real(), tree, Protection(read_units(tree)))
        plan = planner.plan("cgroup-dirs-leak", hostile(path, directory))
    assert not plan.steps
    if (mount, path) == (MOUNT, "/sshd-x"):
        assert plan.settled == (f"no directory is left below {MOUNT}/sshd-x",)
    else:
        assert any(
            why in plan.relief[0].text for why in ("no cgroup hierarchy", "is no path of a cgroup", "in which hierarchy")
        )


@pytest.mark.parametrize("subject", PIECES)
def test_a_step_from_anywhere_that_leads_elsewhere_is_refused(empty: Path, subject: str) -> None:
    path = subject.format(empty)
    for mount in (str(empty), f"{MOUNT}/../../../..{empty}", MOUNT):
        if mount == MOUNT and path in ("/", "/sshd-x"):
            continue
        step = remove_empty_cgroups(mount, (path,), "it leaked")
        with pytest.raises(Refused, match="nothing was changed"):
            carry_out.apply(Plan("x", "t", (step,)), real(), Consent(True, True))
        for act in (
            lambda: kind_of(step).before(step, real()),  # noqa: B023
            lambda: kind_of(step).apply(step, real(), {}, "t"),  # noqa: B023
            lambda: kind_of(step).preview(step, real()),  # noqa: B023
        ):
            with pytest.raises(ExhumeError):
                act()


def test_what_looks_like_cgroups_and_is_no_such_file_system_stays(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = empty / "sys/fs/cgroup/memory"
    (memory / "left/inner").mkdir(parents=True)
    (memory / "memory.usage_in_bytes").touch()
    monkeypatch.setattr(Root, "same_kernel", lambda self: True)
    step = remove_empty_cgroups("/sys/fs/cgroup/memory", ("/left",), "it leaked")
    for act in (lambda: kind_of(step).before(step, node(empty)), lambda: kind_of(step).apply(step, node(empty), {}, "t")):
        with pytest.raises(Refused, match="is no directory of a cgroup file system"):
            act()
    assert (memory / "left/inner").is_dir()


def below(parent: Path) -> str:
    return "/" + str(parent.relative_to(zombies.MEMORY))


def removed(parent: Path, manager: FileManager | None = None) -> list[str]:
    """What of it is left."""
    step = remove_empty_cgroups(MOUNT, (below(parent),), "they leaked")
    kind_of(step).apply(step, real(manager), {}, "t")
    return sorted(str(Path(path, name).relative_to(parent)) for path, names, _ in os.walk(parent) for name in names)


@on_cgroups
def test_what_is_mounted_over_a_group_is_not_entered() -> None:
    with zombies.directories(1, "confined") as parent:
        (parent / "over").mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", parent / "over"], capture_output=True).returncode:
            pytest.skip("nothing can be mounted here")
        try:
            (parent / "over/empty").mkdir()
            assert removed(parent) == ["over", "over/empty"]
        finally:
            subprocess.run(["umount", parent / "over"], check=True)


@on_cgroups
def test_groups_with_limits_and_those_of_the_kubelet_stay() -> None:
    with zombies.directories(1, "confined") as parent:
        for name in ("kubepods/burstable", "kubepods/besteffort", "kept", "free"):
            (parent / name).mkdir(parents=True)
        limit = "memory.limit_in_bytes" if (parent / "kept/memory.limit_in_bytes").exists() else "memory.max"
        (parent / "kept" / limit).write_text("1048576")
        assert removed(parent) == ["kept", "kubepods", "kubepods/besteffort", "kubepods/burstable"]
        (parent / "kept" / limit).write_text("-1" if "limit" in limit else "max")
        assert "kept" not in removed(parent)


@on_cgroups
def test_a_pods_group_stays_where_the_kubelets_pods_are_not_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pods = tmp_path / "pods"
    monkeypatch.setattr(cgroups_claimed, "PODS", str(pods).lstrip("/"))
    with zombies.directories(1, "confined") as parent:
        (parent / f"pod{POD}").mkdir()
        assert removed(parent) == [f"pod{POD}"]
        pods.mkdir()
        assert removed(parent) == [f"pod{POD}"]
        (pods / POD).mkdir()
        (pods / "another").mkdir()
        assert removed(parent) == [f"pod{POD}"]
        (pods / POD).rmdir()
        assert removed(parent) == []


@on_cgroups
def test_the_group_of_a_protected_unit_stays_though_it_is_down(tmp_path: Path) -> None:
    manager = FileManager(tmp_path, tmp_path / "manager")
    manager.set()
    with zombies.directories(1, "confined") as parent:
        (parent / "kubelet.service/x").mkdir(parents=True)
        (parent / "down.service/x").mkdir(parents=True)
        assert removed(parent, manager) == ["kubelet.service", "kubelet.service/x"]
