"""The door: what slow, idle, huge and foolish clients cannot do to it, and that scrapes go on meanwhile."""

import base64
import errno
import gc
import os
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.agent import http
from exhume.agent.http import LARGEST, MOST, Door
from exhume.errors import ExhumeError, UsageError
from exhume.recorder import own
from tests.examples import examples
from tests.waiting import wait_for

BODY = b"exhume_node_health 1.0\n" * 4_000
PLAIN = "text/plain"
Address = tuple[str, int]


def pages() -> dict[str, Callable[[str], http.Page]]:
    return {"/metrics": lambda _: (200, BODY, PLAIN), "/-/healthy": lambda _: (200, b"healthy\n", PLAIN)}


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(http, "RATE", 1e4)  # tests come more often than scrapers
        opened = Door(("127.0.0.1", 0), pages())
        yield opened
        opened.close()


def talk(address: Address, request: bytes, tls: ssl.SSLContext | None = None) -> bytes:
    """All that is answered."""
    answer = b""
    with socket.create_connection(address, 20) as plain, ExitStack() as stack:
        connection = stack.enter_context(tls.wrap_socket(plain, server_hostname="localhost")) if tls else plain
        with suppress(ConnectionError, ssl.SSLError):
            connection.sendall(request)
            while part := connection.recv(1 << 16):
                answer += part
    return answer


def scrape(address: Address, tls: ssl.SSLContext | None = None, headers: bytes = b"") -> tuple[int, bytes]:
    answer = talk(address, b"GET /metrics HTTP/1.1\r\nHost: node\r\n" + headers + b"\r\n", tls)
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def threads() -> int:
    return threading.active_count()


def until(what: Callable[[], bool]) -> bool:
    for _ in range(2400):
        if what():
            return True
        time.sleep(0.05)
    return False


def test_it_serves_pages_by_their_path(door: Door) -> None:
    assert scrape(door.address) == (200, BODY)
    assert talk(door.address, b"GET /-/healthy?x=1 HTTP/1.0\r\n\r\n").endswith(b"healthy\n")
    assert talk(door.address, b"GET /etc/passwd HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 404")
    assert talk(door.address, b"POST /metrics HTTP/1.0\r\nContent-Length: 0\r\n\r\n").startswith(b"HTTP/1.0 501")


def test_head_has_the_length_and_no_body(door: Door) -> None:
    head, _, body = talk(door.address, b"HEAD /metrics HTTP/1.1\r\n\r\n").partition(b"\r\n\r\n")
    assert f"Content-Length: {len(BODY)}".encode() in head
    assert body == b""


def test_two_hundred_idle_clients_do_not_keep_a_scraper_out(door: Door) -> None:
    before = threads()
    with ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(door.address, 20))
        for _ in range(5):
            assert scrape(door.address) == (200, BODY)
        assert until(lambda: threads() <= before + MOST)
    assert until(lambda: threads() <= before)


def test_clients_that_send_a_byte_now_and_then_are_let_go(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_S", 1.0)
    slow = [socket.create_connection(door.address, 20) for _ in range(MOST)]
    try:
        gone: set[int] = set()

        def all_gone() -> bool:
            for i, connection in enumerate(slow):
                if i not in gone:
                    try:
                        connection.sendall(b"G")
                    except OSError:
                        gone.add(i)
            assert scrape(door.address) == (200, BODY)
            return len(gone) == len(slow)

        assert until(all_gone)
    finally:
        for connection in slow:
            connection.close()


def test_a_client_that_does_not_read_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LONGEST_S", 1.0)
    large = b"x" * (64 << 20)
    door = Door(("127.0.0.1", 0), {"/metrics": lambda _: (200, large, PLAIN)})
    before = threads()
    try:
        with socket.create_connection(door.address, 20) as connection:
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert until(lambda: threads() > before)
            assert until(lambda: threads() == before)
    finally:
        door.close()


def test_headers_without_end_are_refused_and_cost_no_memory(door: Door) -> None:
    assert talk(door.address, b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (2 * LARGEST) + b"\r\n\r\n").startswith(b"HTTP/1.0 431")
    many = b"".join(b"X-%d: %s\r\n" % (i, b"x" * 1000) for i in range(50))
    assert talk(door.address, b"GET /metrics HTTP/1.1\r\n" + many + b"\r\n").startswith(b"HTTP/1.0 431")
    gc.collect()
    before = own.memory_bytes()
    flood = b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X-%d: %s\r\n" % (i, b"x" * 60_000) for i in range(99))
    with ExitStack() as stack:
        for _ in range(MOST):
            connection = stack.enter_context(socket.create_connection(door.address, 20))
            connection.settimeout(0.5)
            with suppress(OSError):
                connection.sendall(flood)
        assert own.memory_bytes() - before < 20 << 20
        assert scrape(door.address) == (200, BODY)


def test_a_first_line_without_end_gets_no_answer(door: Door) -> None:
    assert talk(door.address, b"GET /" + b"x" * (4 * LARGEST)) == b""
    assert scrape(door.address) == (200, BODY)


def test_a_huge_body_is_not_read(door: Door) -> None:
    with socket.create_connection(door.address, 20) as connection:
        connection.sendall(b"POST /metrics HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n")
        sent = 0
        with suppress(OSError):
            for _ in range(4096):
                sent += connection.send(b"x" * 65536)
    assert sent < 64 << 20
    assert scrape(door.address) == (200, BODY)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=300))
def test_garbage_is_answered_or_hung_up_on(door: Door, garbage: bytes) -> None:
    with socket.create_connection(door.address, 20) as connection, suppress(ConnectionError):
        connection.sendall(garbage + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass
    assert scrape(door.address)[0] == 200


def test_http_from_before_there_were_headers_gets_the_body_alone(door: Door) -> None:
    assert talk(door.address, b"GET /metrics\r\n\r\n") == BODY


def test_a_page_that_fails_hurts_nobody_else() -> None:
    def fails(_: str) -> http.Page:
        raise RuntimeError("no")

    door = Door(("127.0.0.1", 0), {**pages(), "/fails": fails})
    try:
        assert talk(door.address, b"GET /fails HTTP/1.0\r\n\r\n") == b""
        assert scrape(door.address) == (200, BODY)
    finally:
        door.close()


def test_whoever_asks_all_the_time_is_let_in_so_often_and_everybody_gets_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "RATE", 20.0)
    monkeypatch.setattr(http, "RUSH", 10.0)
    door = Door(("127.0.0.1", 0), pages())
    try:
        for _ in range(10):
            assert scrape(door.address) == (200, BODY)
        begin = time.monotonic()
        for _ in range(20):
            assert scrape(door.address) == (200, BODY)
        assert time.monotonic() - begin > 0.4  # a second, if nothing came back meanwhile
    finally:
        door.close()


def test_without_descriptors_it_waits_for_one_and_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(("127.0.0.1", 0), pages())
    asked: list[None] = []

    def none_left() -> tuple[socket.socket, Address]:
        asked.append(None)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    try:
        with monkeypatch.context() as full:
            full.setattr(door._server, "get_request", none_left)
            begin = time.monotonic()
            with socket.create_connection(door.address, 20):
                wait_for(lambda: len(asked) > 1)
        assert len(asked) < 20 * (time.monotonic() - begin) + 2
        assert scrape(door.address) == (200, BODY)
    finally:
        door.close()


def test_a_port_that_is_taken_is_a_sentence(door: Door) -> None:
    host, port = door.address
    with pytest.raises(
        ExhumeError, match=f"nothing can listen at 127.0.0.1:{port}: Address already in use; choose agent.listen"
    ):
        Door((host, port), pages())


def test_it_listens_on_ipv6(door: Door) -> None:
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    six = Door(("::1", 0), pages())
    try:
        assert scrape(six.address) == (200, BODY)
    finally:
        six.close()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with (Debian: openssl)")
    place = tmp_path_factory.mktemp("tls")
    cert, key = place / "cert.pem", place / "key.pem"
    make_certificate(cert, key)
    return str(cert), str(key)


def make_certificate(cert: Path, key: Path) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    made += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)]
    subprocess.run(made, check=True, capture_output=True)


@pytest.fixture
def locked(certificate: tuple[str, str]) -> Iterator[tuple[Door, ssl.SSLContext]]:
    opened = Door(("127.0.0.1", 0), pages(), http.context(*certificate), b"scraper:correct horse")
    yield opened, ssl.create_default_context(cafile=certificate[0])
    opened.close()


def credentials(text: bytes) -> bytes:
    return b"Authorization: Basic " + base64.b64encode(text) + b"\r\n"


def test_tls_with_a_password(locked: tuple[Door, ssl.SSLContext]) -> None:
    door, tls = locked
    assert scrape(door.address, tls, credentials(b"scraper:correct horse")) == (200, BODY)
    for wrong in (
        b"",
        credentials(b"scraper:wrong"),
        credentials(b""),
        b"Authorization: Bearer x\r\n",
        b"Authorization: Basic %\r\n",
    ):
        status, body = scrape(door.address, tls, wrong)
        assert (status, b"password" in body) == (401, True)
    assert talk(door.address, b"GET /-/healthy HTTP/1.0\r\n\r\n", tls).endswith(b"healthy\n")
    assert talk(door.address, b"GET /metrics HTTP/1.0\r\n\r\n") == b""  # without TLS


def test_handshakes_that_never_end_or_are_none_keep_nobody_out(
    locked: tuple[Door, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "LONGEST_S", 1.0)
    door, tls = locked
    before = threads()
    with ExitStack() as stack:
        for i in range(3 * MOST):
            connection = stack.enter_context(socket.create_connection(door.address, 20))
            with suppress(OSError):
                connection.sendall(b"\x16\x03\x01\x02\x00" if i % 2 else b"GET / HTTP/1.0\r\n\r\n")
        assert scrape(door.address, tls, credentials(b"scraper:correct horse"))[0] == 200
        assert until(lambda: threads() <= before)
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        assert talk(door.address, b"nonsense\r\n\r\n") == b""
    assert until(lambda: threads() <= before)
    assert len(os.listdir("/proc/self/fd")) <= descriptors


def test_a_certificate_that_cannot_be_used_is_a_sentence(tmp_path: Path, certificate: tuple[str, str]) -> None:
    assert http.context("", "") is None
    (tmp_path / "key.pem").write_text("no key")
    with pytest.raises(UsageError, match="cannot be used"):
        http.context(certificate[0], str(tmp_path / "key.pem"))


def test_the_password_file_is_for_us_alone_and_has_one_line(tmp_path: Path) -> None:
    assert http.secret("") == b""
    file = tmp_path / "auth"
    with pytest.raises(UsageError, match="cannot be read"):
        http.secret(str(file))
    file.write_text("user:word\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        http.secret(str(file))
    file.chmod(0o600)
    assert http.secret(str(file)) == b"user:word"
    file.write_text("user\n")
    with pytest.raises(UsageError, match="USER:PASSWORD"):
        http.secret(str(file))
