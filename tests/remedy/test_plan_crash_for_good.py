"""A plan with what cannot be undone, purge, rmdir and reboot, and a death after every single operation of it.

Resume ends with all of it, and with one reboot whoever made it; undo brings back all the rest.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest

from exhume.host.directory import Directory
from exhume.host.root import Root
from exhume.host.systemd.units import read_units
from exhume.remedy import carry_out, plan_zombies
from exhume.remedy.carry_out import Consent
from exhume.remedy.operations import Operations
from exhume.remedy.plan import Planner, Wishes
from exhume.remedy.plan_model import Plan
from exhume.remedy.plan_zombies import Zombies
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps import cgroups, expected
from tests.remedy.nodes import Counting, Crash, Crashing, FileManager, node, scratch, snapshot, without_times
from tests.remedy.test_plan import LEAK, leaked_directories, report
from tests.remedy.test_plan_crash import UP
from tests.remedy.test_plan_crash import Place as WithoutAKernel

ALL = Consent(True, True)
MEMORY = "sys/fs/cgroup/memory"
BOOT_ID = "proc/sys/kernel/random/boot_id"
DIRS = leaked_directories("/batch", f"/{MEMORY}/batch")


class Machine(FileManager):
    """One that can be rebooted: the kernel has another boot_id then."""

    def reboot(self) -> None:
        super().reboot()
        self.boots()

    def boots(self) -> None:
        boot = self._root / BOOT_ID
        boot.write_text(f"{int(boot.read_text()) + 1}\n")


class Place(WithoutAKernel):
    """The same agent, with zombies and empty directories that it has left behind."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        (self.root / MEMORY / "batch/a/b").mkdir(parents=True)
        (self.root / MEMORY / "batch/c").mkdir()
        (self.root / MEMORY / "memory.usage_in_bytes").touch()
        (self.root / BOOT_ID).parent.mkdir(parents=True)
        (self.root / BOOT_ID).write_text("1\n")
        self.machine = Machine(self.root, path / "manager")
        (self.root / MEMORY / "zombies").write_text("40")

    def made(self) -> Plan:
        there = node(self.root, manager=self.machine)
        with Directory(str(self.root)) as tree:
            planner = Planner(there, tree, Protection(read_units(tree)), Wishes(None, True, "now"))
            return expected(planner.plan("node", report(LEAK, DIRS, cause=None)), there)

    def apply(self, operations: Operations) -> None:
        assert carry_out.apply(self.made(), node(self.root, operations, self.machine), ALL).exit_code == 0

    @property
    def reboots(self) -> int:
        return self.machine.calls.count("reboot")

    def of_the_kernel(self) -> tuple[list[str], str]:
        """The directories that are left, and the zombies."""
        return sorted(path.name for path in (self.root / MEMORY / "batch").rglob("*")), (
            self.root / MEMORY / "zombies"
        ).read_text()

    def files(self) -> dict[str, tuple[object, ...]]:
        return {name: row for name, row in snapshot(self.root).items() if not name.startswith(("sys", "proc"))}


class Purged:
    """A purge of what a file counts."""

    def __init__(self, root: Root, under: str) -> None:
        self._count = Path(root.at(f"{MEMORY}/zombies"))

    def __enter__(self) -> Self:
        parts = ("one",) if self._count.read_text() != "0" else ()
        self.plan = SimpleNamespace(allowed=lambda most_lost_bytes: parts)
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def carry_out(self, parts: tuple[str, ...], progress: object) -> tuple[None, list[SimpleNamespace]]:
        self._count.write_text("0")
        return None, [SimpleNamespace(gone=40, part=SimpleNamespace(zombies=40))]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Place]]:
    monkeypatch.setattr(Root, "same_kernel", lambda self: True)
    monkeypatch.setattr(cgroups, "is_cgroup", lambda fd: True)
    monkeypatch.setattr(cgroups, "SETTLE_S", 0.0)
    monkeypatch.setattr("exhume.remedy.purging.Purging", Purged)
    monkeypatch.setattr(plan_zombies, "look", lambda node, homes: {"/system.slice": Zombies(going=40, staying=3000)})
    with scratch() as path:

        def another() -> Place:
            shutil.rmtree(path / "one", ignore_errors=True)
            (path / "one").mkdir()
            return Place(path / "one")

        yield another


@pytest.mark.ci
def test_a_death_after_every_operation_of_a_plan_that_cannot_be_undone_is_recovered_from(places: Callable[[], Place]) -> None:
    place = places()
    kinds = [step.kind for step in place.made().steps]
    assert kinds[-4:] == ["reload", "remove-empty-cgroups", "purge", "reboot"]
    counting = Counting()
    place.apply(counting)
    done, units = without_times(place.files()), place.machine.units()
    assert {"rmdir b", "call purge", "call reboot"} <= set(counting.did)
    assert (place.reboots, place.of_the_kernel()) == (1, ([], "0"))
    for number in range(1, len(counting.did) + 1):
        for then in ("resume", "resume after another's reboot", "undo"):
            place = places()
            was, kernel = place.files(), place.of_the_kernel()
            with pytest.raises(Crash):
                place.apply(Crashing(number))
            there = node(place.root, manager=place.machine)
            asked = place.reboots
            if then == "resume after another's reboot":
                place.machine.boots()
            if then != "undo" and carry_out.pending(there) is not None:
                assert carry_out.resume(there).exit_code == 0
                assert (without_times(place.files()), place.machine.units()) == (done, units)
                assert place.of_the_kernel() == ([], "0")
                assert place.reboots == (1 if then == "resume" else asked)
            rebooted = place.reboots
            if carry_out.last(there) is not None:
                assert carry_out.undo(there).exit_code == 0
            else:
                assert place.of_the_kernel() == kernel
            assert place.files() == was
            now = place.machine.units()
            assert {name for name in UP if now[name] in ("active", "activating")} == UP.keys()
            assert place.reboots == rebooted <= 1
            assert all(one.finished for one in carry_out.history(there))
