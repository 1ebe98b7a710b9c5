"""What a verdict is worth against the truth, and what the table of all of them says; one small incident, scored for real."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.diagnosis.report import Health, Report
from exhume.errors import ExhumeError
from exhume.lab import score, workshop
from exhume.lab.catalogue import scenarios
from exhume.lab.held import held
from exhume.lab.scenario import Felt, Truth
from exhume.lab.scenarios.starvation import Starvation
from tests.diagnosis import made
from tests.lab.runs import needs_root

RUN = "exhume-lab-1-00ff00"
DOCKER = f"/{RUN}/docker/<id>"
SHIPPER = f"/{RUN}/kubepods/burstable/<id>"
BY_NAME = {each.name: each.truth.of(RUN) for each in scenarios()}
STARVED, TWO, HEALTHY = BY_NAME["zombie-starvation"], BY_NAME["two-culprits"], BY_NAME["healthy"]


def report(cause: str | None, subject: str = "", *culprits: str, health: Health = "critical") -> Report:
    return made.report(cause=cause, subject=subject, culprits=culprits, health=health, summary="as it is")


def test_the_cause_or_another_word_for_it_with_the_culprit_is_right() -> None:
    assert held(STARVED, report("memcg-leak", DOCKER, DOCKER)).right
    assert held(STARVED, report("crash-loop", "ecs.service", "ecs.service")).right
    assert held(STARVED, report("zombie-memcgs", "node", DOCKER)).right


def test_another_cause_is_wrong_even_with_the_right_culprit() -> None:
    seen = held(STARVED, report("reclaim", DOCKER, DOCKER))
    assert (seen.cause_right, seen.culprit_right, seen.right) == (False, True, False)


def test_no_cause_where_there_is_one_is_wrong_and_accuses_nobody() -> None:
    seen = held(STARVED, report(None, "lab1"))
    assert (seen.cause_right, seen.culprit_right, seen.accused) == (False, False, ())


def test_who_merely_walks_is_falsely_accused_be_it_as_subject_or_as_culprit() -> None:
    assert held(STARVED, report("memcg-leak", DOCKER, DOCKER, "kubelet [77]")).accused == ("kubelet [77]",)
    assert held(STARVED, report("core-saturated", "kubelet.service")).accused == ("kubelet.service",)
    assert held(STARVED, report(None, "core 1", "kubelet [77]")).accused == ("kubelet [77]",)


def test_somebody_of_whom_the_truth_knows_nothing_is_falsely_accused_and_a_thing_is_not() -> None:
    for name in ("/user.slice/pytest", "sshd.service", "pytest [12]", "cc [7 and 1 more] of x", "tmp.scope"):
        assert held(STARVED, report("memcg-leak", name, DOCKER)).accused == (name,)
    for thing in ("core 1", "eth0", "node", "memory"):
        assert held(STARVED, report("reclaim", thing)).accused == ()
    assert held(STARVED, report("reclaim", "node", "postgres")).accused == ("postgres",)


def test_where_the_machine_is_full_by_all_who_compute_others_may_be_named_too() -> None:
    truth = BY_NAME["cpu-full"]
    renderer = f"lab-renderer [9] of {RUN}/web/renderer"
    assert held(truth, report("cpu-full", "node", "cc1plus [5]", renderer)).right
    assert not held(truth, report("cpu-full", "node", "cc1plus [5]")).culprit_right


def test_one_name_is_one_accusation() -> None:
    assert held(STARVED, report("reclaim", "/other", "/other", "/other")).accused == ("/other",)


def test_the_lesser_culprit_must_be_named_too_and_the_larger_first() -> None:
    assert held(TWO, report("memcg-leak", DOCKER, DOCKER, SHIPPER, health="warning")).right
    assert not held(TWO, report("memcg-leak", DOCKER, DOCKER, health="warning")).culprit_right
    assert not held(TWO, report("memcg-leak", SHIPPER, SHIPPER, DOCKER, health="warning")).culprit_right


def test_on_a_healthy_node_any_cause_is_an_accusation() -> None:
    assert held(HEALTHY, report(None, health="healthy")).right
    seen = held(HEALTHY, report("cpu-full", "node", health="warning"))
    assert (seen.cause_right, seen.health_right, seen.accused) == (False, False, ("cpu-full",))
    assert held(HEALTHY, report("cpu-full", f"/{RUN}/web", health="warning")).accused == (f"/{RUN}/web", "cpu-full")


def test_a_tenant_s_own_affair_may_be_told_and_need_not() -> None:
    truth = BY_NAME["quota-throttling"]
    (group,) = truth.culprits
    assert held(truth, report(None, health="healthy")).right
    assert held(truth, report("cpu-throttled", f"/{group}", health="healthy")).right
    assert held(truth, report(None, "", "/else", health="healthy")).accused == ("/else",)


def test_the_health_must_be_one_of_those_that_fit() -> None:
    seen = held(BY_NAME["zombies-harmless"], report("memcg-leak", DOCKER, DOCKER, health="critical"))
    assert (seen.cause_right, seen.culprit_right, seen.health_right, seen.right) == (True, True, False, False)


@given(st.none() | st.text(), st.text(), st.lists(st.text(), max_size=4))
def test_any_names_are_held_against_any_truth(cause: str | None, subject: str, culprits: list[str]) -> None:
    for truth in BY_NAME.values():
        seen = held(truth, report(cause, subject, *culprits))
        assert set(seen.accused) <= {subject, *culprits, cause}
        assert seen.right <= (cause == truth.cause or cause in truth.also_right)


GROUND = {"promises": [{"what": "zombies", "kept": True}, {"what": "resets", "kept": False}]}


def test_seconds_run_from_the_first_symptom_to_the_first_printed_verdict_that_is_right() -> None:
    right = report("memcg-leak", DOCKER, DOCKER)
    printed = [(103.0, report(None, "lab1")), (106.26, right), (109.0, right)]
    run = score.judged(STARVED, GROUND, right, printed, 101.0)
    assert (run.seconds_to_verdict, run.right, run.broken) == (5.3, True, ("resets",))
    assert [(each["seconds"], each["cause"]) for each in run.as_json()["printed"]] == [
        (2.0, None),
        (5.3, "memcg-leak"),
        (8.0, "memcg-leak"),
    ]
    assert score.judged(STARVED, GROUND, right, printed, None).seconds_to_verdict is None
    assert score.judged(STARVED, GROUND, right, printed[:1], 101.0).seconds_to_verdict is None
    assert score.judged(STARVED, GROUND, right, printed, 107.0).seconds_to_verdict == 0.0


def test_who_was_accused_on_the_way_was_accused() -> None:
    right = report("memcg-leak", DOCKER, DOCKER)
    run = score.judged(STARVED, GROUND, right, [(1.0, report("core-saturated", "core 1", "kubelet [7]")), (9.0, right)], 0.0)
    assert run.held.right
    assert (run.right, run.accused, run.seconds_to_verdict) == (False, ("kubelet [7]",), 9.0)
    assert (run.as_json()["accused_falsely"], run.as_json()["accused_meanwhile"]) == ([], ["kubelet [7]"])


def test_a_row_is_as_good_as_the_worst_of_its_runs() -> None:
    right, wrong = report("memcg-leak", DOCKER, DOCKER), report("reclaim", "node", "/else")
    runs = [score.judged(STARVED, GROUND, each, [(at, right)], 0.0) for each, at in ((right, 4.0), (wrong, 7.0), (right, 5.0))]
    row = score.scored("zombie-starvation", runs)
    assert (row["cause_right"], row["culprit_right"], row["health_right"]) == (False, False, True)
    assert (row["false_accusations"], row["seconds_to_verdict"], row["runs"], row["right"]) == (1, 7.0, 3, 2)
    assert [verdict["cause"] for verdict in row["verdicts"]] == ["memcg-leak", "reclaim", "memcg-leak"]
    assert json.loads(json.dumps(row)) == row
    assert not score.all_right([row])
    assert score.all_right([score.scored("zombie-starvation", runs[:1])])


def test_a_recording_that_cannot_be_diagnosed_is_wrong_and_says_why(tmp_path: Path) -> None:
    seen = score.diagnosis(tmp_path / "nothing")
    assert "could not be diagnosed" in seen.verdict.summary
    assert all(not held(truth, seen).right for truth in BY_NAME.values())


def test_a_recorder_that_does_not_begin_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="the recorder did not begin: exhume: there is no"):
        score.Recorder(tmp_path / "not" / "there", tmp_path)


def test_what_was_kept_before_is_not_written_over(tmp_path: Path) -> None:
    assert score.place(tmp_path, "healthy", 0) == tmp_path / "healthy"
    (tmp_path / "healthy").mkdir()
    (tmp_path / "healthy-2").mkdir()
    assert score.place(tmp_path, "healthy", 0) == tmp_path / "healthy-3"
    assert score.place(tmp_path, "cpu-full", 4) == tmp_path / "cpu-full-5"


def test_names_of_a_run_are_in_the_truth_and_its_end_is_the_tag() -> None:
    truth = Truth("printk-flood", culprits=("exhume-{tag}", "{run}/web"), innocent=("{run}",))
    assert truth.of(RUN).culprits == ("exhume-00ff00", f"{RUN}/web")
    assert BY_NAME["printk-flood"].culprits[0] == "exhume-00ff00"


def test_the_incident_knows_when_it_was_felt() -> None:
    assert issubclass(Starvation, Felt)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["score", "healthy"], "takes no name; --only NAME"),
        (["score", "--only", "nope"], "there is no scenario 'nope'"),
        (["score", "--only", ","], "--only needs names"),
        (["score", "--runs", "0"], "--runs must be between 1 and 100"),
        (["score", "--for", "1s"], "--for must be between"),
        (["run", "healthy", "--runs", "2"], "are options of exhume lab score"),
        (["list", "--keep", "x"], "are options of exhume lab score"),
    ],
)
def test_wrong_usage_of_score_is_a_sentence_and_64(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["lab", *words]) == 64
    assert says in capsys.readouterr().err


def test_nothing_is_scored_without_the_switch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(workshop.SWITCH, raising=False)
    assert main(["lab", "score"]) == 2
    assert "set EXHUME_LAB=1" in capsys.readouterr().err


@pytest.mark.ci
@needs_root
def test_an_incident_is_made_recorded_diagnosed_and_gone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether the verdict is right is for the lab to say, on a machine with nothing else to do; here, that there is one."""
    monkeypatch.setenv(workshop.SWITCH, "1")
    kept = tmp_path / "kept"
    code = main(["lab", "score", "--only", "quota-throttling", "--for", "5s", "--keep", str(kept), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["not_here"]) == ("exhume.score/1", [])
    (row,) = told["scenarios"]
    (verdict,) = row["verdicts"]
    assert (row["name"], row["runs"]) == ("quota-throttling", 1)
    assert verdict["health"] in ("healthy", "warning", "critical")
    # What else runs on this machine can keep its programs from their cores.
    assert set(verdict["not_as_promised"]) <= {"neighbour_late_ms", "throttled_periods", "throttled_share"}
    assert code == (0 if row["right"] else 2)
    assert sorted(each.name for each in kept.iterdir()) == ["quota-throttling", "quota-throttling.json"]
    assert json.loads((kept / "quota-throttling.json").read_text())["score"] == verdict
