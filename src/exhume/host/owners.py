"""From a cgroup path to whom it belongs: systemd unit, pod, container. Pure: the path alone is looked at."""

import re
from dataclasses import dataclass
from typing import NamedTuple

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


ROOT = ""
"""The cgroup that the node's own systemd has as its root: the top of the hierarchy, on a node. Tests boot one further down."""
# user@.service(5): the manager of a user, and everything that it starts.
_USER = re.compile(r"user@(\d{1,10})\.service")
# Names that LXC gives to the groups of its tenants (lxc.container.conf(5)), whatever these are called.
_LXC = ("lxc.payload.", "lxc.monitor.", "lxc.pivot")
_UNITS = (".service", ".scope", ".socket", ".mount", ".swap")


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a cgroup belongs to, as far as its path tells; the innermost of each. A unit only where all
    directories above it are systemd's slices and units: below any other one (LXC, Nomad, Firecracker, a container) the name is
    a tenant's choice."""

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
    systemds = not _tenant(path)
    for part in _below_root(path).split("/"):
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
        elif _UNIT.match(part):
            unit = part if systemds and not part.endswith(".slice") else unit
        elif part:
            systemds = False
        systemds = systemds and not container
        above.append(part)
    return Owner(unit, pod, container, runtime)


class Foreign(NamedTuple):
    """A unit that is not of this node's own systemd."""

    unit: str = ""
    user: str = ""
    """Whose manager has it; else it is inside a tenant."""
    tenant: str = ""
    """A container, another unit, or a directory that systemd did not make."""


def foreign(path: str) -> Foreign | None:
    """The first unit on the way that is not of this node's own systemd. They have units of the same names as the node's.
    None where every unit of the path is the node's."""
    user, tenant = "", printable(_tenant(path), 80)
    parts = _below_root(path).split("/")
    for place, part in enumerate(parts):
        if not part.endswith(_UNITS) or _is_container(part):
            if _is_container(part):
                user, tenant = "", str(owner("/".join(parts[: place + 1]))) or printable(part, 80)
            continue
        if user or tenant:
            return Foreign(part, user, tenant)
        match = _USER.fullmatch(part)
        user, tenant = (match[1], "") if match else ("", printable(part, 80))
    return None


def own_unit(path: str) -> tuple[str, str]:
    """The unit of this node's own systemd that a cgroup is in, and the cgroup of that unit; nothing twice where there is none.

    By the path's form alone: its first unit, at the top or below slices that are nested as systemd nests them.
    """
    if _tenant(path):
        return "", ""
    parts = _below_root(path).split("/")
    place = next((place for place, part in enumerate(parts) if part.endswith(_UNITS)), -1)
    if place < 0 or any(_is_container(part) for part in parts[: place + 1]):
        return "", ""
    return parts[place], "/".join(parts[: place + 1])


def _tenant(path: str) -> str:
    """The directory on the way to a path's first unit that is none of systemd's slices: whatever made it runs tenants of its
    own there. Empty where there is none, or no unit.

    systemd keeps a-b.slice in a.slice (systemd.slice(5)); in a directory of another kind it puts nothing.
    """
    above: list[str] = []
    for part in _below_root(path).split("/")[1:]:
        if part.endswith(_UNITS) and not _is_container(part):
            return _not_systemds(above)
        above.append(part)
    return ""


def _not_systemds(parts: list[str]) -> str:
    """The way to the last directory of these that systemd has not put there; empty if they all are its slices."""
    prefix, last = "", ""
    for place, part in enumerate(parts):
        stem = part.removesuffix(".slice")
        name = stem.removeprefix(prefix)
        nested = stem != part and f"{prefix}{name}" == stem and name and "-" not in name
        if not nested or part.startswith(_LXC):
            last = "/" + "/".join(parts[: place + 1])
        prefix = f"{stem}-" if nested else ""
    return last


def _below_root(path: str) -> str:
    return path.removeprefix(ROOT) if path.startswith(f"{ROOT}/") else path


def units(path: str) -> tuple[str, ...]:
    """Every unit that a path leads through, the node's own first."""
    return tuple(part for part in path.split("/") if part.endswith(_UNITS))


def innermost(path: str) -> str:
    """The innermost name of a unit on a path, whoever gave it; containers have none."""
    return next((part for part in reversed(units(path)) if not _is_container(part)), "")


def _is_container(part: str) -> bool:
    """Also where only the form of its name is kept, as for many of a kind (zombie_groups.Shapes)."""
    return any(form.match(part) for form in (_COLONS, _POD, _SCOPE, _BARE)) or "<id>" in part or "<uid>" in part
