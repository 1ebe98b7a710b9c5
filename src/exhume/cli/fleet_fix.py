"""exhume fleet fix: the remedy in waves."""

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from exhume import budget
from exhume.cli import fleet_fix_job
from exhume.cli.arguments import duration_ns
from exhume.cli.fleet_fix_job import Way
from exhume.cli.terminal import Style
from exhume.errors import EXIT_CRITICAL, EXIT_HEALTHY, Refused, UsageError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.fleet.waves import Journal, Plan, Result

DESCRIPTION = """\
Rolls a remedy out over the sick nodes of a fleet: a canary first, then in waves, each node proven before the next ones begin,
stopped by the first that fails. Prints the plan and does nothing unless --apply is given.

--exec is the command for one node, run without a shell: {node} and {target} are filled in. It is taken for proven when it ends
with 0 and, where it prints a proof as JSON, that one passed. exhume fix --verify ends with 0 only if the proof passed; what it
needs to let zombies go without asking is --yes-irreversible.

--image is the other way: a Kubernetes Job for each node, pinned to it, privileged, with the node's root mounted, which runs
`exhume fix TARGET --host /host --apply --yes --verify` once and for a bounded time. It is made with your own credentials and
holds none. A Job whose node is fixed is deleted; one that failed stays for an hour."""
EPILOG = """\
examples:
  exhume fleet fix nodes.csv ecs.service \\
    --exec 'ssh {node} sudo exhume fix {target} --apply --yes --yes-irreversible --verify'
  exhume fleet fix http://prometheus:9090 ecs.service --exec '...' --at-most 5 --apply
  exhume fleet fix nodes.csv ecs.service --exec '...' --apply --resume     go on where it stopped
  exhume fleet fix k8s: ecs.service --image REGISTRY/exhume:0.1 --print-manifest
  exhume fleet fix k8s: ecs.service --image REGISTRY/exhume:0.1 --yes-irreversible --at-most 5 --apply

exit code: 0 every node is fixed, or the plan was printed; 2 one failed or was not proven, and the rest was left alone"""


_SHOWN = 6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("source", metavar="SOURCE", help="the fleet, as for `exhume fleet status`")
    parser.add_argument("target", metavar="TARGET", help="what is fixed on each node, as for `exhume fix`: a unit")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--exec", dest="command", metavar="COMMAND", help="how a node is fixed; with {node}")
    way.add_argument("--image", metavar="IMAGE", help="by a Job of Kubernetes that runs this image of exhume")
    parser.add_argument("--nodes", metavar="NAME,...", help="these nodes (those that are sick, the worst first)")
    parser.add_argument("--canary", type=int, default=1, metavar="N", help="nodes of the first wave (1)")
    parser.add_argument("--at-most", type=int, default=1, metavar="N", help="nodes at a time (1)")
    parser.add_argument(
        "--timeout", dest="timeout_ns", type=duration_ns, default="30m", metavar="TIME", help="for one node (30m)"
    )
    parser.add_argument("--journal", metavar="FILE", help="where what was done is written down (state directory of the user)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("--apply", action="store_true", help="carry it out")
    parser.add_argument("--resume", action="store_true", help="go on with what the journal has")
    parser.add_argument("--json", action="store_true", help="the plan, and what became of each node, as JSON")
    fleet_fix_job.arguments(parser)


def run(args: argparse.Namespace) -> int:
    from exhume.fleet import waves

    way = fleet_fix_job.of(args) if args.image is not None else _command(args)  # a mistake is told before anything is read
    journal = waves.Journal(args.journal or _default(args.target))
    if args.resume:
        if journal.plan is None:
            raise UsageError(f"there is nothing to go on with in {journal.path}")
        if (journal.plan.target, journal.plan.how) != (args.target, way.how):
            other = printable(journal.plan.how)
            raise Refused(f"{journal.path} is of another target or command: {other}; give another --journal")
        plan = journal.plan
    else:
        plan = waves.plan(args.target, way.how, _nodes(args), args.canary, args.at_most)
    if args.print_manifest:
        sys.stdout.write(way.manifests(plan.nodes))
        return EXIT_HEALTHY
    if not args.apply:
        _show_plan(args, plan, journal)
        return EXIT_HEALTHY
    way.check()
    if not args.resume:
        if journal.plan is not None:
            raise Refused(f"{journal.path} is of an earlier roll-out: go on with --resume, or give another --journal")
        os.makedirs(os.path.dirname(os.path.abspath(journal.path)), mode=0o700, exist_ok=True)
        journal.begin(plan)
    return _carry_out(args, plan, journal, way)


def _command(args: argparse.Namespace) -> Way:
    from exhume.fleet import waves_command

    fleet_fix_job.refuse_without_image(args)
    waves_command.arguments(args.command, "node", args.target)

    def fix(node: str) -> "Result":
        return waves_command.run(waves_command.arguments(args.command, node, args.target), node, args.timeout_ns / 1e9)

    return Way(args.command, fix)


def _nodes(args: argparse.Namespace) -> list[str]:
    if args.nodes:
        return [name.strip() for name in args.nodes.split(",") if name.strip()]
    from exhume.cli.terminal import Progress
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.fleet import sources

    progress = Progress("reading")
    try:
        thresholds = section(load(args.config), "thresholds", Thresholds)
        with budget.enforced():
            fleet = sources.open(args.source, progress=progress, thresholds=thresholds)
    finally:
        progress.clear()
    sick = sorted((node for node in fleet.nodes if node.sick), key=lambda node: (-node.badness, node.name))
    return [node.name for node in sick]


def _default(target: str) -> str:
    base = os.environ.get("XDG_STATE_HOME", "")
    base = base if os.path.isabs(base) else os.path.expanduser("~/.local/state")
    name = "".join(c if c.isalnum() or c in ".-_@" else "_" for c in target)[:100]
    return os.path.join(base, "exhume", f"fleet-fix-{name}.jsonl")


def _show_plan(args: argparse.Namespace, plan: "Plan", journal: "Journal") -> None:
    if args.json:
        print(json.dumps({"schema": "exhume.waves/1", "target": plan.target, "waves": plan.waves, "at_most": plan.at_most}))
        return
    if not plan.nodes:
        print("No node is sick: there is nothing to fix.")
        return
    print(f"{plan.target} on {len(plan.nodes)} nodes in {len(plan.waves)} waves, at most {plan.at_most} at a time:\n")
    for number, wave in enumerate(plan.waves[:_SHOWN], 1):
        shown = ", ".join(wave[:8]) + (f" and {len(wave) - 8} more" if len(wave) > 8 else "")
        print(f"  {'canary' if number == 1 else f'wave {number}':<8} {shown}")
    if left := plan.waves[_SHOWN:]:
        print(f"  and {sum(map(len, left)):,} nodes in {len(left)} more waves (--json has all)")
    print(f"\nFor each: {printable(plan.how, 400)}")
    print(f"Nothing was done. --apply carries it out; what is done is written to {journal.path}")


def _carry_out(args: argparse.Namespace, plan: "Plan", journal: "Journal", way: Way) -> int:
    from exhume.cli.stopping import Stopping
    from exhume.fleet import waves

    style = Style(sys.stderr)

    def told(result: waves.Result) -> None:
        colour = "green" if result.outcome == "fixed" else "red"
        done = sum(each.outcome == "fixed" for each in journal.results.values())
        count = f"({done} of {len(plan.nodes)})"
        sys.stderr.write(f"{style(result.outcome, colour):<8} {result.node}  {printable(result.said, 300)}  {count}\n")

    with Stopping() as stopping:
        good = waves.carry_out(plan, journal, way.fix, told, stopping)
    left = [node for node in plan.nodes if node not in journal.results]
    if args.json:
        results = [{"node": r.node, "outcome": r.outcome, "said": r.said} for r in journal.results.values()]
        print(json.dumps({"schema": "exhume.waves/1", "target": plan.target, "passed": good, "results": results, "left": left}))
    elif good:
        print(f"Fixed: all {len(plan.nodes)} nodes.")
    else:
        print(f"Stopped: {len(left)} nodes were left alone. {journal.path} has what was done; --resume goes on from there.")
    return EXIT_HEALTHY if good else EXIT_CRITICAL
