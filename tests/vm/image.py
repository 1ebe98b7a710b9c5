"""The root file system of every machine: a small real Debian with systemd, built once. Runs never write to it."""

import hashlib
import os
from pathlib import Path

from tests.vm.apt import archive, network_options
from tests.vm.cache import discard, scratch
from tests.vm.tools import INSTALL_SECONDS, Unavailable, install, run

SUITE = "bookworm"
PACKAGES = (
    "dbus",
    "iproute2",
    "procps",
    "python3",
    "python3-jeepney",
    "python3-numpy",
    "systemd",
    "systemd-sysv",
    "util-linux",
)
HOSTNAME = "exhume-vm"
# What would run in the background some minutes after boot and make cgroups of its own.
_MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@tty1.service",
    "serial-getty@ttyS0.service",
    "systemd-tmpfiles-clean.timer",
)
# Large, and of no use to a machine that nobody logs in to.
_LEFT_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*", "/usr/share/info/*")
_SPARE_BYTES = 1 << 30


def get(here: Path) -> Path:
    """The ext4 image, made when this file, which is the recipe, has changed. One is kept."""
    target = here / f"root-{hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]}.ext4"
    if not target.exists():
        _build(here, target)
        for old in here.glob("root-*.ext4"):
            if old != target:
                discard(old)
    return target


def _build(here: Path, target: Path) -> None:
    if os.geteuid() != 0:
        raise Unavailable("building the root file system needs root (once; then it is in the cache)")
    install({"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "unshare": "util-linux"})
    with scratch(here) as work:
        (work / "sources.list").write_text(archive().sources(SUITE))
        tree, image = work / "tree", work / "image"
        # In namespaces of its own: whatever mmdebstrap mounts or starts is gone when it is, even if it is killed.
        command = ["setpriv", "--pdeathsig", "KILL"]
        command += ["unshare", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc", "mmdebstrap", "--quiet"]
        command += ["--mode=root", "--variant=minbase", "--format=directory", f"--include={','.join(PACKAGES)}"]
        command += [f"--aptopt={line}" for line in network_options()]
        command += [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
        run([*command, SUITE, str(tree), str(work / "sources.list")], INSTALL_SECONDS)
        _settle(tree)
        size = sum(path.lstat().st_blocks * 512 for path in tree.rglob("*")) + _SPARE_BYTES
        # The journal would protect a disk that is thrown away after every run.
        run(["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", tree, image, f"{size // 1024}k"], INSTALL_SECONDS)
        image.rename(target)


def _settle(tree: Path) -> None:
    """What a first boot would otherwise do every time, and what would disturb a test."""
    etc = tree / "etc"
    (etc / "hostname").write_text(f"{HOSTNAME}\n")
    (etc / "machine-id").write_text(hashlib.sha256(HOSTNAME.encode()).hexdigest()[:32] + "\n")
    (etc / "fstab").write_text("")
    for unit in _MASKED:
        (etc / "systemd/system" / unit).unlink(missing_ok=True)
        (etc / "systemd/system" / unit).symlink_to("/dev/null")
