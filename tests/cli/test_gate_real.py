"""The gate on this kernel: zombies made for real during a soak, a quiet place, a real crash loop of a real systemd."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import systemd
from tests.zombies import PAGE, PARENT, remove, unavailable, zombies

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "exhume", "gate"]


def judged(*argv: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    done = subprocess.run([*COMMAND, *argv, "--json"], capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    return done.returncode, told, {check["name"]: check for check in told["checks"]}


# In a process of its own: a page is charged to the group of the process's first thread (mm->owner), whoever writes it.
LEAK = """
import sys, time
from pathlib import Path
from tests.zombies import one
parent, name, pause, most, after = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
with open(name, "r+b") as file:
    print("ready", flush=True)
    time.sleep(after)
    for number in range(most):
        one(parent, f"z{number}", file.fileno(), number)
        time.sleep(pause)
    time.sleep(600)
"""


@dataclass(frozen=True)
class Leaking:
    path: str
    """The directory of its own below which it leaves zombies."""
    _fd: int

    @property
    def made(self) -> int:
        """How many so far: each has a page of the file."""
        return os.fstat(self._fd).st_size // PAGE


@contextlib.contextmanager
def leaking(below: str, per_second: float, most: int = 10_000, after: float = 0) -> Iterator[Leaking]:
    """A process that leaves a zombie every now and then."""
    parent = PARENT / below
    parent.mkdir(parents=True)
    with tempfile.NamedTemporaryFile(dir="/dev/shm", prefix="exhume-test-") as file:  # no page of tmpfs is evicted
        argv = [sys.executable, "-c", LEAK, str(parent), file.name, str(1 / per_second), str(most), str(after)]
        process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield Leaking(f"/{PARENT.name}/{below}", file.fileno())
        finally:
            process.kill()
            process.communicate()
            file.truncate(0)
            remove(parent)


def test_real_zombies_that_come_slowly_fail_the_gate_and_their_place_is_named() -> None:
    if why := unavailable():
        pytest.skip(why)
    with leaking("gate-slow", per_second=4) as leak:
        code, told, checks = judged("--for", "9s", "--under", leak.path)
        made = leak.made
    assert code == 2
    assert told["status"] == "failed"
    growth = checks["growth"]
    assert growth["status"] == checks["zombie-sources"]["status"] == "failed"
    (blamed,) = growth["blamed"]
    assert blamed["subject"].startswith(f"{leak.path}/")
    assert 0 < told["bound"]["seen"] <= made  # the settling and the last second are not counted
    assert growth["measured"] > 1_000 == growth["limit"] + checks["memory-cgroups"]["measured"]


@pytest.mark.ci
def test_a_leak_that_is_certain_ends_the_soak() -> None:
    if why := unavailable():
        pytest.skip(why)
    with leaking("gate-fast", per_second=20) as leak:
        code, told, checks = judged("--for", "40s", "--settle", "1s", "--under", leak.path)
    assert code == 2
    assert told["ended_early"] is True
    assert checks["growth"]["status"] == "failed"
    assert told["soak_s"] < 39


@pytest.mark.ci
def test_a_burst_that_ends_is_no_leak_and_no_pass() -> None:
    if why := unavailable():
        pytest.skip(why)
    with leaking("gate-burst", per_second=100, most=12, after=6) as leak:
        code, _, checks = judged("--for", "12s", "--settle", "0s", "--under", leak.path)
    assert code == 1
    assert checks["growth"]["status"] == "warning"
    assert "cannot promise" in checks["growth"]["message"]
    assert checks["zombie-sources"]["status"] == "passed"


def test_a_quiet_place_says_what_the_soak_excludes() -> None:
    if why := unavailable():
        pytest.skip(why)
    quiet = PARENT / "gate-quiet"
    quiet.mkdir(parents=True)
    try:
        code, told, checks = judged("--for", "3s", "--under", f"/{PARENT.name}/gate-quiet")
    finally:
        remove(quiet)
    assert told["bound"]["seen"] == 0
    assert (code, checks["growth"]["status"], told["passed"]) == (1, "warning", False)
    seconds, rate = told["bound"]["seconds"], told["bound"]["excluded_above_per_minute"]
    assert rate == pytest.approx(60 * 2.9957 / seconds, rel=1e-3)
    assert f"exclude no leak slower than {rate:,.0f} a minute (95 %)" in checks["growth"]["message"]


LOOP = """\
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStart=/bin/sh -c 'exit 5'
Restart=always
RestartSec=200ms
"""


@pytest.mark.ci
def test_a_real_crash_loop_of_a_real_systemd_fails_and_is_named() -> None:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot({"loop.service": LOOP}) as machine:
        quiet = judged("--for", "2s", "--host", machine.root)[2]["crash-loops"]
        machine.run(["systemctl", "start", "--no-block", "loop.service"])
        code, _, checks = judged("--for", "6s", "--host", machine.root)
    # The machine may have loops of its own besides.
    assert "loop.service" not in {blamed["subject"] for blamed in quiet["blamed"]}
    assert code == 2
    loops = checks["crash-loops"]
    assert loops["status"] == "failed"
    (blamed,) = (blamed for blamed in loops["blamed"] if blamed["subject"] == "loop.service")
    assert "restarted" in blamed["message"]


AGENT = """\
[Service]
ExecStart=/bin/sh -c 'head -c 8192 /dev/zero > /var/tmp/agent-$$$$; exit 1'
Restart=on-failure
RestartSec=2100ms
"""


@pytest.mark.ci
def test_the_unit_whose_restarts_leave_zombies_is_named() -> None:
    if why := unavailable() or systemd.unavailable(memory=True):
        pytest.skip(why)
    with systemd.boot({"agent.service": AGENT}, memory=True) as machine:
        machine.run(["systemctl", "start", "--no-block", "agent.service"])
        code, _, checks = judged("--for", "20s", "--under", f"/{systemd.NAME}")
    assert code == 2
    # Seen from this node, a unit of the container is a tenant's: it is named by its path.
    subject = f"/{systemd.NAME}/system.slice/agent.service"
    assert [blamed["subject"] for blamed in checks["growth"]["blamed"]] == [subject]
    assert subject in {blamed["subject"] for blamed in checks["zombie-sources"]["blamed"]}


# One run as root first, so that every module is loaded when the interpreter's own files are out of reach.
AS_NOBODY = """
import contextlib, io, os, sys
from exhume.cli.main import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["gate", "--for", "2s", "--json"])
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["gate", "--for", "2s", "--json", "--limit", "1000000"]))  # whatever else this machine runs
"""


def test_without_root_the_checks_that_need_it_are_named() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become nobody")
    if why := unavailable():
        pytest.skip(why)
    with zombies(150, "gate", tmpfs=True):  # fewer would need no names
        done = subprocess.run([sys.executable, "-c", AS_NOBODY], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 3
    told = json.loads(done.stdout)
    unknown = {check["name"] for check in told["checks"] if check["status"] == "unknown"}
    assert unknown >= {"growth", "zombie-sources"}
    assert told["passed"] is False
