"""The same filters mean the same in every command that reads a recording."""

import json
from typing import Any

import pytest

from exhume.cli.main import main
from tests.render.made import write

FILTERS: list[tuple[list[str], int]] = [
    ([], 4800),
    (["--no-idle"], 540),
    (["--cpu", "3"], 1200),
    (["--cpu", "3", "--no-idle"], 300),
    (["--comm", "^kube"], 300),
    (["--pid", "4242,77"], 540),
    (["--cgroup", "ssh.service"], 240),
    (["--at", "+5s"], 400),
    (["--at", "+5s", "--for", "300ms", "--comm", "kubelet"], 30),
    (["--from", "+2s", "--to", "+4s", "--no-idle"], 40),
    (["--for", "1s"], 400),
]


@pytest.fixture(autouse=True)
def zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("filters") / "recording")


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(list(words)) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("options", "samples"), FILTERS, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_flame_and_every_export_count_the_same(
    options: list[str], samples: int, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert json.loads(printed(capsys, "flame", recording, "--json", *options))["samples"] == samples
    folded = printed(capsys, "export", recording, "--format", "folded", *options)
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded.splitlines()) == samples
    assert len(printed(capsys, "export", recording, "--format", "csv", *options).splitlines()) == samples + 1
    document = json.loads(printed(capsys, "export", recording, "--format", "speedscope", *options))
    assert sum(sum(profile["weights"]) for profile in document["profiles"]) == samples * 10_000_000
    document = json.loads(printed(capsys, "export", recording, "--format", "firefox", *options))
    assert sum(thread["samples"]["length"] for thread in document["threads"]) == samples
    document = json.loads(printed(capsys, "info", recording, "--json", *options))
    assert document["samples"]["count"] == document["tables"]["samples"] == samples
    given = {"--cpu", "--comm", "--pid", "--cgroup", "--no-idle"} & {*options}
    assert {*document["samples"]["chosen"]} == given


def test_info_tells_what_was_chosen(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "info", recording, "--comm", "^kube").splitlines()
    assert any(line.startswith("  Samples    300 that --comm lets through, 25 a second, by cpu-clock") for line in lines)
    assert "  Cores      1 seen: 3" in lines
    lines = printed(capsys, "info", recording, "--cpu", "0,3", "--no-idle").splitlines()
    assert any(line.startswith("  Samples    300 that --cpu, --no-idle let through") for line in lines)
    lines = printed(capsys, "info", recording, "--cpu", "3").splitlines()
    assert any("cores idle 75% of the time" in line for line in lines)
    assert "  Samples    none that --comm lets through" in printed(capsys, "info", recording, "--comm", "nobody").splitlines()


@pytest.mark.parametrize("option", ["--cpu", "--comm", "--pid", "--cgroup", "--no-idle"])
@pytest.mark.parametrize(("command", "why"), [("diagnose", "the verdict would be false"), ("bundle", "all of its window")])
def test_where_a_choice_would_do_harm_it_is_refused_by_a_sentence(
    command: str, why: str, option: str, recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, recording, option, *(["3"] if option != "--no-idle" else [])]) == 64
    error = capsys.readouterr().err
    assert error.startswith(f"exhume: {option} chooses samples: ")
    assert why in error
    assert "usage" not in error
    with pytest.raises(SystemExit):
        main([command, "--help"])
    assert option not in capsys.readouterr().out
    assert main(["completion", "fish"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if f"_from {command}'" in line]
    assert told
    assert not [line for line in told if f"-l {option[2:]} " in line]


def heat(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(printed(capsys, "heat", *words, "--json"))
    return found


def busy(document: dict[str, Any]) -> int:
    return sum(sum(core[kind]) for core in document["cores"] for kind in ("user", "system", "softirq", "irq"))


def test_heat_of_some_threads_counts_the_others_as_idle(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = heat(capsys, recording, "--comm", "sshd")
    assert busy(document) == 240
    assert sum(sum(core["idle"]) for core in document["cores"]) == 4800 - 240
    assert busy(heat(capsys, recording, "--pid", "4242", "--cgroup", "kubelet")) == 300
    assert busy(heat(capsys, recording)) == 540


def test_heat_without_idle_has_the_busy_samples_only(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = heat(capsys, recording, "--no-idle")
    assert busy(document) == 540
    assert sum(sum(core["idle"]) for core in document["cores"]) == 0


def test_heat_at_a_moment_is_a_second(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = heat(capsys, recording, "--at", "12350.0")
    assert document["seconds"] == 1
    assert busy(document) == 120


def test_info_of_a_window(recording: str, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(printed(capsys, "info", recording, "--json", "--from", "+5s", "--for", "2s"))
    assert document["samples"]["count"] == document["tables"]["samples"] == 800
    assert document["samples"]["idle_ratio"] == 0.7
    assert document["lasts_s"] == 2
    assert document["tables"]["anchors"] == 2
    assert document["tables"]["stacks"] == 3
    assert document["notes"] == []


@pytest.mark.parametrize("command", [["flame"], ["heat"], ["export", "--format", "csv"]])
@pytest.mark.parametrize(
    "options", [["--cpu", "x"], ["--cpu", "3-1"], ["--comm", "("], ["--pid", "-1"], ["--pid", "1,,2"], ["--at", "soon"]]
)
def test_wrong_usage_is_told_everywhere(
    command: list[str], options: list[str], recording: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command[0], recording, *command[1:], *options])
    assert stop.value.code == 64
    assert "exhume: argument" in capsys.readouterr().err
