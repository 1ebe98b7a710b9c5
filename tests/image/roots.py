"""A real Debian root with systemd and a dozen real daemons, made once and kept outside the repository. Nobody writes to it."""

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.vm.apt import archive, network_options
from tests.vm.cache import discard, scratch
from tests.vm.tools import INSTALL_SECONDS, Unavailable, install, run

SUITE = "bookworm"
PACKAGES = (
    *("systemd", "systemd-sysv", "dbus", "udev", "iproute2", "procps", "python3-minimal"),
    *("chrony", "containerd", "cron", "dnsmasq", "docker.io", "haproxy", "lvm2", "mdadm", "nfs-common", "nginx-light"),
    *("openssh-server", "openvpn", "prometheus-node-exporter", "redis-server", "rsyslog", "smartmontools", "sysstat"),
    *("unattended-upgrades", "vsftpd"),
)
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*")
_MADE = "debian-"


@cache
def debian() -> Path:
    """The root's directory; the test that asks skips with the reason where none can be made."""
    try:
        with _alone() as here:
            target = here / f"{_MADE}{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}"
            if not target.exists():
                _build(here, target)
                for old in here.glob(f"{_MADE}*"):
                    if old != target:
                        discard(old)
    except Unavailable as why:
        pytest.skip(f"no Debian root: {why}")
    return target


def directory() -> Path:
    """`$XDG_CACHE_HOME/exhume-image`. The base directory specification says to ignore a relative one."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return Path(base if os.path.isabs(base) else os.path.expanduser("~/.cache")) / "exhume-image"


@contextlib.contextmanager
def _alone() -> Iterator[Path]:
    """One run makes the root, others wait for it; what a killed one left is removed."""
    here = directory()
    try:
        here.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = open(here / "lock", "w")  # noqa: SIM115
    except OSError as error:
        raise Unavailable(f"the cache {here} cannot be written: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in here.glob("scratch-*"):
            discard(left)
        yield here


def _build(here: Path, target: Path) -> None:
    if os.geteuid() != 0:
        raise Unavailable("making it needs root (once; then it is in the cache)")
    install({"mmdebstrap": "mmdebstrap", "unshare": "util-linux"})
    with scratch(here) as work:
        (work / "sources.list").write_text(archive().sources(SUITE))
        tree = work / "tree"
        # In namespaces of its own: whatever mmdebstrap mounts or starts is gone when it is, even if it is killed.
        command = ["setpriv", "--pdeathsig", "KILL"]
        command += ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "mmdebstrap", "--quiet"]
        command += ["--mode=root", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}"]
        command += [f"--aptopt={line}" for line in network_options()]
        command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        run([*command, SUITE, str(tree), str(work / "sources.list")], INSTALL_SECONDS)
        # Of the machine that made it, which nobody needs to know.
        (tree / "etc/apt/sources.list").unlink(missing_ok=True)
        (tree / "etc/resolv.conf").unlink(missing_ok=True)
        tree.rename(target)
