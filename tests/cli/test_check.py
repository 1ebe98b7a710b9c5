"""exhume check as people see it: the incident, a quiet node, hostile names, no privileges, watch."""

import contextlib
import io
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from exhume.cli.main import main
from exhume.cli.report_text import render
from exhume.cli.terminal import Style
from exhume.cli.watch import changes
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.judge import judge
from exhume.recording.source_state import ContainerOnly, Failed, Gap, Note, NotNamed, SourceState
from tests.diagnosis.findings import made
from tests.diagnosis.test_judge import incident as incident_recording
from tests.diagnosis.test_judge import zombies
from tests.trees import Moving, incident, kmsg, process_stat


def check(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exhume", "check", *argv], capture_output=True, text=True, check=False, **options
    )


def judged(tree: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, on a node made of files (tests/trees.py)."""
    command = ["check", "--host", str(tree), *argv]
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = main(command)
    return subprocess.CompletedProcess(command, code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subprocess.CompletedProcess[str]]:
    path = tmp_path_factory.mktemp("incident")
    with Moving(incident(path), cpus=96, saturated=39, process=4242):
        return {"text": judged(path, "--for", "2s"), "json": judged(path, "--for", "1s", "--json")}


def test_the_incidents_host_is_named_in_full(sick: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = sick["text"]
    assert done.returncode == 2
    assert done.stderr == ""
    text = " ".join(done.stdout.split())
    assert text.startswith("CRITICAL")
    for told in (
        "68,440 zombie memory cgroups",
        "240 live",
        "core 39 at 100% system",
        "kubelet [4242]",
        "eth0 queue 5 was not polled for 6,596 ms",
        "the driver gives up at 5,000",
        "eth0 (ena) was reset once",
        "served by core 39",
    ):
        assert told in text, told
    assert len(done.stdout.splitlines()) <= 40  # one screen
    assert "\x1b" not in done.stdout


def test_the_incidents_host_as_json(sick: dict[str, subprocess.CompletedProcess[str]]) -> None:
    done = sick["json"]
    report = json.loads(done.stdout)
    assert done.returncode == 2
    assert report["health"] == "critical"
    assert report["verdict"]["cause"] == "zombie-memcgs"
    assert {f["kind"] for f in report["findings"]} >= {"zombie-memcgs", "core-saturated", "napi-starved", "nic-reset"}
    assert report["node"] == {
        "hostname": "node-7",
        "boot_id": "11111111-2222-3333-4444-555555555555",
        "kernel": "5.4.0-1128-aws",
        "cgroups": "v1",
        "cpus": 96,
    }


def test_lines_that_a_program_wrote_to_the_log_are_not_believed(tmp_path: Path) -> None:
    tree = incident(tmp_path)
    impostors = [(5.0, 8 + 4, line) for line in (tmp_path / "dev/kmsg").read_text().splitlines()]
    tree.write("dev/kmsg", kmsg([(ago, priority, line.split(";", 1)[1]) for ago, priority, line in impostors]))
    report = json.loads(judged(tmp_path, "--for", "300ms", "--json").stdout)
    assert "nic-reset" not in {finding["kind"] for finding in report["findings"]}
    assert "napi-starved" not in {finding["kind"] for finding in report["findings"]}


HOSTILE = "\x1b]0;owned\x07\x1b[2J\n[red]boom[/red]<script>\u202e"


@pytest.mark.ci
def test_hostile_names_are_shown_safely_everywhere(tmp_path: Path) -> None:
    tree = incident(tmp_path)
    tree.write("proc/4242/cgroup", "0::/" + HOSTILE.replace("\n", "\\n") + "x" * 4000 + "\n")
    tree.write("proc/sys/kernel/hostname", HOSTILE)
    for i in range(1200):
        tree.write(f"sys/fs/cgroup/memory/{HOSTILE.replace('/', '')}/d{i}/cgroup.procs", "")
    tree.write("proc/77/stat", process_stat(77, HOSTILE[:15], 0, 1, 0, "Z"))
    with Moving(tree, cpus=96, saturated=39, process=4242):
        for argv in ((), ("-v", "--evidence"), ("--json",)):
            done = judged(tmp_path, "--for", "600ms", *argv)
            assert "Traceback" not in done.stderr
            assert all(character == "\n" or character.isprintable() for character in done.stdout), argv
            if argv == ("--json",):
                assert json.loads(done.stdout)["node"]["hostname"].startswith("\x1b]0;owned")
            else:
                assert "cgroup-dirs-leak" in done.stdout
                assert len(done.stdout) < 20_000


def test_this_machine_is_judged() -> None:
    done = check("--for", "500ms", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == {"healthy": 0, "warning": 1, "critical": 2}[report["health"]]
    on = {source["name"] for source in report["sources"] if source["state"] != "off"}
    assert {"cpu", "vmstat", "meminfo", "softnet", "interrupts", "processes"} <= on
    assert report["node"]["cpus"] == os.cpu_count()
    assert report["window"]["start"] < report["window"]["end"]


# One check as root first, so that every module is loaded when the interpreter's own files are out of reach.
AS_NOBODY = """
import contextlib, io, os, sys
from exhume.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["check", "--for", "200ms", "--json"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["check", "--for", "400ms", "--json"]))
"""


def test_without_privileges_there_are_fewer_sources_and_no_traceback() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    report = json.loads(done.stdout)
    assert done.returncode in (0, 1, 2)
    assert {"cpu", "vmstat"} <= {source["name"] for source in report["sources"] if source["state"] != "off"}
    assert all(source["reason"] for source in report["sources"] if source["state"] == "off")


def test_an_empty_root_cannot_be_judged(tmp_path: Path) -> None:
    done = judged(tmp_path, "--for", "300ms")
    assert done.returncode == 3
    assert done.stdout.startswith("UNKNOWN")


def test_a_threshold_from_the_configuration_changes_the_verdict(tmp_path: Path) -> None:
    tree = incident(tmp_path / "node")
    tree.write("dev/kmsg", "")
    config = tmp_path / "exhume.toml"
    config.write_text("[thresholds]\nzombies_floor = 1000000\n")
    arguments = (tmp_path / "node", "--for", "300ms", "--json")
    severities = [
        {finding["severity"] for finding in json.loads(done.stdout)["findings"] if finding["kind"] == "zombie-memcgs"}
        for done in (judged(*arguments), judged(*arguments, "--config", str(config)))
    ]
    assert severities[0] == {"warning"}
    assert severities[1] <= {"info"}


def test_colours_only_when_asked_for() -> None:
    report = judge(incident_recording(), Thresholds())
    import sys as system

    assert "\x1b[31;1mCRITICAL" in render(report, Style(system.stdout, colour=True), 100)
    assert "\x1b" not in render(report, Style(system.stdout, colour=False), 100)


@pytest.mark.parametrize("columns", [40, 80, 140])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    text = render(
        judge(incident_recording(), Thresholds()), Style(sys.stdout, colour=False), columns, verbose=True, evidence=True
    )
    assert max(len(line) for line in text.splitlines()) <= columns


def test_sources_that_see_a_part_are_told_apart_from_those_that_are_off() -> None:
    import sys as system

    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {})
    recording.add_source(0, "processes", SourceState.read((ContainerOnly("processes"),)))
    recording.add_source(0, "zombies", SourceState.read((NotNamed("because it takes root"), Note("counted by cgroup.stat"))))
    recording.add_source(0, "latency", SourceState.read((Gap(120),)))
    recording.add_source(0, "nic", SourceState.off(Failed("no device")))
    report = judge(recording, Thresholds())
    total = len(report.sources)
    short = render(report, Style(system.stdout, colour=False), 400)
    assert f"{total - 1} of {total} sources (off: nic; in part: processes, zombies)" in short
    long = render(report, Style(system.stdout, colour=False), 400, verbose=True)
    assert (
        f"{total - 1} of {total} sources. Off: nic (no device). In part: processes (only this container's processes are "
        "visible); zombies (not named, because it takes root; counted by cgroup.stat)"
    ) in long
    assert "latency: 0 s of CPU. looked 120 ms apart at worst" in long


def test_watch_marks_what_changed() -> None:
    before, after = made.recording(cpus=2), incident_recording()
    made.cores(before, 3.0, {})
    zombies(before, dying=2_000)
    marks = changes(judge(before, Thresholds()), judge(after, Thresholds()))
    text = "\n".join(f"{mark} {what}" for mark, _, what in marks)
    assert "! was warning, is critical" in text
    assert "+ new: nic-reset" in text
    assert "~ zombie-memcgs /: zombies +66,440 to 68,440" in text
    assert "- gone:" in "\n".join(
        f"{mark} {what}" for mark, _, what in changes(judge(after, Thresholds()), judge(before, Thresholds()))
    )


def test_watch_on_a_terminal_redraws_until_interrupted(tmp_path: Path) -> None:
    incident(tmp_path)
    leader, follower = pty.openpty()
    watcher = subprocess.Popen(
        [sys.executable, "-m", "exhume", "check", "--watch", "--for", "300ms", "--host", str(tmp_path)],
        stdout=follower,
        stderr=follower,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(follower)
    seen = b""
    deadline = time.monotonic() + 120
    try:
        while seen.count(b"\x1b[H\x1b[2J") < 2 and time.monotonic() < deadline:
            if select.select([leader], [], [], 1.0)[0]:
                seen += os.read(leader, 65536)
        watcher.send_signal(2)
        while watcher.poll() is None and time.monotonic() < deadline + 10:  # a terminal that is full holds up whoever writes
            if select.select([leader], [], [], 0.1)[0]:
                with contextlib.suppress(OSError):
                    os.read(leader, 65536)
        assert watcher.wait(timeout=300) == 2  # the last health: critical
    finally:
        watcher.kill()
        watcher.wait()
        os.close(leader)
    assert seen.count(b"\x1b[H\x1b[2J") >= 2
    assert b"68,440 zombie" in seen
