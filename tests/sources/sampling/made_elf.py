"""Small ELF files made by hand: what no linker would write, and what a hostile tenant might."""

import struct
from typing import NamedTuple

import numpy as np

from exhume.sources.sampling import elf

TEXT, VADDR = 0x1000, 0x401000


class Symbol(NamedTuple):
    name: bytes
    value: int
    size: int
    kind: int = 2  # STT_FUNC
    binding: int = 1  # STB_GLOBAL
    section: int = 1


def made(
    *symbols: Symbol,
    count: int | None = None,
    table_size: int | None = None,
    build_id: bytes = b"",
    bits: int = 64,
    dynamic: bool = False,
    noted_by: str = "segment",
) -> bytes:
    """An executable with 4 KiB of text at file offset 0x1000, mapped at 0x401000, and these symbols. Its build id is in a
    segment of notes, or in a section and outside of that segment, as Go's linker has it."""
    strings = b"\0"
    rows = [bytes(24 if bits == 64 else 16)]
    for symbol in symbols:
        info = symbol.binding << 4 | symbol.kind
        at = len(strings)
        strings += symbol.name + b"\0"
        if bits == 64:
            rows.append(struct.pack("<IBBHQQ", at, info, 0, symbol.section, symbol.value, symbol.size))
        else:
            rows.append(struct.pack("<IIIBBH", at, symbol.value, symbol.size, info, 0, symbol.section))
    table = b"".join(rows)
    notes = struct.pack("<III4s", 4, len(build_id), 3, b"GNU\0") + build_id if build_id else b""
    table_at = TEXT + 0x1000
    strings_at = table_at + len(table)
    notes_at = strings_at + len(strings)
    sections_at = notes_at + len(notes)
    entry = len(rows[0])
    size = len(table) if table_size is None else table_size
    in_segment = len(notes) if noted_by == "segment" else 0
    sections = [
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 1, 6, VADDR, TEXT, 0x1000, 0, 0, 16, 0),
        (0, 11 if dynamic else 2, 0, 0, table_at, size, 3, 1, 8, entry),
        (0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
        *([(0, 7, 2, 0, notes_at, len(notes), 0, 0, 4, 0)] if noted_by == "section" else []),
    ]
    shape = "<IIQQQQIIQQ" if bits == 64 else "<IIIIIIIIII"
    packed = b"".join(struct.pack(shape, *section) for section in sections)
    number = len(sections) if count is None else count
    if bits == 64:
        ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
        header = ident + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, VADDR, 64, sections_at, 0, 64, 56, 2, 64, number, 0)
        segments = struct.pack("<IIQQQQQQ", 1, 5, TEXT, VADDR, 0, 0x1000, 0x1000, 0x1000)
        segments += struct.pack("<IIQQQQQQ", 4, 4, notes_at, 0, 0, in_segment, in_segment, 4)
    else:
        ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
        header = ident + struct.pack("<HHIIIIIHHHHHH", 2, 3, 1, VADDR, 52, sections_at, 0, 52, 32, 2, 40, number, 0)
        segments = struct.pack("<IIIIIIII", 1, TEXT, VADDR, 0, 0x1000, 0x1000, 5, 0x1000)
        segments += struct.pack("<IIIIIIII", 4, notes_at, 0, 0, in_segment, in_segment, 4, 4)
    return (header + segments).ljust(TEXT, b"\0") + bytes(0x1000) + table + strings + notes + packed


def many_functions(count: int) -> bytes:
    """So many functions, all called `name`, without sizes, in no order; the first begins with the text."""
    symbols = np.zeros(count, elf.SYMBOL[2])
    symbols["name"], symbols["info"], symbols["section"] = 1, 0x12, 1
    symbols["value"] = np.random.default_rng(1).integers(VADDR + 0x100, 1 << 40, count)
    symbols["value"][count // 2] = VADDR
    table_at, strings = TEXT + 0x1000, b"\0name\0"
    strings_at = table_at + symbols.nbytes
    sections_at = strings_at + len(strings)
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header = ident + struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, VADDR, 64, sections_at, 0, 64, 56, 1, 64, 4, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, TEXT, VADDR, 0, 0x1000, 0x1000, 0x1000)
    sections = (
        (0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (0, 1, 6, VADDR, TEXT, 1 << 40, 0, 0, 16, 0),
        (0, 2, 0, 0, table_at, symbols.nbytes, 3, 1, 8, 24),
        (0, 3, 0, 0, strings_at, len(strings), 0, 0, 1, 0),
    )
    packed = b"".join(struct.pack("<IIQQQQIIQQ", *section) for section in sections)
    return (header + segment).ljust(table_at, b"\0") + symbols.tobytes() + strings + packed
