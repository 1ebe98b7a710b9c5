"""Whom a profile and a token are handed to: TLS that is verified, and proxies that are asked for."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.agent.settings import Push
from tests.agent.push_receiver import Receiver, certificate, receiving
from tests.agent.pushers import impatient, send  # noqa: F401

pytestmark = pytest.mark.usefixtures("impatient")


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[tuple[Path, Receiver]]:
    cert, context = certificate(tmp_path)
    with receiving(tls=context) as receiver:
        yield cert, receiver


def test_a_certificate_that_nobody_vouches_for_is_not_talked_to(tls: tuple[Path, Receiver]) -> None:
    _, receiver = tls
    outcome = send(Push(url=receiver.url))
    assert outcome.state == "again"
    assert "certificate is not to be trusted" in outcome.detail
    assert receiver.came == []


def test_one_that_the_node_trusts_is(tls: tuple[Path, Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, receiver = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    assert send(Push(url=receiver.url)).state == "sent"
    wrong_name = send(Push(url=receiver.url.replace("127.0.0.1", "localhost")))
    assert wrong_name.state == "again"
    assert "certificate is not to be trusted" in wrong_name.detail


def test_a_proxy_of_the_environment_is_used_and_exceptions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as proxy, receiving() as receiver:
        monkeypatch.setenv("http_proxy", proxy.url)
        assert send(Push(url="http://pyroscope.example:4040")).state == "sent"
        assert proxy.came[0].path.startswith("http://pyroscope.example:4040/ingest?")
        assert proxy.came[0].headers["host"] == "pyroscope.example:4040"
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert send(Push(url=receiver.url)).state == "sent"
        assert (len(proxy.came), len(receiver.came)) == (1, 1)


def test_a_proxy_only_joins_the_two_ends_of_tls(tls: tuple[Path, Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, receiver = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    asked: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def join() -> None:
            ours, _ = server.accept()
            with ours, socket.create_connection(("127.0.0.1", receiver.port)) as theirs:
                asked.append(ours.recv(4096))
                ours.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                back = threading.Thread(target=pump, args=(theirs, ours), daemon=True)
                back.start()
                pump(ours, theirs)
                back.join(120)

        thread = threading.Thread(target=join, daemon=True)
        thread.start()
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{server.getsockname()[1]}")
        assert send(Push(url=receiver.url), body=b"secret words").state == "sent"
        thread.join(120)
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{receiver.port} ".encode())
    assert b"uthorization" not in asked[0]
    assert receiver.came[0].parts["profile"][1] == b"secret words"


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
