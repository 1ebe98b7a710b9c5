"""From a unit to the steps that silence it, or that break its loop and keep it: each with its reason and its risk.

Stopped first and gracefully, because an agent that is cut off in mid-write leaves more behind; then what starts it is taken
away, exactly those links; then it is masked, so that no vendor's link, trigger or D-Bus name brings it back.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from exhume.errors import Refused, UsageError
from exhume.host.quantities import timespan_s
from exhume.host.systemd import names
from exhume.host.tree import Tree
from exhume.remedy.manager import Manager, UnitState
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.plan_unit_end import harm
from exhume.remedy.plan_unit_files import UnitFiles
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.units import STOP_S, reload, restart_unit, start_unit, stop_unit
from exhume.remedy.templates_systemd import do_nothing, no_restart, start_limit
from exhume.text import printable

Keep = Literal["no-restart", "start-limit", "do-nothing"]
KEEPS: tuple[Keep, ...] = ("no-restart", "start-limit", "do-nothing")
_SPARE_S, _LONGEST_S = 30.0, 600.0


@dataclass(frozen=True, slots=True)
class Made:
    """The steps for one unit, and what is left to people."""

    steps: tuple[Step, ...]
    relief: tuple[Relief, ...] = ()
    settled: str = ""
    """Why nothing is to be done to it; empty where something is."""


class UnitPlanner:
    """Plans for units of one node; nothing is changed by it."""

    def __init__(self, tree: Tree, protection: Protection, manager: Manager | None, force: bool = False) -> None:
        self._protection = protection
        self._units = protection.units
        self._files = UnitFiles(tree, protection)
        self._manager = manager
        self._force = force

    def check(self, name: str) -> None:
        """Refused for what must not be touched, UsageError for what is not one unit."""
        if guard := self._protection.built_in(name):
            raise Refused(f"{guard.sentence}; --force does not lift this")
        if names.form(name) == "template":
            made = sorted(each for each in self._units.graph.forward if names.template(each) == name)
            which = f": {', '.join(map(printable, made[:5]))}" if made else ""
            raise UsageError(f"{printable(name)} is a template: name one of its instances{which}")
        own = self._units.canonical(name)
        self._not_kept(name, "switches it off")
        guard = self._protection.guard(name, (own, *self._protection.triggers(own)))
        if guard is not None and not self._force:
            raise Refused(f"{guard.sentence}; --keep do-nothing leaves it in place, --force switches it off all the same")

    def _not_kept(self, name: str, does: str) -> None:
        """Refused for what the policy keeps, whoever needs it; what is on the list no wish lifts."""
        guard = self._protection.guard(name, self._protection.needed_by(self._units.canonical(name)))
        if guard is not None and not guard.lifted_by_force:
            raise Refused(f"{guard.sentence}; --force does not lift this")
        if guard is not None and not self._force:
            raise Refused(f"{guard.sentence}; --force {does} all the same")

    def silence(self, name: str, why: str) -> Made:
        """Stop, disable, mask: the unit, and what would start it."""
        self.check(name)
        own = self._units.canonical(name)
        relief: list[Relief] = []
        triggers = []
        together = (own, *self._protection.triggers(own), *self._protection.stopped_with([own]))
        for trigger in self._protection.triggers(own):
            if guard := self._protection.guard(trigger, together):
                relief.append(Relief(trigger, guard.sentence, f"it starts {own}, which is masked: that is refused by systemd"))
            else:
                triggers.append(trigger)
        changes = {unit: [*self._files.unlinked(unit, relief), *self._files.masked(unit)] for unit in (*triggers, own)}
        loud = [unit for unit, made in changes.items() if made or self._up(unit)]
        following = self._protection.stopped_with(loud)
        self._no_harm([*following, *loud])
        for other in following:
            self._not_kept(other, "stops it")
        gone = [unit for unit in (*following, *loud) if self._transient(unit)]
        steps: list[Step] = []
        for trigger in (unit for unit in loud if unit != own):
            steps += self._stop(trigger, f"it would start {printable(own)} again")
        for other in reversed(following):
            steps += self._stop(
                other, f"systemd stops it with {printable(own)}; here it is written down, so that undo starts it"
            )
        steps += self._stop(own, why) if own in loud else []
        if gone:  # confirmed together, because one of these stops is also the other's
            steps = [replace(step, undoable=False) for step in steps]
        relief += [_once_gone(unit) for unit in gone]
        steps += [step for made in changes.values() for step in made]
        if any(changes.values()) or any(map(self._unread, changes)):
            steps += self._reloaded()
        how = "down" if self._transient(own) else "down and masked" if self._manager is not None else "masked"
        return Made(tuple(steps), tuple(relief), "" if steps else f"{printable(own)} is {how} already")

    def restart(self, name: str, parent: str, why: str) -> Step:
        """So that a process of it ends. systemd restarts what needs it too, so that it is guarded as a stop is."""
        if not names.valid(name):
            raise Refused(f"{printable(name)} is not the name of a unit")
        own = self._units.canonical(name)
        self._not_kept(name, "restarts it")
        guard = self._protection.guard(name)
        if guard is not None and not self._force:
            raise Refused(f"{guard.sentence}; --force restarts it all the same, and them with it")
        self._no_harm([*self._protection.stopped_with([own]), own])
        self._startable(own)
        return restart_unit(own, why, parent, "high", deadline_s=self._patience(own))

    def _startable(self, unit: str) -> None:
        if why := self._protection.why_not_start(unit):
            raise Refused(f"{printable(unit)} is not started: {why}")

    def _no_harm(self, stopped: list[str]) -> None:
        """Refused where the end of a unit is the machine's, or a protected unit's.

        A drop-in takes such settings away, but not in the same plan: undo would give them back before it stops anything.
        """
        for unit in stopped:
            if why := harm(unit, self._protection):
                raise Refused(why)

    def keep(self, name: str, how: Keep, why: str) -> Made:
        """A drop-in that breaks the loop and leaves the unit where it is."""
        own = self._units.canonical(name)
        self._not_kept(name, "changes it")
        if names.kind(own) != "service" or names.form(own) == "template":
            raise UsageError(f"{printable(name)} is not a service: only a service has a loop to break")
        if self._units.state(own).startswith("masked"):
            raise UsageError(f"{printable(name)} is masked: there is no loop to break")
        sections = self._units.merged(own)
        content = {
            "no-restart": lambda: no_restart(sections),
            "start-limit": lambda: start_limit(sections, self._units.defaults),
            "do-nothing": lambda: do_nothing(sections),
        }[how]()
        path = self._files.drop_in(own)
        reason = f"breaks the loop of {printable(own)} and leaves the unit in place: {why}"
        written = self._files.written(path, content, reason)
        steps = [*written, *(self._reloaded() if written else ())]
        relief: list[Relief] = []
        if how == "do-nothing" and self._manager is not None:
            steps += self._started(own, self._manager.state(own), bool(written), relief)
        settled = "" if steps else f"{printable(own)} is kept from its loop by {printable(path)} already"
        return Made(tuple(steps), tuple(relief), settled)

    def _started(self, own: str, state: UnitState, changed: bool, relief: list[Relief]) -> list[Step]:
        """What has nothing to run counts as started for what needs it: after a loop, after a failure, not where it was off."""
        if state.down and state.active != "failed":
            if changed:
                relief.append(Relief(own, "it is not started now", "it stays so; whoever starts it gets one that does nothing"))
            return []
        if state.active == "active" and not changed:
            return []
        following = self._following([own]) if not state.down else []
        if gone := [unit for unit in (own, *following) if self._transient(unit)]:
            relief += [
                replace(_once_gone(unit), why=f"it is transient, so that {printable(own)} runs on as it is") for unit in gone
            ]
            return []
        for other in following:
            self._not_kept(other, "restarts it")
        self._no_harm([*following, own])
        for unit in (own, *following):
            self._startable(unit)
        steps: list[Step] = []
        for other in following:
            steps += self._stop(other, f"systemd stops it with {printable(own)}; it is started again below")
        if not state.down:
            steps += self._stop(own, "what runs now is still what ran before")
        failed = "it has failed, and has nothing left to fail at: " if state.active == "failed" else ""
        starts = {other: start_unit(other, f"it was stopped with {printable(own)}") for other in reversed(following)}
        starts[own] = start_unit(own, f"{failed}so that it counts as started for what needs it")
        # systemd starts no socket whose service runs (socket_start(): "Socket service already active, refusing").
        sockets = [other for other in starts if names.kind(other) == "socket"]
        doors = [other for other in sockets if other in self._protection.triggers(own)]
        return [*steps, *(starts[unit] for unit in dict.fromkeys((*doors, own, *sockets, *starts)))]

    def _stop(self, unit: str, why: str) -> list[Step]:
        """Whether it runs when the plan is carried out is looked at then."""
        return [stop_unit(unit, why, deadline_s=self._patience(unit))] if self._manager is not None else []

    def _transient(self, unit: str) -> bool:
        """Whether systemd-run or a program made it, and systemd forgets it when it stops."""
        first = self._files.first(unit)
        return first is not None and first.place.role == "transient"

    def _following(self, units: list[str]) -> list[str]:
        """What runs now and stops with these, the farthest first."""
        return [other for other in reversed(self._protection.stopped_with(units)) if self._up(other)]

    def _up(self, unit: str) -> bool:
        return self._manager is not None and not self._manager.state(unit).down

    def _patience(self, unit: str) -> float:
        """systemd kills it after TimeoutStopSec=; give it that, and a little more."""
        said = self._units.merged(unit).last("Service", "TimeoutStopSec") or self._units.merged(unit).last(
            "Service", "TimeoutSec"
        )
        span = timespan_s(said)
        if span is None or span == 0:
            return 0.0
        return _LONGEST_S if math.isinf(span) else min(_LONGEST_S, max(STOP_S, span + _SPARE_S))

    def _unread(self, unit: str) -> bool:
        """Whether it is masked on the disk, and systemd has not read that."""
        first = self._files.first(unit)
        masked = first is not None and first.masks
        return masked and self._manager is not None and self._manager.state(unit).load == "loaded"

    def _reloaded(self) -> list[Step]:
        return [reload("so that systemd reads what was changed")] if self._manager is not None else []


def _once_gone(unit: str) -> Relief:
    text = "once it is stopped nothing is left of it, so that undo cannot start it again: whoever made it has to"
    return Relief(unit, "it is a transient unit, made by systemd-run or a program", text)
