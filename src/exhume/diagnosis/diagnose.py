"""A recording as a whole: the incidents in it, each with its verdict, and the verdict on the worst of them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol

from exhume.diagnosis.findings.model import Examined, Facts, Finding
from exhume.diagnosis.findings.registry import PAINS, SYMPTOMS, examine
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge, judge_examined
from exhume.diagnosis.report import Health, Incident, Report, wall
from exhume.host.quantities import SECOND
from exhume.recording.part import part
from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES

# What is further apart than this is another incident.
APART: Final = 60 * SECOND
# What is looked at before an incident and after it: a driver takes seconds to give up, and a minute to come back.
BEFORE, AFTER = 60 * SECOND, 30 * SECOND
# A recording up to this long is judged at once; of a longer one, parts are looked through for what hurt.
AT_ONCE: Final = 15 * 60 * SECOND
PIECE: Final = 10 * 60 * SECOND
# Incidents that are judged each by itself, the longest and the last; of further ones only when they were is told.
MOST: Final = 12
MOST_FURTHER: Final = 500
# How far back counts of groups are of use: what leaks does so for days.
HISTORY: Final = 6 * 3600 * SECOND
_HISTORIES: Final = ("memcg", "memcg_walk", "cgroup_dirs", "units")
_SAMPLED: Final = ("samples", "stacks", "frames", "threads", "summary")
_HEALTH: Final[tuple[Health, ...]] = ("healthy", "unknown", "warning", "critical")

Times = tuple[int, int]


class Folder(Protocol):
    """A recording on disk."""

    @property
    def window(self) -> tuple[int, int]: ...
    def load(self, start: int | None = None, end: int | None = None, tables: Iterable[str] | None = None) -> Recording: ...


def diagnose(recording: Recording, thresholds: Thresholds) -> Report:
    """Of what is in memory."""
    window = recording.window
    thresholds = _current(thresholds, window)
    examined = examine(recording, thresholds)

    def judged_around(at: Times) -> Report:
        if _covers(at, window):
            return judge_examined(recording, examined)
        return judge(part(recording, at[0] - BEFORE, at[1] + AFTER), thresholds)

    judged, further = _judged(_incidents(examined, window), judged_around)
    return _with_further(_report(judged, recording) or judge_examined(recording, examined), further, recording)


def diagnose_folder(
    folder: Folder,
    thresholds: Thresholds,
    start: int | None = None,
    end: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Report:
    """Of what is on disk: memory grows with an incident and not with the recording."""
    first, last = folder.window
    start, end = first if start is None else max(first, start), last + 1 if end is None else min(last + 1, end)
    if end - start <= AT_ONCE:
        return diagnose(_with_history(folder, start, end), thresholds)
    times: list[Times] = []
    tables = [name for name in TABLES if name not in _SAMPLED]
    for at in range(start, end, PIECE):
        if progress is not None:
            progress((at - start) / (end - start))
        piece = folder.load(at, min(end, at + PIECE), tables)
        times += _incidents(examine(piece, _current(thresholds, piece.window)), piece.window)
    latest = max(start, end - PIECE)

    def judged_around(at: Times) -> Report:
        return judge(_with_history(folder, max(first, at[0] - BEFORE), at[1] + AFTER), thresholds)

    judged, further = _judged(_merged(times), judged_around)
    clock = folder.load(start, end, ("anchors",))
    report = _report(judged, clock) or judge(_with_history(folder, latest, end), thresholds)
    return _with_further(replace(report, start=wall(clock, start)), further, clock)


def _with_history(folder: Folder, start: int, end: int) -> Recording:
    """A window, and what was counted before it. What the kernel's log still had when the recording began is part of it."""
    first = folder.window[0]
    if start <= first:
        return folder.load(None, end)
    recording, history = folder.load(start, end), folder.load(max(first, start - HISTORY), start, _HISTORIES)
    for name in _HISTORIES:
        table = history[name]
        table.extend(recording[name])
        recording.tables[name] = table
    if not len(recording["anchors"]):  # nothing was recorded in this window
        recording.take_over(folder.load(None, end, ("anchors",)), "anchors")
    return recording


def _current(thresholds: Thresholds, window: Times) -> Thresholds:
    """Events of the window are current, however long it is; those that the kernel's log still had from before are history."""
    return replace(thresholds, recent_s=(window[1] - window[0] + APART) // SECOND)


def _incidents(examined: Sequence[Examined], window: Times) -> list[Times]:
    """When the node suffered: by its symptoms; and by what hurt it at other times."""
    findings = [finding for one in examined for finding in one.findings if finding.severity != "info"]
    suffered = _merged(times for finding in findings if finding.kind in SYMPTOMS for times in _times(finding, window))
    hurt = _merged(times for finding in findings if finding.kind in PAINS for times in _times(finding, window))
    return _merged([*suffered, *(times for times in hurt if not any(_together(times, other) for other in suffered))], 0)


def _times(finding: Finding[Facts], window: Times) -> Iterable[Times]:
    """Not before the recording began: what the kernel's log still had of earlier days is told, but nothing else is known."""
    spans = [(span.start, span.end) for span in finding.spans] or [(finding.start, finding.end)]
    first, last = window
    return [(max(first, start), min(last, end)) for start, end in spans if end >= first and start <= last]


def _together(one: Times, other: Times) -> bool:
    return one[0] <= other[1] + APART and other[0] <= one[1] + APART


def _merged(times: Iterable[Times], apart: int = APART) -> list[Times]:
    found: list[Times] = []
    for start, end in sorted(times):
        if found and start <= found[-1][1] + apart:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def _covers(times: Times, window: Times) -> bool:
    return times[0] - BEFORE <= window[0] and times[1] + AFTER >= window[1]


def _judged(times: list[Times], judged: Callable[[Times], Report]) -> tuple[list[tuple[Times, Report]], list[Times]]:
    """The longest and the last, which are asked for most; and the times of the others."""
    longest = sorted(times[:-1], key=lambda one: one[0] - one[1])
    chosen = sorted([*times[-1:], *longest[: MOST - 1]])
    return [(at, judged(at)) for at in chosen], longest[MOST - 1 :]


def _with_further(report: Report, further: list[Times], recording: Recording) -> Report:
    told = tuple(sorted(further[:MOST_FURTHER]))
    times = report.times | {moment: wall(recording, moment) for at in told for moment in at}
    return replace(report, times=times, further=told, more=len(further) - len(told))


def _report(judged: list[tuple[Times, Report]], recording: Recording) -> Report | None:
    """With the verdict on the worst of them, the last of those; None if they are well, seen by themselves."""
    sick = [(at, report) for at, report in judged if report.health in ("warning", "critical")]
    if not sick:
        return None
    incidents = tuple(Incident(*at, report.health, report.verdict, report.findings) for at, report in sick)
    _, worst = max(sick, key=lambda one: (_HEALTH.index(one[1].health), one[1].verdict.cause is not None, one[0][1]))
    times = {moment: text for _, report in sick for moment, text in report.times.items()}
    times |= {moment: wall(recording, moment) for at, _ in sick for moment in at}
    start, end = (wall(recording, moment) for moment in recording.window)
    return replace(worst, start=start, end=end, times=times, incidents=incidents)
