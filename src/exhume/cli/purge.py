"""exhume zombies purge: the plan, the question, eviction, bites, the result."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exhume.cli.terminal import Progress, Style, width, wrap
from exhume.cli.zombies_text import size
from exhume.errors import ExhumeError
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.remedy.evict import Evicted
    from exhume.remedy.purge import Outcome, PurgePlan

EXIT_REFUSED = 2


class Refused(ExhumeError):
    exit_code = EXIT_REFUSED


def purge(args: argparse.Namespace) -> int:
    from exhume.node.root import Root
    from exhume.remedy.purging import Purging

    with Purging(Root(args.host), args.under) as purging:
        made = purging.plan
        nothing = args.dry_run or not made.targets
        style, columns = Style(sys.stderr if args.json else sys.stdout), width(sys.stdout)
        if not args.json:
            sys.stdout.write(render_plan(made, style, columns))
            sys.stdout.flush()
        elif nothing:
            _print_json(made)
        if nothing:
            return 0
        refusals = made.refusals()
        if refusals and not made.by_file and not args.accept_cache_loss:
            raise Refused(f"not purged: {printable('; '.join(refusals), 500)}; --accept-cache-loss does it all the same")
        if not args.yes and not _agreed():
            raise Refused("not purged: say --yes to do it; what cache is lost cannot be given back")
        with _showing("evicting the pages that pin zombies") as progress:
            evicted = purging.evict(progress)
    outcomes = []
    for target in made.targets:
        with _showing(f"purging {printable(target.home, 40)}") as progress:
            outcomes.append(purging.reclaim(target, args.accept_cache_loss, progress))
    if args.json:
        _print_json(made, tuple(outcomes), evicted)
    else:
        sys.stdout.write(render_outcome(tuple(outcomes), evicted, style, columns))
    return 0 if all(one.gone >= 0.99 * one.zombies for one in outcomes) else EXIT_REFUSED


@contextmanager
def _showing(what: str) -> Iterator[Progress]:
    progress = Progress(what)
    try:
        yield progress
    finally:
        progress.clear()


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Purge? [y/N] ").strip().lower() in ("y", "yes")


def render_plan(plan: "PurgePlan", style: Style, columns: int) -> str:
    lines = [style(f"{plan.zombies:,} zombies can be let go without a reboot", "bold"), ""]
    how = "memory.force_empty, interrupted within milliseconds" if plan.version == 1 else "memory.reclaim, in small amounts"
    for target in plan.targets:
        home = printable(target.home, 60)
        if target.by_file:
            lines.append(f"  {target.by_file:>9,}  in {home}: evict the pages that pin them; no live group loses any")
        if target.by_reclaim:
            lines.append(f"  {target.by_reclaim:>9,}  reclaim from {home} ({how})")
        lines.append(f"             they pin {size(target.pinned_bytes)} of page cache")
        if not target.by_reclaim:
            continue
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
    if named := [file for file in plan.files if file.path]:
        lines += ["", "  On tmpfs, these files pin the most:"]
        for file in named:
            held = f", open in {printable(file.holder, 40)}" if file.holder else ""
            gone = ", deleted" if file.deleted else ""
            text = f"{file.zombies:>9,}  {printable(file.path, 80)} ({size(file.size_bytes)}{gone}{held})"
            lines += wrap(text, "  ", " " * 13, columns)
    elif plan.files:
        lines += ["", "  The tmpfs files that pin them could not be named from here: they are mounted elsewhere, or nowhere"]
    return "\n".join([*lines, ""]) + "\n"


def render_outcome(outcomes: "tuple[Outcome, ...]", evicted: "Evicted | None", style: Style, columns: int) -> str:
    lines = []
    for one in outcomes:
        colour = "green" if one.gone >= 0.99 * one.zombies else "yellow"
        lines.append(style(f"  {one.gone:>9,}  of {one.zombies:,} gone from {printable(one.home, 60)}", colour))
        if one.bites:
            fell = size(max(0, one.lost_bytes))
            text = (
                f"{one.by_file:,} by eviction, the others in {one.bites} bites; the live groups' memory fell by {fell}; "
                f"it ended because: {one.ended}"
            )
            lines += wrap(text, " " * 13, " " * 13, columns)
        elif one.gone < one.zombies:
            lines += wrap(f"the others stay: {printable(one.ended, 300)}", " " * 13, " " * 13, columns)
    if evicted is not None and evicted.pages:
        files = f"{evicted.files:,} file{'s' if evicted.files != 1 else ''}"
        lines += wrap(f"{evicted.pages:,} pages ({size(evicted.bytes)}) of {files} were evicted", " " * 13, " " * 13, columns)
    for why, pages in sorted((evicted.failed if evicted is not None else {}).items(), key=lambda item: -item[1])[:5]:
        lines += wrap(f"{pages:,} pages were not: {printable(why, 200)}", " " * 13, " " * 13, columns)
    return "\n".join(lines) + "\n"


def _print_json(plan: "PurgePlan", outcomes: "tuple[Outcome, ...]" = (), evicted: "Evicted | None" = None) -> None:
    import json

    document = {
        "schema": "exhume.purge/1",
        "targets": [
            {
                "path": target.home,
                "zombies": target.zombies,
                "by_file": target.by_file,
                "by_reclaim": target.by_reclaim,
                "pinned_bytes": target.pinned_bytes,
                "live_groups": target.live_groups,
                "cache_at_stake_bytes": target.cache_bytes,
                "swap_at_stake_bytes": target.swap_bytes,
                "protected": list(target.protected),
            }
            for target in plan.targets
        ],
        "left": [{"path": one.home, "zombies": one.zombies, "why": one.why, "way": one.way} for one in plan.left],
        "tmpfs_files": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "zombies": file.zombies,
                "deleted": file.deleted,
                "holder": file.holder or None,
            }
            for file in plan.files
        ],
        "evicted": None
        if evicted is None
        else {"files": evicted.files, "pages": evicted.pages, "bytes": evicted.bytes, "failed": evicted.failed},
        "outcomes": [
            {
                "path": one.home,
                "zombies": one.zombies,
                "gone": one.gone,
                "by_file": one.by_file,
                "lost_bytes": max(0, one.lost_bytes),
                "bites": one.bites,
                "ended": one.ended,
            }
            for one in outcomes
        ],
    }
    print(json.dumps(document, indent=1))
