"""Everything about one thing that runs by itself: why it is judged so, who needs it both ways, how it restarts and lives."""

from collections.abc import Iterator

from exhume.cli.audit_text import origin
from exhume.cli.terminal import Style, wrap
from exhume.host.quantities import SECOND, duration
from exhume.image.audit import Audit, Unit
from exhume.image.audit_evidence import ending
from exhume.text import printable

_INDENT = 16
_MOST = 24


def one(unit: Unit, audit: Audit, style: Style, columns: int) -> Iterator[str]:
    service = unit.service
    colour = {"harmful": "red", "unused": "yellow", "needed": "green"}.get(unit.judgement, "dim")
    yield style(unit.judgement.upper(), "bold", colour) + f"  {style(printable(service.name), 'bold')}  {origin(unit)}"
    if service.description:
        yield f"  {printable(service.description)}"
    yield ""
    for title, texts in _rows(unit, audit):
        for number, text in enumerate(texts[:_MOST]):
            first = f"  {title if number == 0 else '':<{_INDENT - 2}}"
            yield from wrap(printable(text, 600), first, " " * _INDENT, columns)
        if len(texts) > _MOST:
            yield f"{'':<{_INDENT}}and {len(texts) - _MOST:,} more"
    yield ""


def _rows(unit: Unit, audit: Audit) -> Iterator[tuple[str, list[str]]]:
    service, known = unit.service, unit.known
    yield "because", list(unit.reasons)
    yield "file", [service.path] if service.path else []
    yield "also called", list(service.aliases)
    yield "runs", list(service.command)
    yield "started by", list(service.pulled_by) or (["nothing, by itself"] if not service.starts else [])
    yield "needed by", list(service.needed_by) or ["no other unit"]
    yield "needs", list(service.needs)
    if service.restart is not None:
        restart = service.restart
        yield "restarts", [f"Restart={restart.policy}, {'for ever' if restart.endless else 'with an end'}: {restart.why}"]
    yield "makes cgroups", [service.cgroups] if service.cgroups else []
    yield "conditions", list(service.conditions)
    yield "preset", [service.preset] if service.preset else []
    if unit.agent is not None:
        yield "catalogue", [f"{unit.agent.name}: {unit.agent.purpose} (source: {unit.agent.source})"]
        packages = f"Leave out of the image: {', '.join(unit.agent.off.packages)}" if unit.agent.off.packages else ""
        yield "to turn off", [text for text in (unit.agent.off.config, packages) if text]
    if known.listed is not None:
        listed = known.listed
        review = f", to be reviewed by {listed.review}" if listed.review is not None else ""
        yield "policy", [f"owner {listed.owner or 'nobody'}{review}{', kept' if listed.keep else ''}"]
    yield "drift", [f"{one.kind}: {one.message}" for one in audit.drift if one.name == service.name]
    yield from _live(unit)
    yield "notes", list(service.notes)


def _live(unit: Unit) -> Iterator[tuple[str, list[str]]]:
    life, sockets = unit.known.life, unit.known.sockets
    if life is not None:
        words = [f"{life.active} ({life.sub})"]
        words += [f"for {duration(life.since_s * SECOND)}"] if life.since_s >= 0 else []
        words += [f"{life.restarts:,} restarts"] if life.restarts >= 0 else []
        words += [f"last ended with {ending(life)}"] if ending(life) else []
        words += [f"{duration(life.cpu_s * SECOND)} of CPU time"] if life.cpu_s >= 0 else []
        yield "now", [", ".join(words)]
        yield "cgroup", [life.cgroup] if life.cgroup else []
    if sockets is not None:
        ends = []
        for end in sockets.listening:
            who = ", ".join(end.peers) or "nobody"
            far = f" and {end.remotes:,} other machines" if end.remotes else ""
            touched = "; nobody has connected since it was made" if end.made_s >= 0 and end.touched_s < 0 else ""
            ends.append(f"{end.protocol} {end.address}: {who}{far} connected{touched}")
        yield "listens on", ends
        yield "talks to", list(sockets.talks_to)
        yield "mounted by", list(sockets.mounted_by)
