"""A reboot: by logind, so that whoever delays it is told; of the boot that the plan was made for, and of no later one."""

import os
import shutil
from pathlib import Path
from typing import Literal

import pytest
from jeepney import HeaderFields, Message, new_error, new_method_return

from exhume.cluster.fleet_limits import FleetLimits
from exhume.cluster.pods import Allowed
from exhume.errors import ExhumeError
from exhume.host.root import Root
from exhume.remedy import carry_out, logind
from exhume.remedy.carry_out import ALREADY, Consent
from exhume.remedy.manager import Systemd
from exhume.remedy.plan_cluster import take_out
from exhume.remedy.plan_model import Plan
from exhume.remedy.steps import expected, kind_of
from exhume.remedy.steps.files import write_file
from exhume.remedy.steps.reboot import SENTINEL, reboot, reboot_by_sentinel
from tests.remedy.nodes import UNITS, Counting, Crash, Crashing, FileManager, node
from tests.sources.test_units import bus, member, served

ALL = Consent(True, True)


class Booted:
    def __init__(self, root: Path) -> None:
        self.root = root
        (root / UNITS).mkdir(parents=True)
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        self.manager = FileManager(root, root / "manager")
        self.manager.set()
        self.boot("first")

    def boot(self, name: str) -> None:
        (self.root / "proc/sys/kernel/random/boot_id").write_text(f"{name}\n")


@pytest.fixture
def booted(tmp_path: Path) -> Booted:
    return Booted(tmp_path)


def test_a_node_that_was_rebooted_since_the_plan_was_made_is_not_rebooted_again(booted: Booted) -> None:
    there = node(booted.root, manager=booted.manager)
    plan = expected(Plan("node", "w", (reboot("r"),)), there)
    assert plan.steps[0].expects == "first"
    booted.boot("second")
    outcome = carry_out.apply(plan, there, ALL)
    assert [(event.what, event.note) for event in outcome.events] == [("skipped", ALREADY)]
    assert booted.manager.calls == []
    booted.boot("first")
    assert carry_out.apply(plan, there, ALL).exit_code == 0
    assert booted.manager.calls == ["reboot"]


def test_a_plan_that_was_cut_off_by_a_reboot_is_resumed_without_another(booted: Booted) -> None:
    """Before it had come to its own, so that nothing is written down about that."""
    there = node(booted.root, manager=booted.manager)
    plan = expected(
        Plan("node", "w", (write_file("/etc/systemd/system/x.service.d/exhume.conf", b"x", "r"), reboot("r"))), there
    )
    with pytest.raises(Crash):
        carry_out.apply(plan, node(booted.root, Crashing(12), booted.manager), ALL)
    booted.boot("second")
    outcome = carry_out.resume(there)
    assert [event.what for event in outcome.events] == ["done", "skipped"]
    assert booted.manager.calls == []


def test_no_death_has_the_file_that_asks_for_a_reboot_written_again_after_that(tmp_path: Path) -> None:
    def place(number: int) -> tuple[Booted, Plan]:
        booted = Booted(tmp_path / str(number))
        (booted.root / "run").mkdir()
        return booted, expected(Plan("node", "w", (reboot_by_sentinel("r"),)), node(booted.root, manager=booted.manager))

    booted, plan = place(0)
    counting = Counting()
    assert carry_out.apply(plan, node(booted.root, counting, booted.manager), ALL).exit_code == 0
    assert (booted.root / SENTINEL[1:]).read_text() == "*** System restart required ***\n"
    asked = 0
    for number in range(1, len(counting.did) + 1):
        for then in (carry_out.resume, carry_out.undo):
            booted, plan = place(1000 * (then is carry_out.undo) + number)
            with pytest.raises(Crash):
                carry_out.apply(plan, node(booted.root, Crashing(number), booted.manager), ALL)
            asked += (booted.root / SENTINEL[1:]).exists()
            shutil.rmtree(booted.root / "run")  # it is in memory
            (booted.root / "run").mkdir()
            booted.boot("second")
            there = node(booted.root, manager=booted.manager)
            if carry_out.pending(there) is not None:
                assert then(there).exit_code == 0
            assert os.listdir(booted.root / "run") == []
    assert asked > 2


def test_the_file_that_asks_for_a_reboot_is_written_by_resume_and_removed_by_undo_in_the_same_boot(booted: Booted) -> None:
    there = node(booted.root, manager=booted.manager)
    plan = expected(Plan("node", "w", (reboot_by_sentinel("r"),)), there)

    class AtItsName(Crashing):
        def happened(self, what: str) -> None:
            if what.startswith("create") and "jsonl" not in what:
                raise Crash

    with pytest.raises(Crash):
        carry_out.apply(plan, node(booted.root, AtItsName(0), booted.manager), ALL)
    assert carry_out.resume(there).exit_code == 0
    assert (booted.root / SENTINEL[1:]).exists()
    assert carry_out.undo(there).exit_code == 0
    assert not (booted.root / "run").exists()


def test_a_plan_of_before_the_reboot_does_not_ask_for_another_by_its_file(booted: Booted) -> None:
    there = node(booted.root, manager=booted.manager)
    plan = expected(Plan("node", "w", (reboot_by_sentinel("r"),)), there)
    booted.boot("second")
    assert [event.note for event in carry_out.apply(plan, there, ALL).events] == [ALREADY]
    assert not (booted.root / SENTINEL[1:]).exists()


@pytest.mark.parametrize("how", ["sentinel", "now"])
def test_a_node_that_is_taken_out_of_service_is_rebooted_in_the_boot_of_the_plan(
    booted: Booted, how: Literal["sentinel", "now"]
) -> None:
    seen = {"metadata": {"name": "n1"}, "status": {"nodeInfo": {"bootID": "first"}}}
    plan = take_out(seen, "", Allowed(), FleetLimits(), 60.0, how, Root(str(booted.root)))
    step = next(step for step in plan.steps if step.kind.startswith("reboot"))
    assert not kind_of(step).done(step, node(booted.root))
    booted.boot("second")
    assert kind_of(step).done(step, node(booted.root))


def test_an_image_has_no_boot_and_a_plan_for_it_is_still_shown(tmp_path: Path) -> None:
    (step,) = expected(Plan("node", "w", (reboot("r"),)), node(tmp_path)).steps
    assert step.expects == ""


@pytest.mark.parametrize("absent", ["", "ServiceUnknown", "NameHasNoOwner", "UnknownObject"])
def test_logind_is_asked_and_systemd_only_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: str
) -> None:
    asked: list[tuple[str, str, object]] = []
    started: list[tuple[str, ...]] = []
    monkeypatch.setattr(Systemd, "start", lambda self, *told: started.append(told))

    def answer(message: Message) -> Message:
        fields = message.header.fields
        if member(message) == "Hello":
            return new_method_return(message, "s", (":1.1",))
        asked.append((str(fields[HeaderFields.destination]), member(message), message.body))
        return new_error(message, f"org.freedesktop.DBus.Error.{absent}") if absent else new_method_return(message)

    with served(tmp_path, bus(answer)):
        Systemd(Root(str(tmp_path))).reboot()
    assert asked == [("org.freedesktop.login1", "Reboot", (False,))]
    assert started == ([("reboot.target", "replace-irreversibly")] if absent else [])


def test_what_logind_refuses_is_said_and_not_got_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Systemd, "start", lambda self, *told: pytest.fail("got round"))

    def answer(message: Message) -> Message:
        if member(message) == "Hello":
            return new_method_return(message, "s", (":1.1",))
        name = "org.freedesktop.login1.BlockedByInhibitorLock"
        return new_error(message, name, "s", ("Operation denied due to active\x1b block inhibitor",))

    with (
        served(tmp_path, bus(answer)),
        pytest.raises(ExhumeError, match=r"logind refused to reboot: Operation denied due to active\\x1b block inhibitor"),
    ):
        Systemd(Root(str(tmp_path))).reboot()


def test_without_any_bus_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="logind cannot be told to reboot: systemd is not running here"):
        logind.reboot(Root(str(tmp_path)))
