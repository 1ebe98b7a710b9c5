"""exhume audit: thousands of unit files read, merged and put into a graph, beside systemctl, which only lists them."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import Row, interleaved

FILES = 5_000
FEWER = 1_000
"""For the comparison: systemctl reads every directory of links anew for each unit, which takes minutes for all 5,000."""
_READ = """
import sys
from exhume.host.directory import Directory
from exhume.host.systemd.units import read_units
with Directory(sys.argv[1]) as tree:
    services = read_units(tree).services()
assert len(services) >= int(sys.argv[2])
"""
_SERVICE = """[Unit]
Description=Number {n}
After=network.target unit-{before}.service
Wants=unit-{before}.service
ConditionPathExists=/etc/unit-{n}.conf

[Service]
ExecStart=/usr/bin/daemon --number={n} --config /etc/unit-{n}.conf
Restart=on-failure
RestartSec={seconds}
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
Alias=other-{n}.service
"""


@contextmanager
def image(files: int = FILES) -> Iterator[Path]:
    """A root with so many unit files: services with timers, sockets, drop-ins and instances, two in three of them enabled."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        vendor, etc = root / "usr/lib/systemd/system", root / "etc/systemd/system"
        wants = etc / "multi-user.target.wants"
        for directory in (vendor, wants):
            directory.mkdir(parents=True)
        for target in ("sysinit", "basic", "multi-user"):
            (vendor / f"{target}.target").write_text("[Unit]\n")
        (vendor / "default.target").symlink_to("multi-user.target")
        (vendor / "each@.service").write_text(_SERVICE.format(n=0, before=0, seconds=1))
        for n in range(files - 4):
            if n % 10 == 8:
                (vendor / f"unit-{n - 1}.timer").write_text("[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n")
            elif n % 10 == 9:
                (vendor / f"unit-{n - 3}.socket").write_text(f"[Socket]\nListenStream=/run/unit-{n}\n")
            else:
                (vendor / f"unit-{n}.service").write_text(_SERVICE.format(n=n, before=max(0, n - 7), seconds=n % 12))
                if n % 3:
                    (wants / f"unit-{n}.service").symlink_to(f"/usr/lib/systemd/system/unit-{n}.service")
            if n % 20 == 0:
                (etc / f"unit-{n}.service.d").mkdir()
                (etc / f"unit-{n}.service.d/limit.conf").write_text("[Unit]\nStartLimitIntervalSec=0\n")
                (wants / f"each@{n}.service").symlink_to("/usr/lib/systemd/system/each@.service")
        yield root


def audit_units() -> Iterator[Row]:
    """5,000 unit files, read with their graph and restart arithmetic, against `systemctl --root list-unit-files`."""
    if shutil.which("systemctl") is None:
        raise RuntimeError("there is no systemctl")
    with image(FEWER) as root:
        theirs = ["systemctl", f"--root={root}", "list-unit-files", "--no-pager"]
        mine, systemctl = interleaved([_ours(root, FEWER), theirs], 3)
    yield Row(f"{FEWER:,} unit files, against systemctl --root list-unit-files", mine.wall_s, systemctl.wall_s, "s")
    with image() as root:
        (mine,) = interleaved([_ours(root, FILES)], 3)
    yield Row(f"{FILES:,} unit files, all of it, wall", mine.wall_s, None, "s", 3.0)
    yield Row(f"{FILES:,} unit files, CPU", mine.cpu_s, None, "s")
    yield Row(f"{FILES:,} unit files, peak memory", mine.peak_mb, None, "MB", 300.0)


def _ours(root: Path, files: int) -> list[str]:
    return [sys.executable, "-c", _READ, str(root), str(files - 4)]
