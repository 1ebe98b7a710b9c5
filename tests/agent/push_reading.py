"""Pushed profiles, read: rows by their stacks and labels, from either encoding."""

import struct
import zlib
from typing import NamedTuple

from tests.exports.wire import Message, varint

Stack = tuple[str, ...]


class Read(NamedTuple):
    """Counts by labels and stack, the outermost caller first; every text that is in it anywhere."""

    rows: dict[tuple[frozenset[tuple[str, str]], Stack], int]
    texts: list[str]

    @property
    def stacks(self) -> dict[Stack, int]:
        found: dict[Stack, int] = {}
        for (_, stack), count in self.rows.items():
            found[stack] = found.get(stack, 0) + count
        return found

    @property
    def labels(self) -> set[tuple[str, str]]:
        return {pair for labels, _ in self.rows for pair in labels}


def pprof(data: bytes) -> Read:
    profile = Message(zlib.decompress(data, 31))
    strings = profile.texts(6)
    functions = {one.number(1): strings[one.number(2)] for one in profile.messages(5)}
    locations = {one.number(1): functions[one.message(4).number(1)] for one in profile.messages(4)}
    rows: dict[tuple[frozenset[tuple[str, str]], Stack], int] = {}
    seen = set()
    for sample in profile.messages(2):
        labels = frozenset((strings[one.number(1)], strings[one.number(2)]) for one in sample.messages(3))
        assert all(3 not in one for one in sample.messages(3)), "numbers are labels without bound"
        same = labels, tuple(sample.ints(1))
        assert same not in seen, "the same row twice"
        seen.add(same)
        # Functions of two libraries may have one name.
        key = labels, tuple(locations[one] for one in reversed(sample.ints(1)))
        rows[key] = rows.get(key, 0) + sample.ints(2)[0]
    return Read(rows, strings)


def without_fixed64(data: bytes, field: int) -> tuple[bytes, int]:
    """The one field that tests/exports/wire.py does not know, taken out; and its value."""
    at = 0
    while at < len(data):
        begin = at
        key, at = varint(data, at)
        if key == field << 3 | 1:
            return data[:begin] + data[at + 8 :], struct.unpack_from("<Q", data, at)[0]
        if key & 7 == 0:
            _, at = varint(data, at)
        else:
            assert key & 7 == 2
            length, at = varint(data, at)
            at += length
    raise AssertionError("there is no such field")


class Otlp(NamedTuple):
    read: Read
    resource: dict[str, str]
    start_real: int
    duration: int
    period: int
    identity: bytes


def otlp(data: bytes) -> Otlp:
    request = Message(zlib.decompress(data, 31))
    (resource_profiles,) = request.messages(1)
    dictionary = request.message(2)
    strings = dictionary.texts(5)
    assert strings[0] == ""
    first = [dictionary.messages(table)[0].all for table in (1, 2, 3, 4, 6, 7)]
    told = [value for one in first for values in one.values() for value in values if value]  # Go writes fields that are empty
    assert told == [], "number 0 of each table is the empty one"
    functions = [strings[one.number(1)] for one in dictionary.messages(3)]
    locations = [functions[one.message(3).number(1)] for one in dictionary.messages(2)]
    stacks = [tuple(locations[at] for at in reversed(one.ints(1))) for one in dictionary.messages(7)]
    attributes = [(strings[one.number(1)], one.message(2).text(1)) for one in dictionary.messages(6)]
    (scope,) = resource_profiles.messages(2)
    (raw,) = scope.all[2]
    assert isinstance(raw, bytes)
    rest, start = without_fixed64(raw, 3)
    profile = Message(rest)
    period = profile.number(6)
    kind = profile.message(1)
    assert (strings[kind.number(1)], strings[kind.number(2)]) == (("cpu", "nanoseconds") if period else ("samples", "count"))
    rows: dict[tuple[frozenset[tuple[str, str]], Stack], int] = {}
    seen = [(frozenset(sample.ints(2)), sample.number(1)) for sample in profile.messages(2)]
    assert len({*seen}) == len(seen), "the same row twice"
    for sample in profile.messages(2):
        key = frozenset(attributes[at] for at in sample.ints(2)), stacks[sample.number(1)]
        (value,) = sample.ints(4)
        rows[key] = rows.get(key, 0) + value // (period or 1)
    resource = {one.text(1): one.message(2).text(1) for one in resource_profiles.message(1).messages(1)}
    identity = profile.all[7][0]
    assert isinstance(identity, bytes)
    return Otlp(Read(rows, strings), resource, start, profile.number(4), period, identity)
