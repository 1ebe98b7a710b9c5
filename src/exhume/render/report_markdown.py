"""The report as Markdown, for a post-mortem: summary, timeline, chain, evidence, ruled out, actions to tick off, appendix."""

import re
from collections.abc import Iterable, Iterator

from exhume import __version__
from exhume.diagnosis.findings.kind import COSTS
from exhume.host.quantities import MILLISECOND, duration, milliseconds
from exhume.render import sentences
from exhume.render.scene import Scene
from exhume.render.timeline import timeline
from exhume.text import printable

_LONGEST = 400
_MOST_ROWS = 40
_TOGETHER_NS = 10_000_000_000  # the same again within this time is told in one row
_SHORTEST_NS = 1_000_000  # of what lasts: shorter is a moment, which the log tells
# What Markdown, or HTML inside of it, would take for something else than text.
_MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&!$])")


def page(scene: Scene, commands: Iterable[str] = ()) -> str:
    parts = [_summary, _timeline, _chain, _evidence, _ruled_out, _actions]
    lines = [line for part in parts for line in part(scene)]
    return "\n".join([*lines, *_appendix(scene, tuple(commands))]) + "\n"


def _summary(scene: Scene) -> Iterator[str]:
    report, clock = scene.report, scene.clock
    start, end = scene.focus
    yield f"# {plain(report.node.hostname)}: {plain(report.verdict.summary)}"
    yield ""
    sure = sentences.sure(report.verdict)
    yield f"**{report.health}**{sure and ', ' + sure}"
    if scene.pseudonyms:
        yield from ("", plain(sentences.PSEUDONYMS))
    yield ""
    zone = f" {clock.zone}" if clock.zone else ""
    yield f"- When: {plain(clock.dated(start))} to {plain(clock.exact(end))}{plain(zone)} ({duration(end - start)})"
    yield f"- Node: {plain(', '.join(sentences.node(report.node, scene.imported)))}"
    if report.verdict.culprits:
        yield f"- Culprit{'s' * (len(report.verdict.culprits) > 1)}: {plain(sentences.culprits(report.verdict))}"
    if who := sentences.who(scene.chain):
        yield f"- Who: {plain(who)}"
    for finding in sentences.others(report):
        yield f"- Also: {plain(finding.kind)}: {plain(finding.summary)}"
    if scene.alike:
        yield f"- {len(scene.alike)} more like this: {plain(', '.join(clock.short(time) for time in scene.alike[:12]))}"
    for group in scene.others:
        yield f"- Also, {len(group.starts)} ×: {plain(group.summary)}"
    if further := sentences.further(report):
        yield f"- {further}: {plain(', '.join(clock.short(start) for start, _ in report.further[:12]))}"


def _timeline(scene: Scene) -> Iterator[str]:
    """What happened when: the findings' beginnings and the lines of the log, in one order."""
    picture = timeline(scene.recording, *scene.window, scene.focus, scene.story, 10)
    rows = [(flag.time, plain(flag.text or flag.kind), 0) for flag in picture.flags]
    rows += [
        (span.start, f"{plain(finding.subject)}: {plain(finding.kind)}", span.end - span.start)
        for finding in scene.story
        for span in finding.spans
        if picture.start <= span.start < picture.end and span.end - span.start >= _SHORTEST_NS
    ]
    rows += [(time, f"{plain(one.unit)} restarted", 0) for one in picture.restarts for time in one.times]
    if not rows:
        return
    runs = _runs(rows)
    yield from ("", "## Timeline", "", "| when | what |", "|---|---|")
    for first, last, text in runs[:_MOST_ROWS]:
        until = f" to {plain(scene.clock.exact(last))}" if last > first else ""
        yield f"| {plain(scene.clock.exact(first))}{until} | {text} |"
    if len(runs) > _MOST_ROWS:
        yield f"| | and {len(runs) - _MOST_ROWS:,} more |"


def _runs(rows: Iterable[tuple[int, str, int]]) -> list[tuple[int, int, str]]:
    """In order of time, with what happens again and again in one row: from when to when, how often and how long at most. What
    else happened meanwhile ends no run while it goes on: three things that take turns are three rows."""
    found: list[tuple[int, int, str, int, int]] = []
    latest: dict[str, int] = {}
    for time, text, length in sorted(set(rows)):
        at = latest.get(text)
        if at is not None and time - found[at][1] <= _TOGETHER_NS:
            first, _, _, longest, count = found[at]
            found[at] = first, time, text, max(longest, length), count + 1
        else:
            latest[text] = len(found)
            found.append((time, time, text, length, 1))
    return [(first, last, text + _often(count, longest)) for first, last, text, longest, count in found]


def _often(count: int, longest: int) -> str:
    if count == 1:
        return f", {milliseconds(longest / MILLISECOND)}" if longest else ""
    return f", {count:,} times" + (f", up to {milliseconds(longest / MILLISECOND)}" if longest else "")


def _chain(scene: Scene) -> Iterator[str]:
    if not scene.verdict.chain:
        return
    yield from ("", "## What led to what", "")
    for number, link in enumerate(scene.verdict.chain, 1):
        what, numbers = link.finding.facts.short()
        yield f"{number}. **{plain(what)}**" + (f" {plain(numbers)}" if numbers else "")
        if link.because:
            yield f"   - because {plain(link.because)} ({link.confidence:.0%})"
        if link.disproof:
            yield f"   - would be disproved by: {plain(link.disproof)}"
    for text in scene.verdict.against:
        yield f"- Against it: {plain(text)}"


def _evidence(scene: Scene) -> Iterator[str]:
    if not scene.story:
        return
    yield from ("", "## Evidence")
    for finding in scene.story:
        yield from ("", f"### {plain(finding.kind)}: {plain(finding.summary)}")
        if finding.evidence:
            yield from ("", "| what | value | source |", "|---|---|---|")
            for item in finding.evidence:
                yield f"| {plain(item.what)} | {plain(item.text)} | {plain(item.source)} |"


def _ruled_out(scene: Scene) -> Iterator[str]:
    for title, items in (("Ruled out", scene.ruled_out), ("Not judged", scene.verdict.unseen)):
        if items:
            yield from ("", f"## {title}", "")
            yield from (f"- {plain(item.kind)}: {plain(item.because)}" for item in items)


def _actions(scene: Scene) -> Iterator[str]:
    verdict = scene.verdict
    steps = sentences.to_do(verdict)
    wanted = [one for one in verdict.advice if not one.against]
    unwanted = [one for one in verdict.advice if one.against]
    if not (steps or wanted or unwanted or verdict.switch_on):
        return
    host = scene.report.node.hostname
    yield from ("", "## Actions", "", *([f"On {plain(host)}:", ""] if host not in ("", "unknown") else ()))
    yield from (f"- [ ] {plain(step)}" for step in steps)
    for one in wanted:
        yield f"- [ ] {plain(one.text)} (costs {COSTS[one.cost]})" + (f": {plain(one.because)}" if one.because else "")
    yield from (f"- [ ] To see more, switch on: {plain(text)}" for text in verdict.switch_on)
    if unwanted:
        yield from ("", "Not to be done:", "")
        yield from (f"- {plain(one.text)}" + (f": {plain(one.because)}" if one.because else "") for one in unwanted)


def _appendix(scene: Scene, commands: tuple[str, ...]) -> Iterator[str]:
    yield from ("", "## Appendix")
    if commands:
        yield from ("", *(f"    {printable(command, _LONGEST)}" for command in commands))
    if scene.report.sources:
        yield from ("", f"Seen with {plain(sentences.seen_with(scene.report.sources, scene.imported))}.")
        yield from ("", "| source | state | |", "|---|---|---|")
        for source in scene.report.sources:
            yield f"| {plain(source.name)} | {plain(source.state)} | {plain(source.reason)} |"
    yield ""
    yield (
        f"exhume {__version__}, recording {plain(scene.report.start)} to {plain(scene.report.end)}, "
        f"boot {plain(scene.report.node.boot_id)}"
    )


def plain(text: str) -> str:
    """Text that stays text: names may hold anything, and HTML in Markdown is HTML."""
    return _MARKS.sub(r"\\\1", printable(text, _LONGEST)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")
