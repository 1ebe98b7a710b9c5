"""The first line of a sample as perf script prints it: who ran where and when, and which event it was.

perf_sample__fprintf_start and process_event of tools/perf/builtin-script.c: every field may be left out (perf script -F) but
here the time, and nothing sets the first of them, the name of the thread, apart from the others: it may hold blanks, numbers
and brackets. The time is found first, and what is before it is read from its end.
"""

import re
from typing import NamedTuple

from exhume.imports import script_frames
from exhume.text import decode

# Seconds and their fraction in 6 digits, or 9 (--ns).
TIME = re.compile(rb"(?<![^ \t])(\d{1,10})\.(\d{6}|\d{9}):(?=[ \t]|\Z)", re.ASCII)
_CPU = re.compile(rb"\[(\d{1,6})\]", re.ASCII)
_TASK = re.compile(rb"(-?\d{1,10})(?:/(-?\d{1,10}))?", re.ASCII)
# Most fronts of a line: a name, one number or two, a core.
_WHO = re.compile(rb"[ \t]*(\S(?:.*\S)?)[ \t]+(\d{1,10})(?:/(\d{1,10}))?[ \t]+\[(\d{1,6})\][ \t]*", re.ASCII | re.DOTALL)
_MISC = re.compile(rb"[A-Z]{1,6}", re.ASCII)  # -F misc: K, U, KH ...
DATE = re.compile(rb"\d{4}-\d\d-\d\d [\d:]{8}\.\d{6}\Z", re.ASCII)  # -F tod
# "%16" PRIx64 and what is between two such: blanks and digits, 16 of them at least.
_COLUMN = re.compile(rb"(?=[ 0-9a-f]{16}) {1,17}[0-9a-f]{1,16}(?![^ ])", re.ASCII)
# -F insnlen, insn, brstack: behind the address, or on a line of their own behind a stack.
_INSTRUCTION = re.compile(
    rb"(?: ilen: \d{1,3})?(?: insn:(?: [0-9a-f]{2}){0,64})?(?: {1,17}0x[0-9a-f]{1,16}/0x[0-9a-f]{1,16}/.*)?\Z", re.ASCII
)
_HEX = re.compile(rb"[0-9a-f]{1,16}", re.ASCII)
_LATEST = 9_000_000_000  # seconds: what 63 bits hold as nanoseconds, rounded down
# So far from its beginning a line may have its time. The kernel's names of threads have 15 bytes (TASK_COMM_LEN), but perf
# takes those of kworkers from /proc, where they have up to 63 (proc_task_name, fs/proc/array.c).
_REACH = 256
_COMM = 15


class Who(NamedTuple):
    comm: bytes
    pid: int
    """-1 where the line has none."""
    tid: int
    core: int
    """-1 where the line has none."""
    both: bool
    """It has pid and tid; otherwise there is one number, or none."""


class Sample(NamedTuple):
    who: Who
    text: bytes
    """The part of the line that `who` was read from."""
    time: int
    clock: bytes
    """The time as it is printed."""
    tail: bytes
    """What is behind the time."""


class Tail(NamedTuple):
    period: int
    event: str
    rest: bytes
    """What follows: an address and a function, the text of a tracepoint, or nothing."""


def parse(line: bytes) -> Sample | None:
    """None for what is something else."""
    found = [_sample(line, time) for time in TIME.finditer(line, 0, _REACH)]
    whole = [sample for sample in found if sample is not None]
    # A thread may have a name like `a 5 1.000000:`. No name is longer than 15 bytes, so the last time that has no more than
    # that in front of it (and a number) is the time; in the text of a tracepoint none can.
    short = [sample for sample in whole if sample.who.tid != -1 and len(sample.who.comm) <= _COMM]
    return short[-1] if short else whole[0] if whole else None


def _sample(line: bytes, time: re.Match[bytes]) -> Sample | None:
    seconds = int(time[1])
    if seconds >= _LATEST:
        return None
    text = line[: time.start()]
    nanoseconds = seconds * 1_000_000_000 + int(time[2].ljust(9, b"0"))
    return Sample(who(text), text, nanoseconds, time[0][:-1], line[time.end() :])


def who(text: bytes) -> Who:
    """`comm  pid/tid [cpu] MISC date`, of which any may be missing."""
    if (plain := _WHO.fullmatch(text)) is not None:
        comm, first, second, core = plain.groups()
        return Who(comm, int(first), int(second or first), int(core), second is not None)
    text = text.strip(b" \t")
    if DATE.fullmatch(text[-26:]):
        text = text[:-26].rstrip(b" \t")
    before, last = _last(text)
    if _MISC.fullmatch(last) and (_CPU.fullmatch(_last(before)[1]) or _TASK.fullmatch(_last(before)[1])):
        text = before
        before, last = _last(text)
    core = -1
    if (cpu := _CPU.fullmatch(last)) is not None:
        core, text = int(cpu[1]), before
        before, last = _last(text)
    task = _TASK.fullmatch(last)
    if task is None:
        return Who(text, -1, -1, core, False)
    number = int(task[1])
    return Who(before, number, number if task[2] is None else int(task[2]), core, task[2] is not None)


def _last(text: bytes) -> tuple[bytes, bytes]:
    """What is before the last word, and the last word."""
    parts = text.rsplit(None, 1)
    return (parts[0], parts[1]) if len(parts) == 2 else (b"", text)


def tail(text: bytes) -> Tail:
    """`period event: rest`, of which any may be missing."""
    first, after = _first(text)
    if _ends(first):
        return Tail(0, decode(first[:-1]), after)
    if first.isdigit():
        second, behind = _first(after)
        if _ends(second):
            return Tail(_number(first), decode(second[:-1]), behind)
        if not second or (_HEX.fullmatch(second) and behind):
            return Tail(_number(first), "", after)
        if not _HEX.fullmatch(second) and (named := _spaced(after)):
            return Tail(_number(first), decode(named[0]), named[1])
    elif not _HEX.fullmatch(first) and (named := _spaced(text)):
        return Tail(0, decode(named[0]), named[1])
    return Tail(0, "", text)


def _ends(word: bytes) -> bool:
    """Whether it is the name of an event, with the colon behind it."""
    return len(word) > 1 and word.endswith(b":")


def _spaced(text: bytes) -> tuple[bytes, bytes] | None:
    """The name of an event with blanks in it: `raw 0x1a8:`, or whatever was given to perf record as name=."""
    text = text.strip(b" \t")
    name, found, rest = text.partition(b": ")
    if not found and text.endswith(b":"):
        name, found = text[:-1], b":"
    return (name, rest) if found and name and b"(" not in name and b"=" not in name else None


def _first(text: bytes) -> tuple[bytes, bytes]:
    """The first word, and what is behind it with its blanks: the width of a column tells an address."""
    text = text.lstrip(b" \t")
    word = text.split(None, 1)[0] if text else b""
    return word, text[len(word) :]


def _number(digits: bytes) -> int:
    return int(digits) if len(digits) < 19 else 0


def address(rest: bytes) -> bytes:
    """Where it was, if that is behind the event: a line of a stack. Text of tracepoints may begin with hexadecimal letters.

    Other fields stand before it and behind it (process_event): an address in memory, perhaps with what is there, a weight.
    """
    rest = _INSTRUCTION.sub(b"", rest)
    columns = [column.start() for column in _COLUMN.finditer(rest)]
    if len(columns) > 1 and not rest[: columns[0]].strip():
        parts = [rest[begin:end] for begin, end in zip(columns, [*columns[1:], None], strict=True)]
        rest = next((part for part in reversed(parts) if len(part.split(None, 1)) > 1), parts[-1])
    stripped = rest.strip(b" \t")
    word, behind = _first(stripped)
    if not _HEX.fullmatch(word):
        return b""
    wide = len(rest) - len(rest.lstrip(b" \t")) + len(word) >= 16  # "%16" PRIx64
    named = bool(script_frames.apart(behind.strip(b" \t"))[1])
    return stripped if wide or named or len(word) >= 12 else b""
