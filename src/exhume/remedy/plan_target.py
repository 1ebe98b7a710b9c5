"""What somebody meant by TARGET: the node, a finding of the report, or a unit by any of its names, its file or its cgroup."""

import posixpath
import re
from difflib import get_close_matches

from exhume.errors import Refused, UsageError
from exhume.host.owners import owner
from exhume.host.systemd import names
from exhume.host.systemd.units import Units
from exhume.host.tree import Tree
from exhume.remedy.manager import Manager
from exhume.remedy.protected_shared import real_path
from exhume.remedy.whose import elsewhere, mounted
from exhume.text import from_path, printable

NODE = "node"
_FINDING = re.compile(r"f\d{1,5}|[a-z]+(?:-[a-z]+)+")
_CGROUPS = "/sys/fs/cgroup/"
_NEAR = 0.8  # all names share their type, so that any two of them are a little alike


def is_finding(text: str) -> bool:
    """Whether it may name a finding: f3, or a kind as memcg-leak. A unit without its type may look the same."""
    return _FINDING.fullmatch(text) is not None


def unit(text: str, tree: Tree, units: Units, manager: Manager | None) -> str:
    """The unit that is meant, by the name that was given (an alias stays one). UsageError where there is none of it."""
    name = _by_path(text, tree, units, manager) if "/" in text else text
    if not names.valid(name) and names.valid(f"{name}.service"):
        name = f"{name}.service"  # as systemctl(1) does
    if not names.valid(name):
        raise UsageError(f"{printable(from_path(text))} is not the name of a unit")
    known = units.path(name) or name in units.graph.forward
    if not known and manager is not None:
        known = manager.state(name).load not in ("not-found", "error")
    if not known:
        near = get_close_matches(name, units.layout.files, 1, _NEAR)
        hint = f", did you mean {printable(near[0])}?" if near else ""
        raise UsageError(f"there is no unit {printable(name)} on this node{hint}")
    return name


def _by_path(text: str, tree: Tree, units: Units, manager: Manager | None) -> str:
    """The unit of a file, whichever link leads to it, or of a cgroup."""
    path = posixpath.normpath(text)
    if path.startswith(_CGROUPS) or tree.entry(path, follow=False) is None:
        return _of_cgroup(mounted(path), text, manager)
    directory, name = posixpath.split(path)
    if directory.endswith(".d"):
        return posixpath.basename(directory).removesuffix(".d")
    if names.valid(name) and name in units.layout.files:
        return name
    real = tree.real(path) or real_path(tree, path)
    found = next((each for each in units.layout.files if units.path(each) and tree.real(units.path(each)) == real), "")
    if not found:
        raise UsageError(f"{printable(from_path(text))} is the file of no unit on this node")
    return found


def _of_cgroup(path: str, text: str, manager: Manager | None) -> str:
    if why := elsewhere(path, manager):
        raise Refused(why)
    found = owner(path).unit
    last = posixpath.basename(path)
    if not found and names.valid(last):
        found = last  # a slice: it is told why that is no target
    if not found:
        raise UsageError(f"{printable(from_path(text))} is neither a file nor a cgroup of a unit")
    return found
