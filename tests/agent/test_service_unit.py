"""The unit for hosts without Kubernetes: systemd finds nothing wrong with it, and starts, watches, reloads and stops it."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import systemd

UNIT = Path(__file__).parents[2] / "deploy/systemd/exhume-agent.service"
SCRAPE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464{}', timeout=10).read().decode())"


def here() -> str:
    """The unit with this interpreter and these modules instead of what a package would install."""
    path = os.pathsep.join(filter(None, sys.path))
    command = f"ExecStart={sys.executable} -m exhume agent"
    text = UNIT.read_text()
    assert "ExecStart=/usr/bin/exhume agent\n" in text
    text = text.replace("PrivateTmp=yes", "PrivateTmp=no")  # these modules may lie in /tmp
    return text.replace("ExecStart=/usr/bin/exhume agent", f"Environment=PYTHONPATH={path}\n{command}")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze (Debian: systemd)")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / UNIT.name).write_text(here())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name], capture_output=True, text=True)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "exhume" in line]
    assert (done.returncode, ours) == (0, [])


def test_it_has_no_capability_to_change_the_node() -> None:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("CapabilityBoundingSet=")]
    had = set(line.partition("=")[2].split())
    may = {"PERFMON", "BPF", "SYSLOG", "SYS_PTRACE", "DAC_READ_SEARCH", "SYS_RESOURCE", "SYS_NICE"}
    assert had == {f"CAP_{name}" for name in may}


@pytest.mark.ci
@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable())
def test_systemd_starts_watches_reloads_and_stops_it() -> None:
    with systemd.boot({UNIT.name: here()}) as machine:

        def show(name: str) -> str:
            return machine.run(["systemctl", "show", UNIT.name, f"--property={name}", "--value"]).stdout.strip()

        machine.run(["ip", "link", "set", "lo", "up"], check=False)
        machine.run(["systemctl", "start", UNIT.name], timeout=120)  # returns when it has said READY=1
        assert show("ActiveState") == "active"
        assert machine.run([sys.executable, "-c", SCRAPE.format("/-/ready")]).stdout.strip() == "ready"
        status = machine.run(["cat", f"/proc/{show('MainPID')}/status"]).stdout
        bounding = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapBnd:"))
        assert not bounding >> 21 & 1  # CAP_SYS_ADMIN
        seen = show("WatchdogTimestampMonotonic")
        machine.run(["systemctl", "reload", UNIT.name])
        for _ in range(100):
            said = machine.run(["journalctl", "-u", UNIT.name, "--no-pager", "-o", "cat"]).stdout
            if "the settings were read again" in said and show("WatchdogTimestampMonotonic") != seen:
                break
            time.sleep(0.2)
        assert "the settings were read again" in said
        assert show("WatchdogTimestampMonotonic") != seen
        assert 'exhume_source_up{source="cpu"} 1.0' in machine.run([sys.executable, "-c", SCRAPE.format("/metrics")]).stdout
        machine.run(["systemctl", "stop", UNIT.name], timeout=120)
        assert (show("ActiveState"), show("Result"), show("ExecMainStatus")) == ("inactive", "success", "0")
        assert machine.run(["stat", "-c", "%a", "/var/lib/exhume"]).stdout.strip() == "700"
