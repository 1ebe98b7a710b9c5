"""A flame graph inside of a page: coloured by what runs, or by how much larger its share is than in a quiet time."""

import base64
import hashlib
from collections.abc import Sequence
from html import escape

from exhume.host.quantities import counted
from exhume.render.flame_compared import Change, Compared
from exhume.render.flame_svg import shortened
from exhume.text import printable

WIDTH = 1200
ROW = 18
_LETTER = 6.7  # width of a letter of the 11 px monospaced font, pixels
_LONGEST_NAME = 200
_MOST_FRAMES = 3000
# The share of all samples that the stacks of a row need for it to be drawn, and rows that always are.
_WORTH_A_ROW = 0.02
_ALWAYS = 8
# Differences of shares from which a branch gets a stronger shade.
_SHADES = (0.01, 0.05, 0.15, 0.4)


def flame(compared: Compared, by_change: bool) -> str:
    """An SVG element. Click zooms (flame_zoom.SCRIPT); what a branch is, is told on hover."""
    deepest = _deepest(compared)
    drawn = [change for change in compared.changes() if change.placed.node.value > 0 and change.placed.depth <= deepest]
    drawn = sorted(drawn, key=lambda change: -change.share)[:_MOST_FRAMES]
    depth = max((change.placed.depth for change in drawn), default=0) + 1
    what = "change against the quiet time" if by_change else "what ran"
    return "\n".join(
        [
            f'<svg class="flame" viewBox="0 0 {WIDTH} {depth * ROW + 2}" role="img" aria-label="flame graph, {what}">',
            *_frames(drawn, max(1, compared.root.value), by_change),
            "</svg>",
        ]
    )


def page(compared: Compared, told: str) -> str:
    """A page of its own: the difference, and what ran. Nothing is loaded, and only its own script may run."""
    from exhume.render.flame_zoom import SCRIPT
    from exhume.render.report_style import STYLE

    policy = f"default-src 'none'; style-src '{hashed(STYLE)}'; script-src '{hashed(SCRIPT)}'; base-uri 'none'"
    words = escape(printable(told, 400))
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f"<title>{words}</title><style>{STYLE}</style></head><body><main>",
            f'<h2>{words}</h2><p class="note">Orange: a larger share than in the others; blue: a smaller one.</p>',
            flame(compared, by_change=True),
            f"<h3>What ran</h3>{flame(compared, by_change=False)}",
            f'<p class="note">A click zooms, one on the top frame goes back.{escape(left_out(compared))}</p>',
            f"</main><script>{SCRIPT}</script></body></html>\n",
        ]
    )


def hashed(text: str) -> str:
    """As a policy names a style or script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def left_out(compared: Compared) -> str:
    """What the picture does not show, in a sentence behind others."""
    deepest = _deepest(compared)
    deeper = [change for change in compared.changes() if change.placed.depth > deepest]
    if not deeper:
        return ""
    share = sum(change.share for change in deeper if change.placed.depth == deepest + 1)
    frames = counted(len(deeper), "frame")
    return f" Left out: {frames} below row {deepest + 1}, of stacks with {share:.1%} of the samples."


def _deepest(compared: Compared) -> int:
    """The row down to which is drawn: one stack of a hair's breadth must not make the picture three times as high."""
    rows: dict[int, float] = {}
    for change in compared.changes():
        rows[change.placed.depth] = rows.get(change.placed.depth, 0.0) + change.share
    deepest = max((depth for depth, share in rows.items() if share >= _WORTH_A_ROW), default=0)
    return max(deepest, min(_ALWAYS, max(rows, default=0)))


def _frames(drawn: Sequence[Change], total: int, by_change: bool) -> list[str]:
    scale = WIDTH / total
    frames = []
    for change in sorted(drawn, key=lambda one: (one.placed.depth, one.placed.start)):
        node, start, depth = change.placed
        x, width, y = start * scale, node.value * scale, depth * ROW
        name = printable(node.name, _LONGEST_NAME)
        letters = int((width - 6) / _LETTER)
        text = f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(shortened(name, letters))}</text>' if letters >= 3 else ""
        kind = _shade(change) if by_change else node.kind
        frames.append(
            f'<g class="{kind}" data-s="{start}" data-n="{node.value}" data-d="{depth}"><title>{_title(change)}</title>'
            f'<rect x="{x:.2f}" y="{y}" width="{max(width - 0.4, 0.2):.2f}" height="{ROW - 1}"/>{text}</g>'
        )
    return frames


def _title(change: Change) -> str:
    node = change.placed.node
    name, module = printable(node.name, _LONGEST_NAME), printable(node.module, _LONGEST_NAME)
    told = f"{node.value:,} samples, {change.share:.1%}"
    if change.before is not None:
        told += f"; {change.before:.1%} in the quiet time"
    return escape("\n".join(part for part in (name, module, told) if part))


def _shade(change: Change) -> str:
    """`more1` to `more4`, `less1` to `less4`, `same`."""
    if change.before is None:
        return "same"
    apart = change.share - change.before
    level = sum(abs(apart) >= shade for shade in _SHADES)
    return "same" if not level else f"{'more' if apart > 0 else 'less'}{level}"
