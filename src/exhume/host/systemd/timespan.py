"""Time spans as systemd.time(7) has them: `90`, `5min 20s`, `1.5h`, `infinity`."""

import math
import re

_UNITS = {
    **dict.fromkeys(("seconds", "second", "sec", "s", ""), 1.0),
    **dict.fromkeys(("minutes", "minute", "min", "m"), 60.0),
    **dict.fromkeys(("months", "month", "M"), 2629800.0),
    **dict.fromkeys(("msec", "ms"), 1e-3),
    **dict.fromkeys(("usec", "us", "μs", "µs"), 1e-6),
    **dict.fromkeys(("hours", "hour", "hr", "h"), 3600.0),
    **dict.fromkeys(("days", "day", "d"), 86400.0),
    **dict.fromkeys(("weeks", "week", "w"), 604800.0),
    **dict.fromkeys(("years", "year", "y"), 31557600.0),
}
_PART = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-zμµ]*)", re.ASCII)


def seconds(text: str) -> float | None:
    """None for what is no time span. A unit letter's case counts: m is minutes, M months."""
    text = text.strip()
    if text == "infinity":
        return math.inf
    total, position = 0.0, 0
    while position < len(text):
        part = _PART.match(text, position)
        if part is None or part[2] not in _UNITS:
            return None
        total += float(part[1]) * _UNITS[part[2]]
        position = part.end()
    return total if text else None


def shown(span: float) -> str:
    """As a person writes it: 100 ms, 10 s, 1.5 s, 2 min."""
    if math.isinf(span):
        return "infinity"
    if span < 1:
        return f"{span * 1e3:g} ms"
    if span < 120:
        return f"{round(span, 3):g} s"
    return f"{round(span / 60, 2):g} min" if span < 7200 else f"{round(span / 3600, 2):g} h"
