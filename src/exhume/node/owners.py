"""From a cgroup path to whom it belongs: systemd unit, pod, container. Pure: the path alone is looked at."""

import re
from dataclasses import dataclass

from exhume.text import printable

# A container id is 64 hex digits with every runtime; ECS tasks use 32 and a suffix.
_ID = r"(?P<container>[0-9a-f]{64}|[0-9a-f]{32}-\d{1,20})"
_RUNTIMES = {
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "crio-conmon": "cri-o",
    "docker": "docker",
    "libpod": "podman",
    "libpod-conmon": "podman",
    "nerdctl": "containerd",
}
# Directories that runtimes without systemd put their containers in.
_HOMES = ("docker", "ecs", "libpod_parent", "garden")
# systemd driver: docker-ID.scope, cri-containerd-ID.scope; cgroupfs driver: the bare id below /docker, kubepods or /ecs.
_SCOPE = re.compile(rf"^(?P<runtime>[a-z][a-z0-9-]*?)-{_ID}\.scope$")
_BARE = re.compile(rf"^(?:(?P<runtime>[a-z][a-z0-9-]*?)-)?{_ID}$")
_UUID = r"[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}"
# pod<uid>, or kubepods-burstable-pod<uid with _>.slice; static pods have 32 hex digits of a hash as their uid. With the
# --cgroup-root of a kubelet (kind has /kubelet) the slice's name begins with that, as systemd wants it.
_POD = re.compile(
    rf"^(?:(?:[A-Za-z0-9_.]{{1,64}}-){{0,4}}kubepods(?:-[a-z]+)?-)?pod(?P<uid>{_UUID}|[0-9a-f]{{32}})(?:\.slice)?$"
)
# slice:prefix:id, systemd's notation, taken for a path by a runtime whose driver is cgroupfs while the kubelet's is systemd.
_COLONS = re.compile(rf"^(?P<slice>[^/:]{{1,250}}\.slice):(?P<runtime>[a-z][a-z0-9-]{{0,40}}):{_ID}$")
_UNIT = re.compile(r"^[^/]{1,250}\.(?:service|scope|slice|socket|mount|swap)$")
PERHAPS = "?"
"""In place of a container: the process ended before its cgroup could be read, and may have been in one."""


# user@.service(5): the manager of a user, and everything that it starts.
_USER = re.compile(r"user@(\d{1,10})\.service")
_HOLDS = (".service", ".scope")
_UNITS = (*_HOLDS, ".socket", ".mount", ".swap")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a cgroup belongs to, as far as its path tells; the innermost of each."""

    unit: str = ""
    pod: str = ""
    container: str = ""
    runtime: str = ""

    def __str__(self) -> str:
        if self.container:
            return f"container {self.container[:12]}" + (f" of pod {self.pod}" if self.pod else "")
        if self.pod:
            return f"pod {self.pod}"
        return self.unit


def owner(path: str) -> Owner:
    """The owner of a cgroup. A unit is only named when the group lies in it: slices are places, not owners."""
    unit = pod = container = runtime = ""
    above: list[str] = []
    for part in path.split("/"):
        if match := _COLONS.match(part):
            inside = _POD.match(match["slice"])
            pod = inside["uid"].replace("_", "-") if inside else pod
            container, runtime = match["container"], _RUNTIMES.get(match["runtime"], match["runtime"])
        elif match := _POD.match(part):
            pod = match["uid"].replace("_", "-")
        elif match := _SCOPE.match(part):
            container = match["container"]
            runtime = _RUNTIMES.get(match["runtime"], match["runtime"])
        elif match := _BARE.match(part):
            container = match["container"]
            runtime = _RUNTIMES.get(match["runtime"] or "", next((name for name in above if name in _HOMES), ""))
        elif _UNIT.match(part) and not part.endswith(".slice"):
            unit = part
        above.append(part)
    return Owner(unit, pod, container, runtime)


def foreign(path: str) -> tuple[str, str]:
    """A unit on the way that is not of this node's own systemd, and what holds it: a user's manager, a container, another unit.

    They have units of the same names as the node's. Nothing twice where every unit of the path is the node's.
    """
    held = ""
    parts = path.split("/")
    for place, part in enumerate(parts):
        if not part.endswith(_UNITS) or _is_container(part):
            held = f"inside {str(owner('/'.join(parts[: place + 1]))) or printable(part, 80)}" if _is_container(part) else held
            continue
        if held:
            return part, held
        if part.endswith(_HOLDS):
            user = _USER.fullmatch(part)
            held = f"of the user {user[1]}" if user else f"inside {printable(part, 80)}"
    return "", ""


def units(path: str) -> tuple[str, ...]:
    """Every unit that a path leads through, the node's own first."""
    return tuple(part for part in path.split("/") if part.endswith(_UNITS))


def _is_container(part: str) -> bool:
    """Also where only the form of its name is kept, as for many of a kind (zombie_groups.Shapes)."""
    whose = owner(f"/{part}")
    return bool(whose.container or whose.pod) or "<id>" in part or "<uid>" in part
