"""The journal as JSON: of a real journald that reads this machine's kernel log, and as other nodes have it."""

import gzip
import json
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import journal, log_text
from exhume.imports.incoming import Damaged, Ids, Input, Wanted, memory
from exhume.imports.journal import Journal
from tests.examples import examples

SECOND = 1_000_000_000
FIRST, LAST = "a" * 32, "0123456789abcdef" * 2
BOOTED = 1_794_700_000 * 1_000_000
PAUSED = (
    "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
    "Time since last napi 6596000 usec. napi scheduled: 1"
)
RESET = "ena 0000:20:03.0: Device reset completed, status: 0"

Rows = list[dict[str, Any]]


def entry(usec: int, message: object, late: int = 0, booted: int = BOOTED, **fields: object) -> dict[str, object]:
    """Of the kernel, read `late` microseconds after it was printed."""
    return {
        "__CURSOR": "s=1",
        "__REALTIME_TIMESTAMP": str(booted + usec + late),
        "__MONOTONIC_TIMESTAMP": str(usec + late),
        "_BOOT_ID": LAST,
        "_HOSTNAME": "node-7",
        "_TRANSPORT": "kernel",
        "SYSLOG_FACILITY": "0",
        "SYSLOG_IDENTIFIER": "kernel",
        "_SOURCE_MONOTONIC_TIMESTAMP": str(usec),
        "MESSAGE": message,
        **fields,
    }


def lines(*entries: dict[str, object], before: str = "") -> bytes:
    return "".join(f"{before}{json.dumps(one, separators=(',', ':'))}\n" for one in entries).encode()


INCIDENT = (
    entry(12_345_678_901, PAUSED, late=40),
    entry(12_345_700_000, PAUSED, SYSLOG_FACILITY="3"),
    entry(12_345_800_000, PAUSED, _TRANSPORT="stdout", SYSLOG_IDENTIFIER="kernel"),
    entry(12_346_000_001, RESET, late=25),
    entry(12_350_000_000, "Started something.", _TRANSPORT="journal", SYSLOG_IDENTIFIER="systemd"),
)
EVENTS = [(12_345_678_901_000, "nic-queue-paused", "eth0"), (12_346_000_001_000, "nic-reset-done", "eth0")]


def taken(source: Input) -> tuple[Journal, Rows]:
    try:
        assert journal.looks(source.head())
        found = journal.opened(source, Wanted())
        return found, [row for batch in found.batches(Ids()) for row in batch["events"].rows()]
    finally:
        source.close()


def read(data: bytes) -> tuple[Journal, Rows]:
    return taken(memory(data, "the journal"))


def brief(rows: Rows) -> list[tuple[int, str, str]]:
    return [(row["time"], row["kind"], row["subject"]) for row in rows]


def test_what_the_kernel_said_is_at_the_time_that_printk_gave_it_and_nobody_else_is_believed() -> None:
    log, rows = read(lines(*INCIDENT))
    assert brief(rows) == EVENTS
    assert rows[0]["message"] == PAUSED
    assert (log.axis, log.node.hostname) == ("boot", "node-7")
    assert log.node.boot_id == "01234567-89ab-cdef-0123-456789abcdef"
    assert log.notes == ["1 line that looks like the kernel's was written by a program: not believed"]


def test_the_anchor_is_by_the_entry_that_was_read_soonest() -> None:
    log, _ = read(lines(*INCIDENT))
    (anchor,) = log.anchors
    assert (anchor.sure, anchor.how) == (True, "the journal has both clocks")
    assert anchor.real - anchor.time == (BOOTED + 0) * 1000


def test_a_journald_that_was_started_late_does_not_move_the_anchor() -> None:
    log, rows = read(
        lines(entry(1_000_000, "Linux version 6.1", late=9_000_000_000), entry(2_000_000, RESET, late=9_000_000_000))
    )
    assert log.anchors[0].real - log.anchors[0].time == BOOTED * 1000
    assert [row["time"] for row in rows] == [2 * SECOND]


HOURS = 7200 * 1_000_000


@pytest.mark.parametrize("step", [HOURS, 30 * 1_000_000, -HOURS])
@pytest.mark.parametrize("of_kernel", [True, False])
def test_a_clock_that_was_set_is_taken_as_it_is_since(step: int, of_kernel: bool) -> None:
    since = entry(600_000_000, RESET) if of_kernel else entry(600_000_000, "Hello", _TRANSPORT="journal")
    early = (entry(1_500_000, "Linux version 6.1", booted=BOOTED - step), entry(3_000_000, RESET, booted=BOOTED - step))
    log, _ = read(lines(*early, since))
    assert log.anchors[0].real - log.anchors[0].time == BOOTED * 1000


@pytest.mark.parametrize("before", ["\x1e", "data: "])
def test_the_other_forms_with_one_entry_a_line_are_read(before: str) -> None:
    assert brief(read(lines(*INCIDENT, before=before))[1]) == EVENTS


def test_gzip_is_read(tmp_path: Path) -> None:
    (tmp_path / "journal.gz").write_bytes(gzip.compress(lines(*INCIDENT)))
    log, rows = taken(Input(str(tmp_path / "journal.gz")))
    assert brief(rows) == EVENTS
    assert log.node.boot_id.startswith("01234567")


@pytest.mark.parametrize(
    "value",
    [RESET, list(RESET.encode()), [RESET, "again"], [list(RESET.encode()), list(b"again")]],
    ids=["text", "bytes", "several", "several, of bytes"],
)
def test_a_message_is_text_or_bytes_once_or_several_times(value: object) -> None:
    assert [row["message"] for row in read(lines(entry(1, value)))[1]] == [RESET]


def test_bytes_that_are_no_text_stay_visible() -> None:
    message = b"INFO: task a\xff:14597 blocked for more than 483 seconds."
    _, rows = read(lines(entry(1, list(message))))
    assert [(row["kind"], row["subject"]) for row in rows] == [("hung-task", "a\\xff")]


def test_a_message_that_journalctl_left_out_is_told() -> None:
    log, rows = read(lines(entry(1, None), entry(2, RESET)))
    assert len(rows) == 1
    assert any("without --all" in note for note in log.notes)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_of_several_boots_the_last_is_taken_and_the_others_are_told(
    tmp_path: Path, backwards: bool, pack: Callable[[bytes], bytes]
) -> None:
    before = BOOTED - 86_400_000_000
    many = [entry(5_000_000_000 + at, RESET, booted=before, _BOOT_ID=FIRST) for at in range(300)]
    entries = [*many, *INCIDENT]
    (tmp_path / "journal").write_bytes(pack(lines(*reversed(entries) if backwards else entries)))
    log, rows = taken(Input(str(tmp_path / "journal")))
    assert sorted((row["time"], row["kind"]) for row in rows) == [(when, kind) for when, kind, _ in EVENTS]
    assert log.node.boot_id.startswith("01234567")
    assert log.anchors[0].real - log.anchors[0].time == BOOTED * 1000
    assert any(
        f"only the last boot was taken, {LAST}; 300 entries are of 1 other: --boot takes" in note and FIRST in note
        for note in log.notes
    )


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("asked", ["-1", FIRST, "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"])
def test_another_boot_can_be_asked_for(tmp_path: Path, backwards: bool, pack: Callable[[bytes], bytes], asked: str) -> None:
    before = BOOTED - 86_400_000_000
    entries = [
        entry(7_000_000, RESET, booted=before - 9 * 10**9, _BOOT_ID="b" * 32),
        *(entry(5_000_000_000 + at, RESET, booted=before, _BOOT_ID=FIRST, _HOSTNAME="old") for at in range(30)),
        *INCIDENT,
    ]
    path = tmp_path / "journal"
    path.write_bytes(pack(lines(*reversed(entries) if backwards else entries)))
    with closing(Input(str(path))) as source:
        log = journal.opened(source, Wanted(boot=asked))
        rows = [row for batch in log.batches(Ids()) for row in batch["events"].rows()]
    assert len(rows) == 30
    assert (log.node.boot_id.replace("-", ""), log.node.hostname) == (FIRST, "old")
    assert log.anchors[0].real - log.anchors[0].time == before * 1000
    assert any(f"only that boot was taken, {FIRST}; 6 entries are of 2 others" in note for note in log.notes)


@pytest.mark.parametrize("asked", ["-3", "c" * 32])
def test_a_boot_that_is_not_there_is_an_error_that_names_those_that_are(asked: str) -> None:
    text = lines(entry(5, RESET, _BOOT_ID=FIRST), *INCIDENT)
    with closing(memory(text, "j")) as source, pytest.raises(ExhumeError, match=f"j has no boot {asked}: it has 2, .*{LAST}"):
        journal.opened(source, Wanted(boot=asked))


def test_of_a_pipe_a_boot_can_be_named_but_not_counted() -> None:
    text = lines(entry(5_000_000, RESET, _BOOT_ID=FIRST), *INCIDENT)
    for asked in (FIRST, "-1"):
        end, begin = os.pipe()
        os.write(begin, text)
        os.close(begin)
        with closing(Input(f"/proc/self/fd/{end}")) as source:
            os.close(end)
            if asked == "-1":
                with pytest.raises(ExhumeError, match="a pipe, of which only the first boot is known"):
                    journal.opened(source, Wanted(boot=asked))
                continue
            log = journal.opened(source, Wanted(boot=asked))
            assert sum(len(batch["events"]) for batch in log.batches(Ids())) == 1
            assert log.anchors


def test_a_line_that_is_not_whole_is_told_with_its_place() -> None:
    first, second = lines(INCIDENT[0]), lines(INCIDENT[3])
    log, rows = read(first + second[:-30] + b"\n" + second)
    assert brief(rows) == EVENTS
    assert f"1 line is not whole, the first at byte {len(first):,}" in log.notes


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (json.dumps(INCIDENT[0], indent="\t").encode(), "the journal is what journalctl -o json-pretty prints, from byte 0 on"),
        (b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1\n", "the journal is what journalctl -o export prints, from byte 0 on"),
        (lines(entry(1, RESET))[:100], "no line of it is whole from byte 0 on"),
        (
            lines({"__CURSOR": "s", "_BOOT_ID": LAST, "MESSAGE": RESET}),
            r"no _TRANSPORT from byte 0 on.*without --output-fields",
        ),
    ],
)
def test_what_cannot_be_read_is_refused_by_a_sentence(data: bytes, sentence: str) -> None:
    with pytest.raises(Damaged, match=sentence):
        read(data)


@pytest.mark.parametrize(
    "head", [b"", b"{}", b'{"dmesg": [', b'{"a": "__CURSOR"}', b"[    0.000000] Linux version", b"PERFILE2"]
)
def test_other_files_are_not_taken_for_a_journal(head: bytes) -> None:
    assert not journal.looks(head)


# A real one.

SCRIPT = """
mount -t tmpfs exhume-test /run && mkdir -p /run/systemd/journal /run/log/journal || exit 9
/lib/systemd/systemd-journald >/dev/null 2>&1 & daemon=$!
before=-1
for try in $(seq 100); do
    sleep 0.1
    now=$(journalctl -D /run/log/journal -q --no-pager -o cat 2>/dev/null | wc -l)
    [ "$now" -gt 0 ] && [ "$now" = "$before" ] && break
    before=$now
done
kill -KILL $daemon; wait $daemon
for form in json json-seq short-monotonic short-iso-precise; do
    journalctl -D /run/log/journal -q --no-pager -o $form >"$1/$form"
done
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes]:
    """What journalctl prints of the journal that a journald of our own, seen by nobody else, makes of the kernel log."""
    if os.geteuid() or not os.path.exists("/lib/systemd/systemd-journald"):
        pytest.skip("needs root, and systemd-journald")
    if not os.path.exists("/etc/machine-id") or not os.path.getsize("/etc/machine-id"):
        pytest.skip("systemd-journald needs an /etc/machine-id")
    place = tmp_path_factory.mktemp("journal")
    ring = subprocess.run(["dmesg", "-x"], capture_output=True, check=False).stdout
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", SCRIPT, "sh", str(place)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=300)
    if done.returncode or not (place / "json").exists() or not (place / "json").stat().st_size:
        pytest.skip(f"systemd-journald does not run here: {done.stderr.decode(errors='replace')[-200:]}")
    return place, ring


@pytest.mark.parametrize("form", ["json", "json-seq"])
def test_a_real_journal_has_the_events_of_dmesg_at_the_same_times(printed: tuple[Path, bytes], form: str) -> None:
    place, ring = printed
    log, rows = taken(Input(str(place / form)))
    with open("/proc/sys/kernel/random/boot_id") as file:
        assert log.node.boot_id == file.read().strip()
    assert log.node.hostname == os.uname().nodename
    source = memory(ring)
    expected = [row for batch in log_text.opened(source, Wanted()).batches(Ids()) for row in batch["events"].rows()]
    source.close()
    assert [row for row in rows if not expected or row["time"] <= expected[-1]["time"]] == expected
    (anchor,) = log.anchors
    booted = time.time_ns() - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert abs(anchor.real - anchor.time - booted) < 60 * SECOND


def test_the_text_of_a_real_journal_has_them_too(printed: tuple[Path, bytes]) -> None:
    place, _ = printed
    _, rows = taken(Input(str(place / "json")))
    for form in ("short-monotonic", "short-iso-precise"):
        source = Input(str(place / form))
        log = log_text.opened(source, Wanted())
        found = [row for batch in log.batches(Ids()) for row in batch["events"].rows()]
        source.close()
        assert log.node.hostname == os.uname().nodename
        assert log.axis == ("boot" if form == "short-monotonic" else "wall")
        # Text does not tell what a program wrote to /dev/kmsg under a name of its own, and never under that of the kernel.
        assert [row["message"] for row in found] == [row["message"] for row in rows]
        if log.axis == "boot":
            assert [row["time"] for row in found] == [row["time"] for row in rows]


# Hostile input.

VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["kernel", "0", LAST, RESET]),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=6,
)
NAMES = st.sampled_from(list(INCIDENT[0]))


@settings(max_examples=examples(500))
@given(
    st.lists(st.tuples(st.sampled_from(INCIDENT), st.dictionaries(NAMES, VALUES, max_size=3)), max_size=6),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3), st.binary(max_size=3)), max_size=3),
)
def test_no_journal_makes_it_fail_but_by_a_sentence(
    entries: list[tuple[dict[str, object], dict[str, object]]], changes: list[tuple[int, int, bytes]]
) -> None:
    data = bytearray(lines(*({**one, **other} for one, other in entries)))
    for where, length, other in changes:
        data[where : where + length] = other
    journal.looks(bytes(data))
    source, told = memory(bytes(data)), "byte"
    try:
        for batch in journal.opened(source, Wanted()).batches(Ids()):
            assert "".join(batch["events"].texts("message")).encode()
    except ExhumeError as error:
        told = str(error)
    finally:
        source.close()
    assert "byte" in told


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 60_000,
        b'{"a":' * 10_000,
        b'{"__CURSOR":' + b"9" * 50_000 + b"}",
        b'{"_BOOT_ID":"\\ud800","_TRANSPORT":"kernel","MESSAGE":"ena \\udfff"}',
    ],
)
def test_lines_that_choke_parsers_are_passed_over(line: bytes) -> None:
    _, rows = read(lines(INCIDENT[0]) + line.replace(b"}", b'"kernel"}', 0) + b'"kernel"\n' + lines(INCIDENT[3]))
    assert brief(rows) == EVENTS


def unit_entry(usec: int, message_id: str, unit: str = "agent.service", **fields: object) -> dict[str, object]:
    """As PID 1 writes it."""
    said = {"_TRANSPORT": "journal", "SYSLOG_IDENTIFIER": "systemd", "_PID": "1", "MESSAGE_ID": message_id, "UNIT": unit}
    return {**entry(usec, f"{unit}: something"), **said, **fields}


RESTART, EXITED, FAILED = (
    "5eb03494b6584870a536b337290809b3", "98e322203f7a4ed290d09fe03c09fe15", "d9b373ed55a64feb8242e02dbe79a49c"
)  # fmt: skip


def test_what_systemd_says_of_its_units_is_taken_by_its_message_id() -> None:
    _, rows = read(
        lines(
            unit_entry(1_000_000, EXITED, EXIT_CODE="exited", EXIT_STATUS="5"),
            unit_entry(1_100_000, FAILED, UNIT_RESULT="exit-code"),
            unit_entry(11_000_000, RESTART, N_RESTARTS="17"),
        )
    )
    assert brief(rows) == [
        (1_000_000_000, "unit-exited", "agent.service"),
        (1_100_000_000, "unit-failed", "agent.service"),
        (11_000_000_000, "unit-restart", "agent.service"),
    ]
    assert [dict(row["fields"]) for row in rows] == [
        {"code": "exited", "status": "5"},
        {"result": "exit-code"},
        {"restarts": "17"},
    ]


def test_only_pid_1_is_believed_about_units() -> None:
    forged = unit_entry(1_000_000, RESTART, _PID="4711", N_RESTARTS="99")
    users = unit_entry(1_000_000, RESTART, UNIT="", USER_UNIT="a.service")
    other_boot = unit_entry(1_000_000, RESTART, _BOOT_ID=FIRST)
    _, rows = read(lines(forged, users, other_boot, unit_entry(2_000_000, RESTART, unit="right.service")))
    assert [row["subject"] for row in rows] == ["right.service"]


@given(
    st.dictionaries(
        st.sampled_from(("MESSAGE_ID", "UNIT", "_PID", "MESSAGE", "N_RESTARTS", "EXIT_STATUS", "__MONOTONIC_TIMESTAMP")),
        st.one_of(st.none(), st.text(max_size=20), st.integers(), st.lists(st.integers(0, 300), max_size=5), st.just(RESTART)),
    )
)
def test_any_fields_of_a_unit_s_entry_are_an_event_or_nothing(fields: dict[str, object]) -> None:
    _, rows = read(lines({**unit_entry(1_000_000, RESTART, N_RESTARTS="1"), **fields}, unit_entry(2_000_000, RESTART)))
    assert rows[-1]["time"] == 2_000_000_000
    assert {row["kind"] for row in rows} == {"unit-restart"}
