"""exhume diagnose: why a node starved, from a recording of it."""

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from exhume.cli import filters, moments, opening
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, duration, size

if TYPE_CHECKING:
    from exhume.cli.diagnose_opening import Opened
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.folder import Folder
    from exhume.render.flame import Compared
    from exhume.render.scene import Clock, Scene

DESCRIPTION = """\
Says why a node starved: the causal chain from its source to what broke, with the evidence for every link, what was ruled out
and by which number, and what to do. The incidents of a recording are told worst first.

RECORDING is what exhume record wrote, or anything that exhume import takes. Without it: what exhume record writes on this node
now, or has in the last hour; if there is none, the node is recorded for --for, with stack samples, and that is judged."""
EPILOG = """\
examples:
  sudo exhume diagnose                                  this node: its flight recorder, or ten seconds from now on
  exhume diagnose REC --last                            the last incident of a recording
  exhume diagnose REC --at 12:04:31 --html report.html  the one at or nearest to that time, as one file for a ticket
  exhume diagnose REC --last --markdown -               for a post-mortem
  exhume diagnose perf.data --json | jq .verdict

times: 12:04:31.5 (local; Z, UTC or +02:00 may follow), RFC 3339, +90s from its begin, -30s from its end, 12345.678
as dmesg shows it.

exit code: 0 healthy, 1 warning, 2 critical, 3 could not judge, 64 wrong usage"""

_BEFORE_NS, _AFTER_NS = 60 * SECOND, 30 * SECOND


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.cli import importing

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "recording", nargs="?", metavar="RECORDING", help="the recording's directory, or a perf.data, perf script text, log ..."
    )
    moments.arguments(parser, at=False)
    parser.add_argument("--at", type=moments.moment, metavar="T", help="the incident at or nearest to that time")
    parser.add_argument("--last", action="store_true", help="the last incident")
    parser.add_argument(
        "--baseline",
        type=baseline,
        default="auto",
        metavar="T..T",
        help="what to compare stacks with: FROM..TO, auto (as long, quiet, nearest before) or none",
    )
    parser.add_argument("--html", metavar="FILE", help="write the report as one HTML file; - is stdout")
    parser.add_argument("--markdown", metavar="FILE", help="write it as Markdown; - is stdout")
    parser.add_argument("--json", action="store_true", help="print the report as JSON (schema exhume.report/2)")
    parser.add_argument("-v", "--verbose", action="store_true", help="every finding, everything ruled out, nothing shortened")
    parser.add_argument("--evidence", action="store_true", help="every number behind a finding, with its source")
    parser.add_argument("--quiet", action="store_true", help="with --html or --markdown: print nothing else")
    parser.add_argument("--host", default="/", metavar="DIR", help="judge the node whose / is mounted at DIR")
    parser.add_argument("--log-root", metavar="DIR", help="take the kernel's log from DIR/dev/kmsg (as exhume lab makes it)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    opening.boot_argument(parser)
    importing.choices(parser)
    filters.refuse(
        parser, "a node is judged by all of them, by a part the verdict would be false; --from and --to choose a time"
    )


def baseline(text: str) -> "tuple[moments.Moment, moments.Moment] | str":
    if text in ("auto", "none"):
        return text
    first, between, last = text.partition("..")
    if not between:
        raise argparse.ArgumentTypeError(f"{text!r} is no baseline: say FROM..TO, auto or none; {moments.FORMS}")
    return moments.moment(first), moments.moment(last)


def run(args: argparse.Namespace) -> int:
    from exhume.cli.check import CODES
    from exhume.cli.diagnose_opening import opened
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    _usage(args)
    thresholds = section(load(args.config), "thresholds", Thresholds)
    recording = opened(args)
    scene = _scene(args, recording, thresholds)
    if args.json:
        import json

        print(json.dumps(document(scene), indent=1), flush=True)
    for path, make in ((args.html, _html), (args.markdown, _markdown)):
        if path is not None:
            _write(path, make(args, recording, scene), args.quiet)
    if not args.json and not args.quiet and "-" not in (args.html, args.markdown):
        from exhume.cli.diagnose_text import render
        from exhume.cli.terminal import Style, width

        sys.stdout.write(render(scene, Style(sys.stdout), width(sys.stdout), args.verbose, args.evidence))
    for note in recording.folder.notes[:3]:
        sys.stderr.write(f"exhume: {note}\n")
    return CODES[scene.health]


def document(scene: "Scene") -> dict[str, Any]:
    """The report as --json has it; of a bundle whose names were replaced it says so."""
    from exhume.diagnosis.report import as_json
    from exhume.render.sentences import PSEUDONYMS

    return as_json(scene.report) | ({"names": "pseudonyms", "note": PSEUDONYMS} if scene.pseudonyms else {})


def pages(folder: "Folder", name: str, thresholds: "Thresholds", start: int, end: int) -> "tuple[Scene, str, str]":
    """The report on a window, as it is seen, as --markdown and as --html; `name` is what commands in it call the recording."""
    from exhume.cli.diagnose_opening import Opened

    begin, until = (moments.Moment("uptime", time, "") for time in (start, end))
    args = argparse.Namespace(at=None, start=begin, end=until, span_ns=None, last=False, baseline="auto", recording=name)
    recording = Opened(folder, name)
    scene = _scene(args, recording, thresholds)
    return scene, _markdown(args, recording, scene), _html(args, recording, scene)


def _usage(args: argparse.Namespace) -> None:
    window = args.start is not None or args.end is not None
    if sum((args.at is not None, args.last, window)) > 1:
        raise UsageError("--at, --last and --from/--to are three ways to say which incident: choose one")
    if args.span_ns is not None and (args.at is not None or args.last):
        raise UsageError("--for is the length of a window: it goes with --from or --to, or alone for the end of a recording")
    if [args.html, args.markdown, "-" if args.json else None].count("-") > 1:
        raise UsageError("only one report can go to stdout: name a file for the other")
    if args.quiet and args.html is None and args.markdown is None and not args.json:
        raise UsageError("--quiet leaves nothing to be seen: it goes with --html or --markdown")


def _scene(args: argparse.Namespace, opened: "Opened", thresholds: "Thresholds") -> "Scene":
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.diagnose import diagnose, diagnose_folder
    from exhume.render.lanes import unrecorded
    from exhume.render.scene import SAMPLED, TABLES, focus_of, scene, told, wanted

    folder = opened.folder
    start, end, at = _window(args, folder)
    if not len(folder.load(start, end, ("anchors",))["anchors"]):
        raise ExhumeError(f"nothing was recorded in {moments.spanning(folder, start, end)}: exhume info says when it was")
    progress = Progress("judging")
    try:
        # What the kernel's log still had of the time before is no part of the window, but of a node that is recorded now.
        live = not opened.name and args.recording is None
        report = diagnose(folder.load(), thresholds) if live else diagnose_folder(folder, thresholds, start, end, progress)
    finally:
        progress.clear()
    incident = told(report, at, args.last)
    asked = args.start is not None or args.end is not None or args.span_ns is not None
    whole = (start, end) if asked or incident is None else (folder.window[0], folder.window[1] + 1)
    focus = focus_of(report, whole, incident)
    sampled = folder.count("samples") > 0
    recording = folder.load(*wanted(focus, whole), TABLES)
    timed = not any(source.name == "sample-times" and source.state == "off" for source in report.sources)
    if sampled and timed and not len(recording["cpu"]):
        recording.extend(folder.load(*wanted(focus, whole), SAMPLED))
    seen = scene(report, recording, focus, whole, _clock(folder, end), opened.name, incident, sampled)
    return replace(
        seen,
        imported=str(folder.about.get("format", "")),
        pseudonyms=folder.about.get("pseudonyms") is True,
        elsewhere=folder.node.boot_id != _this_boot(),
        bars=_bars(thresholds),
        gaps=tuple(unrecorded(folder, *seen.window)),
    )


def _bars(thresholds: "Thresholds") -> dict[str, str]:
    """What a number would have to be: beside one that is near to it, what is ruled out is in doubt otherwise."""
    return {
        "cpu-full": f"full is {thresholds.cpu_full_ratio:.0%} busy for {duration(thresholds.cpu_full_s * SECOND)}",
        "steal": f"told from {thresholds.steal_ratio:.0%}",
    }


def _this_boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _window(args: argparse.Namespace, folder: "Folder") -> tuple[int, int, int | None]:
    """What is judged, and the moment that was asked for."""
    if args.at is None:
        window = moments.window(args, folder)
        return window.start, window.end, None
    return moments.around(args.at, folder, _BEFORE_NS, _AFTER_NS)


def _clock(folder: "Folder", end: int) -> "Clock":
    """Where nobody knows the time of day, and so no zone, moments are told as dmesg does, and are never cut."""
    from exhume.render.scene import Clock

    zone = moments.wall(folder.real_ns(end), "%Z")
    return Clock(
        lambda time: moments.wall(folder.real_ns(time), "%H:%M:%S") if zone else moments.clock(folder.real_ns(time)),
        lambda time: moments.clock(folder.real_ns(time)),
        lambda time: moments.clock(folder.real_ns(time), dated=True),
        zone,
        lambda time: moments.rfc3339(folder.real_ns(time)) if zone else moments.clock(folder.real_ns(time)),
    )


def _html(args: argparse.Namespace, opened: "Opened", scene: "Scene") -> str:
    from exhume.cli.diagnose_commands import commands
    from exhume.render.report_html import page

    return page(scene, _compared(args, opened.folder, scene), commands(scene, anywhere=True))


def _compared(args: argparse.Namespace, folder: "Folder", scene: "Scene") -> "Compared | None":
    """The stacks of the incident, on its core if it has one, against those of a quiet time."""
    from exhume.render.baseline import quiet
    from exhume.render.flame import compare

    if not scene.sampled:
        return None
    cores = None if scene.core is None else [scene.core]
    if isinstance(args.baseline, tuple):
        first, last = (moments.resolve(moment, folder) for moment in args.baseline)
        if first >= last:
            raise UsageError("--baseline ends before it begins: say FROM..TO")
        before: tuple[int, int] | None = (first, last)
    else:
        before = quiet(scene.recording, scene.focus, scene.core) if args.baseline == "auto" else None
    now = folder.profile(*scene.focus, cores)
    then = folder.profile(*before, cores) if before is not None else None
    if then is not None and not len(then[0].count) and isinstance(args.baseline, tuple):
        raise ExhumeError("there are no stack samples in the time that --baseline names")
    return compare(now, then, before, scene.core)


def _markdown(args: argparse.Namespace, opened: "Opened", scene: "Scene") -> str:
    from exhume.cli.diagnose_commands import commands
    from exhume.render.report_markdown import page

    return page(scene, commands(scene, anywhere=True))


def _write(path: str, text: str, quiet: bool) -> None:
    from exhume.cli.output import output

    with output(path) as out:
        out(text.encode("utf-8", "replace"))
    if path != "-" and not quiet:
        sys.stderr.write(f"exhume: {path}: {size(len(text))}\n")
