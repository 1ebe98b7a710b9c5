"""Durations, sizes, counts and shares: the one place that spells them for people, and the one that parses what people type.

Times are integers in nanoseconds. `compact` and `timespan_s` are the two formats that are not ours: PromQL's and systemd's.
Imports nothing of exhume, and nothing slow: every room but kernel/ uses it.
"""

import math
import re
from collections.abc import Callable
from typing import Final

NANOSECOND: Final = 1
MICROSECOND: Final = 1_000
MILLISECOND: Final = 1_000_000
SECOND: Final = 1_000_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR

DAY_S: Final = 86_400.0

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30
TIB: Final = 1 << 40

# unit, its name, and the value from which the next unit is used
_SINGLE: Final = ((NANOSECOND, "ns", 1000), (MICROSECOND, "µs", 1000), (MILLISECOND, "ms", 1000), (SECOND, "s", 60))
_PAIRS: Final = ((MINUTE, "min", SECOND, "s", 60), (HOUR, "h", MINUTE, "min", 24), (DAY, "d", HOUR, "h", 10))
_SIZES: Final = ((KIB, "KiB"), (MIB, "MiB"), (GIB, "GiB"), (TIB, "TiB"))


def duration(ns: float, digits: int = 0) -> str:
    """`350 µs`, `1.4 ms`, `220 ms`, `1.5 s`, `12 s`, `2 min 30 s`, `3 h 5 min`, `4 d 2 h`, `12 d`.

    With `digits`, one unit with so many digits after the point, which `compared` uses to tell two near values apart.
    """
    if not math.isfinite(ns):
        return "unknown" if math.isnan(ns) else "infinity" if ns > 0 else "-infinity"
    whole = _nearest(abs(ns), 1)
    sign = "-" if ns < 0 and whole else ""
    if digits:
        unit, name = next(((unit, name) for unit, name, _ in reversed(_SINGLE) if whole >= unit), (SECOND, "s"))
        return f"{sign}{whole / unit:.{digits}f} {name}"
    return sign + (_spelled(whole) if whole else "0 s")


def _spelled(ns: int) -> str:
    for unit, name, limit in _SINGLE:
        tenths, value = _nearest(10 * ns, unit), _nearest(ns, unit)
        if tenths < 100 or value < limit:
            return f"{tenths / 10:g} {name}" if tenths < 100 else f"{value} {name}"
    for unit, name, part, part_name, limit in _PAIRS:
        value, rest = divmod(_nearest(ns, part), unit // part)
        if value < limit:
            return f"{value} {name}" + (f" {rest} {part_name}" if rest else "")
    return f"{_nearest(ns, DAY)} d"


def _nearest(value: float, unit: int) -> int:
    """Half up, as the page's quantities.js rounds."""
    return int((2 * value + unit) // (2 * unit))


def milliseconds(ms: float) -> str:
    """`6,596 ms`: a stall, always in one unit, so that stalls and the limits of drivers are compared at a glance."""
    if 0 < ms < 0.05:
        return "<0.1 ms"
    return f"{ms:,.0f} ms" if ms >= 9.95 or ms == int(ms) else f"{ms:.1f} ms"


def ago(ns: float) -> str:
    return f"{duration(ns)} ago"


def since_boot(ns: int) -> str:
    """`101 s`: a moment of which the time of day is not known, in seconds as dmesg counts them and --at takes them."""
    return f"{ns // SECOND} s"


def size(bytes_: float, digits: int = 0) -> str:
    """`850 B`, `12.5 KiB`, `512 MiB`, `3.2 GiB`."""
    value, sign = abs(bytes_), "-" if bytes_ < 0 else ""
    if value < KIB and not digits:
        return f"{sign}{value:.0f} B"
    for unit, name in _SIZES:
        part = value / unit
        if digits and (part < 1024 or unit == TIB):
            return f"{sign}{part:.{digits}f} {name}"
        if part < 99.95:
            return f"{sign}{round(part, 1):g} {name}"
        if part < 1023.5 or unit == TIB:
            return f"{sign}{part:.0f} {name}"
    raise AssertionError("TiB has no limit")


def count(number: float, digits: int = 0) -> str:
    """`68,440`, `6.2`, `0.031`."""
    if digits:
        return f"{number:,.{digits + 1}f}"
    if not math.isfinite(number) or number == int(number) or abs(number) >= 99.95:
        return f"{number:,.0f}"
    if abs(number) >= 1:
        return f"{number:.1f}"
    return f"{number:.{min(12, 1 - math.floor(math.log10(abs(number))))}f}".rstrip("0")


def counted(number: int, noun: str, plural: str = "") -> str:
    """`1 zombie`, `68,440 zombies`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def percent(ratio: float, digits: int = 0) -> str:
    return f"{ratio:.{digits}%}"


def compared(spell: Callable[[float, int], str], value: float, limit: float) -> tuple[str, str]:
    """A value and the limit it is held against, with as many digits as it takes for two that differ to look different."""
    for digits in range(20):  # a byte more than a pebibyte is the seventeenth
        pair = spell(value, digits), spell(limit, digits)
        if pair[0] != pair[1] or value == limit:
            break
    return pair


def compact(ns: float) -> str:
    """`5m`, `90s`, `1500ms`: as PromQL and our own options take it. At least a millisecond."""
    ms = max(1, _nearest(ns, MILLISECOND))
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "m"), (SECOND, "s")):
        if ms % (unit // MILLISECOND) == 0:
            return f"{ms // (unit // MILLISECOND)}{name}"
    return f"{ms}ms"


_TYPED: Final = {
    "ns": NANOSECOND,
    **dict.fromkeys(("usec", "us", "μs", "µs"), MICROSECOND),
    **dict.fromkeys(("msec", "ms"), MILLISECOND),
    **dict.fromkeys(("seconds", "second", "sec", "s", ""), SECOND),
    **dict.fromkeys(("minutes", "minute", "min", "m"), MINUTE),
    **dict.fromkeys(("hours", "hour", "hr", "h"), HOUR),
    **dict.fromkeys(("days", "day", "d"), DAY),
    **dict.fromkeys(("weeks", "week", "w"), 7 * DAY),
}
_SYSTEMD: Final = {
    **_TYPED,
    **dict.fromkeys(("months", "month", "M"), 2_629_800 * SECOND),
    **dict.fromkeys(("years", "year", "y"), 31_557_600 * SECOND),
}
_PART: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-zμµ]*)", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?)(?:i?b)?", re.ASCII)
_SIZE_UNITS: Final = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}


def parse_duration(text: str) -> int:
    """Nanoseconds of `300ms`, `2.5s`, `10m`, `1d`, `2 min 30 s`; a bare number is seconds. Raises ValueError."""
    total = _total(text.strip(), _TYPED)
    if total is None or total >= 2**63:
        raise ValueError(f"{text!r} is not a duration; say 300ms, 3s, 10m or 12h")
    return round(total)


def parse_size(text: str) -> int:
    """Bytes of `4GiB`, `500M`, `1.5 g`; a bare number is bytes. Units are powers of 1024. Raises ValueError."""
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{text!r} is not a size; say 500MiB or 4GiB")
    return round(float(match[1]) * _SIZE_UNITS[match[2]])


def timespan_s(text: str) -> float | None:
    """Seconds of a time span of systemd.time(7): `90`, `5min 20s`, `1.5h`, `infinity`; None for anything else.

    The case of a unit counts: m is minutes, M months.
    """
    text = text.strip()
    if text == "infinity":
        return math.inf
    total = _total(text, _SYSTEMD)
    return None if total is None else total / SECOND


def _total(text: str, units: dict[str, int]) -> float | None:
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2] not in units:
            return None
        total += float(part[1]) * units[part[2]]
        position = part.end()
    return total if text else None
