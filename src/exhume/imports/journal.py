"""The journal as `journalctl -o json` prints it, imported: what the kernel said, on its own clock, what systemd said of its
units, and what time of day it was.

An entry of the kernel has _TRANSPORT=kernel, which nobody can claim, and facility 0 unless a program wrote it to /dev/kmsg
(dev_kmsg_record in journald-kmsg.c of systemd). Its _SOURCE_MONOTONIC_TIMESTAMP is the time that printk gave it.
"""

import re
from collections import deque
from collections.abc import Iterator

from exhume.errors import ExhumeError
from exhume.host.quantities import SECOND
from exhume.imports.incoming import Anchor, Damaged, Input, Lines, Wanted
from exhume.imports.log_import import LogImport, backwards, forwards, some, wall_at_boot
from exhume.recording.recording import Node
from exhume.sources import journal_units
from exhume.sources.journal_entry import LATEST_USEC, LONGEST_BOOT_USEC, Entry, entry_of, message_of, number, text, unit_entry
from exhume.sources.kernel_lines import classify, interesting
from exhume.sources.kernel_traces import TraceFilter
from exhume.text import printable

_MARK = re.compile(rb'"(?:__CURSOR|__REALTIME_TIMESTAMP|__MONOTONIC_TIMESTAMP|_BOOT_ID)" ?:')
_BEGIN = re.compile(rb"[\s\x1e]*(?:data: )?\{\s*\"")
_PRETTY = re.compile(rb"[\s\x1e]*\{\s*\n")
_EXPORT = re.compile(rb"(?:__CURSOR|__REALTIME_TIMESTAMP)=")
_KERNEL = b'"kernel"'
_BOOT = re.compile(rb'"_BOOT_ID" ?: ?"([0-9a-f]{32})"')
_BLOCK = 1 << 20
_PAIRS = 500
_SOME_BOOTS = 4
_MOST_BOOTS = 10_000
_DRIFT = 5000
"""Clocks of one machine are not further apart than 200 in a million."""


def looks(head: bytes) -> bool:
    return bool(_EXPORT.match(head) or (_BEGIN.match(head) and _MARK.search(head)))


def opened(source: Input, wanted: Wanted) -> "Journal":
    return Journal(source, wanted.boot)


class Journal(LogImport):
    """One boot of it, the last unless another is asked for: the clocks of two have nothing in common."""

    def __init__(self, source: Input, asked: str = "") -> None:
        super().__init__()
        self._source = source
        self._at = 0
        self._broken = self._impostors = self._unplaced = self._empty = 0
        self._first_broken = 0
        self._others: dict[str, int] = {}
        self._traces = TraceFilter()
        first, last = self._whole(source.head(_BLOCK)), _last(source)
        ends = [entry for line in (*last[-1:], first[0]) if (entry := entry_of(line))]
        self._boot = text(max(ends, key=_realtime).get("_BOOT_ID"))
        # Within a boot the wall clock may have been put back.
        newest = max((entry for entry in ends if text(entry.get("_BOOT_ID")) == self._boot), key=_monotonic)
        self._asked = asked not in ("", "0")
        lines = last if last and newest is ends[0] else first
        if self._asked:
            self._boot = self._chosen(asked, self._boot)
            lines = _of_boot(self._source, self._boot) or [line for line in first if self._boot.encode() in line]
            of_it = [entry for line in lines if (entry := entry_of(line)) and text(entry.get("_BOOT_ID")) == self._boot]
            newest = max(of_it, key=_monotonic, default={})
        self.node = Node(text(newest.get("_HOSTNAME")), _dashed(self._boot), "", "", 0)
        self._anchor(newest, lines)

    def _chosen(self, asked: str, newest: str) -> str:
        """The id of the boot that was asked for."""
        name, wanted = self._source.name, asked.replace("-", "").lower()
        boots = _boots(self._source)
        if boots and boots[0] == newest:  # journalctl -r
            boots.reverse()
        if re.fullmatch(r"[0-9a-f]{32}", wanted) and (wanted in boots or not boots):
            return wanted
        if not boots:
            raise ExhumeError(
                f"{name} is a pipe, of which only the first boot is known: name another by its whole id, or a file"
            )
        if (back := re.fullmatch(r"-(\d{1,4})", asked)) is not None and int(back[1]) < len(boots):
            return boots[-1 - int(back[1])]
        told = ", ".join(boots[-_SOME_BOOTS:])
        raise ExhumeError(f"{name} has no boot {printable(asked, 40)}: it has {len(boots):,}, the last are {told}")

    def gather(self) -> Iterator[None]:
        lines = Lines(self._source)
        boot = self._boot.encode()
        try:
            for block in lines.blocks():
                for line in block.split(b"\n"):
                    if journal_units.interesting(line):
                        self._take_unit(line)
                    elif _KERNEL in line:
                        self._take(line)
                    elif boot not in line and (other := _BOOT.search(line)):
                        self._other(other[1].decode())
                    self._at += len(line) + 1
                yield
        except ExhumeError as error:
            self.notes.append(f"{error}; what came before it was taken")
        self._conclude(lines.cut)

    def _whole(self, head: bytes) -> list[bytes]:
        """The lines of the head that can be read; a sentence where it is another of journalctl's forms, or none."""
        name = self._source.name
        if _EXPORT.match(head):
            raise Damaged(f"{name} is what journalctl -o export prints, from byte 0 on: only -o json is read")
        if _PRETTY.match(head):
            raise Damaged(
                f"{name} is what journalctl -o json-pretty prints, from byte 0 on: only -o json is read, one line each"
            )
        lines = [line for line in head.split(b"\n")[:200] if entry_of(line)]
        if not lines:
            raise Damaged(f"{name} looks like journalctl -o json, but no line of it is whole from byte 0 on")
        if not any(b'"_TRANSPORT"' in line for line in lines):
            raise Damaged(
                f"{name} does not say who wrote its entries (no _TRANSPORT from byte 0 on): "
                "take it without --output-fields, or add _TRANSPORT, SYSLOG_FACILITY and _SOURCE_MONOTONIC_TIMESTAMP to them"
            )
        return lines

    def _anchor(self, newest: Entry, lines: list[bytes]) -> None:
        """printk's clock drifts against CLOCK_MONOTONIC, so the kernel's entries say it best, unless they were read late, or
        the wall clock was set since."""
        exact = _clocks(newest, "__MONOTONIC_TIMESTAMP")
        printed = []
        for line in lines:
            entry = entry_of(line) if _KERNEL in line else None
            if entry is not None and entry.get("_TRANSPORT") == "kernel" and text(entry.get("_BOOT_ID")) == self._boot:
                printed += [pair] if (pair := _clocks(entry, "_SOURCE_MONOTONIC_TIMESTAMP")) else []
        by_kernel, by_journal = wall_at_boot(printed, 0), wall_at_boot([exact] if exact else [], 0)
        at_boot = by_journal if by_kernel is None else by_kernel
        if by_kernel is not None and by_journal is not None and exact is not None:
            apart = abs(by_kernel - by_journal) > SECOND + exact[0] // _DRIFT
            at_boot = by_journal if apart else by_kernel
        if at_boot is not None:
            time = max(boot for boot, _ in [*printed, *([exact] if exact else [])])
            self.anchors.append(Anchor(time, time + at_boot, "the journal has both clocks"))

    def _take(self, line: bytes) -> None:
        entry = entry_of(line)
        if entry is None:
            if not self._broken:
                self._first_broken = self._at
            self._broken += 1
            return
        boot = text(entry.get("_BOOT_ID"))
        if boot != self._boot:
            self._other(boot)
            return
        if entry.get("_TRANSPORT") != "kernel":
            return
        message = message_of(entry.get("MESSAGE"))
        if message is None:
            self._empty += 1
            return
        raw = message.encode("utf-8", "backslashreplace")
        if raw.startswith(b"\t") or interesting(raw):
            self._traces.opened(raw)
        elif not self._traces.takes(raw):
            return
        if text(entry.get("SYSLOG_FACILITY", "0")) != "0":
            self._impostors += classify(message) is not None
            return
        time = _printk(entry)
        if time is None:
            self._unplaced += 1
            return
        self.add(time, message)

    def _take_unit(self, line: bytes) -> None:
        told = unit_entry(line)
        if told is not None and told.boot == self._boot:
            self.add_event((told.time, *told.said))
        elif told is not None:
            self._other(told.boot)

    def _other(self, boot: str) -> None:
        if boot in self._others or len(self._others) < _MOST_BOOTS:
            self._others[boot] = self._others.get(boot, 0) + 1
        else:
            self._others[""] = self._others.get("", 0) + 1

    def _conclude(self, cut: int) -> None:
        if self._others:
            told = ", ".join([printable(boot, 32) for boot in self._others if boot][-_SOME_BOOTS:])
            which = "the last boot" if self._source.size else "the first boot, since more cannot be known of a pipe,"
            which = "that boot" if self._asked else which
            number, entries = len(self._others), sum(self._others.values())
            more = " and more" if number > _SOME_BOOTS else ""
            self.notes.append(
                f"only {which} was taken, {printable(self._boot, 32)}; {some(entries, 'entry is', 'entries are')}"
                f" of {some(number, 'other', 'others')}: --boot takes one of them ({told}{more}), -1 is the one "
                "before the last"
            )
        if self._impostors:
            self.notes.append(
                some(self._impostors, "line that looks like the kernel's was", "lines that look like the kernel's were")
                + " written by a program: not believed"
            )
        if self._empty:
            self.notes.append(
                some(self._empty, "entry of the kernel is", "entries of the kernel are")
                + " without text: journalctl leaves out long ones without --all"
            )
        if self._unplaced:
            self.notes.append(some(self._unplaced, "entry has", "entries have") + " no time that could be read")
        if self._broken:
            self.notes.append(
                some(self._broken, "line is", "lines are") + f" not whole, the first at byte {self._first_broken:,}"
            )
        if cut:
            self.notes.append(some(cut, "line was too long and was cut", "lines were too long and were cut"))


def _printk(entry: Entry) -> int | None:
    """When the kernel said it; when journald read it where that is all there is."""
    for name in ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP"):
        found = number(entry.get(name), LONGEST_BOOT_USEC)
        if found is not None:
            return found * 1000
    return None


def _clocks(entry: Entry, name: str) -> tuple[int, int] | None:
    boot = number(entry.get(name), LONGEST_BOOT_USEC)
    wall = number(entry.get("__REALTIME_TIMESTAMP"), LATEST_USEC)
    return None if boot is None or wall is None else (boot * 1000, wall * 1000)


def _dashed(boot: str) -> str:
    """As /proc/sys/kernel/random/boot_id has it, so that it is the same boot in a recording made there."""
    if re.fullmatch(r"[0-9a-f]{32}", boot):
        return "-".join((boot[:8], boot[8:12], boot[12:16], boot[16:20], boot[20:]))
    return boot


def _realtime(entry: Entry) -> int:
    return number(entry.get("__REALTIME_TIMESTAMP"), LATEST_USEC) or 0


def _monotonic(entry: Entry) -> int:
    return number(entry.get("__MONOTONIC_TIMESTAMP"), LONGEST_BOOT_USEC) or 0


def _boots(source: Input) -> list[str]:
    """All of a file, in its order; none of a pipe."""
    found: dict[bytes, None] = {}
    for block in forwards(source, b'"_BOOT_ID"'):
        found |= dict.fromkeys(_BOOT.findall(block))
        if len(found) > _MOST_BOOTS:
            break
    return [boot.decode() for boot in found]


def _of_boot(source: Input, boot: str) -> list[bytes]:
    """The last lines of that boot."""
    kept: deque[bytes] = deque(maxlen=_PAIRS)
    needle = boot.encode()
    for block in forwards(source, needle):
        kept.extend(line for line in block.split(b"\n") if needle in line)
    return list(kept)


def _last(source: Input) -> list[bytes]:
    """The last whole lines, in the order of the file, if they can be seen before the rest."""
    block = next(backwards(source), b"")
    return [line for line in block.split(b"\n")[-_PAIRS:] if entry_of(line)]
