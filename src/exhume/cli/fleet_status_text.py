"""exhume fleet status as text: a line that says it all, a table of the worst, and what could not be seen."""

import re

from exhume.cli.terminal import Style, wrap
from exhume.fleet.status import Row, Status
from exhume.host.quantities import DAY, SECOND, counted, duration
from exhume.text import printable

_COLOURS = {"sick": "red", "leaking": "yellow", "healthy": "green", "unknown": "dim"}
_COLUMNS = {"zombies": 9, "a day": 9, "hurts in": 13, "resets": 8, "up": 13}
_LONGEST_NAME = 44
# As fleet/sick.py has them.
_IN_THE_ROW = re.compile(r"[0-9,]{1,20} (zombies|NIC resets)")


def render(found: Status, style: Style, columns: int, top: int) -> str:
    lines = [headline(found, style), ""]
    shown = [row for row in found.rows if row.state != "healthy"][:top]
    if shown:
        lines += _table(shown, style, columns)
        left = sum(row.state != "healthy" for row in found.rows) - len(shown)
        if left:
            lines.append(f"  {left:,} more: --top {len(shown) + left}")
        lines.append("")
    for trouble in found.troubles:
        lines += wrap(trouble, "  note  ", "        ", columns)
    return "\n".join(lines).rstrip() + "\n"


def headline(found: Status, style: Style) -> str:
    sick, leaking, unknown = found.count("sick"), found.count("leaking"), found.count("unknown")
    many = len(found.rows)
    nodes = counted(many, "node")
    rest = [f"{leaking:,} leak and will hurt within a week"] if leaking else []
    rest += [f"of {unknown:,} nothing says"] if unknown else []
    where = f"  ({found.source})"
    if sick:
        told = ", ".join([f"{sick:,} of {nodes} {'are' if sick != 1 else 'is'} sick", *rest])
        return style("CRITICAL", "red", "bold") + f"  {told}{where}"
    if leaking:
        return style("WARNING", "yellow", "bold") + f"  None of {nodes} is sick, {', '.join(rest)}{where}"
    if found.count("healthy"):
        return style("HEALTHY", "green", "bold") + f"  {', '.join([f'None of {nodes} is sick', *rest])}{where}"
    return style("UNKNOWN", "bold") + f"  Nothing says of any of {nodes} whether it is sick{where}"


def _table(rows: list[Row], style: Style, columns: int) -> list[str]:
    names = [printable(row.node.name, _LONGEST_NAME) for row in rows]
    size = max(4, *map(len, names))
    lines = [style(f"  {'node':<{size}}  {'':<7}" + "".join(f"{each:>{wide}}" for each, wide in _COLUMNS.items()), "dim")]
    for row, name in zip(rows, names, strict=True):
        figures = "".join(f"{each:>{wide}}" for each, wide in zip(_figures(row), _COLUMNS.values(), strict=True))
        lines.append(f"  {name:<{size}}  {style(f'{row.state:<7}', _COLOURS[row.state])}{figures}")
        if why := beside_the_table(row.node.why):
            lines += wrap(printable(why, 400), "      ", "      ", columns)
    return lines


def beside_the_table(why: str) -> str:
    """The verdict without what the row says anyway: how many zombies, how many resets."""
    kept = [part for part in why.split("; ") if not _IN_THE_ROW.fullmatch(part)]
    return "; ".join(", ".join(each for each in part.split(", ") if not _IN_THE_ROW.fullmatch(each)) for part in kept)


def _figures(row: Row) -> tuple[str, ...]:
    node = row.node
    days = row.days_to_pain
    return (
        "?" if node.zombies is None else f"{node.zombies:,.0f}",
        "?" if node.leak_per_day is None else f"{round(node.leak_per_day):+,}" if round(node.leak_per_day) else "0",
        "-" if days is None else "now" if days == 0 else duration(days * DAY) if days < 999 else "years",
        f"{node.resets:,.0f}",
        "?" if node.uptime_s is None else duration(node.uptime_s * SECOND),
    )
