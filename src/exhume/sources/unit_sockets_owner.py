"""Whose a process is, by the cgroup that systemd keeps for it: a unit, a pod, a container. For the ends of sockets."""

from exhume.errors import Unreadable
from exhume.host.owners import Owner, owner
from exhume.host.root import Root
from exhume.sources.container_state import Containers
from exhume.sources.processes import parse_cgroup
from exhume.sources.unit_sockets_model import INIT
from exhume.text import decode


def systemd_path(raw: bytes) -> str:
    """Of /proc/PID/cgroup the hierarchy that systemd puts units in: name=systemd of v1, else v2's; else the most telling."""
    unified = ""
    for line in raw.split(b"\n"):
        parts = line.split(b":", 2)
        if len(parts) == 3 and parts[1] == b"name=systemd":
            return decode(parts[2])
        if len(parts) == 3 and parts[0] == b"0" and not parts[1]:
            unified = decode(parts[2])
    return unified if unified not in ("", "/") else parse_cgroup(raw)


class Owners:
    """Asked once a process, because the kernel takes cgroup_mutex to tell (proc_cgroup_show)."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._containers = Containers(root)
        self._known: dict[int, str] = {}
        self._names: dict[Owner, str] = {}
        init = self._path(1)
        self._top = init.removesuffix("/init.scope") if init.endswith("/init.scope") else ""
        """The cgroup below which this root's systemd keeps its units: of a container that is seen from outside not the top."""

    def of(self, pid: int) -> str:
        """A unit's name; namespace/pod as Kubernetes has it, a container's name; else the process."""
        if pid not in self._known:
            self._known[pid] = self._name(self.owner(pid)) or (INIT if pid == 1 else f"process {pid}")
        return self._known[pid]

    def owner(self, pid: int) -> Owner:
        return owner(self._path(pid).removeprefix(self._top))

    def _path(self, pid: int) -> str:
        try:
            return systemd_path(self._root.read(f"proc/{pid}/cgroup", 1 << 16))
        except Unreadable:
            return ""

    def _name(self, whose: Owner) -> str:
        if not (whose.container or whose.pod):
            return whose.unit
        if whose not in self._names:
            state = self._containers.describe(whose)
            if state.pod:
                self._names[whose] = f"pod {state.namespace}/{state.pod}"
            else:
                self._names[whose] = f"container {state.name}" if state.name else str(whose)
        return self._names[whose]
