"""Ray for tests: the environment that requirements/ray makes, and a place on this machine where it reaches nothing else.

Ray listens on the machine's own address even if it is told not to (services.resolve_ip_for_localhost), so it runs in a network
name space that has only a loopback device, and in a process name space that ends with it.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def python() -> str:
    """Its interpreter; skips where there is none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    place = Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "exhume-ray"
    if not (place / "locked").is_file():
        pytest.skip("Ray is not installed: requirements/ray makes an environment with it")
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))):
        pytest.skip("Ray is kept to a network name space of its own, which needs root, unshare and ip")
    return str(place / "bin" / "python")


def short_directory() -> tempfile.TemporaryDirectory[str]:
    """Ray puts sockets below it, whose whole path may be 107 bytes long (unix(7)): pytest's own directories are too deep."""
    return tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp", ignore_cleanup_errors=True)


def run(
    arguments: list[str], home: Path, more: Mapping[str, str] | None = None, timeout_s: float = 300
) -> subprocess.CompletedProcess[str]:
    """The interpreter with those arguments, by itself; every process of it is gone afterwards."""
    interpreter = python()
    alone = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*alone, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", interpreter, *arguments]
    environment = {
        "PATH": f"{Path(interpreter).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "RAY_USAGE_STATS_ENABLED": "0",
        **(more or {}),
    }
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout_s)
