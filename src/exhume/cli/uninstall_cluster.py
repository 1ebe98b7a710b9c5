"""exhume uninstall --cluster: what agents that are gone have left at the nodes of a cluster."""

import argparse

from exhume.errors import EXIT_CRITICAL, EXIT_HEALTHY, Refused
from exhume.text import printable

_SHOWN = 10


def run(args: argparse.Namespace) -> int:
    from exhume.cli.fix_confirm import agreed
    from exhume.cluster import cleanup
    from exhume.cluster.client import connect
    from exhume.cluster.cordon import find_nodes
    from exhume.cluster.replies import ApiError

    with connect(args.context) as client:
        nodes = find_nodes(client)
        lefts = cleanup.left(nodes)
        if (out := cleanup.still_out(nodes)) and not args.leave_fixes:
            names = ", ".join(printable(name) for name in out[:3]) + (f" and {len(out) - 3} more" if len(out) > 3 else "")
            raise Refused(
                f"{names} {'is' if len(out) == 1 else 'are'} out of service by exhume: exhume node release puts a node back, "
                "--leave-fixes leaves it so"
            )
        if not lefts:
            print("exhume left nothing in this cluster.")
            return EXIT_HEALTHY
        print(f"Left by exhume at {len(lefts):,} of {len(nodes):,} nodes:")
        for one in lefts[:_SHOWN]:
            what = [*one.conditions, *(["the mark of a cordon that is over"] if one.mark else [])]
            print(f"  {printable(one.node, 60):<30} {', '.join(what)}")
        if len(lefts) > _SHOWN:
            print(f"  and {len(lefts) - _SHOWN:,} more")
        if args.dry_run:
            print("Nothing was removed: this was a dry run.")
            return EXIT_HEALTHY
        if not args.yes and not agreed("Remove all of this?"):
            raise Refused("nothing was removed: say --yes to remove it")
        failed = 0
        for one in lefts:
            try:
                cleanup.remove(client, one)
            except ApiError as error:
                failed += 1
                print(f"kept {printable(one.node, 60)}: {error}")
    print(f"removed from {len(lefts) - failed:,} nodes. An agent that still runs sets its conditions anew within five minutes.")
    return EXIT_CRITICAL if failed else EXIT_HEALTHY
