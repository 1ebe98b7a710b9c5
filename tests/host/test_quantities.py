"""Quantities have one spelling and one parser, and no other module has a spelling of its own."""

import ast
import json
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.quantities import (
    DAY,
    GIB,
    HOUR,
    KIB,
    MICROSECOND,
    MILLISECOND,
    MINUTE,
    SECOND,
    TIB,
    ago,
    compact,
    compared,
    count,
    counted,
    duration,
    milliseconds,
    parse_duration,
    parse_size,
    percent,
    size,
    timespan_s,
)

SOURCE = Path(__file__).parent.parent.parent / "src" / "exhume"
HOME = SOURCE / "host" / "quantities.py"
TABLE: dict[str, list[list[Any]]] = json.loads(Path(__file__).with_name("quantities.json").read_text("utf-8"))
LONGEST = 11
"""`23 h 59 min`."""
TIMES = st.integers(0, 10**4 * DAY) | st.sampled_from((MICROSECOND, MILLISECOND, SECOND, MINUTE, HOUR, DAY, 10 * DAY)).flatmap(
    lambda unit: st.integers(unit - unit // 50, unit + unit // 50)
)
SIZES = st.integers(0, 1 << 49) | st.sampled_from((KIB, 1 << 20, GIB, TIB)).flatmap(
    lambda unit: st.integers(unit - unit // 50, unit + unit // 50)
)


def step_of(ns: int) -> int:
    """By how much the spelling of such a duration is rounded."""
    for unit, following in ((MICROSECOND, MILLISECOND), (MILLISECOND, SECOND), (SECOND, MINUTE)):
        if ns < following:
            return 1 if ns < unit else unit // 10 if ns < 10 * unit else unit
    return next((step for step, limit in ((SECOND, HOUR), (MINUTE, DAY), (HOUR, 10 * DAY)) if ns < limit), DAY)


def test_quantities_are_spelled_by_the_table_that_the_page_is_held_to() -> None:
    assert [duration(ns) for ns, _ in TABLE["duration"]] == [text for _, text in TABLE["duration"]]
    assert [count(number) for number, _ in TABLE["count"]] == [text for _, text in TABLE["count"]]
    assert [counted(number, noun) for number, noun, _ in TABLE["counted"]] == [text for *_, text in TABLE["counted"]]
    assert [percent(ratio, digits) for ratio, digits, _ in TABLE["percent"]] == [text for *_, text in TABLE["percent"]]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (850, "850 B"), (1023, "1023 B"), (1024, "1 KiB"), (12_800, "12.5 KiB"), (1_048_000, "1023 KiB"),
     (1_048_300, "1 MiB"), (64 << 20, "64 MiB"), (512 << 20, "512 MiB"), (99.95 * GIB, "100 GiB"), (3.2 * GIB, "3.2 GiB"),
     (5000 * TIB, "5000 TiB"), (-12_800, "-12.5 KiB")],
)  # fmt: skip
def test_sizes_are_binary(number: float, text: str) -> None:
    assert size(number) == text


def test_stalls_are_spelled_in_milliseconds() -> None:
    told = {0: "0 ms", 0.01: "<0.1 ms", 0.4: "0.4 ms", 2.5: "2.5 ms", 5: "5 ms", 9.96: "10 ms", 690: "690 ms", 6596: "6,596 ms"}
    assert {ms: milliseconds(ms) for ms in told} == told


def test_what_is_not_a_number_has_a_spelling() -> None:
    assert [duration(ns) for ns in (math.inf, -math.inf, math.nan)] == ["infinity", "-infinity", "unknown"]
    assert ago(43 * SECOND) == "43 s ago"
    assert counted(3, "child", "children") == "3 children"


@given(TIMES)
def test_a_duration_can_be_read_back_within_its_rounding(ns: int) -> None:
    text = duration(ns)
    assert abs(parse_duration(text) - ns) <= step_of(ns)
    assert len(text) <= LONGEST
    assert duration(-ns) == (f"-{text}" if ns else text)


@given(TIMES, TIMES)
def test_a_longer_duration_is_never_spelled_as_a_shorter_one(one: int, other: int) -> None:
    shorter, longer = sorted((one, other))
    assert parse_duration(duration(shorter)) <= parse_duration(duration(longer))


@given(SIZES)
def test_a_size_can_be_read_back_within_its_rounding(number: int) -> None:
    text = size(number)
    assert parse_size(text) == pytest.approx(number, rel=0.05)
    assert len(text) <= 8


@given(SIZES, SIZES)
def test_a_larger_size_is_never_spelled_as_a_smaller_one(one: int, other: int) -> None:
    smaller, larger = sorted((one, other))
    assert parse_size(size(smaller)) <= parse_size(size(larger))


@given(st.integers(0, 10**12), st.sampled_from(("zombie", "node")))
def test_singular_is_for_one(number: int, noun: str) -> None:
    assert counted(number, noun).replace(",", "") == f"{number} {noun}{'' if number == 1 else 's'}"


@given(TIMES, st.integers(1, 10**6))
def test_durations_that_differ_look_different_beside_their_limit(limit: int, more: int) -> None:
    one, other = compared(duration, limit + more, limit)
    assert one != other
    assert compared(duration, limit, limit) == (duration(limit), duration(limit))


@given(SIZES, st.integers(1, 10**6))
def test_sizes_that_differ_look_different_beside_their_limit(limit: int, more: int) -> None:
    one, other = compared(size, limit + more, limit)
    assert one != other


def test_a_limit_that_is_just_passed_is_shown_as_passed() -> None:
    assert compared(duration, 1_004 * MILLISECOND, SECOND) == ("1.004 s", "1.000 s")
    assert compared(duration, 601 * SECOND, 10 * MINUTE) == ("10 min 1 s", "10 min")
    assert compared(percent, 0.0204, 0.02) == ("2.04%", "2.00%")
    assert compared(count, 1.04, 1) == ("1.0", "1")


@given(st.integers(1, 10**9).map(lambda ms: ms * MILLISECOND))
def test_the_compact_form_is_exact_to_the_millisecond(ns: int) -> None:
    text = compact(ns)
    assert re.fullmatch(r"\d+(ms|[smhd])", text)  # one unit, as PromQL and our own options take it
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [("3s", 3 * SECOND), ("300ms", 300 * MILLISECOND), ("2.5s", 2500 * MILLISECOND), ("10m", 10 * MINUTE),
     ("10min", 10 * MINUTE), ("7", 7 * SECOND), ("1h", HOUR), ("1d", DAY), (" 2 min 30 s ", 150 * SECOND),
     ("350 µs", 350 * MICROSECOND)],
)  # fmt: skip
def test_durations_as_people_type_them(text: str, ns: int) -> None:
    assert parse_duration(text) == ns


@pytest.mark.parametrize(
    ("text", "number"), [("4GiB", 4 << 30), ("500M", 500 << 20), ("1.5g", 3 << 29), ("17", 17), ("2 kb", 2048), ("850 B", 850)]
)
def test_sizes_as_people_type_them(text: str, number: int) -> None:
    assert parse_size(text) == number


@pytest.mark.parametrize("text", ["", "soon", "-3s", "3 parsecs", "1..5s", "1M", "1y", "infinity", "٣s", "1,500s", "9" * 400])
def test_what_is_no_duration_is_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration; say 300ms"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "much", "-1", "4 XiB", "1..5G", "٣"])
def test_what_is_no_size_is_refused_with_what_to_say(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size; say 500MiB"):
        parse_size(text)


@given(st.text(max_size=20))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    for parse in (parse_duration, parse_size):
        with suppress(ValueError):
            assert parse(text) >= 0
    span = timespan_s(text)
    assert span is None or span >= 0


def test_time_spans_of_systemd() -> None:
    spans = {"90": 90, "5min 20s": 320, "1.5h": 5400, "100ms": 0.1, "2w": 1209600, "infinity": math.inf, "1M": 2629800}
    assert {text: timespan_s(text) for text in spans} == spans
    assert [timespan_s(text) for text in ("", "soon", "5 parsecs", "-1", "1..5", "٣")] == [None] * 6


def test_the_module_imports_nothing_slow() -> None:
    code = "import sys, exhume.host.quantities; print(*(name for name in sys.modules if name.startswith('exhume')))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["exhume", "exhume.host", "exhume.host.quantities"]


# What the search below looks for: a unit right behind a value in an f-string, a number beside the name of its unit, a plural by
# hand, a unit of time or size that is defined anew.
_UNIT = re.compile(
    r" (ns|[uµμ]s|ms|s|sec|seconds?|min|minutes?|h|hours?|d|days?|B|[KMGT]i?B|kB|bytes)(?![\w/-])|(ms|s|m|h)(?![\w.])"
)
_NAMES = {
    "ns",
    "us",
    "µs",
    "ms",
    "s",
    "m",
    "min",
    "minute",
    "h",
    "hour",
    "hours",
    "d",
    "day",
    "days",
    "B",
    "KB",
    "MB",
    "GB",
    "KiB",
    "MiB",
    "GiB",
}
_DEFINED = re.compile(r"_?(NANO|MICRO|MILLI)?(SECOND|MINUTE|HOUR|DAY|KIB|MIB|GIB)(_NS|_US|_MS|_S)?")


def spelled_by_hand(source: str) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            for before, after in zip(node.values, node.values[1:], strict=False):
                if isinstance(before, ast.FormattedValue) and isinstance(after, ast.Constant) and _is_number(before):
                    found = _UNIT.match(str(after.value))
                    if found and (found[1] or _is_scaled(before)):
                        yield node.lineno, f"{ast.unparse(before.value)}{found[0]}"
            for one, noun, end in zip(node.values, node.values[1:], node.values[2:], strict=False):
                word = str(noun.value) if isinstance(noun, ast.Constant) else ""
                if (
                    isinstance(one, ast.FormattedValue)
                    and re.fullmatch(r" [\w ]+", word)
                    and _is_number(one)
                    and _is_plural(end)
                ):
                    yield node.lineno, f"{ast.unparse(one.value)}{word}s"
        elif isinstance(node, ast.Tuple):
            names = [each.value for each in node.elts if isinstance(each, ast.Constant) and each.value in _NAMES]
            numbers = [each for each in node.elts if _is_amount(each)]
            if names and numbers:
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            names = [
                key.value for key, value in pairs if isinstance(key, ast.Constant) and key.value in _NAMES and _is_amount(value)
            ]
            if len(names) > 1:
                yield node.lineno, ast.unparse(node)
    for statement in tree.body:
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and _DEFINED.fullmatch(target.id):
                yield statement.lineno, target.id


def _is_number(value: ast.FormattedValue) -> bool:
    """Not a call of a function that spells it, and not the word that goes before a unit by chance."""
    return not isinstance(value.value, ast.Call) or (
        isinstance(value.value.func, ast.Name) and value.value.func.id in ("round", "int", "min", "max", "abs", "len", "sum")
    )


def _is_scaled(value: ast.FormattedValue) -> bool:
    """A unit without a space is a plural as well: `{noun}s`."""
    name = ast.unparse(value.value)
    return (
        isinstance(value.value, ast.BinOp) or value.format_spec is not None or name.lower().endswith(("_s", "_ms", "seconds"))
    )


def _is_plural(value: ast.expr) -> bool:
    if not isinstance(value, ast.FormattedValue):
        return False
    constants = {each.value for each in ast.walk(value.value) if isinstance(each, ast.Constant) and isinstance(each.value, str)}
    return isinstance(value.value, ast.BinOp | ast.IfExp) and "s" in constants and constants <= {"", "s"}


def _is_amount(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)
    ) or isinstance(node, ast.BinOp)


OLD_WAYS = [
    'f"{ns / 1e9:.1f} s"', 'f"{seconds / 60:.0f} min"', 'f"{seconds / 3600:,.1f} hours"', 'f"{DEADLINE_S} s"',
    'f"{stall.ms:,} ms"', 'f"{days:,} day ago"', 'f"{round(x)} s"', 'f"{value // 10**6}ms"', 'f"--from=-{WINDOW_S}s"',
    'f"[{2 * step:.0f}s]"', 'f"{LARGEST >> 20} MiB"', 'f"{len(text) / 1024:,.0f} KiB"', 'f"{entry.size:,} bytes"',
    'for unit, name in ((86400, "day"), (3600, "h")): ...', 'UNITS = {"ms": 10**6, "s": 10**9}',
    'units = ((1 << 30, "GiB"), (1 << 20, "MiB"))', """f"{count:,} node{'s' * (count != 1)}\"""",
    """f"{n} pod{'' if n == 1 else 's'}\"""", "SECOND = 1_000_000_000", "SECOND_NS: Final = 10**9", "_DAY_S = 86_400.0",
]  # fmt: skip


@pytest.mark.parametrize("old", OLD_WAYS)
def test_the_search_finds_what_was_spelled_by_hand(old: str) -> None:
    assert list(spelled_by_hand(old))


@pytest.mark.parametrize(
    "new", ['f"{duration(ns)} ago"', 'f"{size(LARGEST)}"', 'f"{noun}s"', 'f"{a} of {b}"', 'f"{x:.0%} sure"']
)
def test_the_search_leaves_alone_what_is_spelled_by_quantities(new: str) -> None:
    assert list(spelled_by_hand(new)) == []


# kernel/ comes before host/ and cannot import it; it has record sizes in its errors, no quantities for people.
FILES = sorted(file for file in SOURCE.rglob("*.py") if file != HOME and file.relative_to(SOURCE).parts[0] != "kernel")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_no_other_module_spells_quantities_by_hand(file: Path) -> None:
    found = [f"{file.name}:{line}: {what}" for line, what in spelled_by_hand(file.read_text("utf-8"))]
    assert found == [], "exhume/host/quantities.py spells durations, sizes and counts"
