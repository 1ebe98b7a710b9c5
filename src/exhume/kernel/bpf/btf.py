"""Where the running kernel keeps its fields: BTF, the kernel's own description of its types, read lazily.

A field's place differs between kernels and configurations, so nothing here knows a version: ask, and take None for an answer.
"""

import os
import re
import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, Self, overload

from exhume.errors import Unreadable

VMLINUX: Final = "/sys/kernel/btf/vmlinux"

# include/uapi/linux/btf.h
_MAGIC = 0xEB9F
_VERSION = 1
_HEADER = "HBBIIIII"
_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM = 1, 2, 3, 4, 5, 6
_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG, _ENUM64 = 8, 9, 10, 11, 18, 19
_FUNCTION, _VARIABLE, _SECTION = 12, 14, 15
_ALIASES = frozenset({_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG})
_RECORDS = frozenset({_STRUCT, _UNION})
_NAMED = frozenset({_INT, _STRUCT, _UNION, _ENUM, _TYPEDEF, _ENUM64})
_SIZED = frozenset({_INT, _STRUCT, _UNION, _ENUM, 16, _ENUM64})  # 16 is BTF_KIND_FLOAT

# Words that follow a type's three: a fixed number, and a number for each of its vlen entries.
_TAIL = {1: (1, 0), 3: (3, 0), 4: (0, 3), 5: (0, 3), 6: (0, 2), 13: (0, 2), 14: (1, 0), 15: (0, 3), 17: (1, 0), 19: (0, 3)}
_LAST_KIND = 19

# The kernel itself follows no chain of types deeper than this (MAX_RESOLVE_DEPTH in kernel/bpf/btf.c).
_DEEPEST = 32
_POINTER_SIZE = 8
_PER_CPU = ".data..percpu"

_STEP = re.compile(r"(\w+)((?:\[\d+\])*)", re.ASCII)


class BtfError(Unreadable):
    """The kernel's type information is missing, damaged, or does not have what was asked for."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a struct, however deep: where it begins, how big it is, and how big one element is if it is an array."""

    offset: int
    size: int
    element_size: int


class _Steps(dict[int, int]):
    """Words from one type to the next, by its info word, of which a kernel has a few hundred different ones."""

    def __missing__(self, info: int) -> int:
        kind = _kind(info)
        if not 1 <= kind <= _LAST_KIND:
            raise BtfError(f"the kernel's BTF has a kind of type that is not known: {kind}")
        fixed, each = _TAIL.get(kind, (0, 0))
        step = self[info] = 3 + fixed + each * _vlen(info)
        return step


class Btf:
    """Types of one kernel.

    A kernel has 126,000 types, but what is asked for nearly always lies in the first tenth: names are found by searching
    the raw bytes, and the walk, which alone knows where type number N begins, goes only as far as needed.
    """

    def __init__(self, raw: bytes) -> None:
        order = _byte_order(raw)
        _, version, _, header, type_at, type_size, string_at, string_size = struct.unpack_from(order + _HEADER, raw)
        if version != _VERSION:
            raise BtfError(f"the kernel's BTF has version {version}, only version {_VERSION} is known")
        self._types = range(header + type_at, header + type_at + type_size)
        self._strings = range(header + string_at, header + string_at + string_size)
        if len(raw) < max(self._types.stop, self._strings.stop) or type_size % 4:
            raise BtfError("the kernel's BTF is cut short")
        if not string_size or raw[self._strings[0]] or raw[self._strings[-1]]:
            raise BtfError("the kernel's BTF is damaged: its names are not where its header says")
        if order != _NATIVE:
            swapped = array("I", raw[self._types.start : self._types.stop])
            swapped.byteswap()
            raw = raw[: self._types.start] + swapped.tobytes() + raw[self._types.stop :]
        self._raw = raw
        self._words = memoryview(raw)[self._types.start : self._types.stop].cast("I")
        self._starts: list[int] = []  # word where type N + 1 begins; type 0 is void
        self._frontier = 0  # word where the walk goes on
        self._steps = _Steps()
        self._found: dict[str, int | None] = {}
        self._per_cpu: dict[int, int] | None = None

    @classmethod
    def vmlinux(cls, path: str | os.PathLike[str] = VMLINUX) -> Self:
        """The running kernel's, or that in another file."""
        try:
            with open(path, "rb", buffering=0) as file:
                raw = file.read()
        except FileNotFoundError:
            raise BtfError(f"{os.fspath(path)} is not there: the kernel was built without CONFIG_DEBUG_INFO_BTF") from None
        except OSError as error:
            raise BtfError(f"{os.fspath(path)} cannot be read: {error.strerror}") from None
        return cls(raw)

    @overload
    def member(self, struct_name: str, path: str, *, optional: Literal[False] = False) -> Member: ...
    @overload
    def member(self, struct_name: str, path: str, *, optional: bool) -> Member | None: ...
    def member(self, struct_name: str, path: str, *, optional: bool = False) -> Member | None:
        """The member at a dotted path: `kmem.usage.counter`, `subsys[4]`; anonymous structs and unions are looked through."""
        steps = _steps_of(path)
        start = self._named(struct_name)
        if start is None:
            _check_optional(optional, f"has no struct {struct_name}")
            return None
        offset = 0
        for name, indices in steps:
            where = f"{struct_name}.{path} at {name}"
            if self._kind_at(start) not in _RECORDS:
                what = "a pointer, to be followed first" if self._kind_at(start) == _PTR else "no struct"
                raise BtfError(f"{where}: what comes before it is {what}")
            found = self._member_of(start, name, where)
            if found is None:
                _check_optional(optional, f"has no {where}")
                return None
            offset += found[0]
            start = self._resolved(found[1], where)
            for index in indices:
                start, skipped = self._element(start, index, where)
                offset += skipped
        element = self._start_of(self._words[start + 3]) if self._kind_at(start) == _ARRAY else start
        return Member(offset, self._size(start), self._size(element))

    @overload
    def offset(self, struct_name: str, path: str, *, optional: Literal[False] = False) -> int: ...
    @overload
    def offset(self, struct_name: str, path: str, *, optional: bool) -> int | None: ...
    def offset(self, struct_name: str, path: str, *, optional: bool = False) -> int | None:
        """Bytes from the beginning of the struct to the member."""
        found = self.member(struct_name, path, optional=optional)
        return None if found is None else found.offset

    @overload
    def size(self, name: str, *, optional: Literal[False] = False) -> int: ...
    @overload
    def size(self, name: str, *, optional: bool) -> int | None: ...
    def size(self, name: str, *, optional: bool = False) -> int | None:
        """Bytes of a struct or union, or of a typedef, enum or integer of that name if there is no such struct."""
        start = self._named(name)
        if start is None:
            _check_optional(optional, f"has no type {name}")
            return None
        return self._size(start)

    @overload
    def enum(self, value_name: str, *, of: str | None = None, optional: Literal[False] = False) -> int: ...
    @overload
    def enum(self, value_name: str, *, of: str | None = None, optional: bool) -> int | None: ...
    def enum(self, value_name: str, *, of: str | None = None, optional: bool = False) -> int | None:
        """What an enumerator such as `memory_cgrp_id` stands for; `of` names its enum, if it has a name."""
        wanted = None if of is None else self._name_offset(of)
        if of is None or wanted is not None:
            for word in self._occurrences(value_name):
                start = self._enclosing(word)
                kind = self._kind_at(start)
                width = {_ENUM: 2, _ENUM64: 3}.get(kind)
                if width is None or word < start + 3 or (word - start - 3) % width:
                    continue
                if wanted is None or self._words[start] == wanted:
                    return self._enumerator(word, kind, signed=bool(self._words[start + 1] >> 31))
        _check_optional(optional, f"has no enumerator {value_name}" + (f" of enum {of}" if of else ""))
        return None

    def per_cpu(self, name: str) -> int | None:
        """Bytes from where a CPU's own variables begin to this one of them; whoever knows where one is knows the others."""
        variable = self._number(name, _VARIABLE)
        if self._per_cpu is None:
            self._per_cpu = self._per_cpu_section()
        return None if variable is None else self._per_cpu.get(variable)

    def function(self, name: str) -> int | None:
        """The number of a function, as programs name what they are attached to."""
        return self._number(name, _FUNCTION)

    # Names to places

    def _per_cpu_section(self) -> dict[int, int]:
        """Offsets by type number. The section is the last of all types or nearly so, and the walk would take long to get
        there: its name is that of nothing else, and its entries lie one after the other without overlap."""
        for word in self._occurrences(_PER_CPU):
            if word + 2 >= len(self._words) or self._kind_at(word) != _SECTION:
                continue
            end = word + 3 + 3 * _vlen(self._words[word + 1])
            entries = [tuple(self._words[at : at + 3]) for at in range(word + 3, min(end, len(self._words) - 2), 3)]
            if all(before[1] + before[2] <= after[1] for before, after in pairwise(entries)):
                return {number: offset for number, offset, _ in entries}
        return {}

    def _number(self, name: str, kind: int) -> int | None:
        for word in self._occurrences(name):
            if word + 2 < len(self._words) and self._kind_at(word) == kind and self._enclosing(word) == word:
                return bisect_right(self._starts, word)
        return None

    def _name_offset(self, name: str) -> int | None:
        """Where a name lies among the strings; BTF holds each only once (btf__dedup in tools/lib/bpf/btf.c)."""
        strings = self._strings
        at = self._raw.find(b"\0" + name.encode() + b"\0", strings.start, strings.stop)
        return None if at < 0 or not name else at + 1 - strings.start

    def _occurrences(self, name: str) -> Iterator[int]:
        """Words that may be a reference to the name; any other number can look the same, so the caller checks."""
        offset = self._name_offset(name)
        if offset is None:
            return
        needle = struct.pack("=I", offset)
        types = self._types
        at = self._raw.find(needle, types.start, types.stop)
        while at >= 0:
            if (at - types.start) % 4 == 0:
                yield (at - types.start) // 4
            at = self._raw.find(needle, at + 1, types.stop)

    def _named(self, name: str) -> int | None:
        """Where the type of that name begins. A struct is preferred: in C a typedef may have the name of another struct."""
        if name not in self._found:
            other = None
            for word in self._occurrences(name):
                if word + 2 < len(self._words) and self._kind_at(word) in _NAMED and self._enclosing(word) == word:
                    if self._kind_at(word) in _RECORDS:
                        self._found[name] = word
                        break
                    other = word if other is None else other
            else:
                self._found[name] = None if other is None else self._unaliased(other, name)
        return self._found[name]

    # Numbers of types to places

    def _walk(self) -> None:
        """Go on by a few thousand types."""
        words, steps, at = self._words, self._steps, self._frontier
        starts: list[int] = []
        try:
            for _ in range(4096):
                step = steps[words[at + 1]]
                starts.append(at)
                at += step
        except IndexError:
            pass
        if at > len(words) or (len(starts) < 4096 and at != len(words)):
            raise BtfError("the kernel's BTF is damaged: a type goes past the end")
        self._starts += starts
        self._frontier = at

    def _enclosing(self, word: int) -> int:
        """Where the type that this word is part of begins."""
        while self._frontier <= word:
            self._walk()
        return self._starts[bisect_right(self._starts, word) - 1]

    def _start_of(self, number: int) -> int:
        if not number:
            raise BtfError("the kernel's BTF has void where a type with a size is needed")
        while len(self._starts) < number:
            if self._frontier == len(self._words):
                raise BtfError(f"the kernel's BTF is damaged: it refers to type {number}, and has {len(self._starts)}")
            self._walk()
        return self._starts[number - 1]

    def _kind_at(self, start: int) -> int:
        return _kind(self._words[start + 1])

    def _unaliased(self, start: int, where: str) -> int:
        for _ in range(_DEEPEST):
            if self._kind_at(start) not in _ALIASES:
                return start
            start = self._start_of(self._words[start + 2])
        raise BtfError(f"the kernel's BTF is damaged: {where} is an alias of an alias without end")

    def _resolved(self, number: int, where: str) -> int:
        return self._unaliased(self._start_of(number), where)

    # Places to answers

    def _member_of(self, start: int, name: str, where: str) -> tuple[int, int] | None:
        """Offset and type number of a member, found in anonymous members too."""
        wanted = self._name_offset(name)
        return None if wanted is None else self._search(start, wanted, where, set(), 0)

    def _search(self, start: int, wanted: int, where: str, seen: set[int], depth: int) -> tuple[int, int] | None:
        if depth > _DEEPEST:
            raise BtfError(f"the kernel's BTF is damaged: {where} is nested without end")
        seen.add(start)
        words = self._words
        sized = words[start + 1] >> 31  # kind_flag: the offset word also holds the size of a bitfield
        for at in range(start + 3, start + 3 + 3 * _vlen(words[start + 1]), 3):
            name, number, place = words[at], words[at + 1], words[at + 2]
            bits, place = (place >> 24, place & 0xFFFFFF) if sized else (0, place)
            if name == wanted:
                if bits or place % 8 or self._is_narrow(number, where):
                    raise BtfError(f"{where} is a bitfield, which has no address")
                return place // 8, number
            if not name and not bits:
                inner = self._resolved(number, where)
                if self._kind_at(inner) in _RECORDS and inner not in seen:
                    found = self._search(inner, wanted, where, seen, depth + 1)
                    if found is not None:
                        return place // 8 + found[0], found[1]
        return None

    def _is_narrow(self, number: int, where: str) -> bool:
        """Whether this is an integer of fewer bits than its bytes hold: a bitfield as compilers before kind_flag wrote it."""
        start = self._resolved(number, where) if number else 0
        return bool(number) and self._kind_at(start) == _INT and self._words[start + 3] & 0xFF != 8 * self._words[start + 2]

    def _element(self, start: int, index: int, where: str) -> tuple[int, int]:
        if self._kind_at(start) != _ARRAY:
            raise BtfError(f"{where} is not an array")
        count = self._words[start + 5]
        if index >= count > 0:  # 0 is a flexible array: the struct goes on for as long as was allocated
            raise BtfError(f"{where} has {count} elements, there is none with index {index}")
        element = self._resolved(self._words[start + 3], where)
        return element, index * self._size(element)

    def _size(self, start: int) -> int:
        count = 1
        for _ in range(_DEEPEST):
            kind = self._kind_at(start)
            if kind in _SIZED:
                return count * self._words[start + 2]
            if kind == _PTR:
                return count * _POINTER_SIZE
            if kind == _ARRAY:
                count *= self._words[start + 5]
                start = self._start_of(self._words[start + 3])
            elif kind in _ALIASES:
                start = self._start_of(self._words[start + 2])
            else:
                raise BtfError(f"the kernel's BTF has a type of kind {kind} where one with a size is needed")
        raise BtfError("the kernel's BTF is damaged: a type is nested without end")

    def _enumerator(self, word: int, kind: int, *, signed: bool) -> int:
        value = self._words[word + 1]
        bits = 32
        if kind == _ENUM64:
            value |= self._words[word + 2] << 32
            bits = 64
        return value - (1 << bits) if signed and value >> (bits - 1) else value


_NATIVE = "<" if struct.pack("=H", 1) == b"\1\0" else ">"


def _byte_order(raw: bytes) -> str:
    if len(raw) >= struct.calcsize("<" + _HEADER):
        for order in "<>":
            if struct.unpack_from(order + "H", raw) == (_MAGIC,):
                return order
    raise BtfError("what should be the kernel's BTF is something else: it does not begin as BTF does")


# Newer kernels give the kind 7 bits and vlen 24, older ones 5 and 16 with zeros between them: one mask reads both.
def _kind(info: int) -> int:
    return info >> 24 & 0x7F


def _vlen(info: int) -> int:
    return info & 0xFFFFFF


def _steps_of(path: str) -> list[tuple[str, list[int]]]:
    steps = []
    for part in path.split("."):
        step = _STEP.fullmatch(part)
        if step is None:
            raise ValueError(f"not a path of members: {path!r}")
        steps.append((step[1], [int(index) for index in re.findall(r"\d+", step[2])]))
    return steps


def _check_optional(optional: bool, what: str) -> None:
    if not optional:
        raise BtfError(f"this kernel {what}, says its BTF")
