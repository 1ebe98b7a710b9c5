import contextlib
import itertools
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import Unreadable
from exhume.kernel.bpf.btf import VMLINUX, Btf, BtfError, Member
from tests.examples import examples
from tests.kernel.bpf.made_btf import CONST, STRUCT, TYPEDEF, MadeBtf, a_kernel

FUNCTION, PROTOTYPE, VARIABLE, SECTION = 12, 13, 14, 15  # include/uapi/linux/btf.h

needs_vmlinux = pytest.mark.skipif(not os.access(VMLINUX, os.R_OK), reason=f"{VMLINUX} is not there or not readable")


@pytest.fixture(params=["<", ">"], ids=["little endian", "big endian"])
def made(request: pytest.FixtureRequest) -> Btf:
    return Btf(a_kernel(request.param).raw())


def test_members_are_found_through_anonymous_structs_and_unions(made: Btf) -> None:
    assert made.offset("node", "id") == 0
    assert made.offset("node", "low") == 8
    assert made.offset("node", "high") == 16


def test_a_size_is_that_behind_const_typedef_volatile_and_tag(made: Btf) -> None:
    assert made.member("node", "high") == Member(offset=16, size=8, element_size=8)
    assert made.size("wide_t") == 8


def test_a_typedef_stands_for_its_struct(made: Btf) -> None:
    assert made.size("node_t") == made.size("node") == 96
    assert made.offset("node_t", "next") == 72


def test_an_array_has_elements_and_indices(made: Btf) -> None:
    assert made.member("node", "slots") == Member(24, 48, 16)
    assert made.member("node", "slots[2]") == Member(56, 16, 8)
    assert made.member("node", "slots[2][1]") == Member(64, 8, 8)
    with pytest.raises(BtfError, match="slots has 3 elements, there is none with index 3"):
        made.offset("node", "slots[3]")
    with pytest.raises(BtfError, match="id is not an array"):
        made.offset("node", "id[0]", optional=True)


def test_a_flexible_array_has_any_index(made: Btf) -> None:
    assert made.offset("node", "tail[7]") == 96 + 56


@pytest.mark.parametrize("name", ["flag", "old"])
def test_a_bitfield_is_refused_in_either_notation(made: Btf, name: str) -> None:
    with pytest.raises(BtfError, match=f"{name} is a bitfield"):
        made.offset("node", name)


def test_a_path_stops_at_a_pointer(made: Btf) -> None:
    with pytest.raises(BtfError, match="what comes before it is a pointer"):
        made.offset("node", "next.id")


def test_enumerators_are_found_by_name_signed_unsigned_and_wide(made: Btf) -> None:
    assert made.enum("BLUE") == made.enum("BLUE", of="colour") == -2
    assert made.enum("BIG") == 0xFFFF_FFFF
    assert made.enum("HUGE") == (1 << 32) + 5
    assert made.enum("LOWEST") == -(1 << 63)


def test_what_is_absent_is_none_where_that_is_allowed_and_an_error_where_not(made: Btf) -> None:
    assert made.offset("node", "gone", optional=True) is None
    assert made.offset("gone", "id", optional=True) is None
    assert made.size("gone", optional=True) is None
    assert made.enum("GONE", optional=True) is None
    assert made.enum("BLUE", of="gone", optional=True) is None
    assert made.enum("BIG", of="colour", optional=True) is None
    with pytest.raises(BtfError, match=r"this kernel has no node.gone"):
        made.offset("node", "gone")
    with pytest.raises(BtfError, match="this kernel has no type gone"):
        made.size("gone")
    with pytest.raises(BtfError, match="this kernel has no enumerator GONE of enum colour"):
        made.enum("GONE", of="colour")


@pytest.mark.parametrize("path", ["", ".", "id.", "id[", "id[-1]", "id[x]", "a b"])
def test_what_is_no_path_is_a_mistake_of_the_caller(made: Btf, path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        made.offset("node", path, optional=True)


def test_a_struct_is_preferred_to_a_typedef_of_the_same_name() -> None:
    b = MadeBtf()
    b.add(TYPEDEF, "thing", b.integer("char", 1))
    b.record("thing", 24)
    assert Btf(b.raw()).size("thing") == 24


def test_members_named_like_a_struct_are_not_taken_for_it() -> None:
    b = MadeBtf()
    # The member's name is followed by a number that looks like the info word of a struct with one member.
    b.record("outer", 8, ("thing", STRUCT << 24 | 1, 0), ("x", 2, 0))
    b.integer("int", 4)
    b.record("thing", 40, ("x", 2, 64))
    assert Btf(b.raw()).size("thing") == 40


def test_types_in_circles_are_an_error_and_no_hang() -> None:
    b = MadeBtf()
    b.add(TYPEDEF, "ring", 2)
    b.add(CONST, "", 1)
    b.record("self", 8, ("", 3, 0), ("ring", 1, 0))
    circle = Btf(b.raw())
    with pytest.raises(BtfError, match="without end"):
        circle.size("ring")
    with pytest.raises(BtfError, match="without end"):
        circle.offset("self", "ring")
    assert circle.offset("self", "const", optional=True) is None


def test_anonymous_structs_that_multiply_are_each_looked_into_once() -> None:
    b = MadeBtf()
    b.integer("missing", 4)
    for level in range(20):
        b.record("", 8, *(("", max(1, level + 1), 0) for _ in range(50)))
    b.record("top", 8, ("", b.count, 0))
    assert Btf(b.raw()).offset("top", "missing", optional=True) is None


def test_an_unknown_kind_is_named_but_only_when_it_is_in_the_way() -> None:
    b = MadeBtf()
    b.record("early", 4)
    for _ in range(5000):
        b.add(CONST, "", 1)
    b.add(77, "future", 0)
    b.record("late", 4)
    btf = Btf(b.raw())
    assert btf.size("early") == 4
    with pytest.raises(BtfError, match="kind of type that is not known: 77"):
        btf.size("late")


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "does not begin as BTF does"),
        (b"\x7fELF" + bytes(60), "does not begin as BTF does"),
        (a_kernel().raw(version=9), "version 9"),
        (a_kernel().raw()[:-1], "cut short"),
        (a_kernel().raw()[:24], "cut short"),
        (struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, 0, 0, 0), "damaged"),
    ],
)
def test_what_is_no_btf_is_said_to_be_none(raw: bytes, said: str) -> None:
    with pytest.raises(BtfError, match=said):
        Btf(raw)


def test_a_missing_file_says_which_option_the_kernel_lacks(tmp_path: Path) -> None:
    with pytest.raises(BtfError, match="CONFIG_DEBUG_INFO_BTF"):
        Btf.vmlinux(tmp_path / "vmlinux")


def _with_variables(
    b: MadeBtf, *, section: str = ".data..percpu", places: tuple[tuple[int, int], ...] = ((64, 4), (128, 8))
) -> MadeBtf:
    """A function void works(void), and int first; long second; static int alone, of which the first two are a CPU's own."""
    integer = b.integer("count_t", 4)
    b.add(FUNCTION, "works", b.add(PROTOTYPE, "", 0))
    first, second = (b.add(VARIABLE, name, integer, 1) for name in ("first", "second"))
    b.add(VARIABLE, "alone", integer, 0)
    tail = [word for number, (at, size) in zip((first, second), places, strict=True) for word in (number, at, size)]
    b.add(SECTION, section, 4096, *tail, vlen=2)
    return b


@pytest.mark.parametrize("order", ["<", ">"])
def test_a_variable_that_each_cpu_has_is_told_by_its_place_in_their_section(order: str) -> None:
    btf = Btf(_with_variables(a_kernel(order)).raw())
    assert (btf.per_cpu("first"), btf.per_cpu("second")) == (64, 128)
    for name in ("alone", "nothing", "works", "node", "", ".data..percpu"):
        assert btf.per_cpu(name) is None, name


def test_a_function_is_told_by_its_number() -> None:
    made = a_kernel()
    number = made.count + 3
    btf = Btf(_with_variables(made).raw())
    assert btf.function("works") == number
    for name in ("first", "nothing", "node", ""):
        assert btf.function(name) is None, name


@pytest.mark.parametrize(
    "places", [((128, 4), (64, 8)), ((64, 65), (128, 8)), ((64, 0xFFFF_FFFF), (128, 8))], ids=["order", "overlap", "endless"]
)
def test_a_section_whose_variables_lie_in_each_other_is_none(places: tuple[tuple[int, int], ...]) -> None:
    btf = Btf(_with_variables(a_kernel(), places=places).raw())
    assert (btf.per_cpu("first"), btf.per_cpu("second")) == (None, None)


def test_variables_without_their_section_have_no_place() -> None:
    assert Btf(_with_variables(a_kernel(), section=".data").raw()).per_cpu("first") is None
    cut = _with_variables(a_kernel())
    del cut.types[-12:]  # the last entry, of which the section says that it is there
    with pytest.raises(BtfError, match="goes past the end"):
        Btf(cut.raw()).per_cpu("first")


def _ask_everything(raw: bytes) -> None:
    try:
        btf = Btf(raw)
    except Unreadable:
        return
    for ask in (
        lambda: btf.member("node", "slots[1]", optional=True),
        lambda: btf.member("node", "high", optional=True),
        lambda: btf.offset("node", "nothing", optional=True),
        lambda: btf.size("wide_t", optional=True),
        lambda: btf.enum("HUGE", optional=True),
        lambda: btf.enum("BLUE", of="colour", optional=True),
        lambda: btf.per_cpu("first"),
        lambda: btf.per_cpu("second"),
        lambda: btf.function("works"),
    ):
        with contextlib.suppress(Unreadable):
            ask()


@given(st.binary(max_size=400))
def test_garbage_is_unreadable_and_nothing_worse(garbage: bytes) -> None:
    _ask_everything(garbage)
    _ask_everything(
        struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(garbage) // 4 * 4, len(garbage), 6) + garbage + b"\0node\0"
    )


@settings(max_examples=examples(300))
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=12), st.sampled_from("<>"))
def test_damaged_btf_is_unreadable_and_nothing_worse(damage: list[tuple[int, int]], order: str) -> None:
    raw = bytearray(_with_variables(a_kernel(order)).raw())
    for at, value in damage:
        raw[at % len(raw)] = value
    _ask_everything(bytes(raw))


@settings(max_examples=examples(300))
@given(st.data())
def test_type_words_of_any_value_are_unreadable_and_nothing_worse(data: st.DataObject) -> None:
    made = _with_variables(a_kernel())
    words = list(struct.unpack(f"<{len(made.types) // 4}I", made.types))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(words) - 1))
        words[at] = data.draw(st.one_of(st.integers(0, 30), st.integers(0, 2**32 - 1), st.sampled_from(words)))
    made.types = bytearray(struct.pack(f"<{len(words)}I", *words))
    _ask_everything(made.raw())


# The real kernel, against a second reader that shares nothing with the first: it walks everything, in the plainest way.


def _every_struct(raw: bytes) -> Iterator[tuple[str, int, list[tuple[str, int]]]]:
    _, _, _, header, type_at, type_size, string_at, _ = struct.unpack_from("<HBBIIIII", raw)
    strings = raw[header + string_at :]
    at = header + type_at
    tails = {1: 4, 3: 12, 14: 4, 17: 4}
    each = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
    while at < header + type_at + type_size:
        name, info, size = struct.unpack_from("<III", raw, at)
        kind, vlen = info >> 24 & 31, info & 0xFFFF
        if kind in (4, 5) and name:
            members = []
            for index in range(vlen):
                member, _, place = struct.unpack_from("<III", raw, at + 12 + 12 * index)
                if member and not (info >> 31 and place >> 24):
                    members.append((_string(strings, member), (place & 0xFFFFFF if info >> 31 else place) // 8))
            yield _string(strings, name), size, members
        at += 12 + tails.get(kind, 0) + each.get(kind, 0) * vlen


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


@needs_vmlinux
def test_structs_of_this_kernel_are_as_a_plain_reader_finds_them() -> None:
    raw = Path(VMLINUX).read_bytes()
    btf = Btf(raw)
    first: dict[str, tuple[int, list[tuple[str, int]]]] = {}
    for name, size, members in _every_struct(raw):
        first.setdefault(name, (size, members))
    assert {"task_struct", "cgroup_subsys_state", "kernfs_node"} <= first.keys()
    asked = 0
    for name, (size, members) in itertools.islice(first.items(), 0, None, 40):
        assert btf.size(name) == size, name
        for member, offset in members:
            assert btf.offset(name, member) == offset, (name, member)
            asked += 1
    assert asked > 500


@needs_vmlinux
def test_this_kernel_says_what_a_walk_over_cgroups_needs() -> None:
    btf = Btf.vmlinux()
    assert btf.member("task_struct", "comm") == Member(btf.offset("task_struct", "comm"), 16, 1)
    assert btf.member("css_set", "subsys").element_size == 8
    assert btf.offset("css_set", "subsys[1]") == btf.offset("css_set", "subsys") + 8
    assert btf.enum("CSS_DYING") == 1 << 4  # include/linux/cgroup-defs.h, an enum without a name
    assert btf.enum("cpuset_cgrp_id", of="cgroup_subsys_id", optional=True) in (0, None)
    assert btf.size("pid_t") == 4
    with pytest.raises(BtfError, match=re.escape("task_struct.sched_reset_on_fork at sched_reset_on_fork is a bitfield")):
        btf.offset("task_struct", "sched_reset_on_fork")


def _per_cpu_variables(raw: bytes) -> dict[str, tuple[int, int]]:
    """Place and size of each, by the plain reader's way."""
    _, _, _, header, type_at, type_size, string_at, _ = struct.unpack_from("<HBBIIIII", raw)
    strings = raw[header + string_at :]
    at = header + type_at
    tails = {1: 4, 3: 12, 14: 4, 17: 4}
    each = {4: 12, 5: 12, 6: 8, 13: 8, 15: 12, 19: 12}
    names, found = [""], {}
    while at < header + type_at + type_size:
        name, info, _ = struct.unpack_from("<III", raw, at)
        kind, vlen = info >> 24 & 31, info & 0xFFFF
        names.append(_string(strings, name))
        if kind == SECTION and names[-1] == ".data..percpu":
            for index in range(vlen):
                number, place, size = struct.unpack_from("<III", raw, at + 12 + 12 * index)
                found[names[number]] = (place, size)
        at += 12 + tails.get(kind, 0) + each.get(kind, 0) * vlen
    return found


@needs_vmlinux
def test_variables_of_this_kernels_cpus_are_where_a_plain_reader_finds_them() -> None:
    raw = Path(VMLINUX).read_bytes()
    variables = _per_cpu_variables(raw)
    if not variables:
        pytest.skip("this kernel's BTF was made without variables")
    btf = Btf(raw)
    assert {"runqueues", "ksoftirqd", "kstat"} <= variables.keys()
    for name in ("runqueues", "ksoftirqd", "kstat", *itertools.islice(variables, 0, None, 40)):
        assert btf.per_cpu(name) == variables[name][0], name
    assert variables["runqueues"][1] == btf.size("rq")
    assert btf.per_cpu("schedule") is None
    assert btf.per_cpu("nothing of that name") is None
    assert btf.function("bpf_iter_task") is not None
    assert btf.function("runqueues") is None
