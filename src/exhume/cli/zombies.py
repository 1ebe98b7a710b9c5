"""exhume zombies: name every zombie memory cgroup, say what pins it, free it without a reboot."""

import argparse
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.diagnosis.zombies import ZombieReport

DESCRIPTION = """\
Names every zombie (dying) memory cgroup: where it lived, whose it was, what pins it, what it costs.

A zombie is a memory cgroup whose directory is gone while something is still charged to it. No file of the kernel names
them; exhume walks the kernel's own tree with a small BPF program, a few dozen groups at a time, changing nothing. Where
BPF, BTF or the privilege is missing it counts by directory (cgroup v2) or for the node, and says so."""
EPILOG = """\
examples:
  sudo exhume zombies                    by where they lived
  sudo exhume zombies --follow 30s       the leak's rate, and how long until it hurts
  sudo exhume zombies --json | jq '.groups[0]'
  sudo exhume zombies --watch
  sudo exhume zombies purge --dry-run    what can be freed, and at what cost to live groups
  sudo exhume zombies purge --under /system.slice --yes

purge evicts the page cache that pins the zombies, file by file, unless live groups use it. What eviction does not reach
(pages that programs have mapped, file systems that cannot be asked) is reclaimed from the live directory above. The plan
says how much live groups lose by each part at the most, and the purge keeps to that. Parts whose loss is not bounded need
--accept-cache-loss. Dropped page cache is read from the disk again when it is needed; nothing else is changed.
While a core is starved the purge is refused, because the kernel would wait for that core.

exit code: 0 done, 2 refused or not all gone, 3 nothing could be counted"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("action", nargs="?", choices=["purge"], help="free them without a reboot")
    parser.add_argument("--json", action="store_true", help="print as JSON (schema exhume.zombies/1 or exhume.purge/2)")
    parser.add_argument("--watch", action="store_true", help="look again every few seconds, redraw")
    parser.add_argument("--follow", dest="follow_ns", type=duration_ns, metavar="TIME", help="watch them come for so long")
    parser.add_argument("--baseline", type=int, metavar="N", help="zombies that one place may have without suspicion (50)")
    parser.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    purge = parser.add_argument_group("purge")
    purge.add_argument("--under", default="/", metavar="PATH", help="only zombies below PATH, from the hierarchy's root")
    purge.add_argument("--dry-run", action="store_true", help="show the plan, do nothing")
    purge.add_argument("--yes", action="store_true", help="do it without asking")
    purge.add_argument("--accept-cache-loss", action="store_true", help="also do what takes page cache from live groups")


def run(args: argparse.Namespace) -> int:
    import os
    from dataclasses import replace

    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds

    if args.follow_ns is not None and not 10**9 <= args.follow_ns <= 3600 * 10**9:
        raise UsageError("--follow must be between 1s and 1h")
    if args.baseline is not None and args.baseline < 0:
        raise UsageError("--baseline must not be negative")
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {args.host!r} is not a directory; mount the host's / there")
    if args.action == "purge":
        from exhume.cli.purge import purge

        if not args.under.startswith("/"):
            raise UsageError(f"--under {args.under}: a path from the root of the memory hierarchy begins with /")
        if args.under != "/" and any(part in ("", ".", "..") for part in args.under.split("/")[1:]):
            raise UsageError(f"--under {printable(args.under)}: say the path without //, . and .., and without / at its end")
        return purge(args)
    thresholds = section(load(args.config), "thresholds", Thresholds)
    if args.baseline is not None:
        thresholds = replace(thresholds, zombies_baseline=args.baseline)
    while True:
        report = look(args, thresholds)
        show(args, report)
        if not args.watch:
            return 0
        import gc
        import time

        gc.collect()
        time.sleep(0 if args.follow_ns else 5)


def look(args: argparse.Namespace, thresholds: "Thresholds") -> "ZombieReport":
    from exhume.cli.terminal import Progress
    from exhume.diagnosis.zombies import zombie_report
    from exhume.host.root import Root
    from exhume.recorder.recorder import record_zombies

    progress = Progress("following")
    try:
        recording = record_zombies(Root(args.host), args.follow_ns or 0, progress if args.follow_ns else None)
    finally:
        progress.clear()
    return zombie_report(recording, thresholds)


def show(args: argparse.Namespace, report: "ZombieReport") -> None:
    if args.json:
        import json

        from exhume.diagnosis.zombies import as_json

        print(json.dumps(as_json(report), indent=None if args.watch else 1), flush=True)
        return
    from exhume.cli.terminal import Style, width
    from exhume.cli.zombies_text import render

    if args.watch and sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    sys.stdout.write(render(report, Style(sys.stdout), width(sys.stdout)))
    sys.stdout.flush()
