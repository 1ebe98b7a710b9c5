"""How a line of a log begins: the forms of dmesg, of syslog files and of journalctl's text, read as times on either clock."""

import re
from typing import Any, NamedTuple

from exhume.host.quantities import MINUTE, SECOND
from exhume.imports.log_time import MONTHS, Calendar, fraction_ns

_MONTH = rb"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_DELTA = rb"(?: < *-?\d{1,10}\.\d{1,9}>)?"
_ZONE = rb"(?P<iso_zone>[+-]\d\d:?\d\d|Z)"
# print_record in sys-utils/dmesg.c of util-linux, in the order of the cases' likelihood. Since 2.41 a line may have several.
_STAMPS = (
    rb"\[ *(?P<since_boot>\d{1,9})\.(?P<since_fraction>\d{1,9})" + _DELTA + rb"\]",
    rb"\[[A-Z][a-z]{2} (?P<month>"
    + _MONTH
    + rb") (?P<day>[ \d]\d) (?P<clock>\d\d:\d\d:\d\d) (?P<year>\d{4})"
    + _DELTA
    + rb"\]",
    rb"\[ *(?P<more>[+-]\d{1,9})\.(?P<more_fraction>\d{1,9})\]",
    rb"\[(?P<head_month>" + _MONTH + rb")(?P<head_day>[ \d]\d) (?P<head_clock>\d\d:\d\d)\]",
    rb"(?P<iso_year>\d{4})-(?P<iso_month>\d\d)-(?P<iso_day>\d\d)T(?P<iso_clock>\d\d:\d\d:\d\d),(?P<iso_fraction>\d{6})" + _ZONE,
    rb"\[< *-?\d{1,10}\.\d{1,9}>\]",
)
_STAMP = re.compile(b"|".join(_STAMPS))
# -r has <30>, -x `daemon:info  : `; 2.38.1 prints a wrong facility with -r, which then cannot be told.
# The caller stands behind the time if the kernel has CONFIG_PRINTK_CALLER (print_caller in kernel/printk/printk.c).
DMESG = re.compile(
    rb"(?:<(?P<priority>\d{1,4})>|(?P<facility>[a-z0-9]{2,8}) *:[a-z]{2,6} *: )?(?P<stamps>(?:(?:"
    + re.sub(rb"\(\?P<\w+>", b"(?:", b"|".join(_STAMPS))
    + rb") ?){1,3})(?:\[ *[TC]\d{1,9}\] ?)?"
)
# The same without a time, as dmesg -t -x has it.
DECODED = re.compile(rb"[a-z0-9]{2,8} *:(?:emerg|alert|crit|err|warn|notice|info|debug) *: ")
# journalctl -o short-monotonic: the clock since boot, then host and program.
MONOTONIC = re.compile(rb"(?P<host>\S{1,255}) (?P<program>[^\s:\[]{1,128})(?:\[\d{1,9}\])?: ?")
COLOUR = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")

# RFC 3164; RFC 5424 and rsyslog's own form with the date of RFC 3339; journalctl -o short, short-precise, -iso, -full, -unix.
# BusyBox has facility and level behind the host; so has logread of OpenWrt, which tells a weekday and a year, but no host.
_LEVEL = rb"(?:emerg|alert|crit|err|warn|notice|info|debug) "
_WHEN = (
    rb"(?:<(?P<priority>\d{1,3})>(?:1 )?)?"
    rb"(?:(?P<weekday>[A-Z][a-z]{2} )?(?P<month>" + _MONTH + rb") (?P<day>[ \d]\d)(?: (?P<year>\d{4}))? "
    rb"(?P<clock>\d\d:\d\d:\d\d)(?:[.,](?P<fraction>\d{1,9}))?"
    rb"|(?:[A-Z][a-z]{2} )?(?P<iso_year>\d{4})-(?P<iso_month>\d\d)-(?P<iso_day>\d\d)[T ](?P<iso_clock>\d\d:\d\d:\d\d)"
    rb"(?:[.,](?P<iso_fraction>\d{1,9}))?(?: ?(?P<zone>Z|[+-]\d\d:?\d\d|[A-Z]{3,5}))?"
    rb"|(?P<unix>\d{9,10})\.(?P<unix_fraction>\d{6})) "
    rb"(?(weekday)(?P<late_year>\d{4}) (?=[a-z0-9]{2,8}\.[a-z])|(?P<host>[^\s]{1,255}) )(?:(?P<facility>[a-z0-9]{2,8})\."
    + _LEVEL
    + rb")?"
)
# Text in UTF-8 may begin with a mark that says so (RFC 5424, 6.4).
_TAG = rb"(?:\[\d{1,9}\])?(?:: ?| [^\s]{1,128} [^\s]{1,128} (?:-|\[[^\n]*?\]) ?(?:\xef\xbb\xbf)?)"
SYSLOG = re.compile(
    _WHEN + b"kernel" + _TAG + rb"(?:\[ *(?P<since_boot>\d{1,9})\.(?P<since_fraction>\d{1,9})\](?: ?\[ *[TC]\d{1,9}\])? ?)?"
)
OF_ANYBODY = re.compile(_WHEN + rb"[^\s:\[]{1,128}" + _TAG)
_OCTAL = re.compile(rb"#0([0-3][0-7])")


class Stamp(NamedTuple):
    """When: on the clock since boot, on the wall clock, or both."""

    boot: int | None
    wall: int | None
    resolution: int
    """Of the wall clock: it is at `wall` or later, but before the next."""


NEVER = Stamp(None, None, 0)


class DmesgClock:
    """The stamps of dmesg. Those of `dmesg -H` tell a minute, and then what has passed since the line before."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._minute: int | None = None
        self._passed = 0
        self.relative = False
        """There were some: every line must be asked, since the next one depends on it."""

    def stamp(self, stamps: bytes) -> Stamp:
        boot = wall = None
        resolution = 0
        for match in _STAMP.finditer(stamps):
            of = match.groupdict()
            if of["since_boot"] is not None:
                boot = int(of["since_boot"]) * SECOND + fraction_ns(of["since_fraction"])
            elif of["year"] is not None:
                wall = self._calendar.dated(int(of["year"]), MONTHS[of["month"]], int(of["day"]), of["clock"])
                resolution = SECOND
            elif of["iso_year"] is not None:
                date = int(of["iso_year"]), int(of["iso_month"]), int(of["iso_day"])
                wall = self._calendar.dated(*date, of["iso_clock"], of["iso_fraction"], of["iso_zone"])
                resolution = 0
            elif of["head_month"] is not None or of["more"] is not None:
                self._go_on(of)
                if wall is None and self._minute is not None:
                    wall, resolution = self._minute + self._passed, MINUTE
        return Stamp(boot, wall, resolution)

    def _go_on(self, of: dict[str, Any]) -> None:
        self.relative = True
        if of["head_month"] is not None:
            self._minute = self._calendar.undated(MONTHS[of["head_month"]], int(of["head_day"]), of["head_clock"])
            self._passed = 0
            return
        more = int(of["more"]) * SECOND
        more += -fraction_ns(of["more_fraction"]) if of["more"].startswith(b"-") else fraction_ns(of["more_fraction"])
        # No further than the minute: the next one would have been told.
        self._passed = max(0, min(self._passed + more, MINUTE - 1))


def syslog_stamp(match: re.Match[bytes], calendar: Calendar) -> Stamp:
    """Of a match of SYSLOG."""
    of = match.groupdict()
    wall: int | None
    fraction: bytes | None
    if of["month"] is not None:
        fraction = of["fraction"]
        month, day = MONTHS[of["month"]], int(of["day"])
        year = of["year"] or of["late_year"]
        if year is None:
            wall = calendar.undated(month, day, of["clock"], fraction)
        else:
            wall = calendar.dated(int(year), month, day, of["clock"], fraction)
    elif of["iso_year"] is not None:
        fraction = of["iso_fraction"]
        date = int(of["iso_year"]), int(of["iso_month"]), int(of["iso_day"])
        wall = calendar.dated(*date, of["iso_clock"], fraction, of["zone"])
    else:
        fraction = of["unix_fraction"]
        wall = int(of["unix"]) * SECOND + fraction_ns(fraction)
        wall = wall if wall < 7_000_000_000 * SECOND else None
    boot = None
    if of["since_boot"] is not None:
        boot = int(of["since_boot"]) * SECOND + fraction_ns(of["since_fraction"])
    return Stamp(boot, wall, 0 if fraction else SECOND)


def of_kernel(match: re.Match[bytes]) -> bool:
    """Facility 0 is the kernel's alone; where a line tells none it is believed."""
    of = match.groupdict()
    if of["priority"] is not None:
        return int(of["priority"]) < 8
    return of.get("facility") in (None, b"kern")


def unoctal(text: bytes) -> bytes:
    """rsyslog writes control characters as #011 (escapeControlCharactersOnReceive)."""
    return _OCTAL.sub(lambda escape: bytes((int(escape[1], 8),)), text) if b"#0" in text else text
