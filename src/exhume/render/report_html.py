"""The report as one HTML file for a ticket: nothing is loaded, nothing is sent, every name in it is escaped."""

from collections.abc import Iterable, Iterator
from html import escape

from exhume import __version__
from exhume.diagnosis.findings.kind import COSTS, Advice
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.host.quantities import duration
from exhume.render import chain_svg, sentences, timeline_svg
from exhume.render.flame import Compared, walk
from exhume.render.flame_svg import flame, hashed, left_out, script
from exhume.render.lanes import STATES
from exhume.render.report_style import STYLE
from exhume.render.scene import Group, Scene
from exhume.render.timeline import Timeline, timeline
from exhume.text import printable

_LONGEST = 600
_MOST_LINES = 25
_MOST_TIMES = 12
_MOST_OTHERS = 6
_COLUMNS, _FEWEST = 300, 20
# Ticks of 10 ms, read ten times a second: narrower columns show the rounding, not the core.
_COLUMN_NS = 250_000_000
_STATES = {"system": "system (the kernel for a task)", "softirq": "softirq and irq", "user": "user", "steal": "steal"}


def page(scene: Scene, compared: Compared | None = None, commands: Iterable[str] = ()) -> str:
    columns = max(_FEWEST, min(_COLUMNS, (scene.window[1] - scene.window[0]) // _COLUMN_NS))
    picture = timeline(scene.recording, *scene.window, scene.focus, scene.story, columns, scene.gaps)
    parts = [
        *_head(scene),
        *_who(scene),
        *_chain(scene),
        *_to_do(scene),
        *_timeline(scene, picture),
        *_flames(scene, compared),
        *_evidence(scene),
        *_ruled_out(scene),
        *_others(scene),
        *_closing(scene, tuple(commands)),
    ]
    end = ("</main>", f"<script>{script()}</script>", "</body></html>")
    return "\n".join(["<!doctype html>", '<html lang="en">', *_document_head(scene), "<body><main>", *parts, *end]) + "\n"


def _document_head(scene: Scene) -> Iterator[str]:
    """The policy lets this page's own style and script run, by their hashes, and nothing else."""
    policy = (
        f"default-src 'none'; style-src '{hashed(STYLE)}'; script-src '{hashed(script())}'; base-uri 'none'; form-action 'none'"
    )
    yield "<head>"
    yield '<meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield '<meta name="referrer" content="no-referrer">'
    yield f"<title>{_safe(scene.report.node.hostname)}: {_safe(scene.verdict.summary)}</title>"
    yield f"<style>{STYLE}</style>"
    yield "</head>"


def _head(scene: Scene) -> Iterator[str]:
    report, clock = scene.report, scene.clock
    start, end = scene.focus
    sure = sentences.sure(report.verdict)
    yield f'<div><span class="badge {report.health}">{report.health.upper()}</span><span class="sure">{sure}</span></div>'
    yield f"<h1>{_safe(sentences.headline(scene.verdict.summary))}</h1>"
    zone = f" {clock.zone}" if clock.zone else ""
    parts = [
        f"{clock.dated(start)} to {clock.exact(end)}{zone} ({duration(end - start)})",
        *sentences.node(report.node, scene.imported),
    ]
    yield f'<p class="meta">{" · ".join(_safe(part) for part in parts)}</p>'
    if scene.pseudonyms:
        yield f'<p class="note">{_safe(sentences.PSEUDONYMS)}</p>'


def _who(scene: Scene) -> Iterator[str]:
    """Whose doing it is, who was at it, and what else is wrong: before all pictures."""
    verdict = scene.verdict
    rows = [("Culprits" if len(verdict.culprits) > 1 else "Culprit", sentences.culprits(verdict))]
    rows.append(("Who", sentences.who(scene.chain)))
    others = sentences.others(scene.report)
    rows += [("Also", f"{finding.kind}: {finding.summary}") for finding in others[:_MOST_OTHERS]]
    if len(others) > _MOST_OTHERS:
        rows.append(("Also", f"{len(others) - _MOST_OTHERS} more, below"))
    told = [f"<li><strong>{label}</strong> {_safe(text)}</li>" for label, text in rows if text]
    if told:
        yield from ("<ul>", *told, "</ul>")


def _chain(scene: Scene) -> Iterator[str]:
    if scene.verdict.chain:
        yield "<h2>What led to what</h2>"
        yield chain_svg.svg(scene.verdict.chain)
    if scene.verdict.against:
        yield "<h3>Evidence against it</h3>"
        yield from _list(scene.verdict.against)


def _list(items: Iterable[str]) -> Iterator[str]:
    yield "<ul>"
    yield from (f"<li>{_safe(item)}</li>" for item in items)
    yield "</ul>"


def _to_do(scene: Scene) -> Iterator[str]:
    verdict = scene.verdict
    steps = sentences.to_do(verdict)
    if not steps and not verdict.advice and not verdict.switch_on:
        return
    host = scene.report.node.hostname
    yield f'<h2>What to do{f" on {_safe(host)}" if host not in ("", "unknown") else ""}</h2><ul class="do">'
    yield from (f"<li>{_safe(step)}</li>" for step in steps)
    yield from (_advice(one) for one in verdict.advice if not one.against)
    yield from (_advice(one) for one in verdict.advice if one.against)
    yield "</ul>"
    if verdict.switch_on:
        yield "<h3>What to switch on, to see more</h3>"
        yield from _list(verdict.switch_on)


def _advice(one: Advice) -> str:
    because = f": {_safe(one.because)}" if one.because else ""
    if one.against:
        return f'<li class="not"><strong>Do not:</strong> {_safe(one.text)}{because}</li>'
    return f'<li>{_safe(one.text)} <span class="cost">(costs {_safe(COSTS[one.cost])})</span>{because}</li>'


def _timeline(scene: Scene, picture: Timeline) -> Iterator[str]:
    if picture.empty:
        return
    yield "<h2>Side by side in time</h2>"
    if picture.strips:
        yield _legend([(state, _STATES[state]) for state in STATES])
    yield timeline_svg.svg(picture, scene.clock)
    if picture.flags:
        shown = picture.flags[:_MOST_LINES]
        hidden = len(picture.flags) - len(shown) + picture.hidden_flags
        yield "<table><thead><tr><th>When</th><th></th><th>Line of the log</th></tr></thead><tbody>"
        for flag in shown:
            yield _row((scene.clock.exact(flag.time), "n t"), (flag.severity, "t"), (flag.text or flag.kind, "mono"))
        yield "</tbody></table>"
        if hidden:
            yield f'<p class="note">and {hidden:,} more lines</p>'


def _legend(keys: Iterable[tuple[str, str]]) -> str:
    marks = "".join(
        '<span><svg viewBox="0 0 13 13" aria-hidden="true">'
        f'<rect class="key {name}" width="13" height="13"/></svg>{_safe(told)}</span>'
        for name, told in keys
    )
    return f'<div class="legend">{marks}</div>'


def _flames(scene: Scene, compared: Compared | None) -> Iterator[str]:
    if compared is None:
        return
    where = f"core {compared.core}" if compared.core is not None else "all cores"
    yield f"<h2>What {where} did in that time</h2>"
    kinds = [("kernel", "kernel"), ("user", "user space"), ("python", "Python"), ("jit", "made at run time"), ("idle", "idle")]
    seen = {one.node.kind for one in walk(compared.root)}
    yield _legend([(f"f-{name}", told) for name, told in kinds if name in seen])
    yield flame(compared, by_change=False)
    yield (
        f'<p class="note">{compared.root.value:,} samples of {where}. A click zooms, one on the top frame goes back.'
        f"{_safe(left_out(compared))}</p>"
    )
    if compared.before is None:
        yield '<p class="note">There is no quiet time with stack samples of it to compare with.</p>'
        return
    start, end = compared.before
    when = f"{scene.clock.exact(start)} to {scene.clock.exact(end)}"
    yield f"<h3>The same, against a quiet time: {_safe(when)}</h3>"
    yield _legend(
        [("more4", "much more than then"), ("more2", "more"), ("same", "as then"), ("less2", "less"), ("less4", "much less")]
    )
    yield flame(compared, by_change=True)
    yield f'<p class="note">{compared.root.base:,} samples in the quiet time. Shares of each are compared.</p>'


def _evidence(scene: Scene) -> Iterator[str]:
    chain = [link.finding for link in scene.verdict.chain]
    told = {id(finding) for finding in chain}
    others = [finding for finding in scene.report.findings if id(finding) not in told]
    if not chain and not others:
        return
    yield "<h2>Evidence</h2>"
    for link in scene.verdict.chain:
        yield from _finding(scene, link.finding, True, link.disproof)
    for finding in others:
        yield from _finding(scene, finding, False, "")


def _finding(scene: Scene, finding: Finding[Facts], unfolded: bool, disproof: str) -> Iterator[str]:
    opened = " open" if unfolded else ""
    yield f"<details{opened}><summary>{_safe(finding.kind)}: {_safe(finding.summary)}</summary>"
    if disproof:
        yield f'<p class="note">Would be disproved by: {_safe(disproof)}</p>'
    if finding.evidence:
        yield "<table><thead><tr><th>What</th><th>Value</th><th>Source</th></tr></thead><tbody>"
        for item in finding.evidence:
            yield _row((item.what, ""), (item.text, "n"), (item.source, "s"))
        yield "</tbody></table>"
    yield "</details>"


def _ruled_out(scene: Scene) -> Iterator[str]:
    for title, items in (("Ruled out", scene.ruled_out), ("Not judged", scene.verdict.unseen)):
        if items:
            yield f"<h2>{title}</h2><table><tbody>"
            yield from (_row((item.kind, "t"), (item.because, "")) for item in items)
            yield "</tbody></table>"


def _others(scene: Scene) -> Iterator[str]:
    further = sentences.further(scene.report)
    if not scene.alike and not scene.others and not further:
        return
    yield "<h2>Other incidents in the recording</h2><ul>"
    if scene.alike:
        yield f"<li>{len(scene.alike)} more like this: {_safe(_times(scene, scene.alike))}</li>"
    yield from (f"<li>{_safe(_group(scene, group))}</li>" for group in scene.others)
    if further:
        yield f"<li>{_safe(f'{further}: {_times(scene, tuple(start for start, _ in scene.report.further))}')}</li>"
    yield "</ul>"


def _group(scene: Scene, group: Group) -> str:
    return f"{len(group.starts)} × {group.summary} at {_times(scene, group.starts)}"


def _times(scene: Scene, starts: tuple[int, ...]) -> str:
    more = f" and {len(starts) - _MOST_TIMES} more" if len(starts) > _MOST_TIMES else ""
    return ", ".join(scene.clock.short(start) for start in starts[:_MOST_TIMES]) + more


def _closing(scene: Scene, commands: tuple[str, ...]) -> Iterator[str]:
    if commands:
        yield "<h2>Look for yourself</h2>"
        yield "<pre>" + "\n".join(_safe(command) for command in commands) + "</pre>"
    if scene.report.sources:
        seen = sentences.seen_with(scene.report.sources, scene.imported)
        yield f'<h2>Sources</h2><p class="note">Seen with {_safe(seen)}</p><table><tbody>'
        for source in scene.report.sources:
            yield _row((source.name, "t"), (source.state, ""), (source.reason, "s"))
        yield "</tbody></table>"
    yield (
        f'<p class="note">exhume {_safe(__version__)}, recording {_safe(scene.report.start)} to {_safe(scene.report.end)}, '
        f"boot {_safe(scene.report.node.boot_id)}</p>"
    )


def _row(*cells: tuple[str, str]) -> str:
    """A row of a table from texts and their classes."""
    return "<tr>" + "".join(f'<td class="{kind}">{_safe(text)}</td>' for text, kind in cells) + "</tr>"


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST))
