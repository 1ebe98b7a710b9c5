"""The kernel log from /dev/kmsg: the lines that matter become events, all of them are counted."""

import errno
import os
import re
import stat
import weakref
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice

from exhume.errors import Unreadable
from exhume.host.root import Root, unreadable
from exhume.recording.recording import Recording
from exhume.recording.source_state import Limit, Note, Reasons
from exhume.sources.kernel_lines import Joiner, classify, interesting
from exhume.sources.kernel_log_text import TextLog
from exhume.sources.kernel_traces import TraceFilter
from exhume.sources.log_prefixes import Prefixes
from exhume.text import decode

_PATH = "dev/kmsg"
_DEVICE = os.makedev(1, 11)  # Documentation/admin-guide/devices.txt

# One read(2) is one record. The kernel's own are below 8 KiB (CONSOLE_EXT_LOG_MAX, later PRINTK_MESSAGE_MAX).
_LONGEST = 16 << 10
_MOST = 100_000
"""Records taken in one call: some 0.4 s of CPU. The rest stays in the ring buffer for the next one."""

# info_print_ext_header in kernel/printk/printk.c: facility and level, sequence number, microseconds, flag, more; text.
_RECORD = re.compile(rb"(\d{1,10}),(\d{1,18}),(\d{1,15}),([^,;\n]?)[^;\n]*;([^\n]*)")
_KERNEL = frozenset(b"%d" % level for level in range(8))  # facility 0, levels 0 to 7
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


class KernelLog:
    """Reads the whole ring buffer first, then what is new.

    A record of facility 1 or more was written by a program (devkmsg_write never lets one claim facility 0). It is not
    believed, whatever it says; the note tells how many of them looked like a line of the kernel's.

    `printk_records` and `printk_bytes` count what the kernel itself said since we began (what was in the buffer already is
    older than the first call, however many calls it takes to read), `printk_seq` every record there ever was, so the lost
    ones and those of programs too. `printk_program_records` are those that programs wrote since then. What the lines of a
    flood begin with is counted as well, under the same names with labels.
    """

    name = "kernel-log"
    every_ns = 1_000_000_000
    share = 0.05
    """Of a core, which a flood may take: the ring holds a second of one, and a driver's word in it is not to go by unread."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._records: Iterator[bytes] | None = None
        self._fd = -1
        self._text: TextLog | None = None
        self._joiner = Joiner()
        self._traces = TraceFilter()
        self._next_seq: int | None = None
        self._since_usec = -1
        self._seen = 0
        self._bytes = 0
        self._prefixes = Prefixes("printk_records", unescaped)
        self._of_programs = Prefixes("printk_program_records", unescaped)
        self._impostors = 0
        self._lost = 0
        self._damaged = 0

    def read(self, recording: Recording, time: int) -> Reasons:
        if self._fd < 0 and self._text is None:
            self._begin()
        if self._since_usec < 0:
            self._since_usec = time // 1000
        if self._records is None:
            self._records = _records(self._fd) if self._text is None else self._text.new()
        lines: list[tuple[int, bytes]] = []
        taken = 0
        failure: OSError | None = None
        try:
            taken = self._take(islice(self._records, _MOST), lines)
        except OSError as error:
            failure = error
        if taken < _MOST:
            self._records = None
        events = recording["events"]
        for line in self._joiner.join((when, unescaped(raw)) for when, raw in lines):
            events.add(*line.row)
        if failure is not None:
            raise unreadable(_PATH, failure)
        recording.count(time, "printk_records", self._seen)
        recording.count(time, "printk_bytes", self._bytes)
        recording.count(time, "printk_program_records", self._of_programs.total)
        self._prefixes.tell(recording, time)
        self._of_programs.tell(recording, time)
        if self._next_seq is not None:
            recording.count(time, "printk_seq", self._next_seq)
        return self._notes(taken)

    def _begin(self) -> None:
        """The device; where that cannot be opened, as in most containers, what syslog(2) gives of the same kernel's log."""
        try:
            self._fd = _open(self._root)
            weakref.finalize(self, os.close, self._fd)
        except Unreadable:
            if not self._root.same_kernel():
                raise
            text = TextLog()
            with suppress(OSError, Unreadable):
                self._records = text.new()
            if self._records is None:
                raise
            self._text = text

    def _take(self, records: Iterator[bytes], lines: list[tuple[int, bytes]]) -> int:
        """Counts all records, collects the lines that may matter. This loop is what the reader costs."""
        taken = seen = size = 0
        next_seq, since, traces = self._next_seq, self._since_usec, self._traces
        prefixes, of_programs = self._prefixes.add, self._of_programs.add
        open_line = False
        try:
            for raw in records:
                taken += 1
                match = _RECORD.match(raw)
                if match is None:
                    self._damaged += 1
                    open_line = False
                    continue
                priority, number, usec, flag, text = match.groups()
                seq = int(number)
                if next_seq is not None and seq > next_seq:
                    self._lost += seq - next_seq
                next_seq = seq + 1
                if priority not in _KERNEL:
                    open_line = False
                    if int(usec) >= since:
                        of_programs(text)
                    if interesting(text) and classify(unescaped(text)) is not None:
                        self._impostors += 1
                    continue
                if int(usec) >= since:
                    seen += 1
                    size += len(text)
                    prefixes(text)
                if flag == b"+":  # old kernels give each pr_cont a record of its own (ABI/testing/dev-kmsg)
                    if open_line:
                        when, begun = lines[-1]
                        lines[-1] = when, begun + text
                elif open_line := interesting(text):
                    lines.append((int(usec) * 1000, text))
                    traces.opened(text)
                elif traces.armed and traces.takes(text):
                    lines.append((int(usec) * 1000, text))
        finally:
            self._next_seq = next_seq
            self._seen += seen
            self._bytes += size
        return taken

    def _notes(self, taken: int) -> Reasons:
        notes: list[Limit | Note] = []
        if self._lost:
            notes.append(Limit(f"{self._lost:,} records were overwritten before they could be read"))
        if self._impostors:
            notes.append(Note(f"{self._impostors:,} lines that look like the kernel's were written by a program: not believed"))
        if self._damaged:
            notes.append(Limit(f"{self._damaged:,} records could not be understood"))
        if taken >= _MOST:
            notes.append(Note(f"stopped after {_MOST:,} records, the rest comes next"))
        return tuple(notes)


def _open(root: Root) -> int:
    try:
        fd = root.open(_PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM):
            raise Unreadable(
                f"/{_PATH} is not readable: run as root, or let everyone read it with sysctl kernel.dmesg_restrict=0"
            ) from None
        raise unreadable(_PATH, error) from None
    status = os.fstat(fd)
    if stat.S_ISCHR(status.st_mode) and status.st_rdev != _DEVICE:
        os.close(fd)
        raise Unreadable(f"/{_PATH} is not the kernel log but some other device, as in some containers: give it the node's")
    return fd


def _records(fd: int) -> Iterator[bytes]:
    """What there is to read now, a record at a time."""
    if stat.S_ISCHR(os.fstat(fd).st_mode):
        return _of_device(fd)
    return _of_file(fd)


def _of_device(fd: int) -> Iterator[bytes]:
    # devkmsg_read: after EPIPE (the next record is overwritten) and EINVAL (longer than the buffer) the position is
    # behind what was lost, and the sequence numbers tell how much that was.
    for _ in range(4 * _MOST):
        try:
            record = os.read(fd, _LONGEST)
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EINVAL):
                raise
            continue
        if not record:
            return
        yield record


def _of_file(fd: int) -> Iterator[bytes]:
    """A fixture, or a saved copy: one record after the other, each with its ` KEY=value` lines."""
    rest = b""
    while True:
        try:
            chunk = os.read(fd, 1 << 20)
        except BlockingIOError:
            chunk = b""
        *complete, rest = (rest + chunk).split(b"\n")
        for line in complete:
            if line and not line.startswith(b" "):
                yield line
        if not chunk:
            break
        rest = rest[:_LONGEST]
    if rest and not rest.startswith(b" "):
        yield rest


def unescaped(raw: bytes) -> str:
    """Undoes the escapes of msg_print_ext_body in printk.c: control characters, backslashes and all that is not ASCII."""
    if b"\\x" in raw:
        raw = _ESCAPE.sub(lambda escape: bytes((int(escape[1], 16),)), raw)
    return decode(raw).rstrip("\n")
