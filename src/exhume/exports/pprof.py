"""Samples as a pprof profile: what `go tool pprof`, Pyroscope and Parca read.

Numbers of fields are those of proto/profile.proto in github.com/google/pprof.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence

from exhume import __version__
from exhume.exports.protobuf import message, number, packed, text
from exhume.exports.subject import IDLE, Frame, Labels, Names, Row, Subject, Thread
from exhume.recording.recording import Recording
from exhume.recording.tally import Tally

_SAMPLE_TYPE, _SAMPLE, _MAPPING, _LOCATION, _FUNCTION, _STRING = 1, 2, 3, 4, 5, 6
_TIME, _DURATION, _PERIOD_TYPE, _PERIOD, _COMMENT, _DEFAULT_TYPE = 9, 10, 11, 12, 13, 14
_CHUNK = 1 << 16


class _Strings:
    """Number 0 is the empty one, by the format."""

    def __init__(self) -> None:
        self._known = {"": 0}
        self._new = [""]

    def __call__(self, value: str) -> int:
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = len(self._known)
            self._new.append(value)
        return found

    def written(self) -> Iterator[bytes]:
        for value in self._new:
            yield text(_STRING, value)


def write(out: Callable[[bytes], object], tally: Tally, dictionaries: Recording, subject: Subject, idle: bool = True) -> int:
    """Gzip, as all readers expect it. The number of samples, which is not that of its rows: the same are counted together.

    Idle samples are one function, called idle, or left out.
    """
    names = Names(dictionaries)
    merged = _merged(tally, names, idle)
    who = {thread: _labels(thread) for thread, _ in merged}
    return write_rows(out, (Row(who[thread], stack, count) for (thread, stack), count in merged.items()), names.frames, subject)


def write_rows(out: Callable[[bytes], object], rows: Iterable[Row], frames: Sequence[Frame], subject: Subject) -> int:
    """The same from rows that were counted by whoever asks, whose stacks are places in `frames`."""
    packer = zlib.compressobj(wbits=31)
    total, waiting, size = 0, [], 0
    for count, part in _parts(rows, frames, subject):
        total += count
        waiting.append(part)
        size += len(part)
        if size > _CHUNK:
            out(packer.compress(b"".join(waiting)))
            waiting, size = [], 0
    out(packer.compress(b"".join(waiting)) + packer.flush())
    return total


def _parts(rows: Iterable[Row], frames: Sequence[Frame], subject: Subject) -> Iterator[tuple[int, bytes]]:
    """Pieces of the message, and how many samples each has."""
    strings = _Strings()
    period = subject.period_ns
    types = [("samples", "count"), *([("cpu", "nanoseconds")] if period else [])]
    for kind, unit in types:
        yield 0, message(_SAMPLE_TYPE, number(1, strings(kind)), number(2, strings(unit)))
    known: dict[Labels, bytes] = {}
    for labels, stack, count in rows:
        if labels not in known:
            known[labels] = _written(strings, labels)
        values = (count, count * period) if period else (count,)
        # The function that ran comes first, ids begin at 1.
        yield count, message(_SAMPLE, packed(1, (frame + 1 for frame in reversed(stack))), packed(2, values), known[labels])
    yield 0, b"".join(_functions(frames, strings))
    yield 0, number(_TIME, subject.start_real) + number(_DURATION, max(0, subject.end - subject.start))
    if period:
        yield 0, message(_PERIOD_TYPE, number(1, strings("cpu")), number(2, strings("nanoseconds"))) + number(_PERIOD, period)
        yield 0, number(_DEFAULT_TYPE, strings("cpu"))
    told = f"{subject.title}: {subject.event} at {subject.hz} Hz" if subject.hz else subject.title
    yield 0, packed(_COMMENT, (strings(f"written by exhume {__version__}"), strings(told)))
    yield 0, b"".join(strings.written())


def _merged(tally: Tally, names: Names, idle: bool) -> dict[tuple[Thread, tuple[int, ...]], int]:
    """Counts by thread and stack, whatever the core and whatever the ids."""
    counts: dict[tuple[Thread, tuple[int, ...]], int] = {}
    threads = {one: names.thread(one) for one in set(tally.thread.tolist())}
    stacks = {one: _frames(names, one, idle) for one in set(tally.stack.tolist())}
    for thread, stack, count in zip(tally.thread.tolist(), tally.stack.tolist(), tally.count.tolist(), strict=True):
        if frames := stacks[stack]:
            key = (threads[thread], frames)
            counts[key] = counts.get(key, 0) + count
    return counts


def _frames(names: Names, stack: int, idle: bool) -> tuple[int, ...]:
    if names.kind(stack) != "idle":
        return names.stack(stack)
    return (names.number(IDLE),) if idle else ()


def _labels(who: Thread) -> Labels:
    texts = [("comm", who.comm), *([("cgroup", who.cgroup)] if who.cgroup else [])]
    return (*texts, *((key, value) for key, value in (("pid", who.pid), ("tid", who.tid)) if value >= 0))


def _written(strings: _Strings, labels: Labels) -> bytes:
    return b"".join(
        message(3, number(1, strings(key)), number(2, strings(value)) if isinstance(value, str) else number(3, value))
        for key, value in labels
    )


def _functions(frames: Sequence[Frame], strings: _Strings) -> Iterator[bytes]:
    """A location and a function for each frame, a mapping for each module. `has_functions`: nothing is left to look up."""
    modules: dict[str, int] = {}
    for place, frame in enumerate(frames):
        mapping = modules.setdefault(frame.module, len(modules) + 1) if frame.module else 0
        of = number(2, mapping) if mapping else b""
        yield message(_LOCATION, number(1, place + 1), of, message(4, number(1, place + 1)))
        # Without a system name: one that is the same tells `go tool pprof` to demangle, and it cuts what is in [] or <>.
        yield message(_FUNCTION, number(1, place + 1), number(2, strings(frame.name)), number(4, strings(frame.module)))
    for module, mapping in modules.items():
        yield message(_MAPPING, number(1, mapping), number(5, strings(module)), number(7, 1))
