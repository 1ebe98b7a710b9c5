"""Where incidents are made: everything has the run's name in it, so that whatever a killed run left is found and removed.

    /run/exhume-lab/ID          owner (who runs it, in case of doubt), dev/kmsg (a stand-in for the kernel's log),
                                settings (what it changed on the node, and what to put back)
    cgroups   exhume-lab-ID     below the root of each hierarchy that a scenario uses
    networks  exhume-lab-ID-*   network namespaces, and with them their devices
    files     /dev/shm/exhume-lab-ID*, /var/tmp/exhume-lab-ID*

Processes die with the run: each asks the kernel for SIGKILL when its parent is gone (PR_SET_PDEATHSIG).
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from exhume.errors import Refused
from exhume.lab.cgroup import Cgroup, hierarchies
from exhume.lab.work import PARENT
from exhume.python import python
from exhume.text import from_json

SWITCH: Final = "EXHUME_LAB"
PREFIX: Final = "exhume-lab"
RUNS: Final = Path("/run") / PREFIX
FILES: Final = (Path("/dev/shm"), Path("/var/tmp"))
_NETWORKS = Path("/run/netns")
_NAME = re.compile(rf"{PREFIX}-(?P<id>[0-9]+-[0-9a-f]{{6}})(?![0-9a-f])")
_PATIENCE_S = 10
_SETTINGS = "settings"


def allow() -> None:
    """Refuses unless the person has said that this machine is one to make incidents on."""
    if os.environ.get(SWITCH) != "1":
        raise Refused(f"this makes a real incident on this machine; set {SWITCH}=1 if it is one to do that on")
    if os.geteuid():
        raise Refused("it takes root to make cgroups, namespaces and load")


class Lab:
    """One run. A context manager: what it made is gone afterwards, and what earlier runs left, before."""

    def __init__(self) -> None:
        allow()
        clean()
        self.id = f"{os.getpid()}-{secrets.token_hex(3)}"
        self.name = f"{PREFIX}-{self.id}"
        self.home = RUNS / self.id
        (self.home / "dev").mkdir(parents=True, mode=0o700)
        self.kmsg.touch()
        (self.home / "owner").write_text(_identity(os.getpid()))
        self._processes: list[subprocess.Popen[str]] = []
        self.begins: Callable[[], None] = lambda: None
        """Called by a scenario that takes long to prepare, once all is there and before it begins to hurt: for who watches."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in reversed(self._processes):
            end(process)
        remove(self.id)

    @property
    def kmsg(self) -> Path:
        """Lines as /dev/kmsg has them, for whoever reads the kernel log of this incident with `home` as its root; never the
        node's own."""
        return self.home / "dev" / "kmsg"

    def file(self, name: str, memory: bool) -> Path:
        """Where a file of this run goes: kept in memory (tmpfs), or on the disk."""
        return FILES[0 if memory else 1] / f"{self.name}-{name}"

    def cgroup(self, controller: str, *below: str) -> Cgroup:
        """A cgroup of this run in the hierarchy that has the controller."""
        hierarchy = next((each for each in hierarchies() if controller in each.controllers), None)
        if hierarchy is None:
            raise Refused(f"no cgroup hierarchy with the {controller} controller is mounted here")
        return Cgroup.make(hierarchy, controller, self.name, *below)

    def set(self, setting: Path, value: str) -> None:
        """Change a setting of the node until the run is over. What it was is written down first, for whoever cleans up."""
        with open(self.home / _SETTINGS, "a") as file:
            file.write(json.dumps([str(setting), setting.read_text().strip(), value]) + "\n")
            file.flush()
            os.fsync(file.fileno())
        setting.write_text(value)

    def work(self, what: str, *arguments: object, into: Cgroup | None = None) -> "subprocess.Popen[str]":
        """Start a little program of work.py. It is put into a cgroup before it begins."""
        command = python("-m", "exhume.lab.work", what, *map(str, arguments))
        environment = {**os.environ, PARENT: str(os.getpid())}
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._processes.append(process)
        if into is not None:
            into.enter(process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.write("go\n")
            process.stdin.flush()
        return process


def end(process: "subprocess.Popen[str]") -> None:
    """With all that it started, which is in its session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_PATIENCE_S)
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(OSError):
                stream.close()


def clean() -> list[str]:
    """Remove what runs that are over have left; their names."""
    removed = []
    for name in sorted(found()):
        if not _lives(name):
            remove(name)
            removed.append(name)
    return removed


def found() -> set[str]:
    """The runs of which there is anything."""
    names = {entry.name for entry in RUNS.iterdir()} if RUNS.is_dir() else set()
    places = [*FILES, _NETWORKS, *(Path(hierarchy.path) for hierarchy in hierarchies())]
    for place in places:
        with suppress(OSError):
            names |= {match["id"] for entry in os.listdir(place) if (match := _NAME.match(entry))}
    return names


def remove(run: str) -> None:
    """Everything of a run: processes first, files before cgroups because they pin them."""
    name = f"{PREFIX}-{run}"
    groups = [Cgroup(hierarchy, f"/{name}") for hierarchy in hierarchies()]
    for group in groups:
        group.kill()
    for network in _listed(_NETWORKS, name):
        _end_in_network(network)
        subprocess.run(("ip", "netns", "del", network), check=False, capture_output=True)
    for place in FILES:
        for entry in _listed(place, name):
            with suppress(OSError):
                (place / entry).unlink()
    for group in groups:
        group.let_go()
        group.remove()
    _put_back(RUNS / run / _SETTINGS)
    shutil.rmtree(RUNS / run, ignore_errors=True)
    with suppress(OSError):
        RUNS.rmdir()


def _put_back(settings: Path) -> None:
    """The last first; one that somebody else has changed since then is left as it is."""
    with suppress(OSError):
        for line in reversed(settings.read_text().splitlines()):
            with suppress(OSError, ValueError):  # a line that was cut by a kill: its setting was not changed yet
                setting, before, ours = from_json(line)
                if Path(setting).read_text().split() == ours.split():
                    Path(setting).write_text(before)


def _listed(place: Path, name: str) -> list[str]:
    with suppress(OSError):
        return [entry for entry in os.listdir(place) if entry == name or entry.startswith(f"{name}-")]
    return []


def _end_in_network(network: str) -> None:
    """Only processes of ours are in a namespace of ours."""
    listed = subprocess.run(("ip", "netns", "pids", network), check=False, capture_output=True, text=True).stdout
    for pid in listed.split():
        if pid.isdecimal() and int(pid) != os.getpid():
            with suppress(OSError):
                os.kill(int(pid), signal.SIGKILL)


def _identity(pid: int) -> str:
    """A process for good: its number and when it began, of this boot."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        return ""
    return f"{pid} {fields[19]} {boot}"


def _lives(run: str) -> bool:
    try:
        owner = (RUNS / run / "owner").read_text()
    except OSError:
        owner = ""
    pid = owner.partition(" ")[0]
    if not owner:
        return _begins(run)
    return pid.isdecimal() and _identity(int(pid)) == owner


def _begins(run: str) -> bool:
    """Whether it was made a moment ago by a process that is there, and so has not yet said whose it is."""
    try:
        age_s = time.time() - (RUNS / run).stat().st_mtime
    except OSError:
        return False
    pid = run.partition("-")[0]
    return age_s < _PATIENCE_S and pid.isdecimal() and bool(_identity(int(pid)))
