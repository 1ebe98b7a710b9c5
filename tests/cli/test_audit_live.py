"""exhume audit of a node that runs: a real systemd in a container, with a real crash loop, real sockets and real peers."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests import systemd

_LISTEN = (
    "import socket,time\n"
    "u=socket.socket(socket.AF_UNIX);u.bind('/run/served.sock')\n"
    "time.sleep(0.2)\n"  # whoever comes within a tick of its making leaves no later time on it
    "u.listen()\n"
    "n=socket.socket(socket.AF_UNIX);n.bind('/run/never.sock');n.listen()\n"
    "t=socket.create_server(('127.0.0.1',7531))\n"
    "kept=[u.accept(),t.accept()]\n"
    "time.sleep(600)\n"
)
_CONNECT = (
    "import socket,time\n"
    "def reach(family,address):\n"
    " while True:\n"
    "  s=socket.socket(family)\n"
    "  try: s.connect(address); return s\n"
    "  except OSError: time.sleep(0.05)\n"
    "kept=[reach(socket.AF_UNIX,'/run/served.sock'),reach(socket.AF_INET,('127.0.0.1',7531))]\n"
    "time.sleep(600)\n"
)
_UNITS = {
    "crashing.service": "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'exit 5'\n"
    "Restart=on-failure\nRestartSec=200ms\n[Install]\nWantedBy=multi-user.target\n",
    "served.service": "[Service]\nExecStart=/usr/bin/python3 /etc/listen.py\n",
    "client.service": "[Service]\nExecStart=/usr/bin/python3 /etc/connect.py\n",
}


@pytest.fixture(scope="module")
def document() -> Iterator[dict[str, Any]]:
    if why := systemd.unavailable():
        pytest.skip(why)
    with systemd.boot(_UNITS) as machine:
        machine.write("/etc/listen.py", _LISTEN)
        machine.write("/etc/connect.py", _CONNECT)
        machine.run(["systemctl", "enable", "crashing.service"])
        machine.run(["systemctl", "start", "--no-block", "crashing.service", "served.service", "client.service"])
        command = [sys.executable, "-m", "exhume", "audit", "--host", machine.root, "--json"]
        deadline = time.monotonic() + 120
        while True:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.stderr == ""
            told: dict[str, Any] = json.loads(done.stdout)
            # Read in mid-loop, systemd says success and 0 for a moment.
            crashed = any("exit status 5" in reason for reason in unit(told, "crashing.service")["reasons"])
            ready = crashed and len(ends(told)) == 3
            reached = ready and all(ends(told)[where]["peers"] for where in ("/run/served.sock", "127.0.0.1:7531"))
            if reached or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        told["code"] = done.returncode
        yield told


def unit(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(dict(one) for one in document["units"] if one["name"] == name)


def ends(document: dict[str, Any]) -> dict[str, Any]:
    live = unit(document, "served.service")["live"]
    return {end["address"]: end for end in live["sockets"]["listening"]} if live and live["sockets"] else {}


def test_a_real_crash_loop_is_harmful_with_the_count_and_the_exit_status(document: dict[str, Any]) -> None:
    crashing = unit(document, "crashing.service")
    assert crashing["judgement"] == "harmful"
    assert crashing["live"]["restarts"] >= 3
    assert crashing["restart"]["endless"] is True
    assert any(reason.startswith("it is in a crash loop now: systemd has restarted it") for reason in crashing["reasons"])
    assert any("exit status 5" in reason for reason in crashing["reasons"])
    assert document["code"] == 2
    assert document["image"]["live"] is True


def test_who_is_connected_is_told_by_unit_for_unix_sockets_and_tcp(document: dict[str, Any]) -> None:
    found = ends(document)
    assert found["/run/served.sock"]["peers"] == ["client.service"]
    assert found["/run/served.sock"]["touched_s"] is not None
    assert found["127.0.0.1:7531"]["peers"] == ["client.service"]
    served = unit(document, "served.service")
    assert served["judgement"] == "needed"
    assert any("client.service is connected to" in reason for reason in served["reasons"])
    assert "served.service" in unit(document, "client.service")["live"]["sockets"]["talks_to"]


def test_a_socket_that_nobody_touched_says_so(document: dict[str, Any]) -> None:
    never = ends(document)["/run/never.sock"]
    assert (never["connections"], never["peers"], never["touched_s"]) == (0, [], None)
    assert never["made_s"] is not None


def test_how_a_unit_lives_is_told(document: dict[str, Any]) -> None:
    live = unit(document, "served.service")["live"]
    assert (live["active"], live["sub"], live["restarts"]) == ("active", "running", 0)
    assert live["since_s"] >= 0
    assert live["cgroup"].endswith("/served.service")
