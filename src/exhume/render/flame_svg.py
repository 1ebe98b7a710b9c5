"""A flame graph as one SVG file that needs nothing else: opens in a browser, zooms on a click, searches, explains on hover."""

from collections.abc import Iterator
from html import escape
from zlib import crc32

from exhume.render.flame import Kind, Node, Placed, walk
from exhume.render.flame_script import SCRIPT
from exhume.text import printable

WIDTH = 1200
ROW = 17
# Frames with a smaller part of all samples are not drawn: 1.2 of 1200 pixels.
LEAST = 0.001
_MARGIN = 10
_TOP = 84
_BOTTOM = 26
_LETTER = 6.6  # width of a letter of the 11 px monospaced font, pixels
_LONGEST_NAME = 300

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


def svg(root: Node, title: str, detail: str = "", hidden: int = 0) -> str:
    """The picture of a tree, its root on top: stacks are often deeper than a screen is high, and their tips are thin.

    `hidden` frames were left out before, for the same reason: that they are narrower than LEAST."""
    placed = [one for one in walk(root) if one.node.value >= root.value * LEAST and one.node.value > 0]
    hidden += sum(1 for _ in walk(root)) - len(placed)
    rows = max((one.depth for one in placed), default=0) + 1
    height = _TOP + rows * ROW + _BOTTOM
    return "\n".join(_document(root, placed, title, _note(detail, hidden), height)) + "\n"


def _note(detail: str, hidden: int) -> str:
    if not hidden:
        return detail
    told = f"{hidden:,} {'frame' if hidden == 1 else 'frames'} narrower than {LEAST:.1%} not drawn"
    return f"{detail} · {told}" if detail else told


def _document(root: Node, placed: list[Placed], title: str, note: str, height: int) -> Iterator[str]:
    middle = WIDTH / 2
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}"'
        f' data-margin="{_MARGIN}" data-letter="{_LETTER}">'
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
    scale = (WIDTH - 2 * _MARGIN) / root.value if root.value else 0.0
    for one in placed:
        yield _frame(one, root.value, scale, _TOP + one.depth * ROW)
    yield "</g>"
    yield f"<script><![CDATA[{SCRIPT}]]></script>"
    yield "</svg>"


def _frame(one: Placed, whole: int, scale: float, y: int) -> str:
    node, start, depth = one
    x, width = _MARGIN + start * scale, node.value * scale
    name = printable(node.name, _LONGEST_NAME)
    module = printable(node.module, _LONGEST_NAME)
    samples = f"{node.value:,} {'sample' if node.value == 1 else 'samples'}, {node.value / whole:.2%}"
    letters = int((width - 6) / _LETTER)
    text = f'<text x="{x + 3:.1f}" y="{y + 12}">{escape(shortened(name, letters))}</text>' if letters >= 3 else ""
    return (
        f'<g class="{_class(node)}" data-s="{start}" data-n="{node.value}" data-d="{depth}">'
        f"<title>{escape(name)}\n{escape(module)}\n{samples}</title>"
        f'<rect x="{x:.1f}" y="{y}" width="{max(width, 0.1):.1f}" height="{ROW - 1}" rx="1.5"/>{text}</g>'
    )


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


def _style() -> str:
    fills = {f"k{i}": fill for i, fill in enumerate(_KERNEL)} | {f"u{i}": fill for i, fill in enumerate(_USER)}
    shades = "".join(f".{name} rect{{fill:{fill}}}" for name, fill in [*fills.items(), *_PLAIN.items()])
    return (
        "text{font:11px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#1d2430}"
        ".paper{fill:#fff}.title{font-size:16px;font-weight:600;text-anchor:middle}.note{text-anchor:middle;fill:#68717f}"
        ".button{cursor:pointer;fill:#2563a8}#matched{fill:#b4008c}"
        "#frames g{cursor:pointer}#frames text{pointer-events:none}#frames g:hover rect{stroke:#1d2430;stroke-width:1}"
        "#frames .above{opacity:.45}#frames .match rect{fill:#e64fc2}"
        "#pattern{box-sizing:border-box;width:100%;height:24px;font:12px ui-monospace,monospace;padding:2px 6px;"
        "border:1px solid #c3c9d2;border-radius:4px;background:#fff;color:#1d2430}" + shades
    )


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST_NAME))
