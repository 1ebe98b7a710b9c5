"""The report as Markdown, for a post-mortem: summary, timeline, chain, evidence, ruled out, actions to tick off, appendix."""

import re
from collections.abc import Iterable, Iterator

from exhume import __version__
from exhume.pictures.scene import Scene
from exhume.pictures.timeline import timeline
from exhume.pictures.words import short, value
from exhume.text import printable

_LONGEST = 400
_MOST_ROWS = 40
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
    sure = f", confidence {report.verdict.confidence:.0%}" if report.verdict.cause is not None else ""
    yield f"**{report.health}**{sure}"
    yield ""
    zone = f" {clock.zone}" if clock.zone else ""
    yield f"- When: {plain(clock.dated(start))} to {plain(clock.exact(end))}{plain(zone)} ({clock.lasting(end - start)})"
    node = report.node
    yield f"- Node: {plain(node.hostname)}, Linux {plain(node.kernel)}, {node.cpus} cores, cgroups {plain(node.cgroups)}"
    for culprit in report.verdict.culprits:
        yield f"- Culprit: {plain(culprit.subject)} ({culprit.share:.0%})"
    if scene.alike:
        yield f"- {len(scene.alike)} more like this: {plain(', '.join(clock.short(time) for time in scene.alike[:12]))}"
    for group in scene.others:
        yield f"- Also, {len(group.starts)} ×: {plain(group.summary)}"


def _timeline(scene: Scene) -> Iterator[str]:
    """What happened when: the findings' beginnings and the lines of the log, in one order."""
    picture = timeline(scene.recording, *scene.window, scene.focus, scene.story, 10)
    rows = [(flag.time, plain(flag.message or flag.kind)) for flag in picture.flags]
    rows += [
        (span.start, f"{plain(finding.subject)}: {plain(finding.kind)}, {(span.end - span.start) / 1e6:,.0f} ms")
        for finding in scene.story
        for span in finding.spans
        if picture.start <= span.start < picture.end and span.end - span.start >= _SHORTEST_NS
    ]
    rows += [(time, f"{plain(one.unit)} restarted") for one in picture.restarts for time in one.times]
    if not rows:
        return
    rows = sorted(set(rows))
    yield from ("", "## Timeline", "", "| when | what |", "|---|---|")
    for time, what in rows[:_MOST_ROWS]:
        yield f"| {plain(scene.clock.exact(time))} | {what} |"
    if len(rows) > _MOST_ROWS:
        yield f"| | and {len(rows) - _MOST_ROWS:,} more |"


def _chain(scene: Scene) -> Iterator[str]:
    if not scene.verdict.chain:
        return
    yield from ("", "## What led to what", "")
    for number, link in enumerate(scene.verdict.chain, 1):
        what, numbers = short(link.finding)
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
                yield f"| {plain(item.what)} | {plain(value(item))} | {plain(item.source)} |"


def _ruled_out(scene: Scene) -> Iterator[str]:
    for title, items in (("Ruled out", scene.verdict.ruled_out), ("Not judged", scene.verdict.unseen)):
        if items:
            yield from ("", f"## {title}", "")
            yield from (f"- {plain(item.kind)}: {plain(item.because)}" for item in items)


def _actions(scene: Scene) -> Iterator[str]:
    verdict = scene.verdict
    steps = [*verdict.next, *(one.summary for one in verdict.remedies if not any(one.summary in step for step in verdict.next))]
    wanted = [one for one in verdict.advice if not one.against]
    unwanted = [one for one in verdict.advice if one.against]
    if not (steps or wanted or unwanted or verdict.switch_on):
        return
    yield from ("", "## Actions", "")
    yield from (f"- [ ] {plain(step)}" for step in steps)
    for one in wanted:
        yield f"- [ ] {plain(one.text)} (costs {one.cost})" + (f": {plain(one.because)}" if one.because else "")
    yield from (f"- [ ] To see more, switch on: {plain(text)}" for text in verdict.switch_on)
    if unwanted:
        yield from ("", "Not to be done:", "")
        yield from (f"- {plain(one.text)}" + (f": {plain(one.because)}" if one.because else "") for one in unwanted)


def _appendix(scene: Scene, commands: tuple[str, ...]) -> Iterator[str]:
    yield from ("", "## Appendix")
    if commands:
        yield from ("", *(f"    {printable(command, _LONGEST)}" for command in commands))
    if scene.report.sources:
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
