"""What a running systemd knows and no file says: an instance that somebody started stops with what it is bound to."""

from collections.abc import Iterator

import pytest

from exhume.errors import Refused
from exhume.node.root import Root
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.manager import running
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan
from exhume.remedy.steps.units import stop_unit
from tests import systemd

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n"
UNITS = {"base.service": SLEEP, "dropbear@.service": f"[Unit]\nBindsTo=base.service\nAfter=base.service\n{SLEEP}"}


@pytest.fixture(scope="module")
def machine() -> Iterator[systemd.Machine]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(UNITS) as booted:
        booted.run(["systemctl", "start", "dropbear@7.service"])
        yield booted


def test_a_unit_that_a_running_instance_is_bound_to_is_not_stopped(machine: systemd.Machine) -> None:
    root = Root(machine.root)
    manager = running(root)
    assert manager is not None
    assert manager.dependents("base.service") == ("dropbear@7.service",)
    assert manager.dependents("dropbear@7.service") == ()
    plan = Plan("x", "t", (stop_unit("base.service", "r"),))
    with pytest.raises(Refused, match=r"dropbear@7.service stops with it, and is protected"):
        carry_out.apply(plan, Node(root, manager, Operations()), Consent(True, True))
    assert manager.state("base.service").up
