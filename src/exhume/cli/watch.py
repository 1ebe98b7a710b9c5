"""exhume check --watch: look again and again, redraw, mark what changed."""

import argparse
import gc
import signal
import sys
from collections import deque

from exhume.cli.check import CODES, look, print_json
from exhume.cli.report_text import render, safe
from exhume.cli.terminal import Style, width, wrap
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report

# Changes that stay on the screen, so that one is not missed by looking away for a round.
_RECENT = 8
# Counts whose change is shown, of whichever kind has them.
_COUNTS = ("zombies", "live", "restarts", "resets", "defunct", "directories")


def watch(args: argparse.Namespace, thresholds: Thresholds) -> int:
    """Until Ctrl-C. On a terminal the screen is redrawn, elsewhere reports follow one another; JSON is one line a report."""
    before: Report | None = None
    recent: deque[tuple[str, str, str]] = deque(maxlen=_RECENT)
    code = 0
    asked = False

    def interrupted(*_: object) -> None:
        nonlocal asked
        asked = True  # an exception that comes while something is being finalised is lost; this is not
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, interrupted)
    try:
        while not asked:
            report = look(args, thresholds)
            code = CODES[report.health]
            if args.json:
                print_json(report, indent=None)
            else:
                if before is not None:
                    recent.extend(
                        (mark, colour, f"{report.end[11:19]} {what}") for mark, colour, what in changes(before, report)
                    )
                _draw(args, report, list(recent))
            before = report
            gc.collect()
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGINT, previous)
    return code


def _draw(args: argparse.Namespace, report: Report, recent: list[tuple[str, str, str]]) -> None:
    style = Style(sys.stdout)
    columns = width(sys.stdout)
    text = render(report, style, columns, args.verbose, args.evidence)
    lines = [style(f"exhume check --watch   {report.end}   {safe(report.node.hostname)}   Ctrl-C ends it", "dim"), "", text]
    for mark, colour, what in recent:
        lines += [style(line, colour) for line in wrap(safe(what), f"  {mark} ", "    ", columns)]
    if sys.stdout.isatty():
        sys.stdout.write("\x1b[H\x1b[2J")
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def changes(before: Report, after: Report) -> list[tuple[str, str, str]]:
    """(mark, colour, what) of everything that came, went or changed between two reports."""
    old = {(f.kind, f.subject): f for f in before.findings}
    new = {(f.kind, f.subject): f for f in after.findings}
    found = []
    if before.health != after.health:
        found.append(("!", "bold", f"was {before.health}, is {after.health}"))
    for key, finding in new.items():
        if key not in old:
            found.append(("+", "yellow", f"new: {finding.kind}: {finding.summary}"))
            continue
        if old[key].severity != finding.severity:
            found.append(("!", "yellow", f"{finding.kind} {finding.subject}: was {old[key].severity}, is {finding.severity}"))
        for name in _COUNTS:
            was, is_ = getattr(old[key].facts, name, None), getattr(finding.facts, name, None)
            if isinstance(was, int) and isinstance(is_, int) and was != is_:
                found.append(("~", "cyan", f"{finding.kind} {finding.subject}: {name} {is_ - was:+,} to {is_:,}"))
    for key, finding in old.items():
        if key not in new:
            found.append(("-", "green", f"gone: {finding.kind}: {finding.summary}"))
    return found
