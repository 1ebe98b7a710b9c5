"""A container that is held back by its own quota."""

import pytest

from exhume.lab import workshop
from exhume.lab.scenarios.throttling import SCENARIOS, limit
from exhume.lab.tenant import Tenant, without
from tests.lab.runs import broken, needs_root, play

pytestmark = pytest.mark.ci

(SCENARIO,) = SCENARIOS


@needs_root
def test_it_does_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    truth = play(SCENARIO, 8, 500)
    assert broken(truth) == []
    assert truth["measured"]["throttled_periods"] <= truth["measured"]["periods"]
    (culprit,) = truth["truth"]["culprits"]
    assert culprit.startswith(f"{truth['run']}/")


@needs_root
@pytest.mark.skipif(bool(without("cpu", "memory")), reason="no cpu or memory controller here")
def test_a_tenant_has_one_name_in_all_hierarchies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    with workshop.Lab() as lab:
        tenant = Tenant(lab, "web", "service")
        assert {group.path for group in tenant.groups} == {f"/{lab.name}/web/service"}
        pid = tenant.work("tick", "lab-tick").pid
        for group in tenant.groups:
            assert str(pid) in (group.directory / "cgroup.procs").read_text().split()


@needs_root
@pytest.mark.skipif(bool(without("cpu")), reason="no cpu controller here")
def test_a_quota_is_set_as_the_hierarchy_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workshop.SWITCH, "1")
    with workshop.Lab() as lab:
        group = lab.cgroup("cpu", "limited")
        limit(group, 30_000, 90_000)
        if group.hierarchy.version == 2:
            assert (group.directory / "cpu.max").read_text().split() == ["30000", "90000"]
        else:
            assert (group.directory / "cpu.cfs_quota_us").read_text().strip() == "30000"
            assert (group.directory / "cpu.cfs_period_us").read_text().strip() == "90000"


def test_a_controller_that_is_nowhere_is_named() -> None:
    assert without("no-such-controller") == "it takes a cgroup hierarchy with the no-such-controller controller"
    assert without() == ""
