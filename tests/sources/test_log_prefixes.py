"""What the lines of a flood begin with: bounded, whatever is in them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.sources import log_prefixes
from exhume.sources.kernel_log import KernelLog, unescaped
from exhume.sources.log_prefixes import Prefixes, prefix


def recording() -> Recording:
    return Recording(Node("", "", "", "", 2))


@pytest.mark.parametrize(
    ("line", "begins"),
    [
        (b"ena 0000:20:03.0 eth0: TX q 5 is paused for too long", b"ena #:#:#.# eth#"),
        (b"ena 0000:20:03.0 eth0: TX q 17 is paused for too long", b"ena #:#:#.# eth#"),
        (b"veth12: entered promiscuous mode", b"veth#"),
        (b"TCP: out of memory -- consider tuning tcp_mem", b"TCP"),
        (b"nothing has a colon here", b"nothing has"),
        (b" [<0>] do_syscall_64+0x5b", b"[<#>] do_syscall_#+#x#b"),
        (b"", b""),
        (b"   ", b""),
    ],
)
def test_a_line_is_known_by_who_says_it(line: bytes, begins: bytes) -> None:
    assert prefix(line) == begins


@given(st.binary(max_size=300))
def test_whatever_a_line_holds_its_beginning_is_short_and_without_numbers(line: bytes) -> None:
    begins = prefix(line)
    assert len(begins) <= 49
    assert not any(digit in begins for digit in b"0123456789")


@given(st.lists(st.lists(st.tuples(st.binary(max_size=12), st.integers(1, 30)), max_size=90), max_size=4))
def test_what_is_counted_is_never_more_than_there_was(readings: list[list[tuple[bytes, int]]]) -> None:
    counted, seen, total = Prefixes("printk_records", unescaped), recording(), 0
    for time, lines in enumerate(readings):
        for line, times in lines:
            total += times
            for _ in range(times):
                counted.add(line)
        before = len(seen["counters"])
        counted.tell(seen, time)
        assert len(seen["counters"]) - before <= 2 * log_prefixes.MOST_TOLD
    assert counted.total == total
    assert sum(series.last for series in seen.counters("printk_records").values()) <= total


def test_one_device_is_told_by_its_name_and_several_without_their_numbers() -> None:
    for names, begins in (((b"veth7",), "veth7"), ((b"veth7", b"veth8"), "veth#")):
        counted, seen = Prefixes("n", unescaped), recording()
        for _ in range(log_prefixes.FEWEST):
            for name in names:
                counted.add(name + b": flaps")
        counted.tell(seen, 1)
        assert [dict(at)["prefix"] for at in seen.counters("n")] == [begins]


def test_series_are_bounded_and_the_oldest_go_first() -> None:
    counted, seen = Prefixes("n", unescaped), recording()
    for time in range(log_prefixes.MOST + 10):
        name = b"".join(bytes((ord("a") + int(digit),)) for digit in str(time))
        for _ in range(log_prefixes.FEWEST):
            counted.add(name + b": x")
        counted.tell(seen, time)
    assert len(counted._series) == log_prefixes.MOST
    assert b"a" not in counted._series


def test_a_flood_is_counted_from_zero_with_an_example_and_a_stray_line_is_not(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("6,1,1,-;old: line\n")
    reader, seen = KernelLog(Root(str(tmp_path))), recording()
    reader.read(seen, 5_000_000)
    with log.open("a") as file:
        for i in range(40):
            file.write(f"6,{2 * i + 2},{6000 + i},-;veth{i}: flaps\\x09again\n14,{2 * i + 3},{6000 + i},-;app: hello {i}\n")
        file.write("6,99,7000,-;stray: line\n")
    reader.read(seen, 9_000_000)
    told = {name: [dict(at) for at in seen.counters(name) if at] for name in ("printk_records", "printk_program_records")}
    assert told["printk_records"] == [{"prefix": "veth#", "example": "veth0: flaps\tagain"}]
    assert told["printk_program_records"] == [{"prefix": "app", "example": "app: hello 0"}]
    (series,) = [series for at, series in seen.counters("printk_records").items() if at]
    assert (series.times.tolist(), series.values.tolist()) == ([5_000_000, 9_000_000], [0, 40])
    assert seen.counter("printk_program_records").values.tolist() == [0, 40]  # type: ignore[union-attr]
