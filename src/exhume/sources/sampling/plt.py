"""Names for the procedure linkage table: the stubs through which a file calls functions of others, `malloc@plt`.

No symbol table has them. A stub jumps to where a slot of the global offset table points, and the relocation of that slot names
the function: that holds for lazy and eager binding, with landing pads and without, whatever linker it was, and in any order.
Numbers and instructions are those of the psABIs of x86-64 and AArch64; stubs are as binutils' bfd/elfxx-x86.c,
bfd/elfnn-aarch64.c and lld write them.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.sources.sampling.elf import CHUNK, EM_AARCH64, EM_X86_64, SYMBOL, TOP, Elf, Read, Section, Table, rows_at

MOST_RELOCATIONS: Final = 2_000_000
LARGEST: Final = 4 << 20
"""Of all stubs of a file together: a quarter of a million."""

_CODE: Final = (b".plt", b".plt.sec", b".plt.got", b".plt.bnd", b".iplt")
_RELOCATIONS: Final = (b".rela.plt", b".rela.iplt", b".rela.dyn")

_RELOCATION = np.dtype([("slot", "<u8"), ("info", "<u8"), ("addend", "<i8")])
_IRELATIVE: Final = {EM_X86_64: 37, EM_AARCH64: 1032}
_KINDS: Final = {EM_X86_64: (6, 7, 37), EM_AARCH64: (1025, 1026, 1032)}
"""R_*_GLOB_DAT, R_*_JUMP_SLOT and R_*_IRELATIVE."""

_ENDBR64, _BND = 0xFA1E0FF3, 0xF2
_BTI_C, _AUTIA1716, _STP_X16_X30 = 0xD503245F, 0xD503219F, 0xA9BF7BF0


class Stub(NamedTuple):
    """A range of addresses around one that was asked for, and what is there, if it is a stub."""

    start: int
    end: int
    name: bytes = b""
    """Of the function, without @plt; mangled."""
    resolver: int = 0
    """Where there is no name: the address of the function in this file that chooses what is called (STT_GNU_IFUNC)."""


class _Code(NamedTuple):
    """What looks like a stub: where it is, and the slot that it jumps through."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    slots: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Stubs:
    table: Table
    resolvers: NDArray[np.uint64]


class Plt:
    """The stubs of one file. Nothing is read before an address is one of theirs, which most never are."""

    def __init__(self, parsed: Elf) -> None:
        self._machine = parsed.machine
        self._sections = parsed.linking if parsed.machine in _KINDS else ()
        self._code = tuple(section for section in self._sections if section.name in _CODE)
        self._stubs: _Stubs | None = None

    @property
    def there(self) -> bool:
        """Whether the file has a place for stubs."""
        return bool(self._code)

    @property
    def nbytes(self) -> int:
        return self._stubs.table.nbytes + self._stubs.resolvers.nbytes if self._stubs is not None else 0

    def find(self, address: int, read: Read) -> Stub:
        """Raises what `read` does. An address that is none of a stub gets the range to the stubs next to it."""
        low, high = 0, TOP
        inside = False
        for section in self._code:
            end = section.address + section.size
            if section.address <= address < end:
                inside = True
                low, high = max(low, section.address), min(high, end)
            elif address < section.address:
                high = min(high, section.address)
            else:
                low = max(low, end)
        if not inside:
            return Stub(low, high)
        if self._stubs is None:
            self._stubs = _read(self._machine, self._sections, read)
        found = self._stubs.table.find(address)
        low, high = max(low, found.start), min(high, found.end)
        if found.which < 0:
            return Stub(low, high)
        resolver = int(self._stubs.resolvers[found.which])
        return Stub(low, high, b"" if resolver else self._stubs.table.name(found.which, read), resolver)


def _read(machine: int, sections: tuple[Section, ...], read: Read) -> _Stubs:
    decode = _x86_64 if machine == EM_X86_64 else _aarch64
    parts = []
    left = LARGEST
    for section in sections:
        if section.name in _CODE:
            code = read(min(section.size, left), section.offset)
            left -= len(code)
            parts.append(decode(np.frombuffer(code + bytes(-len(code) % 16 + 16), np.uint8), section))
    starts, ends, slots = (np.concatenate([np.empty(0, np.int64), *(part[at] for part in parts)]) for at in range(3))
    symbols, resolvers = _relocated(machine, sections, read, slots)
    strings = next((section for section in sections if section.name == b".dynstr"), Section(b"", 0, 0, 0))
    names = _names(sections, read, symbols)
    names[(names >= strings.size) | (resolvers > 0)] = 0
    order = np.argsort(starts)
    order = order[(names[order] > 0) | (resolvers[order] > 0)]
    binding = np.zeros(len(order), np.uint8)
    starts, ends = starts[order], ends[order]
    table = Table(starts.astype(np.uint64), ends.astype(np.uint64), names[order], binding, strings.offset, strings.size)
    return _Stubs(table, resolvers[order])


def _x86_64(code: NDArray[np.uint8], section: Section) -> _Code:
    """`jmp *slot(%rip)`, after a landing pad (endbr64) and a prefix (bnd) or neither: 16 bytes, or 8 where nothing is bound
    lazily (.plt.got, .plt of a static program). The first stub, the others' way to ld.so, does not begin with it."""
    at = np.arange(0, len(code) - 16, 8)
    landing = code.view("<u4")[at // 4] == _ENDBR64
    jump = at + 4 * landing
    jump += code[jump] == _BND
    hit = (code[jump] == 0xFF) & (code[jump + 1] == 0x25)
    hit[1:] &= ~(hit & landing)[:-1]  # the second half of one with a landing pad
    at, jump = at[hit], jump[hit]
    distance = np.zeros(len(at), np.uint32)
    for byte in range(4):
        distance |= code[jump + 2 + byte].astype(np.uint32) << np.uint32(8 * byte)
    slots = section.address + jump + 6 + distance.view(np.int32)
    ends = np.minimum(at + 16, np.append(at[1:], section.size))
    return _Code(section.address + at, section.address + ends, slots)


def _aarch64(code: NDArray[np.uint8], section: Section) -> _Code:
    """`adrp x16, slot; ldr x17, [x16, slot]; add; br`: 16 bytes; 24 with a landing pad (bti) or a signed slot (autia1716)."""
    words = code.view("<u4")
    at = np.arange(len(words) - 4)
    hit = ((words[at] & 0x9F00001F) == 0x90000010) & ((words[at + 1] & 0xFFC003FF) == 0xF9400211)
    hit[1:] &= words[: max(len(at) - 1, 0)] != _STP_X16_X30  # the first stub, the others' way to ld.so
    at = at[hit]
    adrp, ldr = words[at].astype(np.int64), words[at + 1].astype(np.int64)
    pages = (adrp >> 5 & 0x7FFFF) << 2 | adrp >> 29 & 3
    pages -= (pages >> 20) << 21
    landing = (at > 0) & (words[np.maximum(at - 1, 0)] == _BTI_C)
    addresses = section.address + 4 * at
    slots = (addresses & ~0xFFF) + (pages << 12) + (ldr >> 10 & 0xFFF) * 8
    starts = addresses - 4 * landing
    return _Code(starts, starts + np.where(landing | (words[at + 3] == _AUTIA1716), 24, 16), slots)


def _relocated(
    machine: int, sections: tuple[Section, ...], read: Read, slots: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
    """For each slot the number of the symbol that goes there, or the resolver that says what does; 0 where neither is known."""
    wanted, which = np.unique(slots.view(np.uint64), return_inverse=True)
    found = np.zeros(len(wanted), np.bool_)
    symbols, resolvers = np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.uint64)
    left = MOST_RELOCATIONS
    for section in (section for name in _RELOCATIONS for section in sections if section.name == name):
        count = min(section.size // _RELOCATION.itemsize, left)
        left -= count
        for first in range(0, count, CHUNK):
            if found.all():
                break
            rows = rows_at(read, _RELOCATION, section.offset + first * _RELOCATION.itemsize, min(CHUNK, count - first))
            if not len(rows):
                break
            kinds = rows["info"] & 0xFFFFFFFF
            rows = rows[np.isin(kinds, _KINDS[machine])]
            at = np.minimum(wanted.searchsorted(rows["slot"]), len(wanted) - 1)
            new = (wanted[at] == rows["slot"]) & ~found[at]
            at, rows = at[new], rows[new]
            found[at] = True
            indirect = (rows["info"] & 0xFFFFFFFF) == _IRELATIVE[machine]
            symbols[at] = np.where(indirect, 0, rows["info"] >> 32)
            resolvers[at] = np.where(indirect & (rows["addend"] > 0), rows["addend"], 0)
    return symbols[which], resolvers[which]


def _names(sections: tuple[Section, ...], read: Read, symbols: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Where in .dynstr the names of symbols of .dynsym are; of a symbol that is not there, 0."""
    names = np.zeros(len(symbols), np.uint32)
    kind = SYMBOL[2]
    table = next((section for section in sections if section.name == b".dynsym"), None)
    if table is None:
        return names
    wanted = np.flatnonzero((symbols > 0) & (symbols < table.size // kind.itemsize))
    wanted = wanted[np.argsort(symbols[wanted])]
    numbers = symbols[wanted]
    at = 0
    while at < len(wanted):
        first = int(numbers[at])
        after = int(numbers.searchsorted(first + CHUNK))
        rows = rows_at(read, kind, table.offset + first * kind.itemsize, int(numbers[after - 1]) - first + 1)
        there = numbers[at:after] - first < len(rows)
        names[wanted[at:after][there]] = rows["name"][numbers[at:after][there] - first]
        at = after
    return names
