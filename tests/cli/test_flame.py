"""exhume flame on recordings that were really written."""

import json
import os
import stat
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from exhume.cli.main import COMMANDS, main
from exhume.recording.source_state import Limit, Note, Reason
from tests.render.made import IDLE, Ran, write


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMANDS, "flame", "a flame graph")
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("flame") / "recording")


def test_the_text_says_when_whose_and_what(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", recording]) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert lines[0].startswith("node-7  2025-10-09 08:53:20.250 to 08:53:32.2")
    assert lines[1] == "4,800 samples on 4 cores, busy 11% of the time"
    assert "  6.2%  █                kubelet › main › read › mem_cgroup_nr_lru_pages" in lines
    assert "-o flame.svg" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        (Limit("the symbol reader does not start: no Landlock"), "does not start: no Landlock."),
        (Note("cpu-clock"), "programs without frame pointers or symbols"),
    ],
)
def test_why_callers_are_unknown_is_what_the_source_says(
    reason: Reason, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "unnamed", 1, lambda *_: Ran(0, "burn", "burn:[unknown] burn:[unknown]", kind="user"), reason)
    assert main(["flame", path]) == 0
    assert told in " ".join(capsys.readouterr().out.split())


def test_folded_stacks_count_every_sample_of_the_window(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["flame", recording, "--at", "+5s", "--for", "1s", "--folded"])
    idle = ";".join(f"{word.removeprefix('k:')}_[k]" for word in IDLE.split())
    assert capsys.readouterr().out.splitlines() == [
        "kubelet;main;read_[k];mem_cgroup_nr_lru_pages_[k] 100",
        "sshd;main 20",
        f"swapper;{idle} 280",
    ]


@pytest.mark.parametrize(
    ("options", "samples"),
    [
        ([], 4800),
        (["--no-idle"], 540),
        (["--from", "-1s", "--no-idle"], 20),
        (["--cpu", "3", "--no-idle"], 300),
        (["--cpu", "0-1"], 2400),
        (["--comm", "^kube"], 300),
        (["--pid", "4242,77"], 540),
        (["--cgroup", "ssh.service"], 240),
        (["--at", "08:53:25.250", "--for", "300ms", "--comm", "kubelet"], 30),
        (["--from", "2025-10-09T08:53:25.250Z", "--to", "12350.1"], 40),
    ],
)
def test_windows_and_filters(options: list[str], samples: int, recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", recording, "--json", *options]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "exhume.flame/1"
    assert document["samples"] == document["tree"]["samples"] == samples


def test_by_core_each_core_has_its_idle(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["flame", recording, "--json", "--by", "core"])
    document = json.loads(capsys.readouterr().out)
    assert [core["name"] for core in document["tree"]["children"]] == ["core 0", "core 1", "core 2", "core 3"]
    assert document["idle"] == 4260
    assert [child["name"] for child in document["tree"]["children"][3]["children"]] == ["kubelet", "idle"]


def test_inverted_begins_at_the_functions_that_ran(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["flame", recording, "--inverted", "--by", "none", "--no-idle", "--folded"])
    assert capsys.readouterr().out.splitlines() == ["main 240", "mem_cgroup_nr_lru_pages_[k];read_[k];main 300"]


def test_the_picture_is_written(recording: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "flame.svg"
    assert main(["flame", recording, "-o", str(file)]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert "open it in a browser" in told.err
    titles = [title.text or "" for title in ElementTree.parse(file).iter("{http://www.w3.org/2000/svg}title")]
    assert titles[0].startswith("node-7 ")
    assert any(title.startswith("mem_cgroup_nr_lru_pages\n[kernel]\n300 samples, 6.25%") for title in titles)
    assert main(["flame", recording, "-o", "-"]) == 0
    assert capsys.readouterr().out == file.read_text()


def test_narrow_frames_that_are_not_drawn_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def does(second: int, core: int, tick: int) -> Ran:
        return Ran(core, "rare", "rare:f k:g") if (second, core, tick) == (3, 0, 0) else Ran(core, "often", "often:f")

    main(["flame", write(tmp_path / "recording", 4, does), "-o", "-"])
    assert "3 frames narrower than 0.1% not drawn" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--comm", "nobody"], 3, "no samples that --comm would let through between"),
        (["--cpu", "0", "--no-idle"], 3, "idle ones"),
        (["--cpu", "9"], 3, "no samples that --cpu would let through"),
        (["--from", "06:00", "--to", "07:00"], 3, "is not in the recording"),
        (["--folded", "--json"], 64, "choose one"),
        (["-o", "/no/such/place.svg"], 3, "could not be written"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    options: list[str], code: int, says: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["flame", recording, *options]) == code
    told = capsys.readouterr()
    assert says in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.parametrize(
    "options", [["--cpu", "x"], ["--cpu", "3-1"], ["--comm", "("], ["--pid", "-1"], ["--pid", "1,,2"], ["--at", "soon"]]
)
def test_wrong_usage_is_told(options: list[str], recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["flame", recording, *options])
    assert stop.value.code == 64
    assert "exhume: argument" in capsys.readouterr().err


def test_a_path_that_is_no_recording_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flame", str(tmp_path / "nothing")]) == 3
    assert "there is no recording at" in capsys.readouterr().err


def test_hostile_names_reach_no_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def does(second: int, core: int, tick: int) -> Ran:
        return Ran(core, "\x1b[2J\x1b]0;owned\x07", "x:a\x1b[31m;b k:<script>", 1)

    folder = write(tmp_path / "recording", 2, does)
    for options in ([], ["--folded"], ["--json"], ["-o", "-"]):
        assert main(["flame", folder, *options]) == 0
        text = capsys.readouterr().out
        assert all(character == "\n" or character.isprintable() for character in text)
        assert "<script>alert" not in text


def test_the_recording_is_only_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write(tmp_path / "recording", 2)

    def everything() -> dict[str, tuple[int, int]]:
        paths = [os.path.join(directory, name) for directory, _, names in os.walk(folder) for name in names]
        return {path: (os.stat(path)[stat.ST_SIZE], os.stat(path).st_mtime_ns) for path in paths}

    before = everything()
    main(["flame", folder])
    assert everything() == before
