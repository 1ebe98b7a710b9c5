"""Debian's real Prometheus and Alertmanager, on free ports of loopback, for as long as a test lasts."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

PATIENCE_S = 120.0


def needs(*programs: str) -> None:
    for program in programs:
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")


def promtool(*arguments: str, given: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    needs("promtool")
    return subprocess.run(["promtool", *arguments], input=given, capture_output=True, check=False, timeout=300)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(true: Callable[[], Any], what: str) -> Any:
    """Waits, not for a time but for something to be so; what it is if that never comes."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if found := true():
            return found
        time.sleep(0.05)
    raise AssertionError(f"in vain: {what}")


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=20) as reply:
        return json.load(reply)


class Server:
    """A program that serves HTTP at a port."""

    def __init__(self, command: Sequence[str], port: int, log: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        with log.open("wb") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def ready(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(self._log.read_text())
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Prometheus(Server):
    def query(self, expr: str) -> list[dict[str, Any]]:
        """An instant query: its result, of any type that has labels."""
        reply = get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': expr})}")
        assert reply["status"] == "success", reply
        return list(reply["data"]["result"])

    def query_range(self, expr: str, seconds: float, step: float) -> list[dict[str, Any]]:
        now = time.time()
        asked = {"query": expr, "start": now - seconds, "end": now, "step": step}
        reply = get(f"{self.url}/api/v1/query_range?{urllib.parse.urlencode(asked)}")
        assert reply["status"] == "success", reply
        return list(reply["data"]["result"])

    def alerts(self, state: str) -> set[str]:
        found = get(f"{self.url}/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in found if alert["state"] == state}

    def history(self, node: str) -> dict[tuple[str, str], list[float]]:
        """By alert and state, when it was in that state."""
        found: dict[tuple[str, str], list[float]] = {}
        for series in self.query(f'ALERTS{{instance="{node}"}}[10m]'):
            key = series["metric"]["alertname"], series["metric"]["alertstate"]
            found[key] = sorted([*found.get(key, []), *(at for at, _ in series["values"])])
        return found

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in get(f"{self.url}/api/v1/rules")["data"]["groups"] for rule in group["rules"]]


@contextmanager
def prometheus(
    place: Path,
    rules: str,
    targets: dict[str, str],
    interval: str = "1s",
    lookback: str = "5m",
    alertmanager: str = "",
    jobs: Sequence[dict[str, Any]] = (),
) -> Iterator[Prometheus]:
    """`targets` are addresses by their name as a node; `jobs` are scraped besides."""
    needs("prometheus")
    (place / "rules.yml").write_text(rules)
    config: dict[str, Any] = {
        "global": {"scrape_interval": interval, "scrape_timeout": interval, "evaluation_interval": interval},
        "rule_files": ["rules.yml"],
        "scrape_configs": [
            {
                "job_name": "exhume",
                "static_configs": [{"targets": [address], "labels": {"instance": name}} for name, address in targets.items()],
            },
            *jobs,
        ],
    }
    if alertmanager:
        config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        f"--query.lookback-delta={lookback}",
        "--rules.alert.resend-delay=1s",
        "--log.level=warn",
    ]
    server = Prometheus(command, port, place / "prometheus.log")
    try:
        until(server.ready, "Prometheus is ready")
        yield server
    finally:
        server.end()


@contextmanager
def alertmanager(place: Path, webhook: str) -> Iterator[Server]:
    needs("prometheus-alertmanager")
    route = {"receiver": "test", "group_by": ["alertname"], "group_wait": "0s", "group_interval": "1s"}
    receiver = {"name": "test", "webhook_configs": [{"url": webhook}]}
    (place / "alertmanager.yml").write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    port = free_port()
    command = [
        "prometheus-alertmanager",
        f"--config.file={place / 'alertmanager.yml'}",
        f"--storage.path={place / 'alertmanager'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    server = Server(command, port, place / "alertmanager.log")
    try:
        until(server.ready, "Alertmanager is ready")
        yield server
    finally:
        server.end()
