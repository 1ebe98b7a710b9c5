"""exhume info on recordings that were really written, are being written, or were cut off."""

import json
import os
import sys
from pathlib import Path

import pytest

from exhume.cli.info import gather, ranges, render, size_on_disk
from exhume.cli.main import COMMANDS, main
from exhume.cli.terminal import Style
from exhume.imports.perf_layout import CPU
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.recording.source_state import Failed, SourceRow, SourceState
from exhume.recording.writer import Writer
from tests.imports import made_perf
from tests.render.made import BEGIN, NODE, REAL, write


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "info", "what is in a recording")
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("info") / "recording")


def test_one_screen_says_what_is_in_it(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", recording]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == recording
    assert "  Node       node-7, Linux 6.18.0, 4 CPUs, cgroups v1" in lines
    assert "  Time       2025-10-09 08:53:20 to 08:53:32 UTC, 12 s" in lines
    assert "  Samples    4,800, 400 a second, cores idle 89% of the time, 7 lost, by cpu-clock at 100 Hz" in lines
    assert "  Cores      4 seen: 0-3" in lines
    assert "  Own cost   0.40% of one core, 50 MiB of memory" in lines
    assert "  Sources    1 of 2 on: samples" in lines
    assert "             off: units, PID 1 is not systemd" in lines
    assert any(line.startswith("  Disk ") and "in 3 segments" in line and "bytes a sample" in line for line in lines)
    assert len(lines) < 24


def test_the_same_as_json(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", recording, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "exhume.info/1"
    assert document["window"]["start"] == "2025-10-09T08:53:20.250Z"
    assert document["samples"]["count"] == document["tables"]["samples"] == 4800
    assert document["samples"]["idle_ratio"] == 0.8875
    assert document["own"] == {"cpu_ratio": 0.004, "rss_bytes": 50 << 20}
    assert document["size_bytes"] == size_on_disk(recording) > 0
    assert document["boots"] == ["boot-1"]
    assert document["notes"] == []


def test_a_recording_that_is_being_written_can_be_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "recording")
    writer = Writer(path, NODE, {"hz": 97, "event": "cycles", "kernel_only": True}, budget_bytes=1 << 30)
    rows = Recording(NODE)
    rows["anchors"].add(BEGIN, BEGIN, BEGIN, REAL, 1)
    rows["threads"].add(1, 1, 1, 0, "init", "init", "/", "", "", "")
    rows["frames"].add(1, "f", "[kernel]", "kernel", -1)
    rows["stacks"].add(1, "system", [1])
    rows["samples"].add(BEGIN + 5, 2, 1, 1)
    writer.append(rows)
    try:
        assert main(["info", path]) == 0
    finally:
        writer.close()
    text = capsys.readouterr().out
    assert "being written" in text.splitlines()[0]
    assert "by cycles at 97 Hz, kernel frames only" in " ".join(text.split())
    assert "1 seen: 2" in text


def test_a_pinned_incident_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "recording")
    writer = Writer(path, NODE, {}, budget_bytes=1 << 30)
    rows = Recording(NODE)
    rows["anchors"].add(BEGIN, BEGIN, BEGIN, REAL, 1)
    writer.append(rows)
    writer.pin(BEGIN, BEGIN + 1, "nic-reset eth0")
    writer.close()
    main(["info", path])
    text = capsys.readouterr().out
    assert "  Pinned     08:53:20 to 08:53:20  nic-reset eth0" in text
    assert "  Samples    none" in text


def test_damage_is_told_and_does_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "recording")
    segment = Path(Folder(path).segments[0].path)
    (segment / "samples.parquet").write_bytes(b"PAR1 this is not one")
    assert main(["info", path]) == 0
    text = capsys.readouterr().out
    assert "  Damage " in text


def test_hostile_names_reach_no_terminal(recording: str) -> None:
    from dataclasses import replace

    info = gather(Folder(recording), recording)
    hostile = "\x1b[2J" + "x" * 5000
    bad = replace(
        info,
        path=hostile,
        node=replace(info.node, hostname=hostile, kernel=hostile),
        about={"event": hostile, "hz": hostile},
        sources=(SourceRow(0, "units", SourceState.off(Failed(hostile))),),
        notes=(hostile,),
        pinned=((0, 1, hostile),),
    )
    text = render(bad, Style(sys.stdout, colour=False), 80)
    assert all(character == "\n" or character.isprintable() for character in text)


def test_a_path_that_is_no_recording_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(tmp_path)]) == 3
    assert "is not a recording" in capsys.readouterr().err


# Once as root, so that all is imported that nobody may not read here.
AS_NOBODY = """
import contextlib, io, os, sys
from exhume.cli.main import COMMANDS, main
COMMANDS["info"] = ""
with contextlib.redirect_stdout(io.StringIO()):
    main(["info", sys.argv[1]])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["info", sys.argv[1]]))
"""


def test_without_root_somebody_elses_recording_is_a_sentence(recording: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    import subprocess

    done = subprocess.run([sys.executable, "-c", AS_NOBODY, recording], capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "root" in done.stderr


def test_cores_are_told_as_ranges() -> None:
    assert ranges((0, 1, 2, 8, 10, 11)) == "0-2,8,10-11"
    assert ranges(()) == ""


def imported(path: Path, *samples: bytes, attr: made_perf.Attr | None = None) -> str:
    path.write_bytes(made_perf.file(b"".join(samples), [attr or made_perf.Attr(period=100)]))
    return str(path)


def busy_and_idle() -> list[bytes]:
    """A second of two cores at 100 Hz: one runs something, the other sleeps and is seen once."""
    samples = [made_perf.sample(7, 10**9 + at * 10**7, 0, user=[0x401000]) for at in range(101)]
    return [*samples, made_perf.sample(0, 10**9 + 1, 1, kernel=[0xFFFFFFFF81000000])]


def test_a_file_that_is_looked_at_once_has_neither_a_state_nor_a_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = imported(tmp_path / "perf.data", *busy_and_idle())
    assert main(["info", path]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == path
    assert not [line for line in lines if line.startswith("  Disk")]
    assert any("Samples    102" in line and "by cpu-clock at 100 Hz" in line for line in lines)
    assert main(["info", path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["open"], document["written"], document["bytes_per_sample"]) == (False, False, None)
    assert document["samples"]["idle_ratio"] == pytest.approx(0.495, abs=0.01)


@pytest.mark.parametrize(
    "attr",
    [
        made_perf.Attr(config=2, period=100),  # page-faults
        made_perf.Attr(period=100, bits=made_perf.SAMPLE_ID_ALL | made_perf.FREQ | 1 << 12),  # of one command
    ],
)
def test_how_long_cores_were_idle_is_not_said_where_samples_do_not_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], attr: made_perf.Attr
) -> None:
    path = imported(tmp_path / "perf.data", *busy_and_idle(), attr=attr)
    assert main(["info", path, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["samples"]["idle_ratio"] is None


def test_nor_where_they_do_not_tell_of_cores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fields = made_perf.USUAL & ~CPU
    samples = [made_perf.sample(7, 10**9 + at * 10**7, user=[0x401000], fields=fields) for at in range(101)]
    path = imported(tmp_path / "perf.data", *samples, attr=made_perf.Attr(period=100, sample=fields))
    assert main(["info", path]) == 0
    out = capsys.readouterr().out
    assert "idle" not in out
    assert "Cores      not told" in out


@pytest.mark.parametrize(
    ("begin", "lasts", "busy", "samples"),
    [
        ("+2s", "200ms", 20, 80),
        ("+2.5s", "200ms", 0, 80),
        ("+2s", "1s", 20, 400),
        ("+2.1s", "2s", 40, 800),
        ("+4.9s", "3.2s", 370, 1280),
    ],
)
def test_idle_of_a_window_is_that_of_its_samples_and_not_of_whole_seconds(
    begin: str, lasts: str, busy: int, samples: int, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info", recording, "--from", begin, "--for", lasts, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["samples"]
    assert found["count"] == samples
    assert found["idle_ratio"] == pytest.approx(1 - busy / samples, abs=1e-4)
