"""exhume fleet correlate: how much of the throttling of containers does kernel reclaim explain?"""

import argparse
import json
import sys
from datetime import UTC, datetime

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_CANNOT_JUDGE, UsageError

DESCRIPTION = """\
Says which share of the throttling of containers goes along with kernel reclaim, beyond what chance and the rhythm of the day
bring together anyway; with an interval, for all nodes and for each.

A query that shows both at once shows that both were there. Here reclaim is shifted in time, by whole days where there are
three of them or more: what still coincides then is chance, and only what coincides beyond it is told as explained.

SOURCE is a Prometheus (http://HOST:9090: the kubelet's throttling or the agent's, node_exporter's reclaim or the agent's), a
directory with minutes as docs/fleet.md has them, or one with recordings."""
EPILOG = """\
examples:
  exhume fleet correlate http://prometheus:9090 --namespace 'training-.*' --for 14d
  exhume fleet correlate http://prometheus:9090 --to 2026-11-02T12:00Z --for 7d --json
  exhume fleet correlate fleet

exit code: 0 done, 3 could not, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("source", metavar="SOURCE", help="where the past of the fleet is known")
    parser.add_argument(
        "--for", dest="window_ns", type=duration_ns, default="7d", metavar="TIME", help="how far to look back (7d)"
    )
    parser.add_argument("--to", type=_moment, metavar="TIME", help="until when, as 2026-11-02T12:00Z (now, or the last minute)")
    parser.add_argument("--step", dest="step_ns", type=duration_ns, default="2m", metavar="TIME", help="of Prometheus (2m)")
    parser.add_argument("--namespace", default="", metavar="REGEX", help="containers of these namespaces (Prometheus only)")
    parser.add_argument("--above", type=float, default=100.0, metavar="N", help="pages scanned a second that are reclaim (100)")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="so many nodes (10; --json: all)")
    parser.add_argument("--json", action="store_true", help="as JSON (schema exhume.correlation/1)")


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a moment: say it as 2026-11-02T12:00Z") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def run(args: argparse.Namespace) -> int:
    from exhume.cli.terminal import Progress
    from exhume.fleet.correlate import correlate
    from exhume.fleet.correlate_tracks import Asked, open_tracks
    from exhume.fleet.correlate_words import as_json

    if not args.above >= 0 or args.above == float("inf"):
        raise UsageError("--above must be a number of pages a second, 0 or more")
    if args.top < 1:
        raise UsageError("--top must be at least 1")
    if args.step_ns < 10**9 or args.window_ns < 60 * args.step_ns:
        raise UsageError("--step must be a second or more, and --for at least 60 steps")
    progress = Progress("reading")
    try:
        asked = Asked(args.window_ns / 1e9, args.step_ns / 1e9, args.to, args.namespace)
        tracks = open_tracks(args.source, asked, progress)
    finally:
        progress.clear()
    found = correlate(tracks.tracks, tracks.step_s, args.above)
    if args.json:
        print(json.dumps(as_json(found, tracks.source, tracks.troubles), indent=1), flush=True)
    else:
        from exhume.cli.fleet_correlate_text import render
        from exhume.cli.terminal import Style, width

        sys.stdout.write(render(found, tracks.troubles, Style(sys.stdout), width(sys.stdout), args.top))
    return 0 if found.overall.explained is not None else EXIT_CANNOT_JUDGE
