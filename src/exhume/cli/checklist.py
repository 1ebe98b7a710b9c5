"""exhume checklist: an incident step by step, done or open, and what to type next."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.errors import EXIT_HEALTHY, EXIT_WARNING, ExhumeError

if TYPE_CHECKING:
    from exhume.remedy.proof_checklist import Checklist

DESCRIPTION = """\
Walks an incident with leaked memory cgroups through its steps and says of each whether it is done, by what evidence: the cgroup
version, the zombies by name, the cause (before anybody adds nodes, which inherit the leak), the audit of what starts by itself,
the culprit disabled, the zombies let go, ten minutes of validation, and the policy that keeps it from coming back.

It changes nothing. Evidence is the live node, the flight recorder's folder, what fix and verify have kept, and a kept audit, in
/var/lib/exhume. The first step that is open comes with the command to type."""
EPILOG = """\
examples:
  sudo exhume checklist
  sudo exhume checklist --policy policy.toml --markdown > incident.md
  exhume checklist --dir /data/rec --proof proof.json --json | jq .next

exit code: 0 every step is done, 1 some are open, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.cli.record import DEFAULT

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--dir", metavar="DIR", help=f"the flight recorder's recording ({DEFAULT}, of --host)")
    parser.add_argument("--audit", metavar="FILE", help="what exhume audit --json printed (/var/lib/exhume/audit.json)")
    parser.add_argument("--proof", metavar="FILE", help="what exhume verify --json printed (/var/lib/exhume/proof.json)")
    parser.add_argument("--policy", metavar="FILE", help="the lifecycle policy of the image")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print as JSON (schema exhume.checklist/2)")
    form.add_argument("--markdown", action="store_true", help="print as Markdown, with boxes to tick")
    parser.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")


def run(args: argparse.Namespace) -> int:
    made = _made(args)
    if args.json:
        import json

        from exhume.remedy.proof_checklist import as_json

        print(json.dumps(as_json(made), indent=1), flush=True)
    elif args.markdown:
        from exhume.cli.checklist_text import markdown

        sys.stdout.write(markdown(made))
    else:
        from exhume.cli.checklist_text import render
        from exhume.cli.terminal import Style, width

        sys.stdout.write(render(made, Style(sys.stdout), width(sys.stdout)))
    return EXIT_HEALTHY if made.next is None else EXIT_WARNING


def _made(args: argparse.Namespace) -> "Checklist":
    from exhume.cli.terminal import Progress
    from exhume.cli.verify import recorder_dir
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.host.root import Root
    from exhume.remedy.proof_checklist import checklist
    from exhume.remedy.proof_gathered import STATE, gathered

    if not os.path.isdir(os.path.join(args.host, "proc")):
        raise ExhumeError(f"{args.host} is not the root of a node: there is no {os.path.join(args.host, 'proc')}")
    thresholds = section(load(args.config), "thresholds", Thresholds)
    progress = Progress("looking")
    try:
        state = os.path.join(args.host, STATE.lstrip("/"))
        folder = args.dir if args.dir is not None else recorder_dir(args.host)
        known = gathered(Root(args.host), folder, thresholds, state, args.audit, args.proof, args.policy, progress)
    finally:
        progress.clear()
    return checklist(known, known.report.node.hostname if known.report is not None else os.uname().nodename)
