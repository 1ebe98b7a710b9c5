"""The audit of an image or a node: each thing that runs by itself judged, what was found on the way, and where the policy and
the image have come apart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Literal

from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, EXIT_WARNING
from exhume.host.catalogue import Catalogue
from exhume.host.needs import Facts
from exhume.host.programs import Program
from exhume.host.service import Inventory, Service
from exhume.image.audit_evidence import Known, crash_loop, looping
from exhume.image.audit_judge import PODS, Judgement, active, clause, endless_restart, held_back, judge, needing, needs_of
from exhume.image.audit_scope import TRIGGERS, runs
from exhume.image.policy import Drift, Policy, drift
from exhume.sources.unit_life import Life
from exhume.sources.unit_sockets_model import Sockets

Severity = Literal["info", "warning", "critical"]


@dataclass(frozen=True, slots=True)
class Live:
    """What only a running node can tell."""

    lives: Mapping[str, Life] = field(default_factory=dict)
    sockets: Mapping[str, Sockets] | None = None
    """None where nobody could look."""
    unseen: bool = False
    """Whether not all of the sockets' users could be seen: then nothing is proven idle."""
    loops: Mapping[str, str] = field(default_factory=dict)
    """Crash loops that a recording shows, by unit, each as a sentence."""

    @property
    def used(self) -> frozenset[str]:
        """Sockets that somebody is connected to, as the catalogue names them: a path, or tcp:PORT."""
        ends = [end for one in (self.sockets or {}).values() for end in one.listening if end.peers or end.remotes]
        return frozenset(
            end.address if end.protocol == "unix" else f"{end.protocol}:{end.address.rpartition(':')[2]}" for end in ends
        )


@dataclass(frozen=True, slots=True)
class Unit:
    service: Service
    known: Known
    agent: Program | None
    judgement: Judgement
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Finding:
    kind: str
    """harmful-agent, unused-agent, endless-restart or crash-loop"""
    subject: str
    severity: Severity
    summary: str
    path: str = ""


@dataclass(frozen=True, slots=True)
class Audit:
    inventory: Inventory
    units: tuple[Unit, ...]
    findings: tuple[Finding, ...]
    drift: tuple[Drift, ...]
    live: bool
    troubles: tuple[str, ...] = ()

    def of(self, judgement: Judgement) -> list[Unit]:
        return [unit for unit in self.units if unit.judgement == judgement]

    @property
    def unread(self) -> bool:
        """Whether a file or a directory of it could not be read at all: then nothing is known of what it starts."""
        return any("cannot be read:" in trouble for trouble in self.inventory.troubles)

    @property
    def exit_code(self) -> int:
        """Critical is what harms the node; a warning is what somebody should look at. What was not read is not healthy."""
        if any(finding.severity == "critical" for finding in self.findings):
            return EXIT_CRITICAL
        if self.drift or any(finding.severity == "warning" for finding in self.findings):
            return EXIT_WARNING
        return EXIT_CANNOT_JUDGE if self.unread else EXIT_HEALTHY


def audit(
    inventory: Inventory,
    catalogue: Catalogue,
    facts: Facts,
    today: date,
    policy: Policy | None = None,
    live: Live | None = None,
    troubles: Iterable[str] = (),
) -> Audit:
    opinions: dict[str, Known] = {}
    recognised = [catalogue.recognise(service) for service in inventory.services]
    agents = {one.name: agent.id for one, agent in zip(inventory.services, recognised, strict=True) if agent is not None}
    starting = {one.name for one in inventory.services if one.starts}
    if live is not None:
        starting |= {name for name, life in live.lives.items() if life.running}
    runners = _runners(inventory.services)
    units = []
    for service, agent in zip(inventory.services, recognised, strict=True):
        if agent is not None and agent.id not in opinions:
            opinions[agent.id] = opinion(agent, facts)
        known = _known(service, opinions[agent.id] if agent is not None else Known(), policy, live)
        weak = [name for name in service.needed_by if name not in starting or agents.get(name, "") == agents.get(service.name)]
        known = replace(known, weak=frozenset(weak)) if weak else known
        if service.name in runners:
            known = replace(known, runs=tuple(runners[service.name]))
        judged = judge(service, known)
        units.append(Unit(service, known, agent, judged.judgement, judged.reasons))
    judged_units = tuple(_followers(list(_triggers(units))))
    return Audit(
        inventory,
        judged_units,
        tuple(sorted(_findings(judged_units), key=lambda one: (_ORDER[one.severity], one.kind, one.subject))),
        drift(policy, inventory, today) if policy is not None else (),
        live is not None,
        (*inventory.troubles, *troubles),
    )


_ORDER: dict[Severity, int] = {"critical": 0, "warning": 1, "info": 2}


def told(unit: Unit) -> bool:
    """Whether it counts among what starts by itself: targets, slices and mounts run nothing of their own."""
    return runs(unit.service) and active(unit.service, unit.known)


def _runners(services: Iterable[Service]) -> dict[str, list[str]]:
    """By unit, what it runs that is no unit: cron's lines, containers of a runtime, static pods of the kubelet."""
    found: dict[str, list[str]] = defaultdict(list)
    for service in services:
        if service.starts and service.kind not in ("unit", "user-unit"):
            for starter in service.pulled_by:
                found[starter if "." in starter else f"{starter}.service"].append(service.name)
    return found


def opinion(agent: Program, facts: Facts) -> Known:
    """What the catalogue thinks of an agent on this image: whether it is needed here, and what harm it can come to.

    A warning is only a harm where it is certain that nothing needs it; what is merely worth knowing is none.
    """
    needed, undecided = facts.need(agent), facts.undecided(agent)
    harms = [harm for harm in agent.harm if harm.severity == "critical" or (harm.severity == "warning" and not undecided)]
    sure = bool(agent.needed_if) and needed is None and not undecided
    return Known(
        agent=agent.name,
        protected=agent.protected,
        harm="; ".join(f"known harm: {clause(harm.text)} ({harm.source})" for harm in harms),
        critical=any(harm.severity == "critical" for harm in harms),
        needed_here=f"it is needed because {needed}" if needed else "",
        not_needed_here=f"nothing that {agent.name} is for is here: {_wanted(agent)}" if sure else "",
    )


def _wanted(agent: Program) -> str:
    """What would have to be there, in a few words."""
    words = {
        "always": "",
        "unit_active": "no {} starts",
        "path": "no {}",
        "filled": "nothing in {}",
        "kubernetes": "no Kubernetes",
        "cloud": "not in {}",
        "hardware": "no {}",
        "mount": "no file system of type {}",
        "used": "nobody connected to {}",
    }
    told = []
    for condition in agent.needed_if:
        pairs = dict(condition)
        if "contains" in pairs:
            told.append(f"{pairs['path']} does not set {pairs['contains']}")
        else:
            told.append(" or ".join(words[word].format(value) for word, value in condition))
    return ", ".join(dict.fromkeys(told))


def _known(service: Service, known: Known, policy: Policy | None, live: Live | None) -> Known:
    known = replace(known, listed=policy.of(service) if policy is not None else None)
    if live is not None and service.kind == "unit":
        sockets = live.sockets.get(service.name, Sockets()) if live.sockets is not None else None
        life = live.lives.get(service.name)
        known = replace(known, life=life, sockets=sockets, loop=live.loops.get(service.name, ""), unseen=live.unseen)
    return known


def _triggers(units: list[Unit]) -> Iterable[Unit]:
    """A timer, socket or path is as needed, harmful or unused as what it starts."""
    started: dict[str, list[Unit]] = defaultdict(list)
    for unit in units:
        for trigger in unit.service.pulled_by:
            if trigger.endswith(TRIGGERS):
                started[trigger].append(unit)
    for unit in units:
        service = unit.service
        if unit.judgement == "unknown" and service.starts and service.name.endswith(TRIGGERS):
            for judgement in ("needed", "harmful", "unused"):
                for other in started[service.name]:
                    if other.judgement == judgement and other.service.name.endswith(".service"):
                        why = f"it starts {other.service.name}, which is {judgement}"
                        unit = replace(unit, judgement=judgement, reasons=(why, *unit.reasons))
                        break
                if unit.judgement != "unknown":
                    break
        yield unit


def _followers(units: list[Unit]) -> Iterable[Unit]:
    """What only harmful or unused things need is needed until they are gone, and that is worth knowing."""
    bad = {unit.service.name: unit.judgement for unit in units if unit.judgement in ("harmful", "unused")}
    for unit in units:
        others = needing(unit.service, unit.known.weak)
        alone = len(tuple(needs_of(unit.service, unit.known))) == 1  # nothing else speaks for it
        if unit.judgement == "needed" and others and alone and all(name in bad for name in others):
            why = f"but of all that need it none is needed itself: {', '.join(f'{name} is {bad[name]}' for name in others[:4])}"
            unit = replace(unit, reasons=(*unit.reasons, why))
        yield unit


def _findings(units: Iterable[Unit]) -> Iterable[Finding]:
    for unit in units:
        service, known = unit.service, unit.known
        if not active(service, known):
            continue
        harmful = unit.judgement == "harmful"
        accepted = known.protected or (known.listed is not None and known.listed.keep)
        path = service.path
        if known.life is not None and looping(known.life):
            yield Finding("crash-loop", service.name, "critical", crash_loop(known.life), path)
        elif known.loop:
            yield Finding("crash-loop", service.name, "critical", known.loop, path)
        if (endless := endless_restart(service)) and not held_back(service, known):
            meant = accepted or service.kind in PODS
            severity: Severity = "critical" if harmful and not meant else "info" if meant else "warning"
            yield Finding("endless-restart", service.name, severity, endless, path)
        if harmful and known.harm:
            yield Finding("harmful-agent", service.name, "critical" if known.critical else "warning", known.harm, path)
        if unit.judgement == "unused":
            yield Finding("unused-agent", service.name, "warning", "; ".join(unit.reasons[:2]), path)
