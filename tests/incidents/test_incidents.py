"""Every incident gets the verdict that it had in the end, and nobody who had no part in it is accused."""

from collections.abc import Callable
from functools import cache

import pytest

from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report, Verdict, as_json
from tests.incidents import drivers, innocents, quiet, rivals, zombies
from tests.incidents.truth import Told, Truth

INCIDENTS = (*zombies.INCIDENTS, *rivals.INCIDENTS, *drivers.INCIDENTS, *quiet.INCIDENTS, *innocents.INCIDENTS)


@cache
def told(make: Callable[[], Told]) -> tuple[Truth, Report]:
    story = make()
    return story.truth, diagnose(story.recording, Thresholds())


def accused(verdict: Verdict) -> list[str]:
    """Whom it names: the culprits, what is to be changed, and the subject, if that is what did it."""
    names = [culprit.subject for culprit in verdict.culprits] + [remedy.target for remedy in verdict.remedies]
    return [*names, verdict.subject] if verdict.cause is not None else names


@pytest.mark.parametrize("make", INCIDENTS, ids=lambda make: make.__name__)
def test_the_cause_is_the_one_that_it_was(make: Callable[[], Told]) -> None:
    truth, report = told(make)
    assert report.verdict.cause in truth.causes, report.verdict.summary
    assert report.health in truth.health


@pytest.mark.parametrize("make", INCIDENTS, ids=lambda make: make.__name__)
def test_the_culprit_is_named_and_nobody_else(make: Callable[[], Told]) -> None:
    truth, report = told(make)
    verdict = report.verdict
    named = [*accused(verdict), verdict.subject]
    assert not truth.culprits or any(culprit in name for culprit in truth.culprits for name in named), named
    wrongly = {(innocent, name) for innocent in truth.innocent for name in accused(verdict) if innocent in name}
    assert wrongly == set()
    together = {one for one in truth.together for culprit in verdict.culprits if one in culprit.subject}
    assert len(together) != 1, "one of several readers that wait for each other is named as if it were alone"


@pytest.mark.parametrize("make", INCIDENTS, ids=lambda make: make.__name__)
def test_the_chain_has_what_led_to_it_and_nothing_that_was_just_there(make: Callable[[], Told]) -> None:
    truth, report = told(make)
    kinds = [link.finding.kind for link in report.verdict.chain]
    assert [kind for kind in kinds if kind in truth.chain] == list(truth.chain)
    assert not set(truth.never) & set(kinds)
    assert all(link.because for link in report.verdict.chain[1:])


@pytest.mark.parametrize("make", INCIDENTS, ids=lambda make: make.__name__)
def test_the_report_says_what_to_do_or_to_look_at(make: Callable[[], Told]) -> None:
    truth, report = told(make)
    verdict = report.verdict
    advice = [text for one in verdict.advice for text in (one.text, one.because)]
    findings = [finding.summary for finding in report.findings] if report.verdict.cause is None else []
    remedies = [one.summary for one in verdict.remedies]
    said = " ".join([verdict.summary, *verdict.next, *remedies, *verdict.switch_on, *advice, *findings]).lower()
    assert [word for word in truth.says if word not in said] == []
    if verdict.cause is None and report.health == "critical":
        assert verdict.switch_on
    assert as_json(report)["verdict"]["cause"] == verdict.cause


@pytest.mark.parametrize("make", zombies.UNREAPED, ids=lambda make: make.__name__)
def test_zombies_of_unreaped_processes_are_for_their_parent_and_a_purge_only_for_the_others(make: Callable[[], Told]) -> None:
    _, report = told(make)
    first, *others = report.verdict.remedies
    assert (first.id, first.target) == ("fix", "defunct-processes")
    some_are_held_by_pages = make is zombies.unreaped_children_before_harm
    assert [one.id for one in others] == (["purge-zombies"] if some_are_held_by_pages else [])
    assert not any("purge" in step for step in report.verdict.next)
    assert any("purge" in one.text and one.against for one in report.verdict.advice)


def test_two_incidents_half_an_hour_apart_have_each_their_own_cause() -> None:
    truth, report = told(quiet.two_troubles)
    assert len(report.incidents) == len(truth.incidents)
    for (causes, word), incident in zip(truth.incidents, report.incidents, strict=True):
        assert incident.verdict.cause in causes
        assert word in incident.verdict.summary.lower()
    first, second = report.incidents
    assert second.start - first.end > 20 * 60 * 10**9
