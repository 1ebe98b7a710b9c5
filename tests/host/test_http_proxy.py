"""Every client of a server through a real proxy that asks for a name and a password, and around it by NO_PROXY."""

import http.server
import json
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from exhume.agent.settings import Push
from exhume.cluster.client import Client as Kubernetes
from exhume.cluster.kubeconfig import Access
from exhume.errors import ExhumeError
from exhume.fleet.prometheus_query import Client as Prometheus
from exhume.fleet.ray_jobs import Dashboard
from exhume.host.http.client import Client, RequestError, Tls
from tests.agent.prometheus import free_port, needs, until
from tests.agent.pushers import send
from tests.fleet.served import History, served
from tests.host.test_http_client import Certificate, certificate

NAME = "127.1"
"""The resolver takes it for 127.0.0.1; for the client it is a name, so that it is not exempt as loopback is."""


class Proxy(NamedTuple):
    address: str
    log: Path

    def asked(self, port: int) -> list[str]:
        """The requests for a server, as the proxy logged them: their methods and targets."""
        lines = [line.partition("): ")[2].split()[:2] for line in self.log.read_text().splitlines() if "Request (" in line]
        return [" ".join(words) for words in lines if f"{NAME}:{port}" in words[1]]


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    if shutil.which("tinyproxy") is None:
        pytest.skip("tinyproxy is not installed")
    place, port = tmp_path_factory.mktemp("tinyproxy"), free_port()
    settings = f'Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 50\nBasicAuth me s3cret\nLogFile "{place}/log"\n'
    (place / "settings").write_text(f"{settings}LogLevel Connect\n")
    os.chmod(place, 0o755)

    def up() -> bool:
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", port)) == 0

    with subprocess.Popen(["tinyproxy", "-d", "-c", str(place / "settings")], stdout=subprocess.DEVNULL) as running:
        try:
            until(up, "tinyproxy listens")
            yield Proxy(f"127.0.0.1:{port}", place / "log")
        finally:
            running.terminate()


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("own"), "own", f"DNS:{NAME}")


@pytest.fixture(autouse=True)
def environment(own: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
    monkeypatch.setattr("exhume.fleet.ray_jobs.time.sleep", lambda _: None)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


class Everything(http.server.BaseHTTPRequestHandler):
    """Answers as an API server, a Prometheus, a Ray dashboard and a receiver of profiles at once."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._reply({"major": "1"} if self.path == "/version" else [])

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        now = time.time()
        self._reply({"status": "success", "data": {"resultType": "scalar", "result": [now, str(now)]}})

    def _reply(self, answer: object) -> None:
        assert "Proxy-Authorization" not in self.headers
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(tls: ssl.SSLContext | None) -> Iterator[tuple[str, int]]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Everything) as server:
        server.daemon_threads = True
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http{'s' * (tls is not None)}://{NAME}:{server.server_port}", server.server_port
        finally:
            server.shutdown()
            thread.join(120)


def kubernetes(url: str) -> str:
    with Kubernetes(Access(url, token="x")) as client:
        return "" if client.get("/version") == {"major": "1"} else "another answer"


def prometheus(url: str) -> str:
    return "" if abs(Prometheus(url).now_s() - time.time()) < 600 else "another time"


def ray(url: str) -> str:
    return "" if Dashboard(url).ask("/api/jobs/") == [] else "another answer"


def push(url: str) -> str:
    outcome = send(Push(url=url))
    return "" if outcome.state == "sent" else outcome.detail


CONSUMERS: dict[str, Callable[[str], str]] = {"kubernetes": kubernetes, "prometheus": prometheus, "ray": ray, "push": push}


def said(consumer: str, url: str) -> str:
    """Empty when it worked."""
    try:
        return CONSUMERS[consumer](url)
    except ExhumeError as error:
        return str(error)


@pytest.fixture(params=["http", "https"])
def server(request: pytest.FixtureRequest, own: Certificate) -> Iterator[tuple[str, int]]:
    with serving(own.server if request.param == "https" else None) as running:
        yield running


def variable(url: str) -> str:
    return f"{url.partition(':')[0].upper()}_PROXY"


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_the_proxy_of_the_environment_is_used_with_its_credentials(
    consumer: str, server: tuple[str, int], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = server
    monkeypatch.setenv(variable(url), f"http://me:s3cret@{proxy.address}")
    assert said(consumer, url) == ""
    asked = proxy.asked(port)
    assert asked
    for each in asked:
        assert each.startswith(f"CONNECT {NAME}:{port}" if url.startswith("https") else ("GET http://", "POST http://"))


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_wrong_and_missing_credentials_are_said_without_showing_them(
    consumer: str, server: tuple[str, int], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, _ = server
    name = variable(url)
    monkeypatch.setenv(name, f"http://me:wrong@{proxy.address}")
    assert f"the proxy http://{proxy.address} refuses the name and the password in {name} (401)" in said(consumer, url)
    assert "wrong" not in said(consumer, url)
    monkeypatch.setenv(name, f"http://{proxy.address}")
    wanted = (
        f"the proxy http://{proxy.address} wants a name and a password (407): write {name} as http://NAME:PASSWORD@HOST:PORT"
    )
    assert wanted in said(consumer, url)


@pytest.mark.parametrize("consumer", CONSUMERS)
@pytest.mark.parametrize("no_proxy", [NAME, "*", f"other.test,{NAME}:{{port}}"])
def test_no_proxy_is_kept_to(
    consumer: str, no_proxy: str, server: tuple[str, int], proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, port = server
    monkeypatch.setenv(variable(url), f"http://me:wrong@{proxy.address}")
    monkeypatch.setenv("NO_PROXY", no_proxy.format(port=port))
    assert said(consumer, url) == ""
    assert proxy.asked(port) == []


@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_proxy_that_is_away_is_named(consumer: str, server: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    url, _ = server
    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv(variable(url), f"http://{address}")
    assert f"the proxy http://{address} cannot be reached: Connection refused" in said(consumer, url)


@pytest.mark.ci
def test_a_real_prometheus_through_the_proxy(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(0.1)
    history.add("exhume_memory_cgroups", lambda now: 7.0, node="a", state="dying")
    with served(tmp_path, history) as real:
        port = int(real.url.rpartition(":")[2])
        monkeypatch.setenv("HTTP_PROXY", f"http://me:s3cret@{proxy.address}")
        client = Prometheus(f"http://{NAME}:{port}")
        found = client.over("exhume_memory_cgroups", client.now_s() - 7200, client.now_s(), 240)
    assert [(each.labels["node"], each.values[0]) for each in found] == [("a", 7.0)]
    assert set(proxy.asked(port)) == {f"POST http://{NAME}:{port}/api/v1/{what}" for what in ("query", "query_range")}


@pytest.mark.ci
def test_a_server_of_another_tls_that_wants_a_certificate(
    own: Certificate, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prometheus is a program in Go, as an API server is: TLS and HTTP of another make, inside a tunnel."""
    needs("prometheus")
    files = {"cert_file": own.file, "key_file": own.file.with_suffix(".key"), "client_ca_file": own.file}
    tls = {**{name: str(file) for name, file in files.items()}, "client_auth_type": "RequireAndVerifyClientCert"}
    (tmp_path / "web.yml").write_text(yaml.safe_dump({"tls_server_config": tls}))
    (tmp_path / "prometheus.yml").write_text("{}\n")
    port = free_port()
    command = ["prometheus", f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}"]
    command += [f"--web.config.file={tmp_path / 'web.yml'}", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"]
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:s3cret@{proxy.address}")
    url, known = f"https://{NAME}:{port}", Tls(own.certificate, own.certificate, own.key)

    def ready() -> bool:
        with Client(url, tls=known) as client, suppress(RequestError):
            return client.request("GET", "/-/ready").status == 200
        return False

    with subprocess.Popen(command) as running:
        try:
            until(ready, "Prometheus is ready")
            with Client(url, tls=known, keep=True) as client:
                metrics = [client.request("GET", "/metrics").body for _ in range(2)]
            with (
                Client(url, tls=Tls(own.certificate)) as stranger,
                pytest.raises(RequestError, match=r"TLS failed: .*certificate"),
            ):
                stranger.request("GET", "/-/ready")
        finally:
            running.terminate()
    assert all(b"prometheus_build_info" in each for each in metrics)
    assert set(proxy.asked(port)) == {f"CONNECT {NAME}:{port}"}
