"""exhume fleet cohorts: what the sick nodes share that the healthy ones do not."""

import argparse
import sys
from typing import TYPE_CHECKING

from exhume.cli import fleet_engine
from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, EXIT_WARNING, UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.fleet.model import Fleet

DESCRIPTION = """\
What do the sick nodes share that the healthy ones do not? Every fact of the inventory is tried, and pairs of facts, by exact
tests that count how many were tried. What only goes along with the cause is named as that; nodes that were up too briefly to
be sick yet are not taken for healthy; after the first cause the rest is searched again.

Judged sick is a node that had 1,000 zombies and five times its live memory cgroups, three NIC resets, polls late for 0.1 % of
the time, or a core full of kernel time for 10 % of it, within what was seen."""
EPILOG = """\
examples:
  exhume lab fleet --nodes 500 -o fleet            a fleet to try it on
  exhume fleet cohorts fleet
  exhume fleet cohorts fleet -o cohorts.html       with pictures
  exhume fleet cohorts fleet --json | jq '.cohorts[0].facts'

exit code: 0 no node is sick; 1 some are, and nothing separates them from the others; 2 some are, and what they share is known;
3 nothing says whether any is"""
_CODES = {
    "healthy": EXIT_HEALTHY,
    "warning": EXIT_WARNING,
    "critical": EXIT_CRITICAL,
    "unknown": EXIT_CANNOT_JUDGE,
}


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.fleet.sources import FORMS

    forms = "\n".join(f"  {line}" for line in FORMS.splitlines())
    parser.description = f"{DESCRIPTION}\n\nSOURCE, one or several that are joined by node:\n{forms}"
    parser.epilog = EPILOG
    parser.add_argument("source", nargs="+", metavar="SOURCE", help="where the fleet is known")
    parser.add_argument(
        "--for", dest="window_ns", type=duration_ns, metavar="TIME", help="how far to look back (Prometheus: 7d)"
    )
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--json", action="store_true", help="print as JSON (schema exhume.cohorts/1)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write an HTML page with pictures, too")
    fleet_engine.arguments(parser)
    parser.add_argument("--level", type=float, default=1.0, metavar="PERCENT", help="chance of a false claim (1)")


def run(args: argparse.Namespace) -> int:
    import json

    from exhume.cli.fleet_text import health, render
    from exhume.cli.terminal import Style, width
    from exhume.fleet.cohorts import cohorts
    from exhume.fleet.cohorts_json import as_json

    if not 0 < args.level <= 50:
        raise UsageError("--level is in percent, above 0 and at most 50")
    if args.output:
        _write(args.output, "")  # what cannot be written is said now, not after the work
    fleet = _opened(args)
    found = cohorts(fleet, args.level / 100)
    if args.output:
        from exhume.fleet.cohorts_html import page

        _write(args.output, page(found))
    if args.json:
        sys.stdout.write(json.dumps(as_json(found), indent=1) + "\n")
        for trouble in fleet.troubles:
            sys.stderr.write(f"exhume: {printable(trouble, 400)}\n")
    else:
        sys.stdout.write(render(found, fleet.troubles, Style(sys.stdout), width(sys.stdout)))
    return _CODES[health(found)]


def _opened(args: argparse.Namespace) -> "Fleet":
    from exhume.cli.terminal import Progress
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.fleet import sources

    engine = fleet_engine.of(args)
    thresholds = section(load(args.config), "thresholds", Thresholds)
    progress = Progress("reading")
    try:
        window_s = args.window_ns / 1e9 if args.window_ns is not None else None
        return sources.open(*args.source, window_s=window_s, progress=progress, engine=engine, thresholds=thresholds)
    finally:
        progress.clear()


def _write(path: str, text: str) -> None:
    from exhume.cli.output import output

    with output(path) as out:
        out(text.encode("utf-8", "backslashreplace"))
