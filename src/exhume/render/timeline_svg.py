"""The timeline for the HTML report: lanes above one time axis, drawn with classes that the page's style colours."""

from collections.abc import Iterator
from html import escape

import numpy as np

from exhume.host.quantities import MILLISECOND, milliseconds
from exhume.render.lanes import STATES, Flag, Shares
from exhume.render.scene import Clock
from exhume.render.timeline import Count, Strip, Timeline
from exhume.text import printable

WIDTH = 1200
LEFT, RIGHT = 150, 160
_ROOM = WIDTH - LEFT - RIGHT
_TOP = 18
_STRIP, _LINE, _BARS, _GAP = 40, 34, 16, 10
_TICKS = 8
_LONGEST = 300


def svg(picture: Timeline, clock: Clock) -> str:
    lanes: list[str] = []
    y = _TOP
    for strip in picture.strips:
        lanes += _strip(strip, y)
        y += _STRIP + _GAP
    for count in picture.counts:
        lanes += _count(count, y)
        y += _LINE + _GAP
    for bars in picture.bars:
        longest = max(span.end - span.start for span in bars.spans)
        lanes += _name(f"{printable(bars.name, 14)} late", y + 12, f"longest {milliseconds(longest / MILLISECOND)}")
        for span in bars.spans:
            where = f" on core {span.core}" if span.core >= 0 else ""
            told = f"{clock.exact(span.start)}: late for {milliseconds((span.end - span.start) / MILLISECOND)}{where}"
            x, width = _across(span.start, span.end, picture)
            lanes.append(
                f'<rect class="late" x="{x}" y="{y}" width="{width}" height="{_BARS}"><title>{_safe(told)}</title></rect>'
            )
        y += _BARS + _GAP
    for restarts in picture.restarts:
        lanes += _name(f"{printable(restarts.unit, 18)}", y + 12, f"{restarts.total:,} restarts")
        for time in restarts.times:
            x, _ = _across(time, time, picture)
            lanes.append(
                f'<path class="restart" d="M{x} {y}v{_BARS}"><title>{_safe(restarts.unit)} restarted, '
                f"seen at {_safe(clock.exact(time))}</title></path>"
            )
        y += _BARS + _GAP
    if picture.flags:
        lanes += _name("kernel log", y + 12, f"{len(picture.flags) + picture.hidden_flags} lines")
        lanes += [
            _flag(flag, picture, clock, y) for flag in sorted(picture.flags, key=lambda flag: flag.severity == "critical")
        ]
        y += _BARS + _GAP
    height = y + 22
    body = [*_axis(picture, clock, y), *_focus(picture, clock, y), *lanes]
    return "\n".join(
        [f'<svg class="timeline" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline">', *body, "</svg>"]
    )


def _across(start: int, end: int, picture: Timeline) -> tuple[float, float]:
    """Where a stretch of time begins, and how wide it is, cut to the window and never too narrow to be seen."""
    length = picture.end - picture.start
    first = min(max(start, picture.start), picture.end)
    last = min(max(end, first), picture.end)
    return round(LEFT + (first - picture.start) / length * _ROOM, 1), round(max(2.0, (last - first) / length * _ROOM), 1)


def _name(name: str, y: int, told: str = "") -> list[str]:
    lines = [f'<text class="lane" x="{LEFT - 10}" y="{y}">{_safe(name)}</text>']
    if told:
        lines.append(f'<text class="told" x="{WIDTH - RIGHT + 10}" y="{y}">{_safe(told)}</text>')
    return lines


def _strip(strip: Strip, y: int) -> list[str]:
    """States on top of each other, the kernel's at the bottom."""
    nothing = bool(np.isnan(strip.shown).all())
    most = "nothing known" if nothing else f"{strip.measure} up to {strip.most:.0%}"
    drawn = _name(f"core {strip.core}", y + _STRIP // 2 + 4, most)
    drawn.append(f'<rect class="empty" x="{LEFT}" y="{y}" width="{_ROOM}" height="{_STRIP}"/>')
    floor = np.zeros(strip.shares.shape[1])
    for state, shares in zip(STATES, strip.shares, strict=True):
        ceiling = floor + np.nan_to_num(shares)
        if float(ceiling.sum() - floor.sum()) > 0.001:
            drawn.append(f'<path class="{state}" d="{_area(floor, ceiling, y)}"><title>{state}</title></path>')
        floor = ceiling
    for first, last in _runs(np.isnan(strip.shown)):
        step = _ROOM / len(floor)
        x, width = LEFT + first * step, (last - first) * step
        drawn.append(
            f'<rect class="unknown" x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_STRIP}">'
            "<title>not accounted, or not recorded</title></rect>"
        )
    return drawn


def _area(floor: Shares, ceiling: Shares, y: int) -> str:
    """Steps along the ceiling to the right, and back along the floor."""
    step = _ROOM / len(floor)

    def at(share: float) -> str:
        return f"{y + _STRIP * (1 - min(1.0, share)):.1f}"

    points = [f"M{LEFT} {at(float(floor[0]))}"]
    for shares, places in ((ceiling, range(len(floor))), (floor, range(len(floor) - 1, -1, -1))):
        before = ""
        for place in places:
            now = at(float(shares[place]))
            if now != before:
                edge = place if shares is ceiling else place + 1
                points.append(f"H{LEFT + edge * step:.1f}V{now}")
            before = now
        points.append(f"H{LEFT + (_ROOM if shares is ceiling else 0)}")
    return "".join(points) + "Z"


def _runs(flags: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate(([False], flags, [False])).astype(np.int8)))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _count(count: Count, y: int) -> list[str]:
    """From what to what it goes is said beside it."""
    step = _ROOM / len(count.values)
    points, before = "", ""
    for column, high in enumerate(count.heights.tolist()):
        if high == high:
            at, x = f"{y + _LINE - 3 - high * (_LINE - 6):.1f}", f"{LEFT + column * step:.1f}"
            points += f"M{x} {at}" if not before else "" if at == before else f"H{x}V{at}"
            before = at
    drawn = _name(count.name, y + _LINE // 2 + 4, count.told)
    drawn.append(f'<rect class="empty" x="{LEFT}" y="{y}" width="{_ROOM}" height="{_LINE}"/>')
    kind = "zombies" if count.name == "zombies" else "live"
    drawn.append(
        f'<path class="count {kind}" d="{points}H{LEFT + _ROOM}"><title>{_safe(count.name)}: {count.told}</title></path>'
    )
    return drawn


def _flag(flag: Flag, picture: Timeline, clock: Clock, y: int) -> str:
    """A triangle for what is critical, a diamond for a warning: not by colour alone."""
    x, _ = _across(flag.time, flag.time, picture)
    shape = f"M{x - 6} {y}h12l-6 {_BARS - 2}z" if flag.severity == "critical" else f"M{x} {y}l6 7l-6 7l-6 -7z"
    told = f"{clock.exact(flag.time)} {flag.kind}: {printable(flag.text, _LONGEST)}"
    return f'<path class="flag {flag.severity}" d="{shape}"><title>{_safe(told)}</title></path>'


def _focus(picture: Timeline, clock: Clock, bottom: int) -> list[str]:
    if picture.focus[0] <= picture.start and picture.focus[1] >= picture.end:
        return []
    x, width = _across(*picture.focus, picture)
    told = f"the incident: {clock.exact(picture.focus[0])} to {clock.exact(picture.focus[1])}"
    return [
        f'<rect class="focus" x="{x}" y="4" width="{width}" height="{bottom - 4}"><title>{_safe(told)}</title></rect>',
    ]


def _axis(picture: Timeline, clock: Clock, y: int) -> list[str]:
    drawn = []
    told = clock.short if (picture.end - picture.start) // _TICKS >= 1_000_000_000 else clock.exact
    for tick in range(_TICKS + 1):
        time = picture.start + (picture.end - picture.start) * tick // _TICKS
        x = LEFT + _ROOM * tick / _TICKS
        drawn.append(f'<path class="grid" d="M{x:.1f} {_TOP - 6}V{y}"/>')
        drawn.append(f'<text class="tick" x="{x:.1f}" y="{y + 14}">{_safe(told(time))}</text>')
    return drawn


def _safe(text: str) -> str:
    return escape(printable(text, _LONGEST + 60))
