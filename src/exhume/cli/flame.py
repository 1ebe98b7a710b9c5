"""exhume flame: a flame graph of any window of a recording."""

import argparse
import sys
from typing import TYPE_CHECKING

from exhume.cli import filters, moments, opening
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import duration, size

if TYPE_CHECKING:
    from exhume.recording.folder import Folder
    from exhume.recording.tally import Tally
    from exhume.render.flame import Node, Tree

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
  exhume flame perf.data --no-idle                           files of other tools, as exhume import takes them

times: 12:04:31.5 (local), RFC 3339, +90s from its begin, -30s from its end, 12345.678 as dmesg shows it.
An idle core counts: shares are of all samples, unless --no-idle. Colours: orange the kernel, yellow and green user space by
module, blue what is made at run time (Python, JIT), grey idle.

exit code: 0 done, 3 could not (nothing there, not readable), 64 wrong usage"""

# `--by` as render.flame.BYS has it, which is not imported before it is needed.
BYS = ("process", "core", "thread", "cgroup", "none")
_FULL = 0.9
_MUCH_UNKNOWN = 0.1
_ROWS = 40  # lines of text where there is no terminal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    opening.arguments(parser)
    filters.arguments(parser)
    parser.add_argument("--by", choices=BYS, default="process", help="what comes before the stacks (process)")
    parser.add_argument("--inverted", action="store_true", help="begin at the functions that ran, go on to their callers")
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="write the picture; - is stdout")
    parser.add_argument("--folded", action="store_true", help="print folded stacks, kernel functions with the suffix _[k]")
    parser.add_argument("--json", action="store_true", help="print the tree as JSON (schema exhume.flame/1)")


def run(args: argparse.Namespace) -> int:
    if sum((args.folded, args.json, args.output is not None)) > 1:
        raise UsageError("-o, --folded and --json are three ways to have the same: choose one")
    from exhume.render.flame import plant, select

    folder = opening.folder(args)
    window = moments.of_samples(moments.window(args, folder), folder.sampled)
    tally, dictionaries = folder.profile(window.start, window.end, args.cpu)
    tally = select(tally, dictionaries, args.cpu, args.comm, args.pid, args.cgroup)
    if not len(tally.count):
        raise ExhumeError(filters.nothing(args, folder, window))
    idle = "none" if args.no_idle else "stack" if args.folded else "frame"
    tree = plant(tally, dictionaries, args.by, idle, args.inverted)  # type: ignore[arg-type]
    if not tree.total:
        raise ExhumeError(filters.ALL_IDLE)
    _print(args, folder, window, tree, tally)
    if folder.notes:
        sys.stderr.write(f"exhume: the recording is not whole; exhume info {args.recording} says what is missing\n")
    return 0


def _print(args: argparse.Namespace, folder: "Folder", window: moments.Window, tree: "Tree", tally: "Tally") -> None:
    if args.folded:
        from exhume.render.folded import folded

        for line in folded(tree.node()):
            sys.stdout.write(line + "\n")
    elif args.json:
        _print_json(args, folder, window, tree.node())
    elif args.output is not None:
        _write(args.output, _picture(args, folder, window, tree, tally))
    else:
        _print_text(args, folder, window, tree, tally)


def _picture(args: argparse.Namespace, folder: "Folder", window: moments.Window, tree: "Tree", tally: "Tally") -> str:
    from exhume.render.flame import walk
    from exhume.render.flame_svg import LEAST, svg

    root = tree.node(LEAST)
    hidden = len(tree) - sum(1 for _ in walk(root)) + 1
    return svg(root, _title(args, folder, window), _detail(args, folder, window, root, tally), hidden)


def _print_json(args: argparse.Namespace, folder: "Folder", window: moments.Window, root: "Node") -> None:
    import json

    from exhume.render.flame import as_json

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
    from exhume.render.flame_text import LEAST, render
    from exhume.text import printable

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
    if (share := unknown_samples(root) / root.value) > _MUCH_UNKNOWN:
        recorded = folder.load(window.start, window.end, ["sources"]).why_partial("samples")
        why = recorded or "programs without frame pointers or symbols; Python tells its functions with -X perf"
        hint += f" {share:.0%} of the samples have callers that are [unknown]: {printable(why)}."
    out("\n" + "\n".join(style(line, "dim") for line in wrap(hint, "", "", columns)) + "\n")


def _title(args: argparse.Namespace, folder: "Folder", window: moments.Window) -> str:
    from exhume.text import printable

    begin, end = folder.real_ns(window.start), folder.real_ns(window.end)
    same_day = moments.wall(begin, "%F") == moments.wall(end, "%F")
    zone = moments.wall(end, "%Z")
    told = f"{moments.clock(begin, dated=True)} to {moments.clock(end, dated=not same_day)}{zone and ' ' + zone}"
    lasts = duration(window.end - window.start)
    return f"{printable(folder.node.hostname, 60)}  {told} ({lasts}){filters.told(args)}"


def _detail(args: argparse.Namespace, folder: "Folder", window: moments.Window, root: "Node", tally: "Tally") -> str:
    cores = sorted(set(tally.core.tolist()))
    where = "cores that are not told" if cores == [-1] else f"core {cores[0]}" if len(cores) == 1 else f"{len(cores)} cores"
    parts = [f"{root.value:,} samples on {where}"]
    hz = folder.about.get("hz")
    if isinstance(hz, int) and hz and cores != [-1]:
        # A core that is asleep may give no samples: shares of its time are by the samples there would be.
        expected = hz * len(cores) * max(1, folder.covered(window.start, window.end)) / 10**9
        share = f"{min(1.0, (root.value - idle_samples(root)) / expected):.0%}"
        narrowed = any(getattr(args, name) is not None for name in ("comm", "pid", "cgroup"))
        parts.append(f"{share} of these cores' time" if narrowed else f"busy {share} of the time")
        if not narrowed and not args.no_idle and root.value < _FULL * expected:
            parts.append("cores asleep gave no samples, so that shares are of less than all time")
    if args.no_idle:
        parts.append("idle ones left out")
    if args.inverted:
        parts.append("from the functions that ran to their callers")
    return ", ".join(parts)


def unknown_samples(root: "Node") -> int:
    """Below, or at, a frame that has no name. No recursion: stacks may be deeper than Python's."""
    found, waiting = 0, [root]
    while waiting:
        node = waiting.pop()
        if node.name.startswith("[unknown]"):
            found += node.value
        else:
            waiting.extend(node.children)
    return found


def idle_samples(root: "Node") -> int:
    """Idle is directly below the root, or below each core."""
    levels = [*root.children, *(child for core in root.children if core.kind == "core" for child in core.children)]
    return sum(node.value for node in levels if node.kind == "idle")


def _write(path: str, text: str) -> None:
    if path.lower().endswith((".png", ".pdf", ".jpg", ".html")):
        raise UsageError("the picture is an SVG, which browsers open: name it .svg")
    if path == "-":
        sys.stdout.write(text)
        return
    from exhume.cli.output import output

    with output(path) as out:
        out(text.encode("utf-8"))
    sys.stderr.write(f"{path}: {size(len(text))}, open it in a browser\n")
