"""exhume fleet jobs: which jobs the starvation killed."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from exhume.cli import fleet_engine
from exhume.errors import EXIT_HEALTHY, UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.fleet.jobs import Estimate, Explained

DESCRIPTION = """\
Joins the outcomes of jobs with what happened on their nodes just before they ended: how many failures the starvation explains,
beyond what chance would bring, and what a fix would gain, in jobs and in GPU-hours, with an interval.

SOURCE is a directory with minutes/*.parquet and jobs.parquet (or .csv, .jsonl), as docs/fleet.md has them.
JOBS, if they are elsewhere:
"""
EPILOG = """\
examples:
  exhume lab fleet --nodes 500 -o fleet && exhume fleet jobs fleet
  exhume fleet jobs fleet --jobs outcomes.csv --json
  exhume fleet jobs fleet --jobs ray:http://ray-head:8265 --pods pods.json
  kubectl get pods,jobs,rayjobs -A -o json >pods.json && exhume fleet jobs fleet --jobs pods.json
  exhume fleet jobs fleet --engine ray --ray-address ray-head:6379

A token for Ray's dashboard is read from the file that EXHUME_RAY_TOKEN_FILE or RAY_AUTH_TOKEN_PATH names.
exit code: 0 done, 3 could not"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.fleet.jobs_sources import FORMS

    parser.description = DESCRIPTION + "\n".join(f"  {line}" for line in FORMS.splitlines())
    parser.epilog = EPILOG
    parser.add_argument("source", metavar="SOURCE", help="a directory with the minutes of the nodes")
    parser.add_argument("--jobs", metavar="JOBS", default="", help="outcomes of jobs, see above (those of the directory)")
    parser.add_argument("--pods", metavar="FILE", default="", help="pods of the Ray cluster (kubectl get pods -A -o json)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--json", action="store_true", help="as JSON (exhume.jobs/1)")
    fleet_engine.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from exhume.cli.terminal import Progress
    from exhume.config import load as settings
    from exhume.config import section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.fleet import jobs_sources
    from exhume.fleet.jobs import as_json, explain
    from exhume.fleet.jobs_directory import load

    engine = fleet_engine.of(args)
    if args.pods and not args.jobs.startswith(jobs_sources.RAY):
        raise UsageError("--pods goes with --jobs ray:ADDRESS: it says on which machines the pods of a Ray cluster are")
    thresholds = section(settings(args.config), "thresholds", Thresholds)
    progress = Progress("reading")
    try:
        given = jobs_sources.read(args.jobs, progress) if args.jobs else None
        progress.clear()
        rows = None if given is None else jobs_sources.placed(given[0], args.pods) if args.pods else given[0]
        told = explain(load(args.source, args.jobs, thresholds, rows, engine, progress))
    finally:
        progress.clear()
    for trouble in given[1] if given is not None else ():
        sys.stderr.write(f"exhume: {printable(trouble, 400)}\n")
    print(json.dumps(as_json(told)) if args.json else render(told))
    return EXIT_HEALTHY


def render(told: "Explained") -> str:
    if not told.jobs:
        return "No job of which both the end and the nodes are known."
    killed, hours, after = told.killed, told.gpu_hours, told.success_after
    lines = [
        f"{told.jobs:,} jobs, {told.failed:,} failed: {told.success:.1%} succeeded",
        "",
        f"  on healthy nodes   {_rate(told.healthy)}",
        f"  on sick nodes      {_rate(told.sick)}",
        "",
        f"  {told.near:,} failures came soon after a stall or a reset on one of their nodes, {told.by_chance:,.0f} by chance",
    ]
    if killed.low > 0:
        lines += [
            f"  starvation killed {_range(killed)} jobs, and {_range(hours)} GPU-hours of their work",
            f"  {max(0.0, told.failed - killed.value):,.0f} failures it does not explain",
            f"  without it {after.value:.1%} would have succeeded ({after.low:.1%} to {after.high:.1%})",
        ]
    else:
        lines.append("  that is no more than chance brings: nothing shows that starvation killed jobs")
    if told.errors:
        lines += ["", "  what failures say they died of         near a stall    all"]
        lines += [f"  {printable(text, 36):<38} {near:>12,} {every:>6,}" for text, near, every in told.errors]
    if told.untold:
        lines += ["", f"  {told.untold:,} failures were on nodes that suffer all the time: nothing can be said of these"]
    if told.left_out:
        lines += ["", f"  {told.left_out:,} jobs ran on nodes of which nothing is known at that time: left out"]
    return "\n".join(lines)


def _rate(counted: tuple[int, int]) -> str:
    jobs, well = counted
    return f"{well / jobs:.1%} of {jobs:,} jobs succeeded" if jobs else "no jobs"


def _range(each: "Estimate") -> str:
    return f"{each.value:,.0f} ({each.low:,.0f} to {each.high:,.0f})"
