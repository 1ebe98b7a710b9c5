"""exhume zombies purge: the plan, the question, the result."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from exhume.cli.terminal import Progress, Style, width, wrap
from exhume.errors import Refused
from exhume.host.quantities import counted, size
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.remedy.evict import Evicted
    from exhume.remedy.purge import Left, Outcome, Part, PurgePlan

_INDENT = " " * 13


def purge(args: argparse.Namespace) -> int:
    from exhume.host.root import Root
    from exhume.remedy.purging import Purging

    with Purging(Root(args.host), args.under) as purging:
        made = purging.plan
        parts = made.allowed(args.accept_cache_loss)
        style, columns = Style(sys.stderr if args.json else sys.stdout), width(sys.stdout)
        if not args.json:
            sys.stdout.write(render_plan(made, style, columns, args.accept_cache_loss))
            sys.stdout.flush()
        if args.dry_run or not made.parts:
            if args.json:
                _print_json(made)
            return 0
        if not parts:
            raise Refused(
                "not purged: every way to free them takes page cache from live groups, up to "
                f"{size(sum(part.most_lost_bytes for part in made.parts))}; --accept-cache-loss does it all the same"
            )
        if not args.yes and not _agreed():
            raise Refused("not purged: say --yes to do it; page cache that is dropped cannot be brought back")
        with _showing("purging") as progress:
            evicted, outcomes = purging.carry_out(parts, progress)
    if args.json:
        _print_json(made, outcomes, evicted)
    else:
        sys.stdout.write(render_outcome(outcomes, evicted, style, columns))
    return 0 if all(one.gone >= 0.99 * one.part.zombies for one in outcomes) else Refused.exit_code


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


def render_plan(plan: "PurgePlan", style: Style, columns: int, accepted: bool = False) -> str:
    free = sum(part.zombies for part in plan.allowed(accepted))
    lines = [style(f"{counted(free, 'zombie')} can be freed without a reboot", "bold"), ""]
    for part in plan.allowed(accepted):
        lines += _part(part, plan.version, columns)
    asking = [part for part in plan.parts if part not in plan.allowed(accepted)]
    if asking:
        lines += ["", style("  These only with --accept-cache-loss:", "yellow")]
        for part in asking:
            lines += _part(part, plan.version, columns)
    if plan.left:
        lines += ["", "  These stay:"]
        for left in plan.left:
            lines += _left(left, columns)
    if named := [file for file in plan.files if file.path]:
        lines += ["", "  On tmpfs, these files pin the most:"]
        for file in named:
            held = f", open in {printable(file.holder, 40)}" if file.holder else ""
            gone = ", deleted" if file.deleted else ""
            text = f"{file.zombies:>9,}  {printable(file.path, 80)} ({size(file.size_bytes)}{gone}{held})"
            lines += wrap(text, "  ", _INDENT, columns)
    elif plan.files:
        lines += ["", "  The tmpfs files that pin them are not in any mount that is visible here"]
    return "\n".join([*lines, ""]) + "\n"


def _part(part: "Part", version: int, columns: int) -> list[str]:
    lines = wrap(f"{part.zombies:>9,}  in {printable(part.home, 60)}: {promise(part, version)}", "  ", _INDENT, columns)
    if part.live is not None and part.live.protected:
        lines.append(f"{_INDENT}live below it: {printable(', '.join(part.live.protected[:5]), 80)}")
    return lines


def promise(part: "Part", version: int) -> str:
    """What is done to free them, and the most that it costs live groups. The purge keeps to this."""
    from exhume.remedy.purge import ACCEPTED_LOSS, MOST_EVICTED_BYTES, MOST_USERS, Way

    pinned, lost = size(part.pinned_bytes), size(part.most_lost_bytes)
    home = printable(part.home, 60)
    match part.way:
        case Way.EVICT:
            return f"evict their page cache ({pinned}), which no live group reads"
        case Way.EVICT_SMALL:
            return f"evict their page cache; it was used more than once, so that up to {lost} may be read from the disk again"
        case Way.EVICT_LARGE:
            return (
                f"evict their page cache ({pinned}), which no live group reads now; it is read from the disk again if one "
                f"needs it. More than {size(MOST_EVICTED_BYTES)} in all is not evicted without asking"
            )
        case Way.EVICT_IN_USE:
            names = ", ".join(part.users[:MOST_USERS]) + (" and others" if len(part.users) > MOST_USERS else "")
            by = f" by {printable(names, 120)}" if names else ""
            return (
                f"evict their page cache, which is in use{by}: up to {lost} are read from the disk again, and charged to the "
                "group that reads them"
            )
        case Way.RECLAIM:
            assert part.live is not None
            return (
                f"reclaim from {home} in small steps (memory.reclaim), since {part.why}; it stops before the "
                f"{part.live.groups:,} live groups lose more than {lost} ({ACCEPTED_LOSS:.0%} of their page cache)"
            )
        case Way.RECLAIM_ALL:
            assert part.live is not None
            file = "memory.force_empty, which takes no size" if version == 1 else "memory.reclaim"
            swap = f", and swap out up to {size(part.live.swap_bytes)}" if part.live.swap_bytes else ""
            return (
                f"reclaim from {home} ({file}), since {part.why}: may drop up to all "
                f"{size(part.most_lost_bytes - part.live.swap_bytes)} of page cache below {home}{swap}"
            )


def _left(left: "Left", columns: int) -> list[str]:
    lines = wrap(f"{left.zombies:>9,}  in {printable(left.home, 60)}: {left.holder.label}", "  ", _INDENT, columns)
    for process, count in left.processes[:5]:
        unit = f" of {process.parent_unit}" if process.parent_unit else ""
        text = f"{count:,} dead children of {printable(process.parent_comm, 40)}[{process.parent_pid}]{printable(unit, 80)}"
        lines += wrap(text, _INDENT, _INDENT, columns)
    lines += wrap(f"{left.frees}", _INDENT, _INDENT, columns)
    return [*lines, *(f"{_INDENT}  {command}" for command in left.commands)]


def render_outcome(outcomes: "tuple[Outcome, ...]", evicted: "Evicted | None", style: Style, columns: int) -> str:
    lines = []
    for one in outcomes:
        part = one.part
        colour = "green" if one.gone >= 0.99 * part.zombies else "yellow"
        lines.append(style(f"  {one.gone:>9,}  of {part.zombies:,} gone from {printable(part.home, 60)}", colour))
        if one.steps:
            text = f"{counted(one.steps, 'step')} of reclaim; the live groups' memory fell by "
            lines += wrap(text + size(one.lost_bytes), _INDENT, _INDENT, columns)
        if one.ended:
            lines += wrap(f"the others stay: {printable(one.ended, 300)}", _INDENT, _INDENT, columns)
    if evicted is not None and evicted.pages:
        files = counted(evicted.files, "file")
        text = f"{evicted.pages:,} pages ({size(evicted.bytes)}) of {files} were evicted"
        lines += wrap(text, _INDENT, _INDENT, columns)
    for why, pages in sorted((evicted.failed if evicted is not None else {}).items(), key=lambda item: -item[1])[:5]:
        lines += wrap(f"{pages:,} pages were not: {printable(why, 200)}", _INDENT, _INDENT, columns)
    return "\n".join(lines) + "\n"


def _print_json(plan: "PurgePlan", outcomes: "tuple[Outcome, ...]" = (), evicted: "Evicted | None" = None) -> None:
    import json

    document = {
        "schema": "exhume.purge/2",
        "parts": [
            {
                "path": part.home,
                "way": part.way.value,
                "zombies": part.zombies,
                "pinned_bytes": part.pinned_bytes,
                "most_lost_bytes": part.most_lost_bytes,
                "needs_acceptance": part.needs_acceptance,
                "promise": promise(part, plan.version),
                "users": list(part.users),
                "live": None
                if part.live is None
                else {
                    "groups": part.live.groups,
                    "cache_bytes": part.live.cache_bytes,
                    "swap_bytes": part.live.swap_bytes,
                    "protected": list(part.live.protected),
                },
            }
            for part in plan.parts
        ],
        "left": [
            {
                "path": left.home,
                "zombies": left.zombies,
                "holder": left.holder.name.lower().replace("_", "-"),
                "frees": left.frees,
                "commands": list(left.commands),
                "parents": [
                    {"pid": one.parent_pid, "comm": one.parent_comm, "unit": one.parent_unit or None, "children": count}
                    for one, count in left.processes
                ],
            }
            for left in plan.left
        ],
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
                "path": one.part.home,
                "way": one.part.way.value,
                "zombies": one.part.zombies,
                "gone": one.gone,
                "lost_bytes": one.lost_bytes,
                "steps": one.steps,
                "ended": one.ended,
            }
            for one in outcomes
        ],
    }
    print(json.dumps(document, indent=1))
