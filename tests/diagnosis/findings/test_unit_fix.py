"""`exhume fix` is offered for the node's own units. A user's manager or a container may have one of the same name."""

from typing import Any

import pytest

from exhume.diagnosis.findings import crash_loop, memcg_leak
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.kind import Case, Kind
from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts
from exhume.diagnosis.findings.unit_fix import fix_unit
from exhume.diagnosis.findings.unused_agent import UnusedAgent
from tests.diagnosis.findings.facts import facts, finding
from tests.recording.made import NODE

UNIT = "ecs.service"
OTHERS = (
    f"/docker/{'0123456789abcdef' * 4}/system.slice/ecs.service",
    "/user.slice/user-7.slice/user@7.service/app.slice/ecs.service",
    "/machine.slice/systemd-nspawn@box.service/payload/system.slice/ecs.service",
    *(
        "/lxc.payload.web/system.slice/ecs.service",
        "/lxc/100/ns/ecs.service",
        "/nomad/x/ecs.service",
        "/firecracker/x/ecs.service",
    ),
)
OF: dict[type[Facts], tuple[Kind[Any], dict[str, Any]]] = {
    MemcgLeak: (memcg_leak.KIND, {"owner": PlaceOwner(unit=UNIT)}),
    CrashLoop: (crash_loop.KIND, {"unit_name": UNIT}),
}


@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("cgroup", [*OTHERS, "/system.slice/ecs.service", ""])
def test_only_the_node_s_own_units_are_offered_to_be_fixed(of: type[Facts], cgroup: str) -> None:
    kind, given = OF[of]
    found = finding(of, "critical", UNIT, **{**given, "path" if of is MemcgLeak else "cgroup": cgroup})
    case = Case(NODE, (found, finding(UnusedAgent, "critical", UNIT, unit_name=UNIT)), ())
    said = [*(step.text for step in kind.steps(found, case)), *(one.text for one in kind.advice(found, case))]
    offered = [one.target for one in kind.remedies(found, case) if one.id == "fix"]
    assert any("exhume fix" in text for text in said) is (cgroup not in OTHERS)
    assert offered == ([] if cgroup in OTHERS else [UNIT])


@pytest.mark.parametrize("name", ["user.slice", "a b", "session-1.scope", "", "/ecs.service", "x\x1b.service"])
def test_what_is_no_unit_that_can_be_switched_off_is_not_offered(name: str) -> None:
    assert not [*fix_unit(facts(MemcgLeak, "x"), name)]
