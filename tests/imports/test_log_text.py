"""Kernel logs as text: what the real dmesg prints of an incident, and syslog files as rsyslog writes them."""

import gzip
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import log_import, log_text
from exhume.imports.incoming import Damaged, Ids, Input, Wanted, memory
from exhume.imports.log_text import LogText
from exhume.imports.log_time import Calendar
from tests.examples import examples

SECOND = 1_000_000_000
PAUSED = (
    "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
RESET = "ena 0000:20:03.0: Device reset completed, status: 0"
HANG = "ixgbe 0000:01:00.0 eth1: Detected Tx Unit Hang"
INCIDENT = f"""\
<5>[    0.000000] Linux version 6.18.44 (somebody@somewhere) #1 SMP
<6>[    0.250000] smp: Brought up 1 node, 96 CPUs
<3>[12345.678901] {PAUSED}
<30>[12345.700000] {PAUSED}
<3>[12346.000001] {RESET}
<3>[12407.000000] {HANG}
  Tx Queue             <7>
  TDH, TDT             <1>, <2>
<6>[12407.100000] docker0: port 3(veth1234567) entered blocking state
"""
KINDS = ["nic-queue-paused", "nic-reset-done", "nic-tx-hang"]
TIMES = [12_345_678_901_000, 12_346_000_001_000, 12_407_000_000_000]

Rows = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local time is that of Berlin, where clocks are put back and forth."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp()) * SECOND  # type: ignore[misc,arg-type]


def read(text: str | bytes, changed: int = 0) -> tuple[LogText, Rows]:
    source = memory(text.encode() if isinstance(text, str) else text, "the log")
    source.changed_ns = changed or at(2026, 11, 16)
    return taken(source)


def taken(source: Input) -> tuple[LogText, Rows]:
    try:
        assert log_text.looks(source.head())
        found = log_text.opened(source, Wanted())
        return found, [row for batch in found.batches(Ids()) for row in batch["events"].rows()]
    finally:
        source.close()


def brief(rows: Rows) -> list[tuple[int, str]]:
    return [(row["time"], row["kind"]) for row in rows]


# What dmesg prints.


def printed(tmp_path: Path, *options: str) -> bytes:
    """By the real dmesg, from a ring buffer that was saved."""
    if shutil.which("dmesg") is None:
        pytest.skip("dmesg of util-linux is not installed")
    (tmp_path / "ring").write_text(INCIDENT)
    done = subprocess.run(["dmesg", "-F", str(tmp_path / "ring"), *options], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this dmesg cannot do {' '.join(options)}: {done.stderr.decode()}")
    return done.stdout


# -x tells the facility, so that the program's line is not believed; the others cannot know.
@pytest.mark.parametrize(
    "options",
    ["", "-x", "-d", "-x -d", "--color=always", "-x --color=always", "--force-prefix"],
)
def test_times_since_boot_are_those_of_the_lines(tmp_path: Path, options: str) -> None:
    log, rows = read(printed(tmp_path, *options.split()))
    told = "-x" in options
    assert (log.axis, log.anchors) == ("boot", [])
    assert brief(rows) == sorted(
        [*zip(TIMES, KINDS, strict=True), *([] if told else [(12_345_700_000_000, "nic-queue-paused")])]
    )
    assert any("written by a program" in note for note in log.notes) == told
    assert (log.node.kernel, log.node.cpus) == ("6.18.44", 96)
    assert rows[0]["message"] == PAUSED
    assert dict(rows[0]["fields"])["napi_age_ms"] == "6596"
    assert [row["subject"] for row in rows[-2:]] == ["eth0", "eth1"]


@pytest.mark.parametrize("decoded", [False, True])
def test_json_of_dmesg_is_read(decoded: bool) -> None:
    objects = []
    for priority, seconds, text in re.findall(r"<(\d+)>\[ *([\d.]+)\] ([^<]+?)\n(?=<|$)", INCIDENT.replace(" <", " \\u003c")):
        level = (
            f'"fac": "{"kern" if int(priority) < 8 else "daemon"}",\n         "pri": "err"' if decoded else f'"pri": {priority}'
        )
        message = text.replace("\n", "\\n")
        objects.append(f'{{\n         {level},\n         "time": {seconds:>12},\n         "msg": "{message}"\n      }}')
    log, rows = read('{\n   "dmesg": [\n      ' + ",".join(objects) + "\n   ]\n}\n")
    assert brief(rows) == list(zip(TIMES, KINDS, strict=True))
    assert dict(rows[-1]["fields"])["queue"] == "7"
    assert log.notes == ["1 line that looks like the kernel's was written by a program: not believed"]
    assert (log.axis, log.node.kernel) == ("boot", "6.18.44")


def test_the_raw_ring_buffer_is_read_as_it_is() -> None:
    log, rows = read(INCIDENT)
    assert brief(rows) == list(zip(TIMES, KINDS, strict=True))
    assert log.notes == ["1 line that looks like the kernel's was written by a program: not believed"]


@pytest.mark.parametrize("options", ["", "-x", "-T"])
def test_the_further_lines_of_a_message_belong_to_it(tmp_path: Path, options: str) -> None:
    _, rows = read(printed(tmp_path, *options.split()))
    assert rows[-1]["message"] == f"{HANG}\n  Tx Queue             <7>\n  TDH, TDT             <1>, <2>"
    assert dict(rows[-1]["fields"])["queue"] == "7"


@pytest.mark.parametrize("options", ["-T", "-x -T", "-T -d", "--time-format iso", "-x --time-format iso", "-H", "-e"])
def test_times_of_day_are_those_that_dmesg_works_out(tmp_path: Path, options: str) -> None:
    text = printed(tmp_path, *options.split())
    log, rows = read(text, time.time_ns() + 86_400 * SECOND)
    assert (log.axis, log.anchors) == ("wall", [])
    rows = [row for row in rows if row["message"] != PAUSED or row is rows[0]]
    assert [row["kind"] for row in rows] == KINDS
    booted = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    # To the second, or with -H to the minute; dmesg itself takes the boot for a whole second.
    coarse = 61 * SECOND if options in ("-H", "-e") else 2 * SECOND
    for row, since in zip(rows, TIMES, strict=True):
        assert abs(row["time"] - booted - since) <= coarse
    assert any("no zone" in note for note in log.notes) == ("iso" not in options)


def test_the_zone_that_iso_times_have_is_heeded_and_the_local_one_taken_where_there_is_none() -> None:
    _, rows = read(f"2026-11-15T12:04:31,123456+05:30 {RESET}\n")
    assert rows[0]["time"] == at(2026, 11, 15, 6, 34, 31) + 123_456_000
    log, rows = read(f"[Sun Nov 15 12:04:31 2026] {RESET}\n")
    assert rows[0]["time"] == at(2026, 11, 15, 11, 4, 31)
    assert log.notes == ["its times of day have no zone: taken as local time here (CET +0100)"]


def test_differences_are_added_up_within_their_minute() -> None:
    log, rows = read(
        f"[Nov 5 12:04] abc\n[  +0.500000] {RESET}\n[ +12.250000] {RESET}\n[Nov 5 12:06] def\n[  +0.000001] {RESET}\n"
    )
    begin = at(2026, 11, 5, 11, 4)
    assert [row["time"] - begin for row in rows] == [500_000_000, 12_750_000_000, 120_000_001_000]
    assert log.axis == "wall"
    assert any("only the minute" in note for note in log.notes)


def test_two_times_on_a_line_tie_the_clocks_together() -> None:
    # util-linux 2.41 prints as many as are asked for
    log, rows = read(
        f"[12345.678901] 2026-11-15T12:04:31,678901+00:00 {PAUSED}\n[Sun Nov 15 13:04:31 2026] [12345.678901] {RESET}\n"
    )
    assert log.axis == "boot"
    assert [row["time"] for row in rows] == [12_345_678_901_000] * 2
    assert log.anchors[0].time == 12_345_678_901_000
    assert abs(log.anchors[0].real - at(2026, 11, 15, 12, 4, 31)) < SECOND
    assert log.anchors[0].sure


@pytest.mark.parametrize("caller", ["[   T42] ", "[C12] ", "[    C0] "])
@pytest.mark.parametrize("space", ["", " "])
def test_the_caller_is_no_part_of_the_message(caller: str, space: str) -> None:
    _, rows = read(f"[12345.678901]{space}{caller}{RESET}\n<3>[12345.678901]{space}{caller}{RESET}\n")
    assert [row["message"] for row in rows] == [RESET, RESET]


def test_a_serial_console_with_other_output_between_is_read() -> None:
    text = f"SeaBIOS (version 1.16)\r\n\r\n[12345.678901] {PAUSED}\r\nnode-7 login: \r\n[12346.000001] {RESET}\r\n"
    _, rows = read(text)
    assert brief(rows) == list(zip(TIMES[:2], KINDS[:2], strict=True))
    assert rows[1]["message"] == RESET


@pytest.mark.parametrize("options", ["-t", "-x -t", "--time-format delta"])
def test_without_times_nothing_can_be_placed_and_a_sentence_says_so(tmp_path: Path, options: str) -> None:
    with pytest.raises(Damaged, match=r"the log has no times from byte 0 on.*nothing in it can be placed; dmesg"):
        read(printed(tmp_path, *options.split()))


def test_a_clock_that_goes_back_is_kept_as_it_says_and_told() -> None:
    log, rows = read(f"[5000.000000] {RESET}\n[  10.000000] {RESET}\n")
    assert [row["time"] for row in rows] == [5000 * SECOND, 10 * SECOND]
    assert any("goes back" in note for note in log.notes)


def test_the_log_of_this_machine_has_the_same_events_raw_and_as_json() -> None:
    done = subprocess.run(["dmesg", "-r"], capture_output=True, check=False)
    if done.returncode or not done.stdout.strip():
        pytest.skip(f"dmesg has nothing here: {done.stderr.decode()}")
    raw, events = read(done.stdout)
    json, more = read(subprocess.run(["dmesg", "-J"], capture_output=True, check=True).stdout)
    assert raw.axis == json.axis == "boot"
    # The ring buffer goes on meanwhile: what it still has and had already is the same.
    first, last = (more[0]["time"] if more else 0), (events[-1]["time"] if events else 0)
    assert [row for row in events if row["time"] >= first] == [row for row in more if row["time"] <= last]
    if b"Linux version" in done.stdout[:200]:
        assert raw.node.kernel == json.node.kernel == os.uname().release


# Syslog files.


def test_both_clocks_on_a_line_of_syslog_are_an_anchor_and_times_are_the_kernels() -> None:
    log, rows = read(
        f"Nov 15 12:04:31 node-7 kernel: [12345.678901] {PAUSED}\n"
        f"Nov 15 12:04:31 node-7 containerd[77]: {PAUSED}\n"
        f"Nov 15 12:04:32 node-7 kernel: [12346.000001] {RESET}\n"
        f"Nov 15 12:04:32 node-7 kernel: [12346.900000] docker0: port 3 entered blocking state\n"
    )
    assert (log.axis, log.node.hostname) == ("boot", "node-7")
    assert brief(rows) == list(zip(TIMES[:2], KINDS[:2], strict=True))
    (anchor,) = log.anchors
    assert (anchor.sure, anchor.how) == (True, "the log has both clocks")
    # Every line is then within the second that it says.
    for since, second in ((12_345_678_901_000, 31), (12_346_000_001_000, 32), (12_346_900_000_000, 32)):
        assert 0 <= anchor.real - anchor.time + since - at(2026, 11, 15, 11, 4, second) < SECOND


def test_a_line_that_was_received_late_does_not_move_the_anchor() -> None:
    early = "".join(f"2026-11-15T12:00:30.000000+00:00 n kernel: [{at:5}.000000] early\n" for at in range(20))
    log, _ = read(early + f"2026-11-15T12:01:00.000005+00:00 n kernel: [   59.000000] {RESET}\n")
    assert log.anchors[0].real - log.anchors[0].time == at(2026, 11, 15, 12, 0, 1) + 5_000


def test_a_clock_that_was_set_is_taken_as_it_is_since() -> None:
    early = "".join(f"2026-11-15T12:00:{second:02}.000000+00:00 n kernel: [{second:5}.000000] early\n" for second in range(20))
    late = "".join(
        f"2026-11-15T12:15:{second:02}.000000+00:00 n kernel: [{600 + second:5}.000000] {RESET}\n" for second in (0, 9)
    )
    log, rows = read(early + late)
    assert (log.axis, log.notes) == ("boot", [])
    assert [log.anchors[0].real - log.anchors[0].time + row["time"] for row in rows] == [
        at(2026, 11, 15, 12, 15, second) for second in (0, 9)
    ]


def test_clocks_that_drift_apart_are_tied_together_by_the_last_lines() -> None:
    day, drift = 86_400, 3.5  # 40 in a million
    booted = at(2026, 9, 1) // SECOND
    moments = [
        datetime.fromtimestamp(booted + days * (day + drift), UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") for days in range(61)
    ]
    log, _ = read("".join(f"{when}+00:00 n kernel: [{days * day:5}.000000] {RESET}\n" for days, when in enumerate(moments)))
    assert log.axis == "boot"
    assert log.anchors[0].real - log.anchors[0].time == (booted + 210) * SECOND


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ("Nov 15 12:04:31 n kernel: ", at(2026, 11, 15, 11, 4, 31)),
        ("Nov  5 12:04:31 n kernel: ", at(2026, 11, 5, 11, 4, 31)),
        ("Nov 15 12:04:31.123456 n kernel: ", at(2026, 11, 15, 11, 4, 31) + 123_456_000),
        ("<3>Nov 15 12:04:31 n kernel: ", at(2026, 11, 15, 11, 4, 31)),
        ("2026-11-15T12:04:31.123456+00:00 n kernel: ", at(2026, 11, 15, 12, 4, 31) + 123_456_000),
        ("2026-11-15T12:04:31Z n kernel: ", at(2026, 11, 15, 12, 4, 31)),
        ("2026-11-15T12:04:31-0800 n kernel: ", at(2026, 11, 15, 20, 4, 31)),
        ("<3>1 2026-11-15T12:04:31.5+00:00 n kernel - - - ", at(2026, 11, 15, 12, 4, 31) + 500_000_000),
        ('<3>1 2026-11-15T12:04:31+00:00 n kernel - - [meta sequenceId="1"] ', at(2026, 11, 15, 12, 4, 31)),
        ("<3>1 2026-11-15T12:04:31+00:00 n kernel - - - \ufeff", at(2026, 11, 15, 12, 4, 31)),
        ('<3>1 2026-11-15T12:04:31+00:00 n kernel - - [meta sequenceId="1"] \ufeff', at(2026, 11, 15, 12, 4, 31)),
        ("Nov 15 12:04:31 n kern.err kernel: ", at(2026, 11, 15, 11, 4, 31)),
        ("2026-11-15T12:04:31.123456+00:00 n kern.emerg kernel: ", at(2026, 11, 15, 12, 4, 31) + 123_456_000),
        ("Sun 2026-11-15 12:04:31 UTC n kernel: ", at(2026, 11, 15, 12, 4, 31)),
        ("Sun 2026-11-15 12:04:31 CET n kernel: ", at(2026, 11, 15, 11, 4, 31)),
        ("1794743071.000001 n kernel: ", 1_794_743_071 * SECOND + 1000),
    ],
)
def test_every_form_of_a_date_is_read(begin: str, expected: int) -> None:
    log, rows = read(f"{begin}{RESET}\n")
    assert (log.axis, log.node.hostname) == ("wall", "n")
    assert [(row["time"], row["message"]) for row in rows] == [(expected, RESET)]


@pytest.mark.parametrize(
    ("begin", "host"),
    [("Nov 15 12:{} alpine", "alpine"), ("2026-11-15T12:{}+01:00 alpine", "alpine"), ("Sun Nov 15 12:{} 2026", "")],
)
def test_logs_of_busybox_and_openwrt_have_both_clocks_and_tell_who_wrote_a_line(begin: str, host: str) -> None:
    log, rows = read(
        f"{begin.format('04:31')} kern.err kernel: [12345.678901] {PAUSED}\n"
        f"{begin.format('04:31')} daemon.info crond[77]: {PAUSED}\n"
        f"{begin.format('04:31')} user.notice kernel: [12345.700000] {PAUSED}\n"
        f"{begin.format('04:32')} kern.warn kernel: [12346.000001] {RESET}\n"
    )
    assert (log.axis, log.node.hostname) == ("boot", host)
    assert brief(rows) == list(zip(TIMES[:2], KINDS[:2], strict=True))
    assert abs(log.anchors[0].real - log.anchors[0].time + TIMES[0] - at(2026, 11, 15, 11, 4, 31)) < SECOND
    assert any("1 line that looks like the kernel's was written by a program" in note for note in log.notes)
    assert not any("other machines" in note for note in log.notes)


def test_a_date_with_a_weekday_and_no_level_is_no_log_of_openwrt() -> None:
    assert not log_text.looks(b"Sun Nov 15 12:04:31 2026 TLS: Initial packet\n" * 3)


def test_what_journalctl_prints_with_the_clock_since_boot_is_read() -> None:
    log, rows = read(
        f"[12345.678901] node-7 kernel: {PAUSED}\n"
        f"[12345.700000] node-7 sshd[9]: {PAUSED}\n"
        f"[12346.000001] node-7 kernel: {RESET}\n"
    )
    assert (log.axis, log.node.hostname) == ("boot", "node-7")
    assert brief(rows) == list(zip(TIMES[:2], KINDS[:2], strict=True))


@pytest.mark.parametrize(("changed", "year"), [(at(2027, 1, 2), 2026), (at(2026, 12, 1), 2025), (at(2031, 6, 1), 2030)])
def test_the_year_is_the_last_in_which_nothing_is_in_the_future(changed: int, year: int) -> None:
    log, rows = read(f"Dec 31 23:00:00 n kernel: {RESET}\nJan  1 23:00:00 n kernel: {RESET}\n", changed)
    assert [row["time"] for row in rows] == [at(year, 12, 31, 22), at(year + 1, 1, 1, 22)]
    assert any("no year" in note for note in log.notes)


def test_a_leap_day_is_found_in_the_year_that_has_it() -> None:
    _, rows = read(f"Feb 29 12:00:00 n kernel: {RESET}\nFeb 30 12:00:00 n kernel: {RESET}\n", at(2026, 11, 16))
    assert [row["time"] for row in rows] == [at(2024, 2, 29, 11)]


def test_of_two_moments_with_one_name_the_earlier_is_taken_and_one_that_never_was_is_no_error() -> None:
    _, rows = read(f"[Sun Oct 25 02:30:00 2026] {RESET}\n[Sun Mar 29 02:30:00 2026] {RESET}\n")
    assert [row["time"] for row in rows] == [at(2026, 10, 25, 0, 30), at(2026, 3, 29, 1, 30)]


PUT_BACK = (
    f"Oct 25 01:30:00 n kernel: [ 1000.000000] {RESET}\n",
    f"Oct 25 02:30:00 n kernel: [ 4600.000000] {RESET}\n",
    f"Oct 25 02:30:00 n kernel: [ 8200.000000] {RESET}\n",
    f"Oct 25 03:30:00 n kernel: [11800.000000] {RESET}\n",
)


@pytest.mark.parametrize("lines", [PUT_BACK, PUT_BACK[:3], PUT_BACK[1:], PUT_BACK[2:], PUT_BACK[1:3], PUT_BACK[:2]])
def test_where_clocks_are_put_back_the_time_since_boot_tells_which_of_two_moments_it_was(lines: tuple[str, ...]) -> None:
    log, rows = read("".join(lines))
    assert log.axis == "boot"
    expected = [int(re.search(r"\[ *(\d+)", line)[1]) * SECOND for line in lines]  # type: ignore[index]
    assert [row["time"] for row in rows] == expected
    assert not any("boot" in note for note in log.notes)
    if lines != PUT_BACK[1:3]:  # of two that have two moments each nobody can tell
        assert 0 <= log.anchors[0].real - log.anchors[0].time - at(2026, 10, 24, 23, 13, 20) < SECOND


@pytest.mark.parametrize(("named", "hour"), [("CEST", 0), ("CET", 1), ("UTC", 2)])
def test_the_name_of_the_zone_tells_which_of_two_moments_it_was(named: str, hour: int) -> None:
    log, rows = read(f"Sun 2026-10-25 02:30:00 {named} n kernel: {RESET}\n")
    assert [row["time"] for row in rows] == [at(2026, 10, 25, hour, 30)]
    assert log.notes == []


def test_a_zone_that_is_not_known_here_is_told() -> None:
    log, rows = read(f"Sun 2026-11-15 12:04:31 EST n kernel: {RESET}\n")
    assert [row["time"] for row in rows] == [at(2026, 11, 15, 11, 4, 31)]
    assert log.notes == ["its times of day are of a zone that is not known here, EST: taken as local time (CET +0100)"]


def test_lines_of_other_machines_are_passed_over_and_told() -> None:
    line = "Nov 15 12:04:{:02} {} kernel: {}\n".format
    log, rows = read(
        line(1, "localhost", RESET) + line(2, "node-8", RESET) + line(3, "node-7.example", RESET) + line(4, "node-7", RESET)
    )
    assert [row["time"] for row in rows] == [at(2026, 11, 15, 11, 4, second) for second in (1, 3, 4)]
    assert any("1 line of other machines than node-7: passed over (node-8)" in note for note in log.notes)


def two_boots(quiet: int) -> str:
    chatter = "2026-11-15T12:00:00.000000+00:00 n kubelet[1]: nothing to see in this line\n" * quiet
    return (
        f"{chatter if quiet > 10_000 else ''}2026-11-15T10:00:00.000000+00:00 n kernel: [90000.000000] {RESET}\n{chatter}"
        f"2026-11-15T12:00:10.000000+00:00 n kernel: [   10.000000] Linux version 6.1\n"
        f"2026-11-15T13:00:00.250000+00:00 n kernel: [ 3600.250000] {RESET}\n{chatter}"
    )


@pytest.mark.parametrize("quiet", [0, 1000, 30_000])
@pytest.mark.parametrize("packed", [False, True])
def test_with_two_boots_all_is_on_the_wall_clock_and_the_anchor_is_of_the_last(
    tmp_path: Path, quiet: int, packed: bool
) -> None:
    data = two_boots(quiet).encode()
    (tmp_path / "syslog").write_bytes(gzip.compress(data, 1) if packed else data)
    log, rows = taken(Input(str(tmp_path / "syslog")))
    assert log.axis == "wall"
    assert [row["time"] for row in rows] == [at(2026, 11, 15, 10), at(2026, 11, 15, 13) + 250_000_000]
    assert log.anchors[0].real - log.anchors[0].time == at(2026, 11, 15, 12)
    assert any("more than one boot" in note for note in log.notes)


def test_a_pipe_with_two_boots_places_the_second_by_the_time_of_day(tmp_path: Path) -> None:
    (tmp_path / "syslog").write_text(two_boots(2000))
    with subprocess.Popen(["cat", str(tmp_path / "syslog")], stdout=subprocess.PIPE) as cat:
        assert cat.stdout is not None
        log, rows = taken(Input(f"/proc/self/fd/{cat.stdout.fileno()}"))
    assert log.axis == "boot"
    assert [row["time"] for row in rows] == [90_000 * SECOND, 90_000 * SECOND + 3 * 3600 * SECOND + 250_000_000]
    assert any("1 line is of another boot" in note for note in log.notes)


def test_tabs_that_rsyslog_escapes_are_tabs_again() -> None:
    stalled = "18-....: (21000 ticks this GP) idle=1"
    expected = read(f"[1.000000] \t{stalled}\n")[1]
    assert [row["subject"] for row in expected] == ["cpu18"]
    assert read(f"Nov 15 12:04:31 n kernel: [    1.000000] #011{stalled}\n")[1] == expected


def test_a_syslog_without_a_line_of_the_kernel_is_read_and_has_nothing() -> None:
    log, rows = read("Nov 15 12:04:31 node-7 sshd[1]: hello\n" * 3)
    assert (rows, log.axis, log.node.hostname) == ([], "wall", "node-7")


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"PERFILE2" + bytes(100),
        b"swapper     0 [000] 12345.678901:     250000 cpu-clock:\n\tffffffff8100 native_safe_halt ([kernel.kallsyms])\n",
        b"kubelet;entry_SYSCALL_64;vfs_read 12\nswapper;default_idle 400\n",
        b'{"_BOOT_ID":"ece743f29a484081a1b2aa3922164cbe"}\n',
        b"[drm] Initialized\nhello world\n",
    ],
)
def test_other_files_are_not_taken_for_logs(head: bytes) -> None:
    assert not log_text.looks(head)


@pytest.mark.ci
def test_batches_are_bounded_however_many_lines_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_import, "_MOST_LINES", 1000)
    source = memory(f"[   12.000000] {RESET}\n".encode() * 60_000)
    sizes = [len(batch["events"]) for batch in log_text.opened(source, Wanted()).batches(Ids())]
    source.close()
    assert sum(sizes) == 60_000
    assert max(sizes) < 20_000


def test_a_line_without_end_is_cut_and_told() -> None:
    log, rows = read(f"[    1.000000] {RESET}\n".encode() + b"x" * (5 << 20) + f"\n[    2.000000] {RESET}\n".encode())
    assert [row["time"] for row in rows] == [SECOND, 2 * SECOND]
    assert any("too long" in note for note in log.notes)


def test_what_gzip_packed_and_broke_is_taken_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gzip.compress(b"".join(b"[%5d.%06d] %b\n" % (at, at * 7919 % 10**6, RESET.encode()) for at in range(1, 20_000)))
    (tmp_path / "dmesg.gz").write_bytes(whole[:-8] + bytes(8))  # the checksum
    log, rows = taken(Input(str(tmp_path / "dmesg.gz")))
    assert 0 < len(rows) < 20_000
    assert any(re.search(r"not whole.*byte \d+.*what came before it was taken", note) for note in log.notes)


# Hostile input.

PIECES = st.sampled_from(
    [
        *INCIDENT.encode().splitlines(keepends=True),
        *two_boots(0).encode().splitlines(keepends=True),
        f"[Nov15 12:04] {RESET}\n".encode(),
        f"[  +0.005000] {RESET}\n".encode(),
        f"[Sun Nov 15 12:04:31 2026 <    0.000001>] {RESET}\n".encode(),
        f"[999999999.999999999] {RESET}\n".encode(),
        f"9999-12-31T23:59:60,123456+99:99 {RESET}\n".encode(),
        f"0001-01-01T00:00:00 h kernel: {RESET}\n".encode(),
        f"Feb 29 24:61:61 h kernel: [1.1] {RESET}\n".encode(),
        f"9999999999.000000 h kernel: {RESET}\n".encode(),
        b'{\n   "dmesg": [\n      {\n         "pri": 5,\n',
        b'         "time":     0.000000,\n',
        b'         "msg": "hrtimer: interrupt took \\ud800 ns"\n',
        f"<3>1 2026-11-15T12:04:31+00:00 n kernel - - - \ufeff[    1.000000] {RESET}\n".encode(),
        f"Nov 15 12:04:31 h kern.emerg kernel: [    1.000000] {RESET}\n".encode(),
        f"Sun Nov 15 12:04:31 2026 kern.emerg kernel: [    1.000000] {RESET}\n".encode(),
        f"Sun Feb 30 12:04:31 9999 user.err kernel: {RESET}\n".encode(),
        *(line.encode() for line in PUT_BACK),
        f"Sun 2026-10-25 02:30:00 CET n kernel: {RESET}\n".encode(),
        f"Thu 1970-01-01 00:00:00 ABCDE n kernel: [999999999.999999999] {RESET}\n".encode(),
        b"\n",
        b" kernel",
        b"\x00\xff\x1b[31m",
    ]
)


@settings(max_examples=examples(600))
@given(st.lists(st.one_of(PIECES, st.binary(max_size=40)), max_size=12), st.data())
def test_no_text_makes_it_fail_but_by_a_sentence(pieces: list[bytes], data: st.DataObject) -> None:
    text = bytearray(b"".join(pieces))
    for _ in range(data.draw(st.integers(0, 3))):
        if text:
            where = data.draw(st.integers(0, len(text) - 1))
            text[where : where + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    log_text.looks(bytes(text))
    source, told = memory(bytes(text)), "byte"
    try:
        for batch in log_text.opened(source, Wanted()).batches(Ids()):
            events = batch["events"]
            assert "".join(events.texts("message")).encode()
            assert len(events.ints("time")) == len(events.texts("kind"))
    except ExhumeError as error:
        told = str(error)
    finally:
        source.close()
    assert "byte" in told


@settings(max_examples=examples(300))
@given(st.integers(at(1971, 1, 1) // SECOND, at(2190, 1, 1) // SECOND), st.integers(0, 999_999))
def test_every_moment_is_read_back_from_how_it_is_written(second: int, fraction: int) -> None:
    calendar = Calendar(0)
    moment = datetime.fromtimestamp(second, UTC)
    clock = moment.strftime("%H:%M:%S").encode()
    written = calendar.dated(moment.year, moment.month, moment.day, clock, b"%06d" % fraction, b"Z")
    assert written == second * SECOND + fraction * 1000
    latest = Calendar(second * SECOND)
    local = datetime.fromtimestamp(second)
    found = latest.undated(local.month, local.day, local.strftime("%H:%M:%S").encode())
    assert found in (second * SECOND, (second - 3600) * SECOND)
