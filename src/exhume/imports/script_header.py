"""What perf script --header tells above its samples: the machine, the events, when it was (tools/perf/util/header.c)."""

import re
import time
from dataclasses import dataclass, field

from exhume.host.quantities import SECOND
from exhume.imports import perf_command
from exhume.text import decode

_FENCE = b"# ========"
_LINE = re.compile(rb"# ?([a-z][a-z ]{0,30}?) *: ?(.*)", re.ASCII)
_EVENT = re.compile(r"name = ([^,]+),")
_FREQUENCY = re.compile(r"sample_freq \} = (\d{1,9})\b", re.ASCII)
_ASKED = re.compile(r"(?:^|\s)(?:--freq[= ]|-[a-zA-Z]*F ?)(\d{1,9})(?=\s|$)", re.ASCII)
# print_clock_data: the time of day and the clock that samples have, read together (perf record -k).
_CLOCKS = re.compile(r".* = (\d{1,10})\.(\d{6}) \(TOD\) = (\d{1,10})\.(\d{9}) \(", re.ASCII)
_WHEN = re.compile(r"\w{3} (\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})", re.ASCII)
_SECONDS = re.compile(r"(\d{1,10})\.(\d{6})", re.ASCII)
_LATEST = 9_000_000_000  # seconds: what 63 bits hold as nanoseconds, rounded down
_MONTHS = {name: number for number, name in enumerate("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(), 1)}


@dataclass(slots=True)
class Header:
    hostname: str = ""
    kernel: str = ""
    cpus: int = 0
    command: str = ""
    cpu: str = ""
    events: dict[str, int] = field(default_factory=dict)
    """How many samples a second were asked for; 0 where that is not said."""
    of_some: bool = False
    """Only a command was sampled, from its exec on, or some processes, and not whatever ran."""
    captured: int = 0
    """When the file was written, wall clock in nanoseconds; 0 where that is not said."""
    first: int = -1
    last: int = -1
    """Times of the first and the last sample; -1 where that is not said."""
    length: int = 0
    """In bytes."""
    clocks: tuple[int, int] | None = None
    """One moment on the clock of the samples and on the wall clock."""


def parse(head: bytes) -> Header:
    """The lines with # in front, as far as there are any; and what is between fences, as a command may have newlines in it."""
    found = Header()
    fence = head.find(_FENCE, head.find(_FENCE) + 1) if head.startswith(_FENCE) else -1
    for line in head.split(b"\n"):
        if not line.startswith(b"#") and found.length > fence:
            break
        found.length += len(line) + 1
        if (told := _LINE.fullmatch(line.rstrip(b"\r"))) is not None:
            _learn(found, told[1].decode(), decode(told[2]).strip())
    return found


def _learn(found: Header, what: str, value: str) -> None:
    if what == "hostname":
        found.hostname = value
    elif what == "os release":
        found.kernel = value
    elif what in ("nrcpus online", "nrcpus avail") and value.isascii() and value.isdigit() and len(value) < 7:
        found.cpus = max(found.cpus, int(value))
    elif what == "cpudesc":
        found.cpu = value
    elif what == "cmdline":
        found.command = value
        found.of_some |= perf_command.of_some(value.split())
    elif what == "event" and (named := _EVENT.match(value)) is not None:
        frequency = _FREQUENCY.search(value)
        found.events[named[1].strip()] = int(frequency[1]) if frequency is not None and "freq = 1" in value else 0
        found.of_some |= "enable_on_exec = 1" in value
    elif what == "captured on":
        found.captured = when(value)
    elif what == "time of first sample":
        found.first = _moment(value)
    elif what == "time of last sample":
        found.last = _moment(value)
    elif what == "reference time" and (clocks := _CLOCKS.match(value)) and max(int(clocks[1]), int(clocks[3])) < _LATEST:
        found.clocks = int(clocks[3]) * SECOND + int(clocks[4]), int(clocks[1]) * SECOND + int(clocks[2]) * 1000


def _moment(value: str) -> int:
    seconds = _SECONDS.fullmatch(value)
    return int(seconds[1]) * SECOND + int(seconds[2]) * 1000 if seconds is not None and int(seconds[1]) < _LATEST else -1


def when(value: str) -> int:
    """ctime(3) of whoever printed it: without a time zone, so ours."""
    told = _WHEN.fullmatch(value)
    month = _MONTHS.get(told[1], 0) if told is not None else 0
    if told is None or not month:
        return 0
    try:
        real = time.mktime((int(told[6]), month, int(told[2]), int(told[3]), int(told[4]), int(told[5]), 0, 0, -1))
    except (OverflowError, ValueError):
        return 0
    return int(real) * SECOND if 0 < real < 9_000_000_000 else 0


def frequency(header: Header, events: list[str]) -> int:
    """Samples a second, as these events or the command have it; 0 where neither does."""
    rates = [header.events[event] for event in events if header.events.get(event)]
    if rates:
        return rates[0]
    asked = _ASKED.search(header.command)
    return int(asked[1]) if asked is not None else 0
