"""exhume audit as people and pipelines see it, on the incident's image, on hostile ones and on a large one."""

import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from exhume.agent import auditing
from exhume.agent.rules_agent import ALERTS
from exhume.cli.main import main
from tests.image.incident import ECS, incident, link, write


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def exhume(*argv: str | Path) -> Done:
    """The command as main() runs it, in this process: a new one each time would take most of the time."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(["audit", *map(str, argv)])
        except SystemExit as left:
            code = int(left.code or 0)
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return incident(tmp_path / "root")


def unit(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(dict(one) for one in document["units"] if one["name"] == name)


def test_the_incidents_image_is_flagged_with_the_arithmetic(root: Path) -> None:
    command = [sys.executable, "-m", "exhume", "audit", "--root", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "")
    lines = " ".join(done.stdout.split())
    assert "HARMFUL ecs.service enabled, package amazon-ecs-init" in lines
    assert "a start every 10 s makes 1 in 10 s, and the limit is 5: it never bites" in lines
    assert "May restart for ever, and are needed: containerd.service, kubelet.service" in lines
    assert "systemctl disable ecs.service systemctl mask ecs.service" in lines


def test_json_has_every_unit_with_its_judgement(root: Path) -> None:
    done = exhume("--root", root, "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "exhume.audit/1"
    assert document["image"]["system"] == "Ubuntu 20.04.6 LTS"
    ecs = unit(document, "ecs.service")
    assert (ecs["judgement"], ecs["state"], ecs["starts"], ecs["package"]) == ("harmful", "enabled", True, "amazon-ecs-init")
    assert ecs["restart"]["endless"] is True
    assert (ecs["restart"]["delay_s"], ecs["restart"]["burst"], ecs["restart"]["interval_s"]) == (10, 5, 10)
    assert ecs["agent"]["id"] == "ecs-agent"
    assert ecs["agent"]["harm"][0]["severity"] == "critical"
    assert ecs["package"] in ecs["agent"]["off"]["packages"]
    assert ecs["needed_by"] == []
    for name in ("kubelet.service", "containerd.service", "ssh.service", "docker.service", "dbus.service"):
        assert unit(document, name)["judgement"] == "needed", unit(document, name)
    assert unit(document, "metrics-shim.service")["judgement"] == "unknown"
    assert {"drift", "findings", "troubles", "unknown"} <= document.keys()
    assert [one["subject"] for one in document["findings"] if one["severity"] == "critical"] == ["ecs.service"] * 2


def test_the_same_image_with_a_cluster_named_needs_its_agent(root: Path) -> None:
    write(root, "etc/ecs/ecs.config", "ECS_CLUSTER=training\n")
    document = json.loads(exhume("--root", root, "--json").stdout)
    assert unit(document, "ecs.service")["judgement"] == "needed"


def test_a_disabled_or_masked_agent_is_no_matter(root: Path) -> None:
    (root / "etc/systemd/system/multi-user.target.wants/ecs.service").unlink()
    assert exhume("--root", root).returncode == 0
    link(root, "etc/systemd/system/multi-user.target.wants/ecs.service", "/lib/systemd/system/ecs.service")
    assert exhume("--root", root).returncode == 2
    link(root, "etc/systemd/system/ecs.service", "/dev/null")
    assert exhume("--root", root).returncode == 0


def test_a_start_limit_that_bites_leaves_only_what_the_catalogue_knows(root: Path) -> None:
    write(root, "etc/systemd/system/ecs.service.d/limit.conf", "[Unit]\nStartLimitIntervalSec=120\n")
    document = json.loads(exhume("--root", root, "--json").stdout)
    assert unit(document, "ecs.service")["restart"]["endless"] is False
    assert [one["kind"] for one in document["findings"] if one["subject"] == "ecs.service"] == ["harmful-agent"]


def test_one_unit_is_told_whole(root: Path) -> None:
    done = exhume("--root", root, "docker")
    assert done.returncode == 0
    for word in ("NEEDED  docker.service", "needed by     ecs.service", "needs         ", "Restart=always, with an end"):
        assert word in done.stdout
    assert "containerd.service" in done.stdout
    assert exhume("--root", root, "ecs.service").returncode == 2


def test_a_name_that_is_not_there_is_told_with_the_nearest(root: Path) -> None:
    done = exhume("--root", root, "esc.service")
    assert done.returncode == 64
    assert "nothing here is called esc.service, did you mean ecs.service?" in done.stderr


def test_a_first_policy_then_no_drift_then_drift(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    done = exhume("--root", root, "--write-policy", policy)
    assert (done.returncode, done.stdout) == (0, "")
    assert "agents written to" in done.stderr
    text = policy.read_text()
    assert '[agents."ecs.service"]' in text
    document = json.loads(exhume("--root", root, "--policy", policy, "--json").stdout)
    assert {one["kind"] for one in document["drift"]} == {"no-owner"}

    policy.write_text(text.replace('owner = ""  # nobody yet', 'owner = "infra"'))
    assert json.loads(exhume("--root", root, "--policy", policy, "--json").stdout)["drift"] == []

    write(root, "etc/systemd/system/new.service", "[Service]\nExecStart=/bin/new\n")
    link(root, "etc/systemd/system/multi-user.target.wants/new.service", "../new.service")
    (root / "etc/systemd/system/multi-user.target.wants/metrics-shim.service").unlink()
    drift = json.loads(exhume("--root", root, "--policy", policy, "--json").stdout)["drift"]
    assert [(one["kind"], one["name"]) for one in drift] == [("new", "new.service"), ("gone", "metrics-shim.service")]


def test_a_review_that_is_overdue_comes_to_the_alert_that_asks_for_it(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    text = exhume("--root", root, "--write-policy").stdout.replace('owner = ""  # nobody yet', 'owner = "infra"')
    policy.write_text(text.replace('[agents."ecs.service"]', '[agents."ecs.service"]\nreview = 2020-01-31'))
    ((kind,),) = auditing.drift(json.loads(exhume("--root", root, "--policy", policy, "--json").stdout))
    asking = {alert.name: alert.expr for alert in ALERTS if "exhume_audit_drift" in alert.expr}
    assert f'{{kind="{kind}"}}' in asking["ExhumeAuditOverdue"]
    assert f'{{kind!="{kind}"}}' in asking["ExhumeAuditDrift"]


def test_a_policy_is_never_overwritten_and_can_be_added_to(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text('[agents."ecs.service"]\nowner = "nobody"\nkeep = true\n')
    done = exhume("--root", root, "--write-policy", policy)
    assert done.returncode == 2
    assert "is there already and stays as it is" in done.stderr
    assert policy.read_text().count("[agents") == 1
    more = tmp_path / "more.toml"
    assert exhume("--root", root, "--policy", policy, "--write-policy", more).returncode == 0
    assert 'owner = "nobody"' in more.read_text()
    assert more.read_text().count("[agents") > 5


def test_what_the_policy_keeps_is_needed(root: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.toml"
    text = exhume("--root", root, "--write-policy").stdout.replace('owner = ""  # nobody yet', 'owner = "infra"')
    policy.write_text(text.replace('[agents."ecs.service"]', '[agents."ecs.service"]\nkeep = true'))
    done = exhume("--root", root, "--policy", policy, "--json")
    assert unit(json.loads(done.stdout), "ecs.service")["judgement"] == "needed"
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--root", "/nowhere"], "/nowhere is not a directory"),
        (["--root", "{root}", "--policy", "/nowhere.toml"], "the policy /nowhere.toml cannot be read"),
        (["--root", "{root}", "--write-policy", "ecs.service"], "a policy's name ends in .toml"),
        (["--root", "{root}", "--recording", "/tmp"], "an image has none"),
        (["--root", "{root}", "--json", "--sarif"], "not allowed with argument"),
        (["--root", "{root}", "--image", "x"], "not allowed with argument"),
    ],
)
def test_wrong_usage_is_told_in_a_sentence(root: Path, argv: list[str], said: str) -> None:
    done = exhume(*(word.format(root=root) for word in argv))
    assert done.returncode == 64
    assert said in done.stderr


def test_an_empty_directory_cannot_be_judged(tmp_path: Path) -> None:
    done = exhume("--root", tmp_path)
    assert done.returncode == 3
    assert "it does not look like a root" in done.stderr


def test_sarif_names_the_file_and_the_unit(root: Path) -> None:
    done = exhume("--root", root, "--sarif")
    run = json.loads(done.stdout)["runs"][0]
    errors = [one for one in run["results"] if one["level"] == "error"]
    assert {one["ruleId"] for one in errors} == {"endless-restart", "harmful-agent"}
    place = errors[0]["locations"][0]
    assert place["physicalLocation"]["artifactLocation"]["uri"] == "lib/systemd/system/ecs.service"
    assert place["logicalLocations"][0]["name"] == "ecs.service"
    assert done.returncode == 2


def test_markdown_has_a_table_of_what_is_harmful(root: Path) -> None:
    text = exhume("--root", root, "--markdown").stdout
    assert text.startswith("# Audit of Ubuntu 20.04.6 LTS\n")
    assert "## Harmful" in text
    assert "| ecs.service | enabled, package amazon-ecs-init | it can restart for ever" in text


@pytest.mark.parametrize("form", [(), ("--all",), ("--json",), ("--sarif",), ("--markdown", "--all"), ("--write-policy",)])
def test_hostile_names_do_no_harm_in_any_output(root: Path, form: tuple[str, ...]) -> None:
    folder = os.fsencode(root / "etc/systemd/system")
    wants = os.path.join(folder, b"multi-user.target.wants")
    for name in (b"\xff\xfe.service", b"a\x1b[31mred\x1b[0m.service", b"pipe|<b>x<b>`.service", b"two words.service"):
        with open(os.path.join(folder, name), "wb") as file:
            file.write(ECS.encode().replace(b"Amazon", b"\xff\x1b]0;title\x07 \xe2\x80\xae Amazon"))
        os.symlink(os.path.join(b"..", name), os.path.join(wants, name))
    container = {"Name": "/<script>|\x1b[2J", "Config": {"Image": "a`|\u202e"}, "State": {"Running": True}, "ID": "a" * 64}
    write(root, f"var/lib/docker/containers/{'a' * 64}/config.v2.json", json.dumps(container))
    policy = {"RestartPolicy": {"Name": "always", "MaximumRetryCount": 0}}
    write(root, f"var/lib/docker/containers/{'a' * 64}/hostconfig.json", json.dumps(policy))
    write(root, "etc/crontab", '* * * * * root echo "\x1b[2J"\n')
    with open(root / "etc/os-release", "ab") as file:
        file.write(b'PRETTY_NAME="\x1b[31m\xff | <script> \xe2\x80\xae"\n')
    done = exhume("--root", root, *form)
    assert done.returncode in (0, 2), done.stderr
    assert all(line.isprintable() for line in done.stdout.splitlines())
    assert "<script>" not in done.stdout or form in ((), ("--all",), ("--json",), ("--write-policy",))
    if form in (("--json",), ("--sarif",)):
        json.loads(done.stdout)


def journal(count: int) -> str:
    """What journalctl -o json has of a unit that systemd starts again every ten seconds."""
    lines = []
    for number in range(count):
        common = {
            "__REALTIME_TIMESTAMP": str(1_794_830_000_000_000 + number * 10_000_000),
            "__MONOTONIC_TIMESTAMP": str(1_000_000_000 + number * 10_000_000),
            "_BOOT_ID": "1" * 32,
            "_PID": "1",
            "_TRANSPORT": "journal",
            "SYSLOG_FACILITY": "3",
            "UNIT": "metrics-shim.service",
        }
        lines.append(common | {"MESSAGE_ID": "98e322203f7a4ed290d09fe03c09fe15", "EXIT_CODE": "exited", "EXIT_STATUS": "1"})
        lines.append(common | {"MESSAGE_ID": "5eb03494b6584870a536b337290809b3", "N_RESTARTS": str(number + 1)})
    return "".join(json.dumps(line | {"MESSAGE": "x"}) + "\n" for line in lines)


def test_a_recordings_crash_loop_makes_an_unknown_agent_harmful(root: Path, tmp_path: Path) -> None:
    (tmp_path / "journal.json").write_text(journal(30))
    with contextlib.redirect_stdout(io.StringIO()):
        assert main(["import", str(tmp_path / "journal.json"), "-o", str(tmp_path / "recording")]) == 0
    document = json.loads(exhume("--host", root, "--recording", tmp_path / "recording", "--json").stdout)
    shim = unit(document, "metrics-shim.service")
    assert shim["judgement"] == "harmful"
    assert (
        "a recording shows it in a crash loop: metrics-shim.service was started again by systemd 30 times" in shim["reasons"][0]
    )
    assert unit(json.loads(exhume("--host", root, "--json").stdout), "metrics-shim.service")["judgement"] == "unknown"


def test_an_image_in_an_archive_is_judged_as_the_directory_is(root: Path, tmp_path: Path) -> None:
    import tarfile

    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(root, ".")
    from_file = json.loads(exhume("--image", tmp_path / "image.tar", "--json").stdout)
    from_directory = json.loads(exhume("--root", root, "--json").stdout)
    assert from_file["units"] == from_directory["units"]
    assert (from_file["findings"], from_file["counts"]) == (from_directory["findings"], from_directory["counts"])


def test_the_documentations_examples_are_what_it_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    incident(tmp_path / "image")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    text = (Path(__file__).resolve().parents[2] / "docs/audit.md").read_text()
    for argv in (["--root", "image"], ["--root", "image", "ecs"]):
        assert f"$ exhume audit {' '.join(argv)}\n{exhume(*argv).stdout.rstrip()}\n```" in text


def test_a_unit_is_found_by_its_alias(root: Path) -> None:
    link(root, "/etc/systemd/system/amazon.service", "/usr/lib/systemd/system/ecs.service")
    by_alias, by_name = exhume("--root", root, "amazon"), exhume("--root", root, "ecs.service")
    assert by_alias.returncode == by_name.returncode == 2
    assert by_alias.stdout == by_name.stdout
    assert "also called   amazon.service" in by_alias.stdout


def test_an_enabled_unit_whose_file_is_outside_of_the_image_is_told(root: Path, tmp_path: Path) -> None:
    (tmp_path / "out.service").write_text("[Service]\nExecStart=/secret\n")
    link(root, "/etc/systemd/system/out.service", str(tmp_path / "out.service"))
    link(root, "/etc/systemd/system/multi-user.target.wants/out.service", "../out.service")
    done = exhume("--root", root, "--json")
    assert f"out.service is enabled, but its file is not here: {tmp_path}/out.service." in done.stdout
    assert "/secret" not in done.stdout


def test_what_is_to_be_done_is_told_of_every_unit(root: Path) -> None:
    names = [f"agent-{number}.service" for number in range(12)] + ["we\\x2dird.service"]
    for name in names:
        write(root, f"/etc/systemd/system/{name}", "[Service]\nExecStart=/opt/x\nRestart=always\nRestartSec=10\n")
        link(root, f"/etc/systemd/system/multi-user.target.wants/{name}", f"../{name}")
    done = exhume("--root", root)
    told = [shlex.split(line)[2:] for line in done.stdout.splitlines() if line.startswith("  systemctl disable ")]
    assert set(names) <= {name for line in told for name in line}
