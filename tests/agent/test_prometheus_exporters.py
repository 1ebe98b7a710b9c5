"""The edition without the agent, on real parts: node_exporter on this kernel and of a real systemd, and a Prometheus.

The kubelet's part is played, with the names that its cAdvisor has. With the thresholds taken out, every rule must give data: a
metric that is not there, a label that does not join, and an alert that can never fire all look the same otherwise.
"""

import http.server
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from exhume.agent.rules import Making, groups, printed
from exhume.agent.rules_exporters import ALERTS
from tests import systemd
from tests.agent.prometheus import free_port, needs, prometheus, until

pytestmark = [
    pytest.mark.ci,
    pytest.mark.skipif(bool(systemd.unavailable()), reason=systemd.unavailable() or "-"),
]

FAST = Making(node="node", speed=60)
INTERVAL = "700ms"
DOCS = Path(__file__).resolve().parent.parent.parent / "docs" / "alerts.md"
FLAPS = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sh -c 'exit 3'\nRestart=always\nRestartSec=300ms\n"
KUBELET = """\
container_memory_usage_bytes{{id="/kubepods/pod1/a",pod="a",container="main"}} 1000000
container_cpu_cfs_periods_total{{pod="a",container="main"}} {0}
container_cpu_cfs_throttled_periods_total{{pod="a",container="main"}} {0}
"""


def flags() -> list[str]:
    """As the documentation has them."""
    block = re.search(r"node_exporter must run with\n\n```\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert block is not None
    return [flag.replace("'", "") for flag in block[1].split()]


@contextmanager
def exporting(place: Path, bus: str) -> Iterator[str]:
    """A node_exporter that tells of the systemd at this bus."""
    needs("prometheus-node-exporter")
    address = f"127.0.0.1:{free_port()}"
    few = ["--collector.disable-defaults", *(f"--collector.{name}" for name in ("cpu", "vmstat", "softnet", "netclass"))]
    few.append("--collector.systemd.unit-include=flap.*")  # every unit is a call over the bus
    command = ["prometheus-node-exporter", *few, *flags(), f"--web.listen-address={address}"]
    with (place / "exporter.log").open("wb") as log:
        told = {**os.environ, "DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={bus}"}
        exporter = subprocess.Popen(command, stdout=log, stderr=log, env=told)
    try:
        yield address
    finally:
        exporter.terminate()
        exporter.wait(120)


@contextmanager
def kubelet() -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = KUBELET.format(int(time.monotonic() * 1000)).encode()
            with suppress(OSError):  # whoever asked may be gone
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join(120)


def without_thresholds(expr: str) -> str:
    """What is compared with a number is taken as it is; what is compared with something else, as the difference."""
    free = re.sub(r"\s(?:>=|<=|==|>|<)\s[\d.e+]+(?!\d*\s*\*)", "", expr)
    return re.sub(r"\s(?:>=|<=|>|<)\s", " - ", free)


def test_what_a_rule_is_without_its_thresholds() -> None:
    assert without_thresholds('a{b="c"} >= 1000\nand on (x) (sum by (x) (d) >= 6 * e)') == (
        'a{b="c"}\nand on (x) (sum by (x) (d) - 6 * e)'
    )
    assert without_thresholds("clamp_min((2 - a) / (deriv(a[1h]) > 0), 0) < 604800") == "clamp_min((2 - a) / (deriv(a[1h])), 0)"


def test_every_rule_gives_data_on_a_real_node(tmp_path: Path) -> None:
    with systemd.boot({"flap.service": FLAPS}) as machine, kubelet() as played:
        machine.run(["systemctl", "start", "--no-block", "flap.service"])
        bus = f"/proc/{machine.leader}/root/run/dbus/system_bus_socket"
        with exporting(tmp_path, bus) as exporter:
            jobs = [
                {"job_name": job, "static_configs": [{"targets": [address], "labels": {"node": "n1"}}]}
                for job, address in (("node", exporter), ("kubelet", played))
            ]
            with prometheus(tmp_path, printed("node-exporter", FAST), {}, INTERVAL, "3s", jobs=jobs) as server:
                rules = [rule for group in groups("node-exporter", FAST)["groups"] for rule in group["rules"]]
                assert [rule["alert"] for rule in rules] == [alert.name for alert in ALERTS]
                for rule in rules:
                    expr = without_thresholds(rule["expr"])
                    found = until(lambda expr=expr: server.query(expr), f"data for {rule['alert']}: {expr}")  # type: ignore[misc]
                    assert {one["metric"]["node"] for one in found} == {"n1"}, rule["alert"]
                until(lambda: len(server.rules()) == len(ALERTS), "all rules are loaded")
                assert {rule["health"] for rule in server.rules()} <= {"ok", "unknown"}
                restarts = 'node_systemd_service_restart_total{name="flap.service"} > 5'
                until(lambda: server.query(restarts), "what flaps is counted by its name")
