"""Moments and windows as people type them."""

import argparse
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli import moments
from exhume.cli.moments import moment, resolve, rfc3339
from exhume.errors import ExhumeError, UsageError
from exhume.host.quantities import SECOND


@dataclass
class Clocks:
    """Two clocks a fixed distance apart."""

    window: tuple[int, int]
    apart: int

    def real_ns(self, time: int) -> int:
        return time + self.apart

    def time_at(self, real_ns: int) -> int:
        return real_ns - self.apart


# From 2026-03-10 12:00:00 UTC, ten minutes, 1,000 s after boot.
NOON = 1_773_144_000 * SECOND
BOOT = 1_000 * SECOND
CLOCKS = Clocks((BOOT, BOOT + 600 * SECOND), NOON - BOOT)
DAYS = Clocks((BOOT, BOOT + 3 * 86_400 * SECOND), NOON - BOOT)


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    zone(monkeypatch, "UTC")
    yield
    monkeypatch.undo()
    time.tzset()


def zone(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TZ", name)
    time.tzset()


@pytest.mark.parametrize(
    ("text", "after_begin"),
    [
        ("+90s", 90),
        ("+0.5s", 0.5),
        ("+2m", 120),
        ("-30s", 570),
        ("1060", 60),
        ("1060.25", 60.25),
        ("12:04:31.5", 271.5),
        ("12:04:31", 271),
        ("12:04", 240),
        ("2026-03-10T12:01:00Z", 60),
        ("2026-03-10t12:01:00.000000001z", 60 + 1e-9),
        ("2026-03-10T13:01:00+01:00", 60),
        ("2026-03-10T06:31:00-0530", 60),
        ("2026-03-10 12:01:00", 60),
        ("2026-03-10 12:01", 60),
        ("2026-03-10 12:01:00.000 UTC", 60),
        ("12:04:31.5Z", 271.5),
        ("12:04:31 UTC", 271),
        ("14:04:31+02:00", 271),
        ("06:34-0530", 240),
    ],
)
def test_every_form_leads_to_its_moment(text: str, after_begin: float) -> None:
    assert resolve(moment(text), CLOCKS) == BOOT + round(after_begin * SECOND)


@pytest.mark.parametrize(
    "text",
    [
        *("", "noon", "25:00", "12:60", "12:00:61", "2026-02-30T12:00:00Z", "+", "-", "+-3s", "1e3", "12:00:00+99:99"),
        *("12:00 XYZ", "12:00 UTCX", "0x10", "٣"),
    ],
)
def test_what_is_no_moment_is_told_with_the_forms(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="12:04:31"):
        moment(text)


@given(st.text(max_size=30) | st.from_regex(r"[-+]?[0-9:.TZUTC +-]{1,30}", fullmatch=True))
def test_any_text_is_a_moment_or_told(text: str) -> None:
    try:
        found = moment(text)
    except argparse.ArgumentTypeError:
        return
    assert isinstance(resolve(found, CLOCKS), int)


@given(st.integers(moments._UNKNOWN // 1_000_000, 4_000_000_000 * 1000 - 1))
def test_what_we_print_can_be_typed_again(milliseconds: int) -> None:
    real = milliseconds * 1_000_000
    assert moment(rfc3339(real)).ns == real
    assert moment(moments.clock(real, dated=True)).ns == real
    assert moment(moments.clock(real)).ns == real % (86_400 * SECOND)


def test_a_time_of_day_that_was_several_times_is_the_last_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve(moment("13:00"), DAYS) == BOOT + (2 * 86_400 + 3_600) * SECOND
    assert "has 13:00 3 times; the last one is taken, 2026-03-12 13:00:00" in capsys.readouterr().err
    resolve(moment("12:04"), CLOCKS)
    assert capsys.readouterr().err == ""


def test_a_time_of_day_outside_is_the_one_nearest_to_the_recording() -> None:
    assert resolve(moment("11:59"), CLOCKS) == BOOT - 60 * SECOND
    assert resolve(moment("12:11"), CLOCKS) == BOOT + 660 * SECOND


def test_times_of_day_are_local(monkeypatch: pytest.MonkeyPatch) -> None:
    zone(monkeypatch, "Asia/Kolkata")
    assert resolve(moment("17:34:31"), CLOCKS) == BOOT + 271 * SECOND
    assert moments.clock(NOON) == "17:30:00.000"
    assert resolve(moment("17:34:31 IST"), CLOCKS) == BOOT + 271 * SECOND  # as reports tell it there
    assert resolve(moment("12:04:31Z"), CLOCKS) == BOOT + 271 * SECOND
    with pytest.raises(argparse.ArgumentTypeError):
        moment("12:04:31 CET")


def test_an_hour_that_comes_twice_is_taken_the_second_time(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zone(monkeypatch, "Europe/Berlin")
    midnight = 1_792_879_200 * SECOND  # 2026-10-25 00:00 in Berlin; at 3:00 the clocks go back to 2:00
    night = Clocks((BOOT, BOOT + 6 * 3600 * SECOND), midnight - BOOT)
    assert resolve(moment("02:30"), night) == BOOT + int(3.5 * 3600) * SECOND
    assert "2 times" in capsys.readouterr().err


def parsed(*argv: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    moments.arguments(parser)
    return parser.parse_args(argv)


@pytest.mark.parametrize(
    ("argv", "begin", "end"),
    [
        ("", 0, 600),
        ("--from -30s", 570, 600),
        ("--from=-30s --to -10s", 570, 590),
        ("--from +10s --for 5s", 10, 15),
        ("--to +10s --for 5s", 5, 10),
        ("--for 5s", 595, 600),
        ("--at 12:05 --for 300ms", 300, 300.3),
        ("--at 12:05", 300, 301),
        ("--from 11:00 --to 12:01", 0, 60),
        ("--from 12:09 --to 13:00", 540, 600),
    ],
)
def test_windows(argv: str, begin: float, end: float) -> None:
    found = moments.window(parsed(*argv.split()), CLOCKS)
    assert found.start - BOOT == pytest.approx(begin * SECOND, abs=1)
    assert found.end - BOOT == pytest.approx(end * SECOND, abs=1)
    assert found.whole == (argv == "")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        ("--at 12:05 --from 12:04", "--at is a window of its own"),
        ("--from +1s --to +2s --for 1s", "one thing too much"),
        ("--from +5s --to +4s", "ends before it begins"),
        ("--at +1s --for 0s", "no window"),
    ],
)
def test_windows_that_cannot_be_meant(argv: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        moments.window(parsed(*argv.split()), CLOCKS)


def test_a_window_outside_is_not_there() -> None:
    says = "is not in the recording, which covers 2026-03-10 12:00:00.000 to 2026-03-10 12:10:00.000 UTC"
    with pytest.raises(ExhumeError, match=says) as raised:
        moments.window(parsed("--from", "13:00", "--to", "13:05"), CLOCKS)
    assert raised.value.exit_code == 3


def test_where_nobody_knows_the_time_of_day_it_is_told_as_dmesg_does() -> None:
    assert moments.clock(12_345_678_000_000, dated=True) == "12345.678"
    assert moment(moments.clock(12_345_678_000_000)).form == "uptime"


@pytest.mark.parametrize(("text", "begin", "end"), [("+0s", 0, 30), ("12:05", 240, 330), ("-0s", 540, 600), ("999.5", 0, 30)])
def test_around_a_moment_is_what_the_recording_has_of_it(text: str, begin: int, end: int) -> None:
    start, until, at = moments.around(moment(text), CLOCKS, 60 * SECOND, 30 * SECOND)
    assert ((start - BOOT) // SECOND, (until - BOOT) // SECOND) == (begin, end)
    assert start <= at < until


@pytest.mark.parametrize("text", ["998", "-11m", "+11m", "11:59:30", "2026-03-11T12:01:00Z"])
def test_a_moment_that_is_not_in_it_is_refused_with_the_zone(text: str) -> None:
    with pytest.raises(ExhumeError, match=r"2026-\S+ \S+ is not in the recording, which covers .* 12:10:00.000 UTC$"):
        moments.around(moment(text), CLOCKS, 60 * SECOND, 30 * SECOND)


def test_a_moment_less_than_a_second_by_nanoseconds_is_told_as_that_second() -> None:
    real = 1_760_000_000 * SECOND - 200
    assert moments.wall(real, "%H:%M:%S") == "08:53:20"
    assert moments.wall(real - SECOND // 2, "%H:%M:%S") == "08:53:19"
    assert moments.clock(real) == "08:53:19.999"
