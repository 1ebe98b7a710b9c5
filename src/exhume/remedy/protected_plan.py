"""The last look at a plan before anything is touched: no step of it, however it came about, may meet a protected unit.

The planner asks the same (`protected_units`); this holds for plans from anywhere, and on resume, when the node may be another.
"""

import posixpath
from functools import cache

from exhume.errors import Refused
from exhume.image.catalogue import Catalogue, load
from exhume.image.directory import Directory
from exhume.image.systemd import names
from exhume.image.systemd.fragments import families
from exhume.image.systemd.places import DEPENDENCY_DIRECTORIES, SYSTEM
from exhume.image.systemd.units import read_units
from exhume.image.tree import Tree
from exhume.node.owners import owner
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.protected import protected
from exhume.remedy.protected_shared import led_from, reader, real_path
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.cgroups import RemoveEmptyCgroups, unconfined
from exhume.text import printable

_ON_UNITS = frozenset(("stop-unit", "start-unit", "restart-unit", "reset-failed"))
_STARTS = ("start-unit", "restart-unit")
_ON_FILES = frozenset(("write-file", "remove-file", "make-link", "remove-link"))
# The journal and our own settings; what belongs to what is protected; what no configuration is in.
_OURS = ("/var/lib/exhume", "/etc/exhume")
_OTHERS = (
    *("/etc/kubernetes", "/var/lib/kubelet", "/etc/containerd", "/etc/docker", "/etc/crio", "/etc/containers", "/etc/cni"),
    *("/etc/rancher", "/etc/ssh", "/etc/pam.d", "/etc/sudoers", "/etc/sudoers.d", "/etc/passwd", "/etc/shadow", "/etc/group"),
    *("/etc/systemd/network", "/etc/netplan", "/etc/NetworkManager", "/etc/network", "/etc/dbus-1", "/etc/fstab"),
    *("/etc/systemd/system.conf", "/etc/systemd/journald.conf", "/etc/systemd/logind.conf", "/etc/udev", "/boot", "/efi"),
    *("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/proc", "/sys", "/dev"),
)


@cache
def known_agents() -> Catalogue:
    return load()


def refuse_protected(plan: Plan, node: Node) -> None:
    """Refused names the first step that must not be."""
    if not any(step.kind in _ON_UNITS | _ON_FILES or step.paths for step in plan.steps):
        return
    with Directory(node.root.path) as tree:
        protection = Protection(read_units(tree), known_agents(), manager=node.manager)
        for step in plan.steps:
            if why := why_not(step, tree, protection) or _outside(step, node):
                raise Refused(f"nothing was changed: {step.kind} {printable(step.target)} must not be: {why}")


def why_not(step: Step, tree: Tree, protection: Protection) -> str:
    """Why a step must not be carried out; empty if it may."""
    if step.kind in _ON_UNITS:
        if guard := protection.built_in(step.target):
            return guard.sentence
        return protection.why_not_start(step.target) if step.kind in _STARTS else ""
    if step.kind in _ON_FILES:
        return _file(step, tree, protection)
    inside = [unit for path in step.paths if (unit := owner(path).unit) and protected(unit)]
    return f"{printable(inside[0])} is protected" if inside else ""


def _outside(step: Step, node: Node) -> str:
    return unconfined(step, node.root) if step.kind == RemoveEmptyCgroups.name else ""


def _file(step: Step, tree: Tree, protection: Protection) -> str:
    path = real_path(tree, step.target)
    if _within(path, _OURS):
        return "what exhume itself keeps is not changed by a plan"
    if _within(path, _OTHERS):
        return "it belongs to what is protected"
    if unit := reader(path, tree, protection):
        return f"{printable(unit)} reads what is there, and is protected"
    if unit := led_from(path, tree, protection):
        return f"{printable(unit)} is read from there, and is protected"
    directory, _, name = path.rpartition("/")
    places = {place.path for place in protection.units.layout.places} | {written for written, _ in SYSTEM}
    if directory in places:
        return _unit_file(step, name, protection)
    above, _, inner = directory.rpartition("/")
    if above in places:
        return _beside(step, inner, name, protection)
    return ""


def _unit_file(step: Step, name: str, protection: Protection) -> str:
    if not names.valid(name):
        return ""
    if guard := protection.built_in(name):
        return guard.sentence
    if names.form(name) == "template":
        met = [each for each in protection.names if names.template(each) == name]
        if met:
            return f"{printable(met[0])} is made from it, and is protected"
    led = posixpath.basename(step.link.rstrip("/"))
    if step.kind == "make-link" and step.link != "/dev/null" and names.valid(led) and (why := protection.named(led)):
        return f"{printable(led)} is left alone: {why}"
    return ""


def _beside(step: Step, directory: str, name: str, protection: Protection) -> str:
    """A drop-in counts for the unit of its directory, a link in .wants for the one it names and the one whose it is."""
    stem, suffix = posixpath.splitext(directory)
    if suffix == ".d":
        if not names.valid(stem) or stem.rpartition(".")[0].endswith("-"):
            return "drop-ins there count for units of many names"
        if why := protection.named(stem):
            return f"{printable(stem)} is left alone: {why}"
        met = [
            each for each in protection.names if any(stem in families(own) for own in (each, *protection.units.aliases(each)))
        ]
        return f"drop-ins there count for {printable(met[0])}, which is protected" if met else ""
    if suffix not in DEPENDENCY_DIRECTORIES or not names.valid(name):
        return ""
    if why := protection.named(name):
        return f"{printable(name)} is left alone: {why}"
    if names.valid(stem) and names.kind(stem) != "target" and (why := protection.named(stem)):
        return f"it is a dependency of {printable(stem)}, which is left alone: {why}"
    return ""


def _within(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)
