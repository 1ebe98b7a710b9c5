"""An audit as people read it: what is harmful first, with the arithmetic; then what is unused; then how many are left."""

import shlex
from collections.abc import Iterator

from exhume.cli.terminal import Style, wrap
from exhume.image.audit import Audit, Unit, told
from exhume.image.audit_judge import Judgement
from exhume.image.audit_scope import kept
from exhume.text import printable

MOST_SHOWN = 30
_A_LINE = 6
_COLOURS: dict[Judgement, str] = {"harmful": "red", "unused": "yellow", "needed": "green", "unknown": "dim"}


def render(audit: Audit, name: str, names: tuple[str, ...], everything: bool, style: Style, columns: int) -> str:
    if names:
        from exhume.cli.audit_text_unit import one

        chosen = [unit for unit in audit.units if unit.service.name in names]
        return "\n".join(line for unit in chosen for line in one(unit, audit, style, columns)) + "\n"
    lines = [*_head(audit, name, style, columns), *_judged(audit, everything, style, columns), *_restarts(audit, columns)]
    lines += _drift(audit, style, columns)
    lines += _rest(audit, everything, columns)
    lines += _next(audit)
    return "\n".join(lines) + "\n"


def counts(audit: Audit) -> dict[Judgement, int]:
    """Of what starts by itself, or runs."""
    return {kind: len(starting(audit, kind)) for kind in _COLOURS}


def starting(audit: Audit, judgement: Judgement) -> list[Unit]:
    """What is told: what starts, or runs, and is no target, slice or mount."""
    return [unit for unit in audit.of(judgement) if told(unit)]


def _head(audit: Audit, name: str, style: Style, columns: int) -> Iterator[str]:
    place = printable(kept(name))
    system = printable(audit.inventory.system)
    what = f"{system} ({place})" if system else place
    number = counts(audit)
    colour = "red" if number["harmful"] else "yellow" if number["unused"] or audit.drift else "green"
    told = ", ".join(f"{count:,} {kind}" for kind, count in number.items())
    first, *rest = wrap(f"{what}: {sum(number.values()):,} things start by themselves: {told}", "", "  ", columns)
    yield from (style(first, "bold", colour), *rest)


def _judged(audit: Audit, everything: bool, style: Style, columns: int) -> Iterator[str]:
    kinds: tuple[Judgement, ...] = ("harmful", "unused", "unknown", "needed") if everything else ("harmful", "unused")
    for kind in kinds:
        groups = together(starting(audit, kind))
        for first, *others in groups if everything else groups[:MOST_SHOWN]:
            yield ""
            name = style(printable(first.service.name), "bold")
            yield f"{style(kind.upper(), 'bold', _COLOURS[kind])}  {name}  {style(origin(first), 'dim')}"
            if others:
                more = f" and {len(others) - 8:,} more" if len(others) > 8 else ""
                shown = ", ".join(printable(unit.service.name) for unit in others[:8])
                yield from wrap(f"and {shown}{more}", "  ", "    ", columns)
            for reason in first.reasons:
                yield from wrap(printable(reason, 600), "  ", "    ", columns)
        if len(groups) > MOST_SHOWN and not everything:
            yield from ("", f"  and {len(groups) - MOST_SHOWN:,} more that are {kind}: --all, or --json")


def together(units: list[Unit]) -> list[list[Unit]]:
    """Parts of one agent that are judged for the same reason are told as one: a timer and its service, an agent's daemons."""
    groups: dict[tuple[str, str], list[Unit]] = {}
    for unit in units:
        key = (unit.agent.id, unit.reasons[0]) if unit.agent is not None else ("", unit.service.name)
        groups.setdefault(key, []).append(unit)
    return list(groups.values())


def origin(unit: Unit) -> str:
    """Where it comes from, in a few words."""
    service = unit.service
    words = [service.state] if service.kind == "unit" else [service.kind, service.state]
    if service.package:
        words.append(f"package {service.package}")
    if service.path and not service.package:
        words.append(service.path)
    return printable(", ".join(word for word in words if word))


def _restarts(audit: Audit, columns: int) -> Iterator[str]:
    """Endless restarts of what is needed: told in a line, because kubelets do so on purpose."""
    names = [printable(one.subject) for one in audit.findings if one.kind == "endless-restart" and one.severity != "critical"]
    if names:
        yield ""
        text = f"May restart for ever, and {'are' if len(names) > 1 else 'is'} needed: {', '.join(names[:12])}"
        text += f" and {len(names) - 12:,} more" if len(names) > 12 else ""
        yield from wrap(text, "", "  ", columns)


def _drift(audit: Audit, style: Style, columns: int) -> Iterator[str]:
    if audit.drift:
        yield from ("", style(f"{len(audit.drift):,} differences from the policy", "bold"))
    for one in audit.drift[:MOST_SHOWN]:
        yield from wrap(f"{one.kind}  {printable(one.name)}: {printable(one.message, 400)}", "  ", "    ", columns)
    if len(audit.drift) > MOST_SHOWN:
        yield f"  and {len(audit.drift) - MOST_SHOWN:,} more: --json"


def _rest(audit: Audit, everything: bool, columns: int) -> Iterator[str]:
    number = counts(audit)
    yield ""
    hint = "" if everything else " (--all says why)"
    yield f"Needed: {number['needed']:,}. Unknown: {number['unknown']:,}, nothing proves them idle or harmful{hint}."
    for title, items in (("Not known without running it", audit.inventory.unknown), ("Could not be seen", audit.troubles)):
        for item in items[:8]:
            yield from wrap(f"{title}: {printable(item, 300)}", "", "  ", columns)
        if len(items) > 8:
            yield f"{title}: and {len(items) - 8:,} more (--json)"


def _next(audit: Audit) -> Iterator[str]:
    units = [unit.service for unit in (*starting(audit, "harmful"), *starting(audit, "unused")) if unit.service.kind == "unit"]
    safe = [unit for unit in units if unit.name.isascii() and unit.name.isprintable() and len(unit.name) < 100]
    if not safe:
        return
    yield ""
    if audit.live:
        yield from (f"Next  exhume fix {shlex.quote(unit.name)}" for unit in safe[:5])
        if len(safe) > 5:
            yield f"      and so with {len(safe) - 5:,} more"
        return
    yield "Next, in the image's recipe (and leave the packages out where nothing else needs them):"
    enabled = [unit.name for unit in safe if unit.state.startswith("enabled")]
    yield from _in_lines("  systemctl disable", enabled)
    # A unit whose own file is in /etc cannot be masked: the mask would be a link in its place (systemctl(1)).
    yield from _in_lines("  systemctl mask", [unit.name for unit in safe if not unit.path.startswith("/etc/systemd/system/")])
    if enabled:
        yield "or as a preset, /etc/systemd/system-preset/00-image.preset, before the packages are installed:"
        yield from (f"  disable {name}" for name in enabled[:MOST_SHOWN])
        if len(enabled) > MOST_SHOWN:
            yield f"  # and {len(enabled) - MOST_SHOWN:,} more: --json"


def _in_lines(command: str, names: list[str]) -> Iterator[str]:
    """A command for all of the names, a few to a line, as a shell takes them."""
    for begin in range(0, min(len(names), MOST_SHOWN), _A_LINE):
        yield f"{command} {' '.join(shlex.quote(name) for name in names[begin : min(begin + _A_LINE, MOST_SHOWN)])}"
    if len(names) > MOST_SHOWN:
        yield f"{command} ...  # and {len(names) - MOST_SHOWN:,} more: --json"
