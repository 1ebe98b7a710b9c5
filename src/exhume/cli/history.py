"""exhume history: what was done to this node, by whom, why, and the proof."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_HEALTHY, UsageError
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from exhume.remedy.application import Application
    from exhume.remedy.node import Node

SCHEMA = "exhume.history/1"
DESCRIPTION = """\
Lists what exhume fix did to this node, the oldest first: when, by whom, why, what became of each step, and the proof that it
worked, where exhume verify made one. It is read from the node's own journal, /var/lib/exhume-remedy."""
EPILOG = """\
examples:
  sudo exhume history
  sudo exhume history --json | jq '.applications[-1].status'

exit code: 0 told, 3 some of it, or all, could not be read, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument(
        "--host", "--root", default="/", metavar="DIR", help="the node whose / is mounted at DIR, or an image's root"
    )
    parser.add_argument("--json", action="store_true", help=f"print as JSON (schema {SCHEMA})")


def run(args: argparse.Namespace) -> int:
    from exhume.cli.fix_text import render_history
    from exhume.cli.terminal import Style, width
    from exhume.remedy import carry_out
    from exhume.remedy.node import at

    if not os.path.isdir(args.host):
        raise UsageError(f"--host {printable(from_path(args.host))} is not a directory")
    node = at(args.host)
    every, unread = carry_out.readable(node)
    if args.json:
        import json

        print(json.dumps({"schema": SCHEMA, "applications": [_told(one) for one in every], "unread": unread}, indent=1))
    elif every or not unread:
        sys.stdout.write(render_history(every, Style(sys.stdout), width(sys.stdout)))
    sys.stdout.flush()
    for why in unread:
        sys.stderr.write(f"exhume: {why}\n")
    return max(not_read(node), EXIT_CANNOT_JUDGE if unread else EXIT_HEALTHY)


def not_read(node: "Node") -> int:
    """The exit code, with a sentence on stderr, where an earlier version left journals that are not read."""
    from exhume.remedy import journal

    if said := journal.former(node):
        sys.stderr.write(f"exhume: {said}\n")
        return EXIT_CANNOT_JUDGE
    return EXIT_HEALTHY


def _told(one: "Application") -> dict[str, object]:
    import time

    return {
        "id": one.identity,
        "status": one.status,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.time_ns // 10**9)),
        "by": one.by,
        "target": one.plan.target,
        "why": one.plan.why,
        "irreversible": one.irreversible,
        "steps": [
            {"kind": step.kind, "target": step.target, "reason": step.reason, "became": record.became, "note": record.note}
            for step, record in zip(one.plan.steps, one.steps, strict=True)
        ],
        "notes": [{"name": name, "value": value} for name, value in one.notes],
    }
