"""exhume record --on: which kinds are waited for, what is an incident, and that its verdict is printed, as people and scripts
see it."""

import argparse
import json
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.cli.record_trigger import json_line, kinds_of, sentence, session
from exhume.diagnosis import detect as detecting
from exhume.diagnosis.findings import core_saturated
from exhume.diagnosis.findings.model import Examined
from exhume.diagnosis.findings.registry import CONDITIONS, KINDS, PAINS, SYMPTOMS, TENANTS
from exhume.diagnosis.report import Health, Report, as_json
from exhume.errors import UsageError
from exhume.recorder.policy import DEFAULT
from exhume.recorder.session import Session
from exhume.recorder.trigger import Incident
from exhume.recorder.verdicts import Case
from exhume.recording.folder import Folder
from exhume.recording.recording import Node, Recording
from exhume.recording.writer import Writer
from tests.diagnosis import made as reports
from tests.diagnosis.findings import made
from tests.sources.latency import loaded
from tests.starved import held, hold, link, needs_starvation, off_the_core
from tests.waiting import wait_for

SECOND = 1_000_000_000
NODE = Node("node-7", "boot", "6.1", "v1", 4)


def report(cause: str | None, summary: str, health: Health = "critical") -> Report:
    return reports.report(cause=cause, subject="s", summary=summary, health=health, confidence=0.83)


def test_any_is_what_a_node_suffers_from_and_not_what_may_hurt_it_later() -> None:
    assert set(kinds_of("any")) == {*SYMPTOMS, *PAINS}
    assert set(kinds_of("any, memcg-leak")) == {*SYMPTOMS, *PAINS, "memcg-leak"}
    assert kinds_of("nic-reset,cpu-throttled") == ("nic-reset", "cpu-throttled")
    assert kinds_of(None) == ()
    assert not set(kinds_of("any")) & {*CONDITIONS, *TENANTS}


@pytest.mark.parametrize("text", ["", " , ", "all", "nic-reset,any-thing"])
def test_what_is_no_kind_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(UsageError, match="any, core-saturated"):
        kinds_of(text)


def test_json_is_for_verdicts_and_needs_incidents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", str(tmp_path / "r"), "--json"]) == 64
    assert "--json prints the verdicts on incidents: name their kinds with --on" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()


class Pinned:
    """Stands for the store: what is pinned."""

    def __init__(self) -> None:
        self.pins: list[tuple[int, int, str]] = []

    def pin(self, start: int, end: int, reason: str) -> None:
        self.pins.append((start, end, reason))


def started(node: Node, kinds: str, store: Pinned, config: str | None = None) -> "Session[Report]":
    args = argparse.Namespace(dir="r", config=config, json=False, around_ns=120 * SECOND)
    return session(args, DEFAULT, node, cast(Writer, store), kinds_of(kinds), line=False)


def test_a_verdict_that_fails_while_nobody_listens_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = started(NODE, "any", Pinned())
    try:
        with open("/dev/full", "w", buffering=1, encoding="utf-8") as full, monkeypatch.context() as patched:
            patched.setattr(sys, "stderr", full)
            asking._verdicts._trouble("no verdict: it took more than 60 s")
            with suppress(OSError):
                full.close()
            asking._verdicts._trouble("nor now")
    finally:
        asking.finish()


def _batch(at: int, whole: Recording, until: int) -> Recording:
    part = Recording(whole.node)
    for name in ("cpu", "anchors", "sources", "memcg"):
        for row in whole[name].rows():
            if at <= row["time"] < until:
                part[name].add(*row.values())
    return part


def _found(whole: Recording, kinds: str) -> list[Incident]:
    watching = started(whole.node, kinds, Pinned())
    watching.diagnoses = False
    found: list[Incident] = []
    watching._on_incident = found.append
    _, end = whole.window
    for at in range(0, end, SECOND):
        watching.see(_batch(at, whole, at + SECOND))
    watching.finish()
    return found


def test_a_warning_is_an_incident_with_its_wall_clock_time_and_information_is_none() -> None:
    whole = made.recording()
    made.cores(whole, 20, {2: [(8, 12, "system")]})
    (incident,) = _found(whole, "core-saturated")
    assert incident.severity in ("warning", "critical")
    assert incident.real_ns == 1_700_000_000 * SECOND + incident.start
    assert _found(whole, "nic-reset") == []
    for zombies, seen in ((97, []), (68_440, ["zombie-memcgs"])):
        for at in range(20):
            whole["memcg"].add(at * SECOND, "/", 240, zombies, 240 + zombies, "proc-cgroups", "node", 1)
        assert [each.kind for each in _found(whole, "zombie-memcgs")] == seen
        del whole.tables["memcg"]


def test_the_sentence_has_health_and_confidence_and_none_without_a_cause() -> None:
    assert sentence(report("memcg-leak", "it leaks")) == "critical: it leaks (confidence 83%)"
    assert (
        sentence(report(None, "core 1 is full; why is not visible", "warning")) == "warning: core 1 is full; why is not visible"
    )


@given(st.text(), st.text(), st.text())
def test_hostile_names_stay_one_line(summary: str, subject: str, kind: str) -> None:
    told = report("memcg-leak", summary)
    case = Case(Incident(kind, subject, 1, 2, summary, "warning", 1_700_000_000 * SECOND), 2)
    assert sentence(told).isprintable()
    line = json_line(case, told)
    assert line.isascii()
    assert "\n" not in line
    seen = json.loads(line)
    assert (seen["trigger"]["subject"], seen["trigger"]["attempt"], seen["report"]) == (subject, 2, as_json(told))
    assert seen["trigger"]["start"] == "2023-11-14T22:13:20.000Z"


def test_a_detector_that_stumbles_does_not_end_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumbles(*_: object) -> Examined:
        raise ZeroDivisionError("by \x1b[31mzero")

    monkeypatch.setattr(detecting, "KINDS", (replace(core_saturated.KIND, detect=stumbles), *KINDS[1:]))
    config = tmp_path / "exhume.toml"
    config.write_text("[record]\njudge_every_s = 1\njudge_quiet_s = 1\n")
    argv = ["--on", "any", "--for", "3s", "--hz", "0", "--no-latency", "--config", str(config)]
    assert main(["record", str(tmp_path / "r"), *argv]) == 0
    said = capsys.readouterr().err
    assert said.count("could not judge core-saturated (ZeroDivisionError: by \\x1b[31mzero); the others go on") == 1
    start, end = Folder(str(tmp_path / "r")).window
    assert end - start > 2 * SECOND


def test_a_starved_poll_gets_its_verdict_printed_while_the_recorder_runs(tmp_path: Path) -> None:
    needs_starvation()
    command = [sys.executable, "-m", "exhume", "record", str(tmp_path / "r"), "--on", "napi-starved", "--json"]
    with link(real_time=True) as starved, off_the_core():
        pipe = subprocess.PIPE
        recorder = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        assert recorder.stdout is not None
        assert recorder.stderr is not None
        giving_up = threading.Timer(300, recorder.kill)
        giving_up.start()
        try:
            assert "recording to" in recorder.stderr.readline()
            wait_for(lambda: len(loaded.of_process(recorder.pid)) > 2)  # its probes are on
            held(hold(700))
            # Another link of this machine may be starved meanwhile.
            told = next(one for one in map(json.loads, recorder.stdout) if one["trigger"]["subject"] == starved.device)
        finally:
            recorder.send_signal(signal.SIGINT)
            rest, said = recorder.communicate(timeout=300)
            giving_up.cancel()
    assert told["trigger"]["kind"] == "napi-starved"
    assert told["trigger"]["severity"] in ("warning", "critical")
    assert told["report"]["schema"] == "exhume.report/2"
    (finding,) = (each for each in told["report"]["findings"] if each["subject"] == starved.device)
    assert finding["kind"] == "napi-starved"
    assert f"exhume: pinned: napi-starved: {starved.device}" in said
    assert f"exhume: {told['report']['health']}: {told['report']['verdict']['summary'][:40]}" in said
    assert "recorded 0:0" in said
    assert all(json.loads(line)["report"] for line in rest.splitlines())
