"""Flame graphs as SVG: a file that needs nothing else, and an element of an HTML page. Both zoom by the same script.

The script is written as two modules (static/), since the page of exhume view uses the first of them, too. A file gets them as
one script without imports.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from importlib.resources import files
from zlib import crc32

from exhume.host.quantities import counted
from exhume.render.flame import Change, Compared, Kind, Node
from exhume.text import printable

WIDTH = 1200
ROW = 18
# Frames with a smaller part of all samples are not drawn: 1.2 of 1200 pixels.
LEAST = 0.001
_MARGIN = 10
_TOP = 84
_BOTTOM = 26
# As static/flame_picture.js has them: the width of a letter of the 11 px monospaced font, and between two frames, pixels.
_LETTER, _GAP = 6.7, 0.4
_LONGEST_NAME = 300
# An element of a page has at most so many frames. Its rows are drawn down to the last that has this share of the samples: one
# stack of a hair's breadth must not make the picture three times as high.
_MOST_FRAMES = 3000
_WORTH_A_ROW = 0.02
_ALWAYS = 8
# Differences of shares from which a branch gets a stronger shade.
_SHADES = (0.01, 0.05, 0.15, 0.4)

# Fills by class. Kernel orange; user space by module, yellow to green; what is made at run time blue; idle grey.
_KERNEL = ("#f4a259", "#f2984a", "#f6ad6a", "#ee9140", "#f8b77a")
_USER = ("#e9d36c", "#dcd36a", "#cfd36e", "#c2d273", "#b5d079", "#a7cd7f", "#99c985", "#8cc48b", "#e6c95f", "#d3c964")
_PLAIN: dict[Kind, str] = {
    "all": "#d5dae1",
    "core": "#b9c3d0",
    "process": "#c7d0db",
    "thread": "#c7d0db",
    "idle": "#e4e4e4",
    "python": "#8fb8e8",
    "jit": "#7fcdc4",
}


@cache
def script() -> str:
    """What a file or a page with flame graphs has to run. Loads nothing, sends nothing."""
    modules = [
        files("exhume.render").joinpath("static", name).read_text("utf-8") for name in ("flame_zoom.js", "flame_picture.js")
    ]
    code = re.sub(r"^import .*\n|^export (?=function)", "", "".join(modules), flags=re.MULTILINE)
    return f'\n"use strict";\n(() => {{\n{code}}})();\n'


def svg(root: Node, title: str, detail: str = "", hidden: int = 0) -> str:
    """The picture of a tree, its root on top: stacks are often deeper than a screen is high, and their tips are thin.

    `hidden` frames were left out before, for the same reason: that they are narrower than LEAST."""
    every = list(Compared(root).changes())
    drawn = [change for change in every if change.share >= LEAST]
    hidden += len(every) - len(drawn)
    return "\n".join(_document(drawn, title, _note(detail, hidden))) + "\n"


def _note(detail: str, hidden: int) -> str:
    if not hidden:
        return detail
    told = f"{hidden:,} {'frame' if hidden == 1 else 'frames'} narrower than {LEAST:.1%} not drawn"
    return f"{detail} · {told}" if detail else told


def _document(drawn: list[Change], title: str, note: str) -> Iterator[str]:
    middle = WIDTH / 2
    height = _TOP + (max((change.placed.depth for change in drawn), default=0) + 1) * ROW + _BOTTOM
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="flame" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}">'
    )
    yield f"<title>{_safe(title)}</title>"
    yield f"<style>{_style()}</style>"
    yield '<rect class="paper" width="100%" height="100%"/>'
    yield f'<text class="title" x="{middle:g}" y="24">{_safe(title)}</text>'
    yield f'<text class="note" x="{middle:g}" y="42">{_safe(note)}</text>'
    yield f'<text class="button" id="reset" x="{_MARGIN}" y="24" visibility="hidden">◀ whole picture</text>'
    # The only HTML: a field to type in, which SVG does not have. Viewers that do not know it show nothing there.
    yield (
        f'<foreignObject id="find" x="{WIDTH - _MARGIN - 200}" y="8" width="200" height="26">'
        '<input xmlns="http://www.w3.org/1999/xhtml" type="search" id="pattern" placeholder="search (regex)"'
        ' spellcheck="false" autocomplete="off"/></foreignObject>'
    )
    yield f'<text id="matched" x="{WIDTH - _MARGIN}" y="{_TOP - 14}" text-anchor="end"> </text>'
    yield f'<text id="detail" x="{_MARGIN}" y="{_TOP - 14}"> </text>'
    yield '<g id="frames">'
    yield from _frames(((change, _class(change.placed.node)) for change in drawn), _MARGIN, _TOP)
    yield "</g>"
    yield f"<script><![CDATA[{script()}]]></script>"
    yield "</svg>"


def flame(compared: Compared, by_change: bool) -> str:
    """An SVG element of a page that runs `script()`. A branch is described on hover."""
    deepest = _deepest(compared)
    drawn = [change for change in compared.changes() if change.placed.depth <= deepest]
    if len(drawn) > _MOST_FRAMES:
        narrowest = sorted((change.share for change in drawn), reverse=True)[_MOST_FRAMES]
        drawn = [change for change in drawn if change.share > narrowest]
    depth = max((change.placed.depth for change in drawn), default=0) + 1
    what = "change against the quiet time" if by_change else "what ran"
    classes = ((change, _shade(change) if by_change else change.placed.node.kind) for change in drawn)
    return "\n".join(
        [
            f'<svg class="flame" viewBox="0 0 {WIDTH} {depth * ROW + 2}" role="img" aria-label="flame graph, {what}">',
            *_frames(classes, 0, 0),
            "</svg>",
        ]
    )


def page(compared: Compared, told: str) -> str:
    """A page with the difference, and what ran. Nothing is loaded, and only its own script may run."""
    from exhume.render.report_style import STYLE

    policy = f"default-src 'none'; style-src '{hashed(STYLE)}'; script-src '{hashed(script())}'; base-uri 'none'"
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
            f"</main><script>{script()}</script></body></html>\n",
        ]
    )


def hashed(text: str) -> str:
    """As a policy names a style or script that may run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def left_out(compared: Compared) -> str:
    """What the element of a page does not show, in a sentence behind others."""
    deepest = _deepest(compared)
    deeper = [change for change in compared.changes() if change.placed.depth > deepest]
    if not deeper:
        return ""
    share = sum(change.share for change in deeper if change.placed.depth == deepest + 1)
    frames = counted(len(deeper), "frame")
    return f" Left out: {frames} below row {deepest + 1}, of stacks with {share:.1%} of the samples."


def _deepest(compared: Compared) -> int:
    """The row down to which an element of a page is drawn."""
    rows: dict[int, float] = {}
    for change in compared.changes():
        rows[change.placed.depth] = rows.get(change.placed.depth, 0.0) + change.share
    deepest = max((depth for depth, share in rows.items() if share >= _WORTH_A_ROW), default=0)
    return max(deepest, min(_ALWAYS, max(rows, default=0)))


def _frames(drawn: Iterable[tuple[Change, str]], margin: int, top: int) -> Iterator[str]:
    """Frames with their classes, depth first: the script finds out from their order which is inside of which."""
    scale = 0.0
    for change, kind in drawn:
        node, start, depth = change.placed
        if not scale:  # the root comes first
            scale = (WIDTH - 2 * margin) / node.value
        x, width, y = margin + start * scale, node.value * scale, top + depth * ROW
        name = printable(node.name, _LONGEST_NAME)
        letters = int((width - 6) / _LETTER)
        text = f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(shortened(name, letters))}</text>' if letters >= 3 else ""
        module = f"{_safe(node.module)}\n" if node.module else ""
        yield (
            f'<g class="{kind}" data-s="{start}" data-n="{node.value}" data-d="{depth}">'
            f"<title>{escape(name)}\n{module}{_told(change)}</title>"
            f'<rect x="{x:.2f}" y="{y}" width="{max(width - _GAP, 0.2):.2f}" height="{ROW - 1}"/>{text}</g>'
        )


def _told(change: Change) -> str:
    value = change.placed.node.value
    told = f"{value:,} {'sample' if value == 1 else 'samples'}, {change.share:.2%}"
    return told if change.before is None else f"{told}; {change.before:.2%} in the quiet time"


def shortened(name: str, letters: int) -> str:
    """A name cut to what fits. The script does the same after a zoom."""
    return name if len(name) <= letters else name[: letters - 1] + "…"


def _class(node: Node) -> str:
    """A shade that stays the same from picture to picture: by name in the kernel, by module in user space."""
    if node.kind == "kernel":
        return f"k{crc32(node.name.encode('utf-8', 'replace')) % len(_KERNEL)}"
    if node.kind == "user":
        return f"u{crc32(node.module.encode('utf-8', 'replace')) % len(_USER)}"
    return node.kind


def _shade(change: Change) -> str:
    """`more1` to `more4`, `less1` to `less4`, `same`."""
    if change.before is None:
        return "same"
    apart = change.share - change.before
    level = sum(abs(apart) >= shade for shade in _SHADES)
    return "same" if not level else f"{'more' if apart > 0 else 'less'}{level}"


def _style() -> str:
    fills = {f"k{i}": fill for i, fill in enumerate(_KERNEL)} | {f"u{i}": fill for i, fill in enumerate(_USER)}
    shades = "".join(f".{name} rect{{fill:{fill}}}" for name, fill in [*fills.items(), *_PLAIN.items()])
    return (
        "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d2430}"
        ".paper{fill:#fff}.title{font-size:16px;font-weight:600;text-anchor:middle}.note{text-anchor:middle;fill:#68717f}"
        ".button{cursor:pointer;fill:#2563a8}#matched{fill:#b4008c}"
        "#frames g{cursor:pointer}#frames text{pointer-events:none}#frames g:hover rect{stroke:#1d2430;stroke-width:1}"
        "#frames rect{rx:1.5px}#frames .above{opacity:.45}#frames .match rect{fill:#e64fc2}"
        "#pattern{box-sizing:border-box;width:100%;height:24px;font:12px ui-monospace,monospace;padding:2px 6px;"
        "border:1px solid #c3c9d2;border-radius:4px;background:#fff;color:#1d2430}" + shades
    )


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST_NAME))
