"""The unit for hosts without Kubernetes: systemd finds nothing wrong with it, and starts, watches, reloads and stops it."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from exhume.agent import privileges
from exhume.agent.settings import Settings
from tests import systemd

UNIT = Path(__file__).parents[2] / "deploy/systemd/exhume-agent.service"
SCRAPE = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464{}', timeout=300).read().decode())"


def here() -> str:
    """The unit with this interpreter and these modules instead of what a package would install."""
    path = os.pathsep.join(filter(None, sys.path))
    command = f"ExecStart={sys.executable} -m exhume agent"
    text = UNIT.read_text()
    assert "ExecStart=/usr/bin/exhume agent\n" in text
    text = text.replace("PrivateTmp=yes", "PrivateTmp=no")  # these modules may lie in /tmp
    programs = f"BindReadOnlyPaths={sys.prefix} {sys.base_prefix} {UNIT.parents[2]}"  # which may be below /root
    return text.replace("ExecStart=/usr/bin/exhume agent", f"Environment=PYTHONPATH={path}\n{programs}\n{command}")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze (Debian: systemd)")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    (tmp_path / UNIT.name).write_text(here())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", tmp_path / UNIT.name], capture_output=True, text=True)
    ours = [line for line in (done.stdout + done.stderr).splitlines() if "exhume" in line]
    assert (done.returncode, ours) == (0, [])


def test_it_has_no_capability_to_change_the_node() -> None:
    (line,) = [line for line in UNIT.read_text().splitlines() if line.startswith("CapabilityBoundingSet=")]
    had = set(line.partition("=")[2].split())
    may = {"PERFMON", "BPF", "SYSLOG", "SYS_RESOURCE", "SYS_NICE"}
    assert had == {f"CAP_{name}" for name in may}


def test_it_does_not_close_the_devices_by_the_way() -> None:
    """Before systemd 252 ProtectClock= allows char-rtc, and with one device allowed all others are denied, /dev/kmsg among them
    (systemd issue 18142)."""
    assert "DeviceAllow=/dev/kmsg r" in _lines()
    assert not [line for line in _lines() if line.startswith(("ProtectClock=", "PrivateDevices=", "ProtectKernelLogs="))]


def _lines() -> list[str]:
    return UNIT.read_text().splitlines()


# What keeps root from writing where it is the owner.
_CLOSED = ("ReadOnlyPaths=", "ProtectControlGroups=", "DevicePolicy=", "DeviceAllow=", "SystemCallFilter=")
_TRIES = """
import ctypes, errno, glob, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def tell(what, error):
    print("tried", what, errno.errorcode.get(error, error), flush=True)
def opened(what, path):
    try:
        os.close(os.open(path, os.O_WRONLY))
        tell(what, 0)
    except OSError as error:
        tell(what, error.errno)
child = subprocess.Popen(["sleep", "60"])
opened("cgroup", glob.glob("/sys/fs/cgroup/**/system.slice/cgroup.procs", recursive=True)[0])
opened("process", f"/proc/{child.pid}/oom_score_adj")
opened("memory", f"/proc/{child.pid}/mem")
tell("ptrace", ctypes.get_errno() if libc.ptrace(0x4206, child.pid, None, None) else 0)  # PTRACE_SEIZE
tell("process_vm_writev", ctypes.get_errno() if libc.process_vm_writev(child.pid, None, 0, None, 0, 0) else 0)
opened("null", "/dev/null")
child.kill()
"""


@pytest.mark.ci
@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable())
def test_what_root_owns_can_be_read_and_not_written() -> None:
    """Tried by a process with the unit's lines, and by one with these taken out of it. The agent sees the same with and
    without them; of what it takes capabilities for that such a machine has not, test_privileges.py says so."""
    closed = here()
    open_ = "".join(f"{line}\n" for line in closed.splitlines() if not line.startswith(_CLOSED))
    agent = f"ExecStart={sys.executable} -m exhume agent"
    tries = {
        name: text.replace(agent, f"ExecStart={sys.executable} /usr/local/tries.py").replace("Type=notify", "Type=oneshot")
        for name, text in (("tries-closed.service", closed), ("tries-open.service", open_))
    }
    with systemd.boot({"agent-closed.service": closed, "agent-open.service": open_, **tries}) as machine:
        machine.write("/usr/local/tries.py", _TRIES)
        machine.run(["ip", "link", "set", "lo", "up"], check=False)
        said, seen = {}, {}
        for which in ("closed", "open"):
            machine.run(["systemctl", "start", f"tries-{which}.service"], timeout=300)
            text = machine.run(["journalctl", "-u", f"tries-{which}.service", "--no-pager", "-o", "cat"]).stdout
            told = (line.split() for line in text.splitlines() if line.startswith("tried "))
            said[which] = {words[1]: words[2] for words in told}
            machine.run(["systemctl", "start", f"agent-{which}.service"], timeout=120)
            scraped = ""
            while not re.search(r"^exhume_agent_batches_total ([5-9]|\d\d)", scraped, re.MULTILINE):  # all sources were read
                time.sleep(0.5)
                scraped = machine.run([sys.executable, "-c", SCRAPE.format("/metrics")]).stdout
            seen[which] = sorted(line for line in scraped.splitlines() if line.startswith("exhume_source_up{"))
            machine.run(["systemctl", "stop", f"agent-{which}.service"], timeout=120)
    read_only = dict.fromkeys(("cgroup", "process", "memory"), "EROFS")
    assert said["closed"] == {**read_only, "ptrace": "EPERM", "process_vm_writev": "EPERM", "null": "0"}
    assert said["open"] == dict.fromkeys(said["closed"], "0")
    assert len(seen["open"]) > 10
    assert seen["closed"] == seen["open"]


_BUS = "/run/dbus/system_bus_socket"
# The machine's own /etc/shadow, and its root, by number and by handle.
_ASKED = f"""
import json, os
from exhume.kernel.file_handle import handle_of
told = os.stat("/etc/shadow")
handles = []
for path in ("/etc/shadow", "/", "/etc"):
    try:
        handles.append((lambda one: [one.kind, one.raw.hex()])(handle_of(path)))
    except Exception:  # overlayfs, of which the machine's root is one, may have none
        pass
print(json.dumps({{"secret": [told.st_dev, told.st_ino], "handles": handles, "sockets": ["{_BUS}", "/run/systemd/private"]}}))
"""


@pytest.mark.ci
@pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable())
def test_a_compromised_agent_reads_no_secret_asks_no_daemon_and_writes_its_recording_alone() -> None:
    """Tried by a process with the unit's lines; and by one with drop-ins of docs/install.md, to see that it works."""
    agent = f"ExecStart={sys.executable} -m exhume agent"
    path = os.pathsep.join(filter(None, (*sys.path, str(UNIT.parents[2]))))
    unit = here().replace("Type=notify", "Type=oneshot").replace("PrivateTmp=no", "PrivateTmp=yes")
    unit = re.sub("Environment=PYTHONPATH=.*", f"Environment=PYTHONPATH={path}", unit)
    unit = unit.replace(
        agent, f"ExecStart={sys.executable} -m tests.deploy.attack ${{ASKED}}\nEnvironmentFile=/usr/local/asked"
    )
    more = unit.replace("[Install]", "BindReadOnlyPaths=/run/dbus\nBindReadOnlyPaths=/etc\n[Install]")
    found = {}
    with systemd.boot({"attack.service": unit, "attack-more.service": more}) as machine:
        asked = machine.run(["env", f"PYTHONPATH={path}", sys.executable, "-c", _ASKED]).stdout.strip()
        machine.write("/usr/local/asked", f"ASKED='{asked}'\n")
        for name in ("attack", "attack-more"):
            machine.run(["systemctl", "start", f"{name}.service"], check=False, timeout=120)
            said = machine.run(["journalctl", "-u", f"{name}.service", "--no-pager", "-o", "cat"]).stdout
            (line,) = [line for line in said.splitlines() if line.startswith("attack ")] or [said]
            found[name] = json.loads(line.removeprefix("attack "))
    closed, opened = found["attack"], found["attack-more"]
    assert (closed["user"], closed["read"], closed["handle"], closed["connected"]) == (0, [], [], [])
    assert set(closed["written"]) - {"/tmp", "/var/tmp"} == {"/var/lib/exhume/recording", "/var/lib/exhume/recording.spool"}
    assert ("/etc/shadow" in opened["read"], _BUS in opened["connected"]) == (True, True)


def test_what_is_bound_into_it_is_what_the_sources_need() -> None:
    """Of /run and /var only what a source or the DNS reads; no socket but that of sd_notify."""
    bound = {
        word.removeprefix("-")
        for line in _lines()
        if line.startswith("BindReadOnlyPaths=")
        for word in line.partition("=")[2].split()
    }
    groups = ("journal", *(f"runtime={name}" for name in ("containerd", "k3s", "docker", "cri-o")))
    needed = {one.path for one in privileges.mounts(groups) if one.path.startswith(("/run/", "/var/"))}
    units = {
        f"/run/systemd/{name}" for name in ("generator", "generator.early", "generator.late", "transient", "resolve", "notify")
    }
    assert {path for path in bound if path.startswith(("/run/", "/var/"))} == needed | units
    state = next(line for line in _lines() if line.startswith("StateDirectory=")).partition("=")[2].split()
    writable = [f"/var/lib/{name}" for name in state]
    assert tuple(writable) == privileges.writable(Settings().dir)
    assert f"BindPaths={' '.join(writable)}" in _lines()


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
        for name in ("recording", "recording.spool"):
            assert machine.run(["stat", "-c", "%a", f"/var/lib/exhume/{name}"]).stdout.strip() == "700"
