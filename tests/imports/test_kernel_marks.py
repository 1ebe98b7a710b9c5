"""What a few lines of kallsyms say of an address is what all of them say."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.imports import kernel_marks
from exhume.imports.kernel_marks import Marks, told_of
from exhume.imports.perf_kernel import NowhereRoot
from exhume.sources.sampling import classes
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.records import CONTEXT_KERNEL
from tests.examples import examples

BASE = 0xFFFFFFFF81000000
MODULES = 0xFFFFFFFFC0000000

names = st.sampled_from(
    "do_idle handle_softirqs __do_softirq nmi do_IRQ irqentry_exit asm_sysvec_reboot sysvec_thermal do_idle.cold do do_idly nm "
    "cpu_idle_poll.isra.0 ksys_read _etext __pfx_do_idle $x __init_end __softirqentry_text_start sysvec_ né do_idle_".split()
)
lines = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("TtWwDbAr"), names), max_size=25)


def text_of(own: list[tuple[int, str, str]], modules: list[tuple[int, str, str]]) -> bytes:
    kernel = "".join(f"{BASE + 16 * at:016x} {kind} {name}\n" for at, kind, name in sorted(own, key=lambda each: each[0]))
    loaded = "".join(f"{MODULES + 16 * at:016x} {kind} {name}\t[some]\n" for at, kind, name in modules)
    return (kernel + loaded).encode()


def said(kernel: KernelSymbols, address: int) -> int:
    function = int(kernel.find(np.array([address], dtype=np.uint64))[0])
    return classes.mark(kernel.name(function)) if function >= 0 else 0


def every_answer(text: bytes, addresses: list[int]) -> None:
    whole, few = KernelSymbols(NowhereRoot(), text), KernelSymbols(NowhereRoot(), told_of(text))
    assert bool(few.reason) == bool(whole.reason)
    if few.reason:
        return
    marks = Marks(few)
    asked = np.array(addresses, dtype=np.uint64)
    expected = [said(whole, address) for address in addresses]
    assert marks.of(asked).tolist() == expected
    # As return addresses, and as what follows a mark of a chain.
    later = np.insert(asked + np.uint64(1), 0, 0)
    places, found = marks.said(later)
    assert dict(zip((places - 1).tolist(), found.tolist(), strict=True)) == {at: one for at, one in enumerate(expected) if one}
    after = np.full(2 * len(asked), CONTEXT_KERNEL, dtype=np.uint64)
    after[1::2] = asked
    places, found = marks.said(after)
    assert dict(zip((places // 2).tolist(), found.tolist(), strict=True)) == {at: one for at, one in enumerate(expected) if one}


@given(lines, lines)
@settings(max_examples=examples(300))
def test_any_address_says_what_all_lines_say(own: list[tuple[int, str, str]], modules: list[tuple[int, str, str]]) -> None:
    near = [base + 16 * at + more for base in (BASE, MODULES) for at in range(-1, 43) for more in (0, 1, 15)]
    every_answer(text_of(own, modules), [*near, 0, 1, 0x400000, BASE + (1 << 21), MODULES + (1 << 21)])


@given(
    st.lists(st.one_of(st.binary(max_size=60), st.sampled_from([b"ffffffff81000000 T do_idle", b"f T nmi", b"0 t nmi\t[x]"])))
)
@settings(max_examples=examples(300))
def test_of_whatever_is_no_kallsyms_some_lines_are_kept_or_none(found: list[bytes]) -> None:
    kept = told_of(b"\n".join(found))
    assert set(kept.split(b"\n")) <= {*b"\n".join(found).split(b"\n"), b""}
    kernel = KernelSymbols(NowhereRoot(), kept)
    if not kernel.reason:
        assert set(Marks(kernel).of(np.array([0, BASE, BASE + 5], dtype=np.uint64)).tolist()) <= {0, classes.IDLE, classes.IRQ}


def test_hidden_addresses_are_a_reason() -> None:
    text = b"0000000000000000 T do_idle\n" * 5000
    assert told_of(text) == b""
    assert "shows no addresses" in KernelSymbols(NowhereRoot(), told_of(text)).reason


def test_of_a_real_kernel_every_function_that_counts_is_found() -> None:
    whole = KernelSymbols(Root())
    if whole.reason:
        pytest.skip(whole.reason)
    few = kernel_marks.load(Root())
    marks = Marks(few)
    starts, sizes, indexes = whole.spans
    expected = np.array([classes.mark(whole.name(index)) for index in indexes.tolist()])
    inside = sizes > 1
    assert np.array_equal(marks.of(starts[inside]), expected[inside])
    assert np.array_equal(marks.of(starts[inside] + sizes[inside] - np.uint64(1)), expected[inside])
    assert (expected > 0).sum() > 20
    assert len(few.spans[0]) < len(starts) // 20


def test_a_kallsyms_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    assert "not there" in kernel_marks.load(Root(str(tmp_path))).reason
