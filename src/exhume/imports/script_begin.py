"""What the beginning of the text of perf script tells of the rest: events, rate, fields, and on which clock it is."""

import os
import time
from typing import NamedTuple

from exhume.host.quantities import SECOND
from exhume.imports import event_names, script_clock, script_events, script_frames, script_header, script_sample
from exhume.imports.incoming import Anchor, Input
from exhume.imports.script_clock import Since

RECORDS = b"PERF_RECORD_"  # perf script --show-task-events and its like: no samples
_END = 1 << 16
"""So much of a file's end is looked at for its last sample."""
_SAME_NS = 10_000
"""Times are printed in microseconds, cut."""


class First(NamedTuple):
    events: list[str]
    period: int
    named: bool
    """The kernel's functions have names."""
    files: bool
    """Frames end with the file that they are in."""
    stacks: bool
    """There are any."""
    since: Since
    times: list[int]
    """Of the first samples, as they are printed."""
    periods: dict[str, tuple[int, int]]
    """How many events a sample of each stands for, at least and at most."""
    date: tuple[int, int] | None
    """Time of a sample and the wall clock then, where that is printed as well (-F tod)."""


def first(head: bytes) -> First:
    events: dict[str, None] = {}
    times: list[int] = []
    periods: dict[str, tuple[int, int]] = {}
    date: tuple[int, int] | None = None
    period = frames = kernel = named = files = 0
    for line in head.split(b"\n")[:-1]:
        line = line.rstrip()
        if line.startswith(b"\t"):
            address = line
            files += line.endswith(b")")
        elif line and (sample := script_sample.parse(line)) is not None and not sample.tail.lstrip().startswith(RECORDS):
            tail = script_sample.tail(sample.tail)
            address = b"\t" + script_sample.address(tail.rest)
            period = period or tail.period
            events[tail.event] = None
            if tail.period:
                least, most = periods.get(tail.event, (tail.period, tail.period))
                periods[tail.event] = min(least, tail.period), max(most, tail.period)
            times.append(sample.time)
            if date is None and (told := script_sample.DATE.search(sample.text.rstrip())) is not None:
                date = sample.time, _wall(told[0])
        else:
            continue
        if not named and (frame := script_frames.parse(address)) is not None:
            frames += 1
            if frame.space == "kernel":
                kernel += 1
                named += bool(frame.name)
    kept = date if date is not None and date[1] > 0 else None
    since = script_clock.since(times)
    return First(list(events), period, bool(named or not kernel), files > 0, frames > 0, since, times, periods, kept)


def uneven(begin: First, chosen: str) -> str:
    """What is to be said where samples stand for different numbers of what is no clock; "" where they do not."""
    name = event_names.plain(chosen)
    found = [periods for event, periods in begin.periods.items() if script_events.matches(event, chosen)]
    least, most = min((one[0] for one in found), default=0), max((one[1] for one in found), default=0)
    return event_names.uneven(name, least, most) if not event_names.clock(name) else ""


def _wall(date: bytes) -> int:
    """Local time of whoever printed it; -1 for what is none."""
    seconds, _, fraction = date.decode().partition(".")
    try:
        return int(time.mktime(time.strptime(seconds, "%Y-%m-%d %H:%M:%S"))) * SECOND + int(fraction) * 1000
    except (OverflowError, ValueError):
        return -1


def hertz(header: script_header.Header, begin: First, chosen: str) -> int:
    rate = script_header.frequency(header, [event for event in header.events if script_events.matches(event, chosen)])
    if not rate and event_names.plain(chosen) in ("cpu-clock", "task-clock") and begin.period >= 1000:
        rate = round(SECOND / begin.period)  # these count nanoseconds (kernel/events/core.c, cpu_clock_event_*)
    # Samples of other events do not stand for time.
    return rate if event_names.clock(event_names.plain(chosen)) else 0


class Placed(NamedTuple):
    shift: int
    """What is to be added to every time, so that it is one since boot."""
    anchors: list[Anchor]
    notes: list[str]


def placed(header: script_header.Header, begin: First, source: Input) -> Placed:
    shift, notes, since = 0, [], begin.since
    if since == "boot" and begin.times and max(begin.times) < header.first:
        since = "first"  # which was none of the samples that are printed
    known = since == "boot"
    last = header.last if known and header.last >= 0 else -1
    if since == "before":
        notes.append(
            "its times are what passed since the sample before (perf script --deltatime): they were summed up from 0 on, with "
            "an error of up to a microsecond a sample; beside other files it is misplaced"
        )
        if header.first >= 0 and header.last >= header.first:
            last = header.last - header.first
    elif last < 0:
        last = _last_time(source)
    if since == "first":
        # The header is of the whole capture, the text may be of a part of it: only if both last as long is it of the same.
        known = header.first >= 0 and last >= 0 and abs(header.first + last - header.last) < _SAME_NS
        shift = header.first if known else 0
        last = last + shift if last >= 0 else last
        which = "which its header tells" if known else "and when that was is not known: beside other files it is misplaced"
        notes.append(f"its times count from its first sample (perf script --reltime), {which}")
    if header.clocks is not None and known:
        return Placed(shift, [Anchor(*header.clocks, "from the header, which has both clocks")], notes)
    if begin.date is not None:
        notes.append(f"its times of day have no zone: taken as local time here ({time.strftime('%Z %z').strip()})")
        return Placed(shift, [Anchor(begin.date[0] + shift, begin.date[1], "the text has both clocks")], notes)
    if header.captured and last >= 0:
        return Placed(shift, [Anchor(last, header.captured, "guessed from the header's time", sure=False)], notes)
    return Placed(shift, [], notes)


def _last_time(source: Input) -> int:
    """When the last sample was taken; -1 where the end cannot be seen from here."""
    if not source.seekable:
        return -1
    try:
        end = os.pread(source.fileno(), _END, max(0, source.size - _END))
    except OSError:
        return -1
    for line in reversed(end.split(b"\n")[1:]):
        if not line.startswith(b"\t") and (sample := script_sample.parse(line.rstrip())) is not None:
            return sample.time
    return -1
