"""A report as people read it: the verdict first, in plain words, then the chain, what was ruled out, what to do next."""

import re
from collections.abc import Iterable

from exhume.cli.terminal import Style, wrap
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.report import Report, RuledOut, Source, Verdict
from exhume.host.quantities import duration
from exhume.render import sentences
from exhume.text import sentence

_COLOURS = {"healthy": "green", "warning": "yellow", "critical": "red", "unknown": "yellow"}
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LEFT = 11
# Rivals that people ask about first, in this order; -v shows the others.
RIVALS = ("cpu-throttled", "cpu-full", "reclaim", "steal", "printk-flood", "writeback-stall", "irq-imbalance")
MOST_RIVALS = 4
_MOST_FINDINGS = 8


def render(report: Report, style: Style, columns: int, verbose: bool = False, evidence: bool = False) -> str:
    lines = headline(report, style, columns)
    if report.health == "healthy" and not verbose:
        _others(report, style, columns, False, evidence, [], lines)
        return "\n".join(lines) + "\n"
    lines.append("")
    told = _chain(report, style, columns, evidence, lines)
    _others(report, style, columns, verbose, evidence, told, lines)
    _ruled_out(report, style, columns, verbose, lines)
    for i, text in enumerate(do_now(report.verdict)):
        labelled("" if i else "Do now", safe(text), style, columns, lines)
    for i, step in enumerate(report.verdict.next):
        labelled("" if i else "Next", safe(step), style, columns, lines)
    _sources(report, style, columns, verbose, lines)
    return "\n".join(lines) + "\n"


def do_now(verdict: Verdict) -> list[str]:
    """The commands that put it right, and prove it, each with what it does."""
    fixes = [(remedy.command, remedy.effect) for remedy in verdict.remedies if remedy.id == "fix"]
    if not fixes:
        return []
    every = [*fixes, ("exhume verify --for 10m", "proves it")]
    longest = max(len(command) for command, _ in every)
    return [f"{command:<{longest}}  {does}" for command, does in every]


def safe(text: str) -> str:
    """Names in sentences are hostile text."""
    return sentence(text)


def headline(report: Report, style: Style, columns: int) -> list[str]:
    word = report.health.upper()
    text = safe(report.verdict.summary)
    if report.health == "healthy":
        text += f": {_healthy_numbers(report)}"
    first, *rest = wrap(text, "", " " * (len(word) + 2), columns - len(word) - 2)
    lines = [style(word, _COLOURS[report.health], "bold") + "  " + style(first, "bold")]
    lines += [style(line, "bold") for line in rest]
    if sure := sentences.sure(report.verdict):
        room = columns - _visible(lines[-1]) - len(sure)
        if room < 2:
            lines.append("")
            room = columns - len(sure)
        lines[-1] += " " * room + style(sure, "dim")
    return lines


def _visible(line: str) -> int:
    return len(_COLOUR.sub("", line))


def _healthy_numbers(report: Report) -> str:
    rivals = {item.kind: item.because for item in report.verdict.ruled_out}
    parts = [rivals["cpu-full"]] if "cpu-full" in rivals else []
    unseen = {item.kind for item in report.verdict.unseen}
    parts.append("zombies not judged" if "zombie-memcgs" in unseen else safe(_zombies(report)))
    return ", ".join([*parts, _sources_in_short(report)])


def _zombies(report: Report) -> str:
    """The count is always told."""
    for finding in report.findings:
        if finding.kind == "zombie-memcgs":
            return finding.summary
    return next((item.because for item in report.verdict.ruled_out if item.kind == "zombie-memcgs"), "")


def _in_part(report: Report) -> list[Source]:
    return [source for source in report.sources if source.state == "partial"]


def _sources_in_short(report: Report) -> str:
    off = [source.name for source in report.sources if source.state == "off"]
    notes = [f"off: {', '.join(off)}"] if off else []
    if partly := _in_part(report):
        notes.append(f"in part: {', '.join(source.name for source in partly)}")
    return f"{len(report.sources) - len(off)} of {len(report.sources)} sources" + (f" ({'; '.join(notes)})" if notes else "")


def _chain(report: Report, style: Style, columns: int, evidence: bool, lines: list[str]) -> list[Finding[Facts]]:
    told = []
    indent = "  "
    if len(report.verdict.chain) == 1:
        # The headline says it already: the numbers behind it are worth more than a repetition.
        finding = report.verdict.chain[0].finding
        if finding.summary.casefold() != report.verdict.summary.casefold():
            lines += _coloured(wrap(safe(finding.summary), indent, indent, columns), style, finding)
        if evidence:
            _evidence(finding, "", style, columns, lines)
        if lines[-1]:
            lines.append("")
        return [finding]
    for depth, link in enumerate(report.verdict.chain):
        arrow = "" if depth == 0 else "└▶ "
        lines += _coloured(
            wrap(safe(link.finding.summary), indent + arrow, indent + " " * len(arrow), columns), style, link.finding
        )
        indent += " " * len(arrow)
        if link.because:
            lines += [
                style(line, "dim") for line in wrap(f"{safe(link.because)} ({link.confidence:.0%})", indent, indent, columns)
            ]
        if evidence:
            _evidence(link.finding, indent, style, columns, lines)
        indent += " "
        told.append(link.finding)
    if told:
        lines.append("")
    return told


def _coloured(lines: list[str], style: Style, finding: Finding[Facts]) -> list[str]:
    colour = {"critical": "red", "warning": "yellow", "info": "cyan"}[finding.severity]
    return [style(line, colour) for line in lines]


def _evidence(finding: Finding[Facts], indent: str, style: Style, columns: int, lines: list[str]) -> None:
    for item in finding.evidence:
        text = f"{item.what}: {safe(item.text)}  [{safe(item.source)}]"
        lines += [style(line, "dim") for line in wrap(text, indent + "  · ", indent + "    ", columns)]


def _others(
    report: Report, style: Style, columns: int, verbose: bool, evidence: bool, told: list[Finding[Facts]], lines: list[str]
) -> None:
    others = [finding for finding in report.findings if finding not in told]
    shown = others if verbose else [finding for finding in others if finding.severity != "info"][:_MOST_FINDINGS]
    for i, finding in enumerate(shown):
        label = "Also" if i == 0 else ""
        labelled(label, f"{finding.kind}: {safe(finding.summary)}", style, columns, lines)
        if evidence:
            _evidence(finding, " " * (_LEFT + 2), style, columns, lines)
    hidden = sum(finding.severity != "info" for finding in others) - sum(finding.severity != "info" for finding in shown)
    if hidden:
        labelled("", f"and {hidden} more: exhume check -v", style, columns, lines)


def _ruled_out(report: Report, style: Style, columns: int, verbose: bool, lines: list[str]) -> None:
    if not verbose:
        out = [f"{item.kind}: {safe(item.because)}" for item in rivals(report.verdict.ruled_out)[:MOST_RIVALS]]
        few = [finding for finding in report.findings if finding.kind == "zombie-memcgs" and finding.severity == "info"]
        out += [f"zombies: {safe(finding.summary)}" for finding in few]
        if out:
            labelled("Ruled out", " · ".join(out), style, columns, lines)
        return
    for label, items in (("Ruled out", report.verdict.ruled_out), ("Not judged", report.verdict.unseen)):
        for i, item in enumerate(items):
            labelled("" if i else label, f"{item.kind}: {safe(item.because)}", style, columns, lines)


def rivals(ruled_out: Iterable[RuledOut]) -> list[RuledOut]:
    return sorted((item for item in ruled_out if item.kind in RIVALS), key=lambda item: RIVALS.index(item.kind))


def _sources(report: Report, style: Style, columns: int, verbose: bool, lines: list[str]) -> None:
    off = [source for source in report.sources if source.state == "off"]
    text = f"{len(report.sources) - len(off)} of {len(report.sources)} sources"
    if off:
        text += ". Off: " + "; ".join(f"{source.name} ({safe(source.reason)})" for source in off)
    if partly := _in_part(report):
        text += ". In part: " + "; ".join(f"{source.name} ({safe(source.reason)})" for source in partly)
    labelled("Seen with", text, style, columns, lines)
    if verbose:
        for source in report.sources:
            if source.state != "off":
                labelled("", f"{source.name}: {duration(source.cost_ns)} of CPU. {safe(source.reason)}", style, columns, lines)


def labelled(label: str, text: str, style: Style, columns: int, lines: list[str]) -> None:
    head, *tail = wrap(text, "", "", columns - _LEFT - 2)
    lines.append("  " + style(f"{label:<{_LEFT}}", "bold") + head)
    lines += [" " * (_LEFT + 2) + line for line in tail]
