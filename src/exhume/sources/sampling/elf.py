"""ELF files as far as names of functions go. They are tenants' files: reading is bounded, and nothing in them is believed.

Addresses come as file offsets, since that is what a mapping gives; symbols have virtual addresses; the PT_LOAD segments lead
from one to the other. Numbers are those of include/uapi/linux/elf.h and the System V gABI.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Read = Callable[[int, int], bytes]
"""Like os.pread of one file: so many bytes, from that offset; fewer at the end of the file."""

MOST_SYMBOLS: Final = 4_000_000
MOST_FUNCTIONS: Final = 1_500_000
"""Reading them takes about 80 bytes each at its peak, which has to fit into RLIMIT_AS of the sandbox."""
_LARGEST_TABLE: Final = 128 << 20
_MOST_SECTIONS: Final = 1 << 18
_MOST_SEGMENTS: Final = 1024
_MOST_NOTES: Final = 16
_LARGEST_NOTES: Final = 1 << 16
_LONGEST_NAME: Final = 4096
CHUNK: Final = 1 << 16
_ALIASES: Final = 16
_MOST_LINKING: Final = 64
_LARGEST_SECTION_NAMES: Final = 1 << 16
_NESTED: Final = 1024
"""How far back a function is looked for that began before others and goes on after them."""
TOP: Final = 1 << 63

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_STRTAB, _SHT_RELA, _SHT_NOTE, _SHT_NOBITS, _SHT_DYNSYM = 1, 2, 3, 4, 7, 8, 11
_SHN_XINDEX = 0xFFFF
_SHF_ALLOC, _SHF_EXECINSTR = 2, 4
_PT_LOAD, _PT_NOTE, _PF_X = 1, 4, 1
_STT_NOTYPE, _STT_FUNC, _STT_GNU_IFUNC = 0, 2, 10
_STB_LOCAL, _STB_GLOBAL = 0, 1
_STV_DEFAULT = 0
_NT_GNU_BUILD_ID = 3
EM_386, EM_ARM, EM_X86_64, EM_AARCH64 = 3, 40, 62, 183

_HEADER = {2: struct.Struct("<16xHHIQQQIHHHHHH"), 1: struct.Struct("<16xHHIIIIIHHHHHH")}
_SECTION = {
    2: np.dtype([("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"),
                 ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")]),
    1: np.dtype([("name", "<u4"), ("type", "<u4"), ("flags", "<u4"), ("address", "<u4"), ("offset", "<u4"), ("size", "<u4"),
                 ("link", "<u4"), ("info", "<u4"), ("align", "<u4"), ("entry", "<u4")]),
}  # fmt: skip
_SEGMENT = {
    2: np.dtype([("type", "<u4"), ("flags", "<u4"), ("offset", "<u8"), ("address", "<u8"), ("physical", "<u8"),
                 ("size", "<u8"), ("memory", "<u8"), ("align", "<u8")]),
    1: np.dtype([("type", "<u4"), ("offset", "<u4"), ("address", "<u4"), ("physical", "<u4"), ("size", "<u4"),
                 ("memory", "<u4"), ("flags", "<u4"), ("align", "<u4")]),
}  # fmt: skip
SYMBOL = {
    2: np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]),
    1: np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]),
}
# What is kept of a symbol until its table is in order. Section 0: not known.
_FUNCTION = np.dtype(
    [("start", "<u8"), ("size", "<u8"), ("name", "<u4"), ("section", "<u2"), ("binding", "u1"), ("label", "?")]
)


class Malformed(Exception):
    """Not an ELF file that names can be had from, and why."""


class Segment(NamedTuple):
    offset: int
    size: int
    address: int


class Section(NamedTuple):
    name: bytes
    offset: int
    size: int
    address: int


class Found(NamedTuple):
    """A range of addresses; `which` is the function's in its table, -1 where there is none."""

    start: int
    end: int
    which: int


@dataclass(frozen=True, slots=True)
class Table:
    """The functions of one symbol table by virtual address, aliases and all; names stay in the file until one is asked for."""

    starts: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    names: NDArray[np.uint32]
    binding: NDArray[np.uint8]
    strings: int
    strings_size: int

    @property
    def nbytes(self) -> int:
        return self.starts.nbytes + self.ends.nbytes + self.names.nbytes + self.binding.nbytes

    def find(self, address: int) -> Found:
        """The function that begins last of those that hold the address, cut to the part no other one has."""
        at = int(self.starts.searchsorted(np.uint64(address), "right"))
        low = max(0, at - _NESTED)
        ends = self.ends[low:at]
        above = int(self.starts[at]) if at < len(self.starts) else TOP
        holding = np.flatnonzero(ends > np.uint64(address))
        if not len(holding):
            return Found(int(ends.max()) if len(ends) else 0, above, -1)
        last = int(holding[-1])
        inner = ends[last + 1 :]
        start = max(int(self.starts[low + last]), int(inner.max()) if len(inner) else 0)
        return Found(start, min(int(ends[last]), above), low + last)

    def name(self, index: int, read: Read) -> bytes:
        """Of the aliases that begin at the same address the plainest: real names before those with underscores."""
        start = self.starts[index]
        first, after = (int(self.starts.searchsorted(start, side)) for side in ("left", "right"))
        best: tuple[int, int, int, bytes] | None = None
        for alias in range(first, min(after, first + _ALIASES)):
            name = self._string(int(self.names[alias]), read)
            if name:
                underscores = len(name) - len(name.lstrip(b"_")) if not name.startswith((b"_Z", b"_R")) else 0
                rank = underscores, int(self.binding[alias] != _STB_GLOBAL), len(name), name
                best = rank if best is None else min(best, rank)
        return best[3] if best else b""

    def _string(self, offset: int, read: Read) -> bytes:
        most = min(_LONGEST_NAME, self.strings_size - offset)
        for size in (min(128, most), most):
            if size <= 0:
                return b""
            raw = read(size, self.strings + offset)
            if (end := raw.find(b"\0")) >= 0:
                return raw[:end]
        return raw


@dataclass(frozen=True, slots=True)
class Elf:
    segments: tuple[Segment, ...]
    table: Table | None
    whole: bool
    """Whether the table is .symtab; .dynsym has only what other files may call."""
    build_id: bytes
    machine: int
    linking: tuple[Section, ...]
    """The sections that calls of other files' functions go by: their code, relocations and symbols. Of 64 bit files alone."""

    def segment(self, offset: int) -> Segment | None:
        for segment in self.segments:
            if segment.offset <= offset < segment.offset + segment.size:
                return segment
        return None


def parse(read: Read) -> Elf:
    """Raises Malformed; and OSError as `read` does."""
    ident = read(64, 0)
    if ident[:4] != b"\x7fELF" or len(ident) < 52:
        raise Malformed("it is not an ELF file")
    bits, order = ident[4], ident[5]
    if order == 2:
        raise Malformed("it is for a big-endian machine")
    if bits not in _HEADER or order != 1 or len(ident) < _HEADER[bits].size:
        raise Malformed("its ELF header is damaged")
    _, machine, _, _, segments_at, sections_at, _, _, segment_size, segments, section_size, sections, names = _HEADER[
        bits
    ].unpack_from(ident)
    loads, build_id = _segments(read, bits, segments_at, segment_size, segments)
    table, whole = None, False
    linking: tuple[Section, ...] = ()
    if sections_at and section_size == _SECTION[bits].itemsize:
        rows = _sections(read, bits, sections_at, sections)
        # Go's linker puts the build id outside of PT_NOTE, which covers the id of Go alone.
        build_id = build_id or _build_id_among(read, rows[rows["type"] == _SHT_NOTE])
        for kind in (_SHT_SYMTAB, _SHT_DYNSYM):
            for index in np.flatnonzero(rows["type"] == kind)[:4]:
                if table is None:
                    table = _table(read, bits, rows, int(index), machine)
                    whole = table is not None and kind == _SHT_SYMTAB
        if bits == 2 and len(rows):
            linking = _linking(read, rows, names)
    return Elf(loads, table, whole, build_id, machine, linking)


def rows_at(read: Read, kind: np.dtype[np.void], offset: int, count: int) -> NDArray[np.void]:
    if not 0 <= offset < TOP:
        return np.empty(0, kind)
    raw = read(count * kind.itemsize, offset)
    return np.frombuffer(raw, kind, len(raw) // kind.itemsize)


def _segments(read: Read, bits: int, offset: int, size: int, count: int) -> tuple[tuple[Segment, ...], bytes]:
    kind = _SEGMENT[bits]
    if count > _MOST_SEGMENTS or (count and size != kind.itemsize):
        raise Malformed("its program headers are damaged")
    rows = rows_at(read, kind, offset, count)
    loads = rows[rows["type"] == _PT_LOAD]
    code = loads[(loads["flags"] & _PF_X) != 0]
    found = tuple(
        Segment(start, size, address)
        for start, size, address in zip(code["offset"].tolist(), code["size"].tolist(), code["address"].tolist(), strict=True)
        if size and start + size < TOP and address + size < TOP
    )
    return found, _build_id_among(read, rows[rows["type"] == _PT_NOTE])


def _build_id_among(read: Read, rows: NDArray[np.void]) -> bytes:
    """Of segments or sections of notes."""
    for row in rows[:_MOST_NOTES]:
        if int(row["offset"]) < TOP:
            build_id = _build_id(read(min(int(row["size"]), _LARGEST_NOTES), int(row["offset"])))
            if build_id:
                return build_id
    return b""


def _build_id(notes: bytes) -> bytes:
    at = 0
    while at + 12 <= len(notes):
        name, size, kind = struct.unpack_from("<III", notes, at)
        body = at + 12 + (name + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name] == b"GNU\0" and 2 <= size <= 64:
            found = notes[body : body + size]
            return found if len(found) == size else b""
        at = body + (size + 3 & ~3)
    return b""


def _sections(read: Read, bits: int, offset: int, count: int) -> NDArray[np.void]:
    kind = _SECTION[bits]
    if count == 0:  # more than 0xFF00: the first section's size is the number
        first = rows_at(read, kind, offset, 1)
        count = int(first["size"][0]) if len(first) else 0
    if count > _MOST_SECTIONS:
        raise Malformed("it has too many sections")
    return rows_at(read, kind, offset, count)


def _linking(read: Read, sections: NDArray[np.void], names: int) -> tuple[Section, ...]:
    """With their names: those that hold code or relocations, and .dynsym and .dynstr, which are loaded as .strtab is not."""
    kind, flags = sections["type"], sections["flags"]
    wanted = (kind == _SHT_PROGBITS) & ((flags & _SHF_EXECINSTR) != 0) | (kind == _SHT_RELA) | (kind == _SHT_DYNSYM)
    wanted |= (kind == _SHT_STRTAB) & ((flags & _SHF_ALLOC) != 0)
    names = int(sections["link"][0]) if names == _SHN_XINDEX else names
    if not 0 < names < len(sections) or int(sections["offset"][names]) >= TOP:
        return ()
    strings = read(min(int(sections["size"][names]), _LARGEST_SECTION_NAMES), int(sections["offset"][names]))
    found = []
    for row in sections[np.flatnonzero(wanted)[:_MOST_LINKING]]:
        start, offset, size, address = (int(row[field]) for field in ("name", "offset", "size", "address"))
        name = strings[start : start + 16].partition(b"\0")[0]
        if name and size and offset + size < TOP and address + size < TOP:
            found.append(Section(name, offset, size, address))
    return tuple(found)


def _table(read: Read, bits: int, sections: NDArray[np.void], index: int, machine: int) -> Table | None:
    kind, row = SYMBOL[bits], sections[index]
    offset, size, link = int(row["offset"]), int(row["size"]), int(row["link"])
    count = min(size, _LARGEST_TABLE) // kind.itemsize
    if int(row["entry"]) != kind.itemsize or not count or link >= len(sections) or int(sections[link]["type"]) == _SHT_NOBITS:
        return None
    if count > MOST_SYMBOLS or size > _LARGEST_TABLE:
        raise Malformed(f"it has more than {MOST_SYMBOLS // 1_000_000} million symbols")
    strings, strings_size = int(sections[link]["offset"]), int(sections[link]["size"])
    if strings + strings_size >= TOP or offset + size >= TOP:
        return None
    executable = (sections["flags"] & _SHF_EXECINSTR) != 0
    section_ends = sections["address"].astype(np.uint64) + np.minimum(sections["size"].astype(np.uint64), np.uint64(TOP - 1))
    parts, total = [], 0
    for first in range(0, count, CHUNK):
        symbols = rows_at(read, kind, offset + first * kind.itemsize, min(CHUNK, count - first))
        if not len(symbols):
            break
        part = _functions(symbols, executable, strings_size, machine in (EM_386, EM_X86_64))
        total += len(part)
        if total > MOST_FUNCTIONS:
            raise Malformed(f"it has more than {MOST_FUNCTIONS / 1e6:g} million functions")
        parts.append(part)
    if not total:
        return None
    functions = np.concatenate(parts)
    parts.clear()
    starts = functions["start"].copy()
    if machine == EM_ARM:
        starts &= ~np.uint64(1)
    order = np.argsort(starts)
    starts, functions = starts[order], functions[order]
    del order
    labels = functions["label"]
    if labels.any():
        firm = ~labels
        ends = np.empty_like(starts)
        ends[firm] = _ends(starts[firm], functions[firm], section_ends, starts[firm])
        ends[labels] = _ends(starts[labels], functions[labels], section_ends, starts)
        kept = firm.copy()
        kept[labels] = _free(starts[labels], starts[firm], ends[firm])
        starts, ends, functions = starts[kept], ends[kept], functions[kept]
    else:
        ends = _ends(starts, functions, section_ends, starts)
    return Table(starts, ends, functions["name"].copy(), functions["binding"].copy(), strings, strings_size)


def _ends(
    starts: NDArray[np.uint64], functions: NDArray[np.void], section_ends: NDArray[np.uint64], others: NDArray[np.uint64]
) -> NDArray[np.uint64]:
    """A symbol without a size goes on to the next one of the others, or to the end of its section."""
    ends: NDArray[np.uint64] = starts + functions["size"]
    open_ended = np.flatnonzero(functions["size"] == 0)
    above = np.append(others, np.uint64(TOP - 1))
    for first in range(0, len(open_ended), CHUNK):
        rows = open_ended[first : first + CHUNK]
        begin, section = starts[rows], functions["section"][rows]
        following = above[others.searchsorted(begin, "right")]
        limits = np.where(section > 0, section_ends[section], np.uint64(TOP - 1))
        ends[rows] = np.maximum(np.minimum(following, limits), begin + np.uint64(1))
    return ends


def _free(addresses: NDArray[np.uint64], starts: NDArray[np.uint64], ends: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which addresses no range holds; starts are in order."""
    reached = np.append(np.uint64(0), np.maximum.accumulate(ends))
    return reached[starts.searchsorted(addresses, "right")] <= addresses


def _functions(
    symbols: NDArray[np.void], executable: NDArray[np.bool_], strings_size: int, local_labels: bool
) -> NDArray[np.void]:
    kind, binding = symbols["info"] & 15, symbols["info"] >> 4
    section = symbols["section"].astype(np.int64)
    known = (section > 0) & (section < len(executable))
    section = np.where(known, section, 0)
    # Functions of hand-written assembler often have no type. Local ones, like _start and _dl_start_user of ld.so, may as well
    # be a loop's: they count where nothing else is. On ARM they do not: there $x and $d mark kinds of bytes. Hidden ones are
    # marks of annobin; perf leaves them out too (elf_sym__is_label of tools/perf/util/symbol-elf.c).
    untyped = (kind == _STT_NOTYPE) & known & executable[section]
    labels = untyped & (binding == _STB_LOCAL)
    untyped &= ~labels | local_labels & ((symbols["other"] & 3) == _STV_DEFAULT)
    wanted = ((kind == _STT_FUNC) | (kind == _STT_GNU_IFUNC)) & (symbols["section"] != 0) | untyped
    wanted &= (symbols["name"] > 0) & (symbols["name"].astype(np.int64) < strings_size)
    values = symbols["value"].astype(np.uint64)
    wanted &= (values > 0) & (values < np.uint64(TOP - 1))
    found = np.empty(np.count_nonzero(wanted), _FUNCTION)
    found["start"] = values[wanted]
    found["size"] = np.minimum(symbols["size"][wanted].astype(np.uint64), np.uint64(TOP) - found["start"])
    found["name"], found["binding"] = symbols["name"][wanted], binding[wanted]
    found["section"], found["label"] = section[wanted], labels[wanted]
    return found
