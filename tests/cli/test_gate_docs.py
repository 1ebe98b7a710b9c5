"""The snippets of docs/gate.md are what they claim: YAML, HCL, and commands of ours that parse."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from exhume.cli.main import command_parser

PAGE = (Path(__file__).parents[2] / "docs" / "gate.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)


def documents() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML to read the snippets")
    return [yaml.safe_load(block) for block in blocks("yaml")]


def test_the_workflow_is_one_as_github_reads_it() -> None:
    (workflow,) = (document for document in documents() if "jobs" in document)
    (job,) = workflow["jobs"].values()
    assert job["runs-on"]
    assert all(("uses" in step) != ("run" in step) for step in job["steps"])
    # what writes the file, and what uploads it even when the gate failed
    upload = next(step for step in job["steps"] if "upload-sarif" in step.get("uses", ""))
    assert upload["if"] == "always()"
    assert any(f"--sarif {upload['with']['sarif_file']}" in step.get("run", "") for step in job["steps"])
    assert workflow["permissions"]["security-events"] == "write"


def test_the_component_is_one_as_image_builder_reads_it() -> None:
    (component,) = (document for document in documents() if "phases" in document)
    assert component["schemaVersion"] == 1.0
    (phase,) = component["phases"]
    assert phase["name"] == "test"
    steps = {step["action"]: step for step in phase["steps"]}
    assert set(steps) == {"S3Download", "ExecuteBash"}
    gate = steps["ExecuteBash"]
    (command,) = gate["inputs"]["commands"]
    soak_ns = command_parser("gate").parse_args(shlex.split(command)[2:]).soak_ns
    assert gate["timeoutSeconds"] > soak_ns / 1e9
    assert steps["S3Download"]["inputs"][0]["destination"] in command


def test_the_packer_template_is_hcl() -> None:
    (template,) = blocks("hcl")
    tool = shutil.which("packer") or shutil.which("terraform")
    if tool is None:
        pytest.skip("needs packer or terraform to parse HCL")
    done = subprocess.run([tool, "fmt", "-"], input=template, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == template  # as its formatter would have it


def test_every_command_in_a_snippet_parses() -> None:
    found = [line for block in (*blocks("yaml"), *blocks("hcl")) for line in re.findall(r"exhume (gate [^\"\n]*)", block)]
    assert len(found) == 3
    for line in found:
        command_parser("gate").parse_args(shlex.split(line)[1:])


def test_the_numbers_on_the_page_are_those_of_the_code() -> None:
    from exhume.image.gate_bound import Bound

    bound = Bound(0, 600)
    assert f"more than {60 * bound.upper_per_s:.1f} a minute" in PAGE
    assert f"{bound.most_in(14 * 86_400):,.0f} zombies in fourteen days" in PAGE
