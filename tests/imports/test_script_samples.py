"""Many samples of perf script at a time: the same as line by line, in the same order, whatever is between them."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exhume.imports import script_chunks, script_frames, script_stacks
from exhume.imports.incoming import Ids
from exhume.imports.interner import Interner
from exhume.imports.script_events import Counts
from exhume.imports.script_lines import Odd, Slowly
from exhume.imports.script_owners import Owners
from exhume.imports.script_samples import Samples
from exhume.imports.script_stacks import Stacks
from exhume.imports.script_tails import Tails
from exhume.recording.recording import Node, Recording
from tests.examples import examples

USUAL = b"x 1 [000] 1.000000: 1 cycles: \n\n"


class Told(NamedTuple):
    time: int
    core: int
    thread: tuple[int, int, str, str]
    frames: tuple[tuple[str, str, int], ...]


class Reading(NamedTuple):
    told: list[Told]
    odd: int
    counts: dict[str, int]


def reading(text: bytes, slowly: bool = False) -> Reading:
    interner, counts, odd = Interner(Ids()), Counts("cycles", False), Odd(0)
    slow = Slowly(Owners(interner, True), Tails(counts), Stacks(interner), odd)
    if slowly:
        slow.take(USUAL, 0)
        taken = slow.take(text, 0)
        core, thread = slow.owners.cores_and_threads(np.array([one.owner for one in taken], dtype=np.int64))
        rows = list(zip([one.time for one in taken], core, thread, [one.stack for one in taken], strict=True))
    else:
        samples = Samples(slow)
        samples.take(USUAL, 0)  # from now on lines are expected to end like that
        rows = list(zip(*samples.take(text, 0), strict=True))
    tables = Recording(Node("", "", "", "", 0))
    interner.write(tables)
    frames = {row["id"]: (row["name"], row["module"], row["offset"]) for row in tables["frames"].rows()}
    stacks = {row["id"]: tuple(frames[frame] for frame in row["frames"]) for row in tables["stacks"].rows()}
    threads = {row["id"]: (row["pid"], row["tid"], row["comm"], row["process"]) for row in tables["threads"].rows()}
    told = [Told(int(time), int(core), threads[int(thread)], stacks[int(stack)]) for time, core, thread, stack in rows]
    seen = {name: count.samples for name, count in counts._counts.items() if count.samples}
    return Reading(told, odd.lines, seen)


FIRST = st.sampled_from(
    [
        b"a 1 [000] 1.000000: 1 cycles: ",
        b"a 1 [000] 1.000001: 1 cycles: ",
        b"a b 1/2 [001] 2.000001: 77 cycles: ",
        b"one 1/1 [001] 2.000001: 1 cycles: ",
        b"other 1/1 [001] 2.000001: 1 cycles: ",
        b"other: 1/1 [001] 2.000001: 1 cycles: ",
        b"swapper 0 [000] 12.000002: 1 cycles: ",
        b"cafe 12 [000] 1.000003: 1 cycles: ",
        b"a: b 12 [000] 1.000003: 1 cycles: ",
        b"a name of more than 15 5 [000] 1.000000: 3 [000] 2.000000: 1 cycles: ",
        b"a 1 [000] 1.000000: 1 branch: ",
        b"a 1 [000] 1.000000: ffffffff81000000",
        b"a 1 [000] 1.000000: 5 ffffffff81000000",
        b"a 1 [000] 1.000000: 1 cycles:   ffffffff81000000 f+0x1 ([kernel.kallsyms])",
        b"a 1 [000] 9999999999.000000: 1 cycles: ",
        b"a 1 [000] 1.000000: PERF_RECORD_COMM: a:1/1",
        b"\ta 1 [000] 1.000000: 1 cycles: ",
        b"warning: nothing",
        b"# ========",
    ]
)
LINE = st.sampled_from(
    [
        b"\tffffffff81000001 f+0x1 ([kernel.kallsyms])",
        b"\tffffffff81000002 g+0x2 ([kernel.kallsyms])",
        b"\t    7feb5285e380 [unknown] ([unknown])",
        b"\t               0 [unknown] ([unknown])",
        b"\tffffffff81000002 [unknown] ([unknown])",
        b"\t7fffffff81000002 [unknown] ([unknown])",
        b"\t    7feb5285e3g0 [unknown] ([unknown])",
        b"\t    7feb 285e380 [unknown] ([unknown])",
        b"\t          17dc69 [unknown] (/usr/lib/a.so)",
        b"\t          17dc69 h (inlined)",
        b"                17dc69 h+0x1 (/usr/lib/a.so)",
        b"\tfff]ffff81000002 g+0x2 ([kernel.kallsyms])",
        b"  a.c:12",
        b"12ab g+0x2 ([kernel.kallsyms])",
        b" ",
    ]
)
SAMPLE = st.tuples(FIRST, st.lists(LINE, max_size=4)).map(lambda parts: b"\n".join([parts[0], *parts[1]]) + b"\n\n")
PLAIN = st.tuples(FIRST.filter(lambda line: line.endswith(b": 1 cycles: ")), st.lists(LINE, max_size=4)).map(
    lambda parts: b"\n".join([parts[0], *parts[1]]) + b"\n\n"
)


@settings(max_examples=examples(600))
@given(
    st.one_of(
        st.lists(st.one_of(SAMPLE, FIRST.map(lambda line: line + b"\n"), st.just(b"\n")), max_size=12),
        st.lists(PLAIN, max_size=6),
        st.lists(FIRST.map(lambda line: line + b"\n"), max_size=6),
    ),
    st.booleans(),
)
@example([b"\n", b"\n", b"\n"], True)
def test_many_at_a_time_are_the_same_as_line_by_line(parts: list[bytes], ended: bool) -> None:
    text = b"".join(parts)
    text = text if ended else text.rstrip(b"\n")
    assert reading(text) == reading(text, slowly=True)


def test_where_hashes_are_short_texts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    frames = [b"\t  %x f%d+0x1 (/a)\n" % (at, at % 3) for at in range(9)]
    text = b"".join(USUAL.rstrip(b"\n") + b"\n" + b"".join(frames[at % 7 : at % 9 + 1]) + b"\n" for at in range(99))
    expected = reading(text, slowly=True)
    monkeypatch.setattr(script_stacks, "_key", bytes)
    assert reading(text) == expected
    assert len({one.frames for one in expected.told}) > 9


def test_a_name_that_begins_with_a_tab_is_no_frame() -> None:
    """perf prints names as they are where stacks follow ("%s ", perf_sample__fprintf_start of tools/perf/builtin-script.c)."""
    sample = b"\ta 1 [000] 1.000000: 1 cycles: \n\t  12 f+0x1 (/a)\n\n"
    for text in (sample, USUAL + sample, b"# header\n\n" + sample + b"odd\n\n" + sample.rstrip(b"\n")):
        for slowly in (False, True):
            last = reading(text, slowly).told[-1]
            assert (last.thread, last.frames) == ((1, 1, "a", "a"), (("f", "/a", -1),))


def test_what_is_odd_between_samples_leaves_them_in_their_order() -> None:
    text = b"".join(
        b"a 1 [000] %d.000000: 1 cycles: \n\t  12 f+0x1 (/a)\n%s\n" % (second, b"\tno frame\n" * (second % 3 == 0))
        for second in range(100)
    )
    found = reading(text)
    assert [one.time for one in found.told] == [second * 10**9 for second in range(100)]
    assert all(one.frames == (("f", "/a", -1),) for one in found.told)
    assert found.odd == 34


def test_lines_that_end_in_another_way_than_those_before_are_read_as_well() -> None:
    """Times get longer, periods and events change, and names have what may be taken for the end."""
    lines = [b"a 1 [000] %d.000000: 1 cycles: " % second for second in (9, 99, 99999, 100000)]
    lines += [b"a 1 [000] 9.000000: 1 branch: "]
    lines += [
        b"a 1 [000] 100000.000000: 22 cycles: ",
        b"a 1 [000] 100000.000000: 22 cycles:u: ",
        b"cycles:  1 [000] 7.000000: 1 cycles: ",
    ]
    interner = Interner(Ids())
    samples = Samples(Slowly(Owners(interner, True), Tails(Counts("cycles", False)), Stacks(interner), Odd(0)))
    for before in lines:
        for line in lines:
            samples.take(before + b"\n\n" + before + b"\n\n", 0)
            seconds = int(line.split(b"[000] ")[1].partition(b".")[0])
            expected = [] if b"cycles:u" in line or b"branch" in line else [seconds * 10**9] * 2
            assert samples.take(line + b"\n\n" + line + b"\n\n", 0).time.tolist() == expected, (before, line)


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(st.sampled_from([b"", b"a", b"\t1 f", b"\n", b"\r", b"\0"]), st.binary(max_size=5)), max_size=30))
def test_a_text_is_cut_at_its_blank_lines(pieces: list[bytes]) -> None:
    text = b"\n".join(pieces)
    chunks = script_chunks.cut(text)
    groups: list[list[bytes]] = [[]]
    for line in text[: chunks.rest].split(b"\n"):
        groups.append([]) if not line else groups[-1].append(line)
    expected = [b"\n".join(group) for group in groups if group]
    places = zip(chunks.begin.tolist(), chunks.first.tolist(), chunks.end.tolist(), strict=True)
    found = [(text[begin:end], text[begin:first]) for begin, first, end in places]
    assert found == [(group, group.partition(b"\n")[0]) for group in expected]
    assert b"\n\n" not in text[chunks.rest :]
    assert chunks.rest == 0 or text[: chunks.rest].endswith(b"\n\n") or text[: chunks.rest] == b"\n"


@settings(max_examples=examples(300))
@given(st.lists(st.one_of(LINE, st.from_regex(rb"\t[ 0-9a-g]{16} \[unknown\] \(\[unknown\]\)", fullmatch=True)), max_size=6))
def test_addresses_that_lead_nowhere_are_all_that_is_made_the_same(lines: list[bytes]) -> None:
    text = b"\n".join([*lines, b"", b""])
    changed = script_chunks.cut(text).text
    assert len(changed) == len(text)
    for line, other in zip(text.split(b"\n"), changed.split(b"\n"), strict=True):
        assert script_frames.parse(other) == script_frames.parse(line)
        assert other == line or (script_frames.parse(line) == script_frames.NOWHERE and other.split()[0] == b"0")
    assert changed.count(b"               0 [unknown] ([unknown])") == sum(
        script_frames.NOWHERE_LINE.fullmatch(line) is not None and len(line) == 39 for line in lines
    )


def test_a_line_that_renames_a_process_is_remembered_as_every_other() -> None:
    owners = Owners(Interner(Ids()), False)
    for front in (b"sh 42/42 [000]", b"sh 42/43 [000]", b"python3 42/42 [000]"):
        assert owners[front] >= 0
    assert list(owners) == [b"python3 42/42 [000]"]  # what was known of the others of it is not any more
