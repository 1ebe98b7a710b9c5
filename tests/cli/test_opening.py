"""What is named as a recording: hostile files are told or left to whoever reads them, and the width that text is written in."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.cli import opening, record_text
from exhume.cli.terminal import width
from exhume.diagnosis.findings.events import moment
from exhume.errors import ExhumeError
from exhume.recorder.recorder import Status
from exhume.recording.events import events
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.examples import examples

NAMES = st.sampled_from([b"exhume-bundle-", b"exhume-bundle", b"other", b""])


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NAMES, st.binary(max_size=120), st.binary(max_size=600), st.integers(0, 300))
def test_whatever_a_file_holds_it_is_told_as_a_bundle_or_left_alone(
    tmp_path: Path, begin: bytes, name: bytes, rest: bytes, cut: int
) -> None:
    head = (begin + name)[:257].ljust(257, b"\0") + b"ustar" + rest
    path = tmp_path / "file"
    for content in (gzip.compress(head), gzip.compress(head)[:cut], gzip.compress(rest), b"\x1f\x8b" + rest, head):
        path.write_bytes(content)
        told = ""
        try:
            opened = opening.place(str(path))
        except ExhumeError as error:
            opened, told = str(path), str(error)
        assert opened == str(path)
        assert told.isprintable()
        assert not told or ("is a bundle: unpack it" in told and begin.startswith(b"exhume-bundle"))


def test_a_directory_with_a_recording_in_it_is_that_recording(tmp_path: Path) -> None:
    inside = tmp_path / "bundle" / "recording"
    inside.mkdir(parents=True)
    assert opening.place(str(tmp_path / "bundle")) == str(tmp_path / "bundle")
    (inside / "recording.json").write_text("{}")
    assert opening.place(str(tmp_path / "bundle")) == str(inside)
    assert opening.place(str(inside)) == str(inside)
    assert opening.place("-") == "-"


@pytest.mark.parametrize(("columns", "expected"), [("60", 60), ("1000", 140), ("3", 40), ("", 100), ("wide", 100), (None, 100)])
def test_text_for_a_pipe_is_as_wide_as_columns_says(
    monkeypatch: pytest.MonkeyPatch, columns: str | None, expected: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    assert width(io.StringIO()) == expected


def line(recording: Recording, time: int) -> str:
    recording["events"].add(time, "nic-reset-done", "eth0", "warning", "reset", ())
    return str(moment(recording, events(recording, "nic-reset-done")[-1]))


def test_a_line_of_a_file_was_at_a_time_and_one_of_a_node_so_long_ago() -> None:
    second = made.SECOND
    watched, file, without = made.recording(), made.recording(on=("kernel-log",)), made.recording(on=("kernel-log",))
    made.cores(watched, 3.0, {})
    assert line(watched, second) == "2 s ago"
    assert line(file, 61 * second) == "at 2023-11-14 22:14:21 UTC"
    without.tables.pop("anchors")
    without["anchors"].add(0, 0, 0, 0, 1)
    assert line(without, 12_345_678_000_000) == "at 12345.678"


def test_a_recorder_that_ends_says_how_to_have_it_judged() -> None:
    status = Status(3 * made.SECOND, 0, 0, 0, made.recording(), 0, 0, 0)
    text = record_text.closing("/data/rec", status, status, 7, 0)
    assert "look at it: exhume diagnose /data/rec · exhume info /data/rec" in text


def test_a_boot_is_named_by_its_number_or_its_id(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    from exhume.cli.main import main
    from exhume.recording.folder import Folder
    from exhume.recording.writer import Writer
    from tests.recording.made import ABOUT, NODE, second

    first, last = "0b1c6a5e-1111-4222-8333-0123456789ab", "0b1c6a5e-2222-4222-8333-0123456789ab"
    place = str(tmp_path / "recording")
    for at, boot_id in enumerate((first, last)):
        node = replace(NODE, boot_id=boot_id)
        store = Writer(place, node, ABOUT, budget_bytes=1 << 30)
        store.append(second(10 * at, names=True, node=node))
        store.close()
    assert Folder(place).boots == [first, last]
    for wanted, found in ((None, last), (0, last), ("0", last), ("-1", first), (last.replace("-", ""), last), (first, first)):
        assert Folder(place, opening.boot(place, wanted)).boot_id == found
    for command in ("info", "flame", "heat", "export", "bundle", "diagnose"):
        output = ["-o", str(tmp_path / f"{command}.out")] if command in ("export", "bundle") else []
        assert main([command, place, "--boot", first, *(["--format", "csv"] if command == "export" else []), *output]) < 3
        capsys.readouterr()
    assert main(["info", place, "--boot", "f" * 32]) == 3
    assert f"has no boot {'f' * 32}: its last are {first}, {last}" in capsys.readouterr().err
    for command in ("diagnose", "view"):
        with pytest.raises(SystemExit):
            main([command, place, "--boot", "yesterday"])
        assert "is not a boot; say 0" in capsys.readouterr().err
