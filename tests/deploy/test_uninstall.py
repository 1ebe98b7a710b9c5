"""exhume uninstall: it lists first, refuses what would lose something, leaves nothing of its own and all that is others'."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from exhume.agent import leftovers
from exhume.cli.main import main
from exhume.cluster.client import Client
from exhume.host.root import Root
from exhume.recording import layout
from exhume.recording.recording import Node, Recording
from exhume.recording.writer import Writer
from exhume.remedy import carry_out, journal, plan_cluster
from exhume.remedy import node as remedy_node
from exhume.remedy.carry_out import Consent
from exhume.remedy.plan_model import Plan
from exhume.remedy.steps.files import write_file
from tests import systemd

TOP = Path(__file__).parents[2]


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A node's root with everything that exhume ever leaves, and something of others beside it."""
    root = tmp_path / "host"
    for path, text in {
        "etc/exhume/exhume.toml": "",
        "etc/default/exhume-agent": "",
        "etc/systemd/system/exhume-agent.service": "[Service]\nExecStart=/bin/true\n",
        "etc/systemd/system/exhume-agent.service.d/more.conf": "",
        "etc/bash_completion.d/exhume": "",
        "etc/bash_completion.d/other": "theirs",
        "var/lib/other/file": "theirs",
        "etc/systemd/system/other.service": "theirs",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "exhume-agent.service").symlink_to("/etc/systemd/system/exhume-agent.service")
    _record(root / "var/lib/exhume/recording")
    return root


def _record(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _writing(path):
        pass


@contextmanager
def _writing(path: Path) -> Iterator[Writer]:
    node = Node("node", "boot", "6.1", "v2", 2)
    writer = Writer(str(path), node, {"hz": 0}, budget_bytes=16 << 20)
    rows = Recording(node)
    rows["anchors"].add(10**9, 10**9, 10**9, 10**18, 1000)
    rows["cpu"].add(10**9, 0, *range(10))
    writer.append(rows)
    try:
        yield writer
    finally:
        writer.close()


def uninstall(host: Path, *words: str) -> int:
    return main(["uninstall", "--host", str(host), *words])


def remains(host: Path) -> set[str]:
    return {str(path.relative_to(host)) for path in host.rglob("*") if not path.is_dir() or path.is_symlink()}


THEIRS = {"etc/bash_completion.d/other", "var/lib/other/file", "etc/systemd/system/other.service"}


def test_it_leaves_nothing_of_its_own_and_everything_of_others(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert uninstall(host, "--yes") == 0
    assert remains(host) == THEIRS
    assert not (host / "var/lib/exhume").exists()
    said = capsys.readouterr().out
    assert said.index("Left on this node by exhume:") < said.index("removed /etc/exhume")
    assert uninstall(host, "--yes") == 0
    assert capsys.readouterr().out == "exhume left nothing on this node.\n"


def test_it_lists_and_does_nothing_without_consent(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = remains(host)
    assert uninstall(host, "--dry-run") == 0
    assert "/var/lib/exhume/recording" in capsys.readouterr().out
    assert uninstall(host) == 2  # nobody is there to be asked
    assert "nothing was removed" in capsys.readouterr().err
    assert remains(host) == before


def test_recordings_can_be_kept(host: Path) -> None:
    assert uninstall(host, "--yes", "--keep-recordings") == 0
    assert (host / "var/lib/exhume/recording" / layout.MARK).exists()
    assert not (host / "etc/exhume").exists()


def test_a_recording_elsewhere_is_found_by_the_settings_and_another_directory_is_not_touched(host: Path) -> None:
    (host / "etc/exhume/exhume.toml").write_text('[agent]\ndir = "/data/recording"\n')
    (host / "data/recording").mkdir(parents=True)
    (host / "data/recording/theirs").write_text("")
    assert uninstall(host, "--yes") == 0
    assert (host / "data/recording/theirs").exists()
    (host / "etc/exhume").mkdir()
    (host / "etc/exhume/exhume.toml").write_text('[agent]\ndir = "/data/second"\n')
    _record(host / "data/second")
    assert uninstall(host, "--yes") == 0
    assert not (host / "data/second").exists()


def test_links_do_not_lead_it_out_of_the_root(host: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "exhume").mkdir(parents=True)
    (outside / "exhume" / "precious").write_text("")
    (host / "var/lib/exhume/recording/link").symlink_to(outside)
    (host / "etc/default/exhume-agent").unlink()
    (host / "etc/default/exhume-agent").symlink_to(outside / "exhume" / "precious")
    assert uninstall(host, "--yes") == 0
    assert (outside / "exhume" / "precious").exists()
    assert remains(host) == THEIRS


def test_it_refuses_while_somebody_records(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with _writing(host / "var/lib/exhume/second"):
        assert uninstall(host, "--yes") == 2
        assert "/var/lib/exhume/second is being written to" in capsys.readouterr().err
        assert (host / "etc/exhume").exists()
    assert uninstall(host, "--yes") == 0


def _fix(host: Path) -> str:
    """A fix that is in force: a file of the node's, written by a step."""
    step = write_file("/etc/systemd/system/x.service.d/exhume.conf", b"[Unit]\n", "a test")
    plan = Plan("x.service", "a test", (step,))
    return carry_out.apply(plan, remedy_node.at(str(host)), Consent(undoable=True, irreversible=False)).identity


def test_it_refuses_while_a_fix_is_not_undone(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    identity = _fix(host)
    assert uninstall(host, "--yes") == 2
    assert f"1 fix is not undone ({identity})" in capsys.readouterr().err
    assert uninstall(host, "--yes", "--keep-journal") == 0
    assert carry_out.find(remedy_node.at(str(host)), identity).status == "applied"
    carry_out.undo(remedy_node.at(str(host)), identity)
    assert uninstall(host, "--yes") == 0
    assert remains(host) == THEIRS


def test_journals_of_an_earlier_version_are_no_reason_to_forget_a_fix(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _fix(host)
    (host / journal.DIRECTORY[1:]).rename(host / journal.FORMER[1:])
    assert uninstall(host, "--yes") == 2
    assert "1 journal of an earlier version" in capsys.readouterr().err
    assert uninstall(host, "--yes", "--keep-journal") == 0
    assert (host / journal.FORMER[1:]).is_dir()
    assert uninstall(host, "--yes", "--leave-fixes") == 0
    assert not (host / journal.FORMER[1:]).exists()


class OneNode:
    """An API server with one node, as far as a quarantine and its release need one."""

    def __init__(self) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": "gpu-17", "annotations": {}}, "spec": {}}

    def __enter__(self) -> "OneNode":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def get(self, path: str) -> dict[str, Any]:
        return self.node

    def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.node["spec"] |= body.get("spec", {})
        self.node["metadata"]["annotations"] |= body["metadata"].get("annotations", {})
        return self.node


def test_it_refuses_while_a_node_that_was_taken_out_from_here_is_not_back(
    host: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, server = host / leftovers.CLUSTER[1:] / "gpu-17", OneNode()
    (host / journal.DIRECTORY[1:]).mkdir(mode=0o700)
    place.mkdir(parents=True)
    node = replace(remedy_node.at(str(place)), cluster=lambda: cast(Client, server))
    consent = Consent(undoable=True, irreversible=False)
    assert carry_out.apply(plan_cluster.quarantine("gpu-17", "", "study"), node, consent).exit_code == 0
    assert uninstall(host, "--yes") == 2
    said = capsys.readouterr()
    assert "gpu-17 was taken out of service from here and not put back: exhume node release does that" in said.err
    assert f"{journal.DIRECTORY} " in said.out
    assert uninstall(host, "--yes", "--keep-journal") == 0
    assert place.is_dir()
    assert carry_out.apply(plan_cluster.release("gpu-17", ""), node, consent).exit_code == 0
    assert uninstall(host, "--yes") == 0
    assert remains(host) == THEIRS


def test_journals_that_a_user_keeps_are_found_too(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `exhume node` and `exhume fleet fix` by somebody who is not root; a relative XDG_STATE_HOME names no place."""
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert leftovers.user_state() == os.path.expanduser("~/.local/state/exhume")
    monkeypatch.setenv("XDG_STATE_HOME", "/home/zoe/state")
    root, user = Root(str(host)), leftovers.user_state()
    assert user == "/home/zoe/state/exhume"
    assert user not in {one.path for one in leftovers.found(root, user=user)}
    place = host / "home/zoe/state/exhume/cluster/gpu-17"
    place.mkdir(parents=True)
    (place.parents[1] / "fleet-fix-x.jsonl").write_text("{}\n")
    node = replace(remedy_node.at(str(place)), cluster=lambda: cast(Client, OneNode()))
    carry_out.apply(plan_cluster.quarantine("gpu-17", "", "study"), node, Consent(undoable=True, irreversible=False))
    assert leftovers.out_of_service(root, user) == ["gpu-17"]
    assert user not in {one.path for one in leftovers.found(root, keep_journal=True, user=user)}
    assert user in {one.path for one in leftovers.found(root, user=user)}
    assert {why for _, why in leftovers.remove(root, leftovers.found(root, user=user))} == {""}
    assert remains(host) == THEIRS


def test_a_fix_can_be_left_for_good(host: Path) -> None:
    _fix(host)
    assert uninstall(host, "--yes", "--leave-fixes") == 0
    assert remains(host) == THEIRS | {"etc/systemd/system/x.service.d/exhume.conf"}


def test_what_cannot_be_removed_is_said(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: str) -> None:
        raise PermissionError(1, "")

    monkeypatch.setattr(os, "unlink", refuse)
    lefts = [leftovers.Left("/etc/default/exhume-agent", "", 0)]
    assert list(leftovers.remove(Root(str(host)), lefts)) == [(lefts[0], "Operation not permitted")]


def test_the_places_are_those_that_the_documentation_and_the_unit_name() -> None:
    unit = (TOP / "deploy/systemd/exhume-agent.service").read_text()
    places = {path for path, _ in leftovers.PLACES}
    assert "/etc/default/exhume-agent" in places
    assert "EnvironmentFile=-/etc/default/exhume-agent" in unit
    assert "StateDirectory=exhume/recording exhume/recording.spool\n" in unit


@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable() or "-")
def test_a_running_agent_is_stopped_and_its_unit_is_gone() -> None:
    unit = "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n"
    with systemd.boot({leftovers.UNIT: unit}) as machine:
        machine.run(["systemctl", "enable", "--now", leftovers.UNIT])
        assert machine.run(["systemctl", "is-active", leftovers.UNIT]).stdout == "active\n"
        command = [sys.executable, "-m", "exhume", "uninstall", "--yes", "--host", machine.root]
        done = subprocess.run(command, cwd=TOP / "src", capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"stopped {leftovers.UNIT}" in done.stdout
        told = machine.run(["systemctl", "show", "-p", "LoadState,ActiveState", leftovers.UNIT]).stdout
        assert set(told.split()) == {"LoadState=not-found", "ActiveState=inactive"}
