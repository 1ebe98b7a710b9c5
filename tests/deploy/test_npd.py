"""exhume as a plugin of node-problem-detector: its exit codes, its line of 80 bytes, and the configuration that starts it."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli import npd_text
from exhume.cli.main import command_parser
from exhume.cluster.conditions import KINDS
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.registry import BY_NAME
from exhume.diagnosis.findings.steal import Steal
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.zombie_memcgs import ZombieMemcgs
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import Report, Source
from exhume.recording.recording import Node, Recording
from exhume.recording.source_state import Failed, SourceState
from tests.diagnosis.findings.facts import finding

TOP = Path(__file__).parents[2]


def report(*findings: Finding[Facts], off: str = "", health: str = "healthy") -> Report:
    """A report with these findings; every source is on but one."""
    recording = Recording(Node("node", "boot", "6.1", "v2", 2))
    recording["anchors"].add(0, 0, 0, 10**18, 1000)
    made = judge(recording, Thresholds())
    sources = tuple(
        Source(name, SourceState.off(Failed("why")) if name == off else SourceState("on"), 0)
        for name in ("memcg", "cpu", "softnet")
    )
    return replace(made, findings=findings, sources=sources, health=health)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [(condition.name, kind) for condition in KINDS for kind in condition.findings])
def test_a_finding_makes_its_condition_and_no_other(kind: tuple[str, str]) -> None:
    condition, name = kind
    found = finding(BY_NAME[name].facts, "critical", "/x")
    said = report(found, health="critical")
    assert npd_text.line(said, condition) == (1, npd_text.bounded(found.summary))
    for other in KINDS:
        if other.name != condition:
            assert npd_text.line(said, other.name) == (0, other.quiet)


def test_without_a_condition_any_trouble_counts_and_what_is_only_noted_does_not() -> None:
    assert npd_text.line(report(finding(Steal, "warning"), health="warning"))[0] == 1
    assert npd_text.line(report(finding(Steal, "info")))[0] == 0


def test_the_worst_is_told_first() -> None:
    many, leak = finding(ZombieMemcgs, "warning"), finding(MemcgLeak, "critical", path="/x")
    said = report(many, leak, health="critical")
    assert npd_text.line(said, "MemoryCgroupLeak") == (1, leak.summary)


@pytest.mark.parametrize(
    ("condition", "source"),
    [("MemoryCgroupLeak", "memcg"), ("KernelCPUStarvation", "cpu"), ("NetworkPollStarvation", "softnet")],
)
def test_what_cannot_be_seen_is_not_known(condition: str, source: str) -> None:
    assert npd_text.line(report(off=source), condition) == (2, f"{source} is off: why")
    assert npd_text.line(report(), condition)[0] == 0


@given(st.text())
def test_the_line_is_one_line_of_no_more_than_80_bytes(text: str) -> None:
    line = npd_text.bounded(text)
    assert len(line.encode()) <= npd_text.LONGEST
    assert line.isprintable()


def test_the_configuration_names_the_conditions_and_its_commands_can_be_parsed() -> None:
    config = json.loads((TOP / "deploy/npd/exhume.json").read_text())
    assert config["pluginConfig"]["max_output_length"] == npd_text.LONGEST
    named = [(one["type"], one["reason"], one["message"]) for one in config["conditions"]]
    assert named == [(kind.name, kind.quiet_reason, kind.quiet) for kind in KINDS]
    for rule, kind in zip(config["rules"], KINDS, strict=True):
        assert (rule["type"], rule["condition"]) == ("permanent", kind.name)
        args = command_parser("check").parse_args(rule["args"][1:])
        assert (rule["args"][0], args.npd) == ("check", kind.name)


def exhume(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "exhume", "check", "--for", "200ms", *words]
    return subprocess.run(command, cwd=TOP / "src", capture_output=True, text=True, timeout=300)


def test_for_real_it_prints_one_line_and_ends_with_0_1_or_2() -> None:
    done = exhume("--npd")
    assert done.returncode in (0, 1, 2), done.stderr
    assert len(done.stdout.splitlines()) == 1
    assert len(done.stdout.strip().encode()) <= 80


def test_a_wrong_condition_is_a_sentence_and_is_no_state_of_the_node() -> None:
    done = exhume("--npd", "Nonsense")
    assert (done.returncode, done.stdout) == (64, "")
    assert "there are any, MemoryCgroupLeak" in done.stderr
    assert exhume("--npd", "--json").returncode == 64
