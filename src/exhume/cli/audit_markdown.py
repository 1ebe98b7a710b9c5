"""An audit as Markdown, for a merge request or a post-mortem."""

from collections.abc import Iterator

from exhume import __version__
from exhume.cli.audit_text import counts, origin, starting
from exhume.image.audit import Audit, Unit
from exhume.image.audit_scope import kept
from exhume.render.report_markdown import plain


def page(audit: Audit, name: str, names: tuple[str, ...], everything: bool) -> str:
    return "\n".join(_lines(audit, name, names, everything)) + "\n"


def _lines(audit: Audit, name: str, names: tuple[str, ...], everything: bool) -> Iterator[str]:
    yield f"# Audit of {plain(audit.inventory.system or kept(name))}"
    yield ""
    number = counts(audit)
    told = ", ".join(f"{count:,} {kind}" for kind, count in number.items())
    yield f"{plain(kept(name))}: {sum(number.values()):,} things start by themselves: {told}."
    for kind in ("harmful", "unused", "unknown", "needed"):
        units = [unit for unit in audit.of(kind) if unit.service.name in names] if names else starting(audit, kind)
        if units and (names or everything or kind in ("harmful", "unused")):
            yield from ("", f"## {kind.capitalize()}", "", "| what | where from | why |", "|---|---|---|")
            yield from (_row(unit) for unit in units)
    findings = [one for one in audit.findings if one.kind == "endless-restart" and (not names or one.subject in names)]
    if findings:
        yield from ("", "## May restart for ever", "", "| what | severity | arithmetic |", "|---|---|---|")
        yield from (f"| {plain(one.subject)} | {one.severity} | {plain(one.summary)} |" for one in findings)
    drift = [one for one in audit.drift if not names or one.name in names]
    if drift:
        yield from ("", "## Differences from the policy", "", "| what | difference | |", "|---|---|---|")
        yield from (f"| {plain(one.name)} | {one.kind} | {plain(one.message)} |" for one in drift)
    for title, items in (("Not known without running it", audit.inventory.unknown), ("Could not be seen", audit.troubles)):
        if items:
            yield from ("", f"## {title}", "")
            yield from (f"- {plain(item)}" for item in items)
    yield from ("", f"exhume {__version__}")


def _row(unit: Unit) -> str:
    return f"| {plain(unit.service.name)} | {plain(origin(unit))} | {'; '.join(plain(reason) for reason in unit.reasons)} |"
