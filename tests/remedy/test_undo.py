"""Undo on a node that is another by now: what would stop a protected unit stays, and what systemd has read is read anew."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.plan import Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_unit import Keep
from exhume.remedy.steps.units import start_unit, stop_unit
from tests.remedy.nodes import UNITS, Counting, Crash, Crashing, FileManager, node, scratch, snapshot, without_times
from tests.remedy.test_plan import AGENT, LIB, Place, place
from tests.remedy.test_plan_crash import UP
from tests.remedy.test_plan_crash import Place as Whole

__all__ = ["place"]  # a fixture
ALL = Consent(True, True)


def test_a_unit_for_whose_start_a_protected_one_would_be_stopped_stays_down(place: Place) -> None:
    place.put(f"{LIB}/agent.service", f"[Unit]\nConflicts=sshd.service\n{AGENT}")
    place.put(f"{LIB}/sshd.service", "[Service]\nExecStart=/usr/sbin/sshd -D\n")
    assert place.manager is not None
    place.manager.set(**{"agent.service": "active", "sshd.service": "inactive"})
    assert carry_out.apply(place.plan("agent.service"), place.node, ALL).exit_code == 0
    place.manager.start("sshd.service")
    for _ in range(2):
        outcome = carry_out.undo(place.node)
        assert outcome.exit_code == 2
        (kept,) = outcome.of("kept")
        assert (kept.step.kind, kept.note) == (
            "stop-unit",
            "agent.service conflicts with sshd.service, which is protected",
        )
        assert place.manager.units() == {"agent.service": "inactive", "sshd.service": "active"}
    place.manager.stop("sshd.service")
    assert carry_out.undo(place.node).exit_code == 0
    assert place.manager.units() == {"agent.service": "active", "sshd.service": "inactive"}


def test_a_unit_with_which_a_protected_one_would_stop_stays_up(place: Place) -> None:
    assert place.manager is not None
    place.manager.set(**{"ecs.service": "failed", "kubelet.service": "active"})
    assert carry_out.apply(place.plan("ecs.service", wishes=Wishes("do-nothing")), place.node, ALL).exit_code == 0
    place.put(f"{LIB}/kubelet.service", "[Unit]\nRequires=ecs.service\n[Service]\nExecStart=/usr/bin/kubelet\n")
    outcome = carry_out.undo(place.node)
    (kept,) = outcome.of("kept")
    assert (kept.step.kind, kept.note) == (
        "start-unit",
        "ecs.service is left alone: kubelet.service stops with it, and is protected",
    )
    assert place.manager.units() == {"ecs.service": "active", "kubelet.service": "active"}


def test_what_was_started_is_stopped_before_a_socket_is_started_that_would_stop_with_it(place: Place) -> None:
    place.put(f"{LIB}/door.socket", "[Unit]\nRequires=ecs.service\n[Socket]\nListenStream=/run/door\n")
    assert place.manager is not None
    before = {"ecs.service": "active", "door.socket": "active"}
    place.manager.set(**before)
    steps = [*(stop_unit(unit, "r") for unit in reversed(before)), *(start_unit(unit, "r") for unit in before)]
    assert carry_out.apply(Plan("ecs.service", "w", tuple(steps)), place.node, ALL).exit_code == 0
    assert carry_out.undo(place.node).exit_code == 0
    assert place.manager.units() == before


def test_a_socket_that_could_not_be_started_beside_its_service_is_back_after_undo(place: Place) -> None:
    place.put(f"{LIB}/door.socket", "[Unit]\nPartOf=door.service\n[Socket]\nListenStream=/run/door\n")
    place.put(f"{LIB}/door.service", AGENT)
    assert place.manager is not None
    before = {"door.service": "active", "door.socket": "active"}
    place.manager.set(**before)
    stops = [stop_unit(unit, "r") for unit in reversed(before)]
    starts = [start_unit(unit, "r", deadline_s=0.05) for unit in before]
    assert carry_out.apply(Plan("door.service", "w", (*stops, *starts)), place.node, ALL).exit_code == 2
    assert place.manager.units() == {"door.service": "active", "door.socket": "inactive"}
    assert carry_out.undo(place.node).exit_code == 0
    assert place.manager.units() == before


def test_files_of_an_image_that_has_booted_since_are_read_when_they_are_back(place: Place) -> None:
    manager, place.manager = place.manager, None
    assert manager is not None
    assert carry_out.apply(place.plan("ecs.service"), place.node, ALL).exit_code == 0
    place.manager = manager
    manager.reload()
    assert manager.state("ecs.service").load == "masked"
    assert carry_out.undo(place.node).exit_code == 0
    assert manager.state("ecs.service").load == "loaded"


def test_an_undo_after_which_systemd_did_not_read_the_files_is_not_over(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    manager, place.manager = place.manager, None
    carry_out.apply(place.plan("ecs.service"), place.node, ALL)
    place.manager = manager

    def refuses(self: FileManager) -> None:
        raise ExhumeError("systemd refused Reload: no room in /run")

    monkeypatch.setattr(FileManager, "reload", refuses)
    with pytest.raises(ExhumeError, match="no room"):
        carry_out.undo(place.node)
    assert carry_out.history(place.node)[0].status == "undoing"
    monkeypatch.undo()
    assert carry_out.undo(place.node).exit_code == 0


class Reading(FileManager):
    """One that remembers which of our drop-ins it has read, and with which each unit was started."""

    def reload(self) -> None:
        super().reload()
        told = self._load()
        found = (self._root / UNITS).glob("*.d/*exhume.conf")
        told["read"] = {path.parent.name.removesuffix(".d"): path.read_text() for path in found}
        self._save(told)

    def boot(self) -> None:
        """All of them are started that are not masked, nor require what is."""
        self.reload()
        told = self._load()
        masked = {other for unit in told["masked"] for other in self._with(unit)}
        told["units"] = {unit: "inactive" if unit in masked else "active" for unit in told["units"]}
        told["ran"] = {unit: told["read"].get(unit, "") for unit, state in told["units"].items() if state == "active"}
        self._save(told)

    @property
    def read(self) -> dict[str, str]:
        return dict(self._load().get("read", {}))

    def runs(self) -> dict[str, str]:
        """The units that are up, with what of ours."""
        return {unit: self._load().get("ran", {}).get(unit, "") for unit in UP if not self.state(unit).down}

    def _become(self, units: list[str], state: str, call: str) -> None:  # type: ignore[override]
        down = [unit for unit in units if self.state(unit).down]
        super()._become(units, state, call)
        told = self._load()
        if state == "active":
            told["ran"] = {**told.get("ran", {}), **{unit: told.get("read", {}).get(unit, "") for unit in down}}
        self._save(told)


class Node(Whole):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.manager: Reading = Reading(self.root, path / "manager")


@pytest.fixture
def nodes() -> Iterator[Callable[[], Node]]:
    with scratch() as path:

        def another() -> Node:
            shutil.rmtree(path / "one", ignore_errors=True)
            (path / "one").mkdir()
            return Node(path / "one")

        yield another


def carried_out(there: Node, keep: Keep | None, operations: Counting) -> None:
    assert carry_out.apply(there.plan(keep), node(there.root, operations, there.manager), ALL).exit_code == 0


@pytest.mark.ci
@pytest.mark.parametrize("keep", [None, "do-nothing"])
@pytest.mark.parametrize("meanwhile", ["boot", "reload"])
def test_after_a_death_at_every_point_and_what_systemd_read_then_undo_brings_back_what_was(
    nodes: Callable[[], Node], keep: Keep | None, meanwhile: str
) -> None:
    there = nodes()
    counting = Counting()
    carried_out(there, keep, counting)
    done = without_times(snapshot(there.root))
    for number in range(1, len(counting.did) + 1):
        for then in ("resume", "undo"):
            there = nodes()
            was = snapshot(there.root)
            with pytest.raises(Crash):
                carried_out(there, keep, Crashing(number))
            getattr(there.manager, meanwhile)()
            living = node(there.root, manager=there.manager)
            if then == "resume" and carry_out.pending(living) is not None:
                assert carry_out.resume(living).exit_code == 0
                assert without_times(snapshot(there.root)) == done
            if carry_out.last(living) is not None:
                assert carry_out.undo(living).exit_code == 0
            assert snapshot(there.root) == was
            assert there.manager.runs() == dict.fromkeys(UP, ""), (number, counting.did[number - 1])
            assert there.manager.read == {}
            assert there.manager.state("ecs.service").load == "loaded"
