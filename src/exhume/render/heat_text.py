"""Heat maps for the terminal: 256 colours where there are some, characters that get denser where there are not."""

from collections.abc import Callable, Sequence

import numpy as np

from exhume.host.quantities import SECOND, milliseconds
from exhume.render.heat import CoreMap, OffsetMap, Saturated, Shares

LEFT = 9  # columns for the names of rows
RAMP = " .:-=+*#%@"
BLOCKS = "▁▂▃▄▅▆▇█"
GAP = "┊"
# 256-colour numbers from dark grey over red and orange to pale yellow: every cell is painted, so that it reads the same on
# dark and light terminals.
COLOURS = (236, 52, 88, 124, 160, 196, 202, 208, 214, 220, 229)
_TICK = 10  # columns between two times on the axis; a time takes eight
_TOPS = (0.05, 0.1, 0.2, 0.5, 1.0)
Clock = Callable[[int], str]
"""Wall-clock HH:MM:SS of a moment on the recording's clock."""


def offset_lines(
    heat: OffsetMap, clock: Clock, marks: Sequence[Saturated], colour: bool, events: Sequence[int] = ()
) -> list[str]:
    """A column a second, the beginning of the second at the bottom; below it the time, and marks for saturated seconds and
    for those in which something happened."""
    rows, seconds = heat.shares.shape
    top = scale(heat.shares)
    lines = []
    for row in range(rows - 1, -1, -1):
        label = milliseconds(row * 1000 // rows) if (rows - 1 - row) % max(1, rows // 5) == rows // 5 - 1 or row == 0 else ""
        lines.append(f"{label:>{LEFT - 1}} {_cells(heat.shares[row], top, colour, RAMP)}".rstrip())
    lines += axis(heat.start, 1, seconds, clock)
    lines += mark_lines(heat.start, 1, seconds, marks)
    lines += event_lines(heat.start, 1, seconds, events)
    lines.append(legend(top, colour, RAMP, bool(np.isnan(heat.shares).any())))
    return lines


def core_lines(
    heat: CoreMap, clock: Clock, marks: Sequence[Saturated], colour: bool, most: int, events: Sequence[int] = ()
) -> list[str]:
    """A strip for each of the oddest cores, its busy and kernel share behind it."""
    columns = heat.busy.shape[1]
    top = 1.0
    lines = []
    for core, busy, kernel in zip(heat.cores[:most], heat.busy, heat.kernel, strict=False):
        shares = f"  {_mean(busy, heat.recorded):>4.0%} busy {_mean(kernel, heat.recorded):>4.0%} kernel"
        lines.append(f"{f'core {core}' if core >= 0 else 'any core':>{LEFT - 1}} {_cells(busy, top, colour, BLOCKS)}{shares}")
    lines += axis(heat.start, heat.seconds, columns, clock)
    lines += mark_lines(heat.start, heat.seconds, columns, marks)
    lines += event_lines(heat.start, heat.seconds, columns, events)
    lines.append(legend(top, colour, BLOCKS, bool(np.isnan(heat.busy[:most]).any())))
    return lines


def scale(shares: Shares) -> float:
    """What the hottest colour stands for: the largest share, rounded up so that maps can be compared."""
    known = shares[~np.isnan(shares)]
    largest = float(known.max()) if len(known) else 0.0
    return next(top for top in _TOPS if largest <= top)


def _mean(shares: Shares, lasts: Shares) -> float:
    """Of all columns; one that was recorded for less of its time counts for less."""
    known = ~np.isnan(shares)
    return float((shares[known] * lasts[known]).sum() / max(1.0, lasts[known].sum()))


def _cells(shares: Shares, top: float, colour: bool, ramp: str) -> str:
    levels = len(COLOURS) if colour else len(ramp)
    cells = [level(share, top, levels) for share in shares.tolist()]
    if not colour:
        return "".join(GAP if cell < 0 else ramp[cell] for cell in cells)
    painted, before = [], None
    for cell in cells:
        if cell != before:
            painted.append("\x1b[0m" if cell < 0 else f"\x1b[48;5;{COLOURS[cell]}m")
            before = cell
        painted.append(GAP if cell < 0 else " ")
    return "".join(painted) + "\x1b[0m"


def level(share: float, top: float, levels: int) -> int:
    """Which of so many steps; only nothing is 0, so that the rarest thing shows. -1 where nothing was recorded."""
    if share != share:
        return -1
    return min(levels - 1, int(np.ceil(share / top * (levels - 1))))


def axis(start: int, seconds: int, columns: int, clock: Clock) -> list[str]:
    """Ticks at every tenth column, and the wall-clock time at each."""
    ticks, times = [" "] * columns, ""
    for column in range(0, max(1, columns - 7), _TICK):
        ticks[column] = "╵"
        times = f"{times:<{column}}{clock(start + column * seconds * SECOND)}"
    return [" " * LEFT + "".join(ticks).rstrip(), " " * LEFT + times]


def mark_lines(start: int, seconds: int, columns: int, marks: Sequence[Saturated]) -> list[str]:
    """One line under the map: where a core had a whole second of nothing but the kernel. Empty if there was none."""
    return _marked(start, seconds, columns, [mark.time for mark in marks], "^")


def event_lines(start: int, seconds: int, columns: int, times: Sequence[int]) -> list[str]:
    """Another: where the kernel complained."""
    return _marked(start, seconds, columns, times, "!")


def _marked(start: int, seconds: int, columns: int, times: Sequence[int], sign: str) -> list[str]:
    line = [" "] * columns
    for time in times:
        column = (time - start) // (seconds * SECOND)
        if 0 <= column < columns:
            line[column] = sign
    return [" " * LEFT + "".join(line).rstrip()] if sign in line else []


def legend(top: float, colour: bool, ramp: str, gaps: bool) -> str:
    if colour:
        steps = "".join(f"\x1b[48;5;{number}m " for number in COLOURS) + "\x1b[0m"
    else:
        steps = f"[{ramp}]"
    return " " * LEFT + f"0% {steps} {top:.0%} busy" + (f"   {GAP} not recorded" if gaps else "")


def runs(marks: Sequence[Saturated]) -> list[tuple[int, int, int, float]]:
    """Saturated seconds that follow each other on one core, as (core, begin, seconds, lowest share); the longest first."""
    found: list[tuple[int, int, int, float]] = []
    for mark in sorted(marks, key=lambda mark: (mark.core, mark.time)):
        if found:
            core, begin, length, share = found[-1]
            if core == mark.core and begin + length * SECOND == mark.time:
                found[-1] = (core, begin, length + 1, min(share, mark.share))
                continue
        found.append((mark.core, mark.time, 1, mark.share))
    return sorted(found, key=lambda run: (-run[2], run[1], run[0]))
