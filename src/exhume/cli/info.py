"""exhume info: what is in a recording."""

import argparse
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exhume.cli import filters, moments, opening
from exhume.cli.complaints import chosen, complaints
from exhume.host.quantities import SECOND, count, counted, duration, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exhume.cli.terminal import Style
    from exhume.recording.choice import Choice
    from exhume.recording.folder import Folder
    from exhume.recording.recording import Node, Recording
    from exhume.recording.source_state import SourceRow
    from exhume.recording.summary import Summary

DESCRIPTION = """\
Says what is in a recording: whose it is, from when to when, how many samples at what rate, what was lost or is damaged,
which sources were on, what it takes on disk and what the recorder itself cost. Works while it is being written, too."""
EPILOG = """\
examples:
  exhume info /var/lib/exhume/recording
  exhume info REC --json | jq .samples
  exhume info REC --from -10m               the same of its last ten minutes
  exhume info REC --comm kubelet            how many samples of it there are
  exhume info perf.data                     of what exhume import takes

exit code: 0 done, 3 could not (nothing there, not readable), 64 wrong usage"""

SCHEMA = "exhume.info/1"
_LEFT = 11
# Counters are read at both ends of the recording only: hours of all of them would take longer than the question is worth.
_END_NS = 90 * SECOND
_MOST_GAPS = 5
# Events are told of the last day, and no more than that of them.
_EVENTS_NS = 86_400 * SECOND
_MOST_EVENTS = 8


@dataclass(frozen=True, slots=True)
class Info:
    """The answer as data."""

    path: str
    node: "Node"
    about: dict[str, Any]
    start_real: int
    end_real: int
    lasts_ns: int
    open: bool
    written: bool
    """A recorder has it open now; otherwise what is open was cut off."""
    lasting: bool
    """It stays: not a file that was imported to be looked at once."""
    gaps: tuple[tuple[int, int], ...]
    """Wall-clock begin and end of the times when no recorder wrote."""
    covered_ns: int
    samples: int
    chosen: tuple[str, ...]
    """The filters that were given: samples, cores and rows are those that they let through."""
    idle_ratio: float | None
    """None where it is not known, and of samples of some threads."""
    lost: int | None
    cores: tuple[int, ...]
    tables: dict[str, int]
    size_bytes: int
    segments: int
    pinned: tuple[tuple[int, int, str], ...]
    """Wall-clock begin and end, and why."""
    boots: tuple[str, ...]
    sources: "tuple[SourceRow, ...]"
    own_cpu_ratio: float | None
    """Of one core."""
    own_rss_bytes: int | None
    notes: tuple[str, ...]
    events: tuple[tuple[int, str], ...]
    """The last ones: wall clock, and what happened."""

    @property
    def samples_per_second(self) -> float:
        return self.samples * SECOND / self.covered_ns if self.covered_ns > 0 else 0.0

    @property
    def bytes_per_sample(self) -> float | None:
        return self.size_bytes / self.samples if self.samples and self.lasting else None


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    opening.arguments(parser)
    filters.arguments(parser)
    parser.add_argument("--json", action="store_true", help=f"print as JSON (schema {SCHEMA})")


def run(args: argparse.Namespace) -> int:
    folder = opening.folder(args)
    info = gather(folder, args.recording, moments.window(args, folder), filters.choice(args), filters.asked(args))
    if args.json:
        import json

        sys.stdout.write(json.dumps(as_json(info), indent=1) + "\n")
        return 0
    from exhume.cli.terminal import Style, width

    sys.stdout.write(render(info, Style(sys.stdout), width(sys.stdout)))
    return 0


def _idle(folder: "Folder", summary: "Summary", lasts_ns: int, idle: int, busy: int) -> float | None:
    """A core that is asleep may give no samples at all: those that it would have are idle ones. None where that is not known.

    Of an import it is known of a clock that sampled whatever ran; if the file does not say so, an idle task that it met does.
    """
    hz = folder.about.get("hz")
    cores = set(summary.core.tolist())
    expected = hz * len(cores) * lasts_ns // 10**9 if isinstance(hz, int) else 0
    everything = folder.about.get("every_core", idle > 0) if "imported" in folder.about else True
    if not idle + busy or not everything or ("imported" in folder.about and (not expected or -1 in cores)):
        return None
    return 1 - busy / max(idle + busy, expected)


def gather(
    folder: "Folder",
    path: str,
    window: moments.Window | None = None,
    choice: "Choice | None" = None,
    asked: "Sequence[str]" = (),
) -> Info:
    """Of a window as far as that can be said: what it takes on disk, segments and damage are of the whole recording. `asked` is
    how the choice is typed."""
    from exhume.recording.choice import ALL
    from exhume.recording.schema import TABLES

    choice = choice or ALL
    part = window if window is not None and not window.whole else None
    start, end = folder.window if part is None else (part.start, part.end)
    summary = _summary(folder, part, choice)
    idle, busy = int(summary.idle.sum()), sum(int(column.sum()) for column in summary[3:7])
    tables = {name: rows for name in TABLES if (rows := _rows(folder, name, part, choice))}
    samples = tables.get("samples", 0)
    # The summary is read first: of one that is being written there may only be more since. It has whole seconds.
    missing = idle + busy - samples if part is None and choice == ALL else 0
    gaps = folder.gaps(start, end) if "imported" not in folder.about else []  # a log may be quiet for hours
    covered = folder.covered(start, end)
    begun = gaps[-1][1] if gaps and gaps[-1][1] < end else start  # what it cost is told of the last run
    ends = [folder.load(begun, begun + _END_NS, ["counters"]), folder.load(end - _END_NS, end + 1, ["counters"])]
    return Info(
        path=path,
        node=folder.node,
        about=folder.about,
        start_real=folder.real_ns(start),
        end_real=folder.real_ns(end),
        lasts_ns=end - start,
        open=folder.path == path and any(not segment.sealed for segment in folder.segments),
        written=folder.path == path and folder.written,
        lasting=folder.path == path,
        gaps=tuple((folder.real_ns(first), folder.real_ns(last)) for first, last in gaps),
        covered_ns=covered,
        samples=samples,
        chosen=tuple(asked),
        idle_ratio=_idle(folder, summary, covered, idle, busy) if choice.idle and not choice.of_threads else None,
        lost=_last(ends, "samples_lost") if choice == ALL else None,
        cores=tuple(sorted(set(summary.core.tolist()))),
        tables=tables,
        size_bytes=size_on_disk(path),
        segments=len(folder.segments),
        pinned=tuple((folder.real_ns(one.start), folder.real_ns(one.end), one.pinned) for one in folder.segments if one.pinned),
        boots=tuple(folder.boots),
        sources=tuple(folder.load(tables=["sources"]).sources().values()),
        own_cpu_ratio=_own_cpu(ends),
        own_rss_bytes=_last(ends, "own_rss_bytes"),
        events=_events(folder, start, end),
        notes=(*folder.notes, *_missing(missing), *_rows_lost(ends[-1])),
    )


def _summary(folder: "Folder", window: moments.Window | None, choice: "Choice") -> "Summary":
    """What was chosen by core and second. Of some threads only where they ran: all other time is not theirs."""
    from exhume.recording import chosen as those
    from exhume.recording.summary import join, summarise

    def counted(start: int | None, end: int | None) -> "Summary":
        found = those.samples(folder, start, end, choice)
        return join([summarise(part["time"], part["core"], those.classes(chapter, part)) for chapter, part in found])

    if choice.of_threads or not choice.idle or choice.cores is not None:
        return counted(*_bounds(window))
    if window is None:
        return folder.summary()
    first, last = -(-window.start // SECOND) * SECOND, window.end // SECOND * SECOND
    if first >= last:
        return counted(window.start, window.end)
    # It has whole seconds: the window's first and last may be parts of one.
    edges = [counted(start, end) for start, end in ((window.start, first), (last, window.end)) if start < end]
    return join([folder.summary(first, last), *edges])


def _rows(folder: "Folder", table: str, window: moments.Window | None, choice: "Choice") -> int:
    from exhume.recording import chosen as those
    from exhume.recording.choice import ALL
    from exhume.recording.schema import TABLES

    column = TABLES[table].columns[0].name
    if choice == ALL and (window is None or column != "time"):
        return folder.count(table)
    return sum(len(part[column]) for part in those.rows(folder, table, *_bounds(window), choice))


def _bounds(window: moments.Window | None) -> tuple[int | None, int | None]:
    return (window.start, window.end) if window is not None else (None, None)


def _events(folder: "Folder", start: int, end: int) -> tuple[tuple[int, str], ...]:
    found = chosen(complaints(folder, max(start, end - _EVENTS_NS), end + 1), _MOST_EVENTS)
    return tuple((folder.real_ns(one.time), one.message) for one in found)


def _missing(samples: int) -> list[str]:
    return [f"{counted(samples, 'sample')} that the summary counts cannot be read"] if samples > 0 else []


def _rows_lost(end: "Recording") -> list[str]:
    """What the recorder could not write, by why (recorder/recorder.py)."""
    lost = {dict(at).get("reason", "not known"): series.last for at, series in end.counters("rows_lost").items()}
    return [f"{rows:,} rows could not be written: {reason}" for reason, rows in lost.items() if rows]


def _last(ends: "list[Recording]", name: str) -> int | None:
    """The last value of a counter, the sum over its labels."""
    for end in reversed(ends):
        if series := end.counters(name):
            return sum(one.last for one in series.values())
    return None


def _own_cpu(ends: "list[Recording]") -> float | None:
    """CPU time between the first and the last reading, by the time between them."""
    found = [series for end in ends if (series := end.counter("own_cpu_ns")) is not None]
    if not found:
        return None
    spent = int(found[-1].values[-1] - found[0].values[0])
    passed = int(found[-1].times[-1] - found[0].times[0])
    return spent / passed if passed > 0 and spent >= 0 else None


def size_on_disk(path: str) -> int:
    """Bytes of all files below. What goes away meanwhile (a segment that is sealed or let go) counts nothing."""
    found = os.lstat(path).st_size if os.path.isfile(path) else 0
    for directory, _, names in os.walk(path):
        for name in names:
            try:
                found += os.lstat(os.path.join(directory, name)).st_size
            except OSError:
                continue
    return found


def render(info: Info, style: "Style", columns: int) -> str:
    """One screen: a label, and what there is to say."""
    from exhume.cli.terminal import wrap

    lines = [style(_safe(info.path), "bold") + style(_state(info), "dim"), ""]
    for label, text in _told(info):
        head, *tail = wrap(_safe(text), "", "", columns - _LEFT - 2)
        lines.append("  " + style(f"{label:<{_LEFT}}", "bold") + head)
        lines += [" " * (_LEFT + 2) + line for line in tail]
    return "\n".join(lines) + "\n"


def _state(info: Info) -> str:
    if info.written:
        return "  being written"
    return "  cut off: its recorder was killed; the next one goes on from here" if info.open else ""


def _told(info: Info) -> "list[tuple[str, str]]":

    node = info.node
    known = [f"Linux {node.kernel}"] if node.kernel else []  # a file of another tool may say less than a recorder knows
    known += [f"{counted(node.cpus, 'CPU')}"] if node.cpus else []
    known += [f"cgroups {node.cgroups}"] if node.cgroups != "none" else []
    told = [("Node", ", ".join([node.hostname, *known]))]
    if "imported" in info.about:
        told.append(("From", f"{info.about['imported']} ({info.about.get('format')}), clock: {info.about.get('clock')}"))
    same_day = moments.wall(info.start_real, "%F") == moments.wall(info.end_real, "%F")
    until = moments.wall(info.end_real, "%H:%M:%S %Z" if same_day else "%Y-%m-%d %H:%M:%S %Z").rstrip()
    told.append(("Time", f"{moments.wall(info.start_real, '%Y-%m-%d %H:%M:%S')} to {until}, {duration(info.lasts_ns)}"))
    for i, (begin, end) in enumerate(info.gaps[:_MOST_GAPS]):
        span = f"{moments.wall(begin, '%H:%M:%S')} to {moments.wall(end, '%H:%M:%S')}, {duration(end - begin)}"
        more = f", and {len(info.gaps) - _MOST_GAPS:,} more" if i == _MOST_GAPS - 1 and len(info.gaps) > _MOST_GAPS else ""
        told.append(("" if i else "Gaps", f"{span}: nobody recorded{more}"))
    if len(info.boots) > 1:
        told.append(("Boots", f"{len(info.boots)}: this is {info.node.boot_id}; --boot -1 is the one before the last"))
    told.append(("Samples", _samples(info)))
    if info.cores:
        told.append(("Cores", f"{len(info.cores)} seen: {ranges(info.cores)}" if info.cores != (-1,) else "not told"))
    per_sample = f", {count(info.bytes_per_sample)} bytes a sample, everything included" if info.bytes_per_sample else ""
    if per_sample and info.open and info.segments == 1:
        per_sample = ", not sealed yet: it will take a tenth of that"
    segments = counted(info.segments, "segment")
    if info.lasting:
        told.append(("Disk", f"{size(info.size_bytes)} in {segments}{per_sample}"))
    told.append(("Tables", ", ".join(f"{name} {rows:,}" for name, rows in info.tables.items()) or "no rows"))
    if own := _own(info):
        told.append(("Own cost", own))
    told += _sources(info)
    for i, (time, message) in enumerate(info.events):
        told.append(("" if i else "Events", f"{moments.clock(time)}  {message[:200]}"))
    if len(info.events) == _MOST_EVENTS:
        told.append(("", "the last, critical ones first; all of them: exhume export RECORDING --format csv --table events"))
    for i, (begin, end, why) in enumerate(info.pinned):
        span = f"{moments.wall(begin, '%H:%M:%S')} to {moments.wall(end, '%H:%M:%S')}"
        told.append(("" if i else "Pinned", f"{span}  {why}"))
    told += [("" if i else "Damage", note) for i, note in enumerate(info.notes)]
    return told


def _samples(info: Info) -> str:
    let_through = f" that {', '.join(info.chosen)} let{'s' * (len(info.chosen) == 1)} through" if info.chosen else ""
    if not info.samples:
        return "none" + let_through
    parts = [f"{info.samples:,}{let_through}, {info.samples_per_second:,.0f} a second"]
    if info.idle_ratio is not None:
        parts.append(f"cores idle {info.idle_ratio:.0%} of the time")
    if info.lost is not None:
        parts.append(f"{info.lost:,} lost")
    event, hz = info.about.get("event"), info.about.get("hz")
    if event and hz:
        parts.append(f"by {event} at {hz} Hz")
    if info.about.get("kernel_only"):
        parts.append("kernel frames only")
    return ", ".join(parts)


def _own(info: Info) -> str:

    parts = [] if info.own_cpu_ratio is None else [f"{info.own_cpu_ratio:.2%} of one core"]
    return ", ".join([*parts, *([] if info.own_rss_bytes is None else [f"{size(info.own_rss_bytes)} of memory"])])


def _sources(info: Info) -> "list[tuple[str, str]]":
    if not info.sources:
        return []
    on = [source.name for source in info.sources if source.state.up]
    told = [("Sources", f"{len(on)} of {len(info.sources)} on: {', '.join(on)}" if on else "none on")]
    for word, state in (("off", "off"), ("in part", "partial")):
        those = [source for source in info.sources if source.state.state == state]
        told += [("", f"{word}: {source.name}, {source.state.reason or 'it did not say why'}") for source in those]
    return told


def ranges(cores: "tuple[int, ...]") -> str:
    """(0, 1, 2, 8) as 0-2,8."""
    runs: list[list[int]] = []
    for core in cores:
        if runs and runs[-1][1] == core - 1:
            runs[-1][1] = core
        else:
            runs.append([core, core])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _safe(text: str) -> str:
    from exhume.text import printable

    return printable(text, 600)


def as_json(info: Info) -> dict[str, Any]:
    from exhume.recording.source_state import as_json as state_json

    return {
        "schema": SCHEMA,
        "path": info.path,
        "node": {
            "hostname": info.node.hostname,
            "boot_id": info.node.boot_id,
            "kernel": info.node.kernel,
            "cgroups": info.node.cgroups,
            "cpus": info.node.cpus,
        },
        "about": info.about,
        "window": {"start": moments.rfc3339(info.start_real), "end": moments.rfc3339(info.end_real)},
        "lasts_s": round(info.lasts_ns / SECOND, 3),
        "open": info.open,
        "written": info.written,
        "gaps": [{"start": moments.rfc3339(a), "end": moments.rfc3339(b)} for a, b in info.gaps],
        "covered_s": round(info.covered_ns / SECOND, 3),
        "samples": {
            "count": info.samples,
            "per_second": round(info.samples_per_second, 1),
            "idle_ratio": None if info.idle_ratio is None else round(info.idle_ratio, 4),
            "lost": info.lost,
            "chosen": list(info.chosen),
        },
        "cores": list(info.cores),
        "tables": info.tables,
        "size_bytes": info.size_bytes,
        "bytes_per_sample": None if info.bytes_per_sample is None else round(info.bytes_per_sample, 2),
        "segments": info.segments,
        "pinned": [{"start": moments.rfc3339(a), "end": moments.rfc3339(b), "why": why} for a, b, why in info.pinned],
        "boots": list(info.boots),
        "sources": [{"name": source.name} | state_json(source.state) for source in info.sources],
        "own": {
            "cpu_ratio": None if info.own_cpu_ratio is None else round(info.own_cpu_ratio, 5),
            "rss_bytes": info.own_rss_bytes,
        },
        "events": [{"time": moments.rfc3339(time), "message": message} for time, message in info.events],
        "notes": list(info.notes),
    }
