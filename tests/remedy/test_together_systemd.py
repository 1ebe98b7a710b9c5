"""On a real systemd: what stops together comes back together, a restart takes others along, who delays a reboot is told.

The container's reboot.target leads nowhere.
"""

import shutil
from collections.abc import Iterator

import pytest

from exhume.host import owners
from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out, journal
from exhume.remedy.carry_out import AGAIN, Consent
from exhume.remedy.defunct import offers
from exhume.remedy.manager import Systemd
from exhume.remedy.node import Node, at
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_unit import UnitPlanner
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.units import start_unit, stop_unit
from exhume.sources.processes import cgroup_of
from tests import systemd
from tests.remedy.nodes import Crash
from tests.remedy.test_steps_systemd import active, tree, wait

pytestmark = pytest.mark.ci

SLEEPS = "[Service]\nExecStart=/bin/sleep infinity\n"
UNITS = {
    "hangs.socket": "[Socket]\nListenStream=/run/hangs\n",
    "hangs.service": f"[Unit]\nRequires=hangs.socket\n{SLEEPS}",
    "guest.service": f"[Unit]\nBindsTo=hangs.service\nAfter=hangs.service\n{SLEEPS}",
    "apart.socket": "[Socket]\nListenStream=/run/apart\n[Install]\nWantedBy=sockets.target\n",
    "apart.service": SLEEPS,
    "lazy.service": "[Service]\nExecStart=/bin/sh -c 'sleep 0 & exec sleep infinity'\n",
    "needs-lazy.service": f"[Unit]\nRequires=lazy.service\nAfter=lazy.service\n{SLEEPS}",
    "tailscaled.service": SLEEPS,  # protected by its name
    "rival.service": f"[Unit]\nConflicts=tailscaled.service\n{SLEEPS}",
    "waits.socket": "[Unit]\nRequires=spare.service\nAfter=spare.service\n[Socket]\nListenStream=/run/waits\n",
    **dict.fromkeys(("waits.service", "spare.service", "lone.service"), SLEEPS),
    "later.service": f"[Unit]\nAfter=lone.service\n{SLEEPS}",
    "reboot.target": "[Unit]\nDescription=Leads nowhere\n",
}
UP = ("hangs.socket", "hangs.service", "guest.service", "apart.socket", "apart.service")
ALL = Consent(True, True)
LOGIND = "org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager".split()


@pytest.fixture(scope="module")
def machine() -> Iterator[systemd.Machine]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(UNITS) as booted:
        booted.run(["systemctl", "enable", "apart.socket"])
        booted.run(["systemctl", "start", "hangs.socket", "apart.socket"])
        booted.run(["systemctl", "start", *UP, "lazy.service", "needs-lazy.service"])
        yield booted


@pytest.fixture
def node(machine: systemd.Machine) -> Iterator[Node]:
    yield at(machine.root)
    shutil.rmtree(machine.root + journal.DIRECTORY, ignore_errors=True)


def states(machine: systemd.Machine, *units: str) -> list[str]:
    asked = "Id LoadState ActiveState SubState UnitFileState NeedDaemonReload".split()
    return machine.run(["systemctl", "show", *(f"--property={name}" for name in asked), "--", *units]).stdout.splitlines()


def planned(machine: systemd.Machine, target: str, wishes: Wishes) -> Plan:
    with Directory(machine.root) as found:
        return Planner(at(machine.root), found, Protection(read_units(found)), wishes).plan(target)


@pytest.mark.parametrize("name", ["hangs", "apart"])
def test_a_service_that_stops_with_its_socket_is_back_after_undo(machine: systemd.Machine, node: Node, name: str) -> None:
    assert wait(lambda: all(active(machine, unit) == "active" for unit in UP))
    before, files = states(machine, *UP), tree(machine)
    plan = planned(machine, f"{name}.service", Wishes(force=True))
    stops = [step.target for step in plan.steps if step.kind == "stop-unit"]
    assert stops == ["hangs.socket", "guest.service", "hangs.service"] if name == "hangs" else ["apart.socket", "apart.service"]
    outcome = carry_out.apply(plan, node, ALL)
    assert outcome.exit_code == 0, outcome
    assert {active(machine, unit) for unit in stops} <= {"inactive", "failed"}
    undone = carry_out.undo(node)
    assert undone.exit_code == 0, undone
    assert wait(lambda: states(machine, *UP) == before), (states(machine, *UP), before)
    assert tree(machine) == files


def test_what_is_started_while_it_is_being_masked_does_not_stay_up(machine: systemd.Machine, node: Node) -> None:
    class Meddling(Operations):
        """Somebody starts it right before systemd reads the mask."""

        def happened(self, what: str) -> None:
            if what == "rename apart.service":
                machine.run(["systemctl", "start", "apart.service"])

    before = states(machine, *UP)
    outcome = carry_out.apply(planned(machine, "apart.service", Wishes()), at(machine.root, Meddling()), ALL)
    assert [event.note for event in outcome.events if event.note == AGAIN] == [AGAIN]
    assert active(machine, "apart.service") == "inactive"
    assert carry_out.undo(node).exit_code == 0
    assert wait(lambda: states(machine, *UP) == before)


def test_undo_starts_nothing_for_which_systemd_would_stop_a_protected_unit(machine: systemd.Machine, node: Node) -> None:
    machine.run(["systemctl", "start", "rival.service"])
    assert carry_out.apply(planned(machine, "rival.service", Wishes()), node, ALL).exit_code == 0
    machine.run(["systemctl", "start", "tailscaled.service"])
    (kept,) = carry_out.undo(node).of("kept")
    assert kept.note == "rival.service conflicts with tailscaled.service, which is protected"
    assert (active(machine, "tailscaled.service"), active(machine, "rival.service")) == ("active", "inactive")
    machine.run(["systemctl", "stop", "tailscaled.service"])
    assert carry_out.undo(node).exit_code == 0
    assert active(machine, "rival.service") == "active"


def test_a_transient_unit_that_was_stopped_is_told_as_gone_for_good(machine: systemd.Machine, node: Node) -> None:
    machine.run(["systemd-run", "--unit=brief.service", "/bin/sleep", "infinity"])
    plan = planned(machine, "brief.service", Wishes())
    assert carry_out.apply(plan, node, Consent(True, False)).of("skipped")
    assert active(machine, "brief.service") == "active"
    assert carry_out.apply(plan, node, ALL).exit_code == 0
    assert active(machine, "brief.service") != "active"
    undone = carry_out.undo(node)
    assert (undone.exit_code, undone.notes) == (0, ("stop-unit brief.service was done and cannot be undone",))


@pytest.mark.parametrize("wishes", [Wishes(), Wishes("do-nothing")])
def test_what_systemd_has_read_of_a_fix_that_was_cut_off_is_gone_after_undo(
    machine: systemd.Machine, node: Node, wishes: Wishes
) -> None:
    class AtTheFile(Operations):
        def happened(self, what: str) -> None:
            if what in ("rename lone.service", "rename zz-exhume.conf"):
                raise Crash

    machine.run(["systemctl", "restart", "lone.service", "later.service"])  # what another one names systemd does not forget
    before, files = states(machine, "lone.service"), tree(machine)
    with pytest.raises(Crash):
        carry_out.apply(planned(machine, "lone.service", wishes), at(machine.root, AtTheFile()), ALL)
    machine.run(["systemctl", "daemon-reload"])
    machine.run(["systemctl", "restart", "lone.service"], check=False)  # masked, or with nothing to run
    assert states(machine, "lone.service") != before
    undone = carry_out.undo(node)
    assert undone.exit_code == 0, undone
    assert states(machine, "lone.service") == before
    assert tree(machine) == files


def test_a_socket_that_stops_with_a_service_is_back_after_undo(machine: systemd.Machine, node: Node) -> None:
    machine.run(["systemctl", "start", "waits.socket"])
    both = ("spare.service", "waits.socket")
    before = states(machine, *both)
    steps = [*(stop_unit(unit, "a test") for unit in reversed(both)), *(start_unit(unit, "a test") for unit in both)]
    assert carry_out.apply(Plan("spare.service", "a test", tuple(steps)), node, ALL).exit_code == 0
    assert carry_out.undo(node).exit_code == 0
    assert states(machine, *both) == before


def test_a_restart_ends_the_parent_and_starts_again_what_stops_with_it(
    machine: systemd.Machine, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seen from outside, the container's systemd is not at the top of the hierarchy, as a node's is.
    monkeypatch.setattr(owners, "ROOT", cgroup_of(node.root, 1).removesuffix("/init.scope"))
    with Directory(machine.root) as found:
        protection = Protection(read_units(found))
        refused, relief = offers(node.root, protection, UnitPlanner(found, protection, node.manager))
        steps, _ = offers(node.root, protection, UnitPlanner(found, protection, node.manager, force=True))
    assert not [step for step in refused if step.kind == "restart-unit"]
    assert any("it is needed by needs-lazy.service" in one.why for one in relief)
    (restart,) = [step for step in steps if step.kind == "restart-unit"]
    assert restart.target == "lazy.service"
    pid = machine.run(["systemctl", "show", "--value", "--property=MainPID", "lazy.service"]).stdout.strip()
    assert restart.link.partition(":")[0] == pid
    plan = Plan("lazy.service", "a test", (restart,))
    outcome = carry_out.apply(plan, node, ALL)
    assert [event.what for event in outcome.events] == ["done"], outcome
    assert machine.run(["systemctl", "show", "--value", "--property=MainPID", "lazy.service"]).stdout.strip() not in (pid, "0")
    assert wait(lambda: active(machine, "needs-lazy.service") == "active")
    assert [event.note for event in carry_out.apply(plan, node, ALL).events] == [carry_out.ALREADY]


def test_whoever_delays_a_shutdown_is_told_of_a_reboot(machine: systemd.Machine, node: Node) -> None:
    def preparing() -> str:
        return machine.run(["busctl", "get-property", *LOGIND, "PreparingForShutdown"]).stdout.strip()

    assert wait(lambda: active(machine, "systemd-logind.service") == "active")
    delays = ["systemd-inhibit", "--what=shutdown", "--mode=delay", "--who=kubelet", "sleep", "infinity"]
    machine.run(["systemd-run", "--unit=delays.service", *delays])
    assert wait(lambda: "kubelet" in machine.run(["systemd-inhibit", "--list", "--no-legend"]).stdout)
    assert preparing() == "b false"
    manager = node.manager
    assert isinstance(manager, Systemd)
    manager.reboot()
    assert preparing() == "b true"
    assert active(machine, "reboot.target") == "inactive"
    machine.run(["systemctl", "stop", "delays.service"])
    assert wait(lambda: active(machine, "reboot.target") == "active")
    machine.run(["systemctl", "stop", "reboot.target"])
    machine.run(["systemctl", "stop", "systemd-logind.service"])
    manager.reboot()
    assert wait(lambda: active(machine, "reboot.target") == "active")
