"""Leaked cgroup directories: visible, empty, nobody's. They are removed bottom up, and cannot be brought back.

A directory made anew would have the name and none of the rest (limits, statistics, the identity that others hold on to), so
undo does not pretend. The kernel itself refuses to remove a group with a process or a child in it (cgroup_destroy_locked in
kernel/cgroup/cgroup.c); what it cannot know is whether somebody has only just made it, or still counts on it.
"""

import os
import time
from dataclasses import dataclass

from exhume.errors import ExhumeError, Refused
from exhume.image.resolve import encode, open_by_steps
from exhume.node.owners import owner
from exhume.remedy.manager import Manager
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Risk, Step
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.remedy.whose import units
from exhume.text import from_path, printable

SETTLE_S = 1.0
"""Who makes a group puts a process in at once; only what was there so long ago, too, is taken for left behind."""
MOST = 100_000
_DEEPEST = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNITS = (".service", ".scope", ".slice", ".socket", ".mount", ".swap")


def remove_empty_cgroups(mount: str, below: tuple[str, ...], reason: str, risk: Risk = "medium") -> Step:
    """All that are empty below these directories, which stay themselves, of the hierarchy that is mounted there."""
    return Step("remove-empty-cgroups", mount, reason, risk, undoable=False, paths=below)


@dataclass(frozen=True, slots=True)
class Group:
    path: str
    inode: int


class RemoveEmptyCgroups:
    name = "remove-empty-cgroups"
    undoable = False
    undo_rank = AFTERWARDS
    offline = True

    def preview(self, step: Step, node: Node) -> str:
        lines = []
        for below in step.paths:
            groups = groups_below(node, step.target, below)
            number = f"{len(groups):,}" + ("" if len(groups) < MOST else " or more")
            lines.append(f"rmdir what is empty of the {number} directories below {printable(from_path(step.target + below))}")
        return "\n".join(lines) + "\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        return not any(groups_below(node, step.target, below) for below in step.paths)

    def before(self, step: Step, node: Node) -> State:
        if not node.root.same_kernel():
            raise Refused("cgroups are only removed on the node whose kernel this is")
        return {"directories": sum(len(groups_below(node, step.target, below)) for below in step.paths)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        from exhume.remedy.evict import Pace  # only this step needs what it brings along

        early = {group for below in step.paths for group in groups_below(node, step.target, below)}
        time.sleep(SETTLE_S)
        removed = kept = 0
        pace, owners = Pace(), _Owners(node)
        for below in step.paths:
            groups = groups_below(node, step.target, below)
            for place, group in enumerate(groups):
                if group in early and not owners.claim(group.path) and _remove(node, step.target, group):
                    removed += 1
                else:
                    kept += 1
                pace()
                node.progress("removing empty cgroups", (place + 1) / len(groups))
        return f"{removed:,} directories removed, {kept:,} kept"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "removed cgroup directories are not made again"


def groups_below(node: Node, mount: str, below: str) -> list[Group]:
    """Every directory below, the deepest first, itself not."""
    try:
        top = _open(node, mount + below)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ExhumeError(f"{printable(from_path(mount + below))}: {error.strerror}") from None
    try:
        return _listed(top, below.rstrip("/"), _DEEPEST, [])
    finally:
        os.close(top)


def _listed(fd: int, path: str, depth: int, found: list[Group]) -> list[Group]:
    with os.scandir(fd) as entries:
        inner = [(entry.name, entry.inode()) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name, inode in inner:
        if len(found) >= MOST:
            break
        if depth:
            try:
                child = os.open(name, _DIRECTORY, dir_fd=fd)
            except OSError:  # gone meanwhile
                continue
            try:
                _listed(child, f"{path}/{name}", depth - 1, found)
            finally:
                os.close(child)
        found.append(Group(f"{path}/{name}", inode))
    return found


def _remove(node: Node, mount: str, group: Group) -> bool:
    parent, _, name = group.path.rpartition("/")
    try:
        fd = _open(node, mount + parent)
    except OSError:
        return False
    try:
        if os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino != group.inode:
            return False
        node.operations.rmdir(name, fd)
        return True
    except OSError:  # EBUSY: it has a process, or a child that was kept
        return False
    finally:
        os.close(fd)


def _open(node: Node, path: str) -> int:
    root = os.open(node.root.path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_by_steps(root, encode(path) or b"", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(root)


class _Owners:
    """Who still counts on a group although nothing runs in it: a unit that is up, a pod that the kubelet knows."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._up: dict[str, bool] = {}

    def claim(self, path: str) -> bool:
        whose = owner(path)
        last = path.rpartition("/")[2]
        if any(self._runs(self._node.manager, unit) for unit in {*units(path), *([last] if last.endswith(_UNITS) else [])}):
            return True
        if whose.container and owner(f"/{last}").container != whose.container:
            return True  # what a container has inside is its own, and whether that lives is not told by its path
        # A pod whose images are being pulled has an empty group; its directory goes when the kubelet is done with it.
        return bool(whose.pod) and self._node.root.exists(f"var/lib/kubelet/pods/{whose.pod}")

    def _runs(self, manager: Manager | None, unit: str) -> bool:
        """Where nobody can be asked, what bears a unit's name is left to it."""
        if unit not in self._up:
            try:
                self._up[unit] = manager is None or manager.state(unit).up
            except ExhumeError:
                self._up[unit] = True
        return self._up[unit]
