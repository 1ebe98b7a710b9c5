"""A stop that is also another's, and a unit that is started again before its mask counts: undo brings back all that ran."""

from pathlib import Path

import pytest

from exhume.remedy import carry_out
from exhume.remedy.carry_out import AGAIN, Consent
from exhume.remedy.plan import Wishes
from tests.remedy.nodes import UNITS, Crash, Crashing, FileManager, node
from tests.remedy.test_plan import AGENT, ETC, LIB, Place, kinds, place

__all__ = ["place"]  # a fixture
ALL = Consent(True, True)


def with_a_socket(place: Place, unit: str = "") -> FileManager:
    """A service, its socket, and another service that needs the first; all are up."""
    place.put(f"{LIB}/door.socket", "[Socket]\nListenStream=/run/door\n")
    place.put(f"{LIB}/door.service", f"{unit}{AGENT}")
    place.put(f"{LIB}/guest.service", f"[Unit]\nBindsTo=door.service\n{AGENT}")
    assert place.manager is not None
    place.manager.set(**dict.fromkeys(("door.socket", "door.service", "guest.service"), "active"))
    return place.manager


@pytest.mark.parametrize("unit", ["[Unit]\nRequires=door.socket\n", "[Unit]\nPartOf=door.socket\n", ""])
def test_what_stopped_with_a_socket_is_started_by_undo(place: Place, unit: str) -> None:
    manager = with_a_socket(place, unit)
    before = manager.units()
    plan = place.plan("door.service", wishes=Wishes(force=True))
    assert [target for kind, target in kinds(plan) if kind == "stop-unit"] == ["door.socket", "guest.service", "door.service"]
    outcome = carry_out.apply(plan, place.node, ALL)
    assert {event.what for event in outcome.events} == {"done"}
    assert set(manager.units().values()) == {"inactive"}
    assert carry_out.undo(place.node).exit_code == 0
    assert manager.units() == before
    assert not [call for call in manager.calls if call.startswith("refused")]


def test_what_was_down_before_the_socket_was_stopped_stays_down(place: Place) -> None:
    manager = with_a_socket(place, "[Unit]\nRequires=door.socket\n")
    manager.stop("door.service")
    before = manager.units()
    outcome = carry_out.apply(place.plan("door.service", wishes=Wishes(force=True)), place.node, ALL)
    assert [event.step.target for event in outcome.of("skipped")] == ["guest.service", "door.service"]
    assert carry_out.undo(place.node).exit_code == 0
    assert manager.units() == before


def test_a_death_between_the_socket_and_its_service_is_undone_too(place: Place) -> None:
    manager = with_a_socket(place, "[Unit]\nRequires=door.socket\n")
    before = manager.units()
    plan = place.plan("door.service", wishes=Wishes(force=True))

    class AtTheFirstStop(Crashing):
        def happened(self, what: str) -> None:
            if what == "call StopUnit":
                raise Crash

    with pytest.raises(Crash):
        carry_out.apply(plan, node(place.root, AtTheFirstStop(0), manager), ALL)
    assert set(manager.units().values()) == {"inactive"}
    assert carry_out.undo(place.node).exit_code == 0
    assert manager.units() == before


def test_a_socket_that_others_need_stays(place: Place) -> None:
    with_a_socket(place)
    place.put(f"{LIB}/guest.service", f"[Unit]\nBindsTo=door.socket\n{AGENT}")
    plan = place.plan("door.service")
    assert [target for kind, target in kinds(plan) if kind == "stop-unit"] == ["door.service"]
    assert [one.target for one in plan.relief][:1] == ["door.socket"]


class Eager(FileManager):
    """Somebody starts a unit while its mask is being made, and before systemd has read it."""

    def __init__(self, root: Path, unit: str, starts: str = "") -> None:
        super().__init__(root, root / "manager")
        self._unit, self._starts, self.stops = unit, starts or unit, True

    def reload(self) -> None:
        if (self._root / UNITS / self._unit).is_symlink():
            self._become([self._starts], "active", f"somebody starts {self._starts}")
        super().reload()

    def stop(self, unit: str) -> None:
        if self.stops or "reload" not in self.calls:
            super().stop(unit)


@pytest.mark.parametrize("state", ["active", "inactive"])
def test_what_is_started_again_before_the_mask_counts_is_stopped_again(place: Place, state: str) -> None:
    manager = place.manager = Eager(place.root, "ecs.service")
    manager.set(**{"ecs.service": state})
    plan = place.plan("ecs.service")
    outcome = carry_out.apply(plan, place.node, ALL)
    assert [(event.place, event.what) for event in outcome.events[-2:]] == [(0, "done"), (len(plan.steps) - 1, "done")]
    assert outcome.events[-2].note == AGAIN
    assert manager.units() == {"ecs.service": "inactive"}
    assert not place.plan("ecs.service").steps
    assert carry_out.undo(place.node).exit_code == 0
    assert manager.units() == {"ecs.service": "active"}  # it ran when it was stopped


def test_a_death_before_it_was_looked_at_again_does_not_leave_it_up(place: Place) -> None:
    manager = place.manager = Eager(place.root, "ecs.service")
    manager.set(**{"ecs.service": "active"})

    class AtTheReload(Crashing):
        def happened(self, what: str) -> None:
            if what == "call Reload":
                raise Crash

    with pytest.raises(Crash):
        carry_out.apply(place.plan("ecs.service"), node(place.root, AtTheReload(0), manager), ALL)
    assert manager.units() == {"ecs.service": "active"}
    assert [event.note for event in carry_out.resume(place.node).events] == [AGAIN, ""]
    assert manager.units() == {"ecs.service": "inactive"}


def test_what_cannot_be_stopped_again_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.remedy.plan_unit.UnitPlanner._patience", lambda self, unit: 0.05)
    manager = place.manager = Eager(place.root, "ecs.service")
    manager.stops = False
    manager.set(**{"ecs.service": "active"})
    outcome = carry_out.apply(place.plan("ecs.service"), place.node, ALL)
    assert outcome.exit_code == 2
    assert outcome.events[-1].step.kind == "reload"
    assert "ecs.service is still active" in outcome.events[-1].note
    manager.stops = True
    assert carry_out.resume(place.node).exit_code == 0
    assert manager.units() == {"ecs.service": "inactive"}


def test_what_was_only_stopped_with_it_may_be_started_again(place: Place) -> None:
    manager = place.manager = Eager(place.root, "ecs.service", starts="client.service")
    place.put(f"{LIB}/client.service", f"[Unit]\nPartOf=ecs.service\n{AGENT}")
    manager.set(**{"ecs.service": "active", "client.service": "active"})
    assert carry_out.apply(place.plan("ecs.service", wishes=Wishes(force=True)), place.node, ALL).exit_code == 0
    assert manager.units() == {"ecs.service": "inactive", "client.service": "active"}


def test_what_the_plan_itself_starts_again_is_not_stopped_again(place: Place) -> None:
    assert place.manager is not None
    place.put(f"{LIB}/other.service", AGENT)
    place.manager.set(**{"ecs.service": "active", "other.service": "active"})
    wishes = Wishes(keep="do-nothing")
    one, two = place.plan("ecs.service", wishes=wishes), place.plan("other.service", wishes=wishes)
    both = type(one)("node", "both", (*one.steps, *two.steps))
    assert not carry_out.apply(both, place.node, ALL).of("failed")
    assert place.manager.units() == {"ecs.service": "active", "other.service": "active"}
    assert [call for call in place.manager.calls if call.startswith("stop")] == ["stop ecs.service", "stop other.service"]
    assert (place.root / f"{ETC[1:]}/other.service.d/zz-exhume.conf").exists()


def test_a_socket_is_started_before_its_service(place: Place) -> None:
    """As cups and docker ship it: the socket is a part of the service."""
    assert place.manager is not None
    for name in ("door", "guest"):
        place.put(f"{LIB}/{name}.socket", f"[Unit]\nPartOf=door.service\n[Socket]\nListenStream=/run/{name}\n")
    place.put(f"{LIB}/door.service", AGENT)
    place.put(f"{LIB}/guest.service", f"[Unit]\nBindsTo=door.service\n{AGENT}")
    place.manager.set(**dict.fromkeys(("door.socket", "guest.socket", "guest.service", "door.service"), "active"))
    plan = place.plan("door.service", wishes=Wishes(keep="do-nothing"))
    started = [target for kind, target in kinds(plan) if kind == "start-unit"]
    assert started == ["door.socket", "door.service", "guest.socket", "guest.service"]
    outcome = carry_out.apply(plan, place.node, ALL)
    assert not outcome.of("failed")
    assert set(place.manager.units().values()) == {"active"}
    assert not [call for call in place.manager.calls if call.startswith("refused")]
