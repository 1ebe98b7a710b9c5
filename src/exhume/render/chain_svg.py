"""The causal chain as a picture: a box a finding, an arrow a reason, each with how sure it is."""

import textwrap
from html import escape

from exhume.diagnosis.findings.kind import Link
from exhume.text import printable

WIDTH = 1200
_BOX, _ARROW, _INDENT = 46, 42, 26
_DEEPEST = 8  # boxes that are set in further than the one before
_LETTER = 6.9  # mean width of a letter of the reasons, pixels
_LONGEST = 240


def svg(chain: tuple[Link, ...]) -> str:
    drawn: list[str] = []
    y = 4
    for depth, link in enumerate(chain):
        x = _INDENT * min(depth, _DEEPEST)
        if depth:
            drawn += _arrow(link, x, y)
            y += _ARROW
        drawn += _box(link, x, y)
        y += _BOX
    return "\n".join(
        [f'<svg class="chain" viewBox="0 0 {WIDTH} {y + 4}" role="img" aria-label="causal chain">', *drawn, "</svg>"]
    )


def _box(link: Link, x: int, y: int) -> list[str]:
    what, numbers = link.finding.facts.short()
    severity = link.finding.severity
    room = int((WIDTH - x - 40) / 8.2) - min(len(numbers), 70)
    return [
        f"<g><title>{_safe(link.finding.summary)}</title>",
        f'<rect class="box {severity}" x="{x + 1}" y="{y}" width="{WIDTH - x - 2}" height="{_BOX}" rx="6"/>',
        f'<rect class="edge {severity}" x="{x + 1}" y="{y}" width="6" height="{_BOX}" rx="3"/>',
        f'<text class="what" x="{x + 20}" y="{y + 28}">{_safe(_clipped(what, max(24, room)))}</text>',
        f'<text class="numbers" x="{WIDTH - 16}" y="{y + 28}">{_safe(_clipped(numbers, 70))}</text></g>',
    ]


def _arrow(link: Link, x: int, y: int) -> list[str]:
    """From the box above, with why: two lines at most, all of it on hover."""
    because = printable(link.because, _LONGEST)
    letters = int((WIDTH - x - 40) / _LETTER)
    lines = textwrap.wrap(f"{because} ({link.confidence:.0%})" if because else f"({link.confidence:.0%})", letters)
    if len(lines) > 2:
        lines = [lines[0], _clipped(lines[1] + " …", letters)]
    middle = x + 10
    top = y + (27 if len(lines) == 1 else 17)
    title = link.because + (f"\nwould be disproved by: {link.disproof}" if link.disproof else "")
    drawn = [
        f'<path class="arrow" d="M{middle} {y + 2}v{_ARROW - 10}"/>',
        f'<path class="head" d="M{middle - 6} {y + _ARROW - 9}h12l-6 8z"/>',
        f"<g><title>{escape(printable(title, 2 * _LONGEST))}</title>",
    ]
    drawn += [
        f'<text class="because" x="{middle + 16}" y="{top + 15 * i}">{_safe(line)}</text>' for i, line in enumerate(lines)
    ]
    return [*drawn, "</g>"]


def _clipped(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: letters - 1] + "…"


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST))
