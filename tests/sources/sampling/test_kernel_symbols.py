"""kallsyms: functions by address, on this kernel and on made ones."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.sources.sampling.kernel_symbols import KernelSymbols, parse
from tests.sources.sampling.symbol_processes import in_a_child

TEXT = """\
ffffffff81000000 T _text
ffffffff81000000 T startup_64
ffffffff81000100 t __pfx_mem_cgroup_iter
ffffffff81000110 T mem_cgroup_iter
ffffffff81000200 T __memcpy
ffffffff81000200 W memcpy
ffffffff81000200 T __pi_memcpy
ffffffff81000300 D jiffies
ffffffff81000400 T __sched_text_start
ffffffff81000400 t __schedule
ffffffff81000500 T _etext
ffffffff82000000 T _sinittext
ffffffff82000100 t start_kernel
"""
MODULES = """\
ffffffffc0001000 t ena_io_poll\t[ena]
ffffffffc0001100 t ena_reset\t[ena]
"""


def symbols(tmp_path: Path, text: str) -> KernelSymbols:
    (tmp_path / "proc").mkdir(exist_ok=True)
    (tmp_path / "proc/kallsyms").write_text(text)
    return KernelSymbols(Root(str(tmp_path)))


def names(found: KernelSymbols, *addresses: int) -> list[str]:
    indexes = found.find(np.array(addresses, np.uint64))
    return [found.name(index) if index >= 0 else "" for index in indexes.tolist()]


def test_an_address_is_in_the_function_that_begins_before_it(tmp_path: Path) -> None:
    found = symbols(tmp_path, TEXT)
    assert found.reason == ""
    addresses = (0xFFFFFFFF81000000, 0xFFFFFFFF810000FF, 0xFFFFFFFF81000110, 0xFFFFFFFF810001FF, 0xFFFFFFFF82000101)
    assert names(found, *addresses) == ["startup_64", "startup_64", "mem_cgroup_iter", "mem_cgroup_iter", "start_kernel"]


def test_of_names_for_one_address_the_plain_one_is_told(tmp_path: Path) -> None:
    assert names(symbols(tmp_path, TEXT), 0xFFFFFFFF81000280, 0xFFFFFFFF81000440) == ["memcpy", "__schedule"]


def test_what_is_no_code_belongs_to_no_function(tmp_path: Path) -> None:
    found = symbols(tmp_path, TEXT + MODULES)
    nowhere = (0, 0x1000, 0xFFFFFFFF80FFFFFF, 0xFFFFFFFF81000500, 0xFFFFFFFF81900000, 0xFFFFFFFF82900000, 0xFFFFFFFFC0100000)
    assert names(found, *nowhere, 2**64 - 1) == [""] * 8


def test_functions_know_their_module(tmp_path: Path) -> None:
    found = symbols(tmp_path, TEXT + MODULES + "ffffffffc0009000 t bpf_prog_6deef7357e7b4530_sd_devices\t[bpf]\n")
    indexes = found.find(np.array([0xFFFFFFFF81000000, 0xFFFFFFFFC0001010, 0xFFFFFFFFC0009001], np.uint64)).tolist()
    assert [found.module(index) for index in indexes] == ["[kernel]", "ena", "bpf"]
    assert found.name(indexes[2]) == "bpf_prog_6deef7357e7b4530_sd_devices"


def test_modules_come_and_go_and_indexes_stay_what_they_are(tmp_path: Path) -> None:
    found = symbols(tmp_path, TEXT + MODULES)
    address = np.array([0xFFFFFFFFC0001010], np.uint64)
    old = found.find(address)[0]
    (tmp_path / "proc/kallsyms").write_text(TEXT + "ffffffffc0001000 t mlx5e_poll\t[mlx5_core]\n")
    found.refresh()
    new = found.find(address)[0]
    assert (found.name(new), found.module(new)) == ("mlx5e_poll", "mlx5_core")
    assert (found.name(old), found.module(old)) == ("ena_io_poll", "ena")
    (tmp_path / "proc/kallsyms").write_text(TEXT + MODULES)
    found.refresh()
    assert found.find(address)[0] == old
    (tmp_path / "proc/kallsyms").write_text(TEXT)
    found.refresh()
    assert found.find(address)[0] == -1


@pytest.mark.parametrize(
    ("text", "reason"),
    [(None, "is not there"), ("", "shows no addresses"), ("0000000000000000 T _text\n0000000000000000 t f\n", "kptr_restrict")],
    ids=["missing", "empty", "restricted"],
)
def test_where_nothing_can_be_seen_the_reason_is_told(tmp_path: Path, text: str | None, reason: str) -> None:
    found = symbols(tmp_path, text) if text is not None else KernelSymbols(Root(str(tmp_path)))
    assert reason in found.reason
    assert found.find(np.array([0, 0xFFFFFFFF81000000], np.uint64)).tolist() == [-1, -1]
    symbols(tmp_path, TEXT)
    found.refresh()
    assert found.reason == ""
    assert names(found, 0xFFFFFFFF81000110) == ["mem_cgroup_iter"]


def test_every_function_of_this_kernel_is_found_by_its_address() -> None:
    found = KernelSymbols(Root())
    if found.reason:
        pytest.skip(found.reason)
    known: dict[int, set[str]] = {}
    for line in Path("/proc/kallsyms").read_text().splitlines():
        words = line.split()
        if words[1] in "Tt" and len(words) == 3 and not words[2].startswith(("__pfx_", "__cfi_", "_R")):
            known.setdefault(int(words[0], 16), set()).add(words[2])
    addresses = np.array(list(known), np.uint64)
    indexes = found.find(addresses)
    ends = sum(bool(names & {"_etext", "_einittext"}) for names in known.values())
    assert (indexes < 0).sum() <= ends
    told = [(address, found.name(index)) for address, index in zip(known, indexes.tolist(), strict=True) if index >= 0]
    assert [each for each in told[::37] if each[1] not in known[each[0]]] == []
    assert found.nbytes < 48 * len(known)


def test_as_a_user_who_may_not_see_addresses_there_is_a_reason() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become a user without rights")

    def check() -> bool:
        os.setresuid(65534, 65534, 65534)
        return "kptr_restrict" in KernelSymbols(Root()).reason

    assert in_a_child(check)


WORDS = st.sampled_from(
    ["ffffffff81000000", "0", "T", "t", "D", "name", "[ena]", "\t", " ", "", "__pfx_x", "é", "zz", "f" * 20]
)


@given(st.lists(st.lists(WORDS, max_size=6).map(" ".join), max_size=12).map("\n".join))
def test_any_text_is_survived(text: str) -> None:
    found = parse(text.encode() + b"\n")
    assert len(found.starts) == len(found.kinds) == len(found.lengths)
    assert int(found.lengths.sum()) == len(found.names)
