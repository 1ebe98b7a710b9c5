"""The proof as a whole: twenty fixed nodes pass and twenty unfixed ones fail on a busy machine; what is open stays open."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError
from exhume.recording.part import part
from exhume.recording.recording import Recording
from exhume.remedy.criteria import CRITERION_LABELS, RARE_LABELS, STATUS_LABELS, CriterionId, RareId, Status
from exhume.remedy.proof import SCHEMA, as_json, from_json, prove
from exhume.remedy.proof_checklist import STATE_LABELS, STEP_LABELS, State, StepId
from exhume.remedy.proof_live import Kept, LeakWatch
from tests.remedy.made_proof import Made, node

LIMITS = Thresholds()
SICK = Made(1, seconds=300, others=3)
CURED = replace(SICK, seed=2, leak=0, walk_s=0, zombies=80)


@pytest.fixture(scope="module")
def sick() -> Recording:
    return node(SICK)


SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.ci) for seed in range(4, 20))]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fixed_node_passes_and_an_unfixed_one_fails(seed: int) -> None:
    """Of different leaks, walks and loads; ten minutes, as the default is. What else the node does goes on at its rate."""
    leak = (6.0, 12.0, 60.0, 300.0)[seed % 4]
    walk = (2.0, 0.8, 6.0, 0.0)[seed % 4]
    before = Made(100 + seed, seconds=240, leak=leak, walk_s=walk, others=4.0, busy=0.2 + 0.03 * seed, copies=2 + seed % 5 * 6)
    longer = replace(before, seconds=600, copies=before.copies * 600 // 240)
    fixed = node(replace(longer, seed=200 + seed, leak=0, walk_s=0, zombies=200))
    unfixed = node(replace(longer, seed=300 + seed, zombies=20_500))
    sick = node(before)
    told = prove(sick, fixed, LIMITS)
    assert told.passed is True, [one for one in told.causes if one.status != "passed"]
    assert prove(sick, unfixed, LIMITS).passed is False
    assert prove(None, unfixed, LIMITS).passed is False


def test_a_leak_that_was_stopped_without_a_purge_is_not_cured_while_somebody_walks(sick: Recording) -> None:
    proof = prove(sick, node(replace(SICK, seed=9, leak=0)), LIMITS)
    assert proof.passed is False
    assert "walks over memory cgroups" in proof.summary


@pytest.mark.parametrize("seconds", [12, 30, 60])
def test_too_little_is_never_a_pass(sick: Recording, seconds: float) -> None:
    for before in (sick, None):
        proof = prove(before, node(replace(CURED, seconds=seconds)), LIMITS)
        assert proof.passed is None
        assert "would be enough" in proof.summary


def test_what_was_bad_and_cannot_be_seen_any_more_is_no_pass(sick: Recording) -> None:
    for off in (("cpu", "samples"), ("samples",), ("memcg", "cgroup-events"), ("units", "cgroup-events")):
        assert prove(sick, node(replace(CURED, off=off)), LIMITS).passed is None, off


def test_nothing_recorded_is_not_judged() -> None:
    empty = Recording(node(CURED).node)
    assert prove(None, empty, LIMITS).passed is None
    assert prove(empty, empty, LIMITS).passed is None
    assert prove(empty, node(replace(CURED, seconds=600)), LIMITS).passed is True


def test_an_early_end_is_a_failure_whatever_the_whole_would_have_said(sick: Recording) -> None:
    proof = prove(sick, node(replace(CURED, seconds=20)), LIMITS, early="the leak goes on: 9 came")
    assert proof.passed is False
    assert proof.early
    assert proof.criteria[0].because == "the leak goes on: 9 came"


def test_a_proof_goes_through_json_unchanged(sick: Recording) -> None:
    for after in (CURED, replace(SICK, seed=7), replace(CURED, off=("memcg", "cgroup-events"))):
        proof = prove(sick, node(after), LIMITS)
        document = json.loads(json.dumps(as_json(proof)))
        assert document["schema"] == SCHEMA
        first = document["criteria"][0]
        assert {"id", "label", "status", "before", "after", "unit", "limit", "confidence", "because"} <= first.keys()
        assert (first["id"], first["label"]) == ("leak-rate", "rate of the leak")
        assert from_json(document) == proof
    assert from_json(as_json(prove(None, node(CURED), LIMITS))).before is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.sampled_from(["passed", "summary", "hostname", "before", "after", "criteria", "rare", "more"]), _JSON)
)
def test_what_is_no_proof_is_refused_with_a_sentence(document: dict[str, object]) -> None:
    with pytest.raises(ExhumeError, match="this is no"):
        from_json({"schema": SCHEMA, **document})
    with pytest.raises(ExhumeError, match="schema"):
        from_json(document)


@pytest.mark.parametrize("wrong", ["not seen", "rate of the leak", None, 1, [], {}])
@pytest.mark.parametrize("key", ["id", "status"])
@pytest.mark.parametrize("part", ["criteria", "rare"])
def test_an_unknown_id_or_status_is_refused(part: str, key: str, wrong: object, sick: Recording) -> None:
    document = as_json(prove(sick, sick, LIMITS))
    document[part][0][key] = wrong
    with pytest.raises(ExhumeError, match="this is no proof that exhume made"):
        from_json(document)


def test_a_proof_of_an_earlier_schema_is_to_be_made_again() -> None:
    with pytest.raises(ExhumeError, match=r"has schema exhume\.proof/1, .* make it again with exhume verify"):
        from_json({"schema": "exhume.proof/1", "passed": True})


def test_every_id_has_a_label() -> None:
    tables: list[tuple[object, Iterable[str]]] = [
        (CriterionId, CRITERION_LABELS),
        (RareId, RARE_LABELS),
        (Status, STATUS_LABELS),
        (StepId, STEP_LABELS),
        (State, STATE_LABELS),
    ]
    for ids, labels in tables:
        assert get_args(ids) == tuple(labels)


@pytest.mark.parametrize("off", [(), ("cgroup-events",)], ids=["by events", "by the count"])
def test_a_leak_that_goes_on_is_seen_before_the_time_is_up(sick: Recording, off: tuple[str, ...]) -> None:
    for before in (sick, None):
        watch = LeakWatch(before, LIMITS)
        assert watch.goes_on(node(replace(SICK, seed=12, leak=60, seconds=60, off=off))).startswith("the leak goes on")
        assert watch.goes_on(node(replace(CURED, seconds=60, off=off))) == ""


@pytest.mark.ci
def test_a_well_node_is_hardly_ever_said_to_leak_before_its_time() -> None:
    """Honest tenants who leave something behind now and then, in places of their own, looked at ten times in ten minutes."""
    alarms = 0
    for seed in range(15):
        watch = LeakWatch(None, LIMITS)
        well = node(replace(CURED, seed=seed, seconds=600, others=4, cpus=5, copies=0, off=("cpu", "samples", "processes")))
        start, end = well.window
        looks = range(start + (end - start) // 10, end + 1, (end - start) // 10)
        alarms += any(watch.goes_on(_until(well, look)) for look in looks)
    assert alarms <= 1


def _until(recording: Recording, end: int) -> Recording:
    start, _ = recording.window
    cut = part(recording, start, end)
    del cut.tables["anchors"]  # which a part shares as a whole: the window would not end
    for row in recording["anchors"].rows():
        if row["time"] < end:
            cut["anchors"].add(*row.values())
    return cut


def test_a_storm_of_cgroups_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.remedy.proof_live._MOST_EVENTS", 100)
    whole = node(replace(SICK, leak=300, seconds=60))
    kept = Kept(whole.node)
    kept.append(node(replace(SICK, leak=6, seconds=60)))
    kept.append(whole)
    assert 0 < len(kept.recording["cgroup_events"]) <= 100
    lost = kept.recording.counter("cgroup_events_lost")
    assert lost is not None
    assert lost.last > 300
