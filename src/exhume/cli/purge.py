"""exhume zombies purge: the plan, the question, the bites, the result."""

import argparse
import sys
from typing import TYPE_CHECKING

from exhume.cli.terminal import Progress, Style, width, wrap
from exhume.cli.zombies_text import size
from exhume.errors import ExhumeError, Unreadable
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.node.cgroups import Hierarchy
    from exhume.node.memcg_walk import MemcgWalk
    from exhume.node.root import Root
    from exhume.remedy.purge import Outcome, PurgePlan, Target

EXIT_REFUSED = 2


class Refused(ExhumeError):
    exit_code = EXIT_REFUSED


def purge(args: argparse.Namespace) -> int:
    from exhume.node.cgroups import layout
    from exhume.node.memcg_walk import walk
    from exhume.node.root import Root
    from exhume.remedy.purge import plan

    root = Root(args.host)
    hierarchy = layout(root).of("memory")
    if hierarchy is None or not hierarchy.whole:
        raise Unreadable("the root of the memory hierarchy is not visible here, so nothing can be purged; try --host")
    if not root.same_kernel():
        raise Unreadable(f"{args.host} is not of the running kernel: its zombies are out of reach")
    seen = walk()
    made = plan(root, hierarchy, seen, args.under, _has_swap(root))
    if args.json and args.dry_run:
        _print_json(made, ())
        return 0
    style, columns = Style(sys.stderr if args.json else sys.stdout), width(sys.stdout)
    if not args.json:
        sys.stdout.write(render_plan(made, style, columns))
        sys.stdout.flush()
    if args.dry_run or not made.targets:
        return 0
    refusals = made.refusals()
    if refusals and not args.accept_cache_loss:
        raise Refused(f"not purged: {printable('; '.join(refusals), 500)}; --accept-cache-loss does it all the same")
    if not args.yes and not _agreed():
        raise Refused("not purged: say --yes to do it; what cache is lost cannot be given back")
    outcomes = tuple(_purge(root, hierarchy, target, seen, args.accept_cache_loss) for target in made.targets)
    if args.json:
        _print_json(made, outcomes)
    else:
        sys.stdout.write(render_outcome(outcomes, style, columns))
    return 0 if all(one.gone >= 0.99 * one.zombies for one in outcomes) else EXIT_REFUSED


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Purge? [y/N] ").strip().lower() in ("y", "yes")


def _purge(root: "Root", hierarchy: "Hierarchy", target: "Target", seen: "MemcgWalk", accept: bool) -> "Outcome":
    from exhume.node.memcg_walk import walk
    from exhume.remedy.purge import ACCEPTED_LOSS, outcome
    from exhume.remedy.reclaim import Reclaimer, bites, quiet_core
    from exhume.remedy.usage import Usage, Zombies

    usage, zombies = Usage(root, hierarchy, target.watched), Zombies(root, hierarchy, target.home, target.zombies)
    most_lost = 1 << 62 if accept else int(target.cache_bytes * ACCEPTED_LOSS)
    progress = Progress(f"purging {printable(target.home, 40)}")
    ended, count = "", 0
    with Reclaimer(root, hierarchy.path + target.home, hierarchy.version, quiet_core(root)) as reclaimer:
        try:
            for left, why in bites(reclaimer, zombies.left, usage.lost, most_lost):
                count, ended = count + 1, why
                progress(1 - max(0, left) / target.zombies)
        finally:
            progress.clear()
    return outcome(target, walk(), usage.lost(), count, ended)


def _has_swap(root: "Root") -> bool:
    from exhume.node.root import key_values

    try:
        return dict(key_values(root.read("proc/meminfo", 1 << 16))).get("SwapTotal", 0) > 0
    except Unreadable:
        return True


def render_plan(plan: "PurgePlan", style: Style, columns: int) -> str:
    lines = [style(f"{plan.zombies:,} zombies can be let go without a reboot", "bold"), ""]
    how = "memory.force_empty, interrupted within milliseconds" if plan.version == 1 else "memory.reclaim, in small amounts"
    for target in plan.targets:
        lines.append(f"  {target.zombies:>9,}  reclaim from {printable(target.home, 60)} ({how})")
        lines.append(f"             they pin {size(target.pinned_bytes)} of page cache")
        groups = f"{target.live_groups:,} live group{'s' if target.live_groups != 1 else ''}"
        at_stake = f"{groups} below it hold {size(target.cache_bytes)} of cache"
        if target.swap_bytes:
            at_stake += f" and {size(target.swap_bytes)} that could be swapped"
        lines.append(f"             {at_stake}: it ends before they lose more than 5 % of it")
        if target.protected:
            lines.append(style(f"             protected: {printable(', '.join(target.protected), 80)}", "yellow"))
    if plan.left:
        lines += ["", "  These stay:"]
        for left in plan.left:
            text = f"{left.zombies:>9,}  in {printable(left.home, 40)}: {left.why}. {left.way}"
            lines += wrap(text, "  ", " " * 13, columns)
    return "\n".join([*lines, ""]) + "\n"


def render_outcome(outcomes: "tuple[Outcome, ...]", style: Style, columns: int) -> str:
    lines = []
    for one in outcomes:
        colour = "green" if one.gone >= 0.99 * one.zombies else "yellow"
        lines.append(style(f"  {one.gone:>9,}  of {one.zombies:,} gone from {printable(one.home, 60)}", colour))
        fell = size(max(0, one.lost_bytes))
        text = f"in {one.bites} bites; the live groups' memory fell by {fell}; it ended because: {one.ended}"
        lines += wrap(text, " " * 13, " " * 13, columns)
    return "\n".join(lines) + "\n"


def _print_json(plan: "PurgePlan", outcomes: "tuple[Outcome, ...]") -> None:
    import json

    document = {
        "schema": "exhume.purge/1",
        "targets": [
            {
                "path": target.home,
                "zombies": target.zombies,
                "pinned_bytes": target.pinned_bytes,
                "live_groups": target.live_groups,
                "cache_at_stake_bytes": target.cache_bytes,
                "swap_at_stake_bytes": target.swap_bytes,
                "protected": list(target.protected),
            }
            for target in plan.targets
        ],
        "left": [{"path": one.home, "zombies": one.zombies, "why": one.why, "way": one.way} for one in plan.left],
        "outcomes": [
            {
                "path": one.home,
                "zombies": one.zombies,
                "gone": one.gone,
                "lost_bytes": max(0, one.lost_bytes),
                "bites": one.bites,
                "ended": one.ended,
            }
            for one in outcomes
        ],
    }
    print(json.dumps(document, indent=1))
