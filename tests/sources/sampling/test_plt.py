"""Stubs of the procedure linkage table: each has the name that objdump has for it, and no damage does more than lose it."""

import itertools
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.sources.sampling import elf
from exhume.sources.sampling.demangle import function_name
from exhume.sources.sampling.plt import Plt, Stub
from exhume.sources.sampling.symbol_reader import ElfImage
from exhume.sources.sampling.user_symbols import UserSymbols
from tests.examples import examples
from tests.sources.sampling.symbol_processes import ask, compiled, image_of, running

C = """
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    void *(*volatile by_pointer)(size_t) = malloc;
    char *text = realloc(by_pointer(10), argc + 20);
    printf("%d %f", atoi(argv[0]), sin(argc));
    free(malloc(4)); puts(strcpy(text, "r")); write(1, "r", 1); for (;;) pause(); return strlen(text);
}
"""
CPP = """
#include <string>
#include <unistd.h>
int main(int argc, char **argv) { std::string text(argv[0]); text.append("r"); write(1, "r", 1); for (;;) pause(); }
"""
ARM = """
    .globl  calls
    .type   calls, %function
calls:
    bl puts
    bl malloc
    bl chosen
    ret
    .size   calls, .-calls
    .globl  chosen
    .hidden chosen
    .type   chosen, %gnu_indirect_function
chosen:
    ret
    .size   chosen, 4
"""

# Files made by hand

CODE, SLOTS, AT = 0x1000, 0x3000, 0x400000
X86_64, AARCH64 = 62, 183
LANDING = b"\xf3\x0f\x1e\xfa"


class Relocation(NamedTuple):
    slot: int
    kind: int
    symbol: int
    addend: int = 0


def jump(at: int, slot: int, before: bytes = b"", size: int = 16) -> bytes:
    """`jmp *slot(%rip)` of a stub that begins at an address."""
    return (before + b"\xff\x25" + struct.pack("<i", slot - at - len(before) - 6)).ljust(size, b"\x90")


def arm_jump(at: int, slot: int, before: tuple[int, ...] = (), after: tuple[int, ...] = (0xD61F0220,)) -> bytes:
    pages = (slot >> 12) - (at >> 12) & 0x1FFFFF
    adrp = 0x90000010 | (pages & 3) << 29 | pages >> 2 << 5
    load = 0xF9400211 | (slot & 0xFFF) // 8 << 10
    return b"".join(struct.pack("<I", word) for word in (*before, adrp, load, 0x91000210, *after))


def made(
    code: dict[bytes, bytes],
    relocations: dict[bytes, list[Relocation]],
    names: tuple[bytes, ...] = (b"malloc", b"free", b"_ZN3pit3digEi"),
    machine: int = X86_64,
    claimed: int | None = None,
) -> bytes:
    """Sections of code follow each other from 0x401000; slots of the global offset table are at 0x403000."""
    strings, symbols = b"\0", bytes(24)
    for name in names:
        symbols += struct.pack("<IBBHQQ", len(strings), 0x12, 0, 0, 0, 0)
        strings += name + b"\0"
    section_names = b"\0"
    body = b"".join(code.values()).ljust(0x1000, b"\0")
    rows = [(0, 0, 0, 0, 0, 0, 0, 0, 0, 0)]
    at = CODE

    def section(name: bytes, kind: int, flags: int, offset: int, size: int) -> None:
        nonlocal section_names
        rows.append((len(section_names), kind, flags, AT + offset, offset, size, 0, 0, 8, 0))
        section_names += name + b"\0"

    for name, stubs in code.items():
        section(name, 1, 6, at, len(stubs) if claimed is None else claimed)
        at += len(stubs)
    for name, kind, flags, content in (
        *((name, 4, 2, b"".join(struct.pack("<QQq", r.slot, r.symbol << 32 | r.kind, r.addend) for r in each))
          for name, each in relocations.items()),
        (b".dynsym", 11, 2, symbols),
        (b".dynstr", 3, 2, strings),
    ):  # fmt: skip
        size = len(content) if claimed is None else claimed
        section(name, kind, flags, CODE + len(body), size)
        body += content
    section_names += b".shstrtab\0"
    rows.append((len(section_names) - 10, 3, 0, 0, CODE + len(body), len(section_names), 0, 0, 1, 0))
    body += section_names
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    header += struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 64, CODE + len(body), 0, 64, 56, 1, 64, len(rows), len(rows) - 1)
    header += struct.pack("<IIQQQQQQ", 1, 5, CODE, AT + CODE, 0, 0x1000, 0x1000, 0x1000)
    return header.ljust(CODE, b"\0") + body + b"".join(struct.pack("<IIQQQQIIQQ", *row) for row in rows)


def reader(raw: bytes) -> elf.Read:
    return lambda size, offset: raw[offset : offset + size]


def stub_at(raw: bytes, address: int) -> Stub:
    """With addresses from the beginning of the code."""
    read = reader(raw)
    found = Plt(elf.parse(read)).find(AT + CODE + address, read)
    return found._replace(start=found.start - AT - CODE, end=found.end - AT - CODE)


FIRST = b"\xff\x35" + struct.pack("<i", 0x2002) + b"\xff\x25" + struct.pack("<i", 0x2004) + b"\x0f\x1f\x40\x00"
SLOT = AT + SLOTS


def lazy() -> bytes:
    at = AT + CODE
    return made(
        {
            b".plt": FIRST + jump(at + 16, SLOT + 0x18) + jump(at + 32, SLOT + 0x20),
            b".plt.got": jump(at + 48, SLOT + 0x80, size=8) + jump(at + 56, SLOT + 0x88, size=8),
            b".text": bytes(64),
        },
        {
            b".rela.dyn": [Relocation(SLOT + 0x88, 6, 3), Relocation(SLOT + 0x80, 6, 2), Relocation(SLOT + 0x20, 8, 0, 1)],
            b".rela.plt": [Relocation(SLOT + 0x20, 7, 1), Relocation(SLOT + 0x18, 7, 2)],
        },
    )


def test_a_stub_has_the_name_that_the_relocation_of_its_slot_has() -> None:
    raw = lazy()
    assert stub_at(raw, 16) == (16, 32, b"free", 0)
    assert stub_at(raw, 31) == (16, 32, b"free", 0)
    assert stub_at(raw, 32) == (32, 48, b"malloc", 0)
    assert stub_at(raw, 55) == (48, 56, b"free", 0)
    assert stub_at(raw, 56) == (56, 64, b"_ZN3pit3digEi", 0)


def test_the_first_stub_has_no_name_and_what_is_around_stubs_neither() -> None:
    raw = lazy()
    assert stub_at(raw, 0) == (0, 16, b"", 0)
    assert stub_at(raw, 64) == (64, elf.TOP - AT - CODE, b"", 0)
    assert stub_at(raw, -8) == (-AT - CODE, 0, b"", 0)


@pytest.mark.parametrize("before", [LANDING, LANDING + b"\xf2", b"\xf2"])
def test_stubs_with_landing_pads_are_in_the_second_table_alone(before: bytes) -> None:
    pushes = (LANDING + b"\x68\0\0\0\0\xf2\xe9\0\0\0\0").ljust(16, b"\x90")
    code = {b".plt": FIRST + pushes, b".plt.sec": jump(AT + CODE + 32, SLOT, before)}
    raw = made(code, {b".rela.plt": [Relocation(SLOT, 7, 1)]})
    assert stub_at(raw, 16).name == b""
    assert stub_at(raw, 36) == (32, 48, b"malloc", 0)


def test_a_distance_that_looks_like_a_jump_is_none() -> None:
    stub = LANDING + b"\xf2\xff\x25" + struct.pack("<I", 0x25FF00)
    slots = AT + CODE + 11 + 0x25FF00, AT + CODE + 8 + 6 + struct.unpack("<i", b"\0\x0f\x1f\x44")[0]
    code = {b".plt.sec": (stub + b"\0\x0f\x1f\x44\0").ljust(16, b"\0")}
    raw = made(code, {b".rela.plt": [Relocation(slots[0], 7, 1), Relocation(slots[1], 7, 2)]})
    assert stub_at(raw, 8) == (0, 16, b"malloc", 0)


def test_a_stub_that_chooses_at_run_time_has_its_chooser() -> None:
    at = AT + CODE
    code = {b".plt": jump(at, SLOT, size=8) + jump(at + 8, SLOT + 8, size=8)}
    raw = made(code, {b".rela.plt": [Relocation(SLOT, 37, 0, 0x401500), Relocation(SLOT + 8, 37, 0, 0x401600)]})
    assert stub_at(raw, 4) == (0, 8, b"", 0x401500)
    assert stub_at(raw, 8) == (8, 16, b"", 0x401600)


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        ((), (0xD61F0220,), 16),
        ((0xD503245F,), (0xD61F0220, 0xD503201F), 24),
        ((), (0xD503219F, 0xD61F0220, 0xD503201F), 24),
        ((0xD503245F,), (0xD503219F, 0xD61F0220), 24),
    ],
)
def test_stubs_of_aarch64(before: tuple[int, ...], after: tuple[int, ...], size: int) -> None:
    at = AT + CODE + 32
    first = arm_jump(AT + CODE, SLOT + 16, (0xA9BF7BF0,)).ljust(32, b"\0")
    code = first + arm_jump(at, SLOT + 0x18, before, after) + arm_jump(at + size, AT + 0x20, before, after)
    relocations = [Relocation(AT + 0x20, 1026, 1), Relocation(SLOT + 0x18, 1026, 2)]
    raw = made({b".plt": code}, {b".rela.plt": relocations}, machine=AARCH64)
    assert stub_at(raw, 16) == (0, 32, b"", 0)
    assert stub_at(raw, 32) == (32, 32 + size, b"free", 0)
    assert stub_at(raw, 32 + 2 * size - 1) == (32 + size, 32 + 2 * size, b"malloc", 0)


def test_other_machines_have_no_stubs() -> None:
    raw = lazy()
    assert not Plt(elf.parse(reader(raw[:18] + struct.pack("<H", 243) + raw[20:]))).there


def test_nothing_is_read_before_an_address_is_that_of_a_stub() -> None:
    raw, reads = lazy(), []

    def read(size: int, offset: int) -> bytes:
        reads.append(offset)
        return raw[offset : offset + size]

    stubs = Plt(elf.parse(read))
    reads.clear()
    stubs.find(AT + CODE + 64, read)
    assert (reads, stubs.nbytes) == ([], 0)
    stubs.find(AT + CODE + 16, read)
    assert reads
    assert 0 < stubs.nbytes < 200
    reads.clear()
    stubs.find(AT + CODE, read)
    assert reads == []


def test_sections_that_claim_to_be_huge_cost_what_is_there() -> None:
    raw = made({b".plt": FIRST + jump(AT + CODE + 16, SLOT)}, {b".rela.plt": [Relocation(SLOT, 7, 1)]}, claimed=1 << 40)
    tracemalloc.start()
    assert stub_at(raw, 16).name == b"malloc"
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20


def test_stubs_and_relocations_without_end_take_bounded_memory() -> None:
    one = jump(0, 0x1000, size=8)

    def read(size: int, offset: int) -> bytes:
        """As many stubs as are asked for, each with a slot of its own, and relocations without end that fit none of them."""
        if offset >= 1 << 40:
            return bytes(size)
        return one * (size // 8)

    code = elf.Section(b".plt", 0, 1 << 32, AT)
    parsed = elf.Elf((), None, False, b"", X86_64, (code, code, elf.Section(b".rela.dyn", 1 << 40, 1 << 39, 0)))
    tracemalloc.start()
    assert Plt(parsed).find(AT, read).name == b""
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 96 << 20


# Files of compilers and of this node


def objdump(path: Path | str, tool: str = "objdump") -> dict[int, str]:
    """Addresses of stubs, and names without @plt."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    command = [tool, "-d", *(f"--section={name}" for name in (".plt", ".plt.sec", ".plt.got")), path]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, errors="replace").stdout
    return {int(address, 16): name for address, name in re.findall(r"^([0-9a-f]+) <(.+)@plt>:$", listed, re.M)}


@contextmanager
def image(path: Path | str) -> Iterator[ElfImage]:
    fd = os.open(path, os.O_RDONLY)
    try:
        yield ElfImage(fd)
    finally:
        os.close(fd)


def offset_of(found: ElfImage, address: int) -> int:
    segment = next(each for each in found.elf.segments if each.address <= address < each.address + each.size)
    return address - segment.address + segment.offset


def agrees_with_objdump(path: Path | str) -> int:
    """How many stubs there are, all with the same name and their whole range; and no others have one."""
    wanted = objdump(path)
    with image(path) as found:
        for address, name in wanted.items():
            offset = offset_of(found, address)
            named = found.function(offset)
            assert named.start == offset
            assert named.end - offset in (8, 16)
            if name.startswith("*ABS*+"):
                assert found.plt.find(address, found.read).resolver == int(name.partition("+")[2], 16)
                assert named.name.endswith(b"@plt")
            else:
                assert named.name.decode() == f"{function_name(name.encode())}@plt"
        if wanted:
            stubs = found.plt._stubs
            assert stubs is not None
            assert set(stubs.table.starts.tolist()) == set(wanted)
    return len(wanted)


@pytest.mark.parametrize("position", ["-pie", "-no-pie"])
@pytest.mark.parametrize("binding", ["now", "lazy"])
@pytest.mark.parametrize("protection", ["full", "none"])
def test_names_of_a_compiled_program_are_those_of_objdump(protection: str, binding: str, position: str, tmp_path: Path) -> None:
    options = [f"-fcf-protection={protection}", f"-Wl,-z,{binding}", position, "-fno-builtin", "-lm"]
    program = compiled(tmp_path, C, "gcc", *options, *(["-Wl,-z,ibtplt"] if protection == "full" else []))
    assert agrees_with_objdump(program) >= 8


@pytest.mark.parametrize("name", ["libc.so.6", "libm.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2", "bash", "ls", "python"])
def test_names_of_installed_files_are_those_of_objdump(name: str) -> None:
    path = sys.executable if name == "python" else shutil.which(name)
    if path is None:
        listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
        path = next((line.split()[-1] for line in listed.splitlines() if line.split()[0] == name and "x86-64" in line), None)
    if path is None:
        pytest.skip(f"{name} is not installed, or not for x86-64")
    assert agrees_with_objdump(os.path.realpath(path)) > 0


def test_functions_that_a_static_program_chooses_at_run_time_have_their_names(tmp_path: Path) -> None:
    program = compiled(tmp_path, C, "gcc", "-static", "-fno-builtin", "-lm")
    with image(program) as found:
        section = next((each for each in found.elf.linking if each.name == b".plt"), None)
        if section is None:
            pytest.skip("the C library chooses nothing at run time")
        named = [found.function(offset) for offset in range(section.offset, section.offset + section.size, 8)]
    assert {b"strlen@plt", b"strcpy@plt", b"memcpy@plt"} <= {each.name for each in named}
    assert all(each.end - each.start == 8 for each in named)


@pytest.fixture(scope="module")
def arm_library(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Linked by lld, which comes with Rust: lazily, at once, and with each kind of protection."""
    if shutil.which("llvm-mc") is None or shutil.which("rustc") is None:
        pytest.skip("llvm-mc and rustc, which has a linker for AArch64, are not installed")
    where = tmp_path_factory.mktemp("arm")
    (where / "calls.s").write_text(ARM)
    subprocess.run(
        ["llvm-mc", "-triple=aarch64-linux-gnu", "-filetype=obj", where / "calls.s", "-o", where / "calls.o"], check=True
    )
    root = subprocess.run(["rustc", "--print", "sysroot"], capture_output=True, text=True, check=True).stdout.strip()
    linkers = list(Path(root).glob("lib/rustlib/*/bin/rust-lld"))
    if not linkers:
        pytest.skip("this Rust has no rust-lld")
    found = {}
    for options in ("lazy", "now", "force-bti", "pac-plt"):
        found[options] = where / f"{options}.so"
        command = "-flavor", "gnu", "-shared", "-z", options, where / "calls.o", "-o", found[options]
        subprocess.run([linkers[0], *command], check=True, capture_output=True)
    return found


@pytest.mark.parametrize("options", ["lazy", "now", "force-bti", "pac-plt"])
def test_names_of_a_library_for_aarch64_are_those_of_objdump(arm_library: dict[str, Path], options: str) -> None:
    wanted = objdump(arm_library[options], "llvm-objdump")
    assert set(wanted.values()) == {"puts", "malloc"}
    with image(arm_library[options]) as found:
        named = {address: found.function(offset_of(found, address)) for address in wanted}
        assert {address: each.name.decode() for address, each in named.items()} == {
            address: f"{name}@plt" for address, name in wanted.items()
        }
        chosen = next(each for each in found.elf.linking if each.name == b".iplt")
        assert found.function(chosen.offset + 4).name == b"chosen@plt"


def test_ranges_of_a_file_hold_their_address_and_do_not_overlap() -> None:
    with image(os.path.realpath(sys.executable)) as found:
        section = next((each for each in found.elf.linking if each.name == b".plt"), None)
        if section is None:
            pytest.skip("this Python calls no other files")
        ranges = set()
        for offset in range(section.offset - 64, section.offset + min(section.size, 4096) + 64, 4):
            if found.elf.segment(offset) is not None:
                named = found.function(offset)
                assert named.start <= offset < named.end
                ranges.add(named[:2])
    in_order = sorted(ranges)
    assert len(in_order) > 2
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(in_order))


# As the recorder asks


@pytest.fixture(scope="module")
def symbols() -> Iterator[UserSymbols]:
    found = UserSymbols()
    yield found
    found.close()


def test_a_stripped_program_has_names_of_stubs_and_is_noted_nonetheless(symbols: UserSymbols, tmp_path: Path) -> None:
    program = compiled(tmp_path, C, "gcc", "-s", "-fno-builtin", "-lm")
    stubs = {name: address for address, name in objdump(program).items()}
    with image(program) as found:
        assert not found.tables
        offsets = {name: offset_of(found, address) for name, address in stubs.items()}
        beyond = max(offsets.values()) + 16
    with running(program) as pid:
        mapped = image_of(pid, "program")
        assert ask(symbols, mapped, pid, offsets["puts"] + 6, beyond, key=1) == ["puts@plt", ""]
        assert ask(symbols, mapped, pid, offsets["malloc"], key=1) == ["malloc@plt"]
    assert "no symbols" in symbols.notes()[str(program)]


def test_a_stub_of_a_cpp_function_is_demangled(symbols: UserSymbols, tmp_path: Path) -> None:
    pytest.importorskip("pycxxfilt", reason="the record extra is not installed")
    program = compiled(tmp_path, CPP, "g++")
    address = next(address for address, name in objdump(program).items() if "6appendEPKc" in name)
    with image(program) as found:
        offset = offset_of(found, address)
    with running(program) as pid:
        (name,) = ask(symbols, image_of(pid, "program"), pid, offset)
    assert name.startswith("std::")
    assert name.endswith("::append(char const*)@plt")


# Damage


def survives(raw: bytes) -> None:
    """Asking raises nothing, and every answer is a range with the address in it."""
    read = reader(raw)
    try:
        parsed = elf.parse(read)
    except elf.Malformed:
        return
    stubs = Plt(parsed)
    for section in parsed.linking:
        for address in (section.address, section.address + section.size // 2, section.address + section.size - 1):
            found = stubs.find(address, read)
            assert found.start <= address < found.end
            assert len(found.name) <= 4096
            assert 0 <= found.resolver < elf.TOP


_LAZY = lazy()
_ARM = made(
    {b".plt": bytes(32) + arm_jump(AT + CODE + 32, SLOT), b".iplt": arm_jump(AT + CODE + 48, SLOT + 8)},
    {b".rela.plt": [Relocation(SLOT, 1026, 1), Relocation(SLOT + 8, 1032, 0, 0x401700)]},
    machine=AARCH64,
)
_WHERE = [*range(64 + 56), *range(CODE, CODE + 64), *range(CODE + 0x1000, max(len(_LAZY), len(_ARM)))]


@settings(max_examples=examples(400))
@given(
    st.sampled_from(["lazy", "arm"]),  # by name: hypothesis may want to print it
    st.lists(
        st.tuples(
            st.sampled_from(_WHERE),
            st.sampled_from([1, 2, 4, 8]),
            st.one_of(st.integers(0, (1 << 64) - 1), st.sampled_from([0, (1 << 63) - 1, 1 << 63, (1 << 64) - 1])),
        ),
        max_size=6,
    ),
    st.integers(0, len(_LAZY)),
)
def test_a_damaged_file_is_survived(which: str, damage: list[tuple[int, int, int]], end: int) -> None:
    changed = bytearray(_LAZY if which == "lazy" else _ARM)
    for at, size, value in damage:
        changed[at : at + size] = struct.pack("<Q", value)[:size]
    survives(bytes(changed))
    survives(bytes(changed[:end]))


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=100), st.sampled_from([X86_64, AARCH64]))
def test_any_bytes_in_the_place_of_code_relocations_and_symbols_are_survived(
    code: bytes, relocations: bytes, symbols: bytes, machine: int
) -> None:
    content = code, relocations, symbols, symbols
    names = b".plt", b".rela.plt", b".dynsym", b".dynstr"
    sections = tuple(
        elf.Section(name, 1000 * at, len(part), AT + 1000 * at)
        for at, (name, part) in enumerate(zip(names, content, strict=True))
    )
    raw = b"".join(part.ljust(1000, b"\0") for part in content)
    parsed = elf.Elf((), None, False, b"", machine, sections)
    stubs = Plt(parsed)
    for address in range(AT - 4, AT + len(code) + 4, 4):
        found = stubs.find(address, reader(raw))
        assert found.start <= address < found.end


def test_a_real_file_damaged_in_its_tables_is_survived() -> None:
    path = shutil.which("ls") or os.path.realpath(sys.executable)
    raw = Path(path).read_bytes()
    sections_at = struct.unpack_from("<Q", raw, 40)[0]
    linking = [each for each in elf.parse(reader(raw)).linking if each.name.startswith((b".plt", b".rela", b".dyn"))]
    chosen = random.Random(3)
    for _ in range(150):
        changed = bytearray(raw)
        for _ in range(6):
            section = chosen.choice(linking)
            at = chosen.choice([section.offset + chosen.randrange(section.size), chosen.randrange(sections_at, len(raw))])
            changed[at] = chosen.randrange(256)
        survives(bytes(changed))
