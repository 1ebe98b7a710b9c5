"""exhume uninstall: what exhume left on a node is listed, then removed."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from exhume.errors import EXIT_CRITICAL, EXIT_HEALTHY, Refused, UsageError
from exhume.host.quantities import size
from exhume.text import from_path, printable

if TYPE_CHECKING:
    from exhume.agent.leftovers import Left
    from exhume.host.root import Root

DESCRIPTION = """\
Lists what exhume left on this node beside its own program (recordings, settings, the agent's unit, the journal of what was
fixed), asks, and removes it; the agent is stopped first. Nothing that a package manager brought is touched, the program
itself neither.

It refuses while a fix is in force: without its journal nobody can undo it. Undo it first (exhume undo), keep the journal
(--keep-journal), or say that the fix is to stay for good (--leave-fixes).

With --cluster it is what agents have left at the nodes of a Kubernetes cluster: conditions, which nobody renews any more."""
EPILOG = """\
examples:
  sudo exhume uninstall                    list it, ask, remove it
  sudo exhume uninstall --dry-run          only list it
  sudo exhume uninstall --yes              for scripts
  sudo exhume uninstall --keep-recordings  settings and the unit go, what was recorded stays
  exhume uninstall --host /host --yes      from a container that has the host's / mounted at /host
  exhume uninstall --cluster --dry-run     what is left at the nodes of the cluster of KUBECONFIG

exit code: 0 done, 2 failed or refused, 3 could not, 64 wrong usage"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only list what would be removed")
    parser.add_argument("--keep-recordings", action="store_true", help="leave what was recorded")
    parser.add_argument("--keep-journal", action="store_true", help="leave the journal, so that fixes can be undone later")
    parser.add_argument("--leave-fixes", action="store_true", help="fixes that are in force stay for good")
    parser.add_argument("--host", default="/", metavar="DIR", help="the node whose / is mounted at DIR, or an image's root")
    parser.add_argument(
        "--cluster", action="store_true", help="node conditions that agents left in a cluster, after helm uninstall"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="with --cluster: context of the kubeconfig")
    parser.add_argument("--config", metavar="FILE", help="settings (default: EXHUME_CONFIG or /etc/exhume/exhume.toml)")


def run(args: argparse.Namespace) -> int:
    from exhume.agent import leftovers
    from exhume.cli.fix_confirm import agreed
    from exhume.remedy import journal
    from exhume.remedy.node import at

    if args.cluster:
        from exhume.cli import uninstall_cluster

        if args.host != "/" or args.keep_recordings or args.keep_journal:
            raise UsageError(
                "--cluster is about the nodes' objects: --host, --keep-recordings and --keep-journal do not go with it"
            )
        return uninstall_cluster.run(args)
    if not os.path.isdir(args.host):
        raise UsageError(f"--host {printable(from_path(args.host))} is not a directory")
    node = at(args.host)
    user = leftovers.user_state() if node.root.own else ""
    lefts = leftovers.found(node.root, args.keep_recordings, args.keep_journal, _elsewhere(args, node.root), user)
    if not lefts:
        print("exhume left nothing on this node.")
        return EXIT_HEALTHY
    _show(lefts)
    if not (args.keep_journal or args.leave_fixes):
        _refuse_fixes([one.identity for one in leftovers.not_undone(node)])
        if former := journal.former(node):
            raise Refused(f"{former}; --keep-journal leaves them, --leave-fixes removes them")
        _refuse_out(leftovers.out_of_service(node.root, user))
    if args.dry_run:
        print("Nothing was removed: this was a dry run.")
        return EXIT_HEALTHY
    if not args.yes and not agreed("Remove all of this?"):
        raise Refused("nothing was removed: say --yes to remove it")
    if node.manager is not None and leftovers.stop(node.manager):
        print(f"stopped {leftovers.UNIT}")
    if busy := leftovers.writers(node.root, lefts):
        raise Refused(f"{printable(from_path(busy[0]))} is being written to: stop that exhume first; nothing was removed")
    failed = 0
    for left, why in leftovers.remove(node.root, lefts):
        failed += bool(why)
        print(f"{'kept' if why else 'removed'} {printable(from_path(left.path))}{f': {why}' if why else ''}")
    if node.manager is not None:
        node.manager.reload()
        node.manager.reset_failed(leftovers.UNIT)
    print("The program itself stays: remove it as it was installed (pip uninstall exhume, the package manager, or the file).")
    return EXIT_CRITICAL if failed else EXIT_HEALTHY


def _refuse_fixes(identities: list[str]) -> None:
    if identities:
        raise Refused(
            f"{len(identities)} {'fix is' if len(identities) == 1 else 'fixes are'} not undone ({', '.join(identities[-3:])}): "
            "exhume undo brings back what was, --keep-journal keeps that possible, --leave-fixes makes it final"
        )


def _refuse_out(names: list[str]) -> None:
    """Nodes of a cluster that were taken out from here: their journals are beside the recordings."""
    if names:
        told = ", ".join(printable(name) for name in names[:3])
        raise Refused(
            f"{told} {'was' if len(names) == 1 else 'were'} taken out of service from here and not put back: exhume node "
            "release does that, --keep-journal keeps exhume undo possible, --leave-fixes makes it final"
        )


def _elsewhere(args: argparse.Namespace, root: "Root") -> list[str]:
    """Where the settings keep the recording, if not in the usual place. Settings that cannot be read name none."""
    from exhume.agent.settings import read
    from exhume.config import PATH
    from exhume.errors import ExhumeError

    usual = root.at(PATH)
    path = args.config or (None if root.own else usual)
    if path == usual and not os.path.exists(usual):
        return []
    try:
        return [read(path)[0].dir]
    except ExhumeError as error:
        sys.stderr.write(f"exhume: {error}; a recording that they keep elsewhere is not looked for\n")
        return []


def _show(lefts: "list[Left]") -> None:
    print("Left on this node by exhume:")
    for left in lefts:
        print(f"  {printable(from_path(left.path)):<48} {size(left.size_bytes):>10}  {left.what}")
