"""exhume fleet profile: one flame graph over many nodes."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_HEALTHY, ExhumeError, UsageError
from exhume.host.quantities import counted, size
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.recording.folder import Folder
    from exhume.render.flame import Node

DESCRIPTION = """\
One flame graph over the recordings of many nodes: of all of them whole, or of the time around every event of a kind, as
nic-reset. With --against the difference: what the sick ones do that the healthy ones do not.

A directory that holds recordings stands for all of them."""
EPILOG = """\
examples:
  exhume fleet profile /fleet/sick --around nic-reset --window 10s -o resets.svg
  exhume fleet profile /fleet/sick --against /fleet/healthy
  exhume fleet profile /fleet/sick --against /fleet/healthy -o difference.html

exit code: 0 done, 3 could not"""
_ROWS = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("recordings", nargs="+", metavar="DIR", help="recordings, or directories of recordings")
    parser.add_argument("--against", nargs="+", default=[], metavar="DIR", help="recordings of healthy nodes, to compare with")
    parser.add_argument("--around", metavar="KIND", help="only around events of this kind: nic-reset, stall, soft-lockup ...")
    parser.add_argument(
        "--window", dest="window_ns", type=duration_ns, default="10s", metavar="TIME", help="so long before and after it (10s)"
    )
    parser.add_argument("--no-idle", action="store_true", help="leave out the samples of idle cores")
    parser.add_argument("-o", "--output", metavar="FILE", help="a picture: .svg, or with --against .html")


def run(args: argparse.Namespace) -> int:
    if args.output and not args.output.endswith(".html" if args.against else ".svg"):
        raise UsageError(f"-o must end with {'.html' if args.against else '.svg'} here")
    sick, told = _gathered(args, args.recordings, args.around)
    healthy, others = _gathered(args, args.against, None) if args.against else (None, "")
    if healthy is None:
        _one(args, sick, told)
    else:
        _difference(args, sick, healthy, f"{told} against {others}")
    return EXIT_HEALTHY


def _folders(paths: list[str]) -> "list[Folder]":
    from exhume.recording.folder import Folder

    found = []
    for path in paths:
        try:
            found.append(Folder(path))
        except ExhumeError as error:
            inside = sorted(entry.path for entry in os.scandir(path) if entry.is_dir()) if os.path.isdir(path) else []
            if not inside:
                raise
            for each in inside:
                try:
                    found.append(Folder(each))
                except ExhumeError:
                    sys.stderr.write(f"exhume: {printable(each)} is left out: {error}\n")
    return found


def _gathered(args: argparse.Namespace, paths: list[str], kind: str | None) -> "tuple[Node, str]":
    from exhume.cli.terminal import Progress
    from exhume.fleet import profile
    from exhume.render.flame import merge

    trees, windows, nodes = [], 0, set()
    folders = _folders(paths)
    progress = Progress("reading")
    try:
        for place, folder in enumerate(folders):
            progress(place / len(folders))
            whole = [folder.window] if kind is None else profile.around(folder, kind, args.window_ns, args.window_ns)
            found = list(profile.of(folder, whole, not args.no_idle))
            if found:
                trees += found
                windows += len(whole)
                nodes.add(folder.node.hostname)
    finally:
        progress.clear()
    if not trees:
        asked = f"there is no {printable(kind)} with stack samples around it" if kind else "there are no stack samples"
        raise ExhumeError(f"{asked} in {len(folders)} recordings")
    root = merge(trees)
    around = f", around {windows} times {printable(kind)}" if kind else ""
    return root, f"{counted(len(nodes), 'node')}, {root.value:,} samples{around}"


def _one(args: argparse.Namespace, root: "Node", told: str) -> None:
    if args.output:
        from exhume.render.flame_svg import svg

        _write(args.output, svg(root, "a fleet", told))
        return
    from exhume.cli.terminal import Style, width
    from exhume.render.flame_text import render

    style = Style(sys.stdout)
    print(style(told, "bold") + "\n")
    sys.stdout.write(render(root, width(sys.stdout), _ROWS, style.colour))


def _difference(args: argparse.Namespace, sick: "Node", healthy: "Node", told: str) -> None:
    from exhume.render.flame import Compared, merge

    compared = Compared(merge([sick], [healthy]))
    if args.output:
        from exhume.render.flame_svg import page

        _write(args.output, page(compared, told))
        return
    from exhume.cli.terminal import Style

    style = Style(sys.stdout)
    print(style(told, "bold") + "\n")
    print("   sick  healthy   difference  what")
    shown = sorted(compared.changes(), key=lambda change: -abs(change.share - (change.before or 0.0)))
    for change in shown[:_ROWS]:
        node, before = change.placed.node, change.before or 0.0
        if node.kind != "all" and abs(change.share - before) >= 0.001:
            name = "  " * min(change.placed.depth, 12) + printable(node.name, 80)
            print(f"  {change.share:6.1%}  {before:6.1%}     {change.share - before:+7.1%}  {name}")


def _write(path: str, text: str) -> None:
    from exhume.cli.output import output

    with output(path) as out:
        out(text.encode("utf-8", "backslashreplace"))
    sys.stderr.write(f"{path}: {size(len(text))}, open it in a browser\n")
