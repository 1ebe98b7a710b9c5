"""exhume fix: the plan, the question, the change, the proof."""

import argparse
import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_CANNOT_JUDGE, EXIT_HEALTHY, ExhumeError, Refused, UsageError
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from exhume.diagnosis.report import Report
    from exhume.remedy.carry_out import Event, Outcome, Tell
    from exhume.remedy.node import Node
    from exhume.remedy.plan_model import Plan

DESCRIPTION = """\
Makes a plan of what would put the node right, prints it, and changes nothing. --apply carries it out, written down step by step
so that exhume undo brings back what was.

TARGET is a unit by any of its names, its file or its cgroup; a finding of the report, by its id or its kind; or `node`, which
is also what is meant without one: what the verdict blames. The report is a check of this node, or what --from names.

A unit is stopped gracefully, its links are removed, it is masked; then the zombies that it left are let go in place. The
kubelet, container runtimes, the ways in, the network, systemd's own units and exhume itself are never touched,
by whatever name."""
EPILOG = """\
examples:
  sudo exhume fix                                look, and print what would be done
  sudo exhume fix ecs.service                    the plan for one unit, with every change as a diff
  sudo exhume fix ecs.service --apply            ask, then do it; what cannot be undone is left out
  sudo exhume fix ecs.service --apply --yes --yes-irreversible --verify
  sudo exhume fix ecs.service --keep do-nothing  leave the unit in place, with nothing to run
  exhume fix --from report.json memcg-leak --json
  exhume fix ecs.service --host /mnt/image --for-image packer
  exhume fix --print-template kubelet
  sudo exhume fix --resume                       go on after an interruption

exit code: 0 done, printed, or nothing is to be done: the node was looked at and is healthy, or it is so already; 2 failed or
refused; 3 could not: nothing was seen, or nothing can be done here about what was seen; 64 wrong usage; with --verify that of
exhume verify"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.remedy.plan_unit import KEEPS
    from exhume.remedy.plan_zombies import REBOOTS
    from exhume.remedy.snippets import SNIPPETS

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("target", nargs="?", default="node", metavar="TARGET", help="a unit, a finding, or node (default)")
    parser.add_argument("--from", dest="report", metavar="REPORT", help="what check or diagnose --json printed, or a recording")
    parser.add_argument("--for", dest="window_ns", type=duration_ns, default="3s", metavar="TIME", help="how long to look (3s)")
    parser.add_argument("--keep", choices=KEEPS, help="break the loop by a drop-in and leave the unit in place")
    parser.add_argument("--reboot", choices=REBOOTS, default="no", help="where zombies stay that no purge reaches (no)")
    parser.add_argument(
        "--force", action="store_true", help="also what others need or the policy keeps; never what is protected"
    )
    parser.add_argument("--policy", metavar="FILE", help="the lifecycle policy: what it keeps is left alone")
    parser.add_argument("--apply", action="store_true", help="carry it out")
    parser.add_argument("--yes", action="store_true", help="confirm what can be undone")
    parser.add_argument("--yes-irreversible", action="store_true", help="confirm what cannot: purge, removal, reboot")
    parser.add_argument("--verify", action="store_true", help="prove it afterwards (exhume verify)")
    parser.add_argument(
        "--verify-for", dest="verify_ns", type=duration_ns, default="10m", metavar="TIME", help="how long that takes (10m)"
    )
    parser.add_argument("--resume", nargs="?", const="", metavar="ID", help="go on with what was interrupted")
    parser.add_argument(
        "--for-image", nargs="?", const="all", choices=("all", *SNIPPETS), help="the change for an image's recipe"
    )
    parser.add_argument("--print-template", metavar="NAME", help="a template to do it by hand; `list` lists them")
    parser.add_argument(
        "--host", "--root", default="/", metavar="DIR", help="the node whose / is mounted at DIR, or an image's root"
    )
    parser.add_argument("--json", action="store_true", help="print the plan as JSON (schema exhume.plan/1)")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")
    parser.add_argument("-v", "--verbose", action="store_true", help="also what each step needs and how it is undone")


def run(args: argparse.Namespace) -> int:
    if args.print_template is not None:
        from exhume.cli.fix_image import print_template

        return print_template(args.print_template)
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {printable(from_path(args.host))} is not a directory")
    if args.json and (args.apply or args.for_image or args.resume is not None):
        raise UsageError("--json prints a plan: it goes with neither --apply, --resume nor --for-image")
    if args.verify and not args.apply and args.resume is None:
        raise UsageError("--verify goes with --apply")
    if args.verify:
        from exhume.cli.fix_verify import asked

        asked(args)
    from exhume.remedy.node import at

    node = at(args.host)
    if args.resume is not None:
        return _resume(args, node)
    if not args.target:  # `fix "$UNIT"` with nothing in UNIT must not be a plan for the node
        raise UsageError("TARGET is empty: name a unit, a finding, or node")
    report = _report(args, args.target)
    plan = _plan(args, node, report)
    if args.for_image:
        from exhume.cli.fix_image import print_snippets

        return print_snippets(plan, args.for_image, node)
    if args.json:
        import json

        from exhume.remedy.plan_words import document

        print(json.dumps(document(plan, node), indent=1))
        return EXIT_HEALTHY if plan.steps else _nothing(plan, report)[1]
    return _show(args, plan, report, node)


def _show(args: argparse.Namespace, plan: "Plan", report: "Report | None", node: "Node") -> int:
    from exhume.cli.fix_text import render_plan
    from exhume.cli.terminal import Style, width

    style, columns = Style(sys.stdout), width(sys.stdout)
    sys.stdout.write(render_plan(plan, node, style, columns, args.verbose))
    sys.stdout.flush()
    if not plan.steps:
        said, code = _nothing(plan, report)
        sys.stdout.write(f"\n{said}\n")
        if code or not args.verify:
            return code
        from exhume.cli.fix_verify import verify

        return verify(args, node)
    if not args.apply:
        sys.stdout.write("\nNothing was changed. --apply carries it out.\n")
        return EXIT_HEALTHY
    return _apply(args, plan, node)


def _nothing(plan: "Plan", report: "Report | None") -> tuple[str, int]:
    """What it means that a plan has no steps, and the exit code that says it: only what was seen to be well is 0."""
    if plan.settled and (report is None or not plan.relief):
        return "Nothing is left to do.", EXIT_HEALTHY
    if report is None or report.health in ("warning", "critical"):
        left = "; what helps is above" if plan.relief else ""
        return f"Nothing was found that exhume could do here{left}.", EXIT_CANNOT_JUDGE
    if report.health == "healthy":
        return "The node was looked at and is healthy: nothing is to be done.", EXIT_HEALTHY
    return "Nothing could be judged: exhume check -v says what was not seen.", EXIT_CANNOT_JUDGE


def _plan(args: argparse.Namespace, node: "Node", report: "Report | None") -> "Plan":
    from exhume.config import load, section
    from exhume.diagnosis.findings.thresholds import Thresholds
    from exhume.host.directory import Directory
    from exhume.host.systemd.units import read_units
    from exhume.remedy.plan import Planner, Wishes
    from exhume.remedy.protected_plan import known_agents
    from exhume.remedy.protected_units import Protection
    from exhume.remedy.steps import expected

    thresholds = section(load(args.config), "thresholds", Thresholds)
    policy = None
    if args.policy:
        from exhume.cli.audit import read_policy

        policy = read_policy(args.policy)
    with ExitStack() as stack:
        tree = stack.enter_context(Directory(args.host))
        protection = Protection(read_units(tree), known_agents(), policy, node.manager, node.root)
        wishes = Wishes(args.keep, args.force, args.reboot, thresholds.zombies_floor)
        return expected(Planner(node, tree, protection, wishes).plan(args.target, report), node)


def _report(args: argparse.Namespace, target: str) -> "Report | None":
    """What was named, or, for the node itself, a look at it."""
    from exhume.cli.fix_report import from_file, from_node
    from exhume.remedy.plan_target import NODE, is_finding

    if args.report is not None:
        report = from_file(args)
        _same_node(args, report)
        return report
    if target == NODE and not os.path.exists(os.path.join(args.host, "proc/stat")):
        raise ExhumeError(
            f"{printable(from_path(args.host))} is not a running node, so that nothing can be seen of it: name a unit, or a "
            "report (--from)"
        )
    if target == NODE or (is_finding(target) and "-" in target):
        return from_node(args)
    return None


def _same_node(args: argparse.Namespace, report: "Report") -> None:
    """Another node's report may be read here, to see what would be done; what is done here must be for this one's own."""
    from exhume.host.cgroups import Tree
    from exhume.host.root import Root
    from exhume.sources.facts import facts

    root = Root(args.host)
    here = facts(root, Tree(root).layout)
    same_name = bool(report.node.hostname) and report.node.hostname == here.hostname
    same_boot = bool(report.node.boot_id) and report.node.boot_id == here.boot_id
    if report.node.hostname and here.hostname and not same_name:
        said = f"the report is of {printable(report.node.hostname)}, and this is {printable(here.hostname)}"
        if args.apply:
            raise Refused(f"{said}: carry it out there, or make a report here (exhume check --json)")
        sys.stderr.write(f"exhume: {said}\n")
    elif args.apply and not same_name and not same_boot:
        raise Refused("whether the report is of this node is not known: make one here (exhume check --json)")
    elif report.node.boot_id and here.boot_id and report.node.boot_id != here.boot_id:
        sys.stderr.write("exhume: the report is from before the last boot: what it counted may be gone\n")


def _apply(args: argparse.Namespace, plan: "Plan", node: "Node") -> int:
    from exhume.cli.fix_confirm import confirm
    from exhume.remedy import carry_out

    consent = confirm(plan, args.yes, args.yes_irreversible)
    sys.stdout.write("\n")
    return _carried(args, carry_out.apply(plan, node, consent, _teller()), plan, node)


def _resume(args: argparse.Namespace, node: "Node") -> int:
    from exhume.cli.fix_confirm import agreed
    from exhume.cli.history import not_read
    from exhume.remedy import carry_out
    from exhume.remedy.carry_out import Consent

    found = carry_out.find(node, args.resume) if args.resume else carry_out.pending(node)
    if found is None or found.status == "applied":
        sys.stdout.write(f"{f'{found.identity} is applied' if found else 'Nothing was interrupted'}: nothing is left to do.\n")
        return not_read(node)
    if not args.yes and not agreed(f"Go on with {found.identity} ({printable(found.plan.target)})?"):
        raise Refused("nothing was changed: say --yes to go on with it")
    irreversible = args.yes_irreversible or found.irreversible
    outcome = carry_out.resume(node, found.identity, Consent(True, irreversible), _teller())
    return _carried(args, outcome, found.plan, node)


def _teller() -> "Tell":
    from exhume.cli.fix_text import render_event
    from exhume.cli.terminal import Style, width

    style, columns = Style(sys.stdout), width(sys.stdout)

    def tell(event: "Event") -> None:
        sys.stdout.write(render_event(event, style, columns))
        sys.stdout.flush()

    return tell


def _carried(args: argparse.Namespace, outcome: "Outcome", plan: "Plan", node: "Node") -> int:
    from exhume.cli.fix_text import render_outcome
    from exhume.cli.terminal import Style, width

    style, columns, runs = Style(sys.stdout), width(sys.stdout), node.manager is not None
    sys.stdout.write(render_outcome(outcome, plan, style, columns, host=args.host, provable=runs))
    if outcome.exit_code or not args.verify:
        return outcome.exit_code
    from exhume.cli.fix_verify import verify

    return verify(args, node, outcome.identity)
