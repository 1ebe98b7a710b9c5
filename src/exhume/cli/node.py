"""exhume node: take a node of a Kubernetes cluster out of service, and put it back."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.cli.arguments import duration_ns
from exhume.errors import EXIT_HEALTHY, Refused, UsageError

if TYPE_CHECKING:
    from exhume.cluster.client import Client
    from exhume.cluster.document import Document
    from exhume.cluster.pods import Pod
    from exhume.remedy.node import Node
    from exhume.remedy.plan_model import Plan

DESCRIPTION = """\
Takes a node of a Kubernetes cluster out of service and puts it back. Each prints its plan and changes nothing without --apply;
what was done is written down, so that it can be resumed and undone.

  status                  nodes that are out by exhume's hand, and the conditions that its agent has set
  drain NODE              cordon, then evict its pods as their disruption budgets allow; with --reboot, on the node itself, also
                          that, the wait until it is Ready, and uncordon
  quarantine NODE         taint and cordon it, and keep it so, for study; what runs on it goes on
  release NODE            put it back; what somebody else cordoned stays cordoned

Daemon sets' and static pods are left. Pods annotated karpenter.sh/do-not-disrupt or safe-to-evict: "false" stop a drain, and so
do pods that nothing makes again and pods with emptyDir volumes, unless a flag says otherwise. On nodes with GPUs a drain waits
for running jobs to end by themselves."""
EPILOG = """\
examples:
  exhume node status
  exhume node drain gpu-17                                 what would happen to each pod
  exhume node drain gpu-17 --apply --yes --yes-irreversible --deadline 12h
  sudo exhume node drain gpu-17 --reboot now --apply       on the node itself; after the boot: --resume
  exhume node quarantine gpu-17 --why 'resets twice a day' --apply --yes
  exhume node release gpu-17 --apply --yes

The cluster is that of KUBECONFIG (--context), of the pod, or of ~/.kube/config.
exit code: 0 done (or printed), 2 failed or refused, 3 could not, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    from exhume.remedy.plan_cluster import REBOOTS

    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("do", choices=("status", "drain", "quarantine", "release"), help="what to do")
    parser.add_argument("name", nargs="?", default="", metavar="NODE", help="the node's name in the cluster")
    parser.add_argument("--context", default="", metavar="NAME", help="context of the kubeconfig")
    parser.add_argument("--why", default="", metavar="TEXT", help="written into the plan and its journal")
    parser.add_argument("--unmanaged", action="store_true", help="drain: also pods that nothing makes again")
    parser.add_argument("--empty-dir", action="store_true", help="drain: also pods whose emptyDir volumes are lost")
    idle = argparse.BooleanOptionalAction
    parser.add_argument("--when-idle", action=idle, default=None, help="drain: wait for jobs (default on nodes with GPUs)")
    parser.add_argument("--deadline", type=duration_ns, default="30m", metavar="TIME", help="drain: how long at most (30m)")
    parser.add_argument("--reboot", choices=REBOOTS, default="no", help="drain: then reboot this machine (no)")
    parser.add_argument("--max-at-once", type=int, default=1, metavar="N", help="drain: nodes out at once by exhume (1)")
    parser.add_argument(
        "--pause-when-failed", type=int, default=1, metavar="N", help="drain: stop when N did not come back (1)"
    )
    parser.add_argument("--apply", action="store_true", help="carry it out")
    parser.add_argument("--yes", action="store_true", help="confirm what can be undone")
    parser.add_argument("--yes-irreversible", action="store_true", help="confirm what cannot: evictions, reboot")
    parser.add_argument("--resume", action="store_true", help="go on with what was interrupted or ran out of time")
    parser.add_argument("--journal", metavar="DIR", help="root that the journal is kept below (on the node: /)")
    parser.add_argument("-v", "--verbose", action="store_true", help="also what each step needs and how it is undone")


def run(args: argparse.Namespace) -> int:
    if bool(args.name) == (args.do == "status"):
        raise UsageError("status takes no node" if args.name else f"exhume node {args.do} needs the name of a node")
    if args.max_at_once < 1 or args.pause_when_failed < 0:
        raise UsageError("--max-at-once must be 1 or more, and --pause-when-failed 0 or more")
    if args.reboot != "no" and args.journal is not None:
        raise UsageError("--reboot is of this machine, whose journal is its own: it does not go with --journal")
    from exhume.cluster.client import connect
    from exhume.cluster.cordon import read_node

    with connect(args.context) as client:
        if args.do == "status":
            return _status(client)
        found = read_node(client, args.name)
        node = _journal(args, found)
        if args.resume:
            return _resume(args, node)
        plan, pods = _plan(args, client, found)
    from exhume.cli.fix_confirm import confirm
    from exhume.cli.fix_text import render_plan
    from exhume.cli.terminal import Style, width
    from exhume.cluster.drain import refuse_blocked
    from exhume.remedy import carry_out

    sys.stdout.write(render_plan(plan, node, Style(sys.stdout), width(sys.stdout), args.verbose))
    unfinished = carry_out.pending(node) if args.do == "release" else None
    if unfinished is not None and unfinished.plan.target == args.name:
        raise Refused(
            f"{unfinished.identity} took {args.name} out of service and did not get to its end: "
            f"exhume undo {unfinished.identity} --host {node.root.path} puts it back, "
            f"exhume node drain {args.name} --resume goes on"
        )
    if not args.apply:
        sys.stdout.write("\nNothing was changed. --apply carries it out.\n")
        return EXIT_HEALTHY
    sys.stdout.flush()
    refuse_blocked(args.name, pods)
    return _carried(carry_out.apply(plan, node, confirm(plan, args.yes, args.yes_irreversible), _tell), plan, node)


def _plan(args: argparse.Namespace, client: "Client", found: "Document") -> "tuple[Plan, tuple[Pod, ...]]":
    """And the pods, so that a drain that one of them stands in the way of does not even begin."""
    from exhume.cluster.drain import pods_of
    from exhume.cluster.fleet_limits import FleetLimits
    from exhume.cluster.pods import Allowed, has_gpu
    from exhume.host.root import Root
    from exhume.remedy import plan_cluster

    if args.do == "quarantine":
        return plan_cluster.quarantine(args.name, args.why, "study"), ()
    if args.do == "release":
        return plan_cluster.release(args.name, args.why), ()
    idle = has_gpu(found) if args.when_idle is None else args.when_idle
    allowed = Allowed(args.unmanaged, args.empty_dir, idle)
    limits = FleetLimits(args.max_at_once, args.pause_when_failed)
    plan = plan_cluster.take_out(found, args.why, allowed, limits, args.deadline / 1e9, args.reboot, Root("/"))
    return plan, pods_of(client, args.name, allowed)


def _resume(args: argparse.Namespace, node: "Node") -> int:
    from exhume.cli.fix_confirm import agreed
    from exhume.remedy import carry_out

    found = carry_out.pending(node)
    if found is None or found.plan.target != args.name:
        raise UsageError(f"there is nothing to resume for {args.name}")
    if not args.yes and not agreed(f"Go on with {found.identity}?"):
        raise Refused("nothing was changed: say --yes to go on with it")
    consent = carry_out.Consent(True, args.yes_irreversible or found.irreversible)
    return _carried(carry_out.resume(node, found.identity, consent, _tell), found.plan, node)


def _journal(args: argparse.Namespace, found: "Document") -> "Node":
    """On the node itself its own journal; from elsewhere one for each node, so that one that is stuck holds up no other."""
    from dataclasses import replace

    from exhume.agent.leftovers import CLUSTER, user_state
    from exhume.cluster.client import connect
    from exhume.host.root import Root
    from exhume.remedy.node import at
    from exhume.remedy.plan_cluster import is_here

    place = args.journal
    if place is None and is_here(found, Root("/")):
        place = "/"
    if place is None:
        cluster = CLUSTER if os.geteuid() == 0 else os.path.join(user_state(), "cluster")
        place = os.path.join(cluster, args.name)
        for made in (os.path.dirname(cluster), cluster, place):  # makedirs has the mode for the last directory alone
            os.makedirs(made, mode=0o700, exist_ok=True)
    if not os.path.isdir(place):
        raise UsageError(f"--journal {place} is not a directory")
    return replace(at(place), cluster=lambda: connect(args.context))


def _tell(event: object) -> None:
    from exhume.cli.fix_text import render_event
    from exhume.cli.terminal import Style, width
    from exhume.remedy.carry_out import Event

    assert isinstance(event, Event)
    sys.stdout.write(render_event(event, Style(sys.stdout), width(sys.stdout)))
    sys.stdout.flush()


def _carried(outcome: object, plan: "Plan", node: "Node") -> int:
    from exhume.cli.fix_text import render_outcome
    from exhume.cli.terminal import Style, width
    from exhume.remedy.carry_out import Outcome

    assert isinstance(outcome, Outcome)
    style, columns, place = Style(sys.stdout), width(sys.stdout), node.root.path
    sys.stdout.write(render_outcome(outcome, plan, style, columns, host=place, provable=False))
    if place != "/":
        sys.stdout.write(f"The journal is below {place}: exhume undo and history take --host with it.\n")
    return outcome.exit_code


def _status(client: "Client") -> int:
    from exhume.cli.node_text import render_nodes
    from exhume.cluster.cordon import find_nodes

    sys.stdout.write(render_nodes(find_nodes(client)))
    return EXIT_HEALTHY
