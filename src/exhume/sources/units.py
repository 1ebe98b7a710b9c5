"""systemd's services, asked over D-Bus: which run, fail or restart, and in which cgroup. For crash loops and their owners.

Reading must not add to the trouble it looks for: a PID 1 that hangs costs one bounded wait, what is asked is bounded,
and nothing is started by asking (no D-Bus activation).
"""

import os
import re
import time as clock
from collections.abc import Mapping
from dataclasses import dataclass

from exhume.errors import Unreadable
from exhume.host import bus as dbus
from exhume.host.bus import Bus, complaint, connected
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.host.unit_needs import QUESTIONS, UNASKED, needed_by
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, Reasons

MOST_ASKED = 512
MOST_LOOKED_UP = 128
"""Services asked for UnitFileState, which PID 1 looks up on disk the first time: 1 to 2 ms of its time each, measured."""

MOST_TROUBLED = 32
"""Services asked who needs them, six questions each, about which PID 1 need not look anything up."""

A_FEW = 4
"""Services without trouble that systemd could see, which are asked the same each time: in the end all of them were."""


_SERVICE = "org.freedesktop.systemd1.Service"
_UNIT = "org.freedesktop.systemd1.Unit"

# Single Gets, because GetAll makes PID 1 read a service's cgroup files and send hundreds of properties: for 111 services
# 42 ms of our CPU time and 7 of PID 1's against 165 and 26. The most telling first, in case time runs out.
_PROPERTIES = ("Result", "ControlGroup", "MainPID")
_PLAIN = (("active", "running"), ("active", "exited"))

_PATH = re.compile("/org/freedesktop/systemd1/unit/[A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class Service:
    """What ListUnits says of one service."""

    unit: str
    active: str
    sub: str
    path: str

    settled: bool
    """Plainly inactive. Between two runs of a crash loop there is a job, or a sub state of its own (`auto-restart`;
    `dead-before-auto-restart` from systemd 254)."""


class Units:
    """Every loaded service; those that are not plainly inactive with what they were doing."""

    name = "units"
    every_ns = 0

    def __init__(self, root: Root, thorough: bool = True) -> None:
        """Not thorough: what costs PID 1 something is only asked of services that restarted or do not plainly run."""
        self._root = root
        self._thorough = thorough
        self._needs: dict[str, tuple[str, str]] = {}
        """Whether it is enabled and who needs it, of those that were asked before."""

    def read(self, recording: Recording, time: int) -> Reasons:
        deadline = clock.monotonic() + dbus.DEADLINE_S
        with connected(self._root, deadline) as bus:
            services = list_services(bus)
            asked = sorted((s for s in services if not s.settled), key=lambda s: s.active == "active")
            answers, notes = _properties(bus, asked, self._thorough)
            if not notes and (note := self._ask_needs(bus, asked, answers)):
                notes = (Limit(note),)

        table = recording["units"]
        for service in services:
            known = answers.get(service.unit, {})
            table.add(
                time,
                service.unit,
                service.active,
                service.sub,
                _number(known, "NRestarts", -1),
                _text(known, "Result"),
                _text(known, "UnitFileState") or self._needs.get(service.unit, ("", ""))[0],
                _number(known, "MainPID", 0),
                _text(known, "ControlGroup"),
                self._needs.get(service.unit, ("", UNASKED))[1],
            )
        return notes

    def _ask_needs(self, bus: "Bus", services: list[Service], answers: dict[str, dict[str, object]]) -> str:
        """Who needs those in trouble, and a few others: a unit that starts its program again itself looks well to systemd."""
        troubled = [s for s in services if _troubled(s, answers.get(s.unit, {}))][:MOST_TROUBLED]
        age = {unit: position for position, unit in enumerate(self._needs)}
        others = [s for s in services if (s.active, s.sub) == ("active", "running") and s not in troubled]
        others.sort(key=lambda s: age.get(s.unit, -1))  # whose answer is oldest, once all have been asked
        asked = troubled + others[:A_FEW]
        questions = [(s, _UNIT, name) for s in asked for name in QUESTIONS]
        questions += [(s, _UNIT, "UnitFileState") for s in asked if "UnitFileState" not in answers.get(s.unit, {})]
        note = ask(bus, questions, answers)
        listed = {s.unit for s in services}
        self._needs = {unit: told for unit, told in self._needs.items() if unit in listed}
        for service in asked:
            known = answers.get(service.unit, {})
            self._needs.pop(service.unit, None)
            self._needs[service.unit] = _text(known, "UnitFileState"), needed_by(known)
        return note


def _troubled(service: Service, known: Mapping[str, object]) -> bool:
    return service.active == "failed" or "auto-restart" in service.sub or _number(known, "NRestarts", 0) > 0


def list_services(bus: Bus) -> list[Service]:
    manager = "org.freedesktop.systemd1.Manager"
    try:
        # By pattern, because a node with many pods has thousands of mounts and scopes. systemd before 230 cannot.
        reply = bus.call("/org/freedesktop/systemd1", manager, "ListUnitsByPatterns", "asas", ([], ["*.service"]))
        if reply.error == "org.freedesktop.DBus.Error.UnknownMethod":
            reply = bus.call("/org/freedesktop/systemd1", manager, "ListUnits")
    except TimeoutError:
        raise Unreadable(f"systemd did not answer within {duration(dbus.DEADLINE_S * SECOND)}: PID 1 may hang") from None
    if reply.error:
        raise Unreadable(f"systemd did not list its units: {complaint(reply)}")
    if not isinstance(reply.body, list):
        raise Unreadable("systemd did not list its units: its answer has another form")
    services = []
    for unit, _, load, active, sub, _, path, job, _, _ in reply.body:
        settled = active == "inactive" and sub == "dead" and not job
        if not _PATH.fullmatch(path):
            raise Unreadable("systemd did not list its units: its answer has another form")
        if unit.endswith(".service") and not (settled and load == "not-found"):
            services.append(Service(unit, active, sub, path, settled))
    return services


def _properties(bus: Bus, services: list[Service], thorough: bool) -> tuple[dict[str, dict[str, object]], Reasons]:
    """What each service says of itself, and notes when that is not all of it. The most telling is asked first."""
    answers: dict[str, dict[str, object]] = {}
    asked = services[:MOST_ASKED]
    note = ask(bus, [(service, _SERVICE, "NRestarts") for service in asked], answers)
    odd = [
        s for s in asked if thorough or (s.active, s.sub) not in _PLAIN or _number(answers.get(s.unit, {}), "NRestarts", 0) > 0
    ]
    if not note:
        questions = [(service, _SERVICE, name) for name in _PROPERTIES for service in odd]
        questions += [(service, _UNIT, "UnitFileState") for service in odd[:MOST_LOOKED_UP]]
        note = ask(bus, questions, answers)
    notes = [note] if note else []
    if len(services) > MOST_ASKED:
        notes.append(f"only {MOST_ASKED} of {len(services)} services that are not inactive were asked")
    if len(odd) > MOST_LOOKED_UP:
        notes.append(f"only {MOST_LOOKED_UP} of {len(odd)} were asked whether they are enabled")
    return answers, tuple(map(Limit, notes))


def ask(bus: Bus, questions: list[tuple[Service, str, str]], answers: dict[str, dict[str, object]]) -> str:
    """Put many questions, keep what is answered; "" or why it is not all."""
    replies = 0
    try:
        calls = ((s.path, "org.freedesktop.DBus.Properties", "Get", "ss", (i, name)) for s, i, name in questions)
        for position, reply in bus.pipeline(calls):
            replies += 1
            service, _, name = questions[position]
            if not reply.error:  # systemd before 235 has no NRestarts; a unit can be gone by now
                answers.setdefault(service.unit, {})[name] = reply.body
    except TimeoutError:
        why = f"within {duration(dbus.DEADLINE_S * SECOND)}"
    except Unreadable as error:
        why = f"because {error}"
    except OSError as error:
        why = f"because the connection broke: {os.strerror(error.errno or 0)}"
    else:
        return ""
    return f"systemd answered only {replies} of {len(questions)} questions about its services {why}"


def _number(known: Mapping[str, object], name: str, default: int) -> int:
    value = known.get(name)
    return value if isinstance(value, int) else default


def _text(known: Mapping[str, object], name: str) -> str:
    value = known.get(name)
    return value if isinstance(value, str) else ""
