"""A journal that somebody else wrote: where it lies it is not believed, and what it names no undo writes."""

import base64
import os
import time
from pathlib import Path

import pytest

from exhume.cli.main import main
from exhume.errors import ExhumeError, Refused
from exhume.remedy import carry_out, journal
from exhume.remedy.found import from_json
from exhume.remedy.journal import encode
from tests.remedy.nodes import UNITS, node, snapshot

EVIL = b"* * * * * root id\n"
HOME = "/root"
IDENTITY = "20261117-120000"


def found(content: bytes = EVIL, mode: int = 0o644, attribute: str = "") -> dict[str, object]:
    attributes = {attribute: "AAAA"} if attribute else {}
    coded = base64.b64encode(content).decode()
    return {"kind": "file", "mode": mode, "uid": 0, "gid": 0, "mtime_ns": 1, "attributes": attributes, "content": coded}


def forged(*steps: tuple[str, str, dict[str, object], dict[str, object]], done: bool = True) -> bytes:
    """A whole journal: an application that ended, or that was cut off before its first step."""
    told = [{"kind": kind, "target": target, "reason": "cleanup", "undoable": True, **more} for kind, target, _, more in steps]
    plan = {"schema": "exhume.plan/1", "target": "ecs.service", "why": "w", "steps": told}
    entries: list[dict[str, object]] = [
        {"record": "plan", "time_ns": time.time_ns(), "plan": plan, "by": {"uid": 0}, "irreversible": True}
    ]
    if done:
        entries += [{"record": "intent", "step": place, "before": before} for place, (_, _, before, _) in enumerate(steps)]
        entries += [{"record": "done", "step": place, "note": ""} for place in range(len(steps))]
        entries.append({"record": "ended"})
    raw, check = b"", ""
    for entry in entries:
        line, check = encode(entry, check)
        raw += line
    return raw


def put(root: Path, raw: bytes, directory: str = journal.DIRECTORY) -> None:
    place = root / directory[1:]
    place.mkdir(parents=True)
    place.chmod(0o700)
    file = place / f"{IDENTITY}.jsonl"
    file.write_bytes(raw)
    file.chmod(0o600)


SHADOW = "/etc/shadow"
PLACES = [
    *("/etc/cron.d/evil", "/etc/ld.so.preload", f"{HOME}/.ssh/authorized_keys", "/etc/passwd", SHADOW, "/etc/sudoers"),
    *("/etc/sudoers.d/x", "/etc/pam.d/sshd", "/usr/local/bin/rootsh", "/etc/profile.d/x.sh", "/etc/udev/rules.d/x.rules"),
    *(f"/{UNITS}/kubelet.service", f"/{UNITS}/kubelet.service.d/zz-exhume.conf", f"/{UNITS}/fine.service.d/theirs.conf"),
    *(f"/{UNITS}/multi-user.target.wants/sshd.service", "/etc/systemd/system-generators/x", "/etc/systemd/user/x.service"),
    *(f"/{UNITS}/../../cron.d/evil", f"/{UNITS}/x.service/../../../cron.d/evil", "etc/cron.d/evil", "//etc/cron.d/evil"),
]


@pytest.mark.ci
@pytest.mark.parametrize("target", PLACES)
@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("write-file", {"content": base64.b64encode(b"x").decode()}),
        ("make-link", {"link": "/dev/null", "over_file": True}),
        ("make-link", {"link": "/tmp/evil"}),
        ("remove-link", {}),
        ("reboot-sentinel", {}),
        ("remove-file", {}),
    ],
)
def test_undo_and_resume_of_a_journal_write_nothing_that_a_plan_would_not(
    tmp_path: Path, target: str, kind: str, more: dict[str, object]
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / SHADOW[1:]).write_text("root:*\n")
    (tmp_path / "opt/empty").mkdir(parents=True)
    before = snapshot(tmp_path)
    for name, raw in (
        ("undone", forged((kind, target, {"found": found(), "missing": ["/opt/empty"], "boot_id": ""}, more))),
        ("resumed", forged((kind, target, {}, more), done=False)),
    ):
        root = tmp_path if name == "undone" else tmp_path / "again"
        if name == "resumed":
            (root / "etc").mkdir(parents=True)
        put(root, raw)
        act = carry_out.undo if name == "undone" else carry_out.resume
        try:
            outcome = act(node(root))
            assert not outcome.of("done")
            assert not outcome.of("undone")
        except ExhumeError as why:
            assert str(why)  # noqa: PT017
        after = snapshot(tmp_path)
        assert {path: row for path, row in after.items() if not path.startswith("again")} == before
        assert not [path for path in after if path.startswith("again/etc/")]


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o6755, 0o1644, 0o7777])
def test_no_set_id_bit_is_ever_restored(tmp_path: Path, mode: int) -> None:
    put(tmp_path, forged(("make-link", f"/{UNITS}/x.service", {"found": found(mode=mode)}, {"link": "/dev/null"})))
    outcome = carry_out.undo(node(tmp_path))
    assert [event.what for event in outcome.events] == ["kept"]
    assert "set-id bits" in outcome.events[0].note
    assert not (tmp_path / UNITS / "x.service").exists()


def test_no_capability_of_a_file_is_ever_restored() -> None:
    with pytest.raises(Refused, match="set-id bits or capabilities"):
        from_json(found(attribute="security.capability"))


@pytest.mark.parametrize(
    "odd",
    [
        {"kind": "link", "target": "/a\0b"},
        {"kind": "link", "target": "/a\ud800"},
        {"mtime_ns": 1 << 200},
        {"attributes": {"user.\0": "AAAA"}},
        {"attributes": {"system.posix_acl_access": "AAAA"}},
    ],
)
def test_what_the_kernel_does_not_take_is_a_sentence_and_leaves_nothing(tmp_path: Path, odd: dict[str, object]) -> None:
    path = tmp_path / UNITS / "x.service"
    path.parent.mkdir(parents=True)
    path.symlink_to("/dev/null")
    before: dict[str, object] = {"found": {**found(), **odd}, "missing": []}
    put(tmp_path, forged(("make-link", f"/{UNITS}/x.service", before, {"link": "/dev/null", "over_file": True})))
    outcome = carry_out.undo(node(tmp_path))
    assert [event.what for event in outcome.events] == ["kept"]
    assert [each.name for each in path.parent.iterdir()] == ["x.service"]


def test_a_step_with_a_set_id_bit_is_no_step(tmp_path: Path) -> None:
    target = f"/{UNITS}/x.service.d/exhume.conf"
    put(tmp_path, forged(("write-file", target, {}, {"mode": 0o4755, "content": ""}), done=False))
    with pytest.raises(ExhumeError, match="no set-id bits"):
        carry_out.resume(node(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="a set-id file of root needs root")
def test_a_set_id_file_is_left_alone_before_it_could_be_kept(tmp_path: Path) -> None:
    from exhume.remedy.carry_out import Consent
    from exhume.remedy.plan_model import Plan
    from exhume.remedy.steps.files import make_link

    path = tmp_path / UNITS / "x.service"
    path.parent.mkdir(parents=True)
    path.write_text("[Service]\n")
    path.chmod(0o4755)
    plan = Plan("x", "w", (make_link(f"/{UNITS}/x.service", "/dev/null", "r", over_file=True),))
    outcome = carry_out.apply(plan, node(tmp_path), Consent(True, True))
    assert "set-id bits" in outcome.events[0].note
    assert path.stat().st_mode & 0o7777 == 0o4755


def test_no_directory_is_removed_that_is_not_above_the_file(tmp_path: Path) -> None:
    (tmp_path / "opt/empty").mkdir(parents=True)
    (tmp_path / UNITS).mkdir(parents=True)
    before: dict[str, object] = {"found": {"kind": "absent"}, "missing": ["/opt/empty", f"/{UNITS}/x.service.d"]}
    put(tmp_path, forged(("write-file", f"/{UNITS}/x.service.d/exhume.conf", before, {"content": ""})))
    assert carry_out.undo(node(tmp_path)).exit_code == 0
    assert (tmp_path / "opt/empty").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="what another user owns needs root to be made")
def test_what_the_agent_or_another_user_wrote_is_not_believed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    raw = forged(("make-link", f"/{UNITS}/x.service", {"found": found(b"[Service]\n")}, {"link": "/dev/null"}))
    (tmp_path / "agent").mkdir()
    put(tmp_path / "agent", raw, journal.FORMER)
    assert main(["undo", "--yes", "--host", str(tmp_path / "agent")]) == 3
    said = capsys.readouterr()
    assert "There is nothing to undo" in said.out
    assert "not read: the agent can write there" in said.err
    assert main(["history", "--host", str(tmp_path / "agent")]) == 3
    assert main(["fix", "--resume", "--yes", "--host", str(tmp_path / "agent")]) == 3

    (tmp_path / "user").mkdir()
    put(tmp_path / "user", raw)
    os.chown(tmp_path / "user" / journal.DIRECTORY[1:] / f"{IDENTITY}.jsonl", 1000, 1000)
    for command in (["undo", "--yes"], ["fix", "--resume", "--yes"], ["history"]):
        assert main([*command, "--host", str(tmp_path / "user")]) in (2, 3)
        assert "belongs to user 1000, not to root" in capsys.readouterr().err
    assert not list(tmp_path.rglob("x.service"))
