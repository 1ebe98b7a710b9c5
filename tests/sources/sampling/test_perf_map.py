"""Perf maps: later lines win, half a line waits, and no line does harm."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.sources.sampling.perf_map import PerfMap, readable


def at(raw: bytes, address: int) -> tuple[int, int, bytes]:
    found = PerfMap()
    found.add(raw)
    function = found.find(address)
    name = found.name(function.which, lambda size, offset: raw[offset : offset + size]) if function.which >= 0 else b""
    return function.start, function.end, name


def test_a_function_is_found_and_what_none_has_is_unknown_by_the_byte() -> None:
    raw = b"1000 20 first\n2000 10 LazyCompile:*run /srv/app.js:3:9\n"
    assert at(raw, 0x101F) == (0x1000, 0x1020, b"first")
    assert at(raw, 0x2000) == (0x2000, 0x2010, b"LazyCompile:*run /srv/app.js:3:9")
    assert at(raw, 0x1020) == (0x1020, 0x1021, b"")


def test_code_that_takes_the_place_of_older_code_wins() -> None:
    raw = b"1000 100 old\n1040 20 new\n"
    assert at(raw, 0x1000) == (0x1000, 0x1040, b"old")
    assert at(raw, 0x1050) == (0x1040, 0x1060, b"new")
    assert at(raw, 0x1060) == (0x1060, 0x1100, b"old")
    assert at(b"1040 20 old\n1000 100 new\n", 0x1050) == (0x1000, 0x1100, b"new")


def test_a_line_that_is_being_written_waits_for_its_end() -> None:
    raw = b"1000 20 first\n2000 20 seco"
    found = PerfMap()
    found.add(raw)
    assert (len(found), found.taken) == (1, 14)
    whole = raw + b"nd\n"
    found.add(whole[found.taken :])
    assert found.taken == len(whole)
    assert found.name(found.find(0x2000).which, lambda size, offset: whole[offset : offset + size]) == b"second"


@pytest.mark.parametrize(
    "line", [b"", b"1000", b"1000 20", b"x 20 f", b"1000 y f", b"1000 0 f", b"-5 20 f", b"f" * 99 + b" 1 f"]
)
def test_a_line_that_does_not_parse_is_passed_over(line: bytes) -> None:
    assert at(line + b"\n2000 10 next\n", 0x2001) == (0x2000, 0x2010, b"next")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (b"py::Trainer.step:/srv/job/train.py", b"Trainer.step (train.py)"),
        (b"py::<module>:<string>", b"<module> (<string>)"),
        (b"py::odd", b"odd"),
        (b"JS:*fib /srv/a.js:1:2", b"JS:*fib /srv/a.js:1:2"),
    ],
)
def test_functions_of_python_are_told_with_their_file(name: bytes, told: bytes) -> None:
    assert readable(name) == told


LINES = st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60)), min_size=1, max_size=30)


@given(LINES, st.integers(0, 400))
def test_the_answer_is_what_painting_line_after_line_gives(lines: list[tuple[int, int]], address: int) -> None:
    raw = b"".join(b"%x %x f%d\n" % (start, size, number) for number, (start, size) in enumerate(lines))
    painted = {}
    for number, (start, size) in enumerate(lines):
        painted.update(dict.fromkeys(range(start, start + size), b"f%d" % number))
    start, end, name = at(raw, address)
    assert start <= address < end
    assert {painted.get(each, b"") for each in range(start, end)} == {name}


@given(st.binary(max_size=300), st.integers(0, 1 << 62))
def test_any_bytes_are_survived(raw: bytes, address: int) -> None:
    start, end, _ = at(raw, address)
    assert start <= address < end
