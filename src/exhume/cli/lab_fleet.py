"""exhume lab fleet: a fleet that never was, to try exhume fleet on."""

import argparse
import os
import sys
from pathlib import Path

from exhume.errors import EXIT_HEALTHY, ExhumeError, Refused, UsageError
from exhume.host.quantities import DAY, counted, duration, size
from exhume.text import from_path, printable

MOST_NODES, MOST_DAYS = 100_000, 90


def make(args: argparse.Namespace) -> int:
    from exhume.cli.terminal import Progress
    from exhume.lab.fleet import write
    from exhume.lab.fleet_facts import Settings

    if not args.output:
        raise UsageError("where to? exhume lab fleet -o DIR")
    if not 1 <= args.nodes <= MOST_NODES or not 1 <= args.days <= MOST_DAYS:
        raise UsageError(f"--nodes must be between 1 and {MOST_NODES:,}, --days between 1 and {MOST_DAYS}")
    if args.seed < 0:
        raise UsageError("--seed must not be negative")
    directory = Path(args.output)
    shown = printable(from_path(args.output))
    if directory.exists() and (not directory.is_dir() or os.listdir(directory)):
        raise Refused(f"{shown} is there already and is not an empty directory; choose another")
    progress = Progress("making")
    try:
        made = write(directory, Settings(args.nodes, args.days, args.seed, args.cause), progress)
    except OSError as error:
        raise ExhumeError(f"{shown} cannot be written: {error.strerror}") from None
    finally:
        progress.clear()
    written = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    if args.json:
        import json

        from exhume.lab.fleet import truth

        sys.stdout.write(json.dumps(truth(made), indent=1) + "\n")
    else:
        print(
            f"{shown}: {counted(args.nodes, 'node')}, {duration(args.days * DAY)} of minutes, jobs; {size(written)}. "
            "truth.json has the truth."
        )
    return EXIT_HEALTHY
