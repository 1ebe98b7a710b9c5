"""cgroups of a lab run, on v1 and v2 alike: made, entered, emptied, removed."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Self

from exhume.errors import Refused
from exhume.host.cgroups import Hierarchy, layout
from exhume.host.root import Root

_PATIENCE_S = 10


def hierarchies() -> tuple[Hierarchy, ...]:
    return _hierarchies()


@cache
def _hierarchies() -> tuple[Hierarchy, ...]:
    return tuple(hierarchy for hierarchy in layout(Root()).hierarchies if os.access(hierarchy.path, os.W_OK))


@dataclass(frozen=True, slots=True)
class Cgroup:
    hierarchy: Hierarchy
    path: str
    """From the root of the hierarchy."""

    @property
    def directory(self) -> Path:
        return Path(self.hierarchy.path + self.path)

    @classmethod
    def make(cls, hierarchy: Hierarchy, controller: str, *names: str) -> Self:
        """With all that is above it. On v2 each of those hands the controller down, the root only if it does so already:
        what the node gives to its own children is not ours to change."""
        path = ""
        for name in names:
            if hierarchy.version == 2:
                _hand_down(Path(hierarchy.path + path), controller, ours=bool(path))
            path += f"/{name}"
            with suppress(FileExistsError):
                os.mkdir(hierarchy.path + path)
        return cls(hierarchy, path)

    @property
    def tasks(self) -> Path:
        """Where one thread (v1) or one process (v2) writes 0 to enter."""
        return self.directory / ("tasks" if self.hierarchy.version == 1 else "cgroup.procs")

    def enter(self, pid: int) -> None:
        (self.directory / "cgroup.procs").write_text(str(pid))

    def set(self, name: str, value: object) -> None:
        try:
            (self.directory / name).write_text(str(value))
        except OSError as error:
            raise Refused(f"{self.directory / name} cannot be set to {value}: {error.strerror}") from None

    def hand_down(self, controller: str) -> None:
        """On v2 what is made in it has the controller only if it says so; on v1 it always has."""
        if self.hierarchy.version == 2:
            _hand_down(self.directory, controller, ours=True)

    def kill(self) -> None:
        """Whoever is in it or below it: they are all ours."""
        for group in self._below():
            with suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    if int(pid) not in (0, os.getpid()):
                        with suppress(OSError):
                            os.kill(int(pid), signal.SIGKILL)

    def let_go(self) -> None:
        """Give up the pages of files that are there for everybody and were first read in here, as Python's own are: they would
        make zombies of what is removed."""
        for name, text in (("memory.force_empty", "0"), ("memory.reclaim", "1G")):
            with suppress(OSError):  # it is one or the other; and less than asked is there to be had
                (self.directory / name).write_text(text)

    def remove(self) -> None:
        """With everything below it. Who was killed takes a moment to leave."""
        deadline = time.monotonic() + _PATIENCE_S
        while self.directory.is_dir():
            for group in self._below():
                with suppress(OSError):
                    os.rmdir(group)
            if not self.directory.is_dir() or time.monotonic() > deadline:
                return
            self.kill()
            time.sleep(0.02)

    def _below(self) -> Iterator[Path]:
        """Deepest first."""
        for directory, _, _ in os.walk(self.directory, topdown=False):
            yield Path(directory)


def _hand_down(directory: Path, controller: str, *, ours: bool) -> None:
    control = directory / "cgroup.subtree_control"
    if controller in control.read_text().split():
        return
    if not ours:
        raise Refused(f"{control} does not hand the {controller} controller down (systemd does): not ours to change")
    control.write_text(f"+{controller}")
