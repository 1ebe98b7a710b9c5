"""exhume import: files of other tools into a recording."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND, counted, duration

if TYPE_CHECKING:
    from exhume.imports.foreign import Brought
    from exhume.imports.incoming import Anchor

DESCRIPTION = """\
Makes a recording of what you already have: perf.data, the text of perf script, folded stacks, dmesg or syslog text,
journalctl -o json, plain or gzip; several files, or a directory of them, become one recording on one time axis.

Everything that reads a recording takes such files directly, too: exhume flame perf.data."""
EPILOG = """\
examples:
  exhume import perf.data -o rec                              then: exhume heat rec, exhume flame rec
  exhume import captures/ dmesg.txt -o rec                    a folder of two-minute files, and the kernel log beside them
  exhume import perf.script.gz -o rec --anchor boot=2026-01-31T08:30:00Z
  perf script | exhume import - -o rec

perf.data and dmesg have the time since boot; what the time of day was then is only in some files. Where it is in none, it is
guessed from the file's own time and said, or given: --anchor SECONDS=WALL, a moment as perf script or dmesg shows it, and the
wall clock at that moment (RFC 3339); boot=WALL is when the machine was booted.

exit code: 0 done, 3 could not (not readable, nothing known in it), 64 wrong usage"""

_JOURNAL = "journalctl -o json"
_OLDEST = 315_532_800 * 10**9  # 1980: what is older is a mistake
_GIVEN = re.compile(r"(boot|\d{1,9}(?:\.\d{1,9})?)=(.+)", re.ASCII)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("files", metavar="FILE", nargs="+", help="a file, a directory of files, or - for stdin")
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the recording to make: a directory that is new")
    choices(parser)
    parser.add_argument("--boot", type=boot, metavar="N|ID", help="of a journal over several: -1 the one before, or its id")
    parser.add_argument("--quiet", action="store_true", help="say nothing but errors")
    parser.add_argument("--json", action="store_true", help="print what was found as JSON (schema exhume.import/1)")


def choices(parser: argparse.ArgumentParser) -> None:
    """How files are read, here and wherever a command reads them directly."""
    how = parser.add_argument_group("files of other tools")
    how.add_argument("--anchor", type=anchor, metavar="T=WALL", help="when it was: 12345.678=2026-01-31T12:04:31Z or boot=...")
    how.add_argument("--event", default="", metavar="NAME", help="of a file with several: whose samples")
    how.add_argument("--no-symbols", action="store_true", help="leave addresses of user space without names")


def anchor(text: str) -> "Anchor":
    from exhume.cli.moments import moment
    from exhume.imports.incoming import Anchor

    found = _GIVEN.fullmatch(text.strip())
    if found is not None:
        try:
            wall = moment(found[2])
        except argparse.ArgumentTypeError:
            wall = None
        if wall is not None and wall.form == "real" and wall.ns > _OLDEST:
            seconds, _, fraction = found[1].partition(".")
            time = 0 if found[1] == "boot" else int(seconds) * SECOND + int(fraction.ljust(9, "0") or 0)
            return Anchor(time, wall.ns, "given")
    raise argparse.ArgumentTypeError(
        f"{text!r} is not an anchor; say 12345.678=2026-01-31T12:04:31Z (a moment as dmesg shows it, and the wall clock then) "
        "or boot=2026-01-31T08:30:00Z"
    )


def boot(text: str) -> str:
    if not re.fullmatch(r"0|-\d{1,4}|[0-9a-fA-F-]{32,36}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a boot; say 0 (the last), -1 (the one before) or its id of 32 digits"
        )
    return text


def run(args: argparse.Namespace) -> int:
    if args.files.count("-") > 1:
        raise UsageError("stdin can be read once: name - once")
    import os

    if os.path.isdir(args.output) and os.listdir(args.output):
        raise UsageError(f"{args.output} is not empty: name a directory that is new")
    if args.output == "-":
        raise UsageError("a recording is a directory: -o names one that is new")
    there = os.path.isdir(args.output)
    try:
        brought = bring_in(args, args.files, args.output)
        found = brought.samples or brought.events
    except BaseException:
        found = 0
        raise
    finally:
        if not found:
            _remove(args.output, there)
    if not found:
        raise ExhumeError("nothing was found: " + "; ".join(brought.notes))
    if args.json:
        _print_json(args, brought)
    elif not args.quiet:
        _print_text(args, brought)
    return 0


def _remove(path: str, there: bool) -> None:
    """What was begun and came to nothing. A directory that was there, and empty, stays as it was."""
    import os

    from exhume.imports.importing import remove

    if not there:
        remove(path)
        return
    for name in os.listdir(path):
        child = os.path.join(path, name)
        if os.path.isdir(child):
            remove(child)
        else:
            os.unlink(child)


def bring_in(args: argparse.Namespace, files: list[str], directory: str, whose: bool = True, kept: bool = True) -> "Brought":
    from exhume.cli.terminal import Progress
    from exhume.imports.importing import bring_in as bring
    from exhume.imports.incoming import Wanted

    which = str(args.boot or "")
    wanted = Wanted(args.event, not args.no_symbols, whose, which)
    progress = Progress("importing")
    try:
        brought = bring(files, directory, wanted, args.anchor, progress, kept)
    finally:
        progress.clear()
    if which and all(kind != _JOURNAL for _, kind in brought.files):
        brought.notes.append("--boot was not needed: it chooses one of a journal's, and there is none")
    return brought


def _print_text(args: argparse.Namespace, brought: "Brought") -> None:
    from exhume.cli import moments
    from exhume.cli.terminal import Style, width, wrap
    from exhume.recording.folder import Folder
    from exhume.text import printable, sentence

    style, columns = Style(sys.stdout), width(sys.stdout)
    out = sys.stdout.write
    kinds = {kind: sum(1 for _, other in brought.files if other == kind) for _, kind in brought.files}
    out(style(f"{printable(args.output)}", "bold"))
    out(f"  {counted(brought.samples, 'sample')}, {counted(brought.events, 'event')} from ")
    out(", ".join(f"{number} × {kind}" if number > 1 else kind for kind, number in kinds.items()) + "\n")
    if brought.samples or brought.events:
        folder = Folder(args.output)
        begin, end = folder.window
        out(f"  {moments.clock(folder.real_ns(begin), dated=True)} to {moments.clock(folder.real_ns(end), dated=True)}")
        zone = moments.wall(folder.real_ns(end), "%Z")
        out(f"{zone and ' ' + zone} ({duration(end - begin)})\n")
    for note in brought.notes:
        out("\n".join(style(line, "yellow") for line in wrap(sentence(note), "  ! ", "    ", columns)) + "\n")
    pictures = "; exhume heat and exhume flame show it" if brought.samples else ""
    out("\n" + style(f"exhume info {printable(args.output)} says what is in it{pictures}.", "dim") + "\n")


def _print_json(args: argparse.Namespace, brought: "Brought") -> None:
    import json

    anchor = brought.anchor
    document = {
        "schema": "exhume.import/1",
        "recording": args.output,
        "files": [{"name": name, "format": kind} for name, kind in brought.files],
        "samples": brought.samples,
        "events": brought.events,
        "anchor": None if anchor is None else {"time_ns": anchor.time, "real_ns": anchor.real, "how": anchor.how},
        "notes": brought.notes,
    }
    sys.stdout.write(json.dumps(document) + "\n")
