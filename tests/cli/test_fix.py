"""exhume fix, undo and history as people use them: on a root in which nothing runs, and in what they refuse."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.cli.report_text import do_now
from exhume.diagnosis.findings.cgroup_dirs_leak import CgroupDirsLeak
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.findings.unit_fix import fix_unit
from exhume.diagnosis.report import Verdict, as_json
from exhume.recording.recording import Node
from tests.diagnosis.findings.facts import facts, finding
from tests.diagnosis.made import report
from tests.remedy.pretended import pretend_cgroups

ETC, LIB = "etc/systemd/system", "usr/lib/systemd/system"
WANTS = f"{ETC}/multi-user.target.wants/ecs.service"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for directory in (f"{ETC}/multi-user.target.wants", LIB, "var/lib"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / LIB / "ecs.service").write_text("[Service]\nExecStart=/usr/libexec/ecs\nRestart=always\nRestartSec=10s\n")
    (tmp_path / LIB / "kubelet.service").write_text("[Service]\nExecStart=/usr/bin/kubelet\n")
    (tmp_path / WANTS).symlink_to(f"/{LIB}/ecs.service")
    (tmp_path / "etc/hostname").write_text("node-7\n")
    return tmp_path


def tree(root: Path) -> dict[str, str]:
    """What is in /etc, as it is."""
    found = {}
    for path in sorted((root / "etc").rglob("*")):
        found[str(path.relative_to(root))] = (
            os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "/"
        )
    return found


def run(root: Path, *argv: str) -> int:
    return main([argv[0], *argv[1:], "--host", str(root)])


def written(path: Path, *findings: Finding[Facts], hostname: str = "", boot_id: str = "") -> str:
    """A report of that node as a file."""
    path.write_text(json.dumps(as_json(report(*findings, node=Node(hostname, boot_id, "", "", 0)))))
    return str(path)


def test_a_plan_is_printed_and_nothing_is_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(root)
    assert run(root, "fix", "ecs.service", "-v") == 0
    said = capsys.readouterr().out
    assert said.startswith("Plan for ecs.service: 2 steps\n")
    assert f"+++ /{ETC}/ecs.service  (link to /dev/null)" in said
    assert "undo: the link is made again" in said
    assert "needs: the link leads where it did" in said
    assert said.endswith("Nothing was changed. --apply carries it out.\n")
    assert tree(root) == before
    assert not (root / "var/lib/exhume").exists()


def test_the_plan_as_json_has_its_limits_and_every_steps_change(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "fix", "ecs", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["schema"] == "exhume.plan/1"
    assert plan["limits"] == {"max_at_once": 1, "pause_when_failed": 1}
    assert [step["kind"] for step in plan["steps"]] == ["remove-link", "make-link"]
    assert all(step["change"] and step["precondition"] and step["undo"] and step["expects"] for step in plan["steps"])


def test_applied_told_in_the_history_and_undone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(root)
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    assert os.readlink(root / ETC / "ecs.service") == "/dev/null"
    assert not (root / WANTS).is_symlink()
    assert "applied." in capsys.readouterr().out

    assert run(root, "history", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["applications"]
    assert (one["status"], one["target"], [step["became"] for step in one["steps"]]) == ("applied", "ecs.service", ["done"] * 2)
    assert one["by"]["uid"] == os.getuid()
    assert run(root, "history") == 0
    assert f"{one['id']}  applied  ecs.service  by " in capsys.readouterr().out

    assert run(root, "undo", one["id"], "--yes") == 0
    assert "undone: what was is back." in capsys.readouterr().out
    assert tree(root) == before
    assert run(root, "undo", "--yes") == 0
    assert capsys.readouterr().out == "There is nothing to undo on this node.\n"
    assert run(root, "undo", one["id"], "--yes") == 0
    assert capsys.readouterr().out == f"{one['id']} is undone already.\n"
    assert run(root, "undo", "20200101-000000", "--yes") == 64


def test_without_a_terminal_and_without_yes_nothing_is_changed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(root)
    assert run(root, "fix", "ecs.service", "--apply") == 2
    assert "say --yes" in capsys.readouterr().err
    assert tree(root) == before
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    after = tree(root)
    assert run(root, "undo") == 2
    assert tree(root) == after


@pytest.mark.ci
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 2), ("\n", 2)])
def test_on_a_terminal_it_is_asked(root: Path, answer: str, code: int) -> None:
    outer, inner = pty.openpty()
    with os.fdopen(outer, "wb", buffering=0) as keyboard:
        command = [sys.executable, "-m", "exhume", "fix", "ecs.service", "--apply", "--host", str(root)]
        process = subprocess.Popen(command, stdin=inner, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        os.close(inner)
        keyboard.write(answer.encode())
        _, asked = process.communicate(timeout=300)
    assert process.returncode == code
    assert "Carry it out? [y/N]" in asked
    assert (root / ETC / "ecs.service").is_symlink() == (code == 0)


def test_what_cannot_be_undone_is_skipped_and_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (pretend_cgroups(root, monkeypatch) / "leaked/empty").mkdir(parents=True)
    leaked = finding(CgroupDirsLeak, subject="/leaked", directory="/sys/fs/cgroup/memory/leaked")
    path = written(tmp_path / "report.json", leaked, hostname="node-7")
    assert run(root, "fix", "--from", path, "--apply", "--yes") == 0
    said = capsys.readouterr().out
    assert "cannot be undone" in said
    assert "Not done, because it cannot be undone: remove-empty-cgroups /sys/fs/cgroup/memory/leaked." in said


def test_a_report_of_another_node_is_read_and_not_carried_out(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "report.json", hostname="node-8")
    before = tree(root)
    assert run(root, "fix", "ecs.service", "--from", path) == 0
    assert "the report is of node-8, and this is node-7" in capsys.readouterr().err
    assert run(root, "fix", "ecs.service", "--from", path, "--apply", "--yes") == 2
    assert tree(root) == before


@pytest.mark.parametrize(
    ("here", "there", "code"),
    [
        ({}, {}, 2),
        ({"hostname": "node-7"}, {}, 2),
        ({}, {"hostname": "node-7"}, 2),
        ({"boot_id": "b"}, {"hostname": "node-7"}, 2),
        ({"hostname": "node-7", "boot_id": "b"}, {"hostname": "node-7"}, 0),
        ({"hostname": "node-7", "boot_id": "b"}, {"hostname": "node-7", "boot_id": "before"}, 0),
        ({"boot_id": "b"}, {"boot_id": "b"}, 0),
    ],
)
def test_a_report_that_may_be_any_nodes_is_read_and_not_carried_out(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], here: dict[str, str], there: dict[str, str], code: int
) -> None:
    (root / "etc/hostname").write_text(here.get("hostname", "") + "\n")
    if "boot_id" in here:
        (root / "proc/sys/kernel/random").mkdir(parents=True)
        (root / "proc/sys/kernel/random/boot_id").write_text(here["boot_id"] + "\n")
    path = written(tmp_path / "report.json", **there)
    before = tree(root)
    assert run(root, "fix", "ecs.service", "--from", path) == 0
    assert run(root, "fix", "ecs.service", "--from", path, "--apply", "--yes") == code
    assert ("is not known" in capsys.readouterr().err) == (code == 2)
    assert (tree(root) == before) == (code == 2)


def test_what_is_protected_is_refused_whatever_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(root)
    for target in ("kubelet", f"/{LIB}/kubelet.service", "/system.slice"):
        assert run(root, "fix", target, "--apply", "--yes", "--yes-irreversible", "--force") == 2
        assert "is left alone" in capsys.readouterr().err
    assert tree(root) == before


def test_a_gentler_way_keeps_the_unit(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "fix", "ecs.service", "--keep", "start-limit", "--apply", "--yes") == 0
    assert "StartLimitIntervalSec=360\nStartLimitBurst=5" in (root / ETC / "ecs.service.d/zz-exhume.conf").read_text()
    assert (root / WANTS).is_symlink()


def test_the_same_change_for_an_image(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "fix", "ecs.service", "--for-image") == 0
    said = capsys.readouterr().out
    assert "disable ecs.service\n" in said
    assert 'provisioner "shell" {' in said
    assert "#cloud-config\n" in said
    assert run(root, "fix", "ecs.service", "--for-image", "preset") == 0
    assert "provisioner" not in capsys.readouterr().out


def test_templates_are_listed_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fix", "--print-template", "list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    for name in names:
        assert main(["fix", "--print-template", name]) == 0
        assert capsys.readouterr().out
    assert main(["fix", "--print-template", "x\x1b"]) == 64
    assert "\x1b" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--json", "--apply"), "--json prints a plan"),
        (("--verify",), "--verify goes with --apply"),
        (("--from", "/no/such"), "cannot be read"),
        (("--from", "/etc/hostname"), "is no JSON"),
        (("--resume", "x"), "is not the name of an application"),
        (("f1",), "of a finding the report must be named"),
        (("",), "TARGET is empty"),
        (("", "--apply", "--yes"), "TARGET is empty"),
    ],
)
def test_what_cannot_be_meant_is_said(root: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str) -> None:
    assert run(root, "fix", *argv) == 64
    assert said in capsys.readouterr().err


def test_an_empty_id_is_not_the_last_one(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "undo", "", "--yes") == 64
    assert "ID is empty" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fix", "undo", "history"])
def test_a_root_that_is_none_is_said(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--host", "/no/such"]) == 64
    assert "is not a directory" in capsys.readouterr().err


def test_an_empty_history_is_a_sentence(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "history") == 0
    assert capsys.readouterr().out == "Nothing was done to this node by exhume.\n"


@pytest.mark.parametrize(("unit", "told"), [("ecs.service", True), ("a.slice", False), ("x\x1b.service", False), ("", False)])
def test_a_verdict_that_blames_a_unit_says_what_to_do_now(unit: str, told: bool) -> None:
    leak = facts(MemcgLeak, "x")
    verdict = Verdict("memcg-leak", "x", 0.9, "it leaks", remedies=tuple(fix_unit(leak, unit, leaks=True)))
    assert do_now(verdict) == (
        [
            "exhume fix ecs.service   stop, disable, mask; purge the zombies without a reboot; can be undone",
            "exhume verify --for 10m  proves it",
        ]
        if told
        else []
    )


def test_an_interrupted_fix_is_resumed_or_undone_before_anything_else(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = tree(root)
    code = "import sys; from exhume.remedy.operations import Operations as O; from exhume.cli.main import main\n"
    code += "def die(self, what):\n    if what.startswith('unlink'): import os; os._exit(9)\n"
    code += "O.happened = die; sys.exit(main(sys.argv[1:]))"
    argv = [sys.executable, "-c", code, "fix", "ecs.service", "--apply", "--yes", "--host", str(root)]
    assert subprocess.run(argv, capture_output=True, check=False).returncode == 9
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 2
    assert "resume or undo it" in capsys.readouterr().err
    assert run(root, "fix", "--resume") == 2
    assert "say --yes" in capsys.readouterr().err
    assert run(root, "fix", "--resume", "--yes") == 0
    assert os.readlink(root / ETC / "ecs.service") == "/dev/null"
    assert run(root, "undo", "--yes") == 0
    assert tree(root) == before
