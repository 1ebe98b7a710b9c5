"""A diagnosis as people read it in a terminal: the sentence, the chain as a picture, the time it happened in, the evidence,
what was ruled out, what to do. Two screens at most; -v has all of it."""

from dataclasses import dataclass

from exhume.cli.diagnose_commands import commands
from exhume.cli.report_text import MOST_RIVALS, RIVALS, headline, labelled, rivals, safe
from exhume.cli.terminal import Style, wrap
from exhume.diagnosis.findings.kind import COSTS
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.host.quantities import duration
from exhume.render import sentences, timeline_text
from exhume.render.scene import Scene
from exhume.render.timeline import timeline
from exhume.text import printable

MOST_LINES = 50
_LEFT = 11
_MOST_TIMES = 6
_MOST_TENANTS = 4


@dataclass(frozen=True, slots=True)
class _Room:
    """How much of each part is told: less, where all together would not fit two screens. What to do and what not to do is told
    in full whatever the room: half a sentence of it may be the wrong thing to do."""

    rivals: int
    switches: int
    against: int
    others: int
    wrapped: int
    """Lines that an item may take."""
    advice_reasons: bool = True
    reasons: bool = True


_ALL = _Room(99, 99, 99, 99, 99)
_ROOMS = (
    _Room(MOST_RIVALS, 3, 2, 3, 3),
    _Room(MOST_RIVALS, 3, 2, 2, 2),
    _Room(3, 3, 1, 1, 1),
    _Room(3, 2, 1, 1, 1, advice_reasons=False),
    _Room(2, 2, 1, 1, 1, advice_reasons=False, reasons=False),
)


def render(scene: Scene, style: Style, columns: int, verbose: bool = False, evidence: bool = False) -> str:
    if scene.health == "healthy" and not verbose:
        lines = headline(scene.report, style, columns)
        for i, finding in enumerate(sentences.others(scene.report)[:_MOST_TENANTS]):
            labelled("" if i else "Also", f"{finding.kind}: {safe(finding.summary)}", style, columns, lines)
        return "\n".join(lines) + "\n"
    if verbose or evidence:
        return "\n".join(_Page(scene, style, columns, _ALL, verbose, evidence).lines()) + "\n"
    for room in _ROOMS:
        lines = _Page(scene, style, columns, room).lines()
        if len(lines) <= MOST_LINES:
            break
    return "\n".join(lines) + "\n"


class _Page:
    """One rendering; collects lines."""

    def __init__(
        self, scene: Scene, style: Style, columns: int, room: _Room, verbose: bool = False, evidence: bool = False
    ) -> None:
        self._scene, self._style, self._columns, self._room = scene, style, columns, room
        self._verbose, self._evidence = verbose, evidence
        self._lines: list[str] = []

    def lines(self) -> list[str]:
        self._lines += headline(self._scene.report, self._style, self._columns)
        self._when()
        self._gap()
        self._chain()
        self._gap()
        self._timeline()
        self._gap()
        self._who()
        self._also()
        self._ruled_out()
        self._to_do()
        self._others()
        self._sources()
        self._look()
        return self._lines

    def _when(self) -> None:
        scene = self._scene
        start, end = scene.focus
        when = f"{scene.clock.dated(start)} to {scene.clock.exact(end)}"
        when += f"{scene.clock.zone and ' ' + scene.clock.zone} ({duration(end - start)})"
        parts = [safe(part) for part in sentences.node(scene.report.node, scene.imported)]
        for text in (when, " · ".join(parts)):
            self._dim(text, "  ", 1)
        if scene.pseudonyms:
            self._dim(sentences.PSEUDONYMS, "  ", 9)

    def _gap(self) -> None:
        if self._lines and self._lines[-1]:
            self._lines.append("")

    def _chain(self) -> None:
        chain = self._scene.verdict.chain
        told = [link.finding.facts.short() for link in chain]
        heads = [
            f"{'  ' * max(0, depth - 1)}{'└▶ ' if depth else ''}{printable(what, 60)}" for depth, (what, _) in enumerate(told)
        ]
        column = min(max((len(head) for head in heads), default=0) + 4, self._columns * 6 // 10)
        for depth, (link, head, (_, numbers)) in enumerate(zip(chain, heads, told, strict=True)):
            colour = {"critical": "red", "warning": "yellow", "info": "cyan"}[link.finding.severity]
            left = _clipped(f"  {head}", self._columns)
            padding = " " * max(2, column - len(left))
            room = self._columns - len(left) - len(padding)
            right = _clipped(safe(numbers), room) if room > 12 else ""
            self._lines.append((self._style(left, colour) + (padding + right if right else "")).rstrip())
            indent = "  " + "  " * max(0, depth - 1) + ("   " if depth else "")
            if link.because and self._room.reasons:
                sure = f" ({link.confidence:.0%})"
                most = 9 if self._verbose else 1
                reason = _at_most(safe(link.because), "", "", self._columns - len(indent) - len(sure), most)
                self._lines += [self._style(indent + line, "dim") for line in [*reason[:-1], reason[-1] + sure]]
            if self._verbose and link.disproof:
                self._dim(f"would be disproved by: {safe(link.disproof)}", indent, 9)
            if self._evidence:
                self._numbers(link.finding, indent)

    def _dim(self, text: str, indent: str, most: int) -> None:
        self._lines += [self._style(line, "dim") for line in _at_most(text, indent, indent, self._columns, most)]

    def _numbers(self, finding: Finding[Facts], indent: str) -> None:
        for item in finding.evidence:
            text = f"{item.what}: {safe(item.text)}  [{safe(item.source)}]"
            self._lines += [self._style(line, "dim") for line in wrap(text, indent + "  · ", indent + "    ", self._columns)]

    def _timeline(self) -> None:
        scene = self._scene
        room = timeline_text.room(self._columns)
        picture = timeline(scene.recording, *scene.window, scene.focus, scene.story, room, scene.gaps)
        self._lines += timeline_text.lines(picture, scene.clock, self._columns, self._style)

    def _who(self) -> None:
        scene, most = self._scene, 9 if self._verbose else 1
        who = sentences.who(scene.chain)
        if who:
            self._item("Who", safe(who), most=max(2, most))
        culprits = scene.verdict.culprits
        if len(culprits) > 1 or any(one.subject not in f"{scene.verdict.summary} {who}" for one in culprits):
            self._item(
                "Culprits" if len(culprits) > 1 else "Culprit", safe(sentences.culprits(scene.verdict)), most=max(3, most)
            )
        stack = next((finding.facts.focus_stack for finding in scene.chain if finding.facts.focus_stack), ())
        if stack:
            self._item("Stack", safe(" < ".join(stack)), most=most)
        line = next((finding.facts.focus_line for finding in scene.chain if finding.facts.focus_line), "")
        if line:
            self._item("Log", safe(line), most=most)

    def _also(self) -> None:
        chain = {id(link.finding) for link in self._scene.verdict.chain}
        others = [finding for finding in self._scene.report.findings if id(finding) not in chain]
        shown = others if self._verbose else [finding for finding in others if finding.severity != "info"][: self._room.others]
        for i, finding in enumerate(shown):
            self._item("" if i else "Also", f"{finding.kind}: {safe(finding.summary)}", most=self._room.wrapped)
            if self._evidence:
                self._numbers(finding, " " * (_LEFT + 2))

    def _ruled_out(self) -> None:
        verdict = self._scene.verdict
        first = rivals(self._scene.ruled_out)
        ordered = [*first, *(item for item in self._scene.ruled_out if self._verbose and item.kind not in RIVALS)]
        for i, item in enumerate(ordered[: self._room.rivals]):
            self._item("" if i else "Ruled out", f"{item.kind}: {safe(item.because)}", most=1 if not self._verbose else 9)
        if self._verbose:
            for i, item in enumerate(verdict.unseen):
                self._item("" if i else "Not judged", f"{item.kind}: {safe(item.because)}")
        for i, text in enumerate(verdict.against[: self._room.against]):
            self._item("" if i else "Against it", safe(text), most=self._room.wrapped)

    def _to_do(self) -> None:
        verdict = self._scene.verdict
        steps = [safe(text) for text in sentences.to_do(verdict)]
        if steps and self._scene.elsewhere:
            host = self._scene.report.node.hostname
            steps.insert(0, f"on {'the node itself' if host in ('', 'unknown') else safe(host)}:")
        for i, text in enumerate(steps):
            self._item("" if i else "Do now", text)
        for label, against in (("Then", False), ("Do not", True)):
            for i, one in enumerate(one for one in verdict.advice if one.against is against):
                because = f": {safe(one.because)}" if one.because and self._room.advice_reasons else ""
                cost = "" if against else f" [costs {COSTS[one.cost]}]"
                self._item("" if i else label, f"{safe(one.text)}{cost}{because}")
        for i, text in enumerate(verdict.switch_on[: self._room.switches]):
            self._item("" if i else "Switch on", safe(text), most=self._room.wrapped)

    def _others(self) -> None:
        scene = self._scene
        if scene.alike:
            self._item("Again", f"{len(scene.alike)} more like this: {self._times(scene.alike)}", most=1)
        for i, group in enumerate(scene.others[: self._room.others]):
            about = " ".join(part for part in (group.cause or "cause not visible:", safe(group.subject)) if part)
            text = f"{len(group.starts)} × {about} at {self._times(group.starts)}"
            self._item("" if i else "Others", text, most=1)
        if further := sentences.further(scene.report):
            self._item("And", f"{further}: {self._times(tuple(start for start, _ in scene.report.further))}", most=1)

    def _times(self, starts: tuple[int, ...]) -> str:
        shown = ", ".join(self._scene.clock.short(start) for start in starts[:_MOST_TIMES])
        return shown + (f" and {len(starts) - _MOST_TIMES} more" if len(starts) > _MOST_TIMES else "")

    def _sources(self) -> None:
        sources = self._scene.report.sources
        self._item("Seen with", safe(sentences.seen_with(sources, self._scene.imported)), most=self._room.wrapped)
        if self._verbose:
            on = [source.name + (f" ({source.reason})" if source.reason else "") for source in sources if source.state != "off"]
            self._item("", "; ".join(safe(name) for name in on))

    def _look(self) -> None:
        for i, command in enumerate(commands(self._scene)):
            self._item("" if i else "Look", command, whole=True)

    def _item(self, label: str, text: str, most: int = 99, whole: bool = False) -> None:
        """`whole`: not wrapped, because it is to be copied."""
        indent = " " * (_LEFT + 2)
        head, *tail = [indent + text] if whole else _at_most(text, indent, indent, self._columns, most)
        self._lines.append("  " + self._style(f"{label:<{_LEFT}}", "bold") + head[len(indent) :])
        self._lines += tail


def _clipped(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(0, room - 1)] + "…"


def _at_most(text: str, first: str, rest: str, columns: int, most: int) -> list[str]:
    """Wrapped, and cut after so many lines, which the last one shows."""
    lines = wrap(text, first, rest, columns)
    if len(lines) > most:
        lines = lines[:most]
        last = lines[-1]
        if len(last) > columns - 2:
            last = last[: columns - 2].rpartition(" ")[0] if " " in last[len(rest) : columns - 2] else last[: columns - 2]
        lines[-1] = last.rstrip(" ,;:(") + " …"
    return lines
