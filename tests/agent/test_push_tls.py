"""Receivers over TLS: a certificate is always verified. Proxies: tests/host/test_http_proxy.py."""

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
    assert "certificate is not trusted" in outcome.detail
    assert receiver.came == []


def test_one_that_the_node_trusts_is(tls: tuple[Path, Receiver], monkeypatch: pytest.MonkeyPatch) -> None:
    cert, receiver = tls
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    assert send(Push(url=receiver.url)).state == "sent"
    wrong_name = send(Push(url=receiver.url.replace("127.0.0.1", "localhost")))
    assert wrong_name.state == "again"
    assert "certificate is not trusted" in wrong_name.detail
