"""Input and Lines: plain, packed, cut, empty, a pipe; every byte once, every line whole."""

import gzip
import os
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports.incoming import Damaged, Input, Lines, memory
from tests.examples import examples

TEXT = b"".join(b"line %d of many\n" % i for i in range(200_000))


def everything(source: Input) -> bytes:
    parts = []
    while part := source.read():
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_looked_at_is_still_there_to_be_read(packed: bool) -> None:
    with closing(memory(gzip.compress(TEXT) if packed else TEXT)) as source:
        assert source.head(100) == TEXT[:100]
        assert source.packed == packed
        assert source.seekable == (not packed)
        assert source.exactly(7) == TEXT[:7]
        assert source.at == 7
        assert everything(source) == TEXT[7:]
        assert source.at == len(TEXT)
        assert source.done == 1.0
        assert not source.cut


def test_several_gzip_members_are_one_text() -> None:
    parts = [TEXT[:10], b"", TEXT[10:2_000_000], TEXT[2_000_000:]]
    with closing(memory(b"".join(map(gzip.compress, parts)))) as source:
        assert everything(source) == TEXT
        assert not source.cut


def test_a_cut_gzip_gives_what_is_there_and_knows_it() -> None:
    packed = gzip.compress(TEXT)
    for end in (len(packed) // 2, len(packed) - 9, len(packed) - 1, 12):
        with closing(memory(packed[:end])) as source:
            assert TEXT.startswith(everything(source))
            assert source.cut


def test_a_damaged_gzip_gives_what_is_before_the_damage_and_says_where() -> None:
    packed = bytearray(gzip.compress(TEXT))
    at = len(packed) // 2
    packed[at : at + 100] = b"\xff" * 100
    with closing(memory(bytes(packed), "x.gz")) as source:
        assert source.head(10) == TEXT[:10]
        found: list[bytes] = []
        with pytest.raises(Damaged, match=r"x\.gz is not whole.*byte \d+ of it"):
            found.extend(iter(source.read, b""))
        with pytest.raises(Damaged):
            source.read()
        assert source.at > len(TEXT) // 4


def test_nothing_and_no_file(tmp_path: Path) -> None:
    with closing(memory(b"")) as source:
        assert source.head() == source.read() == b""
        assert not source.seekable
        assert source.done == 0.0
        assert list(Lines(source).blocks()) == []
    with pytest.raises(ExhumeError, match="cannot be read: No such file"):
        Input(str(tmp_path / "none"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_pipe(packed: bool) -> None:
    read, write = os.pipe()
    data = gzip.compress(TEXT) if packed else TEXT

    def feed() -> None:
        with open(write, "wb", buffering=0) as file:
            for at in range(0, len(data), 5000):
                file.write(data[at : at + 5000])

    feeder = threading.Thread(target=feed)
    feeder.start()
    with closing(Input(f"/proc/self/fd/{read}")) as source:
        os.close(read)
        assert not source.seekable
        lines = Lines(source)
        blocks = list(lines.blocks())
    feeder.join()
    assert b"".join(blocks) == TEXT
    assert all(block.endswith(b"\n") for block in blocks)
    assert min(map(len, blocks[:-1]), default=1 << 20) > 1 << 18


@pytest.mark.parametrize("longest", [5, 64, 1 << 16])
def test_long_lines_are_cut_and_the_next_is_where_it_says(longest: int) -> None:
    data = b"ab\n" + b"x" * 3_000_000 + b"\ncd\n" + b"y" * 70_000 + b"\n\nef"
    with closing(memory(data)) as source:
        lines = Lines(source, longest)
        found = []
        for block in lines.blocks():
            assert data.startswith(block.split(b"\n")[0], lines.at)
            found.append(block)
    cut = [line[:longest] for line in data.split(b"\n")]
    assert b"".join(found) == b"\n".join(cut)
    assert lines.cut == sum(len(line) > longest for line in data.split(b"\n")[:-1])
    assert not lines.ended


@settings(max_examples=examples(300))
@given(st.lists(st.binary(max_size=30)), st.integers(3, 20))
def test_lines_are_those_of_the_text(parts: list[bytes], longest: int) -> None:
    data = b"".join(parts)
    with closing(memory(data)) as source:
        if source.packed:
            return
        lines = Lines(source, longest)
        found = b"".join(lines.blocks())
    data = data.removeprefix(b"\xef\xbb\xbf")  # The mark of UTF-8 is no text.
    assert found.split(b"\n")[:-1] == [line[:longest] for line in data.split(b"\n")][: found.count(b"\n")]
    assert found.count(b"\n") - data.count(b"\n") in (0, 1)


@settings(max_examples=examples(200))
@given(st.binary(max_size=200), st.integers(0, 200), st.integers(0, 255))
def test_no_damage_to_a_packed_text_breaks_it(data: bytes, at: int, value: int) -> None:
    packed = bytearray(gzip.compress(data))
    packed[at % len(packed)] = value
    with closing(memory(bytes(packed))) as source:
        lines = Lines(source)
        try:
            found = b"".join(lines.blocks())
        except Damaged:
            return
    assert source.cut or not source.packed or found == data


def test_lines_before_the_damage_are_given_first() -> None:
    packed = bytearray(gzip.compress(TEXT))
    at = len(packed) // 2
    packed[at : at + 100] = b"\xff" * 100
    found = []
    with closing(memory(bytes(packed))) as source:
        blocks = Lines(source).blocks()
        with suppress(Damaged):
            while True:
                found.append(next(blocks))
    whole = b"".join(found)
    assert len(whole) > len(TEXT) // 4
    assert whole[: len(TEXT) // 4] == TEXT[: len(TEXT) // 4]
