"""Units that nobody would miss: enabled, in trouble, and needed by no other."""

import pytest

from exhume.diagnosis.findings import unused_agent
from exhume.diagnosis.findings.model import of
from exhume.diagnosis.findings.registry import KINDS
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.findings.unused_agent import Trouble, UnusedAgent
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.lives import incident, unit, window
from tests.diagnosis.findings.test_leaks import shuffled

T = Thresholds()


def failed(needed_by: str = "", enabled: str = "enabled", name: str = "agent.service") -> Recording:
    recording = made.recording(on=("units",))
    window(recording, 60)
    for at in (0, 60):
        unit(recording, at, name, 0, "failed", "failed", needed_by, enabled)
        unit(recording, at, "fine.service", needed_by="")
    return recording


def test_the_incident_s_agent_is_enabled_crashes_and_is_needed_by_nobody() -> None:
    (finding,) = of(unused_agent.detect(incident(), T).findings, UnusedAgent)
    assert (finding.subject, finding.severity) == ("ecs.service", "warning")
    assert finding.summary == "ecs.service is enabled and is started again and again, and no other unit needs it"
    assert (finding.facts.unit, finding.facts.trouble) == ("ecs.service", Trouble.LOOPS)


def test_one_that_has_failed_and_rests_is_information() -> None:
    (finding,) = of(unused_agent.detect(failed(), T).findings, UnusedAgent)
    assert (finding.subject, finding.severity, finding.facts.trouble) == ("agent.service", "info", Trouble.FAILED)


@pytest.mark.parametrize(
    ("recording", "why"),
    [
        (failed(needed_by="ray.service"), "other units need each of the 1"),
        (failed(enabled="static"), "none of 2 units"),
        (failed(enabled=""), "none of 2 units"),
        (failed(name="kubelet.service"), "none of 2 units"),
        (failed(name="sshd.service"), "none of 2 units"),
    ],
)
def test_what_is_needed_or_does_not_start_by_itself_is_left_alone(recording: Recording, why: str) -> None:
    assert unused_agent.detect(recording, T).ruled_out.startswith(why)


def test_who_was_not_asked_is_not_called_unused() -> None:
    examined = unused_agent.detect(failed(needed_by="?"), T)
    assert (examined.findings, examined.ruled_out) == ((), "")
    assert examined.unseen == "who needs 1 of 1 enabled units in trouble was not asked"
    assert unused_agent.detect(made.recording(on=()), T).unseen


def test_an_answer_that_was_given_once_counts_until_there_is_another() -> None:
    recording = failed(needed_by="?")
    unit(recording, 30, "agent.service", 0, "failed", "failed", "", "enabled")
    assert unused_agent.detect(recording, T).findings
    unit(recording, 50, "agent.service", 0, "failed", "failed", "ray.service", "enabled")
    for seed in range(5):
        assert unused_agent.detect(shuffled(recording, seed), T).ruled_out


def test_it_is_asked_with_all_others() -> None:
    assert unused_agent.KIND in KINDS
