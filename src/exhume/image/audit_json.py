"""The audit for programs: schema exhume.audit/1. Names that are no UTF-8 keep their bytes as \\xNN, for every parser."""

from typing import Any

from exhume.host.programs import Program
from exhume.image.audit import Audit, Unit, told
from exhume.image.audit_scope import kept
from exhume.sources.unit_life import Life
from exhume.sources.unit_sockets_model import Sockets

SCHEMA = "exhume.audit/1"


def as_json(audit: Audit, name: str, names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The whole of it, or of it only the units that were asked for."""
    units = [unit for unit in audit.units if not names or unit.service.name in names]
    counted = [unit for unit in audit.units if told(unit)]
    document = {
        "schema": SCHEMA,
        "image": {
            "name": name,
            "system": audit.inventory.system,
            "live": audit.live,
            **{key: value for key, value in sorted(audit.inventory.facts.items()) if key not in ("name", "system", "live")},
        },
        "counts": {
            "starts": len(counted),
            **{kind: sum(unit.judgement == kind for unit in counted) for kind in ("harmful", "unused", "needed", "unknown")},
        },
        "units": [_unit(unit) for unit in units],
        "drift": [{"kind": one.kind, "name": one.name, "message": one.message} for one in audit.drift],
        "findings": [
            {"kind": one.kind, "subject": one.subject, "severity": one.severity, "summary": one.summary, "path": one.path}
            for one in audit.findings
            if not names or one.subject in names
        ],
        "troubles": list(audit.troubles),
        "unknown": list(audit.inventory.unknown),
        "exit_code": audit.exit_code,
    }
    cleaned: dict[str, Any] = _clean(document)
    return cleaned


def _unit(unit: Unit) -> dict[str, Any]:
    service, known = unit.service, unit.known
    restart = service.restart
    listed = known.listed
    return {
        "name": service.name,
        "kind": service.kind,
        "state": service.state,
        "starts": service.starts,
        "judgement": unit.judgement,
        "reasons": list(unit.reasons),
        "path": service.path,
        "description": service.description,
        "command": list(service.command),
        "package": service.package,
        "pulled_by": list(service.pulled_by),
        "needed_by": list(service.needed_by),
        "needs": list(service.needs),
        "restart": None
        if restart is None
        else {
            "policy": restart.policy,
            "delay_s": _number(restart.delay_s),
            "burst": restart.burst,
            "interval_s": _number(restart.interval_s),
            "endless": restart.endless,
            "why": restart.why,
            "prevent": restart.prevent,
        },
        "cgroups": service.cgroups,
        "conditions": list(service.conditions),
        "preset": service.preset,
        "notes": list(service.notes),
        "aliases": list(service.aliases),
        "agent": None if unit.agent is None else _agent(unit.agent),
        "protected": known.protected,
        "policy": None
        if listed is None
        else {
            "owner": listed.owner,
            "purpose": listed.purpose,
            "review": listed.review.isoformat() if listed.review is not None else None,
            "images": list(listed.images),
            "keep": listed.keep,
        },
        "live": _live(known.life, known.sockets),
    }


def _agent(agent: Program) -> dict[str, Any]:
    return {
        "id": agent.id,
        "name": agent.name,
        "purpose": agent.purpose,
        "source": agent.source,
        "harm": [{"severity": harm.severity, "text": harm.text, "source": harm.source} for harm in agent.harm],
        "off": {"units": list(agent.off.units), "config": agent.off.config, "packages": list(agent.off.packages)},
    }


def _live(life: Life | None, sockets: Sockets | None) -> dict[str, Any] | None:
    if life is None:
        return None
    return {
        "active": life.active,
        "sub": life.sub,
        "since_s": _known(life.since_s),
        "restarts": _known(life.restarts),
        "result": life.result,
        "exit_code": life.exit_code,
        "exit_status": life.exit_status,
        "cpu_s": _known(life.cpu_s),
        "cgroup": life.cgroup,
        "sockets": None
        if sockets is None
        else {
            "listening": [
                {
                    "protocol": end.protocol,
                    "address": end.address,
                    "connections": end.connections,
                    "peers": list(end.peers),
                    "remotes": end.remotes,
                    "made_s": _known(end.made_s),
                    "touched_s": _known(end.touched_s),
                }
                for end in sockets.listening
            ],
            "outgoing": sockets.outgoing,
            "talks_to": list(sockets.talks_to),
            "mounted_by": list(sockets.mounted_by),
        },
    }


def _known(value: float) -> float | None:
    """What is not known is null, for programs."""
    return None if value < 0 else round(value, 3) if isinstance(value, float) else value


def _number(value: float) -> float | None:
    """JSON has no infinity: a time without end is null."""
    return value if value == value and abs(value) != float("inf") else None


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return kept(value)
    if isinstance(value, dict):
        return {_clean(key): _clean(item) for key, item in value.items()}
    return [_clean(item) for item in value] if isinstance(value, list) else value
