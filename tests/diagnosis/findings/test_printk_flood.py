"""printk-flood: who floods the log, and whether printing it holds a core."""

import pytest

from exhume.diagnosis.findings import printk_flood
from exhume.diagnosis.findings.subjects import Process
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND
from tests.diagnosis.findings.shown import CONSOLE, T, burst, flood, lasted, one, read, sampled, ten_minutes


def test_a_flood_names_the_message_and_lasts_as_long_as_it_did() -> None:
    recording = ten_minutes("printk")
    flood(recording)
    finding = one(printk_flood.detect(recording, T))
    assert (lasted(finding), finding.facts.messages_per_s) == ((300, 320), 500)
    assert (finding.facts.message, finding.facts.message_ratio) == ("veth#", 0.9)
    assert "veth7: entered promiscuous mode" in finding.summary
    assert finding.severity == "warning"


@pytest.mark.parametrize(
    ("rate", "printing", "severity", "said"),
    [
        (250, 0.0, "info", "they cost next to nothing"),
        (250, 0.05, "info", "they cost next to nothing"),
        (250, 0.2, "warning", "250 messages a second"),
        (250, 0.5, "warning", "prints them to a console on core 2"),
        (1600, 0.0, "warning", "they push everything else out of the log"),
    ],
)
def test_messages_that_no_console_prints_cost_next_to_nothing(rate: int, printing: float, severity: str, said: str) -> None:
    recording = sampled({})
    if printing:
        for second in range(10):
            made.sample(recording, second, second + printing / (1 - printing), 2, "rsyslogd", 55, CONSOLE)
    for second in range(0, 11, 2):
        recording.count(second * SECOND, "printk_records", second * rate)
    finding = one(printk_flood.detect(recording, T))
    assert (finding.severity, said in finding.summary) == (severity, True), finding.summary


def test_a_flood_before_or_after_the_stacks_were_sampled_is_a_warning() -> None:
    recording = sampled({}, seconds=4.0)
    burst(recording, "printk_records", 250, 300, 320)
    read(recording, "printk")
    assert one(printk_flood.detect(recording, T)).severity == "warning"


def test_lines_that_programs_write_are_not_the_kernels() -> None:
    recording = ten_minutes("printk")
    burst(recording, "printk_records", 0)
    flood(recording, "printk_program_records")
    finding = one(printk_flood.detect(recording, T))
    assert finding.severity == "info"
    assert "written by programs, not by the kernel" in finding.summary
    assert (finding.facts.messages_per_s, finding.facts.program_messages_per_s) == (None, 500)


def test_a_slow_console_holds_a_core_with_few_messages() -> None:
    recording = sampled({2: (2.0, 8.0, CONSOLE, "kworker/2:1")})
    recording.count(0, "printk_records", 0)
    recording.count(10 * SECOND, "printk_records", 900)
    finding = one(printk_flood.detect(recording, T))
    assert finding.facts.core == 2
    assert finding.facts.console_ratio > 0.8
    assert {span.core for span in finding.spans} == {2}
    assert finding.facts.printer.process == Process("kworker/2:1", 102)
    assert "kworker/2:1 [102]" in finding.summary
    quiet = sampled({})
    quiet.count(0, "printk_records", 0)
    quiet.count(10 * SECOND, "printk_records", 900)
    assert printk_flood.detect(quiet, T).ruled_out == "90 kernel messages a second, at most 0% of a core in printing them"


@pytest.mark.parametrize(("messages", "severity"), [(0, "info"), (5, "info"), (600, "warning")])
def test_a_console_is_not_kept_busy_by_messages_that_there_are_not(messages: int, severity: str) -> None:
    recording = sampled({2: (2.0, 8.0, CONSOLE, "pr/ttyS0")})
    recording.count(0, "printk_records", 0)
    recording.count(10 * SECOND, "printk_records", messages)
    finding = one(printk_flood.detect(recording, T))
    assert (finding.severity, finding.facts.core) == (severity, 2)
    assert ("hardly any message was logged" in finding.summary) is (severity == "info")
