"""What a report shows: the verdict on one incident, the window around it, and how its times are told.

Every rendering (terminal, HTML, Markdown) starts from a scene, so that none of them reads a recording in its own way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.report import Health, Incident, Report, RuledOut, Verdict, wall
from exhume.recording.recording import Recording

BEFORE_NS, AFTER_NS = 20_000_000_000, 10_000_000_000
# Less is too small a window to see anything beside the incident in.
_LEAST_NS = 10_000_000_000
# More is too much to draw, and to read.
_LONGEST_NS = 600_000_000_000
_QUIET_NS = 60_000_000_000
TABLES = ("anchors", "cpu", "memcg", "events", "units", "latency")
"""What pictures are drawn from; and, where no counters of the cores were kept, stack samples."""
SAMPLED = ("samples", "stacks", "frames", "threads")


@dataclass(frozen=True, slots=True)
class Clock:
    """How moments on the recording's clock are told."""

    short: Callable[[int], str]
    """`12:04:31`."""
    exact: Callable[[int], str]
    """`12:04:31.500`."""
    dated: Callable[[int], str]
    """`2026-01-31 12:04:31.500`."""
    """How long, as people say it."""
    zone: str
    typed: Callable[[int], str]
    """As it can be typed anywhere: RFC 3339."""


class Group(NamedTuple):
    """Incidents with the same cause and subject."""

    cause: str | None
    subject: str
    summary: str
    starts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Scene:
    report: Report
    recording: Recording
    focus: tuple[int, int]
    """The incident itself."""
    window: tuple[int, int]
    """With what was before and after it."""
    clock: Clock
    name: str
    """The recording, as it was named."""
    sampled: bool = False
    """Whether the recording has stack samples."""
    others: tuple[Group, ...] = ()
    alike: tuple[int, ...] = ()
    """When else the same happened."""
    imported: str = ""
    """The formats of the files of other tools that it was made from."""
    pseudonyms: bool = False
    """Whether the names in it are not the node's."""
    elsewhere: bool = False
    """Whether it is of another node, or of another boot of this one: commands are meant for that one."""
    bars: Mapping[str, str] = field(default_factory=dict)
    """By kind, from when on it would have been found: told beside the number that rules it out."""
    gaps: tuple[tuple[int, int], ...] = ()
    """When inside of the window nothing was recorded."""

    @property
    def verdict(self) -> Verdict:
        return self.report.verdict

    @property
    def health(self) -> Health:
        return self.report.health

    @property
    def chain(self) -> tuple[Finding[Facts], ...]:
        return tuple(link.finding for link in self.verdict.chain)

    @property
    def story(self) -> tuple[Finding[Facts], ...]:
        """The findings of the chain first, then the others that are more than information."""
        chain = [link.finding for link in self.verdict.chain]
        others = [finding for finding in self.report.findings if finding.severity != "info"]
        return tuple(_once([*chain, *others]))

    @property
    def ruled_out(self) -> tuple[RuledOut, ...]:
        out = self.verdict.ruled_out
        return tuple(
            RuledOut(one.kind, f"{one.because}; {self.bars[one.kind]}") if one.kind in self.bars else one for one in out
        )

    @property
    def core(self) -> int | None:
        """The core that it is about, if it is about one."""
        for finding in self.story:
            core = finding.facts.focus_core
            if core is not None and core >= 0:
                return core
            named = [span.core for span in finding.spans if span.core >= 0]
            if named:
                return named[0]
        return None


def told(report: Report, at: int | None = None, last: bool = False) -> Incident | None:
    """The incident that was asked for: the one at or nearest to a moment, the last, or the one whose verdict the report has."""
    if at is not None and report.incidents:
        return min(report.incidents, key=lambda one: (max(one.start - at, at - one.end, 0), -one.start))
    if last and report.incidents:
        return report.incidents[-1]
    return next((one for one in reversed(report.incidents) if one.verdict is report.verdict), None)


def focus_of(report: Report, whole: tuple[int, int], incident: Incident | None) -> tuple[int, int]:
    """When it was. `whole` is what was judged; of what is hours long without an incident, the end."""
    if incident is not None:
        return max(whole[0], incident.start), max(whole[0], incident.start + 1, min(whole[1], incident.end))
    return _hurt(report, (max(whole[0], whole[1] - _LONGEST_NS), whole[1]))


def wanted(focus: tuple[int, int], whole: tuple[int, int]) -> tuple[int, int]:
    """What has to be read for the pictures: the window around it, and time enough to find a quiet one in."""
    before = max(_QUIET_NS, min(_LONGEST_NS, 2 * (focus[1] - focus[0])))
    return max(whole[0], focus[0] - before), min(whole[1], focus[1] + _QUIET_NS // 2)


def scene(
    report: Report,
    recording: Recording,
    focus: tuple[int, int],
    whole: tuple[int, int],
    clock: Clock,
    name: str,
    incident: Incident | None = None,
    sampled: bool = False,
) -> Scene:
    """Of one incident, or of all of it where there is none. `recording` holds what is `wanted`."""
    start, end = max(whole[0], focus[0] - BEFORE_NS), min(whole[1], focus[1] + AFTER_NS)
    if end - start < _LEAST_NS:
        start, end = max(whole[0], end - _LEAST_NS), min(whole[1], max(end, start + _LEAST_NS))
    if incident is not None:
        report = _about(report, incident, recording)
    alike, others = _grouped(report, incident)
    return Scene(report, recording, focus, (start, max(end, start + 1)), clock, name, sampled, others, alike)


def _about(report: Report, incident: Incident, recording: Recording) -> Report:
    """The report as if nothing else had happened; what else did stays among its incidents."""
    findings = tuple(_once([*(link.finding for link in incident.verdict.chain), *incident.findings]))
    moments = {time for finding in findings for time in (finding.start, finding.end)} - report.times.keys()
    times = report.times | {time: wall(recording, time) for time in moments}
    return replace(report, verdict=incident.verdict, health=incident.health, findings=findings, times=times)


def _hurt(report: Report, whole: tuple[int, int]) -> tuple[int, int]:
    """When the node suffered: the symptoms of the chain, not the years of their cause."""
    spans = [
        (span.start, span.end)
        for link in report.verdict.chain
        for span in link.finding.spans
        if span.start < whole[1] and span.end > whole[0]
    ]
    if not spans:
        return whole
    return max(whole[0], min(start for start, _ in spans)), min(whole[1], max(end for _, end in spans))


def _grouped(report: Report, told: Incident | None) -> tuple[tuple[int, ...], tuple[Group, ...]]:
    groups: dict[tuple[str | None, str], list[Incident]] = {}
    for incident in report.incidents:
        if incident is not told:
            groups.setdefault((incident.verdict.cause, incident.verdict.subject), []).append(incident)
    mine = (told.verdict.cause, told.verdict.subject) if told is not None else None
    alike = tuple(incident.start for incident in groups.pop(mine, [])) if mine is not None else ()
    others = [
        Group(cause, subject, found[0].verdict.summary, tuple(incident.start for incident in found))
        for (cause, subject), found in groups.items()
    ]
    return alike, tuple(sorted(others, key=lambda group: (-len(group.starts), group.starts)))


def _once(findings: Sequence[Finding[Facts]]) -> list[Finding[Facts]]:
    return list({id(finding): finding for finding in findings}.values())
