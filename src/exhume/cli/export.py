"""exhume export: a recording, or part of it, as a file for other tools."""

import argparse
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from exhume.cli import filters, moments, opening
from exhume.cli.output import Out, output
from exhume.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.cli.terminal import Progress
    from exhume.exports.subject import Subject
    from exhume.recording.folder import Folder
    from exhume.recording.recording import Recording
    from exhume.recording.tally import Tally

DESCRIPTION = """\
Writes a recording, or a window of it, for the tools that people have: folded stacks, pprof, speedscope, a Perfetto trace,
Firefox Profiler, or any table as CSV or Parquet. To stdout, or to a
file, which is there when it is whole and which only its owner can read."""
EPILOG = """\
examples:
  exhume export REC --format pprof -o cpu.pb.gz             go tool pprof -http :8080 cpu.pb.gz
  exhume export REC --format speedscope --at 12:04:31 --for 10s -o core.json
  exhume export REC --format perfetto --from -10m -o trace.pftrace
  exhume export REC --format firefox --comm kubelet -o kubelet.json
  exhume export REC --format csv --table counters | head
  exhume export perf.data --format folded | flamegraph.pl > flame.svg

times: 12:04:31.5 (local), RFC 3339, +90s from its begin, -30s from its end, 12345.678 as dmesg shows it.
Idle cores are in it, unless --no-idle. perfetto has counters and events of the window, too, whoever was chosen.

exit code: 0 done, 3 could not (nothing there, not readable, not writable), 64 wrong usage"""

FORMATS = ("folded", "pprof", "speedscope", "perfetto", "firefox", "csv", "parquet")
_BINARY = ("pprof", "perfetto", "parquet")
_TABLES = ("csv", "parquet")
_BYS = {"folded": ("process", "core", "thread", "cgroup", "none"), "speedscope": ("core", "process")}
# Above this the order of time would take gigabytes, and the page that is to open it, too.
MOST_IN_ORDER = 1_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    opening.arguments(parser)
    parser.add_argument("--format", required=True, choices=FORMATS, help="what to write")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to (stdout)")
    filters.arguments(parser)
    parser.add_argument("--table", metavar="NAME", help="csv and parquet: which table (samples)")
    parser.add_argument(
        "--by",
        choices=_BYS["folded"],
        help="folded: what comes before the stacks (process); speedscope: a profile for each (core)",
    )


def run(args: argparse.Namespace) -> int:
    _check(args)
    folder = opening.folder(args)
    window = moments.window(args, folder)
    if args.format in ("folded", "pprof", "speedscope", "firefox"):
        window = moments.of_samples(window, folder.sampled)
    from exhume.cli.terminal import Progress

    progress = Progress("exporting", shown=args.output is not None or not sys.stdout.isatty())  # not in the midst of data
    try:
        with output(args.output) as out:
            told = _WRITERS[args.format](args, folder, window, out, progress)
    finally:
        progress.clear()
    if args.output is not None:
        sys.stderr.write(f"{args.output}: {told}\n")
    if folder.notes:
        sys.stderr.write(f"exhume: the recording is not whole; exhume info {args.recording} says what is missing\n")
    return 0


def _check(args: argparse.Namespace) -> None:
    """What can be known to be wrong before anything is read."""
    from exhume.recording.schema import TABLES

    if args.format in _BINARY and args.output is None and sys.stdout.isatty():
        raise UsageError(f"{args.format} is not for a terminal: name a file with -o, or send it to one with > or |")
    if args.by is not None and args.by not in _BYS.get(args.format, ()):
        known = "; ".join(f"{name} has {', '.join(bys)}" for name, bys in _BYS.items())
        raise UsageError(f"--by {args.by} is nothing for {args.format}: {known}")
    if args.format not in _TABLES:
        if args.table is not None:
            raise UsageError(f"--table is for csv and parquet: {args.format} is made of the samples")
        return
    if args.table is not None and args.table not in TABLES:
        raise UsageError(f"there is no table {args.table!r}: there are {', '.join(TABLES)}")
    given = [name for name in filters.NAMES if getattr(args, name) is not None] + (["idle"] if args.no_idle else [])
    if any(getattr(args, name) is not None for name in ("at", "start", "end", "span_ns")):
        given.append("window")
    for name in given:
        if name not in table_filters(args.table or "samples"):
            option = {"idle": "--no-idle", "window": "a window (--from, --to, --at, --for)"}.get(name, f"--{name}")
            raise UsageError(f"{option} says nothing about the table {args.table}, which has no such column")


def table_filters(table: str) -> frozenset[str]:
    from exhume.recording.choice import filters as known

    return known(table)


def _subject(folder: "Folder", window: moments.Window) -> "Subject":
    from exhume.exports.subject import Subject

    hz, event = folder.about.get("hz"), folder.about.get("event")
    return Subject(
        folder.node,
        hz if isinstance(hz, int) and hz > 0 else 0,
        event if isinstance(event, str) else "",
        window.start,
        window.end,
        folder.real_ns(window.start),
    )


def _profile(args: argparse.Namespace, folder: "Folder", window: moments.Window) -> "tuple[Tally, Recording]":
    from exhume.render.flame import select

    tally, dictionaries = folder.profile(window.start, window.end, args.cpu)
    tally = select(tally, dictionaries, args.cpu, args.comm, args.pid, args.cgroup)
    if not len(tally.count):
        raise ExhumeError(filters.nothing(args, folder, window))
    return tally, dictionaries


def _folded(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.render.flame import plant
    from exhume.render.folded import folded

    progress(0.1)
    tally, dictionaries = _profile(args, folder, window)
    tree = plant(tally, dictionaries, args.by or "process", "none" if args.no_idle else "stack")
    if not tree.total:
        raise ExhumeError(filters.ALL_IDLE)
    for line in folded(tree.node()):
        out((line + "\n").encode())
    return f"{tree.total:,} samples"


def _pprof(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.exports import pprof

    progress(0.1)
    tally, dictionaries = _profile(args, folder, window)
    progress(0.5)
    parts: list[bytes] = []
    total = pprof.write(parts.append, tally, dictionaries, _subject(folder, window), not args.no_idle)
    if not total:
        raise ExhumeError(filters.ALL_IDLE)
    for part in parts:
        out(part)
    return f"{total:,} samples"


def _speedscope(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.exports import speedscope
    from exhume.recording.tally import Tally

    progress(0.1)
    tally, dictionaries = _profile(args, folder, window)
    many = int(tally.count.sum())
    order = "in order of time"
    if many <= MOST_IN_ORDER:
        import numpy as np

        from exhume.recording.chosen import loaded

        samples, dictionaries = loaded(folder, window.start, window.end, filters.choice(args))
        tally = Tally(samples["core"], samples["thread"], samples["stack"], np.ones(len(samples["time"]), dtype=np.int64))
    else:
        order = f"counted, not in order of time: there are more than {MOST_IN_ORDER:,}"
    if not len(tally.count):
        raise ExhumeError(filters.ALL_IDLE)
    progress(0.5)
    subject = _subject(folder, window)
    total = speedscope.write(out, tally, dictionaries, subject, args.by or "core", not args.no_idle)
    return f"{total:,} samples, {order}"


def _perfetto(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.exports import perfetto

    if args.comm or args.pid is not None or args.cgroup:  # a trace of counters alone is not what was asked for
        _profile(args, folder, window)
    written = perfetto.write(out, folder, _subject(folder, window), filters.choice(args), progress)
    return f"{written.samples:,} samples, {written.counters:,} values of counters, {written.events:,} events"


def _firefox(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.exports import firefox
    from exhume.recording.chosen import loaded

    progress(0.1)
    tally, _ = _profile(args, folder, window)
    many = int(tally.count.sum())
    if many > firefox.MOST:
        raise UsageError(
            f"{many:,} samples are more than the page opens, {firefox.MOST:,} at most: choose a window (--from, --to, --for), "
            "cores or processes; pprof and perfetto have no such limit"
        )
    samples, dictionaries = loaded(folder, window.start, window.end, filters.choice(args))
    if not len(samples["time"]):
        raise ExhumeError(filters.ALL_IDLE)
    progress(0.5)
    return f"{firefox.write(out, samples, dictionaries, _subject(folder, window)):,} samples"


def _table(args: argparse.Namespace, folder: "Folder", window: moments.Window, out: Out, progress: "Progress") -> str:
    from exhume.recording import table_files
    from exhume.recording.chosen import rows

    table = args.table or "samples"
    whole = max(1, window.end - window.start)
    # All of it is also what happened before it began: lines of the kernel that were there already.
    start, end = (None, None) if window.whole else (window.start, window.end)

    def pieces() -> "Iterator[dict[str, object]]":
        for part in rows(folder, table, start, end, filters.choice(args)):
            yield part
            if "time" in part:
                progress(min(1.0, max(0.0, (int(part["time"].max()) - window.start) / whole)))

    write = table_files.write_csv if args.format == "csv" else table_files.write_parquet
    return f"{write(out, table, pieces()):,} rows of {table}"


_WRITERS = {
    "folded": _folded,
    "pprof": _pprof,
    "speedscope": _speedscope,
    "perfetto": _perfetto,
    "firefox": _firefox,
    "csv": _table,
    "parquet": _table,
}
