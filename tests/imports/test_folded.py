"""Folded stacks: counts come back as they are, whoever wrote them."""

import gzip
from collections import Counter
from contextlib import closing
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import folded
from exhume.imports.incoming import Damaged, Ids, Import, Wanted, memory
from exhume.recording.recording import Recording
from exhume.recording.tally import of_recording
from exhume.render.flame import build
from exhume.render.folded import folded as exported
from tests.examples import examples


class Read(NamedTuple):
    source: Import
    whole: Recording
    counts: Counter[tuple[str, ...]]
    times: list[int]


def read(text: bytes) -> Read:
    with closing(memory(text)) as source:
        found = folded.opened(source, Wanted())
        whole = Recording(found.node)
        for batch in found.batches(Ids()):
            whole.extend(batch)
    frames = {row["id"]: row["name"] for row in whole["frames"].rows()}
    stacks = {row["id"]: tuple(frames[one] for one in row["frames"]) for row in whole["stacks"].rows()}
    threads = {row["id"]: row["comm"] for row in whole["threads"].rows()}
    counts = Counter((threads[row["thread"]], *stacks[row["stack"]]) for row in whole["samples"].rows())
    return Read(found, whole, counts, whole["samples"].ints("time").tolist())


def rows(whole: Recording, table: str) -> list[dict[str, Any]]:
    return list(whole[table].rows())


def test_counts_become_samples_with_made_up_times_and_that_is_said() -> None:
    found = read(b"a b;main;f 3\nc;main;do_read_[k] 2\n")
    assert found.counts == {("a b", "main", "f"): 3, ("c", "main", "do_read"): 2}
    assert found.times == [0, 10_000_000, 20_000_000, 30_000_000, 40_000_000]
    assert found.source.notes == ["folded stacks have no times: order and times are made up"]
    assert set(found.whole["samples"].ints("core").tolist()) == {0}


def test_suffixes_say_where_a_frame_belongs() -> None:
    found = read(b"a;f;g_[j];h_[i];sys_[k];in_[i];x_[w] 1\nswapper;do_idle_[k] 2\n")
    places = {row["name"]: (row["module"], row["space"]) for row in rows(found.whole, "frames")}
    assert places == {
        "f": ("", "user"),
        "g": ("[jit]", "user"),
        "h": ("", "user"),
        "sys": ("[kernel]", "kernel"),
        "in": ("[kernel]", "kernel"),
        "x_[w]": ("", "user"),
        "do_idle": ("[kernel]", "kernel"),
    }
    assert [row["class"] for row in rows(found.whole, "stacks")] == ["user", "idle"]


@pytest.mark.parametrize(
    ("first", "comm", "pid", "tid"),
    [
        ("node-12", "node", 12, 12),
        ("my-app-12/34", "my-app", 12, 34),
        ("perf-?/34", "perf", -1, 34),
        ("a b [77]", "a b", 77, 77),
        ("a[77]", "a", 77, 77),
    ],
)
def test_processes_with_their_numbers(first: str, comm: str, pid: int, tid: int) -> None:
    (row,) = rows(read(f"{first};main 1\n".encode()).whole, "threads")
    assert (row["comm"], row["pid"], row["tid"]) == (comm, pid, tid)


def test_a_name_with_a_number_is_a_name_where_others_have_none() -> None:
    found = rows(read(b"python-3;main 1\nbash;main 1\n").whole, "threads")
    assert [(row["comm"], row["pid"]) for row in found] == [("python-3", -1), ("bash", -1)]


@pytest.mark.parametrize("packed", [False, True])
def test_too_many_are_scaled_down_in_proportion(monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    monkeypatch.setattr(folded, "MOST", 1000)
    text = b"".join(b"a;f%d 1\n" % (i % 10) for i in range(5000)) + b"b;g 5000\n"
    found = read(gzip.compress(text) if packed else text)
    by_comm = Counter[str]()
    for stack, count in found.counts.items():
        by_comm[stack[0]] += count
    assert by_comm == {"a": 500, "b": 500}
    assert "10,000 samples are too many to be made up: scaled down to 1,000" in found.source.notes


@pytest.mark.ci
def test_lines_that_are_none_are_counted_with_their_place() -> None:
    found = read(b"a;b 1\r\n# a comment\nno count\na;b 0\n\nwhat\na;b 2\n")
    assert found.counts == {("a", "b"): 3}
    assert "2 lines are no stacks with a count: left out (the first is line 3, at byte 19)" in found.source.notes
    found = read(b"a;b 1\nSegmentation fault\n" + b"a;b 2\n" * 300_000)  # the line's number is right over many blocks
    assert "1 line is no stack with a count: left out (line 2, at byte 6)" in found.source.notes
    found = read(b"a;b 2\n" * 300_000 + b"Segmentation fault\n")
    assert "1 line is no stack with a count: left out (line 300,001, at byte 1800000)" in found.source.notes


def test_rubbish_is_left_out_as_long_as_most_is_whole() -> None:
    good, bad = b"a;b;c 12\n", b"warning: x\n"
    assert folded.looks(good * 6 + bad * 4)
    assert read(good * 6 + bad * 4).counts == {("a", "b", "c"): 72}
    assert folded.looks(good + bad + good)
    assert folded.looks(good * 4 + bad * 6)
    with pytest.raises(Damaged, match=r"6 of its first 10 lines from byte 0 on are none, line 5 to begin with"):
        read(good * 4 + bad * 6)
    assert not folded.looks(good + bad * 20)


def test_of_two_counts_the_second_is_taken() -> None:
    found = read(b"a;f 1 3\na;g x 0 2\n")
    assert found.counts == {("a", "f"): 3, ("a", "g x"): 2}
    assert read(b"a;f 0\n").counts == {}
    assert any("two counts" in note for note in found.source.notes)
    assert read(b"a;f 1 3\na;g 2\n").counts == {("a", "f 1"): 3, ("a", "g"): 2}


def test_what_it_looks_like() -> None:
    assert folded.looks(b"a;b;c 12\n")
    assert folded.looks(b"a;b;c 12\r\nd;e_[k] 1\r\n")
    for other in (b"", b"main 5\nfoo 6\n", b"a;b\n", b"\x1f\x8b\0", b"[ 1.234567] usb; x 5\nfoo\nbar\n"):
        assert not folded.looks(other)


def lines_of(whole: Recording) -> Counter[str]:
    counts: Counter[str] = Counter()
    for line in exported(build(of_recording(whole), whole, "process", "stack")):
        stack, _, count = line.rpartition(" ")
        counts[stack] += int(count)
    return counts


WORDS = st.text("abc ;_-[]k12é\x1b", min_size=1, max_size=6).map(lambda text: f"x{text}x")
FRAMES = st.tuples(WORDS, st.sampled_from(["", "_[k]", "_[j]"])).map("".join)
STACKS = st.tuples(st.lists(FRAMES.map(lambda text: text.replace(";", ":")), min_size=1, max_size=5), st.integers(1, 90))


@settings(max_examples=examples(150))
@given(st.lists(STACKS, min_size=1, max_size=12))
def test_an_export_of_exhume_comes_back_with_the_same_counts(stacks: list[tuple[list[str], int]]) -> None:
    text = "".join(f"comm{i % 3};{';'.join(frames)} {count}\n" for i, (frames, count) in enumerate(stacks))
    first = read(text.encode())
    once = lines_of(first.whole)
    again = read("".join(f"{stack} {count}\n" for stack, count in once.items()).encode())
    assert sum(once.values()) == sum(count for _, count in stacks)
    assert lines_of(again.whole) == once


@settings(max_examples=examples(500))
@given(
    st.lists(
        st.one_of(st.binary(max_size=20), st.sampled_from([b"a;b 1", b"\n", b" 999999999999999999", b"_[k]", b";", b" 5\n"])),
        max_size=20,
    )
)
def test_no_text_breaks_it(pieces: list[bytes]) -> None:
    text = b"".join(pieces)
    folded.looks(text)
    with closing(memory(text)) as source:
        given = 0
        try:
            found = folded.opened(source, Wanted())
            for batch in found.batches(Ids()):
                given += len(batch["samples"])
                if given > 200_000:
                    break
        except ExhumeError:
            return
    assert given <= folded.MOST + (1 << 16)
