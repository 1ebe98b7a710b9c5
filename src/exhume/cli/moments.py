"""Moments and windows of a recording as people type them: by the clock on the wall, from its ends, or as dmesg shows them."""

import argparse
import re
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, NamedTuple, Protocol

from exhume.cli.arguments import duration_ns
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import DAY, SECOND, since_boot

_HALF_MS = 500_000
# A recording that was imported from files without a time of day has seconds since boot for it: no machine runs so long.
_UNKNOWN = 20 * 365 * DAY
FORMS = (
    "say 12:04:31.5 (local; Z, UTC or +02:00 may follow), 2026-01-31T12:04:31Z, +90s (from its begin), -30s (from its end) or "
    "12345.678 (as dmesg shows it)"
)

_CLOCK = r"(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?"
_ZONE = r"(?: ?([Zz]|[A-Za-z]{2,5}|[+-]\d{2}:?\d{2}))?"
_OF_DAY = re.compile(_CLOCK + _ZONE, re.ASCII)
_DATED = re.compile(r"(\d{4})-(\d{2})-(\d{2})[Tt ]" + _CLOCK + _ZONE, re.ASCII)
_UPTIME = re.compile(r"(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
# What argparse takes for a value although it begins with a dash: `--from -30s`.
_FROM_END = re.compile(r"-\d")

Form = Literal["begin", "end", "uptime", "real", "day"]


class Moment(NamedTuple):
    """A moment as it was typed: from the begin, from the end, on the recording's clock, by wall clock with or without a day."""

    form: Form
    ns: int
    text: str
    zone: timezone | None = None
    """Of a time of day: where; None is here."""


class Window(NamedTuple):
    """Part of a recording, on its clock; the end is outside. `whole` if nobody asked for less."""

    start: int
    end: int
    whole: bool


class Clocks(Protocol):
    """What a folder knows about time."""

    @property
    def window(self) -> tuple[int, int]: ...
    def real_ns(self, time: int) -> int: ...
    def time_at(self, real_ns: int) -> int: ...


def arguments(parser: argparse.ArgumentParser, at: bool = True) -> None:
    """The options of a window: --from, --to, --for, and --at."""
    parser._negative_number_matcher = _FROM_END
    window = parser.add_argument_group("window (all of it if not said)")
    window.add_argument("--from", dest="start", type=moment, metavar="T", help=f"its begin: {FORMS[4:]}")
    window.add_argument("--to", dest="end", type=moment, metavar="T", help="its end")
    if at:
        window.add_argument(
            "--at", type=moment, metavar="T", help="the same as --from, for a second if --for says nothing else"
        )
    window.add_argument("--for", dest="span_ns", type=duration_ns, metavar="TIME", help="how long: 300ms, 3s, 10m")


def moment(text: str) -> Moment:
    """Understands the form; which day is meant only the recording knows."""
    stripped = text.strip()
    if stripped[:1] in ("+", "-"):
        try:
            return Moment("begin" if stripped[0] == "+" else "end", duration_ns(stripped[1:]), stripped)
        except argparse.ArgumentTypeError:
            raise argparse.ArgumentTypeError(f"{text!r} is not a moment; {FORMS}") from None
    if match := _UPTIME.fullmatch(stripped):
        return Moment("uptime", int(match[1]) * SECOND + _fraction(match[2]), stripped)
    if match := _OF_DAY.fullmatch(stripped):
        if (of_day := _of_day(match.groups())) is not None and (zone := _zone(match[5])) is not False:
            return Moment("day", of_day, stripped, zone)
    elif (match := _DATED.fullmatch(stripped)) and (real := _dated(match)) is not None:
        return Moment("real", real, stripped)
    raise argparse.ArgumentTypeError(f"{text!r} is not a moment; {FORMS}")


def _fraction(digits: str | None) -> int:
    return int((digits or "").ljust(9, "0"))


def _of_day(groups: tuple[str | None, ...]) -> int | None:
    hours, minutes, seconds = (int(group or 0) for group in groups[:3])
    if hours > 23 or minutes > 59 or seconds > 59:
        return None
    return (hours * 3600 + minutes * 60 + seconds) * SECOND + _fraction(groups[3])


def _dated(match: re.Match[str]) -> int | None:
    """Without a zone it is the local one."""
    of_day = _of_day(match.groups()[3:7])
    try:
        day = datetime(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        return None
    if of_day is None or (zone := _zone(match[8])) is False:
        return None
    return _on(day, of_day, zone)[-1]


def _zone(text: str | None) -> timezone | Literal[False] | None:
    """Of what is typed behind a time, as reports have it there. None is the local one, False is none that is known."""
    if not text or (text in time.tzname and text != "UTC"):
        return None
    if text.upper() in ("Z", "UTC"):
        return UTC
    if text[0] not in "+-":
        return False
    digits = text.replace(":", "")
    shift = timedelta(hours=int(digits[:3]), minutes=int(digits[0] + digits[3:]))
    return timezone(shift) if abs(shift) < timedelta(days=1) else False


def _on(day: datetime, of_day: int, zone: timezone | None) -> list[int]:
    """A time of a day as wall-clock nanoseconds: two where the clocks are put back."""
    if zone is not None:
        return [int(day.replace(tzinfo=zone).timestamp()) * SECOND + of_day]
    whole, rest = divmod(of_day, SECOND)
    naive = day + timedelta(seconds=whole)
    try:
        return sorted({int(naive.replace(fold=fold).timestamp()) * SECOND + rest for fold in (0, 1)})
    except (OverflowError, ValueError, OSError):  # years that the C library has no local time for
        return [int(naive.replace(tzinfo=UTC).timestamp()) * SECOND + rest]


def resolve(moment: Moment, clocks: Clocks) -> int:
    """The moment on the recording's clock. Says so on stderr when a time of day was meant on one of several days."""
    begin, end = clocks.window
    if moment.form == "begin":
        return begin + moment.ns
    if moment.form == "end":
        return end - moment.ns
    if moment.form == "uptime":
        return moment.ns
    if moment.form == "real":
        return clocks.time_at(moment.ns)
    candidates = _candidates(moment, clocks.real_ns(begin), clocks.real_ns(end))
    if len(candidates) > 1:
        told = wall(candidates[-1], "%Y-%m-%d %H:%M:%S %Z")
        sys.stderr.write(f"exhume: the recording has {moment.text} {len(candidates)} times; the last one is taken, {told}\n")
    return clocks.time_at(candidates[-1])


def _candidates(moment: Moment, begin: int, end: int) -> list[int]:
    """When it was that time inside of a span of wall-clock time; if never, the one time that is nearest to it."""
    there = datetime.fromtimestamp(begin // SECOND, moment.zone)
    first = there.replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=None)
    days = range(-1, (end - begin) // DAY + 3)
    found = sorted({real for day in days for real in _on(first + timedelta(days=day), moment.ns, moment.zone)})
    inside = [real for real in found if begin <= real <= end]
    return inside or [min(found, key=lambda real: max(begin - real, real - end))]


def window(args: argparse.Namespace, clocks: Clocks) -> Window:
    """The window that was asked for, cut to what the recording has."""
    at = getattr(args, "at", None)
    if at is not None and (args.start is not None or args.end is not None):
        raise UsageError("--at is a window of its own: give --at with --for, or --from with --to")
    if args.start is not None and args.end is not None and args.span_ns is not None:
        raise UsageError("--from, --to and --for together say one thing too much: leave one of them out")
    if args.span_ns == 0:
        raise UsageError("--for 0 is no window: say how long")
    first, last = clocks.window
    start, end = _ends(args, at, clocks)
    whole = start is None and end is None
    start = first if start is None else start
    end = last + 1 if end is None else end
    if end <= first or start > last:
        beyond = f"the time from {_told(clocks, start)} on" if start > last else f"the time before {_told(clocks, end)}"
        raise _not_there(beyond, clocks)
    if start >= end:
        raise UsageError(f"the window ends before it begins: {spanning(clocks, start, end)}")
    return Window(max(start, first), min(end, last + 1), whole)


def around(moment: Moment, clocks: Clocks, before_ns: int, after_ns: int) -> tuple[int, int, int]:
    """A window around a moment, cut to what the recording has, and that moment. One that is not in it is refused; who types
    whole seconds may be off by one."""
    first, last = clocks.window
    at = resolve(moment, clocks)
    if not first - SECOND <= at <= last + SECOND:
        raise _not_there(_told(clocks, at), clocks)
    at = min(max(at, first), last)
    return max(first, at - before_ns), min(last + 1, at + after_ns), at


def _not_there(what: str, clocks: Clocks) -> ExhumeError:
    return ExhumeError(f"{what} is not in the recording, which covers {spanning(clocks, *clocks.window)}")


def spanning(clocks: Clocks, start: int, end: int) -> str:
    """`2026-01-31 12:04:31.500 to 2026-01-31 12:05:31.500 UTC`."""
    zone = wall(clocks.real_ns(end), "%Z")
    return f"{_told(clocks, start)} to {_told(clocks, end)}{zone and ' ' + zone}"


def of_samples(window: Window, sampled: tuple[int, int]) -> Window:
    """All of it is all that has samples, where nobody asked for more: a log beside them may reach over days."""
    return Window(max(window.start, sampled[0]), min(window.end, sampled[1] + 1), True) if window.whole else window


def _ends(args: argparse.Namespace, at: Moment | None, clocks: Clocks) -> tuple[int | None, int | None]:
    begin = at if at is not None else args.start
    start = None if begin is None else resolve(begin, clocks)
    end = None if args.end is None else resolve(args.end, clocks)
    if args.span_ns is None:
        return (start, start + SECOND) if at is not None and start is not None else (start, end)
    if start is not None:
        return start, start + args.span_ns
    if end is not None:
        return end - args.span_ns, end
    return clocks.window[1] + 1 - args.span_ns, None


def _told(clocks: Clocks, time: int) -> str:
    return clock(clocks.real_ns(time), dated=True)


def wall(real_ns: int, form: str) -> str:
    """Local time; a moment outside of what calendars know, or without a time of day, is told in seconds."""
    real_ns += _HALF_MS  # anchors differ by parts of a microsecond: what is 59.9999998 is not 59
    if real_ns < _UNKNOWN:
        return "" if form == "%Z" else since_boot(real_ns)
    try:
        return datetime.fromtimestamp(real_ns // SECOND).astimezone().strftime(form)
    except (OverflowError, ValueError, OSError):
        return since_boot(real_ns)


def clock(real_ns: int, dated: bool = False) -> str:
    """`12:04:31.500` in local time, with the day if asked; where nobody knows the time of day, seconds as dmesg shows them."""
    if real_ns < _UNKNOWN:
        return f"{real_ns // SECOND}.{real_ns % SECOND // 1_000_000:03}"
    form = "%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S"
    return f"{wall(real_ns // 1_000_000 * 1_000_000, form)}.{real_ns % SECOND // 1_000_000:03}"


def rfc3339(real_ns: int) -> str:
    """In UTC, to the millisecond, as all our JSON has it."""
    moment = datetime.fromtimestamp(real_ns // SECOND, UTC).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='seconds')}.{real_ns % SECOND // 1_000_000:03}Z"
