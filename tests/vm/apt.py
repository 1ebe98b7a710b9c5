"""Debian packages without installing them: apt itself, with state of its own and the archive that this machine's apt uses.

apt's settings for the network (proxies, certificates, credentials) stay those of the machine, since only the list of sources
and the state are replaced. No address is written down here.
"""

import os
import platform
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.vm.tools import INSTALL_SECONDS, UPDATE_SECONDS, Unavailable, run

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


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
    for line in run(["apt-get", "indextargets", "--format", fields, "Created-By: Packages"]).stdout.splitlines():
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
            "Acquire::http::Timeout": "20",
            "Acquire::https::Timeout": "20",
        }
        self._options = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        self._trouble = ""

    def update(self) -> None:
        """Get the index. One source that is not to be had is only trouble when the package was to come from it."""
        done = run(["apt-get", "-q", *self._options, "update"], UPDATE_SECONDS, check=False)
        complaints = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith(("E:", "Err:", "W:"))]
        self._trouble = "; ".join(complaints[-3:])

    def show(self, package: str) -> dict[str, str]:
        """The index's entry for the newest version of a package."""
        try:
            text = run(["apt-cache", *self._options, "show", "--no-all-versions", package]).stdout
        except Unavailable as error:
            raise Unavailable(f"Debian's {self._suite} has no {package} here: {self._trouble or error}") from None
        return dict(re.findall(r"^([A-Za-z0-9-]+): (.*)$", text, re.MULTILINE))

    def download(self, packages: Sequence[str], into: Path) -> list[Path]:
        run(["apt-get", "-q", *self._options, "download", *packages], INSTALL_SECONDS, cwd=into)
        return sorted(into.glob("*.deb"))


def network_options() -> list[str]:
    """The machine's settings for getting things, for an apt that does not read them itself."""
    wanted = re.compile(r"Acquire::(http|https|Retries|Check-Valid-Until)\b.*\"[^\"]+\";$", re.IGNORECASE)
    return [line for line in run(["apt-config", "dump"]).stdout.splitlines() if wanted.match(line)]
