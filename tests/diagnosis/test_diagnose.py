"""A recording as a whole: incidents apart in time are told apart, each with its own cause."""

import pytest

from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings import registry
from exhume.diagnosis.findings.model import Examined
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import as_json
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND

STACK = ("nvidia_ioctl", "vfs_ioctl", "__x64_sys_ioctl", "do_syscall_64")


def recording(seconds: float, *bursts: tuple[float, float, str]) -> Recording:
    """Core 1 of eight is full of kernel time now and then, for one program or another."""
    whole = made.recording(cpus=8)
    made.cores(whole, seconds, {1: [(start, end, "system") for start, end, _ in bursts]}, step=0.1)
    for tid, (start, end, comm) in enumerate(bursts, 100):
        made.sample(whole, start, end, 1, comm, tid, STACK)
    return whole


def test_nothing_is_no_incident() -> None:
    report = diagnose(recording(300.0), Thresholds())
    assert (report.health, report.incidents, report.verdict.cause) == ("healthy", (), None)


def test_one_incident_of_a_long_recording_is_where_it_was() -> None:
    report = diagnose(recording(600.0, (300.0, 303.0, "trainer")), Thresholds())
    (incident,) = report.incidents
    assert incident.start == pytest.approx(300 * SECOND, abs=SECOND)
    assert incident.end == pytest.approx(303 * SECOND, abs=SECOND)
    assert report.verdict is incident.verdict
    assert report.verdict.subject == "trainer [100]"


@pytest.mark.parametrize("bursts", [(), ((20.0, 23.0, "trainer"),)], ids=["quiet", "one incident"])
def test_a_window_is_examined_once(bursts: tuple[tuple[float, float, str], ...], monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[tuple[int, int]] = []

    def counted(looked_at: Recording, thresholds: Thresholds) -> list[Examined]:
        windows.append(looked_at.window)
        return registry.examine(looked_at, thresholds)

    monkeypatch.setattr("exhume.diagnosis.diagnose.examine", counted)
    monkeypatch.setattr("exhume.diagnosis.judge.examine", counted)
    whole = recording(50.0, *bursts)
    assert len(diagnose(whole, Thresholds()).incidents) == len(bursts)
    assert windows == [whole.window]


def test_incidents_apart_are_told_apart_and_those_together_are_one() -> None:
    report = diagnose(
        recording(900.0, (100.0, 102.0, "trainer"), (120.0, 124.0, "trainer"), (600.0, 603.0, "loader")), Thresholds()
    )
    assert [round(incident.start / SECOND) for incident in report.incidents] == [100, 600]
    assert [incident.verdict.subject.split(" ")[0] for incident in report.incidents] == ["trainer", "loader"]
    assert all(incident.verdict.cause == "core-saturated" for incident in report.incidents)
    assert report.verdict is report.incidents[-1].verdict
    assert {finding.kind for finding in report.findings} >= {"core-saturated"}


def test_what_was_long_ago_is_as_bad_as_it_was() -> None:
    """Ages count from the end of a check; in a recording an incident is one, however long it went on afterwards."""
    whole = recording(100.0, (50.0, 52.0, "trainer"))
    late = made.recording(cpus=8)
    made.cores(late, 5.0, {}, at=2 * 86_400 * SECOND)
    whole["cpu"].extend(late["cpu"])
    made.stall(whole, 52.0, 1500, stack=STACK)
    report = diagnose(whole, Thresholds())
    assert report.health == "critical"
    assert [link.finding.kind for link in report.verdict.chain] == ["core-saturated", "napi-starved"]


def test_incidents_that_are_too_many_to_judge_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """The longest are judged, and the last, which is what people ask about."""
    monkeypatch.setattr("exhume.diagnosis.diagnose.MOST", 2)
    whole = recording(900.0, (100.0, 102.0, "a"), (300.0, 306.0, "b"), (500.0, 503.0, "c"), (700.0, 702.0, "d"))
    report = diagnose(whole, Thresholds())
    assert [round(incident.start / SECOND) for incident in report.incidents] == [300, 700]
    assert [round(start / SECOND) for start, _ in report.further] == [100, 500]
    document = as_json(report)
    assert [set(one) for one in document["incidents_not_judged"]] == [{"start", "end"}] * 2
    assert document["incidents_more"] == 0
    monkeypatch.setattr("exhume.diagnosis.diagnose.MOST_FURTHER", 1)
    report = diagnose(whole, Thresholds())
    assert ([round(start / SECOND) for start, _ in report.further], report.more) == ([500], 1)
    assert as_json(report)["incidents_more"] == 1


def test_where_all_are_judged_nothing_more_is_told() -> None:
    report = diagnose(recording(600.0, (100.0, 102.0, "a"), (300.0, 306.0, "b")), Thresholds())
    assert (len(report.incidents), report.further, report.more) == (2, (), 0)
    assert "incidents_not_judged" not in as_json(report)
