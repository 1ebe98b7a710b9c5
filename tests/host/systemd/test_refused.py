"""What systemd will not load, held against systemd's own word; and units that take the machine down with them."""

import shutil
import subprocess
from pathlib import Path

import pytest

from exhume.host.systemd.refused import refused, service_type, takes_down
from exhume.host.systemd.unit_file import Sections, merge, parse
from exhume.host.systemd.units import read_units
from tests.host.systemd.test_units import BASE, DEFAULT, ETC
from tests.host.systemd.written import tree

CASES = {
    "ExecStart=/bin/true": False,
    "Restart=always": True,
    "ExecStop=/bin/true": True,
    "ExecStop=/bin/true\nRemainAfterExit=yes": False,
    "Type=simple\nExecStop=/bin/true\nRemainAfterExit=yes": True,
    "ExecStart=/bin/true\nExecStart=/bin/false": True,
    "Type=oneshot\nExecStart=/bin/true\nExecStart=/bin/false": False,
    "ExecStart=/bin/true\nExecStart=\nExecStart=/bin/false": False,
    "Type=oneshot\nExecStart=/bin/true\nRestart=always": True,
    "Type=oneshot\nExecStart=/bin/true\nRestart=on-success": True,
    "Type=oneshot\nExecStart=/bin/true\nRestart=on-failure": False,
    "Type=oneshot\nExecStart=/bin/true\nExitType=cgroup": True,
    "Type=dbus\nExecStart=/bin/true": True,
    "Type=dbus\nExecStart=/bin/true\nBusName=org.example.Agent": False,
    "BusName=org.example.Agent\nExecStart=/bin/true": False,
}


def said(text: str) -> Sections:
    return merge([parse(text.encode())])


@pytest.mark.parametrize("settings", CASES)
def test_what_systemd_refuses_is_known(settings: str, tmp_path: Path) -> None:
    text = f"[Unit]\nDefaultDependencies=no\n[Service]\n{settings}\n"
    assert bool(refused("agent.service", said(text))) == CASES[settings]
    if shutil.which("systemd-analyze") is None:
        pytest.skip("asking systemd itself needs systemd-analyze")
    file = tmp_path / "agent.service"
    file.write_text(text)
    asked = subprocess.run(["systemd-analyze", "verify", "--man=no", str(file)], capture_output=True, text=True, timeout=300)
    assert ("Refusing" in asked.stderr) == CASES[settings], asked.stderr


def test_only_services_are_asked_about() -> None:
    assert refused("agent.timer", said("[Timer]\nOnBootSec=1\n")) == ""
    assert service_type(said("[Service]\nType=nonsense\nExecStart=/bin/true\n")) == "simple"


def test_a_unit_that_is_refused_does_not_start_whoever_wants_it(tmp_path: Path) -> None:
    files = BASE | {ETC + "agent.service": "[Service]\nType=oneshot\nExecStart=/bin/true\nRestart=always\nRestartSec=10\n"}
    links = DEFAULT | {ETC + "multi-user.target.wants/agent.service": "../agent.service"}
    with tree(tmp_path, files, links) as made:
        found = next(one for one in read_units(made).services() if one.name == "agent.service")
    assert not found.starts
    assert found.pulled_by == ("multi-user.target",)
    assert found.restart is None
    assert found.notes[0] == "systemd refuses it: a service of Type=oneshot cannot have Restart=always"


def test_what_takes_the_machine_down_is_told() -> None:
    text = (
        "[Unit]\nStartLimitAction=reboot\nFailureAction=none\nSuccessAction=poweroff-force\n[Service]\nFailureAction=reboot\n"
    )
    assert list(takes_down(said(text))) == [
        "when its start limit is hit the machine goes down with it (StartLimitAction=reboot)",
        "when it fails the machine goes down with it (FailureAction=reboot)",
        "when it ends cleanly the machine goes down with it (SuccessAction=poweroff-force)",
    ]
    assert not list(takes_down(said("[Unit]\nFailureAction=reboot\nFailureAction=none\n")))


def test_a_job_that_takes_too_long_can_take_the_machine_down() -> None:
    text = "[Unit]\nJobTimeoutAction=reboot-force\n"
    told = ["when its start or its stop takes too long the machine goes down with it (JobTimeoutAction=reboot-force)"]
    assert list(takes_down(said(f"{text}JobTimeoutSec=5min\n"))) == told
    assert list(takes_down(said(f"{text}JobRunningTimeoutSec=5min\n"))) == told
    assert not list(takes_down(said(text)))
    assert not list(takes_down(said("[Unit]\nJobTimeoutSec=1\n[Service]\nJobTimeoutAction=reboot\n")))
