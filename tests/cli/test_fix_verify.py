"""exhume fix --apply --verify: the proof that follows the change, its exit code, and where it is kept."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from exhume.cli.fix_text import _note
from exhume.cli.main import main
from exhume.errors import ExhumeError
from exhume.remedy import carry_out, proof_live
from exhume.remedy.proof_live import Watched
from tests.cli.test_fix import ETC, root, run, tree
from tests.cli.test_verify import CURED, SICK
from tests.remedy.made_proof import Made, node
from tests.render.told import write

__all__ = ["root"]  # a fixture
CAPTURE = pytest.CaptureFixture[str]
DO = ("fix", "ecs.service", "--apply", "--yes", "--verify", "--verify-for", "15s")
EARLY = "the leak goes on: 40 came within 12 s"


@pytest.fixture
def running(root: Path) -> Path:
    (root / "proc").mkdir()
    (root / "proc/stat").write_text("cpu 0 0 0 0 0 0 0 0 0 0\n")
    (root / "etc/hostname").write_text(f"{node(replace(CURED, seconds=5)).node.hostname}\n")
    return root


def seen(monkeypatch: pytest.MonkeyPatch, made: Made, early: str = "") -> list[int]:
    """What the window would have recorded; for how long it was to be."""
    asked: list[int] = []

    def watch(_: object, for_ns: int, *__: object) -> Watched:
        asked.append(for_ns)
        return Watched(node(made), early, stopped=False)

    monkeypatch.setattr(proof_live, "watch", watch)
    return asked


@pytest.mark.parametrize(
    ("made", "early", "code", "said"),
    [
        (CURED, "", 0, "PASSED"),
        (replace(SICK, seed=2), EARLY, 2, "FAILED"),
        (replace(CURED, seconds=20), "", 3, "OPEN"),
    ],
)
def test_the_exit_code_is_the_proofs_and_the_history_has_it(
    running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE, made: Made, early: str, code: int, said: str
) -> None:
    asked = seen(monkeypatch, made, early)
    assert run(running, *DO) == code
    printed = capsys.readouterr().out
    assert printed.index("applied.") < printed.index(said)
    assert asked == [15_000_000_000]
    assert (running / ETC / "ecs.service").is_symlink()  # what was done stays, whatever the proof says
    assert run(running, "history", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["applications"]
    assert one["status"] == "applied"
    (note,) = one["notes"]
    assert (note["name"], note["value"]["passed"]) == ("proof", {0: True, 2: False, 3: None}[code])
    assert run(running, "history") == 0
    became = {0: "passed", 2: "failed", 3: "not judged"}[code]
    assert f"\n  proof: {became} at " in capsys.readouterr().out
    assert run(running, "undo", "--yes") == 0


@pytest.mark.parametrize("version", [1, 2])
def test_the_history_reads_proofs_of_every_version(version: int) -> None:
    note = {"schema": f"exhume.proof/{version}", "passed": False, "after": {"end": "T"}, "summary": "it is not cured: zombies"}
    assert _note(note) == "failed at T: it is not cured: zombies"


def test_a_recording_that_the_plan_went_by_is_what_it_is_held_against(
    running: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    seen(monkeypatch, CURED)
    sick = write(tmp_path / "sick", node(SICK))
    assert run(running, *DO, "--from", sick) == 0
    assert re.search(r"against \S+ \w+ before", capsys.readouterr().out)


def test_what_was_put_right_before_is_proven_all_the_same(
    running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    assert run(running, *DO[:4]) == 0
    seen(monkeypatch, replace(SICK, seed=2), EARLY)
    capsys.readouterr()
    assert run(running, *DO) == 2
    said = capsys.readouterr().out
    assert said.index("Nothing is left to do.") < said.index("FAILED")


@pytest.mark.parametrize("more", [("--verify-for", "3s"), ("--verify-for", "2h"), ("--config", "/no/such")])
def test_a_window_that_cannot_be_is_said_before_anything_is_changed(
    running: Path, capsys: CAPTURE, more: tuple[str, ...]
) -> None:
    before = tree(running)
    assert run(running, *DO, *more) != 0
    assert "Traceback" not in capsys.readouterr().err
    assert tree(running) == before
    assert not (running / "var/lib/exhume").exists()


def test_an_image_is_not_verified(root: Path, capsys: CAPTURE) -> None:
    before = tree(root)
    assert run(root, *DO) == 64
    assert "--verify needs a node that runs" in capsys.readouterr().err
    assert tree(root) == before


def test_a_change_that_failed_is_not_verified(running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE) -> None:
    asked = seen(monkeypatch, CURED)
    monkeypatch.setattr("exhume.remedy.files.LARGEST", 10)
    (running / ETC / "own.service").write_text("[Service]\nExecStart=/bin/true\n")
    assert run(running, "fix", "own.service", *DO[2:]) == 2
    assert asked == []


def proofs(root: Path, capsys: CAPTURE) -> list[bool | None]:
    capsys.readouterr()
    assert run(root, "history", "--json") == 0
    return [note["value"]["passed"] for note in json.loads(capsys.readouterr().out)["applications"][-1]["notes"]]


def test_a_proof_that_is_made_later_is_kept_with_what_was_done_last(
    running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    """Each time that it comes to something else: a proof every hour is no history."""
    verify = ("verify", "--for", "15s")
    seen(monkeypatch, CURED)
    assert run(running, *verify) == 0
    assert not (running / "var/lib/exhume-remedy").exists()
    assert run(running, *DO[:4]) == 0
    capsys.readouterr()
    assert run(running, *verify) == 0
    assert re.search(r"the proof is kept with \d{8}-\d{6} \(exhume history\)", capsys.readouterr().err)
    assert proofs(running, capsys) == [True]
    assert run(running, *verify) == 0
    assert proofs(running, capsys) == [True]
    seen(monkeypatch, replace(SICK, seed=2), EARLY)
    assert run(running, *verify) == 2
    assert proofs(running, capsys) == [True, False]
    assert run(running, "undo", "--yes") == 0
    assert run(running, *verify) == 2
    assert proofs(running, capsys) == [True, False]


def test_a_node_that_goes_down_is_not_verified(running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE) -> None:
    from exhume.cli.fix_verify import verify
    from exhume.cli.main import command_parser
    from exhume.remedy.plan_model import Plan
    from exhume.remedy.steps.reboot import reboot
    from tests.remedy import nodes

    boot = running / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("one\n")
    manager = nodes.FileManager(running, running / "manager.json")
    manager.set()
    there = nodes.node(running, manager=manager)
    outcome = carry_out.apply(Plan("node", "a test", (reboot("r"),)), there, carry_out.Consent(True, True))
    assert outcome.exit_code == 0
    sick = write(running / "si ck", node(SICK))
    words = ["node", "--apply", "--reboot", "now", "--verify", "--from", sick, "--host", str(running)]
    args = command_parser("fix").parse_args(words)
    asked = seen(monkeypatch, CURED)
    assert verify(args, there, outcome.identity) == 3
    said = capsys.readouterr().out
    assert f"Once it is up again: sudo exhume verify --for 10m --host {running} --before '{sick}'" in said
    assert asked == []
    boot.write_text("two\n")
    assert verify(args, there, outcome.identity) == 0
    assert asked == [600 * 10**9]


def test_a_proof_that_cannot_be_kept_is_still_the_answer(
    running: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURE
) -> None:
    def full(*_: object) -> None:
        raise ExhumeError("no space")

    seen(monkeypatch, CURED)
    monkeypatch.setattr(carry_out, "add_note", full)
    assert run(running, *DO) == 0
    assert "the proof is not kept with" in capsys.readouterr().err


def test_the_help_says_what_the_code_means(capsys: CAPTURE) -> None:
    with pytest.raises(SystemExit):
        main(["fix", "--help"])
    assert "with --verify that of" in capsys.readouterr().out
