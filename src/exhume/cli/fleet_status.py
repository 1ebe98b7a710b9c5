"""exhume fleet status: which nodes are sick, which will be, and when."""

import argparse
import json
import sys

from exhume.cli.arguments import duration_ns
from exhume.errors import UsageError

DESCRIPTION = """\
Nodes ranked by how bad: the sick first, with why, how many zombies, how fast they come, in how many days they will hurt, and
resets of network devices; then nodes that are not sick and leak.

SOURCE, one or several that are joined by node (name, address, provider id, boot id):
"""
EPILOG = """\
examples:
  exhume fleet status http://prometheus:9090
  exhume fleet status http://prometheus:9090 k8s: inventory.csv --for 14d --top 50
  exhume fleet status /data/recordings --json | jq '.ranked[0]'

A token for Prometheus is read from the file that EXHUME_PROMETHEUS_TOKEN_FILE names.
exit code: 0 healthy, 1 some leak and will hurt within a week, 2 some are sick, 3 could not judge, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.fleet.sources import FORMS

    parser.description = DESCRIPTION + "\n".join(f"  {line}" for line in FORMS.splitlines())
    parser.epilog = EPILOG
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="where the fleet is known")
    parser.add_argument(
        "--for", dest="window_ns", type=duration_ns, metavar="TIME", help="how far to look back (Prometheus: 7d)"
    )
    parser.add_argument("--top", type=int, default=None, metavar="N", help="so many nodes, the worst (20; --json: all)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--json", action="store_true", help="the ranking as JSON (schema exhume.fleet-status/1)")


def run(args: argparse.Namespace) -> int:
    from exhume.cli.terminal import Progress
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.fleet import sources
    from exhume.fleet.status import as_json, status

    if args.top is not None and args.top < 1:
        raise UsageError("--top must be at least 1")
    thresholds = section(load(args.config), "thresholds", Thresholds)
    progress = Progress("reading")
    try:
        window_s = args.window_ns / 1e9 if args.window_ns is not None else None
        found = status(sources.open(*args.source, window_s=window_s, progress=progress, thresholds=thresholds))
    finally:
        progress.clear()
    if args.json:
        print(json.dumps(as_json(found, args.top), indent=1), flush=True)
        return found.exit_code
    from exhume.cli.fleet_status_text import render
    from exhume.cli.terminal import Style, width

    sys.stdout.write(render(found, Style(sys.stdout), width(sys.stdout), args.top or 20))
    return found.exit_code
