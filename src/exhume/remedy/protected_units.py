"""By which routes a protected unit can be met: another name of it, what stops with it, what starts it, what it runs in.

The list of names (`protected`) is never lifted. What others need and what the policy keeps is asked about apart, because a
person may know better: `Guard.lifted_by_force`.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from exhume.host.catalogue import Catalogue
from exhume.host.programs import commands
from exhume.host.root import Root
from exhume.host.systemd import names
from exhume.host.systemd.dependencies import fill, triggered
from exhume.host.systemd.graph import PULLS
from exhume.host.systemd.units import Units
from exhume.image.policy import Policy
from exhume.remedy.manager import Manager
from exhume.remedy.protected import built_in, called, runs
from exhume.remedy.protected_commands import last
from exhume.remedy.protected_programs import Programs
from exhume.remedy.unit_processes import Process, UnitProcesses
from exhume.text import printable

# Stopping a unit stops whoever has one of these on it (UNIT_ATOM_PROPAGATE_STOP, src/core/unit-dependency-atom.c).
STOPS = ("Requires", "Requisite", "BindsTo", "PartOf")

Unneeded = Literal["no", "surely", "perhaps"]

# Every unit conflicts with these, and while anything can be started neither is.
_DOWN = ("shutdown.target", "umount.target")

# Of LogNamespace=: systemd starts them for whoever logs there, and stops them after the last of these.
_NAMESPACES = frozenset(("systemd-journald@.socket", "systemd-journald-varlink@.socket"))


@dataclass(frozen=True, slots=True)
class Guard:
    """Why a unit is left alone."""

    unit: str
    reason: str
    lifted_by_force: bool = False

    @property
    def sentence(self) -> str:
        return f"{printable(self.unit)} is left alone: {self.reason}"


class Protection:
    """What must not be touched on one node, by its unit files and, where a manager runs, by what it has loaded and by the
    processes of `root`: a running instance of a template need not be named in any file, nor what a script runs."""

    def __init__(
        self,
        units: Units,
        catalogue: Catalogue | None = None,
        policy: Policy | None = None,
        manager: Manager | None = None,
        root: Root | None = None,
    ) -> None:
        self.units = units
        self.manager = manager
        self._programs = Programs(units)
        self._processes = UnitProcesses(root) if root is not None and manager is not None else None
        self._running: dict[str, tuple[Process, ...] | None] = {}
        self._loaded: dict[str, tuple[str, ...]] = {}
        self._catalogue = catalogue
        self._policy = policy
        self._named: dict[str, str] = {}

    def named(self, name: str) -> str:
        """Why this name, or another name of the same unit, is on the list, or what it runs; empty if none is."""
        if name not in self._named:
            self._named[name] = self._why(name)
        return self._named[name]

    def _why(self, name: str) -> str:
        own = self.units.canonical(name)
        for each in (name, own, *self.units.aliases(own), names.template(own)):
            if each and (why := built_in(each, self._catalogue)):
                also = f" ({printable(name)} is another name of {printable(each)})" if each != name else ""
                return f"{why}{also}"
        if names.kind(own) != "service":
            return ""
        run = self._programs.of(own).programs
        if built_in(own, self._catalogue, run):
            first = next(program for program in run if built_in(own, self._catalogue, [program]))
            return built_in(own, self._catalogue, [first]) + (f" ({run[first]})" if run[first] else "")
        return self._linked(own, run)

    def _linked(self, own: str, run: Iterable[str]) -> str:
        """The same, by where the links lead that it runs."""
        for each in run:
            real = self.units.real(each) if each.startswith("/") and last(each) not in commands("cluster-tool") else ""
            if real and real != each and (why := built_in(own, self._catalogue, [real])):
                return f"{why} ({printable(each)} is a link to it)"
        return ""

    def script(self, path: str) -> str:
        """The text of a script that a unit runs; empty for any other program."""
        return self._programs.script(path)

    def running(self, own: str) -> str:
        """Why a unit is left alone by what runs in its cgroup now; empty if nothing protected does."""
        for process in self._in_cgroup(own) or ():
            told = f"{printable(process.comm, 40)} [{process.pid}]"
            names_of = [name for name in (process.exe, process.argument.partition(":")[0]) if name not in ("", "?")]
            if called(process.comm) or any(map(runs, names_of)):
                return f"{told} runs in it, without which the node, its network or the way to it is lost"
            if why := built_in("any.service", self._catalogue, names_of[:1]):
                return f"{told} runs in it: {why}"
            if original := self._programs.same_as(process.size, process.sample) if process.size else "":
                return f"{told} runs in it, which is a copy of {printable(original)}"
        return ""

    def doubt(self, own: str) -> str:
        """Why it is not known what a unit runs; empty if it is, by its files or by the processes that it has now."""
        if names.kind(own) != "service":
            return ""
        run = self._programs.of(own)
        processes = self._in_cgroup(own)
        if run.suspect:
            return run.suspect
        hidden = [process for process in processes or () if process.exe == "?"]
        if hidden:
            return f"what {printable(hidden[0].comm, 40)} [{hidden[0].pid}] executes cannot be seen; run as root"
        if processes is None:
            return "its processes cannot be seen from here"
        return run.doubt if not processes else ""

    def _in_cgroup(self, own: str) -> tuple[Process, ...] | None:
        """The processes of a unit; none where it is down, or no manager runs. None: it is up, and they cannot be seen."""
        if own not in self._running:
            self._running[own] = self._looked_up(own)
        return self._running[own]

    def _looked_up(self, own: str) -> tuple[Process, ...] | None:
        if self._processes is None or self.manager is None or names.form(own) == "template":
            return ()
        home = self.manager.control_group(own)
        if not home:
            return ()
        if not self._processes.visible:
            return None if self.manager.state(own).up else ()
        return self._processes.of(home)

    def built_in(self, name: str) -> Guard | None:
        """By all routes: the unit itself, what stops with it, and what it starts."""
        own = self.units.canonical(name)
        if why := self.named(name) or self.running(own):
            return Guard(name, why)
        for other in self.stopped_with([own], "perhaps"):
            if self.named(other):
                return Guard(name, f"{printable(other)} stops with it, and is protected")
            if why := self.running(other):
                return Guard(name, f"{printable(other)} stops with it, and {why}")
        if other := self._starts(own):
            return Guard(name, f"it starts {printable(other)}, which is protected")
        return None

    def _starts(self, own: str) -> str:
        """The protected unit that a timer, socket or path starts; empty if it is none."""
        # A socket with Accept=yes starts instances of a template, which is no unit of the graph.
        accepting = triggered(own, self.units.merged(own)) if names.kind(own) == "socket" else ""
        every = (*self.units.graph.of(own, "Triggers"), *([accepting] if accepting else []))
        return next((other for other in every if self.named(other)), "")

    def why_not_start(self, name: str) -> str:
        """Why a unit must not be started: systemd would stop a protected one for it (Conflicts=). Empty if it may."""
        for unit in self._started_with(self.units.canonical(name)):
            both = (*self.units.graph.of(unit, "Conflicts"), *self.units.graph.onto(unit, "Conflicts"))
            for other in (each for each in both if each not in _DOWN and not self._down(each)):
                met = [
                    each
                    for each in (other, *self.stopped_with([other], "perhaps"))
                    if names.kind(each) in names.ACTED_ON and self.named(each)
                ]
                if met:
                    through = f", which {printable(name)} starts," if unit != self.units.canonical(name) else ""
                    return f"{printable(unit)}{through} conflicts with {printable(met[0])}, which is protected"
        return ""

    def _down(self, unit: str) -> bool:
        return self.manager is not None and self.manager.state(unit).down

    def _started_with(self, own: str) -> tuple[str, ...]:
        """It, and what it pulls in; not by targets, nor what is protected, which run already."""
        known = {own: None}
        queue = [own]
        for name in queue:  # grows as it goes
            for other in self.units.graph.of(name, *PULLS):
                if other not in known and names.kind(other) in names.ACTED_ON and not self.named(other):
                    known[other] = None
                    queue.append(other)
        return tuple(known)

    def guard(self, name: str, together: Collection[str] = ()) -> Guard | None:
        """The first reason to leave a unit alone. `together` are canonical names of what is switched off with it anyway."""
        if found := self.built_in(name):
            return found
        own = self.units.canonical(name)
        every = (name, own, *self.units.aliases(own))
        listed = next((one for each in every if self._policy and (one := self._policy.find(each)) and one.keep), None)
        if listed is not None:
            whose = f", its owner is {printable(listed.owner)}" if listed.owner else ""
            return Guard(name, f"the policy keeps it{whose}", lifted_by_force=True)
        if why := self.doubt(own):
            return Guard(name, f"{why}, so that it may be one of those without which the node is lost", lifted_by_force=True)
        needing = [other for other in self.needed_by(own) if other not in together]
        if needing:
            told = ", ".join(printable(other) for other in needing[:5])
            more = f" and {len(needing) - 5} more" if len(needing) > 5 else ""
            return Guard(name, f"it is needed by {told}{more}", lifted_by_force=True)
        return None

    def needed_by(self, own: str) -> tuple[str, ...]:
        """Units that start by themselves and need it, and all that stop with it; not what triggers it."""
        graph = self.units.graph
        wanting = [other for other in graph.needed_by(own) if other in graph.starting]
        return tuple(dict.fromkeys((*self.stopped_with([own], "no"), *wanting)))

    def stopped_with(self, units: Iterable[str], unneeded: Unneeded = "surely") -> tuple[str, ...]:
        """All others that systemd stops when it stops these, the nearest first; also what nobody needs any more then
        (StopWhenUnneeded=), or perhaps nobody."""
        queue = list(units)
        first = frozenset(queue)
        known = dict.fromkeys(queue)
        for name in queue:  # grows as it goes
            found = [*self.units.graph.onto(name, *STOPS), *self._propagates.get(name, ()), *self._dependents(name)]
            if unneeded != "no":
                found += [other for other in self._only_needed(name) if unneeded == "perhaps" or not self._needed(other, known)]
            for other in found:
                if other not in known:
                    known[other] = None
                    queue.append(other)
        return tuple(name for name in known if name not in first)

    def _only_needed(self, name: str) -> Iterator[str]:
        """What runs for a unit's sake. Not targets, which gather and run nothing; nor the journal of its own namespace."""
        for other in self.units.graph.of(name, *PULLS, "Requisite"):
            if names.kind(other) not in names.ACTED_ON or names.template(other) in _NAMESPACES:
                continue
            if self.units.merged(other).flag("Unit", "StopWhenUnneeded", False):
                yield other

    def _needed(self, unit: str, stopped: Collection[str]) -> bool:
        """Whether another one still needs it that is up, or starts by itself (unit_is_unneeded(), src/core/unit.c)."""
        others = (other for other in self.units.graph.onto(unit, *PULLS, "Requisite") if other not in stopped)
        return any(not self._down(other) if self.manager else other in self.units.graph.starting for other in others)

    def _dependents(self, name: str) -> tuple[str, ...]:
        if self.manager is None or names.form(name) == "template":
            return ()
        if name not in self._loaded:
            self._loaded[name] = tuple(self.units.canonical(each) for each in self.manager.dependents(name))
        return self._loaded[name]

    def triggers(self, own: str) -> tuple[str, ...]:
        """The timers, sockets, paths and automounts that start it."""
        return self.units.graph.onto(own, "Triggers")

    @cached_property
    def _propagates(self) -> dict[str, tuple[str, ...]]:
        """PropagatesStopTo= and StopPropagatedFrom= (systemd.unit(5), from 249 on): who stops with whom by them."""
        found: dict[str, list[str]] = {}
        for name in self.units.graph.forward:
            sections = self.units.merged(name)
            for word in sections.every_word("Unit", "PropagatesStopTo"):
                if names.valid(other := fill(word, name)):
                    found.setdefault(name, []).append(self.units.canonical(other))
            for word in sections.every_word("Unit", "StopPropagatedFrom"):
                if names.valid(other := fill(word, name)):
                    found.setdefault(self.units.canonical(other), []).append(name)
        return {name: tuple(others) for name, others in found.items()}

    @cached_property
    def names(self) -> frozenset[str]:
        """Every protected unit that has a file here, by its own name, and what starts one of them."""
        own = {self.units.canonical(name) for name in self.units.layout.files}
        return frozenset(
            name for name in own if names.kind(name) in names.ACTED_ON and (self.named(name) or self._starts(name))
        )
