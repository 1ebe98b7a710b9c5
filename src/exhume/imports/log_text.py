"""Kernel logs as text, imported: what dmesg prints in all its forms, syslog files, and what journalctl prints for people.

Only lines of the kernel are judged, by the same forms as the live log. Where a line tells its facility, one that a program
wrote is not believed; in a syslog file anybody can call himself kernel, and nothing in it would show that.
"""

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from exhume.errors import ExhumeError
from exhume.host.quantities import MINUTE, SECOND
from exhume.imports import log_wrapped
from exhume.imports.incoming import HEAD, Anchor, Damaged, Input, Lines, Wanted
from exhume.imports.log_forms import (
    COLOUR,
    DECODED,
    DMESG,
    MONOTONIC,
    OF_ANYBODY,
    SYSLOG,
    DmesgClock,
    Stamp,
    of_kernel,
    syslog_stamp,
    unoctal,
)
from exhume.imports.log_import import LONGEST, LogImport, backwards, forwards, same_boot, some, wall_at_boot
from exhume.imports.log_time import Calendar, fraction_ns
from exhume.recording.recording import Node
from exhume.sources.kernel_lines import classify, interesting
from exhume.sources.kernel_log import unescaped
from exhume.sources.kernel_traces import TraceFilter
from exhume.text import decode, from_json, printable

Dialect = Literal["dmesg", "monotonic", "syslog", "json", "timeless", ""]

_TAG = b" kernel"
_PLAIN_TAG = b" kernel: "
_PAIRS = 500
"""So many lines with both clocks are enough to know how they belong together."""
_SOME_HOSTS = 4
_HALF_AN_HOUR = 30 * MINUTE
_JSON = re.compile(rb'\s*\{\s*"dmesg"\s*:')
_JSON_FIELD = re.compile(rb'\s*"(fac|pri|time|msg)": *')
_TIME = re.compile(rb"(\d{1,9})\.(\d{1,9})")
_LINUX = re.compile(rb"Linux version ([\w.+~-]{1,64})")
_CPUS = re.compile(rb"smp: Brought up \d{1,4} nodes?, (\d{1,5}) CPUs?")


def looks(head: bytes) -> bool:
    return _dialect(log_wrapped.plain(log_wrapped.kind(head), head)) != ""


def opened(source: Input, wanted: Wanted) -> "LogText":
    return LogText(source)


class _Said(NamedTuple):
    """A line of the kernel in a syslog file."""

    stamp: Stamp
    host: bytes
    """b"" where it tells none."""


class LogText(LogImport):
    def __init__(self, source: Input) -> None:
        super().__init__()
        self._source = source
        self._calendar = Calendar(source.changed_ns)
        self._clock = DmesgClock(self._calendar)
        self._at_boot: int | None = None
        self._host = b""
        self._strangers: dict[bytes, None] = {}
        self._others = self._impostors = self._unplaced = self._earlier = self._back = 0
        self._latest = 0
        self._open_line = 0
        """The width of what stands before the line that was added last, if the next may be a part of it."""
        self._object: dict[bytes, bytes] = {}
        self._traces = TraceFilter()
        head = source.head(HEAD)
        self._wrapped = log_wrapped.kind(head)
        head = log_wrapped.plain(self._wrapped, head)
        self._dialect = _dialect(head)
        if self._dialect in ("timeless", ""):
            raise Damaged(
                f"{source.name} has no times from byte 0 on, as after dmesg -t: nothing in it can be placed; "
                "dmesg, dmesg -T and dmesg --time-format iso print them"
            )
        lines = _lines(head)
        if self._dialect == "syslog":
            self._survey(_said(lines, self._calendar), lines)
            return
        if self._dialect != "json":
            self._look_at(lines)
        self._describe(lines)

    def gather(self) -> Iterator[None]:
        lines = Lines(self._source)
        take = {"dmesg": self._dmesg, "monotonic": self._dmesg, "syslog": self._syslog, "json": self._json}[self._dialect]
        try:
            for block in lines.blocks():
                take(self._clean(block))
                yield
        except ExhumeError as error:
            self.notes.append(f"{error}; what came before it was taken")
        self.notes += self._calendar.notes()
        self._conclude(lines.cut)

    def _clean(self, block: bytes) -> bytes:
        return _clean(log_wrapped.plain(self._wrapped, block))

    # What the file is.

    def _look_at(self, lines: list[bytes]) -> None:
        """Which clocks dmesg printed."""
        clock = DmesgClock(self._calendar)
        stamps = [clock.stamp(match["stamps"]) for line in lines if (match := DMESG.match(line))]
        pairs = [(found.boot, found.wall) for found in stamps if found.boot is not None and found.wall is not None]
        if pairs:
            self._anchor(pairs[:_PAIRS], max(found.resolution for found in stamps))
        elif any(found.boot is not None for found in stamps):
            self.axis = "boot"
        elif clock.relative or any(found.wall is not None for found in stamps):
            self.axis = "wall"
        else:
            raise Damaged(
                f"{self._source.name} has no times from byte 0 on, only what passed between the lines, as after "
                "dmesg --time-format delta: nothing in it can be placed; dmesg and dmesg --time-format iso print them"
            )
        self._clock.relative = clock.relative

    def _describe(self, lines: list[bytes]) -> None:
        head = b"\n".join(lines)
        kernel, cpus = _LINUX.search(head), _CPUS.search(head)
        if self._dialect == "monotonic":
            tags = (_tag(line, match) for line in lines if (match := DMESG.match(line)))
            self._host = next((tag["host"] for tag in tags if tag is not None), b"")
        self.node = Node(decode(self._host), "", decode(kernel[1]) if kernel else "", "", int(cpus[1]) if cpus else 0)

    def _survey(self, first: list[_Said], lines: list[bytes]) -> None:
        """A syslog file: whose it is, whether its lines have both clocks, and whether they are of one boot."""
        first = first or self._lines_at(forwards(self._source, _TAG))
        plain = not any(_both(said.stamp) for said in first)
        last = first if plain else self._lines_at(backwards(self._source, _TAG))[-_PAIRS:] or first
        found = next((match for line in lines if (match := OF_ANYBODY.match(line))), None)
        self._host = last[-1].host if last else found["host"] or b"" if found else b""
        self.node = Node(decode(self._host), "", "", "", 0)
        self.axis = "wall"
        pairs: list[tuple[int, int]] = []
        resolution = 0
        newest = self._newest([*first, *last])
        for said in reversed(last):
            boot, wall, coarse = said.stamp
            if boot is None or wall is None:
                continue
            wall = self._fitting(boot, wall, newest)
            if pairs and (boot > pairs[-1][0] + SECOND or not same_boot(boot, wall, pairs[0][1] - pairs[0][0])):
                break
            pairs.append((boot, wall))
            resolution = max(resolution, coarse)
        if not pairs:
            return
        self._anchor(pairs, resolution)
        for boot, wall, _ in (said.stamp for said in first):
            if boot is not None and wall is not None:
                at_boot = self.anchors[0].real - self.anchors[0].time
                if boot > pairs[0][0] + SECOND or not same_boot(boot, self._fitting(boot, wall, at_boot), at_boot):
                    self.axis = "wall"
                    self.notes.append(
                        "it has more than one boot, or its clock was set: all is on the wall clock, the last is tied to both"
                    )
                break

    def _newest(self, said: list[_Said]) -> int:
        """The wall clock at the boot of the last of these lines; if it has two moments, by the one that more agree with."""
        both = [(boot, wall) for boot, wall, _ in (one.stamp for one in said) if boot is not None and wall is not None]
        if not both:
            return 0
        boot, wall = both[-1]

        def agree(at_boot: int) -> int:
            return sum(same_boot(boot, self._fitting(boot, wall, at_boot), at_boot) for boot, wall in both)

        later = self._calendar.again(wall)
        return (later if later != wall and agree(later - boot) > agree(wall - boot) else wall) - boot

    def _fitting(self, boot: int, wall: int, at_boot: int) -> int:
        """The wall clock of a line: of two moments that share a name when clocks are put back the one that fits."""
        if abs(wall - boot - at_boot) < _HALF_AN_HOUR:
            return wall
        later = self._calendar.again(wall)
        return later if abs(later - boot - at_boot) < _HALF_AN_HOUR else wall

    def _lines_at(self, blocks: Iterator[bytes]) -> list[_Said]:
        """What the kernel said in the first of these blocks where it said something."""
        return next((found for block in blocks if (found := _said(self._clean(block).split(b"\n"), self._calendar))), [])

    def _anchor(self, pairs: list[tuple[int, int]], resolution: int) -> None:
        self._at_boot = wall_at_boot(pairs, resolution)
        if self._at_boot is not None:
            self.axis = "boot"
            time = pairs[0][0]
            self.anchors.append(Anchor(time, time + self._at_boot, "the log has both clocks"))

    # Its lines.

    def _dmesg(self, block: bytes) -> None:
        match_of, monotonic = DMESG.match, self._dialect == "monotonic"
        for line in block.split(b"\n"):
            match = match_of(line)
            if match is None:
                self._without_stamp(line)
                continue
            self._open_line = 0
            stamp = self._clock.stamp(match["stamps"]) if self._clock.relative else None
            start = match.end()
            if monotonic:
                tag = _tag(line, match)
                if tag is None or tag["program"] != b"kernel" or self._strange(tag["host"]):
                    continue
                start = tag.end()
            text = line[start : start + LONGEST]
            if not self._matters(text):
                continue
            if not of_kernel(match):
                self._impostors += classify(unescaped(text)) is not None
                continue
            time = self._place(stamp if stamp is not None else self._clock.stamp(match["stamps"]))
            if time is not None:
                self.add(time, unescaped(text))
                self._open_line = start

    def _without_stamp(self, line: bytes) -> None:
        """safe_fwrite of util-linux sets the further lines of a message in, below its first."""
        if self._open_line and line[:1] == b" ":
            before = len(line) - len(line.lstrip(b" "))
            self.add_to_last(unescaped(line[min(before, self._open_line) :][:LONGEST]))
            return
        self._open_line = 0
        if _TAG in line[:512] and (match := SYSLOG.match(line)):  # somebody put two logs into one file
            self._syslog_line(line, match)

    def _syslog(self, block: bytes) -> None:
        # Most lines are of other programs: find() passes over them at the speed of memory. Most of the rest do not matter.
        at = block.find(_TAG)
        while at >= 0:
            end = block.find(b"\n", at)
            end = len(block) if end < 0 else end
            if not block.startswith(_PLAIN_TAG, at) or self._matters(block[_behind_times(block, at + len(_PLAIN_TAG)) : end]):
                start = block.rfind(b"\n", 0, at) + 1
                match = SYSLOG.match(block, start, end)
                if match is not None:
                    self._syslog_line(block[start:end], match, start)
            at = block.find(_TAG, end)

    def _syslog_line(self, line: bytes, match: re.Match[bytes], shift: int = 0) -> None:
        text = line[match.end() - shift :][:LONGEST]
        if b"#0" in text:
            text = unoctal(text)
        if not self._matters(text) or self._strange(match["host"] or b""):
            return
        if not of_kernel(match):
            self._impostors += classify(decode(text)) is not None
            return
        time = self._place(syslog_stamp(match, self._calendar))
        if time is not None:
            self.add(time, decode(text))

    def _json(self, block: bytes) -> None:
        for line in block.split(b"\n"):
            field = _JSON_FIELD.match(line)
            if field is None:
                self._object = {}
                continue
            self._object[field[1]] = line[field.end() :].rstrip().removesuffix(b",")
            if field[1] == b"msg":
                self._json_message(self._object)
                self._object = {}

    def _json_message(self, of: dict[bytes, bytes]) -> None:
        try:
            message = from_json(of[b"msg"])
        except ValueError:
            message = None
        if not isinstance(message, str):
            self._unplaced += 1
            return
        text = message[:LONGEST].encode("utf-8", "backslashreplace")
        if not self._matters(text):
            return
        priority = of.get(b"pri", b"0")
        if of.get(b"fac", b'"kern"') != b'"kern"' or (priority.isdigit() and int(priority[:9]) >= 8):
            self._impostors += classify(unescaped(text)) is not None
            return
        moment = _TIME.fullmatch(of.get(b"time", b"").strip())
        boot = int(moment[1]) * SECOND + fraction_ns(moment[2]) if moment else None
        time = self._place(Stamp(boot, None, 0))
        if time is not None:
            self.add(time, unescaped(text))

    def _matters(self, text: bytes) -> bool:
        if _may_matter(text):
            self._traces.opened(text)
            return True
        return self._traces.takes(text)

    def _strange(self, host: bytes) -> bool:
        """Whether a line is of another machine. One is called localhost until it learns its name."""
        if host == self._host or not host or _short(host) in (_short(self._host), b"localhost"):
            return False
        self._others += 1
        if len(self._strangers) < _SOME_HOSTS:
            self._strangers[host] = None
        return True

    def _place(self, stamp: Stamp) -> int | None:
        """The moment on the file's axis."""
        boot, wall, _ = stamp
        at_boot = self._at_boot
        if boot is not None and wall is not None and at_boot is not None:
            wall = self._fitting(boot, wall, at_boot)
        if boot is not None and (wall is None or at_boot is None or same_boot(boot, wall, at_boot)):
            if self.axis == "boot":
                self._back += boot + MINUTE < self._latest
                self._latest = max(self._latest, boot)
                return boot
            if at_boot is not None:
                return boot + at_boot
        if wall is not None and self.axis == "wall":
            return wall
        if wall is not None and at_boot is not None:
            self._earlier += boot is not None
            return wall - at_boot
        self._unplaced += 1
        return None

    def _conclude(self, cut: int) -> None:
        name = printable(decode(self._host), 64)
        if self._clock.relative:
            self.notes.append("dmesg -H tells only the minute: lines may have been up to one later than is said here")
        if self._others:
            told = ", ".join(printable(decode(host), 64) for host in self._strangers)
            self.notes.append(some(self._others, "line", "lines") + f" of other machines than {name}: passed over ({told})")
        if self._impostors:
            self.notes.append(
                some(self._impostors, "line that looks like the kernel's was", "lines that look like the kernel's were")
                + " written by a program: not believed"
            )
        if self._earlier:
            self.notes.append(some(self._earlier, "line is", "lines are") + " of another boot, put where the time of day says")
        if self._back:
            self.notes.append(
                f"the time since boot goes back within it, {some(self._back, 'line is', 'lines are')} before others that "
                "precede them: several boots or several files in one? All are where they say"
            )
        if self._unplaced:
            self.notes.append(
                some(self._unplaced, "line has", "lines have")
                + " no time that could be read, or not on the clock of the others"
            )
        if cut:
            self.notes.append(some(cut, "line was too long and was cut", "lines were too long and were cut"))


def _dialect(head: bytes) -> Dialect:
    if _JSON.match(head):
        return "json"
    lines = _lines(head)
    dmesg = [(line, match) for line in lines if (match := DMESG.match(line))]
    syslog = sum(1 for line in lines if OF_ANYBODY.match(line))
    if syslog > len(dmesg):
        return "syslog"
    if dmesg:
        tags = [_tag(line, match) for line, match in dmesg]
        programs = {tag["program"] for tag in tags if tag is not None}
        journal = all(tags) and programs & {b"kernel", b"systemd"} and all(match["facility"] is None for _, match in dmesg)
        return "monotonic" if journal else "dmesg"
    for line in lines:
        bare = DECODED.sub(b"", line, count=1)
        if len(bare) < len(line) or line.startswith(b"Linux version ") or (_may_matter(line) and classify(decode(line))):
            return "timeless"
    return ""


def _tag(line: bytes, match: re.Match[bytes]) -> re.Match[bytes] | None:
    return MONOTONIC.match(line, match.end())


def _clean(block: bytes) -> bytes:
    """As the kernel said it: a serial console ends lines with \\r\\n, a terminal colours them."""
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n")
    return COLOUR.sub(b"", block) if b"\x1b" in block else block


def _lines(head: bytes) -> list[bytes]:
    """Of the head, without the last one if that was cut."""
    lines = _clean(head).split(b"\n")
    return lines[:-1] if len(head) >= HEAD and len(lines) > 1 else lines


def _may_matter(text: bytes) -> bool:
    # interesting() knows a tab as /dev/kmsg writes it; rsyslog has #011.
    return interesting(text) or text.startswith((b"\t", b"#0"))


def _behind_times(block: bytes, at: int) -> int:
    """Where a message begins, behind printk's time and perhaps its caller: not exact, but no message is missed for it."""
    for _ in range(2):
        if block[at : at + 1] != b"[" or (end := block.find(b"]", at, at + 24)) < 0:
            break
        at = end + 2 if block[end + 1 : end + 2] == b" " else end + 1
    return at


def _said(lines: list[bytes], calendar: Calendar) -> list[_Said]:
    """The first and the last lines of the kernel in some of a syslog file."""
    found = [match for line in lines if _TAG in line[:512] and (match := SYSLOG.match(line))]
    edges = found if len(found) <= 2 * _PAIRS else found[:_PAIRS] + found[-_PAIRS:]
    return [_Said(syslog_stamp(match, calendar), match["host"] or b"") for match in edges]


def _both(stamp: Stamp) -> bool:
    return stamp.boot is not None and stamp.wall is not None


def _short(host: bytes) -> bytes:
    return host.partition(b".")[0].lower()
