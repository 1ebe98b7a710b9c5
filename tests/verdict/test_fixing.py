"""`exhume fix` is offered for the node's own units. A user's manager or a container may have one of the same name."""

import pytest

from exhume.findings.model import Evidence, Finding
from exhume.verdict.hypotheses import crash_loop, memcg_leak
from exhume.verdict.hypotheses.fixing import fix_unit
from exhume.verdict.hypotheses.model import Case
from tests.recording.made import NODE

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


def found(kind: str, cgroup: str, subject: str = "ecs.service") -> Finding:
    evidence = (Evidence("unit", "ecs.service", "", "systemd"), Evidence("cgroup", cgroup, "", "/proc/PID/cgroup"))
    return Finding(kind, subject, "critical", 0, 1, "it was found", evidence)


@pytest.mark.parametrize("kind", ["memcg-leak", "crash-loop"])
@pytest.mark.parametrize("cgroup", [*OTHERS, "/system.slice/ecs.service", ""])
def test_only_the_node_s_own_units_are_offered_to_be_fixed(kind: str, cgroup: str) -> None:
    finding = found(kind, cgroup)
    hypothesis = {"memcg-leak": memcg_leak, "crash-loop": crash_loop}[kind].HYPOTHESIS
    case = Case(NODE, (finding, found("unused-agent", cgroup)), ())
    assert hypothesis.step is not None
    said = [hypothesis.step(finding, case), *(one.text for one in hypothesis.advice(finding, case))]
    offered = [one.target for one in hypothesis.remedies(finding, case) if one.id == "fix"]
    assert any("exhume fix" in text for text in said) is (cgroup not in OTHERS)
    assert offered == ([] if cgroup in OTHERS else ["ecs.service"])


@pytest.mark.parametrize("name", ["user.slice", "a b", "session-1.scope", None, "", "/ecs.service", 7])
def test_what_is_no_unit_that_can_be_switched_off_is_not_offered(name: object) -> None:
    assert not [*fix_unit(found("memcg-leak", ""), name)]
