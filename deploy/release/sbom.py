"""The software bill of materials, CycloneDX 1.6 as JSON: `sbom.py > exhume.cdx.json`.

It is made from files of this repository alone: the lock files, the Containerfile and the version. The same files give the same
bytes, so it has no time and no random number. It needs nothing but Python's standard library, and no network.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SHIPPED = TOP / "requirements/core.lock"
"""In the image and in the single file, and what a clone installs."""
BUILD = {"optional": TOP / "deploy/onefile/tools.lock", "excluded": TOP / "requirements/tools.lock"}
"""What makes them, by CycloneDX's scope: PyInstaller's boot loader is part of the single file, the others are not shipped."""
CONTAINERFILE = TOP / "deploy/container/Containerfile"

_NAMESPACE = uuid.UUID("6c9ad01b-6d9b-5f0e-9a3c-4a1f1f0c7f52")  # of our serial numbers, made once
_PINNED = re.compile(r"([a-z0-9][a-z0-9-]*)==(\S+)(?: ;.*)? \\")
_HASH = re.compile(r" {4}--hash=sha256:([0-9a-f]{64})(?: \\)?")
_VIA = re.compile(r" {4}# (?:via|  ) ?(\S.*)")
_BASE = re.compile(r"^ARG BASE=(\S+):(\S+)@sha256:([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Package:
    """One entry of a lock file."""

    name: str
    version: str
    sha256: tuple[str, ...]
    """Of each file that pip accepts for it: wheels of several platforms, and the source."""
    via: tuple[str, ...]
    """Packages that need it, or the file that asks for it (`-r core.in`)."""

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def locked(path: Path) -> list[Package]:
    """All entries of a lock file of pip-compile. A line that is not understood is an error: nothing may be left out."""
    found: list[tuple[str, str, list[str], list[str]]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := _PINNED.fullmatch(line):
            found.append((match[1], match[2], [], []))
        elif found and (match := _HASH.fullmatch(line)):
            found[-1][2].append(match[1])
        elif found and (match := _VIA.fullmatch(line)):
            found[-1][3].append(match[1])
        elif line.strip(" #") and not line.startswith("#") and line != "    # via":
            raise ValueError(f"{path.name}, line {number} is no part of a lock file: {line}")
    unsure = [name for name, _, hashes, _ in found if not hashes]
    if unsure or not found:
        raise ValueError(f"{path.name} has {f'no hash for {unsure[0]}' if unsure else 'no packages'}")
    return [Package(name, version, tuple(hashes), tuple(via)) for name, version, hashes, via in found]


def base_image(containerfile: str) -> tuple[str, str, str]:
    """Name, tag and digest of the image's base."""
    match = _BASE.search(containerfile)
    if match is None:
        raise ValueError("the Containerfile's ARG BASE has no digest")
    return match[1], match[2], match[3]


def version() -> str:
    match = re.search(r'^__version__ = "([^"]+)"$', (TOP / "src/exhume/__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    if match is None:
        raise ValueError("src/exhume/__init__.py has no version")
    return match[1]


def sbom() -> dict[str, object]:
    us = f"pkg:pypi/exhume@{version()}"
    shipped = locked(SHIPPED)
    seen = {package.purl for package in shipped}
    build: list[dict[str, object]] = []
    for scope, path in BUILD.items():
        more = [package for package in locked(path) if package.purl not in seen]
        build += [_component(package, scope) for package in more]
        seen |= {package.purl for package in more}
    name, tag, digest = base_image(CONTAINERFILE.read_text(encoding="utf-8"))
    base = f"pkg:oci/{name}@sha256%3A{digest}?tag={tag}"
    document: dict[str, object] = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": us,
                "name": "exhume",
                "version": version(),
                "purl": us,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
            "properties": [{"name": "exhume:not-listed", "value": "Debian packages of the image, and Python itself"}],
        },
        "components": [
            *(_component(package, "required") for package in shipped),
            *build,
            {
                "type": "container",
                "bom-ref": base,
                "name": name,
                "version": tag,
                "scope": "required",
                "hashes": [{"alg": "SHA-256", "content": digest}],
                "purl": base,
                "description": "the base of the container image; no part of the wheel or the single file",
            },
        ],
        "dependencies": [*_dependencies(us, [base], shipped)],
    }
    content = json.dumps(document, sort_keys=True)
    return {**document, "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}"}


def _component(package: Package, scope: str) -> dict[str, object]:
    hashes = [{"alg": "SHA-256", "content": one} for one in package.sha256]
    files = {"type": "distribution", "url": package.purl, "comment": "pip accepts a file with any of these", "hashes": hashes}
    return {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": scope,
        "purl": package.purl,
        "externalReferences": [files],
    }


def _dependencies(us: str, more: list[str], shipped: Iterable[Package]) -> Iterator[dict[str, object]]:
    """Who needs what, from the lock's comments; `-r FILE` stands for exhume itself."""
    by_name = {package.name: package.purl for package in shipped}
    needs: dict[str, list[str]] = {us: list(more), **{purl: [] for purl in by_name.values()}}
    for package in shipped:
        for who in package.via:
            needs[us if who.startswith("-r ") else by_name[who]].append(package.purl)
    for purl, needed in needs.items():
        yield {"ref": purl, "dependsOn": sorted(needed)}


if __name__ == "__main__":
    print(json.dumps(sbom(), indent=1))
