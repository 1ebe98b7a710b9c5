"""What exhume is made of: pinned build tools, the image's base, the bill of materials, and the audit of dependencies."""

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

TOP = Path(__file__).parents[2]
LOCKS = sorted([*TOP.glob("requirements/*.lock"), *TOP.glob("deploy/**/*.lock")])
CONTAINERFILES = sorted(TOP.glob("deploy/**/Containerfile*"))
HASH = "0" * 64


def _module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"release_{name}", TOP / f"deploy/release/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


sbom, audit = _module("sbom"), _module("audit")


def pins(lock: Path) -> dict[str, str]:
    """Version by name, read in another way than the bill of materials does."""
    return dict(line.split(" ")[0].split("==") for line in lock.read_text().splitlines() if "==" in line and line[0].isalnum())


# Pins


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_pins_every_package_by_hash_and_names_no_index(lock: Path) -> None:
    text = lock.read_text()
    entries = re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.MULTILINE)[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9.-]+==[^ *]+( ;.*)? \\\n    --hash=sha256:[0-9a-f]{64}\b", entry), entry
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_the_build_backend_is_the_one_that_is_locked() -> None:
    (backend,) = tomllib.loads((TOP / "pyproject.toml").read_text())["build-system"]["requires"]
    name, _, version = backend.partition("==")
    assert version == pins(TOP / "requirements/tools.lock")[name]


def test_every_file_of_requirements_is_compiled_by_the_script_that_locks() -> None:
    script = (TOP / "requirements/lock").read_text()
    names = re.search(r"^for name in (.*); do$", script, re.MULTILINE)
    assert names is not None
    compiled = {(TOP / "requirements" / f"{name}.lock").resolve() for name in names[1].split()}
    assert compiled == set(LOCKS)


def _scripts() -> list[Path]:
    tracked = subprocess.run(["git", "-C", str(TOP), "ls-files"], capture_output=True, text=True, check=True).stdout.split("\n")
    outside = [
        TOP / name for name in tracked if name and not name.startswith(("src/", "tests/", "docs/")) and not name.endswith(".md")
    ]
    return [path for path in outside if path.is_file() and "pip" in path.read_bytes().decode("utf-8", "replace")]


def test_every_script_installs_by_hash() -> None:
    seen = 0
    for path in _scripts():
        text = re.sub(r"^\s*#.*$", "", path.read_text(), flags=re.MULTILINE)
        for command in re.finditer(r"""\bpip["',\s]+install\b(.{0,200})""", text, re.DOTALL):
            assert "--require-hashes" in command[1], f"{path.relative_to(TOP)}: {command[0]}"
            seen += 1
    assert seen >= 6


# The image


def bases(text: str) -> list[str]:
    """What each FROM takes, ARGs put in; stages of the same file are left out."""
    arguments = dict(re.findall(r"^ARG (\w+)=(\S+)$", text, re.MULTILINE))
    stages: set[str] = set()
    found = []
    for image, stage in re.findall(r"^FROM (?:--\S+ )*(\S+)(?: AS (\S+))?$", text, re.MULTILINE | re.IGNORECASE):
        taken = re.sub(r"\$\{?(\w+)\}?", lambda match: arguments.get(match[1], ""), image)
        if taken not in stages:
            found.append(taken)
        stages.add(stage)
    return found


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: str(path.relative_to(TOP)))
def test_every_base_image_has_a_digest(path: Path) -> None:
    text = path.read_text()
    taken = bases(text)
    assert len(re.findall(r"^FROM\b", text, re.MULTILINE)) >= len(taken) > 0
    for base in taken:
        assert re.fullmatch(r"[a-z0-9./-]+:[a-z0-9.-]+@sha256:[0-9a-f]{64}", base), base


def test_a_base_without_a_digest_is_seen() -> None:
    text = (
        f"ARG BASE=debian:x@sha256:{HASH}\nFROM ${{BASE}} AS made\nFROM made\nFROM --platform=linux/arm64 debian:trixie-slim\n"
    )
    assert bases(text) == [f"debian:x@sha256:{HASH}", "debian:trixie-slim"]


# The bill of materials


def components(scope: str) -> dict[str, str]:
    listed = sbom.sbom()["components"]
    return {one["name"]: one["version"] for one in listed if one["scope"] == scope and one["type"] == "library"}


def test_the_bill_of_materials_lists_exactly_what_is_locked() -> None:
    core, tools, onefile = (
        pins(TOP / f"{name}.lock") for name in ("requirements/core", "requirements/tools", "deploy/onefile/tools")
    )
    assert components("required") == core
    optional = components("optional")
    assert optional.items() == onefile.items() - core.items()
    assert components("excluded").items() == tools.items() - core.items() - optional.items()


def test_the_bill_of_materials_has_every_hash_of_the_lock() -> None:
    listed = [one for one in sbom.sbom()["components"] if one["scope"] == "required" and one["type"] == "library"]
    found = [entry["content"] for one in listed for entry in one["externalReferences"][0]["hashes"]]
    assert found == re.findall(r"sha256:([0-9a-f]{64})", (TOP / "requirements/core.lock").read_text())


def test_the_bill_of_materials_says_who_needs_what() -> None:
    document = sbom.sbom()
    us = document["metadata"]["component"]["bom-ref"]
    needs = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    libraries = {one["purl"] for one in document["components"] if one["scope"] == "required"}
    assert needs.keys() - {us} <= libraries
    asked = {line for line in (TOP / "requirements/core.in").read_text().splitlines() if line and not line.startswith("#")}
    assert {purl.split("@")[0].removeprefix("pkg:pypi/") for purl in needs[us] if purl.startswith("pkg:pypi/")} == asked
    reached, ahead = set(), [us]
    while ahead:
        purl = ahead.pop()
        reached.add(purl)
        ahead += [needed for needed in needs.get(purl, []) if needed not in reached]
    assert reached - {us} == libraries


def test_the_bill_of_materials_has_the_images_base() -> None:
    (base,) = [one for one in sbom.sbom()["components"] if one["type"] == "container"]
    assert bases((TOP / "deploy/container/Containerfile").read_text())[0].endswith(base["hashes"][0]["content"])


def test_the_bill_of_materials_is_the_same_every_time_and_has_no_time_in_it() -> None:
    command = [sys.executable, str(TOP / "deploy/release/sbom.py")]
    first, second = (
        subprocess.run(command, capture_output=True, check=True, cwd="/", env={"PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    )
    assert first == second
    assert "timestamp" not in json.loads(first)["metadata"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("some==1.0\n", "is no part of a lock file"),
        ("some==1.0 \\\n    # via other\n", "no hash for some"),
        (f"some>=1.0 \\\n    --hash=sha256:{HASH}\n", "is no part of a lock file"),
        (f"some==1.0 \\\n    --hash=md5:{HASH}\n", "is no part of a lock file"),
        (f"--index-url=https://example\nsome==1.0 \\\n    --hash=sha256:{HASH}\n", "is no part of a lock file"),
        ("# only a comment\n", "no packages"),
    ],
)
def test_a_lock_that_is_not_understood_is_an_error(tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "x.lock").write_text(text)
    with pytest.raises(ValueError, match=why):
        sbom.locked(tmp_path / "x.lock")


def test_a_base_image_without_a_digest_is_an_error() -> None:
    with pytest.raises(ValueError, match="no digest"):
        sbom.base_image("ARG BASE=debian:trixie-slim\nFROM ${BASE}\n")


# The audit


def pip_audit(tmp_path: Path, script: str) -> str:
    """A program in pip-audit's place."""
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def audited(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOP / "deploy/release/audit.py"), "--with", program, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


CLEAN = json.dumps({"dependencies": [{"name": "numpy", "version": "2.0", "vulns": []}], "fixes": []})
SKIPPED = json.dumps({"dependencies": [{"name": "numpy", "skip_reason": "not found and could not be audited"}], "fixes": []})
PARTLY = json.dumps({"dependencies": [*json.loads(CLEAN)["dependencies"], {"name": "jeepney", "skip_reason": "?"}]})
FOUND = json.dumps(
    {
        "dependencies": [
            {"name": "numpy", "version": "2.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": []}]}
        ]
    }
)


@pytest.mark.ci
@pytest.mark.parametrize(
    ("script", "code", "strict", "said"),
    [
        (f"echo '{CLEAN}'", 0, 0, "1 packages looked up, 0 known vulnerabilities"),
        # What pip-audit does where an index without advisories stands in for the real one: it ends well.
        (
            f"echo '{SKIPPED}'; echo 'No known vulnerabilities found' >&2",
            0,
            3,
            "NOT AUDITED, the advisories could not be reached",
        ),
        (f"echo '{PARTLY}'", 0, 3, "NOT AUDITED, no advisories could be had: jeepney"),
        ("echo 'requests.exceptions.ConnectionError: name resolution' >&2; exit 1", 0, 3, "could not be reached: requests.exc"),
        ("exit 1", 0, 3, "NOT AUDITED"),
        ("echo '[]'", 0, 3, "NOT AUDITED"),
        (f"echo '{FOUND}'; exit 1", 2, 2, "numpy 2.0: PYSEC-1, fixed in 2.1"),
    ],
)
def test_the_audit_never_takes_what_it_could_not_look_up_for_clean(
    tmp_path: Path, script: str, code: int, strict: int, said: str
) -> None:
    program = pip_audit(tmp_path, script)
    done = audited(program)
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.count(said) == len(audit.LOCKS)
    assert audited(program, "--must").returncode == strict


def test_an_audit_without_pip_audit_says_that_nothing_was_audited(tmp_path: Path) -> None:
    done = audited(str(tmp_path / "missing"))
    assert done.returncode == 0
    assert done.stdout.count("NOT AUDITED") == len(audit.LOCKS)


def test_the_audit_looks_at_every_lock_that_ships_or_builds() -> None:
    assert {TOP / name for name in audit.LOCKS} >= {sbom.SHIPPED, *sbom.BUILD.values()}


# The release


@pytest.mark.ci
def test_a_release_is_the_same_every_time(tmp_path: Path) -> None:
    for name in ("first", "second"):
        command = [str(TOP / "deploy/release/build"), str(tmp_path / name), sys.executable]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode and "No matching distribution" in done.stderr:
            pytest.skip("no package index can be reached")
        assert done.returncode == 0, done.stderr
    sums = (tmp_path / "first/SHA256SUMS").read_text()
    assert sums == (tmp_path / "second/SHA256SUMS").read_text()
    assert sorted(line.split()[1] for line in sums.splitlines()) == [
        f"exhume-{sbom.version()}-py3-none-any.whl",
        "exhume.cdx.json",
    ]
    assert subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=tmp_path / "first").returncode == 0
    assert json.loads((tmp_path / "first/exhume.cdx.json").read_text()) == sbom.sbom()
