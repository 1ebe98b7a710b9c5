"""exhume gate as people and pipelines see it, on nodes made of files and on images that do not run."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from exhume.cli.gate_text import render, results
from exhume.cli.terminal import Style
from exhume.image.gate_model import Blamed, Check, Gate, Options
from tests.image.incident import incident
from tests.trees import Tree, cgroup_stat


def gate(*argv: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "exhume", "gate", *argv], capture_output=True, text=True, check=False, **options
    )


def node(path: Path, dying: int) -> str:
    tree = Tree(path).facts()
    tree.v2({"/": cgroup_stat(10, dying, memory=True), "/system.slice": cgroup_stat(3, dying, memory=True)})
    return str(path)


def test_a_node_with_too_many_memory_cgroups_fails_in_every_form_at_once(tmp_path: Path) -> None:
    junit, sarif = tmp_path / "gate.xml", tmp_path / "gate.sarif"
    host = node(tmp_path / "node", 5_000)
    forms = ("--json", "--junit", str(junit), "--sarif", str(sarif), "--github", "--source", "images/node.pkr.hcl")
    done = gate("--host", host, "--for", "2s", *forms)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert (told["schema"], told["passed"], told["status"]) == ("exhume.gate/1", False, "failed")
    checks = {check["name"]: check for check in told["checks"]}
    assert set(checks) == {"memory-cgroups", "growth", "crash-loops", "zombie-sources"}
    assert set(checks["growth"]) == {"name", "status", "measured", "limit", "message", "blamed"}
    assert (checks["memory-cgroups"]["status"], checks["memory-cgroups"]["measured"]) == ("failed", 5_011)
    suite = ElementTree.parse(junit).getroot()
    failed = [str(case.get("name")) for case in suite.iter("testcase") if case.find("failure") is not None]
    assert "memory-cgroups" in failed
    (run,) = json.loads(sarif.read_text())["runs"]
    assert "memory-cgroups" in {result["ruleId"] for result in run["results"]}
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "images/node.pkr.hcl"}
    assert "::error file=images/node.pkr.hcl,title=memory-cgroups::5,011 memory cgroups" in done.stderr


def test_what_people_see_has_every_check_and_no_colour(tmp_path: Path) -> None:
    done = gate("--host", node(tmp_path, 5_000), "--for", "2s", "--github")
    assert done.returncode == 2
    lines = done.stdout.splitlines()
    assert lines[0].startswith("::error title=memory-cgroups::")
    assert "FAILED  node-7: this image must not go out" in lines
    text = " ".join(done.stdout.split())
    for told in ("memory-cgroups failed 5,011 memory cgroups, 5,000 of them zombies: more than 1,000", "growth", "14 d"):
        assert told in text, told
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_a_root_without_a_memory_controller_cannot_be_judged(tmp_path: Path) -> None:
    Tree(tmp_path).facts()
    done = gate("--host", str(tmp_path), "--for", "2s", "--json")
    assert done.returncode == 3
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["memory-cgroups"]["status"] == checks["growth"]["status"] == "unknown"
    assert "no hierarchy with the memory controller" in checks["memory-cgroups"]["message"]


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (("--for", "1s"), "--for must be between 2s and 7d"),
        (("--for", "10s", "--settle", "10s"), "--settle must be shorter than the soak"),
        (("--for", "2d", "--node-life", "1d"), "--node-life must not be shorter"),
        (("--limit", "0"), "--limit must be at least 1"),
        (("--confidence", "100"), "--confidence is in percent"),
        (("--confidence", "nan"), "--confidence is in percent"),
        (("--under", "system.slice"), "begins with /"),
        (("--under", "/exhume-test-no-such-place"), "there is no such memory cgroup"),
        (("--host", "/nowhere"), "is not a directory"),
        (("--root", "/nowhere"), "is not a directory"),
        (("--root", "/", "--image", "x"), "not allowed with"),
        (("--strict", "--allow-warnings"), "not allowed with"),
        (("--policy", "/nowhere/policy.toml", "--for", "2s"), "cannot be read"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_soak(argv: tuple[str, ...], complaint: str) -> None:
    done = gate(*argv)
    assert done.returncode == 64
    assert complaint in done.stderr
    assert done.stdout == ""


def test_a_file_that_cannot_be_written_is_told_before_the_soak(tmp_path: Path) -> None:
    done = gate("--for", "7d", "--junit", str(tmp_path / "nowhere" / "gate.xml"), timeout=300)
    assert done.returncode == 3
    assert "could not be written" in done.stderr


def test_an_image_that_does_not_run_is_judged_by_its_files(tmp_path: Path) -> None:
    root = incident(tmp_path / "image")
    policy, sarif = tmp_path / "agents.toml", tmp_path / "gate.sarif"
    policy.write_text('[agents."*"]\nowner = "platform"\n')
    done = gate("--root", str(root), "--policy", str(policy), "--sarif", str(sarif), "--json")
    assert done.returncode == 2
    checks = {check["name"]: check["status"] for check in json.loads(done.stdout)["checks"]}
    assert checks == {"harmful-services": "failed", "unlisted-services": "passed"}
    (run,) = json.loads(sarif.read_text())["runs"]
    places = {
        result["locations"][0]["logicalLocations"][0]["name"]: result["locations"][0]["physicalLocation"]["artifactLocation"]
        for result in run["results"]
    }
    assert places["ecs.service"] == {"uri": "lib/systemd/system/ecs.service", "uriBaseId": "IMAGE"}
    policy.write_text('[agents."ecs.service"]\nowner = "platform"\nkeep = true\n')
    text = gate("--root", str(root), "--policy", str(policy)).stdout
    assert "metrics-shim.service: it starts by itself" in " ".join(text.split())


def test_an_archive_is_judged_as_the_directory_is(tmp_path: Path) -> None:
    import tarfile

    root = incident(tmp_path / "image")
    with tarfile.open(tmp_path / "image.tar", "w") as archive:
        archive.add(root, ".")
    told = [json.loads(gate(how, str(path), "--json").stdout)["checks"] for how, path in
            (("--root", root), ("--image", tmp_path / "image.tar"))]  # fmt: skip
    assert told[0] == told[1]
    assert told[0][0]["status"] == "failed"


@pytest.mark.ci
def test_a_running_node_is_held_against_the_policy_too(tmp_path: Path) -> None:
    root = incident(tmp_path / "node")
    policy = tmp_path / "agents.toml"
    policy.write_text('[agents."ecs.service"]\nowner = "platform"\n')
    done = gate("--host", node(root, 10), "--for", "2s", "--policy", str(policy), "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert done.returncode == 2
    assert checks["memory-cgroups"]["status"] == "passed"
    assert "cron.service" in {blamed["subject"] for blamed in checks["unlisted-services"]["blamed"]}


def made(*checks: Check, early: bool = False) -> Gate:
    return Gate("node-7", checks, Options(), 600.0, early)


def test_each_of_those_that_a_check_blames_is_a_result_of_its_own() -> None:
    blamed = (Blamed("a.service", "a loops", "/etc/systemd/system/a.service"), Blamed("b.service", "b loops"))
    told = results(made(Check("crash-loops", "failed", "2 crash loops", 2, 0, blamed), Check("growth", "unknown", "no root")))
    assert [(one.rule, one.level, one.subject, one.path) for one in told] == [
        ("crash-loops", "error", "a.service", "/etc/systemd/system/a.service"),
        ("crash-loops", "error", "b.service", ""),
        ("growth", "unknown", "", ""),
    ]


def test_long_lists_are_cut_for_people_and_hostile_names_are_safe() -> None:
    blamed = tuple(Blamed(f"a{i}.service", f"a{i} loops", "/etc/\x1b[2J") for i in range(30))
    text = render(
        made(Check("crash-loops", "failed", "30 crash loops", 30, 0, blamed), early=True), Style(sys.stdout, False), 80
    )
    assert "and 20 more: --json has all" in text
    assert "\x1b" not in text
    assert "ended early because a leak was certain" in text
    assert max(map(len, text.splitlines())) <= 80


def test_no_status_is_shown_as_another() -> None:
    for status, word in (("passed", "PASSED"), ("warning", "NOT PROVEN"), ("failed", "FAILED"), ("unknown", "NOT JUDGED")):
        text = render(made(Check("growth", status, "said")), Style(sys.stdout, False), 80)  # type: ignore[arg-type]
        assert text.startswith(f"{word}  node-7: ")
