"""Address spaces: what is mapped where, compared with a search that any reader can see to be right."""

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.sources.sampling.records import Mapped
from exhume.sources.sampling.spaces import MOST_MAPPINGS, Space, find, parse_maps

# Few and close together, so that they touch, overlap and are met by the addresses.
PLACES = st.integers(0, 40) | st.integers((1 << 48) - 20, (1 << 48) + 20)
MAPPINGS = st.lists(st.tuples(PLACES, st.integers(1, 12), st.integers(0, 1 << 20), st.integers(1, 9)), max_size=8)
ADDRESSES = st.lists(st.tuples(st.integers(0, 2), PLACES | st.integers(-3, (1 << 63) - 1)), max_size=20)


def naive(mappings: list[tuple[int, int, int, int]], address: int) -> tuple[int, int]:
    """The last mapping that was put there."""
    for start, length, offset, image in reversed(mappings):
        if start + length <= 1 << 48 and start <= address < start + length:
            return image, address - start + offset
    return 0, 0


@given(st.lists(MAPPINGS, min_size=3, max_size=3), ADDRESSES)
@example([[], [], []], [(0, 0), (2, 5)])
@example([[(5, 5, 0, 1)], [], [(5, 5, 0, 2)]], [(0, 4), (0, 5), (0, 9), (0, 10), (1, 5), (2, 9), (2, -1)])
@example([[((1 << 48) - 4, 4, 0, 1)], [(0, 4, 0, 2)], []], [(0, (1 << 48) - 1), (0, 1 << 48), (1, 0), (1, 1 << 48)])
def test_addresses_are_found_as_a_plain_search_finds_them(
    mappings: list[list[tuple[int, int, int, int]]], addresses: list[tuple[int, int]]
) -> None:
    spaces = []
    for number, each in enumerate(mappings):
        spaces.append(Space(number, number))
        for mapping in each:
            spaces[-1].add(*mapping)
    which = np.array([space for space, _ in addresses], dtype=np.int64)
    images, offsets = find(spaces, which, np.array([address for _, address in addresses], dtype=np.int64))
    assert [*zip(images.tolist(), offsets.tolist(), strict=True)] == [naive(mappings[space], at) for space, at in addresses]


def test_long_and_short_spaces_are_looked_through_together() -> None:
    sizes = [3, 200, 0, 1, 100]
    spaces = [Space(number, number) for number in range(len(sizes))]
    for space, size in zip(spaces, sizes, strict=True):
        for at in range(size):
            space.add(0x1000 * at, 0x1000, 7, 1000 * space.number + at + 1)
    wanted = [(number, at) for number, size in enumerate(sizes) for at in range(size)]
    which = np.array([number for number, _ in wanted], dtype=np.int64)
    images, offsets = find(spaces, which, np.array([0x1000 * at + 5 for _, at in wanted], dtype=np.int64))
    assert images.tolist() == [1000 * number + at + 1 for number, at in wanted]
    assert offsets.tolist() == [12] * len(wanted)


def test_a_mapping_inside_another_leaves_what_is_beside_it() -> None:
    space = Space(1, 1)
    space.add(0x1000, 0x3000, 0x7000, 1)
    space.add(0x2000, 0x1000, 0, 2)
    assert space.table().tolist() == [[0x1000, 0x2000, 0x7000, 1], [0x2000, 0x3000, 0, 2], [0x3000, 0x4000, 0x9000, 1]]
    space.add(0x1800, 0x2000, 0x100, 3)
    assert space.table().tolist() == [
        [0x1000, 0x1800, 0x7000, 1],
        [0x1800, 0x3800, 0x100, 3],
        [0x3800, 0x4000, 0x9800, 1],
    ]


def test_whether_something_else_is_there_is_told() -> None:
    space = Space(1, 1)
    space.add(0x1000, 0x1000, 0, 1)
    space.add(0x2000, 0x1000, 0, 2)
    assert not space.replaces(0x3000, 0x1000, 0, 3)
    assert not space.replaces(0x1000, 0x1000, 0, 1)
    assert not space.replaces(0x800, 0x1800, -0x800, 1), "the same file, and more of it"
    assert space.replaces(0x1000, 0x1000, 0x1000, 1), "another part of the file"
    assert space.replaces(0x1FFF, 1, 0, 3)
    assert space.replaces(0x800, 0x801, 0, 3)
    assert space.replaces(0x1000, 0x2000, 0, 1)


@given(MAPPINGS, st.integers(0, 9), st.integers(0, 9), st.booleans())
@example([(5, 5, 0, 1), (6, 2, 0, 2)], 9, 9, False)
@example([(5, 5, 0, 1), (6, 2, 0, 2)], 1, 9, False)
@example([(5, 5, 0, 1), (20, 2, 0, 2), (7, 1, 0, 3)], 9, 2, True)
def test_what_is_told_is_mapped_as_if_at_once_and_not_under_who_has_seen_it(
    mappings: list[tuple[int, int, int, int]], seen_at: int, forked_at: int, exec_before: bool
) -> None:
    def locate(mapped: Mapped) -> int:
        return mapped.inode

    space, plain = Space(1, 1), Space(2, 1)
    if not exec_before:
        space.add(2, 6, 0, 4)
        plain.add(2, 6, 0, 4)
    seen: list[tuple[Space, list[list[int]]]] = []
    for number, (start, length, offset, image) in enumerate(mappings):
        if number == forked_at:
            child = space.copy(3, 2)
            child.settle(locate)
            seen.append((child, plain.table().tolist()))
        if number == seen_at:
            space.seen = True
        told = Mapped(0, 1, start, length, offset, (0, 0), image, 0, b"")
        changes = space.seen and plain.replaces(start, length, offset, image)
        assert space.hear(told, locate) != changes
        if changes:
            seen.append((space, plain.table().tolist()))
            space = space.copy(4, 1)
            assert space.hear(told, locate)
        plain.add(start, length, offset, image)
    space.settle(locate)
    assert space.table().tolist() == plain.table().tolist()
    assert all(before.table().tolist() == then for before, then in seen)


def test_what_nobody_asks_for_does_not_grow_without_end() -> None:
    space = Space(1, 1)
    for number in range(100_000):
        space.hear(Mapped(0, 1, 0x1000 * (number % 7), 0x1000, 0, (0, 0), 1, 0, b""), lambda mapped: mapped.inode)
    assert len(space.waiting) < 1000
    space.settle(lambda mapped: mapped.inode)
    assert len(space.table()) == 7


@given(MAPPINGS, st.tuples(PLACES, st.integers(1, 12), st.integers(0, 1 << 20), st.integers(1, 9)))
def test_what_replaces_nothing_changes_no_address_that_was_mapped(
    mappings: list[tuple[int, int, int, int]], more: tuple[int, int, int, int]
) -> None:
    space = Space(1, 1)
    for mapping in mappings:
        space.add(*mapping)
    asked = np.arange(60)
    here = np.zeros(60, dtype=np.int64)
    before = np.stack(find([space], here, asked), axis=1)
    replaces = space.replaces(*more)
    space.add(*more)
    after = np.stack(find([space], here, asked), axis=1)
    changed = ((before != after).any(axis=1) & (before[:, 0] > 0)).any()
    assert not changed or replaces


def test_what_a_fork_inherits_is_its_own_from_then_on() -> None:
    parent = Space(1, 1)
    parent.add(0x1000, 0x1000, 0, 1)
    child = parent.copy(2, 2)
    child.add(0x1000, 0x1000, 0, 9)
    parent.add(0x5000, 0x1000, 0, 3)
    assert parent.table()[:, 3].tolist() == [1, 3]
    assert child.table()[:, 3].tolist() == [9]


def test_a_mapping_at_an_offset_beyond_any_file_is_left_out() -> None:
    space = Space(1, 1)
    space.add(0x1000, 0x1000, 1 << 63, 1)
    space.add(0x3000, 0x1000, (1 << 63) - 1, 2)
    assert space.table()[:, 3].tolist() == [2]
    space.add(0x3800, 0x10, 0, 3)
    assert space.table()[:, 3].tolist() == [2, 3]


def test_mappings_are_bounded() -> None:
    space = Space(1, 1)
    for at in range(MOST_MAPPINGS + 50):
        space.add(at << 12, 0x1000, 0, 1)
    assert len(space.table()) == MOST_MAPPINGS


def executable_lines() -> list[tuple[int, int, int, int, str]]:
    """/proc/self/maps as the manual page has it."""
    found = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split()
        if "x" in words[1]:
            start, _, end = words[0].partition("-")
            found.append((int(start, 16), int(end, 16), int(words[2], 16), int(words[4]), " ".join(words[5:])))
    return found


def test_our_own_maps_are_read_as_the_manual_page_has_them() -> None:
    expected = executable_lines()
    found = [*parse_maps(Path("/proc/self/maps").read_bytes(), 5)]
    assert [(each.start, each.start + each.length, each.offset, each.inode) for each in found] == [
        line[:4] for line in expected
    ]
    assert [each.path.decode() for each in found] == [line[4] or "//anon" for line in expected]
    assert {each.pid for each in found} == {5}


def test_a_function_of_ours_is_found_where_it_is() -> None:
    address = ctypes.cast(ctypes.CDLL(None).getpid, ctypes.c_void_p).value
    assert address is not None
    paths: list[bytes] = [b""]

    def locate(mapped: Mapped) -> int:
        paths.append(mapped.path)
        return len(paths) - 1

    space = Space(1, os.getpid(), unread=os.getpid())
    space.read(Root(), locate)
    images, _ = find([space], np.array([0]), np.array([address]))
    assert b"libc" in paths[images[0]]
    assert space.unread == 0


def test_a_process_that_is_gone_has_an_empty_space() -> None:
    gone = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(gone, 0)
    space = Space(1, gone, unread=gone)
    space.read(Root(), lambda mapped: 1)
    assert len(space.table()) == 0


def test_a_name_with_a_newline_is_what_the_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "odd\nname with spaces"
    path.write_bytes(b"\0" * 4096)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC, flags=mmap.MAP_PRIVATE):
        found = [each.path for each in parse_maps(Path("/proc/self/maps").read_bytes(), 1)]
    assert os.fsencode(path) in found


LINE = b"7f00-8000 r-xp 00000000 08:01 42 /bin/true\n"


@given(
    st.binary(max_size=300)
    | st.lists(st.sampled_from([*LINE.split(), b" ", b"-", b":", b"\n", b"\xff", b"9" * 30])).map(b"".join)
)
@example(b"ffffffffffffffff-fffffffffffffffff r-xp 0 0:0 0\n")
@example(b"0-1 r-xp -5 0:0 0\n")
def test_no_file_of_maps_does_harm(raw: bytes) -> None:
    space = Space(1, 1)
    for mapped in parse_maps(raw, 1):
        space.add(mapped.start, mapped.length, mapped.offset, 1)
    space.table()


@given(st.integers(0, len(LINE) * 2))
def test_a_line_that_was_cut_is_left_out(cut: int) -> None:
    assert len([*parse_maps((LINE * 2)[:cut], 1)]) == cut // len(LINE)
