"""Leaked cgroup directories: visible, empty, nobody's. They are removed bottom up, and cannot be brought back.

A directory made anew would have the name and none of the rest (limits, statistics, the identity that others hold on to), so
undo does not pretend. The kernel itself refuses to remove a group with a process or a child in it (cgroup_destroy_locked in
kernel/cgroup/cgroup.c); what it cannot know is whether somebody has only just made it, or still counts on it.

A report may be anybody's, and rmdir takes every empty directory: nothing is listed or removed that is not of a cgroup file
system, below a place where this node has one mounted.
"""

import os
import time
from dataclasses import dataclass

from exhume.errors import ExhumeError, Refused
from exhume.host.cgroups import layout
from exhume.host.paths import encode
from exhume.host.root import Root
from exhume.kernel.file_system import is_cgroup
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Risk, Step
from exhume.remedy.steps.cgroups_claimed import Claims, limited
from exhume.remedy.steps.kind import AFTERWARDS, State
from exhume.text import from_path, printable

SETTLE_S = 1.0
"""Who makes a group puts a process in at once; only what was there so long ago, too, is taken for left behind."""
MOST = 100_000
_DEEPEST = 64
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        _confine(step, node)
        lines = []
        for below in step.paths:
            groups = groups_below(node, step.target, below)
            number = f"{len(groups):,}" + ("" if len(groups) < MOST else " or more")
            lines.append(f"rmdir what is empty of the {number} directories below {printable(from_path(step.target + below))}")
        return "\n".join(lines) + "\n"

    def mark(self, step: Step, node: Node) -> str:
        return ""

    def done(self, step: Step, node: Node) -> bool:
        _confine(step, node)
        return not any(groups_below(node, step.target, below) for below in step.paths)

    def before(self, step: Step, node: Node) -> State:
        if not node.root.same_kernel():
            raise Refused("cgroups are only removed on the node whose kernel this is")
        _confine(step, node)
        return {"directories": sum(len(groups_below(node, step.target, below)) for below in step.paths)}

    def apply(self, step: Step, node: Node, before: State, token: str) -> str:
        from exhume.remedy.cores import Pace  # only this step needs what it brings along

        _confine(step, node)
        early = {group for below in step.paths for group in groups_below(node, step.target, below)}
        time.sleep(SETTLE_S)
        removed = kept = 0
        pace, claims = Pace(), Claims(node)
        for below in step.paths:
            groups = groups_below(node, step.target, below)
            for place, group in enumerate(groups):
                if group in early and not claims.unit_or_pod(group.path) and _remove(node, step.target, group):
                    removed += 1
                else:
                    kept += 1
                pace()
                node.progress("removing empty cgroups", (place + 1) / len(groups))
        return f"{removed:,} directories removed, {kept:,} kept"

    def undo(self, step: Step, node: Node, before: State, token: str) -> str:
        return "removed cgroup directories are not made again"


def unconfined(step: Step, root: Root) -> str:
    """Why a step is not about cgroups of this node; empty if it is."""
    if step.target not in {hierarchy.path for hierarchy in layout(root).hierarchies}:
        return "no cgroup hierarchy of this node is mounted there"
    for below in step.paths:
        parts = below.split("/")
        plain = below == "/" or not any(part in ("", ".", "..") for part in parts[1:])
        if parts[0] or len(parts) < 2 or not plain or encode(step.target + below) is None:
            return f"{_shown(below)} is no path of a cgroup"
    return ""


def groups_below(node: Node, mount: str, below: str) -> list[Group]:
    """Every directory below, the deepest first, itself not."""
    try:
        top = _open(node, mount + below)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ExhumeError(f"{_shown(mount + below)}: {error.strerror}") from None
    try:
        return _listed(top, below.rstrip("/"), os.fstat(top).st_dev, _DEEPEST, [])
    finally:
        os.close(top)


def _listed(fd: int, path: str, device: int, depth: int, found: list[Group]) -> list[Group]:
    with os.scandir(fd) as entries:
        inner = [(entry.name, entry.inode()) for entry in entries if entry.is_dir(follow_symlinks=False)]
    for name, inode in inner:
        if len(found) >= MOST:
            break
        try:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
        except OSError:  # gone meanwhile
            continue
        try:
            if os.fstat(child).st_dev != device:
                continue  # something else is mounted over it
            if depth:
                _listed(child, f"{path}/{name}", device, depth - 1, found)
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
        if os.stat(name, dir_fd=fd, follow_symlinks=False).st_ino != group.inode or limited(fd, name, group.path):
            return False
        node.operations.rmdir(name, fd)
        return True
    except OSError:  # EBUSY: it has a process, or a child that was kept
        return False
    finally:
        os.close(fd)


def _confine(step: Step, node: Node) -> None:
    if why := unconfined(step, node.root):
        raise Refused(f"{step.kind} {_shown(step.target)}: {why}")


def _open(node: Node, path: str) -> int:
    """A directory of a cgroup file system. Refused for any other, whatever the path says."""
    if encode(path) is None:
        raise Refused(f"{_shown(path)} is no path")
    fd = node.root.open(path, os.O_RDONLY | os.O_DIRECTORY)
    if not is_cgroup(fd):
        os.close(fd)
        raise Refused(f"{_shown(path)} is no directory of a cgroup file system")
    return fd


def _shown(path: str) -> str:
    return printable(path if encode(path) is None else from_path(path))
