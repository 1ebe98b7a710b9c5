"""exhume undo: bring back what was before a fix."""

import argparse
import os
import sys

from exhume.errors import Refused, UsageError
from exhume.text import from_path, printable

DESCRIPTION = """\
Brings back what was before exhume fix changed it: files and links byte for byte with their owners, modes and times, then
systemd reads them again, then units that ran are started and units that did not are stopped. What somebody else has changed
since is kept as it is, and said. A fix that was interrupted is undone as well, from wherever it got to.

A purge, a removed cgroup and a reboot cannot be undone; they are named."""
EPILOG = """\
examples:
  sudo exhume undo                        the last one that is not undone
  sudo exhume undo 20260131-120431 --yes
  sudo exhume history                     their names

exit code: 0 done, or nothing is left to undo, 2 something was kept or refused, 3 could not, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("id", nargs="?", metavar="ID", help="which one (default: the last that is not undone)")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument(
        "--host", "--root", default="/", metavar="DIR", help="the node whose / is mounted at DIR, or an image's root"
    )


def run(args: argparse.Namespace) -> int:
    from exhume.cli.fix_confirm import agreed
    from exhume.cli.fix_text import render_event, render_outcome
    from exhume.cli.history import not_read
    from exhume.cli.terminal import Style, width
    from exhume.remedy import carry_out
    from exhume.remedy.node import at

    if not os.path.isdir(args.host):
        raise UsageError(f"--host {printable(from_path(args.host))} is not a directory")
    if args.id == "":
        raise UsageError("ID is empty: exhume history lists them, and without one it is the last")
    node = at(args.host)
    found = carry_out.find(node, args.id) if args.id else carry_out.last(node)
    if found is None or found.status == "undone":
        said = f"{found.identity} is undone already." if found else "There is nothing to undo on this node."
        sys.stdout.write(f"{said}\n")
        return not_read(node)
    if not args.yes and not agreed(f"Undo {found.identity} ({printable(found.plan.target)}, {found.status})?"):
        raise Refused("nothing was changed: say --yes to undo it")
    style, columns = Style(sys.stdout), width(sys.stdout)

    def tell(event: carry_out.Event) -> None:
        sys.stdout.write(render_event(event, style, columns))
        sys.stdout.flush()

    outcome = carry_out.undo(node, found.identity, tell)
    sys.stdout.write(render_outcome(outcome, found.plan, style, columns, undone=True))
    return outcome.exit_code
