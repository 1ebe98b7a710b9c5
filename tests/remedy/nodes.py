"""Nodes to act on in tests: a root directory with a manager that lives in a file, and ways to die in the middle of it."""

import json
import os
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from exhume.errors import ExhumeError
from exhume.host.root import Root
from exhume.remedy.manager import UnitState
from exhume.remedy.node import Node
from exhume.remedy.operations import Operations

UNITS = "etc/systemd/system"


class FileManager:
    """What systemd would do, kept in a file so that it outlives whoever talks to it; masks count from the last reload on.

    A stop is also that of whoever requires, is bound to or is part of the unit, and a start that of what it requires; no
    socket is started whose service runs.
    """

    def __init__(self, root: Path, store: Path) -> None:
        self._root, self._store = root, store

    def set(self, **units: str) -> None:
        self._save({"units": units, "masked": [], "calls": []})

    @property
    def calls(self) -> list[str]:
        return [str(call) for call in self._load()["calls"]]

    def units(self) -> dict[str, str]:
        return dict(self._load()["units"])

    def state(self, unit: str) -> UnitState:
        told = self._load()
        active = told["units"].get(unit, "inactive")
        load = "masked" if unit in told["masked"] else "loaded"
        return UnitState(active, {"activating": "auto-restart", "active": "running"}.get(active, "dead"), load)

    def dependents(self, unit: str) -> tuple[str, ...]:
        return ()

    def control_group(self, unit: str) -> str:
        """Nothing of it runs: the root has no processes."""
        return ""

    def stop(self, unit: str) -> None:
        self._become(self._with(unit), "inactive", f"stop {unit}")

    def start(self, unit: str, mode: str = "replace") -> None:
        if unit in self._load()["masked"]:
            raise ExhumeError(f"systemd refused StartUnit {unit}: it is masked")
        service = unit.removesuffix(".socket") + ".service"
        if unit.endswith(".socket") and not self.state(service).down:
            self._become([], "", f"refused {unit}: its service is active already")
        else:
            self._become(
                [unit, *_named(self._depends().get(unit, ""), "Requires", "BindsTo")], "active", f"start {unit} {mode}"
            )

    def restart(self, unit: str) -> None:
        up = [one for one in self._with(unit) if one == unit or not self.state(one).down]
        self._become(up, "active", f"restart {unit}")

    def reboot(self) -> None:
        self._become([], "", "reboot")

    def reset_failed(self, unit: str) -> None:
        if self.state(unit).active == "failed":
            self._become([unit], "inactive", f"reset {unit}")
        else:
            self._become([], "", f"reset {unit}")

    def reload(self) -> None:
        told = self._load()
        found = (self._root / UNITS).iterdir()
        told["masked"] = [path.name for path in found if path.is_symlink() and os.readlink(path) == "/dev/null"]
        told["calls"].append("reload")
        self._save(told)

    def _with(self, unit: str) -> list[str]:
        """It, and all that stop with it."""
        found = [unit]
        for one in found:  # grows as it goes
            found += [
                name
                for name, text in self._depends().items()
                if one in _named(text, "Requires", "BindsTo", "PartOf") and name not in found
            ]
        return found

    def _depends(self) -> dict[str, str]:
        """The unit files by name, those in /etc before the others."""
        found: dict[str, str] = {}
        for place in (UNITS, "usr/lib/systemd/system"):
            for path in sorted((self._root / place).glob("*.*")):
                if path.is_file() and not path.is_symlink():
                    found.setdefault(path.name, path.read_text())
        return found

    def _become(self, units: Sequence[str], state: str, call: str) -> None:
        """Whoever was never told of stays so: nobody asked for it."""
        told = self._load()
        told["units"] |= {unit: state for place, unit in enumerate(units) if not place or unit in told["units"]}
        told["calls"].append(call)
        self._save(told)

    def _load(self) -> dict[str, Any]:
        return dict(json.loads(self._store.read_text()))

    def _save(self, told: dict[str, Any]) -> None:
        self._store.write_text(json.dumps(told))


def _named(text: str, *keys: str) -> list[str]:
    """The units that a unit file names by these settings."""
    lines = [line.partition("=") for line in text.splitlines()]
    return [word for key, _, value in lines if key in keys for word in value.split()]


class Crash(BaseException):
    """The process is no more; nothing that handles errors sees it."""


class Counting(Operations):
    """Tells what was done, in order."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def happened(self, what: str) -> None:
        self.did.append(what)


class Crashing(Counting):
    """Dies right after the n-th operation."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self._number = number

    def happened(self, what: str) -> None:
        super().happened(what)
        if len(self.did) == self._number:
            self.die()

    def die(self) -> None:
        raise Crash


class Killed(Crashing):
    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


class Torn(Crashing):
    """Dies in the middle of a write, if the n-th operation is one."""

    def write(self, fd: int, data: bytes) -> None:
        if len(self.did) + 1 == self._number:
            os.write(fd, data[: len(data) // 2])
            raise Crash
        super().write(fd, data)


class PowerCut(Crashing):
    """Dies, and what was not synced is lost: names without their directory's sync, contents without their file's.

    After one that was only killed, what that one had not synced is lost too.
    """

    def __init__(self, number: int, stash: Path, killed: "PowerCut | None" = None) -> None:
        super().__init__(number)
        self.loses = True
        self._stash = stash
        self._unsynced: list[tuple[int, Callable[[int], None]]] = killed._unsynced if killed else []
        """What would be lost with it: a descriptor of our own of the file or directory, and how it gets lost."""

    def create(self, name: str, at: int) -> int:
        self._lose(at, lambda at: os.unlink(name, dir_fd=at))
        return super().create(name, at)

    def link(self, target: str, name: str, at: int) -> None:
        self._lose(at, lambda at: os.unlink(name, dir_fd=at))
        super().link(target, name, at)

    def mkdir(self, name: str, at: int, mode: int) -> None:
        self._lose(at, lambda at: shutil.rmtree(f"/proc/self/fd/{at}/{name}"))
        super().mkdir(name, at, mode)

    def rmdir(self, name: str, at: int) -> None:
        mode = stat.S_IMODE(os.stat(name, dir_fd=at).st_mode)
        super().rmdir(name, at)
        self._lose(at, lambda at: os.mkdir(name, mode, dir_fd=at))

    def unlink(self, name: str, at: int) -> None:
        kept = self._kept(name, at)
        super().unlink(name, at)
        self._lose(at, lambda at: os.rename(kept, name, dst_dir_fd=at))

    def rename(self, old: str, new: str, at: int) -> None:
        kept = self._kept(new, at) if os.access(f"/proc/self/fd/{at}/{new}", os.F_OK) or _is_link(new, at) else None

        def back(at: int) -> None:
            os.rename(new, old, src_dir_fd=at, dst_dir_fd=at)
            if kept is not None:
                os.rename(kept, new, dst_dir_fd=at)

        self._lose(at, back)
        super().rename(old, new, at)

    def write(self, fd: int, data: bytes) -> None:
        size = os.fstat(fd).st_size
        self._lose(fd, lambda fd: os.ftruncate(fd, size))
        super().write(fd, data)

    def sync(self, fd: int, what: str = "") -> None:
        for own, revert in self._unsynced[:]:
            if os.path.sameopenfile(own, fd):
                self._unsynced.remove((own, revert))
                os.close(own)
        super().sync(fd, what)

    def die(self) -> None:
        if not self.loses:
            raise Crash
        for own, revert in reversed(self._unsynced):
            with suppress(FileNotFoundError):  # its directory is gone, and the disk knows that
                revert(own)
            os.close(own)
        raise Crash

    def _lose(self, fd: int, revert: Callable[[int], None]) -> None:
        self._unsynced.append((os.dup(fd), revert))

    def _kept(self, name: str, at: int) -> Path:
        """A copy, not a second name, which would be seen."""
        kept = self._stash / f"{len(self.did)}-{id(self)}"
        shutil.copy2(f"/proc/self/fd/{at}/{name}", kept, follow_symlinks=False)
        status = os.stat(name, dir_fd=at, follow_symlinks=False)
        os.chown(kept, status.st_uid, status.st_gid, follow_symlinks=False)
        return kept


def _is_link(name: str, at: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def snapshot(root: Path) -> dict[str, tuple[object, ...]]:
    """Everything below a root, the journal apart: type, mode, owner, content or target, attributes, and when it was written."""
    found: dict[str, tuple[object, ...]] = {}
    for directory, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(directory, name)
            inner = str(path.relative_to(root))
            if inner.startswith("var"):
                continue
            status = path.lstat()
            attributes = {
                name: os.getxattr(path, name, follow_symlinks=False) for name in os.listxattr(path, follow_symlinks=False)
            }
            whose = (stat.filemode(status.st_mode), status.st_uid, status.st_gid, tuple(sorted(attributes.items())))
            if path.is_symlink():
                found[inner] = (*whose, os.readlink(path), status.st_mtime_ns)
            elif path.is_dir():
                found[inner] = whose
            else:
                found[inner] = (*whose, path.read_bytes(), status.st_mtime_ns)
    return found


def without_times(tree: dict[str, tuple[object, ...]]) -> dict[str, tuple[object, ...]]:
    return {name: row[:5] for name, row in tree.items()}


def node(root: Path, operations: Operations | None = None, manager: FileManager | None = None) -> Node:
    return Node(Root(str(root)), manager, operations or Operations())


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory in memory: where thousands of files are synced, a disk takes minutes."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="exhume-test-", dir=memory) as path:
        yield Path(path)
