"""Who gets a bundle without names comes to the same verdict as who has them, on every incident."""

from collections.abc import Callable

import pytest

from exhume.cli.bundle import pseudonyms
from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.recording.pseudonymised import pseudonymised
from tests.incidents.test_incidents import INCIDENTS
from tests.incidents.truth import Told

# Names of the incidents that must not be seen. Those of programs that everybody has may be.
PRIVATE = (
    "gpu-host",
    "b0071d00",
    "batch-runner",
    "logrotate",
    "trainer",
    "spark-executor",
    "megatron",
    "api-gateway",
    "metrics-relay",
)


@pytest.mark.ci
@pytest.mark.parametrize("make", INCIDENTS, ids=lambda make: make.__name__)
def test_the_verdict_on_a_pseudonymised_recording_is_the_same(make: Callable[[], Told]) -> None:
    recording = make().recording
    names = pseudonyms()
    before, after = diagnose(recording, Thresholds()), diagnose(pseudonymised(recording, names), Thresholds())
    assert (after.health, after.verdict.cause) == (before.health, before.verdict.cause)
    assert after.verdict.confidence == pytest.approx(before.verdict.confidence)
    assert [link.finding.kind for link in after.verdict.chain] == [link.finding.kind for link in before.verdict.chain]
    assert len(after.verdict.culprits) == len(before.verdict.culprits)
    assert [finding.kind for finding in after.findings] == [finding.kind for finding in before.findings]
    assert [name for name in PRIVATE if name in repr(after)] == []
    for culprit, hidden in zip(before.verdict.culprits, after.verdict.culprits, strict=True):
        assert hidden.subject == names.text(culprit.subject)
