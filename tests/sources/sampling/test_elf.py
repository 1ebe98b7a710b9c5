"""ELF files: functions are found where they are, and no file, however damaged, does more than be declined."""

import itertools
import os
import random
import shutil
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.sources.sampling import elf
from tests.examples import examples
from tests.sources.sampling.made_elf import TEXT, VADDR, Symbol, made


def reader(raw: bytes) -> elf.Read:
    return lambda size, offset: raw[offset : offset + size]


def name_at(raw: bytes, offset: int) -> tuple[int, int, bytes]:
    read = reader(raw)
    parsed = elf.parse(read)
    segment = parsed.segment(offset)
    assert segment is not None
    assert parsed.table is not None
    shift = segment.address - segment.offset
    found = parsed.table.find(offset + shift)
    return found.start - shift, found.end - shift, parsed.table.name(found.which, read) if found.which >= 0 else b""


@pytest.mark.parametrize("bits", [64, 32])
def test_a_function_is_found_from_its_first_byte_to_its_last(bits: int) -> None:
    raw = made(Symbol(b"first", VADDR, 0x10), Symbol(b"second", VADDR + 0x20, 0x10), bits=bits)
    assert name_at(raw, TEXT) == (TEXT, TEXT + 0x10, b"first")
    assert name_at(raw, TEXT + 0xF) == (TEXT, TEXT + 0x10, b"first")
    assert name_at(raw, TEXT + 0x20) == (TEXT + 0x20, TEXT + 0x30, b"second")


def test_a_gap_between_functions_is_unknown_as_a_whole() -> None:
    raw = made(Symbol(b"first", VADDR, 0x10), Symbol(b"second", VADDR + 0x20, 0x10))
    assert name_at(raw, TEXT + 0x15) == (TEXT + 0x10, TEXT + 0x20, b"")


def test_a_symbol_without_a_size_goes_on_to_the_next_or_to_the_end_of_its_section() -> None:
    raw = made(Symbol(b"first", VADDR, 0), Symbol(b"second", VADDR + 0x20, 0))
    assert name_at(raw, TEXT + 0x1F) == (TEXT, TEXT + 0x20, b"first")
    assert name_at(raw, TEXT + 0x800) == (TEXT + 0x20, TEXT + 0x1000, b"second")


def test_a_function_inside_another_is_found_and_the_outer_one_on_both_sides_of_it() -> None:
    raw = made(Symbol(b"outer", VADDR, 0x100), Symbol(b"inner", VADDR + 0x40, 0x10))
    assert name_at(raw, TEXT + 0x20) == (TEXT, TEXT + 0x40, b"outer")
    assert name_at(raw, TEXT + 0x45) == (TEXT + 0x40, TEXT + 0x50, b"inner")
    assert name_at(raw, TEXT + 0x60) == (TEXT + 0x50, TEXT + 0x100, b"outer")


def test_of_aliases_the_plainest_is_told() -> None:
    raw = made(*(Symbol(name, VADDR, 0x10, binding=b) for name, b in ((b"__libc_read", 0), (b"__read", 1), (b"read", 2))))
    assert name_at(raw, TEXT + 4)[2] == b"read"


def test_hand_written_functions_without_a_type_count_and_data_does_not() -> None:
    raw = made(
        Symbol(b"by_hand", VADDR, 0, kind=0),
        Symbol(b"$x", VADDR + 0x10, 0, kind=0, binding=0),
        Symbol(b"table", VADDR + 0x20, 0x10, kind=1),
    )
    assert name_at(raw, TEXT + 0x24)[2] == b"by_hand"


def test_a_local_label_counts_where_nothing_else_is() -> None:
    raw = made(
        Symbol(b"function", VADDR, 0x20),
        Symbol(b"loop", VADDR + 0x10, 0, kind=0, binding=0),
        Symbol(b"_start", VADDR + 0x20, 0, kind=0, binding=0),
        Symbol(b"_dl_start_user", VADDR + 0x28, 0, kind=0, binding=0),
        Symbol(b"after", VADDR + 0x40, 0x10),
    )
    assert name_at(raw, TEXT + 0x18) == (TEXT, TEXT + 0x20, b"function")
    assert name_at(raw, TEXT + 0x20) == (TEXT + 0x20, TEXT + 0x28, b"_start")
    assert name_at(raw, TEXT + 0x3F) == (TEXT + 0x28, TEXT + 0x40, b"_dl_start_user")
    for_arm = raw[:18] + struct.pack("<H", elf.EM_AARCH64) + raw[20:]
    assert name_at(for_arm, TEXT + 0x20) == (TEXT + 0x20, TEXT + 0x40, b"")


def test_a_file_of_labels_alone_has_them() -> None:
    raw = made(*(Symbol(name, VADDR + at, 0, kind=0, binding=0) for name, at in ((b"one", 0), (b"two", 8))))
    assert name_at(raw, TEXT + 7) == (TEXT, TEXT + 8, b"one")
    assert name_at(raw, TEXT + 8) == (TEXT + 8, TEXT + 0x1000, b"two")


def test_a_function_of_another_object_is_none_of_this_file() -> None:
    read = reader(made(Symbol(b"malloc", 0, 0, section=0)))
    assert elf.parse(read).table is None


def test_the_build_id_is_found_and_whether_names_are_all_there() -> None:
    symbol = Symbol(b"first", VADDR, 0x10)
    whole = elf.parse(reader(made(symbol, build_id=bytes(range(20)))))
    assert (whole.build_id, whole.whole) == (bytes(range(20)), True)
    assert not elf.parse(reader(made(symbol, dynamic=True))).whole


@pytest.mark.parametrize("bits", [64, 32])
def test_a_build_id_outside_of_the_segment_of_notes_is_found_by_its_section(bits: int) -> None:
    raw = made(Symbol(b"first", VADDR, 0x10), build_id=bytes(range(20)), bits=bits, noted_by="section")
    assert elf.parse(reader(raw)).build_id == bytes(range(20))


def test_the_build_id_of_a_go_program_is_the_one_that_readelf_tells() -> None:
    path = shutil.which("go")
    if path is None or shutil.which("readelf") is None:
        pytest.skip("Go or readelf is not installed")
    listed = subprocess.run(["readelf", "-n", os.path.realpath(path)], capture_output=True, text=True, check=True).stdout
    if "Build ID:" not in listed:
        pytest.skip(f"{path} has no GNU build id: it is of Go before 1.24, or of a linker that was told so")
    with open(os.path.realpath(path), "rb") as file:
        parsed = elf.parse(lambda size, offset: os.pread(file.fileno(), size, offset))
    assert parsed.build_id == bytes.fromhex(listed.split("Build ID:")[1].split()[0])


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "not an ELF"),
        (b"#!/bin/sh\n" * 20, "not an ELF"),
        (b"\x7fELF\x02\x02\x01".ljust(64, b"\0"), "big-endian"),
        (b"\x7fELF\x07\x01\x01".ljust(64, b"\0"), "damaged"),
        (made(count=0xFFFF)[:0x1000] + b"\xff" * 0x2000, None),
        (made(Symbol(b"first", VADDR, 8), table_size=1 << 40), "million"),
    ],
)
def test_what_cannot_be_read_is_declined_with_a_reason(raw: bytes, reason: str | None) -> None:
    if reason is None:
        assert elf.parse(reader(raw)).table is None
    else:
        with pytest.raises(elf.Malformed, match=reason):
            elf.parse(reader(raw))


def test_a_table_that_claims_to_be_huge_costs_what_is_there() -> None:
    raw = made(Symbol(b"first", VADDR, 0x10), table_size=90 << 20)
    tracemalloc.start()
    parsed = elf.parse(reader(raw))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parsed.table is not None
    assert peak < 16 << 20


def test_every_function_that_nm_knows_of_this_python_is_found() -> None:
    path = os.path.realpath(sys.executable)
    library = [line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libpython" in line]
    path = library[0] if library else path
    try:
        listed = subprocess.run(["nm", "--defined-only", path], capture_output=True, text=True, check=False).stdout
    except FileNotFoundError:
        pytest.skip("nm is not installed")
    wanted: dict[int, set[bytes]] = {}
    for line in listed.splitlines():
        digits, kind, name = line.split(None, 2)
        if kind in "TtWwi":
            wanted.setdefault(int(digits, 16), set()).add(name.encode())
    if not wanted:
        pytest.skip(f"{path} is stripped")
    with open(path, "rb") as file:
        read: elf.Read = lambda size, offset: os.pread(file.fileno(), size, offset)  # noqa: E731
        parsed = elf.parse(read)
        assert parsed.table is not None
        addresses = random.Random(1).sample(sorted(wanted), min(2000, len(wanted)))
        typed = set(parsed.table.starts.tolist())
        checked = [address for address in addresses if address in typed]
        assert len(checked) > 0.9 * len(addresses)
        for address in checked:
            found = parsed.table.find(address)
            assert parsed.table.name(found.which, read) in wanted[address]


def survives(raw: bytes) -> None:
    """Parsing and asking raises nothing but Malformed, and every answer is a range with the address in it."""
    read = reader(raw)
    try:
        parsed = elf.parse(read)
    except elf.Malformed:
        return
    for segment, step in itertools.product(parsed.segments[:4], (0, 1, 7)):
        offset = segment.offset + step * (segment.size // 8)
        assert parsed.segment(offset) is not None
        if parsed.table is not None:
            address = offset - segment.offset + segment.address
            found = parsed.table.find(address)
            assert found.start <= address < found.end
            if found.which >= 0:
                assert len(parsed.table.name(found.which, read)) <= 4096


@given(st.binary(max_size=400))
def test_any_bytes_are_survived(raw: bytes) -> None:
    survives(raw)
    survives(b"\x7fELF\x02\x01\x01" + raw)


_SAMPLE = made(
    Symbol(b"first", VADDR, 0x10), Symbol(b"second", VADDR + 0x8, 0x40), Symbol(b"third", VADDR + 0x80, 0), build_id=b"1234"
)
_SAMPLE_32 = made(
    Symbol(b"first", VADDR, 0x10), Symbol(b"second", VADDR + 0x8, 0x40), build_id=b"1234", bits=32, noted_by="section"
)
_INTERESTING = [*range(64 + 2 * 56), *range(TEXT + 0x1000, len(_SAMPLE))]


@settings(max_examples=examples(300))
@given(
    st.sampled_from([64, 32]),
    st.lists(
        st.tuples(st.sampled_from(_INTERESTING), st.sampled_from([1, 2, 4, 8]), st.integers(0, (1 << 64) - 1)), max_size=6
    ),
    st.integers(0, len(_SAMPLE)),
)
def test_a_damaged_file_is_survived(bits: int, damage: list[tuple[int, int, int]], end: int) -> None:
    changed = bytearray(_SAMPLE if bits == 64 else _SAMPLE_32)
    for at, size, value in damage:
        changed[at : at + size] = struct.pack("<Q", value)[:size]
    survives(bytes(changed))
    survives(bytes(changed[:end]))


def test_a_real_file_damaged_in_its_headers_is_survived() -> None:
    raw = Path(os.path.realpath(sys.executable)).read_bytes()
    sections_at = struct.unpack_from("<Q", raw, 40)[0]
    chosen = random.Random(2)
    for _ in range(200):
        changed = bytearray(raw)
        for _ in range(4):
            at = chosen.choice([chosen.randrange(64 + 12 * 56), chosen.randrange(sections_at, len(raw))])
            changed[at] = chosen.randrange(256)
        survives(bytes(changed))
