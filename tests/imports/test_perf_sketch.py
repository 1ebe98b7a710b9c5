"""A look at a perf.data says of every core and second what an import of it would, whatever is in the chains."""

import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import perf_sketch
from exhume.imports.glance import Looked, glance
from exhume.imports.importing import bring_in
from exhume.imports.incoming import Anchor, Wanted
from exhume.imports.kernel_marks import Marks
from exhume.imports.perf_layout import CALLCHAIN, CPU, IDENTIFIER, IP, TID
from exhume.recording.folder import Folder
from exhume.recording.summary import CLASSES
from exhume.sources.sampling import classes
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.sources.sampling.records import (
    CONTEXT_GUEST_KERNEL,
    CONTEXT_GUEST_USER,
    CONTEXT_KERNEL,
    CONTEXT_MAX,
    CONTEXT_USER,
    Ints,
    Samples,
)
from tests.examples import examples
from tests.imports import made_perf as made
from tests.imports.test_perf_data import captured, needs_perf
from tests.sources.sampling.made_records import record

BASE = 0xFFFFFFFF81000000
NAMES = ("do_idle", "handle_softirqs", "asm_sysvec_apic_timer_interrupt", "irqentry_exit", "ksys_read", "cpu_startup_entry")
SIZE = 64
FAR = BASE + (1 << 30)
"""As modules are: too far for a table that has both."""


class Kernel:
    """As KernelSymbols: six functions one after the other, and the same again a gigabyte on."""

    reason = ""

    @property
    def spans(self) -> "tuple[np.ndarray[tuple[int], np.dtype[np.uint64]], Ints, Ints]":
        starts = [base + SIZE * at for base in (BASE, FAR) for at in range(len(NAMES))]
        functions = np.arange(len(starts), dtype=np.int64)
        return np.array(starts, dtype=np.uint64), np.full(len(starts), SIZE, dtype=np.int64), functions

    def find(self, address: int) -> int:
        """-1 if none holds it."""
        return next((at for at, start in enumerate(self.spans[0].tolist()) if start <= address < start + SIZE), -1)

    def name(self, index: int) -> str:
        return NAMES[index % len(NAMES)]


def kernel() -> KernelSymbols:
    return cast("KernelSymbols", Kernel())


def decoded(chains: Sequence[Sequence[int]], tasks: Sequence[int]) -> Samples:
    """Between the chains there is what looks like a part of them."""
    words, begin, end = [CONTEXT_KERNEL, BASE + 1], [], []
    for chain in chains:
        begin.append(len(words))
        words += chain
        end.append(len(words))
        words += [CONTEXT_KERNEL, BASE + SIZE + 1]
    none = np.zeros(len(chains), dtype=np.int64)
    data = np.array(words, dtype=np.uint64).tobytes()
    first, last = (np.array(places, dtype=np.int64) * 8 for places in (begin, end))
    return Samples(data, np.array(tasks, dtype=np.int64), none, none, none, first, last, 0, 0)


def plainly(chain: Sequence[int], idle_task: bool, named: bool) -> str:
    """The class of a chain, one word after the other (as frames.py and classes.py have it)."""
    context, before, frames = 0, False, []
    for word in chain:
        if word >= CONTEXT_MAX:
            context, before = word, True
            continue
        if context in (CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER):
            frames.append((context, word if before else word - 1))
        before = False
    inner = frames[0][0] if frames else 0
    of_kernel = inner in (CONTEXT_KERNEL, CONTEXT_GUEST_KERNEL)
    marks = []
    for context, address in reversed(frames):
        function = Kernel().find(address) if context == CONTEXT_KERNEL else -1
        marks.append(classes.mark(Kernel().name(function)) if function >= 0 and of_kernel and named else 0)
    return classes.of_stack([mark for mark in marks if mark], of_kernel, idle_task, named)


addresses = st.builds(
    lambda base, function, offset: base + function * SIZE + offset,
    st.sampled_from([BASE, FAR, BASE - 4096, 0x400000]),
    st.integers(0, len(NAMES)),
    st.sampled_from([0, 1, 5, SIZE - 1]),
)
contexts = st.sampled_from(
    [CONTEXT_KERNEL, CONTEXT_KERNEL, CONTEXT_USER, CONTEXT_GUEST_KERNEL, CONTEXT_GUEST_USER, (1 << 64) - 4095]
)
chains = st.lists(
    st.builds(lambda context, found: [context, *found], contexts, st.lists(addresses, max_size=4)), max_size=3
).map(lambda parts: [word for part in parts for word in part])


@given(st.lists(st.tuples(chains, st.booleans()), min_size=1, max_size=12), st.booleans())
@settings(max_examples=examples(200))
def test_the_class_of_any_chain_is_what_it_is_word_by_word(found: list[tuple[list[int], bool]], named: bool) -> None:
    each = decoded([chain for chain, _ in found], [0 if idle else 7 << 32 | 7 for _, idle in found])
    marks = Marks(kernel()) if named else None
    got = [CLASSES[kind] for kind in perf_sketch.classes_of(each, marks).tolist()]
    assert got == [plainly(chain, idle, named) for chain, idle in found]


@given(st.lists(st.tuples(chains, st.booleans()), min_size=1, max_size=12), st.booleans())
@settings(max_examples=examples(200))
def test_who_is_idle_is_known_without_the_chains_of_others(found: list[tuple[list[int], bool]], named: bool) -> None:
    each = decoded([chain for chain, _ in found], [0 if idle else 7 << 32 | 7 for _, idle in found])
    marks = Marks(kernel()) if named else None
    got = [CLASSES[kind] for kind in perf_sketch.idle_or_not(each, marks).tolist()]
    assert got == ["idle" if plainly(chain, idle, named) == "idle" else "user" for chain, idle in found]


def looked(path: str, wanted: Wanted | None = None, anchor: Anchor | None = None) -> Looked:
    found = glance(path, wanted or Wanted(), anchor)
    assert found is not None
    seen = found.look()
    assert seen is not None
    return seen


def looked_first(path: str, wanted: Wanted | None, anchor: Anchor | None) -> Looked:
    found = glance(path, wanted or Wanted(), anchor)
    assert found is not None
    seen, again = found.look_first(), found.again()
    assert seen is not None
    assert again is not None
    again.close()
    return seen


def same_as_import(path: str, place: Path, wanted: Wanted | None = None, anchor: Anchor | None = None) -> Looked:
    brought = bring_in([path], str(place), wanted or Wanted(symbols=False), anchor, kept=False)
    folder, seen = Folder(str(place)), looked(path, wanted, anchor)
    whole = folder.summary()
    for name in whole._fields:
        assert np.array_equal(getattr(seen.summary, name), getattr(whole, name)), name
    quick = looked_first(path, wanted, anchor)
    assert quick._replace(summary=seen.summary) == seen
    assert not any(column.any() for column in (quick.summary.system, quick.summary.softirq, quick.summary.irq))
    for name in ("time", "core", "idle", "offsets"):  # what a heat map takes
        assert np.array_equal(getattr(quick.summary, name), getattr(whole, name)), name
    assert seen.samples == brought.samples
    assert seen.window == folder.window
    assert (seen.node, {**folder.about, **seen.about}) == (folder.node, folder.about)
    assert {folder.real_ns(time) - time for time in folder.window} == {-seen.shift}
    assert set(seen.notes) <= set(brought.notes)
    return seen


@pytest.mark.ci
@needs_perf
@pytest.mark.parametrize("options", [("-a", "-g"), ("-a", "-g", "-e", "page-faults"), ("--call-graph", "dwarf")])
def test_a_look_counts_what_an_import_counts(tmp_path: Path, options: tuple[str, ...]) -> None:
    path = captured(tmp_path / "perf.data", *options)
    seen = same_as_import(path, tmp_path / "recording")
    assert seen.samples > 50
    if "page-faults" in options:
        assert any("page-faults" in note for note in seen.notes)
        same_as_import(path, tmp_path / "other", Wanted("page-faults", symbols=False))


@needs_perf
def test_what_is_packed_or_came_through_a_pipe_is_left_to_an_import(tmp_path: Path) -> None:
    packed = captured(tmp_path / "packed.data", "-a", "-g", "-z")
    assert glance(packed, Wanted()) is None
    piped = tmp_path / "piped.data"
    with open(piped, "wb") as out:
        command = ["perf", "record", "-q", "-e", "cpu-clock", "-a", "-o", "-", "--", sys.executable, "-c", "pass"]
        subprocess.run(command, check=True, stdout=out, stderr=subprocess.DEVNULL)
    assert glance(str(piped), Wanted()) is None


SECOND = 1_000_000_000
TIMES = [5 * SECOND + at * 170_000_000 for at in range(30)]


def records_of(times: Sequence[int]) -> bytes:
    return b"".join(made.sample(7 * (at % 3), time, at % 2, kernel=(BASE + 9,) if at % 2 else (), user=(0x400000,))
                    for at, time in enumerate(times))  # fmt: skip


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize("shuffled", [False, True])
def test_made_files_too_in_whatever_order(tmp_path: Path, shuffled: bool) -> None:
    times = TIMES[::-1] if shuffled else TIMES
    path = written(tmp_path / "perf.data", made.file(records_of(times) + made.lost(3)))
    seen = same_as_import(path, tmp_path / "recording", anchor=Anchor(SECOND, 1_700_000_000 * SECOND, "given"))
    assert (seen.samples, int(seen.summary.idle.sum())) == (30, 10)
    assert any("perf lost 3 records" in note for note in seen.notes)


def test_a_file_that_is_cut_says_so_as_an_import_does(tmp_path: Path) -> None:
    whole = made.file(records_of(TIMES))
    path = written(tmp_path / "perf.data", whole[:-20])
    assert any("the file is cut" in note for note in same_as_import(path, tmp_path / "recording").notes)


def test_without_a_time_without_a_sample_or_packed_after_all_it_is_left_to_an_import(tmp_path: Path) -> None:
    fields = IDENTIFIER | IP | TID | CPU | CALLCHAIN
    bare = made.file(made.sample(7, 0, user=(0x400000,), fields=fields), [made.Attr(sample=fields)])
    assert glance(written(tmp_path / "timeless", bare), Wanted()) is None
    nothing = glance(written(tmp_path / "nothing", made.file(made.comm(7, b"x", 5))), Wanted())
    assert nothing is not None
    assert nothing.look() is None
    packed = glance(written(tmp_path / "packed", made.file(records_of(TIMES) + record(81, b"12345678"))), Wanted())
    assert packed is not None
    assert packed.look() is None


@given(st.data())
@settings(max_examples=examples(80))
def test_a_damaged_file_is_a_sentence_or_less_of_it(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = bytearray(made.file(records_of(TIMES)))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(8, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = written(tmp_path_factory.mktemp("damaged") / "perf.data", bytes(whole[: data.draw(st.integers(8, len(whole)))]))
    seen = None
    with suppress(ExhumeError):  # anything else would be a bug
        found = glance(path, Wanted())
        seen = found.look() if found is not None else None
    if seen is not None:
        assert 0 < seen.samples <= len(TIMES)
        counts = sum(int(column.sum()) for column in seen.summary[2:-1])
        assert counts == seen.samples
