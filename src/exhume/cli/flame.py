"""exhume flame: a flame graph of any window of a recording."""

import argparse
import re
import sys
from typing import TYPE_CHECKING

from exhume.cli import moments
from exhume.errors import ExhumeError, UsageError

if TYPE_CHECKING:
    from exhume.pictures.flame import Node, Tree
    from exhume.recording.folder import Folder
    from exhume.recording.tally import Tally

DESCRIPTION = """\
Draws where the cores of a node were, as a flame graph of any window of a recording: hours, or the 300 ms around a reset.

Without -o it shows the hottest branches as text. -o writes a picture that opens in any browser and needs nothing else:
click to zoom, search by regular expression, hover for detail. --folded prints the stacks for other tools."""
EPILOG = """\
examples:
  exhume flame /var/lib/exhume/recording                     all of it, as text
  exhume flame REC --at 12:04:31.2 --for 300ms --by core     which core did what, just then
  exhume flame REC --from -10m --comm kubelet -o flame.svg   the last ten minutes of kubelet, as a picture
  exhume flame REC --cpu 39 --no-idle --inverted             the functions that ran on a core, and who called them
  exhume flame REC --folded | flamegraph.pl > x.svg

times: 12:04:31.5 (local), RFC 3339, +90s from its begin, -30s from its end, 12345.678 as dmesg shows it.
An idle core counts: shares are of all samples, unless --no-idle. Colours: orange the kernel, yellow and green user space by
module, blue what is made at run time (Python, JIT), grey idle.

exit code: 0 done, 3 could not (nothing there, not readable), 64 wrong usage"""

# `--by` as pictures.flame.BYS has it, which is not imported before it is needed.
BYS = ("process", "core", "thread", "none")
_ROWS = 40  # lines of text where there is no terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("recording", metavar="RECORDING", help="the recording's directory")
    moments.arguments(parser)
    which = parser.add_argument_group("whose samples")
    which.add_argument("--cpu", type=cpus, metavar="LIST", help="only of these cores: 39 or 0-3,8")
    which.add_argument("--comm", type=pattern, metavar="REGEX", help="only of threads or processes with such a name")
    which.add_argument("--pid", type=pids, metavar="N,...", help="only of these processes")
    which.add_argument("--cgroup", type=pattern, metavar="REGEX", help="only of processes in such a cgroup")
    which.add_argument("--no-idle", action="store_true", help="leave out the samples of idle cores")
    parser.add_argument("--by", choices=BYS, default="process", help="what comes before the stacks (process)")
    parser.add_argument("--inverted", action="store_true", help="begin at the functions that ran, go on to their callers")
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="write the picture; - is stdout")
    parser.add_argument("--folded", action="store_true", help="print folded stacks, kernel functions with the suffix _[k]")
    parser.add_argument("--json", action="store_true", help="print the tree as JSON (schema exhume.flame/1)")


def cpus(text: str) -> tuple[int, ...]:
    from exhume.node.cpu_list import cpu_list

    found = cpu_list(text.encode("utf-8", "replace"))
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of CPUs; say 39 or 0-3,8, in rising order")
    return found


def pids(text: str) -> tuple[int, ...]:
    if re.fullmatch(r"[0-9]{1,10}(,[0-9]{1,10})*", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of PIDs; say 4242 or 4242,4250")
    return tuple(int(part) for part in text.split(","))


def pattern(text: str) -> "re.Pattern[str]":
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None


def run(args: argparse.Namespace) -> int:
    if sum((args.folded, args.json, args.output is not None)) > 1:
        raise UsageError("-o, --folded and --json are three ways to have the same: choose one")
    from exhume.pictures.flame import plant, select
    from exhume.recording.folder import Folder

    folder = Folder(args.recording)
    window = moments.window(args, folder)
    tally, dictionaries = folder.profile(window.start, window.end, args.cpu)
    tally = select(tally, dictionaries, args.cpu, args.comm, args.pid, args.cgroup)
    if not len(tally.count):
        raise ExhumeError(_nothing(args, folder, window))
    idle = "none" if args.no_idle else "stack" if args.folded else "frame"
    tree = plant(tally, dictionaries, args.by, idle, args.inverted)  # type: ignore[arg-type]
    if not tree.total:
        raise ExhumeError("all samples of the window are idle ones: without --no-idle they are shown")
    _print(args, folder, window, tree, tally)
    if folder.notes:
        sys.stderr.write(f"exhume: the recording is not whole; exhume info {args.recording} says what is missing\n")
    return 0


def _nothing(args: argparse.Namespace, folder: "Folder", window: moments.Window) -> str:
    if not folder.count("samples"):
        return f"{args.recording} has no stack samples; exhume info {args.recording} says why"
    asked = [name for name in ("cpu", "comm", "pid", "cgroup") if getattr(args, name) is not None]
    spoken = f" that --{', --'.join(asked)} would let through" if asked else ""
    begin, end = (moments.clock(folder.real_ns(time), dated=True) for time in (window.start, window.end))
    return f"there are no samples{spoken} between {begin} and {end}"


def _print(args: argparse.Namespace, folder: "Folder", window: moments.Window, tree: "Tree", tally: "Tally") -> None:
    if args.folded:
        from exhume.pictures.folded import folded

        for line in folded(tree.node()):
            sys.stdout.write(line + "\n")
    elif args.json:
        _print_json(args, folder, window, tree.node())
    elif args.output is not None:
        _write(args.output, _picture(args, folder, window, tree, tally))
    else:
        _print_text(args, folder, window, tree, tally)


def _picture(args: argparse.Namespace, folder: "Folder", window: moments.Window, tree: "Tree", tally: "Tally") -> str:
    from exhume.pictures.flame import walk
    from exhume.pictures.flame_svg import LEAST, svg

    root = tree.node(LEAST)
    hidden = len(tree) - sum(1 for _ in walk(root)) + 1
    return svg(root, _title(args, folder, window), _detail(args, folder, window, root, tally), hidden)


def _print_json(args: argparse.Namespace, folder: "Folder", window: moments.Window, root: "Node") -> None:
    import json

    from exhume.pictures.flame_json import as_json

    head = {
        "schema": "exhume.flame/1",
        "node": folder.node.hostname,
        "window": {
            "start": moments.rfc3339(folder.real_ns(window.start)),
            "end": moments.rfc3339(folder.real_ns(window.end)),
        },
        "by": args.by,
        "inverted": args.inverted,
        "samples": root.value,
        "idle": idle_samples(root),
    }
    sys.stdout.write(json.dumps(head)[:-1] + ', "tree": ')
    sys.stdout.writelines(as_json(root))
    sys.stdout.write("}\n")


def _print_text(args: argparse.Namespace, folder: "Folder", window: moments.Window, tree: "Tree", tally: "Tally") -> None:
    import shutil

    from exhume.cli.terminal import Style, width, wrap
    from exhume.pictures.flame_text import LEAST, render

    root = tree.node(LEAST)
    style, columns = Style(sys.stdout), width(sys.stdout)
    rows = max(8, shutil.get_terminal_size((columns, _ROWS)).lines - 7) if sys.stdout.isatty() else _ROWS
    out = sys.stdout.write
    out(style(_title(args, folder, window), "bold") + "\n")
    out(style(_detail(args, folder, window, root, tally), "dim") + "\n\n")
    out(render(root, columns, rows, style.colour))
    hint = (
        "The hottest branches only. The same with -o flame.svg draws all of it; --at, --for, --cpu and --comm narrow it down."
    )
    out("\n" + "\n".join(style(line, "dim") for line in wrap(hint, "", "", columns)) + "\n")


def _title(args: argparse.Namespace, folder: "Folder", window: moments.Window) -> str:
    from exhume.text import printable

    begin, end = folder.real_ns(window.start), folder.real_ns(window.end)
    same_day = moments.wall(begin, "%F") == moments.wall(end, "%F")
    told = f"{moments.clock(begin, dated=True)} to {moments.clock(end, dated=not same_day)}"
    asked = [f"{name} {getattr(args, name).pattern}" for name in ("comm", "cgroup") if getattr(args, name) is not None]
    asked += [f"pid {','.join(map(str, args.pid))}"] if args.pid else []
    only = f" · {printable(', '.join(asked), 60)}" if asked else ""
    return f"{printable(folder.node.hostname, 60)}  {told} ({moments.lasting(window.end - window.start)}){only}"


def _detail(args: argparse.Namespace, folder: "Folder", window: moments.Window, root: "Node", tally: "Tally") -> str:
    cores = sorted(set(tally.core.tolist()))
    parts = [f"{root.value:,} samples on " + (f"core {cores[0]}" if len(cores) == 1 else f"{len(cores)} cores")]
    hz = folder.about.get("hz")
    if isinstance(hz, int) and hz:
        # A core that is asleep may give no samples: shares of its time are by the samples there would be.
        expected = hz * len(cores) * (window.end - window.start) / 10**9
        parts.append(f"busy {min(1.0, (root.value - idle_samples(root)) / expected):.0%} of the time")
    if args.no_idle:
        parts.append("idle ones left out")
    if args.inverted:
        parts.append("from the functions that ran to their callers")
    return ", ".join(parts)


def idle_samples(root: "Node") -> int:
    """Idle is directly below the root, or below each core."""
    levels = [*root.children, *(child for core in root.children if core.kind == "core" for child in core.children)]
    return sum(node.value for node in levels if node.kind == "idle")


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise ExhumeError(f"{path} could not be written: {error.strerror}; give -o another place") from error
    sys.stderr.write(f"{path}: {len(text) / 1024:,.0f} KiB, open it in a browser\n")
