"""The programs that machines are made with: run within a time, their complaint in the error, installed where possible."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

INSTALL_SECONDS = 600
UPDATE_SECONDS = 300


class Unavailable(Exception):
    """Why a virtual machine cannot be run here, in words for the reason of a skipped test."""


def run(
    command: Sequence[str | Path], timeout: float = 60, check: bool = True, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
            env={**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"},
            cwd=cwd,
        )
    except OSError as error:
        raise Unavailable(f"{command[0]} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{command[0]} was not done after {timeout:g} s") from None
    if check and done.returncode:
        raise Unavailable(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    return done


def install(tools: Mapping[str, str]) -> None:
    """See that programs are there, given by name with the Debian package each is in; as root install those that are not."""
    missing = sorted({package for tool, package in tools.items() if shutil.which(tool) is None})
    if not missing:
        return
    words = " ".join(missing)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Unavailable(f"needs the Debian packages {words} (as root: apt-get install {words})")
    command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *missing]
    if run(command, INSTALL_SECONDS, check=False).returncode:
        run(["apt-get", "-qq", "update"], UPDATE_SECONDS, check=False)
        run(command, INSTALL_SECONDS)
