"""exhume checklist: each step by what is known, and the whole of a node as its files have it."""

import json
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.checklist_text import markdown, render
from exhume.cli.main import main
from exhume.cli.terminal import Style
from exhume.diagnosis.diagnose import diagnose
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import Report
from exhume.errors import ExhumeError
from exhume.host.root import Root
from exhume.image.policy import Listed, Policy
from exhume.remedy import proof_checklist as steps
from exhume.remedy.proof import Proof, as_json, prove
from exhume.remedy.proof_checklist import Known, State, Step, Unit, checklist
from exhume.remedy.proof_gathered import gathered
from tests import systemd
from tests.incidents.quiet import healthy_and_busy
from tests.incidents.zombies import as_published
from tests.remedy.made_proof import Made, node
from tests.render.told import write
from tests.trees import incident

CAPTURE = pytest.CaptureFixture[str]
CURED = Made(2, seconds=600, leak=0, walk_s=0, zombies=60, cpus=5)
OFF = {"ecs.service": Unit("inactive", "masked")}


@pytest.fixture(scope="module")
def sick() -> Report:
    return diagnose(as_published().recording, Thresholds())


@pytest.fixture(scope="module")
def well() -> Report:
    return diagnose(healthy_and_busy().recording, Thresholds())


@pytest.fixture(scope="module")
def passed() -> Proof:
    return prove(None, node(CURED), Thresholds())


def known(report: Report | None = None, **more: object) -> Known:
    return replace(Known(report=report), **more)  # type: ignore[arg-type]


def test_the_version_of_cgroups() -> None:
    assert steps.cgroup_version(known(cgroups="v1", memory_at="/sys/fs/cgroup/memory")).state == "done"
    assert steps.cgroup_version(known()).state == "open"
    assert steps.cgroup_version(known(cgroups="none")).state == "open"


@pytest.mark.parametrize(
    ("zombies", "live", "places", "state"),
    [
        (None, 0, (), "open"),
        (68_440, 240, (), "open"),
        (68_440, 240, (("/docker/<id>", 68_000),), "done"),
        (100, 240, (), "done"),
    ],
)
def test_the_zombies_are_counted_and_named(
    zombies: int | None, live: int, places: tuple[tuple[str, int], ...], state: State
) -> None:
    assert steps.scan(known(zombies=zombies, live=live, places=places)).state == state


@pytest.mark.parametrize(("zombies", "state"), [(None, "open"), (68_440, "open"), (80, "done")])
def test_the_zombies_are_let_go(zombies: int | None, state: State) -> None:
    assert steps.clean_up(known(zombies=zombies, live=240)).state == state


def test_the_cause_comes_before_more_nodes(sick: Report, well: Report) -> None:
    assert steps.correlate(known()).command == "sudo exhume record --for 1h"
    assert "ecs.service" in steps.correlate(known(sick)).evidence
    assert steps.correlate(known(well, recorded_h=3.0)).evidence == "no incident in 3 h of recording"
    blind = replace(sick, verdict=replace(sick.verdict, cause=None))
    assert steps.correlate(known(blind)).state == "open"


@pytest.mark.parametrize(
    ("units", "state"),
    [
        (None, "open"),
        ({"ecs.service": Unit("active", "enabled")}, "open"),
        ({"ecs.service": Unit("activating", "disabled")}, "open"),
        ({"ecs.service": Unit("inactive", "enabled")}, "open"),
        ({"ecs.service": Unit("inactive", "static")}, "open"),
        ({"ecs.service": Unit("inactive", "masked-runtime")}, "open"),
        ({"ecs.service": Unit("inactive", "")}, "open"),
        ({"ecs.service": Unit("", "masked")}, "open"),
        ({"ecs.service": Unit("failed", "masked")}, "done"),
        ({"ecs.service": Unit("inactive", "disabled")}, "done"),
        ({"ecs.service": Unit("inactive", "not-found")}, "done"),
        ({}, "open"),
    ],
)
def test_the_culprit_is_disabled(sick: Report, units: dict[str, Unit] | None, state: State) -> None:
    step = steps.disable(known(sick, units=units))
    assert step.state == state
    assert (step.command == "sudo exhume fix ecs.service") == (state == "open")


def _tree(root: Path) -> None:
    files = {
        "lib/systemd/system/ecs.service": "[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n",
        "lib/systemd/system/leak.service": "[Service]\nExecStart=/bin/a\n",
        "lib/systemd/system/leak.timer": "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n",
        "lib/systemd/system/pull.socket": "[Socket]\nListenStream=/run/x\n[Install]\nWantedBy=sockets.target\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, target in (("multi-user.target.wants/ecs.service", "ecs"), ("timers.target.wants/leak.timer", "leak")):
        link = root / "etc/systemd/system" / name
        link.parent.mkdir(parents=True)
        link.symlink_to(f"/lib/systemd/system/{target}{link.suffix}")


def test_whether_a_culprit_starts_again_is_asked_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped service that is enabled comes back with the next boot; timers and sockets are asked as services are."""
    from exhume.remedy import proof_units
    from exhume.remedy.manager import UnitState

    class Stopped:
        def state(self, _: str) -> UnitState:
            return UnitState("inactive", "dead")

    _tree(tmp_path)
    names = ("ecs.service", "leak.service", "leak.timer", "pull.socket", "gone.timer")
    monkeypatch.setattr(proof_units, "running", lambda _: Stopped())
    found = proof_units.states(Root(str(tmp_path)), names)
    assert {name: unit.enabled for name, unit in found.items()} == {
        "ecs.service": "enabled",
        "leak.service": "static",
        "leak.timer": "enabled",
        "pull.socket": "disabled",
        "gone.timer": "not-found",
    }
    assert [unit.off for unit in found.values()] == [False, False, False, True, True]
    (tmp_path / "etc/systemd/system/ecs.service").symlink_to("/dev/null")
    assert proof_units.states(Root(str(tmp_path)), names)["ecs.service"] == Unit("inactive", "masked")
    monkeypatch.undo()
    found = proof_units.states(Root(str(tmp_path)), names)
    assert not any(unit.off for unit in found.values()), "nobody knows whether they run"
    assert str(found["leak.timer"]) == "not known to be stopped, enabled"
    assert proof_units.states(Root(str(tmp_path / "nowhere")), ()) == {}


@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable() or "a systemd can be started")
def test_a_stopped_culprit_of_a_real_systemd_is_open_until_it_is_disabled() -> None:
    from exhume.remedy.proof_units import states

    install = "[Install]\nWantedBy=basic.target\n"
    units = {
        "ecs.service": f"[Service]\nExecStart=/bin/sleep inf\n{install}",
        "leak.timer": f"[Timer]\nOnBootSec=9h\nUnit=ecs.service\n{install}",
    }
    with systemd.boot(units) as machine:
        names = tuple(units)
        machine.run(["systemctl", "enable", "--now", *names])
        assert states(Root(machine.root), names) == dict.fromkeys(names, Unit("active", "enabled"))
        machine.run(["systemctl", "stop", *names])
        assert states(Root(machine.root), names) == dict.fromkeys(names, Unit("inactive", "enabled"))
        machine.run(["systemctl", "disable", *names])
        assert all(unit.off for unit in states(Root(machine.root), names).values())


def test_who_is_accused_by_nobody_need_not_be_disabled(well: Report, sick: Report) -> None:
    assert steps.disable(known(well, units={})).state == "not-needed"
    nobody = replace(sick, verdict=replace(sick.verdict, subject="", culprits=()))
    assert steps.disable(known(nobody, units={})).state == "open"
    done = known(sick, units=OFF, done=(("20260101-120000", '{"unit":"ecs.service"}'),))
    assert steps.disable(done).evidence.endswith("by 20260101-120000")


def test_the_validation_is_of_ten_minutes_and_of_this_incident(passed: Proof) -> None:
    assert steps.validate(known(proof=passed)).state == "done"
    assert steps.validate(known()).command == "sudo exhume verify --for 10m"
    assert steps.validate(known(proof=replace(passed, passed=None))).state == "open"
    assert steps.validate(known(proof=replace(passed, passed=False))).state == "open"
    short = replace(passed, after=replace(passed.after, seconds=60.0))
    assert steps.validate(known(proof=short)).state == "open"
    assert "older" in steps.validate(known(proof=passed, incident_end="2099-01-01T00:00:00.000Z")).evidence


def test_the_policy_has_an_owner_for_each_and_does_not_let_the_culprit_in(sick: Report) -> None:
    owned = Listed("kubelet.service", owner="platform", review=date(2027, 1, 1))
    assert steps.lifecycle(known(sick)).state == "open"
    assert steps.lifecycle(known(sick, policy=Policy((owned,)))).state == "done"
    assert "no owner" in steps.lifecycle(known(sick, policy=Policy((owned, Listed("cron.service"))))).evidence
    culprit = Listed("ecs.service", owner="platform")
    assert "lets every image" in steps.lifecycle(known(sick, policy=Policy((culprit,)))).evidence


@given(st.fixed_dictionaries({"counts": st.none() | st.integers() | st.dictionaries(st.text(max_size=5), st.integers())}))
def test_any_audit_is_evidence_of_one(document: dict[str, object]) -> None:
    assert steps.audit(known(audit=document)).state == "done"


def test_the_next_step_is_the_first_that_is_open(sick: Report, passed: Proof) -> None:
    made = checklist(known(sick, cgroups="v1", zombies=68_440, live=240, places=(("/docker/<id>", 68_000),), audit={}))
    assert made.next is not None
    assert made.next.id == "disable"
    whole = known(
        sick, cgroups="v1", zombies=50, live=240, audit={}, units=OFF, proof=passed,
        policy=Policy((Listed("sshd.service", owner="platform"),)),
    )  # fmt: skip
    assert checklist(whole).next is None
    assert render(checklist(whole), Style(sys.stdout, False), 80).endswith("Every step is done.\n")


def test_a_fix_that_was_interrupted_comes_first(well: Report) -> None:
    made = checklist(known(well, unfinished=("20260101-120000", "ecs.service", "interrupted")))
    assert made.next is made.steps[0]
    assert made.steps[0].id == "finish"
    assert made.steps[0].command == "sudo exhume fix --resume 20260101-120000"
    assert render(made, Style(sys.stdout, False), 80).startswith("1. open        finish what was begun\n")
    undoing = checklist(known(well, unfinished=("20260101-120000", "x\x1b", "undoing"))).steps[0]
    assert undoing.command == "sudo exhume undo 20260101-120000"
    assert "\x1b" not in undoing.evidence
    assert "is not known: it is damaged" in checklist(known(well, why={"done": "it is damaged"})).steps[0].evidence
    assert checklist(known(well)).steps[0].id == "cgroup-version"


def test_what_was_begun_and_what_stands_is_read_from_the_journals(tmp_path: Path) -> None:
    from exhume.errors import Refused
    from exhume.remedy import carry_out, journal
    from exhume.remedy.carry_out import Consent
    from exhume.remedy.plan_model import Plan
    from exhume.remedy.steps.files import write_file
    from tests.remedy.nodes import Crash, Crashing
    from tests.remedy.nodes import node as made

    def read() -> Known:
        return gathered(Root(str(tmp_path)), str(tmp_path / "none"), Thresholds(), str(tmp_path / "state"))

    plan = Plan("ecs.service", "a test", (write_file("/etc/systemd/system/x.service.d/exhume.conf", b"x", "r"),))
    assert read().unfinished is None
    with pytest.raises(Crash):
        carry_out.apply(plan, made(tmp_path, Crashing(12)), Consent(True))
    hanging = read().unfinished
    assert hanging is not None
    assert hanging[1:] == ("ecs.service", "interrupted")
    assert checklist(read()).steps[0].id == "finish"
    with pytest.raises(Refused, match="resume or undo it"):
        carry_out.apply(plan, made(tmp_path), Consent(True))
    assert carry_out.resume(made(tmp_path)).exit_code == 0
    assert (read().unfinished, [text for _, text in read().done]) == (
        None,
        ["ecs.service /etc/systemd/system/x.service.d/exhume.conf"],
    )
    assert carry_out.undo(made(tmp_path)).exit_code == 0
    assert read().done == ()  # what was taken back is no evidence of anything
    (file,) = (tmp_path / journal.DIRECTORY[1:]).glob("*.jsonl")
    file.write_bytes(file.read_bytes().replace(b"plan", b"plam", 1))
    assert "damaged" in read().why["done"]
    assert "damaged" in checklist(read()).steps[0].evidence


def test_hostile_evidence_is_shown_harmless() -> None:
    made = steps.Checklist("a`b\x1b", (Step("scan", "open", "x\x1b[31m <img> [a](b) `c`", "exhume check"),))
    for text in (markdown(made), render(made, Style(sys.stdout, False), 60)):
        assert "\x1b" not in text
    assert "- [ ] **count and name the zombies**" in markdown(made)
    assert "\\<img\\>" in markdown(made)


def test_a_node_is_walked_through_its_steps(tmp_path: Path, capsys: CAPTURE, passed: Proof) -> None:
    """Its tree as files, its recording as the recorder wrote it, and what was kept of audit and proof."""
    host, state = tmp_path / "host", tmp_path / "host/var/lib/exhume"
    incident(host)
    state.mkdir(parents=True)
    recording = write(tmp_path / "recording", as_published().recording)
    argv = ["checklist", "--host", str(host), "--dir", recording]
    assert main([*argv, "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "exhume.checklist/2"
    found = {step["id"]: step for step in document["steps"]}
    assert found["cgroup-version"]["state"] == "done"
    assert "ecs.service" in found["correlate"]["evidence"]
    assert found["clean-up"]["state"] == "open"
    counts = {"starts": 30, "harmful": 1, "unused": 4, "needed": 25}
    (state / "audit.json").write_text(json.dumps({"schema": "exhume.audit/1", "counts": counts}))
    (state / "proof.json").write_text(json.dumps(as_json(passed)))
    policy = tmp_path / "policy.toml"
    policy.write_text('[agents."sshd.service"]\nowner = "platform"\n')
    assert main([*argv, "--policy", str(policy), "--markdown"]) == 1
    printed = capsys.readouterr().out
    assert "- [x] **audit what starts by itself**: 30 things start by themselves: 1 harmful" in printed
    assert "- [x] **write it into the image's policy**" in printed
    assert main(argv) == 1
    assert "Next  sudo exhume" in capsys.readouterr().out


@pytest.mark.parametrize("what", ["--audit", "--proof", "--policy"])
def test_a_file_that_was_named_must_be_there(what: str, tmp_path: Path, capsys: CAPTURE) -> None:
    assert main(["checklist", what, str(tmp_path / "nothing"), "--dir", str(tmp_path)]) == 3
    assert "there is no" in capsys.readouterr().err
    (tmp_path / "wrong").write_bytes(b"\xff[")
    assert main(["checklist", what, str(tmp_path / "wrong"), "--dir", str(tmp_path)]) in (3, 64)
    assert "Traceback" not in capsys.readouterr().err


@given(st.binary(max_size=60))
def test_any_bytes_kept_as_a_proof_are_refused_or_read(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    from exhume.remedy.proof_gathered import _proof

    file = tmp_path_factory.mktemp("kept") / "proof.json"
    file.write_bytes(raw)
    with pytest.raises(ExhumeError):
        _proof(str(file))


def test_what_is_not_there_leaves_its_reason(tmp_path: Path) -> None:
    found = gathered(Root(str(tmp_path)), str(tmp_path / "none"), Thresholds(), str(tmp_path / "state"))
    assert found.zombies is None
    assert {"zombies", "report", "audit", "proof", "policy"} <= found.why.keys()
    assert all(step.state in ("open", "not-needed") for step in checklist(found).steps)
