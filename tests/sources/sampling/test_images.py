"""Images: which mapping shows what, and functions by address, also where a JIT puts new ones over old ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling import images
from exhume.sources.sampling.images import Functions, Images
from exhume.sources.sampling.records import Mapped
from exhume.sources.sampling.user_symbols import Function


def mapped(path: bytes, pid: int = 5, device: tuple[int, int] = (8, 1), inode: int = 7) -> Mapped:
    return Mapped(0, pid, 0x1000, 0x1000, 0, device, inode, 0, path)


def test_a_file_is_one_image_for_all_who_map_it() -> None:
    all_of_them = Images()
    number = all_of_them.locate(mapped(b"/lib/libc.so.6"))
    assert all_of_them.locate(mapped(b"/lib/libc.so.6", pid=6)) == number
    assert all_of_them.locate(mapped(b"/lib/libc.so.6", inode=8)) != number
    assert all_of_them.locate(mapped(b"/lib/libc.so.6", device=(0, 40))) != number
    assert all_of_them.image(number).kind == "elf"
    assert not all_of_them.absolute(number)


@pytest.mark.parametrize("path", [b"//anon", b"[heap]", b"[anon:JIT]", b"/memfd:code (deleted)", b"/dev/zero (deleted)", b""])
def test_code_made_at_run_time_is_an_image_of_each_process(path: bytes) -> None:
    all_of_them = Images()
    number = all_of_them.locate(mapped(path))
    assert all_of_them.locate(mapped(path)) == number
    assert all_of_them.locate(mapped(path, pid=6)) != number
    assert all_of_them.module(number) == "[jit]"
    assert all_of_them.absolute(number)


def test_the_vdso_is_one_and_other_special_mappings_have_no_names() -> None:
    all_of_them = Images()
    assert all_of_them.locate(mapped(b"[vdso]")) == all_of_them.locate(mapped(b"[vdso]", pid=9))
    assert all_of_them.image(all_of_them.locate(mapped(b"[uprobes]"))).kind == "none"


def test_a_file_that_was_replaced_keeps_its_name_and_a_hostile_one_is_decoded() -> None:
    all_of_them = Images()
    assert all_of_them.module(all_of_them.locate(mapped(b"/opt/agent (deleted)"))) == "/opt/agent"
    assert all_of_them.module(all_of_them.locate(mapped(b"/opt/\xff\x1b[31m"))) == "/opt/\\xff\x1b[31m"


def test_images_are_bounded_and_begin_anew_under_names_never_given_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MOST_IMAGES", 8)
    all_of_them = Images()
    numbers = [all_of_them.locate(mapped(b"/bin/a", inode=inode)) for inode in range(20)]
    assert [all_of_them.full] == [True]
    assert numbers[7:] == [0] * 13
    keys = {all_of_them.key(number) for number in numbers}
    all_of_them.renew()
    assert [all_of_them.full] == [False]
    assert all(all_of_them.number(key) == 0 for key in keys)
    again = all_of_them.locate(mapped(b"/bin/a"))
    assert again == 1
    assert all_of_them.key(again) not in keys
    assert all_of_them.number(all_of_them.key(again)) == again
    assert all_of_them.functions(again).find(np.array([0])).tolist() == [-1]


RANGES = st.tuples(st.integers(0, 60), st.integers(1, 20), st.sampled_from(["", "f", "g", "h"]))


@given(st.lists(RANGES, max_size=12, unique_by=lambda each: each[0]))
def test_functions_that_do_not_overlap_are_found_by_every_address(added: list[tuple[int, int, str]]) -> None:
    functions = Functions()
    expected: dict[int, str] = {}
    starts = sorted(start for start, _, _ in added)
    for start, length, name in added:
        end = min([start + length, *(other for other in starts if other > start)])
        functions.add(Function(1, start, end, name))
        expected |= dict.fromkeys(range(start, end), name)
    found = functions.find(np.arange(-1, 100))
    assert [None if at < 0 else functions.names[at] for at in found] == [expected.get(at) for at in range(-1, 100)]


@given(st.lists(RANGES, max_size=12))
def test_what_a_jit_puts_over_others_is_all_that_is_there(added: list[tuple[int, int, str]]) -> None:
    functions = Functions()
    there: list[tuple[int, int, str]] = []
    for start, length, name in added:
        functions.add(Function(1, start, start + length, name))
        before = [(other, min(end, start), called) for other, end, called in there if other < start]
        there = [*before, (start, start + length, name), *(each for each in there if each[0] >= start + length)]
    expected = {at: name for start, end, name in there for at in range(start, end)}
    found = functions.find(np.arange(100))
    assert [None if at < 0 else functions.names[at] for at in found] == [expected.get(at) for at in range(100)]
    assert len(functions.names) == len(functions.ids)


def test_a_function_that_gets_another_name_gets_another_frame() -> None:
    functions = Functions()
    functions.add(Function(1, 10, 20, "old"))
    functions.ids[0] = 7
    functions.add(Function(1, 10, 20, "old"))
    assert functions.ids == [7]
    functions.add(Function(1, 10, 20, "new"))
    assert (functions.names, functions.ids) == (["new"], [0])


def test_images_that_were_renewed_are_numbered_and_named_anew() -> None:
    def mapped(path: bytes, inode: int) -> Mapped:
        return Mapped(0, 1, 0x1000, 0x1000, 0, (8, 1), inode, 0, path)

    images = Images()
    assert images.locate(mapped(b"/a", 1)) == 1
    assert images.locate(mapped(b"/b", 2)) == 2
    images.renew()
    assert images.locate(mapped(b"/c", 3)) == 1
    assert images.locate(mapped(b"/b", 2)) == 2
    assert [images.module(number) for number in (1, 2)] == ["/c", "/b"]
    assert images.image(2).path == b"/b"
