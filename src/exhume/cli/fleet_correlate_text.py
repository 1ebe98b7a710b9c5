"""exhume fleet correlate as text: the sentence, the nodes that it is about, and what stands against it."""

from exhume.cli.terminal import Style, wrap
from exhume.fleet.correlate import Correlation
from exhume.fleet.correlate_words import cautions, percent, sentence
from exhume.host.quantities import SECOND, duration
from exhume.text import printable

_LONGEST_NAME = 44


def render(found: Correlation, troubles: tuple[str, ...], style: Style, columns: int, top: int) -> str:
    lines = [*wrap(sentence(found), "", "", columns), ""]
    if found.nodes:
        names = [printable(each.node, _LONGEST_NAME) for each in found.nodes[:top]]
        size = max(4, *map(len, names))
        lines.append(style(f"  {'node':<{size}}  {'throttled':>14}  {'by luck':>8}  explained by reclaim", "dim"))
        for name, each in zip(names, found.nodes, strict=False):
            told = percent(each) if each.explained is not None else each.why_not
            lines.append(f"  {name:<{size}}  {duration(each.throttled_s * SECOND):>14}  {each.chance:>8.2g}  {told}")
        if len(found.nodes) > top:
            lines.append(f"  {len(found.nodes) - top:,} more: --top {len(found.nodes)}")
        lines.append("")
    for said in (*cautions(found), *troubles):
        lines += wrap(said, "  note  ", "        ", columns)
    return "\n".join(lines).rstrip() + "\n"
