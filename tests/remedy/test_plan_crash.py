"""A plan as it is really made, with a death after every single operation of it: resume and undo both reach a clean state."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out
from exhume.remedy.carry_out import Consent
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_unit import Keep
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import expected
from tests.remedy.nodes import UNITS, Counting, Crash, Crashing, FileManager, node, scratch, snapshot, without_times

ALL = Consent(True, True)
LIB = "usr/lib/systemd/system"
UP = {
    "ecs.service": "activating",
    "ecs.socket": "active",
    "ecs.timer": "active",
    "client.service": "active",
    "kubelet.service": "active",
}


class Place:
    """An agent with its file in /etc, an alias, a timer, a socket that it requires, a drop-in, and somebody who needs it."""

    def __init__(self, path: Path) -> None:
        self.root = path / "root"
        for directory in (
            UNITS,
            f"{UNITS}/multi-user.target.wants",
            f"{UNITS}/timers.target.wants",
            f"{UNITS}/ecs.service.d",
            LIB,
        ):
            (self.root / directory).mkdir(parents=True)
        etc, lib = self.root / UNITS, self.root / LIB
        (etc / "ecs.service").write_text("[Unit]\nRequires=ecs.socket\n[Service]\nExecStart=/usr/libexec/ecs\nRestart=always\n")
        (etc / "ecs.service").chmod(0o640)
        (etc / "ecs.service.d/own.conf").write_text("[Service]\nRestartSec=10s\n")
        (etc / "agent.service").symlink_to("ecs.service")
        (etc / "multi-user.target.wants/ecs.service").symlink_to(f"/{UNITS}/ecs.service")
        (lib / "ecs.timer").write_text("[Timer]\nOnBootSec=1\n")
        (etc / "timers.target.wants/ecs.timer").symlink_to(f"/{LIB}/ecs.timer")
        (lib / "ecs.socket").write_text("[Socket]\nListenStream=/run/ecs\n")
        (lib / "client.service").write_text("[Unit]\nRequires=ecs.service\n[Service]\nExecStart=/bin/x\n")
        (lib / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
        self.manager = FileManager(self.root, path / "manager")
        self.manager.set(**UP)

    def plan(self, keep: Keep | None) -> Plan:
        there = node(self.root, manager=self.manager)
        with Directory(str(self.root)) as tree:
            planner = Planner(there, tree, Protection(read_units(tree)), Wishes(keep, force=True))
            return expected(planner.plan("ecs.service"), there)


@pytest.fixture
def places() -> Iterator[Callable[[], Place]]:
    with scratch() as path:

        def another() -> Place:
            shutil.rmtree(path / "one", ignore_errors=True)
            (path / "one").mkdir()
            return Place(path / "one")

        yield another


def apply(place: Place, keep: Keep | None, operations: Operations) -> None:
    assert carry_out.apply(place.plan(keep), node(place.root, operations, place.manager), ALL).exit_code == 0


@pytest.mark.ci
@pytest.mark.parametrize("keep", [None, "do-nothing"])
def test_a_death_after_every_operation_of_a_whole_plan_is_recovered_from(
    places: Callable[[], Place], keep: Keep | None
) -> None:
    place = places()
    before = snapshot(place.root)
    counting = Counting()
    apply(place, keep, counting)
    done, units = without_times(snapshot(place.root)), place.manager.units()
    assert done != without_times(before)
    if keep is None:
        assert units == {**dict.fromkeys(UP, "inactive"), "kubelet.service": "active"}
    assert len(counting.did) > 40
    for number in range(1, len(counting.did) + 1):
        for then in ("resume", "undo"):
            place = places()
            was = snapshot(place.root)
            with pytest.raises(Crash):
                apply(place, keep, Crashing(number))
            there = node(place.root, manager=place.manager)
            if then == "resume":
                if carry_out.pending(there) is not None:
                    assert carry_out.resume(there).exit_code == 0
                elif not carry_out.history(there):
                    apply(place, keep, Operations())
                assert without_times(snapshot(place.root)) == done
                assert place.manager.units() == units
            if carry_out.last(there) is not None:
                assert carry_out.undo(there).exit_code == 0
            assert snapshot(place.root) == was
            now = place.manager.units()
            assert {name for name in UP if now[name] in ("active", "activating")} == UP.keys()
            assert all(one.finished for one in carry_out.history(there))
