"""The last look before anything is touched: no step, however it came about, may meet a protected unit, or change a file that
is not one of systemd's.

The planner asks the same (`protected_units`); this holds for plans from anywhere, for resume and for undo.
"""

import posixpath
from collections.abc import Callable
from functools import cache

from exhume.errors import Refused
from exhume.host.catalogue import Catalogue, load
from exhume.host.directory import Directory
from exhume.host.owners import units
from exhume.host.programs import protected_unit
from exhume.host.systemd import names
from exhume.host.systemd.fragments import families
from exhume.host.systemd.places import DEPENDENCY_DIRECTORIES, SYSTEM
from exhume.host.systemd.units import read_units
from exhume.host.tree import Tree
from exhume.remedy.node import Node
from exhume.remedy.plan_model import Plan, Step
from exhume.remedy.plan_unit_files import OURS
from exhume.remedy.protected_shared import led_from, reader, real_path
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.cgroups import RemoveEmptyCgroups, unconfined
from exhume.remedy.steps.files import MakeLink, RemoveLink, WriteFile
from exhume.remedy.steps.kind import State
from exhume.remedy.steps.reboot import SENTINEL, RebootSentinel
from exhume.remedy.steps.units import StartUnit, StopUnit, undoing
from exhume.text import printable

_ON_UNITS = frozenset(("stop-unit", "start-unit", "restart-unit", "reset-failed"))
_STARTS = ("start-unit", "restart-unit")
_ON_FILES = frozenset((WriteFile.name, MakeLink.name, RemoveLink.name, RebootSentinel.name))
_NOWHERE_ELSE = "a remedy changes masks, links and drop-ins of units in systemd's directories, and nothing else"
_PLACES = frozenset(written for written, role in SYSTEM if role == "config")


@cache
def known_agents() -> Catalogue:
    return load()


def refuse_protected(plan: Plan, node: Node) -> None:
    """Refused names the first step that must not be."""
    if not any(step.kind in _ON_UNITS | _ON_FILES or step.paths for step in plan.steps):
        return
    with Directory(node.root.path) as tree:
        protection = Protection(read_units(tree), known_agents(), manager=node.manager, root=node.root)
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
        return _file(step, tree, protection, _stops)
    inside = [unit for path in step.paths for unit in units(path) if protected_unit(unit)]
    return f"{printable(inside[0])} is protected" if inside else ""


def why_kept(step: Step, node: Node, before: State) -> str:
    """Why a step must not be undone; empty if it may, or if nothing is to be undone.

    The same as for a step that is carried out, on the node as it is now: since then it may have become another, and a journal
    is not believed to name other files than a plan does. What differs is the effect: a start stops nothing that needs the unit.
    """
    if step.kind not in (*_ON_FILES, StopUnit.name, StartUnit.name):
        return ""
    does = "" if step.kind in _ON_FILES else undoing(step, node, before)
    if not does and step.kind not in _ON_FILES:
        return ""
    with Directory(node.root.path) as tree:
        protection = Protection(read_units(tree), known_agents(), manager=node.manager, root=node.root)
        if not does:
            return _file(step, tree, protection, _named)
        return _stops(step.target, protection) if does == "stop" else _starts(step.target, protection)


def _stops(unit: str, protection: Protection) -> str:
    guard = protection.built_in(unit)
    return guard.sentence if guard is not None else ""


def _starts(unit: str, protection: Protection) -> str:
    return _named(unit, protection) or protection.why_not_start(unit)


def _named(unit: str, protection: Protection) -> str:
    why = protection.named(unit)
    return f"{printable(unit)} is left alone: {why}" if why else ""


def _outside(step: Step, node: Node) -> str:
    return unconfined(step, node.root) if step.kind == RemoveEmptyCgroups.name else ""


def _file(step: Step, tree: Tree, protection: Protection, why_unit: Callable[[str, Protection], str]) -> str:
    """Only what plans for units change (`plan_unit_files`): a mask, a link that enables, a drop-in of ours."""
    if step.kind == RebootSentinel.name:
        return "" if step.target == SENTINEL else _NOWHERE_ELSE
    path = real_path(tree, step.target)
    directory, _, name = step.target.rpartition("/")
    above, _, inner = directory.rpartition("/")
    places = {place.path for place in protection.units.layout.places if place.role == "config"} | _PLACES
    stem, suffix = posixpath.splitext(inner)
    masks = step.kind == MakeLink.name and step.link == "/dev/null"
    of_unit = directory in places and names.valid(name) and (masks or step.kind == RemoveLink.name)
    enables = above in places and suffix in DEPENDENCY_DIRECTORIES and names.valid(name) and step.kind == RemoveLink.name
    drops_in = above in places and suffix == ".d" and name.endswith(OURS) and step.kind == WriteFile.name
    if not (of_unit or enables or drops_in):
        return _NOWHERE_ELSE
    if unit := reader(path, tree, protection):
        return f"{printable(unit)} reads what is there, and is protected"
    if unit := led_from(path, tree, protection):
        return f"{printable(unit)} is read from there, and is protected"
    return _unit_file(name, protection, why_unit) if of_unit else _beside(stem, suffix, name, protection)


def _unit_file(name: str, protection: Protection, why_unit: Callable[[str, Protection], str]) -> str:
    if why := why_unit(name, protection):
        return why
    met = [each for each in protection.names if names.template(each) == name] if names.form(name) == "template" else []
    return f"{printable(met[0])} is made from it, and is protected" if met else ""


def _beside(stem: str, suffix: str, name: str, protection: Protection) -> str:
    """A drop-in counts for the unit of its directory, a link in .wants for the one it names and the one whose it is."""
    if suffix == ".d":
        if not names.valid(stem) or stem.rpartition(".")[0].endswith("-"):
            return "drop-ins there count for units of many names"
        if why := _named(stem, protection):
            return why
        met = [
            each for each in protection.names if any(stem in families(own) for own in (each, *protection.units.aliases(each)))
        ]
        return f"drop-ins there count for {printable(met[0])}, which is protected" if met else ""
    if why := _named(name, protection):
        return why
    if names.valid(stem) and names.kind(stem) != "target" and (why := protection.named(stem)):
        return f"it is a dependency of {printable(stem)}, which is left alone: {why}"
    return ""
