"""exhume heat on recordings that were really written."""

import json
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS, main
from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.recording.writer import Writer
from tests.render.made import BEGIN, NODE, REAL, SECOND, Ran, write


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "heat", "a heat map")
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("heat") / "recording")


def test_the_map_of_all_cores(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heat", recording]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node-7  2025-10-09 08:53:20 to 08:53:32 UTC (12 s)"
    assert "all cores" in lines
    # It began at 08:53:20.250, so that sshd is busy from .250 to .450 of each second, and core 3 held from 25.250 to 28.250.
    shown = lines.index("all cores") + 1
    assert lines[shown : shown + 10] == [
        *("              +++    ┊", "  800 ms      +++    ┊", "              +++    ┊", "  600 ms      +++    ┊"),
        *("              +++    ┊", "  400 ms :::::###::::┊", "         +++++@@@++++┊", "  200 ms +----*%%+---"),
        *("         ┊     +++", "    0 ms ┊     +++"),
    ]
    assert "         08:53:20" in lines
    assert "              ^^^" in lines
    assert "  ^ core 3 in the kernel for 3 s from 08:53:25.250, at least 100% of each second" in lines
    assert any(line.endswith("--at 08:53:25.250 --for 3s --cpu 3") for line in lines)


def test_named_cores_have_a_map_together_and_one_each(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--cpu", "0,3"])
    lines = capsys.readouterr().out.splitlines()
    maps = [lines.index(name) for name in ("cores 0,3", "core 0", "core 3")]
    assert maps == sorted(maps)
    assert "all cores" not in lines
    assert [line.split("┊")[0] for line in lines[maps[0] + 6 : maps[0] + 8]] == [
        "  400 ms      @@@    ",
        "              @@@    ",
    ]
    assert not set("".join(lines[maps[1] + 1 : maps[1] + 11])) & {*".:-=+*#%@"}
    assert lines[maps[2] + 10] == "    0 ms ┊     @@@"


def test_a_core_alone_has_its_map_alone_and_only_its_marks(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--cpu", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith(("core", "all"))] == ["core 3"]
    assert any(line.startswith("  ^ core 3 in the kernel") for line in lines)
    main(["heat", recording, "--cpu", "0"])
    assert "in the kernel" not in capsys.readouterr().out


def test_what_the_kernel_complained_of_is_marked_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = write(tmp_path / "recording")
    writer = Writer(place, NODE, {"hz": 100, "event": "cpu-clock"}, budget_bytes=1 << 30)
    rows = Recording(NODE)
    for second in (3, 6):
        time = BEGIN + second * SECOND
        rows["anchors"].add(time, time, time, REAL + second * SECOND, 1)
        rows["events"].add(time, "nic-reset-done", "eth0", "critical" if second == 6 else "info", f"reset \x1b[31m{second}", ())
    writer.append(rows)
    writer.close()
    main(["heat", place])
    lines = capsys.readouterr().out.splitlines()
    assert "               !" in lines
    assert lines[-1] == "  ! 08:53:26.250  reset \\x1b[31m6"
    main(["heat", place, "--by", "core"])
    assert "               !" in capsys.readouterr().out.splitlines()


def test_strips_by_core_the_oddest_first(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--by", "core"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "a column is a second, the oddest core first"
    assert lines[3] == "  core 3 ▁▁▁▁▁▇██▃▁▁▁▁   25% busy  25% kernel"
    assert lines[4] == "  core 1 ▃▃▃▃▃▃▃▃▃▃▃▃▃   20% busy   0% kernel"


def test_a_core_that_was_always_busy_is_so_in_seconds_that_were_recorded_in_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "recording", 5, lambda _, core, __: Ran(core, "stress", "stress:main", 1, "user"))
    main(["heat", place, "--by", "core"])
    assert capsys.readouterr().out.splitlines()[3] == "  core 0 ██████  100% busy   0% kernel"


@pytest.mark.parametrize("by", ["offset", "core"])
def test_times_below_the_map_are_whole_seconds_where_anchors_drift(
    by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "recording", 30)
    told = Folder.real_ns
    monkeypatch.setattr(Folder, "real_ns", lambda folder, time: told(folder, time) - (time - BEGIN) // SECOND * 200)
    main(["heat", place, "--by", by])
    assert "         08:53:20  08:53:30  08:53:40" in capsys.readouterr().out.splitlines()
    main(["heat", place, "--by", by, "--from", "08:53:30", "--for", "15s"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "node-7  2025-10-09 08:53:30 to 08:53:45 UTC (15 s)"
    assert "         ╵" in lines
    assert "         08:53:30" in lines
    main(["heat", place, "--width", "20"])
    assert "Before that: --to 08:53:40.000" in capsys.readouterr().out


def test_what_was_before_the_first_sample_is_not_recorded_although_a_log_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = write(tmp_path / "recording")
    main(["heat", place])
    alone = capsys.readouterr().out
    rows = Recording(NODE)
    for time in (BEGIN - 100 * SECOND, BEGIN + 100 * SECOND):
        rows["anchors"].add(time, time, time, REAL + time - BEGIN, 1)
        rows["events"].add(time, "nic-reset-done", "eth0", "info", "reset", ())
    writer = Writer(place, NODE, {"hz": 100, "event": "cpu-clock"}, budget_bytes=1 << 30)
    writer.append(rows)
    writer.close()
    main(["heat", place])
    assert capsys.readouterr().out == alone


@pytest.mark.parametrize("by", ["offset", "core"])
def test_whose_map_it_is_stands_in_the_title(recording: str, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--comm", "kubelet", "--pid", "4242", "--by", by])
    title = capsys.readouterr().out.splitlines()[0]
    assert title == "node-7  2025-10-09 08:53:20 to 08:53:32 UTC (12 s) · comm kubelet, pid 4242"


def test_who_only_rests_is_there(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["heat", recording, "--comm", "swapper"]) == 0
    assert "0% [ .:-=+*#%@] 5% busy" in capsys.readouterr().out


def test_a_window_that_is_too_long_shows_its_end_and_how_to_move(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--width", "20"])
    text = capsys.readouterr().out
    assert "The last 11 s of 13 s. Before that: --to 08:53:22.000" in text
    main(["heat", recording, "--width", "41", "--by", "core"])
    assert "a column is 2 s" in capsys.readouterr().out


def test_a_window_is_what_is_shown(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--from", "+4s", "--for", "3s"])
    text = capsys.readouterr().out
    assert "         +@@@\n  200 ms -*%%\n           ++\n    0 ms   ++\n" in text
    assert "for 2 s from 08:53:25.250" in text


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--cpu", "0,3", "--no-idle"], "there are no samples of core 0 in this window but idle ones"),
        (["--cpu", "3,7-9"], "there are no samples of cores 7-9 in this window"),
    ],
)
def test_cores_that_have_no_samples_are_named_and_the_others_shown(
    options: list[str], says: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["heat", recording, *options]) == 0
    out, err = capsys.readouterr()
    assert err == f"exhume: {says}\n"
    assert [line for line in out.splitlines() if line.startswith(("core", "all"))] == ["core 3"]
    assert main(["heat", recording, *options, "--json"]) == 0
    assert [core["core"] for core in json.loads(capsys.readouterr().out)["cores"]] == [3]


def test_the_numbers_as_json(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["heat", recording, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "exhume.heat/1"
    assert (document["seconds"], document["hz"], document["event"]) == (12, 100, "cpu-clock")
    assert document["start"] == "2025-10-09T08:53:20.250Z"
    assert sum(map(sum, document["offsets"])) == 540
    third = document["cores"][3]
    assert (third["core"], third["system"]) == (3, [0, 0, 0, 0, 0, 100, 100, 100, 0, 0, 0, 0])
    assert document["saturated"] == [{"second": second, "core": 3, "share": 1.0} for second in (5, 6, 7)]
    main(["heat", recording, "--json", "--cpu", "3"])
    only = json.loads(capsys.readouterr().out)
    assert [core["core"] for core in only["cores"]] == [3]
    assert only["cores"][0]["offsets"][5] == [2] * 50


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--comm", "nosuch"], 3, "no samples that --comm would let through between"),
        (["--pid", "99999999", "--by", "core"], 3, "no samples that --pid would let through between"),
        (["--cgroup", "nosuch", "--json"], 3, "no samples that --cgroup would let through between"),
        (["--cpu", "77"], 3, "no samples of core 77 in this window\n"),
        (["--cpu", "0,77", "--no-idle"], 3, "no samples of cores 0,77 in this window but idle ones\n"),
        (["--width", "3"], 64, "--width"),
        (["--from", "+1h"], 3, "not in the recording"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    options: list[str], code: int, says: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["heat", recording, *options]) == code
    assert says in capsys.readouterr().err


def test_a_recording_without_samples_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    writer = Writer(str(tmp_path / "recording"), NODE, {"hz": 97, "event": "cpu-clock"}, budget_bytes=1 << 30)
    rows = Recording(NODE)
    rows["anchors"].add(BEGIN, BEGIN, BEGIN, REAL, 1)
    writer.append(rows)
    writer.close()
    assert main(["heat", str(tmp_path / "recording")]) == 3
    assert "has no stack samples" in capsys.readouterr().err
