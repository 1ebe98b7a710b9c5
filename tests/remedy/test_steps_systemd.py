"""The steps on a real systemd: a looping unit stopped, disabled, masked, overridden; and everything back by undo."""

import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume.errors import ExhumeError, Refused
from exhume.host.root import Root
from exhume.remedy import carry_out, journal
from exhume.remedy.carry_out import Consent
from exhume.remedy.manager import Systemd, running
from exhume.remedy.node import Node, at
from exhume.remedy.operations import Operations
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.steps.units import reload, reset_failed, start_unit, stop_unit
from tests import systemd
from tests.remedy.nodes import Crash

pytestmark = pytest.mark.ci

LOOP = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=200ms\n"
UNITS = {
    "ecs.service": LOOP + "[Install]\nWantedBy=multi-user.target\nAlias=agent.service\n",
    "steady@.service": "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
    "stubborn.service": "[Service]\nExecStart=/bin/sh -c 'trap \"\" TERM; sleep 1000'\nTimeoutStopSec=2s\n",
    "broken.service": "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'exit 3'\n",
}
ETC = "/etc/systemd/system"
SHOWN = "LoadState UnitFileState FragmentPath DropInPaths NeedDaemonReload WantedBy Names Restart ExecStart".split()
ALL = Consent(True, True)


@pytest.fixture(scope="module")
def machine() -> Iterator[systemd.Machine]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(UNITS) as booted:
        booted.run(["systemctl", "enable", "ecs.service", "steady@a.service"])
        booted.run(["systemctl", "start", "--no-block", "ecs.service", "broken.service"])
        booted.run(["systemctl", "start", "steady@a.service", "steady@b.service"])
        yield booted


@pytest.fixture
def node(machine: systemd.Machine) -> Iterator[Node]:
    yield at(machine.root)
    shutil.rmtree(machine.root + journal.DIRECTORY, ignore_errors=True)


def tree(machine: systemd.Machine) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(machine.root + "/etc"):
        for name in (*names, *files):
            path = Path(directory, name)
            status = path.lstat()
            held: object = None
            if stat.S_ISLNK(status.st_mode):
                held = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                held = path.read_bytes(), status.st_mtime_ns
            found[str(path)] = status.st_mode, status.st_uid, status.st_gid, held
    return found


def shown(machine: systemd.Machine, *units: str) -> list[str]:
    """What stays the same from one run of a loop to the next."""
    asked = [f"--property={name}" for name in SHOWN]
    lines = machine.run(["systemctl", "show", *asked, "--", *units]).stdout.splitlines()
    return [" ".join(sorted(line.partition(" ; start_time=")[0].split())) for line in lines]  # sets have no order


def active(machine: systemd.Machine, unit: str) -> str:
    return machine.run(["systemctl", "show", "--value", "--property=ActiveState", "--", unit]).stdout.strip()


def restarts(machine: systemd.Machine, unit: str) -> int:
    return int(machine.run(["systemctl", "show", "--value", "--property=NRestarts", "--", unit]).stdout)


def wait(true: Callable[[], bool]) -> bool:
    for _ in range(400):
        if true():
            return True
        time.sleep(0.05)
    return False


def silence(unit: str) -> Plan:
    """What a plan against a looping agent does, by hand."""
    override = b"[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=1\n[Service]\nRestart=no\n"
    return Plan(
        unit,
        "it loops",
        (
            stop_unit(unit, "it loops"),
            remove_link(f"{ETC}/multi-user.target.wants/{unit}", "", "not at boot"),
            remove_link(f"{ETC}/agent.service", f"{ETC}/{unit}", "nor by its alias"),
            write_file(f"{ETC}/{unit}.d/50-exhume.conf", override, "if somebody starts it all the same"),
            make_link(f"{ETC}/{unit}", "/dev/null", "masked", over_file=True),
            reload("files changed"),
            reset_failed(unit, "no failure is left to be seen"),
        ),
    )


def one(step: Step) -> Plan:
    return Plan(step.target, "a test", (step,))


def test_a_looping_unit_is_silenced_and_undo_brings_it_back_as_it_was(machine: systemd.Machine, node: Node) -> None:
    assert wait(lambda: restarts(machine, "ecs.service") > 1)
    before, said = tree(machine), shown(machine, "ecs.service", "agent.service", "multi-user.target")

    outcome = carry_out.apply(silence("ecs.service"), node, ALL)

    assert outcome.exit_code == 0, outcome
    assert active(machine, "ecs.service") == "inactive"
    assert "LoadState=masked" in shown(machine, "ecs.service")
    assert machine.run(["systemctl", "start", "ecs.service"], check=False).returncode != 0
    assert machine.run(["systemctl", "is-enabled", "ecs.service"], check=False).stdout.strip() == "masked"

    again = carry_out.apply(silence("ecs.service"), node, ALL)
    assert {event.what for event in again.events if event.step.kind != "reload"} == {"skipped"}
    assert carry_out.undo(node, again.identity).exit_code == 0
    assert active(machine, "ecs.service") == "inactive"

    undone = carry_out.undo(node, outcome.identity)
    assert undone.exit_code == 0, undone
    assert undone.notes == () or "reset-failed" in undone.notes[0]
    assert tree(machine) == before
    assert shown(machine, "ecs.service", "agent.service", "multi-user.target") == said
    assert wait(lambda: restarts(machine, "ecs.service") > 1)


class AtAChange(Operations):
    """Dies after the n-th time that systemd was told something or a file got or lost its name; 0: never."""

    def __init__(self, number: int = 0) -> None:
        self.count = 0
        self._number = number

    def happened(self, what: str) -> None:
        self.count += what.startswith(("call", "rename", "unlink"))
        if self._number and self.count == self._number:
            raise Crash


@pytest.mark.ci
def test_a_death_at_every_change_is_recovered_from(machine: systemd.Machine, node: Node) -> None:
    """Every point is gone through on a fixture; here those that systemd can see."""
    before, said = tree(machine), shown(machine, "ecs.service", "agent.service")
    alive = AtAChange()
    carry_out.apply(silence("ecs.service"), at(machine.root, alive), ALL)
    carry_out.undo(node)
    assert alive.count == 6  # stop, two links, a drop-in, a mask, reload
    for number in range(1, alive.count + 1):
        for then in (carry_out.resume, carry_out.undo):
            with pytest.raises(Crash):
                carry_out.apply(silence("ecs.service"), at(machine.root, AtAChange(number)), ALL)
            assert then(node).exit_code == 0
            if then is carry_out.resume:
                assert "LoadState=masked" in shown(machine, "ecs.service")
                assert active(machine, "ecs.service") == "inactive"
                assert carry_out.undo(node).exit_code == 0
            assert tree(machine) == before
            assert shown(machine, "ecs.service", "agent.service") == said
    assert wait(lambda: restarts(machine, "ecs.service") > 1)


def test_a_running_unit_is_stopped_and_started_again_by_undo(machine: systemd.Machine, node: Node) -> None:
    carry_out.apply(one(stop_unit("steady@a.service", "a test")), node, ALL)
    assert active(machine, "steady@a.service") == "inactive"
    assert active(machine, "steady@b.service") == "active"
    assert carry_out.undo(node).exit_code == 0
    assert active(machine, "steady@a.service") == "active"


def test_a_failed_unit_is_not_started_by_undo(machine: systemd.Machine, node: Node) -> None:
    assert wait(lambda: active(machine, "broken.service") == "failed")
    outcome = carry_out.apply(one(stop_unit("broken.service", "a test")), node, ALL)
    assert [event.what for event in outcome.events] == ["skipped"]
    skipped = carry_out.apply(one(reset_failed("broken.service", "a test")), node, Consent(True))
    assert [(event.what, event.note) for event in skipped.events] == [("skipped", carry_out.NOT_CONFIRMED)]
    assert active(machine, "broken.service") == "failed"
    carry_out.apply(one(reset_failed("broken.service", "a test")), node, ALL)
    assert active(machine, "broken.service") == "inactive"


def test_a_unit_that_does_not_stop_in_time_is_said_and_left_to_systemd(machine: systemd.Machine, node: Node) -> None:
    machine.run(["systemctl", "start", "stubborn.service"])
    outcome = carry_out.apply(one(stop_unit("stubborn.service", "a test", deadline_s=0.3)), node, ALL)
    assert outcome.exit_code == 2
    assert "still deactivating" in outcome.events[0].note
    with pytest.raises(Refused, match="resume or undo it"):
        carry_out.apply(one(reload("a test")), node, ALL)
    assert wait(lambda: active(machine, "stubborn.service") == "failed")  # killed by systemd after TimeoutStopSec=
    assert carry_out.resume(node).exit_code == 0
    assert carry_out.undo(node).exit_code == 0
    assert active(machine, "stubborn.service") == "active"


def test_a_unit_is_started_and_stopped_again_by_undo(machine: systemd.Machine, node: Node) -> None:
    assert carry_out.apply(one(start_unit("steady@c.service", "a test")), node, ALL).exit_code == 0
    assert active(machine, "steady@c.service") == "active"
    assert carry_out.undo(node).exit_code == 0
    assert active(machine, "steady@c.service") == "inactive"
    failed = carry_out.apply(one(start_unit("broken.service", "a test")), node, ALL)
    assert "is failed (failed), not active" in failed.events[0].note
    carry_out.undo(node)


def test_what_systemd_refuses_is_a_sentence(machine: systemd.Machine, node: Node) -> None:
    manager = Systemd(Root(machine.root))
    assert manager.state("nobody.service").load == "not-found"
    assert manager.state("nobody.service").down
    manager.stop("nobody.service")
    with pytest.raises(ExhumeError, match=r"systemd refused StartUnit nobody.service: .*not found"):
        manager.start("nobody.service")
    for name in ("../x.service", "x", "x.service\n", "\udcff.service", "", "a/b.service"):
        with pytest.raises(Refused, match="is not the name of a unit"):
            manager.state(name)


def test_a_tree_in_which_nothing_runs_has_no_manager(tmp_path: Path, machine: systemd.Machine) -> None:
    assert running(Root(str(tmp_path))) is None
    assert running(Root(machine.root)) is not None
