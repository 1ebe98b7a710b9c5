"""Who still counts on a cgroup although nothing runs in it: a unit that is up, a pod that the kubelet knows, whoever gave it
limits. The kernel would let it go all the same."""

import os
import re

from exhume.errors import ExhumeError
from exhume.host.owners import owner
from exhume.host.programs import protected_unit
from exhume.host.root import read_at
from exhume.remedy.manager import Manager
from exhume.remedy.node import Node
from exhume.remedy.whose import units

PODS = "var/lib/kubelet/pods"
_UNITS = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")
# The kubelet makes these when it starts (pkg/kubelet/cm/qos_container_manager_linux.go), not when it needs them; with a
# --cgroup-root slices bear its name before theirs.
_OF_THE_KUBELET = re.compile(r"(?:.{1,200}-)?kubepods(?:-(?:burstable|besteffort))?(?:\.slice)?|burstable|besteffort")
# v1 has no word for no limit of memory: it is PAGE_COUNTER_MAX of include/linux/page_counter.h, by the size of a page.
_LIMITS = ("memory.max", "memory.high", "cpu.max", "pids.max", "memory.limit_in_bytes", "cpu.cfs_quota_us")
_UNLIMITED_BYTES = 1 << 62


class Claims:
    """By a group's path alone, with whoever can be asked about it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._up: dict[str, bool] = {}
        self._sees_pods = bool(node.root.first_names(PODS, 1))

    def unit_or_pod(self, path: str) -> bool:
        whose = owner(path)
        last = path.rpartition("/")[2]
        if _OF_THE_KUBELET.fullmatch(last):
            return True
        named = {*units(path), *([last] if last.endswith(_UNITS) else [])}
        if any(protected_unit(unit) or self._runs(self._node.manager, unit) for unit in named):
            return True
        if whose.container and owner(f"/{last}").container != whose.container:
            return True  # what a container has inside is its own, and whether that lives is not told by its path
        # A pod whose images are being pulled has an empty group; its directory goes when the kubelet is done with it. Where
        # none has one, the kubelet's directory is elsewhere (--root-dir), and which pods live is not known.
        return bool(whose.pod) and (not self._sees_pods or self._has_directory(whose.pod))

    def _has_directory(self, pod: str) -> bool:
        """What cannot be looked at is taken for one."""
        try:
            self._node.root.status(f"{PODS}/{pod}")
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return True

    def _runs(self, manager: Manager | None, unit: str) -> bool:
        """Where nobody can be asked, what bears a unit's name is left to it."""
        if unit not in self._up:
            try:
                self._up[unit] = manager is None or manager.state(unit).up
            except ExhumeError:
                self._up[unit] = True
        return self._up[unit]


def limited(parent: int, name: str, path: str) -> bool:
    """Whether somebody set limits on a group: it was made to be kept. Units, pods and containers have them, come and go, and
    are asked about by name."""
    whose = owner(path)
    if whose.unit or whose.pod or whose.container or name.endswith(_UNITS):
        return False
    return any(_is_limit(file, parent, name) for file in _LIMITS)


def _is_limit(file: str, parent: int, name: str) -> bool:
    try:
        words = read_at(os.path.join(name, file), 64, parent).split()
    except OSError:  # the hierarchy has no such controller
        return False
    if not words or words[0] in (b"max", b"-1"):
        return False
    return file != "memory.limit_in_bytes" or not words[0].isdigit() or int(words[0]) < _UNLIMITED_BYTES
