"""exhume check: a node's health in seconds."""

import argparse
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_CRITICAL, EXIT_HEALTHY, EXIT_WARNING, UsageError

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.diagnosis.report import Report

DESCRIPTION = """\
Looks at the node for a few seconds and says whether it starves, why, and what to do next.

It reads what the kernel offers (cores, memory cgroups, reclaim, pressure, throttling, network queues, kernel log, systemd,
processes), changes nothing, and never reads the statistics files that make an old kernel walk its zombie cgroups.
Root sees most; without it there are fewer sources, and the last line says which."""
EPILOG = """\
examples:
  sudo exhume check                      three seconds, one screen
  sudo exhume check --for 30s -v         longer, with every finding and what each source cost
  sudo exhume check --json | jq .verdict
  sudo exhume check --watch              stay, and mark what changes; Ctrl-C ends it
  exhume check --host /host              inside a container that has the host's / mounted at /host
  exhume check --npd MemoryCgroupLeak    one line of 80 bytes, for node-problem-detector (deploy/npd)

exit code: 0 healthy, 1 warning, 2 critical, 3 could not judge; with --npd 0 no problem, 1 a problem, 2 not known"""

CODES = {"healthy": EXIT_HEALTHY, "warning": EXIT_WARNING, "critical": EXIT_CRITICAL, "unknown": EXIT_CANNOT_JUDGE}
SHORTEST_NS, LONGEST_NS = 200_000_000, 600_000_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--for", dest="window_ns", type=duration_ns, default="3s", metavar="TIME", help="how long to look (3s)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON (schema exhume.report/2)")
    parser.add_argument("--npd", nargs="?", const="any", metavar="CONDITION", help="as a plugin of node-problem-detector")
    parser.add_argument("--watch", action="store_true", help="go on looking, redraw, mark what changed")
    parser.add_argument("--host", default="/", metavar="DIR", help="judge the node whose / is mounted at DIR")
    parser.add_argument("--log-root", metavar="DIR", help="take the kernel's log from DIR/dev/kmsg (as exhume lab makes it)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("-v", "--verbose", action="store_true", help="every finding, everything ruled out, every source")
    parser.add_argument("--evidence", action="store_true", help="every number behind a finding, with its source")


def run(args: argparse.Namespace) -> int:
    import os

    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    if not SHORTEST_NS <= args.window_ns <= LONGEST_NS:
        raise UsageError("--for must be between 200ms and 10m")
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {args.host!r} is not a directory; mount the host's / there")
    if not os.path.isdir(os.path.join(args.host, "proc")):
        sys.stderr.write(f"exhume: {args.host} has no proc: mount the host's / there with everything below it (rbind)\n")
    thresholds = section(load(args.config), "thresholds", Thresholds)
    if args.watch and args.npd is None:
        from exhume.cli.watch import watch

        return watch(args, thresholds)
    if args.npd is not None:
        return _plugin(args, thresholds)
    report = look(args, thresholds)
    if args.json:
        print_json(report)
    else:
        from exhume.cli.report_text import render
        from exhume.cli.terminal import Style, width

        sys.stdout.write(render(report, Style(sys.stdout), width(sys.stdout), args.verbose, args.evidence))
    return CODES[report.health]


def _plugin(args: argparse.Namespace, thresholds: "Thresholds") -> int:
    from exhume.cli import npd_text

    if args.json or args.watch:
        raise UsageError("--npd is a form of its own: it goes with neither --json nor --watch")
    condition = npd_text.checked(args.npd)
    code, line = npd_text.line(look(args, thresholds), condition)
    print(line)
    return code


def look(args: argparse.Namespace, thresholds: "Thresholds") -> "Report":
    """One look at the node: record, then judge."""
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.judge import judge
    from exhume.host.root import Root
    from exhume.recorder.profiles import CHECK
    from exhume.recorder.recorder import record

    progress = Progress("looking")
    try:
        log = Root(args.log_root) if args.log_root else None
        recording = record(Root(args.host), CHECK, args.window_ns, progress, log=log)
    finally:
        progress.clear()
    return judge(recording, thresholds)


def print_json(report: "Report", indent: int | None = 1) -> None:
    import json

    from exhume.diagnosis.report import as_json

    print(json.dumps(as_json(report), indent=indent), flush=True)
