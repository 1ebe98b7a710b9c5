"""exhume fix where little or nothing is to be done: what it says, and what its exit code means. And twice is once."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.diagnosis.findings.kind import Remedy
from exhume.diagnosis.findings.leak_places import PlaceOwner
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding
from exhume.diagnosis.report import Verdict, as_json
from exhume.recording.recording import Node
from exhume.render.sentences import to_do
from tests.cli.test_fix import ETC, LIB, root, run, tree
from tests.diagnosis.findings.facts import finding
from tests.diagnosis.made import report

__all__ = ["root"]  # a fixture
CAPTURE = pytest.CaptureFixture[str]


def written(path: Path, health: str, *findings: Finding[Facts], cause: str | None = None) -> str:
    """A report as a file. Its health may be any text."""
    node = Node("node-7", "", "", "", 0)
    path.write_text(json.dumps({**as_json(report(*findings, cause=cause, summary="it is so", node=node)), "health": health}))
    return str(path)


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        ("healthy", 0, "The node was looked at and is healthy: nothing is to be done."),
        ("unknown", 3, "Nothing could be judged: exhume check -v says what was not seen."),
        ("", 3, "Nothing could be judged"),
        ("warning", 3, "Nothing was found that exhume could do here."),
        ("critical", 3, "Nothing was found that exhume could do here."),
    ],
)
def test_only_a_node_that_was_seen_to_be_well_is_zero(
    root: Path, tmp_path: Path, capsys: CAPTURE, health: str, code: int, said: str
) -> None:
    path = written(tmp_path / "report.json", health)
    for more in ((), ("--apply", "--yes")):
        assert run(root, "fix", "--from", path, *more) == code
        assert said in capsys.readouterr().out
    assert run(root, "fix", "--from", path, "--json") == code
    assert json.loads(capsys.readouterr().out)["steps"] == []


@pytest.mark.parametrize(("health", "code"), [("healthy", 0), ("critical", 0), ("unknown", 3)])
def test_a_kind_that_was_looked_for_and_not_found_is_settled(
    root: Path, tmp_path: Path, capsys: CAPTURE, health: str, code: int
) -> None:
    path = written(tmp_path / "report.json", health)
    assert run(root, "fix", "defunct-processes", "--from", path) == code
    assert ("the report has no defunct-processes" in capsys.readouterr().out) is (code == 0)


def test_of_an_image_that_does_not_run_a_unit_must_be_named(root: Path, capsys: CAPTURE) -> None:
    assert run(root, "fix") == 3
    assert "is not a running node, so that nothing can be seen of it: name a unit" in capsys.readouterr().err


def test_what_is_left_to_people_is_no_success(root: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    pod = "/kubepods/pod12345678-1234-1234-1234-123456789abc"
    leak = finding(MemcgLeak, "critical", pod)
    assert run(root, "fix", "--from", written(tmp_path / "report.json", "critical", leak, cause="memcg-leak")) == 3
    said = " ".join(capsys.readouterr().out.split())
    assert "its workload in the cluster" in said
    assert "Nothing was found that exhume could do here; what helps is above." in said


def test_twice_applied_is_once_applied(root: Path, tmp_path: Path, capsys: CAPTURE) -> None:
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    after = tree(root)
    capsys.readouterr()
    for more in ((), ("--apply", "--yes")):
        assert run(root, "fix", "ecs.service", *more) == 0
        said = capsys.readouterr().out
        assert said.startswith("Plan for ecs.service: no steps\n")
        assert "So already\n  ecs.service is masked already\n\nNothing is left to do.\n" in said
    leak = finding(MemcgLeak, "critical", "/system.slice/ecs.service", owner=PlaceOwner(unit="ecs.service"))
    path = written(tmp_path / "report.json", "critical", leak, cause="memcg-leak")
    assert run(root, "fix", "--from", path, "--apply", "--yes") == 0
    assert "Nothing is left to do." in capsys.readouterr().out
    assert tree(root) == after
    assert run(root, "history", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["applications"]) == 1


def test_the_change_for_an_image_is_still_to_be_had_when_it_was_made_here(root: Path, capsys: CAPTURE) -> None:
    assert run(root, "fix", "ecs.service", "--for-image", "packer") == 0
    before = capsys.readouterr().out
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    capsys.readouterr()
    assert run(root, "fix", "ecs.service", "--for-image", "packer") == 0
    said = capsys.readouterr()
    assert said.out == before
    assert "is put right here already" in said.err
    (root / ETC / "masked.service").symlink_to("/dev/null")
    assert run(root, "fix", "masked.service", "--for-image") == 3
    assert "there is nothing to put into an image" in capsys.readouterr().err


def test_resuming_what_was_not_interrupted_is_nothing_to_do(root: Path, capsys: CAPTURE) -> None:
    assert run(root, "fix", "--resume") == 0
    assert capsys.readouterr().out == "Nothing was interrupted: nothing is left to do.\n"
    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    (identity,) = (path.stem for path in (root / "var/lib/exhume-remedy").glob("*.jsonl"))
    assert run(root, "fix", "--resume", identity) == 0
    assert "is applied: nothing is left to do" in capsys.readouterr().out
    assert run(root, "undo", "--yes") == 0
    assert run(root, "fix", "--resume", identity, "--yes") == 64
    assert f"nothing to resume: {identity} is undone" in capsys.readouterr().err


def test_two_at_the_same_time_end_as_one(root: Path) -> None:
    before = tree(root)
    argv = [sys.executable, "-m", "exhume", "fix", "ecs.service", "--apply", "--yes", "--host", str(root)]
    both = [subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 2]), said
    for process, (_, error) in zip(both, said, strict=True):
        assert process.returncode == 0 or "is being changed already" in error or "resume or undo it" in error
    assert os.readlink(root / ETC / "ecs.service") == "/dev/null"
    assert run(root, "undo", "--yes") == 0
    assert tree(root) == before


def test_a_journal_of_another_version_is_named_with_who_can_read_it(root: Path, capsys: CAPTURE) -> None:
    from exhume.remedy import journal
    from exhume.remedy.node import at

    assert run(root, "fix", "ecs.service", "--apply", "--yes") == 0
    there = at(str(root))
    with journal.lock(there, "a test"), journal.begin(there) as (identity, book):
        book.add("plan", plan={"schema": "exhume.plan/9"}, by={"version": "9.0\x1b"})
    capsys.readouterr()
    for argv in (("fix", "x", "--apply", "--yes"), ("undo", "--yes"), ("fix", "--resume", "--yes")):
        (root / LIB / "x.service").write_text("[Service]\nExecStart=/bin/true\n")
        assert run(root, *argv) == 3
        error = capsys.readouterr().err
        assert f"the journal of {identity} holds a plan that is not known to this version" in error
        assert "exhume 9.0\\x1b wrote it, and can undo it" in error
    assert run(root, "history") == 3
    printed = capsys.readouterr()
    assert "applied  ecs.service" in printed.out
    assert identity in printed.err
    assert run(root, "history", "--json") == 3
    assert len(json.loads(capsys.readouterr().out)["unread"]) == 1


READ_ONLY = 'mount --bind "$1/etc" "$1/etc" && mount -o remount,ro,bind "$1/etc" && exec "$2" -m exhume fix ecs.service '
READ_ONLY += '--apply --yes --host "$1"'


def test_where_etc_cannot_be_written_nothing_is_begun(root: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("a read-only mount needs root")
    argv = ["unshare", "--mount", "sh", "-c", READ_ONLY, "sh", str(root), sys.executable]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2, done
    assert "nothing was changed: /etc/systemd/system/multi-user.target.wants/ecs.service is on a file system" in done.stderr
    assert main(["history", "--host", str(root)]) == 0
    assert not list((root / "var/lib").rglob("*.jsonl"))


def test_what_exhume_does_itself_comes_before_what_is_left_to_look_at_and_a_purge_after_it() -> None:
    fix = Remedy("fix", "ecs.service", "exhume fix ecs.service", "stop, disable, mask; can be undone")
    purge = Remedy("purge-zombies", "/", "exhume zombies purge", "frees them without a reboot")
    verdict = Verdict("memcg-leak", "x", 0.9, "it leaks", remedies=(purge, fix), next=("see why",))
    assert to_do(verdict) == [
        "exhume fix ecs.service: stop, disable, mask; can be undone",
        "see why",
        "exhume zombies purge: frees them without a reboot",
    ]
