"""The processes of a unit as they are now: every one in its cgroup and below, by what the kernel says that it executes."""

import os
from dataclasses import dataclass
from functools import cached_property

from exhume.errors import Unreadable
from exhume.host.root import Root, read_at
from exhume.remedy.protected_programs import SAMPLE
from exhume.sources.processes import MOST_LISTED, cgroup_of
from exhume.text import decode, from_path

_INIT = "/init.scope"


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    comm: str
    exe: str
    """Empty of a zombie and of a kernel thread, which execute nothing; a `?` where the kernel does not let us see it."""
    argument: str
    """What it calls itself: the first word of its command line."""
    size: int = 0
    link: str = ""

    def sample(self) -> bytes:
        """The beginning of the file that it executes; nothing where it is gone, or cannot be read."""
        try:
            return read_at(self.link, SAMPLE)
        except OSError:
            return b""


class UnitProcesses:
    """Of one node; the list of processes is read once."""

    def __init__(self, root: Root) -> None:
        self._root = root

    @cached_property
    def top(self) -> str:
        """Where the root of systemd's cgroups is as /proc shows it here: its own is init.scope there (systemd.special(7))."""
        try:
            return cgroup_of(self._root, 1).removesuffix(_INIT).rstrip("/")
        except Unreadable:
            return ""

    @property
    def visible(self) -> bool:
        return bool(self._cgroups)

    @cached_property
    def _cgroups(self) -> dict[int, str]:
        try:
            pids = sorted(int(name) for name in self._root.names("proc") if name.isascii() and name.isdigit())
        except Unreadable:
            return {}
        if len(pids) > MOST_LISTED:
            return {}  # those that are not looked at may be the unit's
        found = {}
        for pid in pids:
            try:
                found[pid] = cgroup_of(self._root, pid)
            except Unreadable:  # gone meanwhile
                continue
        return found

    def of(self, control_group: str) -> tuple[Process, ...]:
        """In the group that systemd calls so, and below; by its path as systemd sees it, or as it is seen from here."""
        homes = {control_group, f"{self.top}{control_group}"} - {"", "/"}
        inside = [pid for pid, path in self._cgroups.items() if any(f"{path}/".startswith(f"{home}/") for home in homes)]
        every = (self._process(pid) for pid in inside)
        return tuple(process for process in every if process is not None)

    def _process(self, pid: int) -> Process | None:
        try:
            comm = decode(self._root.read(f"proc/{pid}/comm", 64)).rstrip("\n")
            argument = decode(self._root.read(f"proc/{pid}/cmdline", 4096)).partition("\0")[0]
        except Unreadable:
            return None  # gone meanwhile
        link = self._root.at(f"proc/{pid}/exe")
        try:
            exe = from_path(os.readlink(link)).removesuffix(" (deleted)")
            size = os.stat(link).st_size
        except FileNotFoundError:
            return Process(pid, comm, "", argument)
        except OSError:
            return Process(pid, comm, "?", argument)
        return Process(pid, comm, exe, argument, size, link)
