"""What a running systemd knows and no file says: an instance that somebody started stops with what it is bound to."""

from collections.abc import Iterator
from functools import partial

import pytest

from exhume.errors import Refused
from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.manager import running
from exhume.remedy.node import Node, at
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.protected_plan import known_agents
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.files import make_link
from exhume.remedy.steps.units import stop_unit
from tests import systemd
from tests.remedy.test_steps_systemd import wait

SLEEP = "[Service]\nExecStart=/bin/sleep infinity\n"
# What they run is in a file that no reader of unit files can guess.
HIDDEN = "[Service]\nExecStart=/bin/sh -c 'exec $$(cat /opt/which-%p) infinity'\n"
NESTED = """\
[Service]
Delegate=yes
ExecStart=/bin/sh -c 'for at in systemd unified .; do d=/sys/fs/cgroup/$$at/system.slice/%n; \\
  test -d $$d && mkdir $$d/inner && echo $$$$ > $$d/inner/cgroup.procs; done; exec $$(cat /opt/which-%p) infinity'
"""
UNITS = {
    "base.service": SLEEP,
    "dropbear@.service": f"[Unit]\nBindsTo=base.service\nAfter=base.service\n{SLEEP}",
    "called.service": HIDDEN,
    "copied.service": HIDDEN,
    "plain.service": HIDDEN,
    "nested.service": NESTED,
    "bound.service": SLEEP,
    "with.service": f"[Unit]\nBindsTo=bound.service\n{HIDDEN}",
}
PROGRAMS = {
    "called": "/opt/kubelet",
    "copied": "/opt/x",
    "plain": "/opt/agent",
    "nested": "/opt/kubelet",
    "with": "/opt/kubelet",
}


@pytest.fixture(scope="module")
def machine() -> Iterator[systemd.Machine]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(UNITS) as booted:
        for unit, program in PROGRAMS.items():
            booted.write(f"/opt/which-{unit}", program)
        # The same program by three names: protected by its name, a copy of a protected one, and neither.
        for path, more in {"/usr/bin/containerd": "a", "/opt/x": "a", "/opt/agent": "bb", "/opt/kubelet": "ccc"}.items():
            booted.run(["sh", "-c", f"cp /bin/sleep {path} && printf {more} >> {path}"])
        booted.run(["systemctl", "start", "dropbear@7.service", "with.service", *(f"{name}.service" for name in PROGRAMS)])
        for name, program in PROGRAMS.items():
            assert wait(partial(_runs, booted, name, program))
        yield booted


def _runs(machine: systemd.Machine, name: str, program: str) -> bool:
    return program in machine.run(["systemctl", "status", name], check=False).stdout


def planned(machine: systemd.Machine, unit: str, force: bool = False) -> Plan:
    there = at(machine.root)
    with Directory(machine.root) as tree:
        protection = Protection(read_units(tree), known_agents(), None, there.manager, there.root)
        return Planner(there, tree, protection, Wishes(None, force)).plan(unit)


@pytest.mark.parametrize(
    ("unit", "why"),
    [
        ("called.service", r"kubelet \[\d+\] runs in it, without which"),
        ("copied.service", r"x \[\d+\] runs in it, which is a copy of /usr/bin/containerd"),
        ("nested.service", r"kubelet \[\d+\] runs in it"),
        ("bound.service", r"with.service stops with it, and kubelet \[\d+\] runs in it"),
    ],
)
def test_a_unit_in_whose_cgroup_a_protected_program_runs_is_not_stopped(machine: systemd.Machine, unit: str, why: str) -> None:
    for force in (False, True):
        with pytest.raises(Refused, match=why):
            planned(machine, unit, force)
    for step in (stop_unit(unit, "r"), make_link(f"/etc/systemd/system/{unit}", "/dev/null", "r", over_file=True)):
        with pytest.raises(Refused, match=why):
            carry_out.apply(Plan("x", "t", (step,)), at(machine.root), Consent(True, True))
    manager = running(Root(machine.root))
    assert manager is not None
    assert manager.state(unit).up


def test_what_runs_now_settles_a_doubt_and_without_it_the_doubt_stays(machine: systemd.Machine) -> None:
    assert planned(machine, "plain.service").steps
    machine.run(["systemctl", "stop", "plain.service"])
    try:
        with pytest.raises(Refused, match=r"is not known before it runs.*--force switches it off all the same"):
            planned(machine, "plain.service")
        assert planned(machine, "plain.service", force=True).steps
    finally:
        machine.run(["systemctl", "start", "plain.service"])


def test_systemd_tells_where_it_keeps_a_unit_whether_or_not_it_runs(machine: systemd.Machine) -> None:
    manager = running(Root(machine.root))
    assert manager is not None
    assert manager.control_group("plain.service") == "/system.slice/plain.service"
    assert manager.control_group("dropbear@8.service") == "/system.slice/system-dropbear.slice/dropbear@8.service"
    assert manager.control_group("x.timer") == ""
    with pytest.raises(Refused, match=r"plain.service has its processes in /system.slice/plain.service, not in /plain.service"):
        planned(machine, "/plain.service")


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
