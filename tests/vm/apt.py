"""Debian packages without installing them: apt itself, with state of its own and the archive that this machine's apt uses.

apt's settings for the network (proxies, certificates, credentials) stay those of the machine, since only the list of sources
and the state are replaced. No address is written down here.
"""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.cache import Unavailable

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_UPDATE_SECONDS = 300
_INSTALL_SECONDS = 600


@dataclass(frozen=True, slots=True)
class Archive:
    """Where this machine gets Debian from."""

    main: str
    security: str
    """Empty if this machine has none."""

    def sources(self, suite: str) -> str:
        """A sources.list of one suite with its security updates; the development suite has none of its own."""
        options = "[arch=amd64 target=Packages" + (f" signed-by={_KEYRING}]" if os.path.exists(_KEYRING) else "]")
        lines = [f"deb {options} {self.main} {suite} main"]
        if self.security and suite != "sid":
            lines.append(f"deb {options} {self.security} {suite}-security main")
        return "".join(f"{line}\n" for line in lines)


def archive() -> Archive:
    """Ask apt which sources it has; Debian's own are those of the release that runs here."""
    release = platform.freedesktop_os_release() if os.path.exists("/etc/os-release") else {}
    if release.get("ID") != "debian" or shutil.which("apt-get") is None:
        raise Unavailable("kernels and the root file system come from Debian's archive, and this is not a Debian machine")
    suites = {release.get("VERSION_CODENAME", ""), "stable", "oldstable", "testing", "unstable", "sid"}
    found = {"": "", "-security": ""}
    fields = "\t".join(f"$({name})" for name in ("REPO_URI", "RELEASE", "COMPONENT", "ORIGIN"))
    for line in _run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]).splitlines():
        address, suite, component, origin = line.split("\t")
        # apt prints the name of a field that it does not know yet: the origin is in the index, which may never have been got.
        if component != "main" or origin not in ("Debian", "$(ORIGIN)"):
            continue
        for part in found:
            if suite.endswith(part) and suite.removesuffix(part) in suites:
                found[part] = found[part] or address
    if not found[""]:
        raise Unavailable("this machine's apt has no source with Debian's main archive")
    return Archive(found[""], found["-security"])


class PrivateApt:
    """apt with the sources of one suite and its state below one directory."""

    def __init__(self, state: Path, suite: str) -> None:
        self._suite = suite
        for name in ("lists/partial", "cache/archives/partial"):
            (state / name).mkdir(parents=True)
        (state / "sources.list").write_text(archive().sources(suite))
        (state / "status").touch()
        options = {
            "Dir::State": state,
            "Dir::State::lists": state / "lists",
            "Dir::State::status": state / "status",
            "Dir::Cache": state / "cache",
            "Dir::Etc::sourcelist": state / "sources.list",
            "Dir::Etc::sourceparts": "/dev/null",
            "Dir::Etc::preferences": "/dev/null",
            "Dir::Etc::preferencesparts": "/dev/null",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Retries": "2",
        }
        self._options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self._trouble = ""

    def update(self) -> None:
        """Get the index. One source that is not to be had is only trouble when the package was to come from it."""
        done = subprocess.run(
            ["apt-get", "-q", *self._options, "update"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_UPDATE_SECONDS,
        )
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "Err:", "W:"))]
        self._trouble = "; ".join(complaints[-3:])

    def show(self, package: str) -> dict[str, str]:
        """The index's entry for the newest version of a package."""
        try:
            text = _run(["apt-cache", *self._options, "show", "--no-all-versions", package])
        except Unavailable as error:
            raise Unavailable(f"Debian's {self._suite} has no {package} here: {self._trouble or error}") from None
        return dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", text, re.MULTILINE))

    def download(self, packages: Sequence[str], into: Path) -> list[Path]:
        _run(["apt-get", "-q", *self._options, "download", *packages], cwd=into, timeout=_INSTALL_SECONDS)
        return sorted(into.glob("*.deb"))


def network_options() -> list[str]:
    """The machine's settings for getting things, for an apt that does not read them itself."""
    wanted = re.compile(r"Acquire::(http|https|Retries|Check-Valid-Until)\b.*\"[^\"]+\";$", re.IGNORECASE)
    return [line for line in _run(["apt-config", "dump"]).splitlines() if wanted.match(line)]


def install(tools: dict[str, str]) -> None:
    """See that programs are there, by name with the Debian package each is in; as root install those that are not."""
    missing = sorted({package for tool, package in tools.items() if shutil.which(tool) is None})
    if not missing:
        return
    words = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"needs the Debian packages {words} (as root: apt-get install {words})")
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *missing]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        _run(command, env=environment, timeout=_INSTALL_SECONDS)
    except Unavailable:
        _run(["apt-get", "-qq", "update"], timeout=_UPDATE_SECONDS)
        _run(command, env=environment, timeout=_INSTALL_SECONDS)


def _run(command: list[str], timeout: float = 60, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=env, cwd=cwd
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{command[0]}: {error}") from None
    if done.returncode:
        raise Unavailable(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-400:]}")
    return done.stdout
