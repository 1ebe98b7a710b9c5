"""What a compromised agent can do to its host, tried with exactly what the chart and the unit give it; and what still works."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from exhume.agent.privileges import HOST, Mount
from exhume.kernel.file_handle import handle_of
from tests.deploy import isolated, oci, shipped

pytestmark = [
    pytest.mark.ci,
    pytest.mark.usefixtures("many_zombies"),
    pytest.mark.skipif(bool(oci.unavailable()), reason=oci.unavailable() or "-"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (Debian: util-linux)"),
]

SECRET = "/etc/shadow"
PRIVATE = {"/tmp", "/dev", "/dev/pts"}
"""What a container has for itself, in memory."""


def asked() -> str:
    told = os.stat(SECRET)
    handles = [[one.kind, one.raw.hex()] for one in map(handle_of, (SECRET, "/"))]
    return json.dumps({"secret": [told.st_dev, told.st_ino], "handles": handles, "sockets": [isolated.BUS]})


def jobs() -> dict[str, dict[str, Any]]:
    """The default pod; and others with one thing more, to see that an attack would be seen."""
    default = shipped.chart()
    host = [one for one in default.mounts if os.path.exists(one.path) or one.path.startswith("/run/")]
    base: dict[str, list[Any]] = {
        "capabilities": [*default.capabilities],
        "mounts": [[one.path, one.at] for one in host],
        "writable": [*default.writable],
    }
    attack = [sys.executable, "-m", "tests.deploy.attack", asked()]
    exhume = [sys.executable, "-P", "-m", "exhume"]
    recording = default.writable[0]
    bus = Mount("/run/dbus", f"{HOST}/run/dbus")
    return {
        "attack": {**base, "command": attack},
        "attack with DAC_READ_SEARCH": {
            **base,
            "capabilities": [*default.capabilities, "DAC_READ_SEARCH"],
            "command": attack,
        },
        "attack with SYS_PTRACE": {**base, "capabilities": [*default.capabilities, "SYS_PTRACE"], "command": attack},
        "attack with the bus": {**base, "mounts": [*base["mounts"], [bus.path, bus.at]], "command": attack},
        "seen": {**base, "command": [sys.executable, "-m", "tests.deploy.seen", HOST]},
        "check": {**base, "command": [*exhume, "check", "--host", HOST, "--json", "--for", "500ms"]},
        "record": {**base, "command": [*exhume, "record", recording, "--host", HOST, "--for", "2s"]},
        "info": {**base, "command": [*exhume, "info", recording, "--json"]},
    }


@cache
def results() -> dict[str, dict[str, Any]]:
    wanted = jobs()
    command = ["unshare", "--mount", sys.executable, "-m", "tests.deploy.isolated", json.dumps([*wanted.values()])]
    environment = {**os.environ, "PYTHONPATH": f"{isolated.TOP}/src:{isolated.TOP}"}
    done = subprocess.run(command, cwd=isolated.TOP, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return dict(zip(wanted, json.loads(done.stdout), strict=True))


def attacked(name: str) -> dict[str, Any]:
    done = results()[name]
    found = re.search(r"^attack (.*)$", done["out"], re.MULTILINE)
    assert found is not None, done["error"]
    told: dict[str, Any] = json.loads(found[1])
    return {**told, "calls": done["calls"]}


def test_the_pod_cannot_read_the_hosts_secrets_nor_write_but_its_recording_nor_ask_systemd() -> None:
    found = attacked("attack")
    assert (found["user"], found["read"], found["handle"]) == (0, [], [])
    assert (found["connected"], found["calls"]) == ([], 0)
    assert set(found["written"]) - PRIVATE == set(shipped.chart().writable)


def test_with_more_rights_the_same_attempts_succeed() -> None:
    """What is not given is what stops them. The file system of the host must find files by handle."""
    by_handle = attacked("attack with DAC_READ_SEARCH")
    assert by_handle["handle"]
    by_process = attacked("attack with SYS_PTRACE")
    assert any(re.fullmatch(r"/proc/\d+/root/etc/shadow", path) for path in by_process["read"])
    assert any(re.fullmatch(r"/proc/\d+/root/etc/passwd", path) for path in by_process["written"])
    by_bus = attacked("attack with the bus")
    assert by_bus["connected"] == [f"{HOST}{isolated.BUS}"]
    assert by_bus["calls"] > 0


def test_the_pod_sees_the_kernels_stacks_zombies_by_name_and_reclaim_by_path() -> None:
    done = results()["seen"]
    found = json.loads(done["out"])
    off = {name for name, said in found.items() if any(f"{name}: off" in one or "not named" in one for one in said)}
    assert off == {"units"}, found
    assert "no D-Bus socket" in found["units"][0]
    assert found["samples"][0].startswith("samples: on")
    assert found["latency"][-1] == "paths: /"


def test_check_and_record_work_in_the_pod() -> None:
    done = results()["check"]
    assert done["code"] in (0, 1, 2), done["error"]
    sources = {one["name"]: one for one in json.loads(done["out"])["sources"]}
    assert "named by walking" in sources["zombies"]["reason"]
    assert {name for name, one in sources.items() if one["state"] == "off"} <= {"units", "journal"}
    assert results()["record"]["code"] == 0, results()["record"]["error"]
    assert results()["info"]["code"] == 0, results()["info"]["error"]


def test_each_loss_is_listed_with_what_switches_it_on() -> None:
    text = Path(isolated.TOP / "docs/install.md").read_text()
    table = text.partition("### What is off by default, and what switches it on")[2].partition("\n### ")[0]
    for switch, default in shipped.values()["sources"].items():
        if default in (False, "none"):
            assert f"`sources.{switch}" in table, switch
