"""Units that no remedy ever touches, by name or by what they run: without them a node is lost, or out of reach. Nothing lifts
this; which they are is in the catalogue of programs (the role keep-running).

By which routes one of them can be met (aliases, links, what stops with what) is in `protected_units`.
"""

import re
from collections.abc import Collection
from functools import cache

from exhume.host.catalogue import Catalogue
from exhume.host.programs import as_processes, commands, protected_unit
from exhume.host.service import Service
from exhume.host.systemd import names
from exhume.remedy.protected_commands import last
from exhume.text import printable

_VERSION = re.compile(r"[-_.]v?\d.*\Z")
_AROUND = re.compile(
    r"\A(?:start|run|launch|exec)[-_]|(?:[-_](?:wrapper|launcher|start|run|bin|real)|\.(?:sh|bash|bin|real|orig))+\Z"
)
"""What is added to a program's name for what only starts it: kubelet-wrapper, start-kubelet.sh."""


def built_in(unit: str, catalogue: Catalogue | None = None, run: Collection[str] = ()) -> str:
    """Why a unit is never acted on, as the end of a sentence; empty for one that may be. `run` are the programs it runs."""
    if protected_unit(unit):
        return "without it the node, its network or the way to it is lost"
    kind = names.kind(unit).casefold()
    if kind not in names.ACTED_ON:
        whose = "; a scope is a session or a container, and is ended by whoever made it" if kind == "scope" else ""
        return f"a {kind} is not acted on: only services, sockets, timers and paths are{whose}"
    if known := [each for each in run if runs(each)]:
        return f"it runs {printable(known[0])}, without which the node, its network or the way to it is lost"
    # By its name and by what it runs apart: the catalogue goes by the name where it knows one.
    for name, ran in ((unit, ()), *(("", (each,)) for each in run)):
        agent = catalogue.recognise(Service(name, "unit", "", starts=False, command=ran)) if catalogue is not None else None
        if agent is not None and agent.protected:
            return f"it belongs to {agent.name}, without which the node, its network or the way to it is lost"
    return ""


def runs(path: str) -> bool:
    """Whether a program is one of those without which a node is lost; by its name, with or without a version after it, or by
    that of a script that only starts it."""
    name = last(path)
    return bool({name, _VERSION.sub("", name), _AROUND.sub("", _AROUND.sub("", name))} & _programs())


def called(comm: str) -> bool:
    """The same by the name of a process, which the kernel cuts."""
    return runs(comm) or comm.casefold() in _processes()


@cache
def _programs() -> frozenset[str]:
    """Programs that make a unit one of them, whatever it is called and wherever they lie."""
    return frozenset(name.casefold() for name in commands("keep-running"))


@cache
def _processes() -> frozenset[str]:
    return frozenset(name.casefold() for name in as_processes("keep-running"))
