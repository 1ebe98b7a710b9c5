"""Kernel logs inside of what others print around them: the same events, at the same times."""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.imports import log_text, log_wrapped
from exhume.imports.incoming import Ids, Input, Wanted, memory
from tests.examples import examples

LINES = [
    "watchdog: BUG: soft lockup - CPU#39 stuck for 23s! [kubelet:812]",
    "ena 0000:20:03.0: Device reset completed, status: 0",
    "eth0: link up",
]
DMESG = [f"[{100 + at:>5}.123456] {line}" for at, line in enumerate(LINES)]
WHEN = "2026-11-15T12:04:3{}.123456789Z"


def events(data: bytes | Input) -> list[tuple[int, str]]:
    with closing(data if isinstance(data, Input) else memory(data)) as source:
        assert log_text.looks(source.head())
        log = log_text.opened(source, Wanted())
        return [(row["time"], row["kind"]) for batch in log.batches(Ids()) for row in batch["events"].rows()]


PLAIN = [(100_123_456_000, "soft-lockup"), (101_123_456_000, "nic-reset-done")]


@pytest.mark.parametrize(
    "form",
    [
        "{line}",
        WHEN + " stdout F {line}",
        "2026-11-15T12:04:3{}.123456789+01:00 stderr F {line}",
        WHEN + " {line}",
        "[pod/node-debugger-x/debugger] {line}",
        "[pod/node-debugger-x/debugger] " + WHEN + " {line}",
        "dmesg.txt:{line}",
        "/var/log/dmesg.0:{}:{line}",
        "{line}\r",
    ],
)
def test_what_is_put_before_a_line_changes_nothing(form: str) -> None:
    text = "".join(form.replace("{}", str(at)).replace("{line}", line) + "\n" for at, line in enumerate(DMESG))
    assert events(text.encode()) == PLAIN


def test_lines_of_syslog_in_a_container_keep_their_own_times(tmp_path: Path) -> None:
    path = tmp_path / "0.log"
    lines = [f"Nov 15 12:04:3{at} node-7 kernel: {line}" for at, line in enumerate(DMESG)]
    path.write_text("".join(f"{WHEN.format(9)} stdout F {line}\n" for line in lines))
    assert events(Input(str(path))) == PLAIN


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_dockers_own_json_is_read(separators: tuple[str, str]) -> None:
    rows = [{"log": f"{line}\n", "stream": "stdout", "time": WHEN.format(1)} for line in DMESG]
    assert events("".join(json.dumps(row, separators=separators) + "\n" for row in rows).encode()) == PLAIN


def test_records_of_kmsg_are_read_without_what_they_say_of_the_device() -> None:
    text = "".join(
        f"4,{at},{(100 + at) * 10**6 + 123456},-,caller=T1;{line}\n SUBSYSTEM=net\n DEVICE=n3\n"
        for at, line in enumerate(LINES)
    )
    assert events(text.encode()) == PLAIN
    assert events(text.replace("4,", "14,").encode()) == []  # of a program


def test_a_syslog_with_the_date_of_rfc_3339_is_not_taken_for_a_prefix() -> None:
    line = "2026-11-15T12:04:31.123456+00:00 node-7 kernel: [  100.123456] eth0: link up\n"
    assert log_wrapped.kind(line.encode()) == ""
    assert log_wrapped.kind(b"2026-11-15T12:04:31,123456+01:00 [  100.123456] eth0: link up\n") == ""


@settings(max_examples=examples(300))
@given(
    st.lists(
        st.sampled_from(
            [
                b"4,1,100,-;",
                b"[ 100.123456] ",
                b"\n",
                b" A=b\n",
                b'{"log":"',
                b"\\u00",
                b'"}\n',
                b"a:",
                b"[pod/x] ",
                b"<4>",
                b"x\xff",
            ]
            + [line.encode() for line in LINES]
        ),
        max_size=30,
    )
)
def test_no_text_breaks_it(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    kind = log_wrapped.kind(data)
    assert len(log_wrapped.plain(kind, data)) <= 20 + 2 * len(data)
    log_text.looks(data)
    with closing(memory(data)) as source:
        try:
            found = [len(batch["events"]) for batch in log_text.opened(source, Wanted()).batches(Ids())]
        except ExhumeError:
            return
    assert sum(found) <= data.count(b"\n") + 1


def test_the_real_ring_buffer_gives_the_same_as_dmesg(tmp_path: Path) -> None:
    try:
        raw = subprocess.run(["timeout", "1", "cat", "/dev/kmsg"], capture_output=True).stdout
        decoded = subprocess.run(["dmesg", "-x", "--color=never"], capture_output=True).stdout
    except OSError as error:
        pytest.skip(f"cannot be asked here: {error}")
    if not raw or not decoded:
        pytest.skip("the kernel's log cannot be read here")
    theirs = events(decoded)
    ours = events(raw)
    # Lines may come between the two readings.
    assert abs(len(ours) - len(theirs)) <= 5
    assert ours[: len(theirs)] == theirs[: len(ours)]
