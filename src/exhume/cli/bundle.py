"""exhume bundle: what a colleague or a vendor needs to look at an incident, in one file."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.cli import bundle_text, filters, moments, opening
from exhume.cli.arguments import duration_ns
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, compared, duration, size

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.recording.folder import Folder
    from exhume.recording.pseudonyms import Pseudonyms
    from exhume.recording.recording import Recording

DESCRIPTION = """\
Packs the report on an incident, the part of the recording that it was made from, the state of every source and the versions
of everything into one .tar.gz for a colleague or a vendor. exhume reads the recording in it as it reads any other.

With --pseudonyms names of hosts, units, cgroups, pods, containers, images, programs, functions and files of user space, and
addresses become pseudonyms: the same name the same one, made with a key that nobody keeps. The report is then made from the
pseudonymised recording. Functions and threads of the kernel, programs that everybody has (docs/bundle.md lists them), times,
numbers and process ids stay."""
EPILOG = """\
examples:
  exhume bundle REC --last -o incident.tar.gz                the last incident, from a minute before it on
  exhume bundle REC --at 12:04:31 --pseudonyms --mapping names.json
  exhume bundle REC --from -5m --no-samples                  without stacks: smaller, and without functions of user space
  tar xzf incident.tar.gz && exhume diagnose exhume-bundle-*/recording

At most ten minutes, unless --limit says more: the window is held in memory. The file is readable by its owner alone, is there
when it is whole, and overwrites nothing.

exit code: 0 done, 2 refused (the file is there already), 3 could not, 64 wrong usage"""

BEFORE_NS, AFTER_NS = 60 * SECOND, 30 * SECOND
HISTORIES = ("memcg", "memcg_walk", "cgroup_dirs", "units")


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.cli import importing
    from exhume.cli.record import DEFAULT

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "recording", nargs="?", default=DEFAULT, metavar="RECORDING", help=f"a recording, perf.data, log ... ({DEFAULT})"
    )
    opening.boot_argument(parser)
    moments.arguments(parser, at=False)
    parser.add_argument(
        "--at",
        type=moments.moment,
        metavar="T",
        help="that moment, with a minute before and half of one after it; or for --for",
    )
    parser.add_argument("--last", action="store_true", help="the last incident, with a minute before and half of one after it")
    parser.add_argument("--limit", type=duration_ns, default="10m", metavar="TIME", help="the longest window (10m)")
    parser.add_argument("-o", "--output", metavar="FILE", help="the file to make (exhume-bundle-HOST-TIME.tar.gz, here)")
    parser.add_argument("--pseudonyms", action="store_true", help="no names of yours in it")
    parser.add_argument("--mapping", metavar="FILE", help="keep which pseudonym is which name, for yourself")
    parser.add_argument("--no-samples", action="store_true", help="leave the stack samples out")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    importing.choices(parser)
    filters.refuse(parser, "a bundle has all of its window, so that its verdict is the same; --no-samples leaves them out")


def run(args: argparse.Namespace) -> int:
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    if args.mapping is not None and not args.pseudonyms:
        raise UsageError("--mapping is which pseudonym is which name: it goes with --pseudonyms")
    if args.last and any(getattr(args, name) is not None for name in ("at", "start", "end", "span_ns")):
        raise UsageError("--last is a window of its own: leave out --at, --from, --to and --for")
    thresholds = section(load(args.config), "thresholds", Thresholds)
    folder = opening.folder(args)
    start, end = _window(args, folder, thresholds)
    recording = _load(args, folder, start, end)
    if not len(recording["anchors"]):
        raise ExhumeError(f"{args.recording} has nothing between these times: exhume info {args.recording} says what it has")
    history = _history(folder, start)
    names = pseudonyms() if args.pseudonyms else None
    if names is not None:
        from exhume.recording.pseudonymised import pseudonymised

        recording = pseudonymised(recording, names)
        history = pseudonymised(history, names) if history is not None else None
    path = _write(args, recording, history, _about(folder), (start, end), thresholds, names)
    sys.stderr.write(f"exhume: {path}: {duration(end - start)}, {size(os.path.getsize(path))}\n")
    if folder.notes:
        sys.stderr.write(f"exhume: the recording is not whole; exhume info {args.recording} says what is missing\n")
    return 0


def _window(args: argparse.Namespace, folder: "Folder", thresholds: "Thresholds") -> tuple[int, int]:
    if args.last:
        return _last(args, folder, thresholds)
    if args.at is not None and (args.span_ns, args.start, args.end) == (None, None, None):
        return moments.around(args.at, folder, BEFORE_NS, AFTER_NS)[:2]
    asked = moments.window(args, folder)
    if asked.end - asked.start <= args.limit + SECOND:  # ten minutes of a recorder are never to the millisecond
        return asked.start, asked.end
    if not asked.whole:
        long, limit = compared(duration, asked.end - asked.start, args.limit)
        raise UsageError(
            f"the window is {long} long, more than the {limit} that are held in memory: choose less, or raise --limit"
        )
    sys.stderr.write(
        f"exhume: the recording is longer than {duration(args.limit)}: its end is packed; --at, --last, --from and "
        "--to choose, --limit allows more\n"
    )
    return asked.end - args.limit, asked.end


def _last(args: argparse.Namespace, folder: "Folder", thresholds: "Thresholds") -> tuple[int, int]:
    from exhume.diagnosis.diagnose import diagnose_folder

    incidents = diagnose_folder(folder, thresholds).incidents
    if not incidents:
        raise ExhumeError(f"{args.recording} shows no incident: say which time with --at, or --from and --to")
    latest = max(incidents, key=lambda incident: incident.end)
    first, last = folder.window
    begin, until = max(first, latest.start - BEFORE_NS), min(last + 1, latest.end + AFTER_NS)
    if until - begin <= args.limit:
        return begin, until
    sys.stderr.write(f"exhume: the incident is longer than {duration(args.limit)}: its end is packed; --limit allows more\n")
    return until - args.limit, until


def _load(args: argparse.Namespace, folder: "Folder", start: int, end: int) -> "Recording":
    from exhume.recording.schema import TABLES

    left_out = {"summary"} | ({"samples", "stacks", "frames", "threads"} if args.no_samples else set())
    return folder.load(start, end, [table for table in TABLES if table not in left_out])


def _history(folder: "Folder", start: int) -> "Recording | None":
    """What a verdict looks at from before the window: a leak grows over days, and is seldom walked."""
    from exhume.diagnosis.diagnose import HISTORY
    from exhume.recording.recording import Recording

    first = max(folder.window[0], start - HISTORY)
    if first >= start:
        return None
    loaded = folder.load(first, start, [*HISTORIES, "anchors"])
    if not any(len(loaded[table]) for table in HISTORIES):
        return None
    kept = Recording(folder.node)
    for table in HISTORIES:
        kept[table].extend(loaded[table])
    rows = sorted(tuple(row.values()) for row in loaded["anchors"].rows())
    kept["anchors"].add_rows([rows[0], rows[-1]])
    return kept


def _about(folder: "Folder") -> dict[str, str | int | bool]:
    """Of what the recorder says about itself, what may be handed on: not the names of files it was made from."""
    known = ("hz", "event", "kernel_only", "format")
    return {name: value for name in known if isinstance(value := folder.about.get(name), str | int | bool)}


def pseudonyms() -> "Pseudonyms":
    import re
    import secrets

    from exhume.recording.pseudonyms import Pseudonyms
    from exhume.sources.kernel_lines import FORMS

    fixed = " ".join(re.sub(r"\{[^}]*\}", " ", form.format) + " " + form.driver for form in FORMS)
    return Pseudonyms(secrets.token_bytes(32), re.findall(r"[A-Za-z][\w'-]*", fixed))


def _write(
    args: argparse.Namespace,
    recording: "Recording",
    history: "Recording | None",
    about: dict[str, str | int | bool],
    window: tuple[int, int],
    thresholds: "Thresholds",
    names: "Pseudonyms | None",
) -> str:
    import json
    import time
    from contextlib import ExitStack

    from exhume.recording.bundle import new_file, pack, write_recording
    from exhume.recording.folder import Folder
    from exhume.scratch import scratch

    real_s = recording.real_ns(window[0]) // SECOND
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(real_s))
    host = "".join(c if c.isascii() and (c.isalnum() or c in "-.") else "-" for c in recording.node.hostname)[:64]
    top = f"exhume-bundle-{host.strip('-.') or 'node'}-{stamp}"
    path = args.output or f"{top}.tar.gz"
    with ExitStack() as stack:
        place = stack.enter_context(scratch("bundle"))
        mapping = stack.enter_context(new_file(args.mapping)) if args.mapping is not None else None
        file = stack.enter_context(new_file(path))
        told = about | ({"pseudonyms": True} if args.pseudonyms else {})
        write_recording(os.path.join(place, "recording"), recording, told, history)
        texts = bundle_text.files(
            Folder(os.path.join(place, "recording")), window, thresholds, args.pseudonyms, args.no_samples
        )
        pack(file, top, texts, os.path.join(place, "recording"), real_s)
        if mapping is not None and names is not None:
            mapping.write(json.dumps(names.mapping, indent=1, ensure_ascii=True).encode() + b"\n")
    return str(path)
