"""The whole way on a real systemd and a real kernel: diagnosed, planned, fixed, purged, proven, and undone to the byte."""

import json
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import is_of
from exhume.diagnosis.judge import judge
from exhume.diagnosis.report import as_json, finding_id, from_json
from exhume.host.root import Root
from exhume.recording.recording import Recording
from exhume.remedy import carry_out, proof_live
from exhume.remedy.plan_unit import KEEPS, Keep
from exhume.remedy.proof import prove
from exhume.remedy.proof_live import Watched, watch
from tests import systemd
from tests.remedy.leaking import (
    ALL,
    SHORT,
    SMALL,
    HostsKernel,
    leaking,
    looping,
    machine,
    node,
    ours,
    pages,
    planned,
    restored,
    seen,
    started,
    zombies,
)
from tests.remedy.nodes import Crash
from tests.remedy.test_steps_systemd import AtAChange, active, restarts, shown, tree, wait
from tests.render.told import write

__all__ = ["looping", "machine", "pages"]  # fixtures
pytestmark = pytest.mark.ci
# A loop that is stopped while its process ends with an error has failed; in between two starts it is inactive.
DOWN = ("inactive", "failed")
# The first of the loop read pages of programs that others run, too: those a plan does not take from them.
MOST_IN_USE = 2


@pytest.mark.ci
def test_a_leak_is_diagnosed_fixed_purged_and_proven_and_undo_brings_back_exactly_what_was(machine: systemd.Machine) -> None:
    looping = started(machine)
    before, said = tree(looping), shown(looping, "ecs.service", "agent.service", "multi-user.target")
    report = from_json(as_json(judge(seen(looping), SMALL)))
    sick = leaking(looping)
    (leak,) = [finding_id(i) for i, one in enumerate(report.findings) if is_of(one, MemcgLeak)]
    assert report.find(leak)[0].facts.unit == "ecs.service"
    plan = planned(looping, leak, report)
    assert [step.kind for step in plan.steps] == ["stop-unit", "remove-link", "remove-link", "make-link", "reload", "purge"]
    outcome = carry_out.apply(plan, node(looping), ALL)

    assert outcome.exit_code == 0, outcome
    assert active(looping, "ecs.service") in DOWN
    assert "zombies gone" in outcome.events[-1].note
    assert wait(lambda: zombies() <= MOST_IN_USE), zombies()
    cured = watch(HostsKernel(looping.root), 45_000_000_000, sick, SHORT)
    assert not cured.early
    proof = prove(sick, ours(cured.recording), SHORT)
    assert proof.passed, [(one.id, one.status, one.because) for one in proof.criteria]
    carry_out.add_note(node(looping), outcome.identity, "proof", {"passed": True})
    assert carry_out.find(node(looping), outcome.identity).notes == (("proof", {"passed": True}),)

    undone = carry_out.undo(node(looping))
    assert undone.exit_code == 0, undone
    assert tree(looping) == before
    assert shown(looping, "ecs.service", "agent.service", "multi-user.target") == said
    assert wait(lambda: restarts(looping, "ecs.service") > 1)
    restored(machine)


def test_a_unit_is_silenced_by_its_name_and_undone(looping: systemd.Machine) -> None:
    before, said = tree(looping), shown(looping, "ecs.service", "agent.service")
    outcome = carry_out.apply(planned(looping, "agent", None), node(looping), ALL)
    assert outcome.exit_code == 0, outcome
    assert "LoadState=masked" in shown(looping, "ecs.service")
    assert looping.run(["systemctl", "start", "agent.service"], check=False).returncode != 0
    assert not [step for step in planned(looping, "ecs.service", None).steps if step.kind != "purge"]
    assert carry_out.undo(node(looping)).exit_code == 0
    assert tree(looping) == before
    assert shown(looping, "ecs.service", "agent.service") == said
    assert wait(lambda: restarts(looping, "ecs.service") > 1)


@pytest.mark.ci
@pytest.mark.parametrize("keep", KEEPS)
def test_a_loop_is_broken_and_the_unit_kept(looping: systemd.Machine, keep: Keep) -> None:
    before, said = tree(looping), shown(looping, "ecs.service")
    outcome = carry_out.apply(planned(looping, "ecs.service", None, keep), node(looping), ALL)
    assert outcome.exit_code == 0, outcome
    assert "LoadState=loaded" in shown(looping, "ecs.service")
    ends = {"no-restart": "failed", "start-limit": "failed", "do-nothing": "active"}[keep]
    assert wait(lambda: active(looping, "ecs.service") == ends)
    checked = looping.run(["systemd-analyze", "verify", "ecs.service"], check=False)
    assert "zz-exhume.conf" not in checked.stdout + checked.stderr
    assert carry_out.undo(node(looping)).exit_code == 0
    assert tree(looping) == before
    assert shown(looping, "ecs.service") == said


@pytest.mark.ci
def test_a_death_at_every_change_of_the_whole_plan_is_recovered_from(looping: systemd.Machine) -> None:
    before, said = tree(looping), shown(looping, "ecs.service", "agent.service")
    alive = AtAChange()
    carry_out.apply(planned(looping, "ecs.service", None), node(looping, alive), ALL)
    assert carry_out.undo(node(looping)).exit_code == 0
    assert alive.count >= 5  # stop, two links, a mask, reload
    for number in range(1, alive.count + 1):
        for then in (carry_out.resume, carry_out.undo):
            with pytest.raises(Crash):
                carry_out.apply(planned(looping, "ecs.service", None), node(looping, AtAChange(number)), ALL)
            assert then(node(looping)).exit_code == 0
            if then is carry_out.resume:
                assert "LoadState=masked" in shown(looping, "ecs.service")
                assert active(looping, "ecs.service") in DOWN
                assert carry_out.undo(node(looping)).exit_code == 0
            assert tree(looping) == before
            assert shown(looping, "ecs.service", "agent.service") == said
    assert wait(lambda: restarts(looping, "ecs.service") > 1)


def test_the_same_by_the_command_line_with_the_proof_and_its_exit_code(
    machine: systemd.Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """exhume verify fails while it leaks; exhume fix --apply --verify ends with 0, and the proof is in the history."""
    looping = started(machine)
    before = tree(looping)
    report = tmp_path / "report.json"
    report.write_text(json.dumps(as_json(judge(seen(looping), SMALL))))
    sick = leaking(looping)
    recorded = write(tmp_path / "sick", sick)
    config = tmp_path / "exhume.toml"
    config.write_text("[thresholds]\nleak_per_minute = 10.0\n")
    for module in ("exhume.host.root", "exhume.remedy.node"):
        monkeypatch.setattr(f"{module}.Root", HostsKernel)

    def only_ours(root: Root, for_ns: int, then: Recording | None, *more: object) -> Watched:
        found = watch(root, for_ns, sick, *more)  # type: ignore[arg-type]
        return Watched(ours(found.recording), found.early, found.stopped)

    monkeypatch.setattr(proof_live, "watch", only_ours)
    where = ["--host", looping.root, "--config", str(config)]
    assert main(["verify", "--for", "45s", "--before", recorded, *where]) == 2
    assert "the leak goes on" in capsys.readouterr().out

    yes = ["--apply", "--yes", "--yes-irreversible", "--verify", "--verify-for", "45s"]
    assert main(["fix", "memcg-leak", "--from", str(report), *yes, *where]) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert said.index("zombies gone") < said.index(" applied.") < said.index("PASSED")
    assert wait(lambda: zombies() <= MOST_IN_USE), zombies()
    assert main(["fix", "memcg-leak", "--from", str(report), *where]) == 0
    again = capsys.readouterr().out
    assert "ecs.service is down and masked already" in again
    # Of zombies whose pages are in use a purge may be left to do, and nothing else.
    assert "Nothing is left to do." in again or ("memcg-leak: 1 step\n" in again and "  1  purge " in again)
    assert main(["history", "--host", looping.root, "--json"]) == 0
    (one,) = json.loads(capsys.readouterr().out)["applications"]
    assert [(note["name"], note["value"]["passed"]) for note in one["notes"]] == [("proof", True)]
    assert main(["undo", "--yes", "--host", looping.root]) == 0
    assert tree(looping) == before
    assert wait(lambda: restarts(looping, "ecs.service") > 1)
    restored(machine)


def test_a_failed_unit_with_nothing_left_to_run_is_started_and_undone(looping: systemd.Machine) -> None:
    """Stopped by its start limit, as a loop with delays that are too short ends."""
    before = tree(looping)
    looping.run(["systemctl", "stop", "ecs.service"])
    limited = "/run/systemd/system/ecs.service.d/limit.conf"
    looping.write(limited, "[Unit]\nStartLimitIntervalSec=10min\nStartLimitBurst=2\n")
    looping.run(["systemctl", "daemon-reload"])
    looping.run(["systemctl", "start", "--no-block", "ecs.service"])
    assert wait(lambda: active(looping, "ecs.service") == "failed")
    plan = planned(looping, "ecs.service", None, "do-nothing")
    assert [step.kind for step in plan.steps] == ["write-file", "reload", "start-unit"]
    assert carry_out.apply(plan, node(looping), ALL).exit_code == 0
    assert active(looping, "ecs.service") == "active"
    assert not planned(looping, "ecs.service", None, "do-nothing").steps
    assert carry_out.undo(node(looping)).exit_code == 0
    assert active(looping, "ecs.service") in DOWN
    assert tree(looping) == before
    looping.run(["rm", "-r", "/run/systemd/system/ecs.service.d"])
    looping.run(["systemctl", "daemon-reload"])


def test_a_unit_that_vanishes_between_plan_and_apply_is_said_and_undone(looping: systemd.Machine) -> None:
    looping.write("/etc/systemd/system/brief.service", "[Service]\nExecStart=/bin/sleep infinity\n")
    looping.run(["systemctl", "daemon-reload"])
    looping.run(["systemctl", "start", "brief.service"])
    silence, keep = planned(looping, "brief.service", None), planned(looping, "brief.service", None, "do-nothing")
    looping.run(["systemctl", "stop", "brief.service"])
    looping.run(["rm", "/etc/systemd/system/brief.service"])
    looping.run(["systemctl", "daemon-reload"])
    gone = tree(looping)
    for plan in (silence, keep):
        outcome = carry_out.apply(plan, node(looping), ALL)
        assert outcome.exit_code == 2
        assert outcome.of("failed")[0].note
        if carry_out.pending(node(looping)) is not None:
            assert carry_out.undo(node(looping)).exit_code == 0
        assert tree(looping) == gone
