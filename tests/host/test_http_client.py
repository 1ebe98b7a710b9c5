"""The HTTP client against servers that are hostile, slow, or only speak TLS their way."""

import gzip
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.errors import ExhumeError
from exhume.host.http import client as module
from exhume.host.http.address import Proxy
from exhume.host.http.client import Client, RequestError, Tls, check_token, read_token
from exhume.host.http.retry import LONGEST_RETRY_AFTER_S, backoff_s, retry_after_s, temporary
from tests.host.proxies import http_proxy, socks_proxy
from tests.host.servers import Peer, raw_server, replies

OK = b"HTTP/1.1 200 OK\r\n"
HELLO = OK + b"Content-Length: 5\r\n\r\nhello"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)


def failure(url: str, **options: float | str | Tls) -> RequestError:
    with Client(url, **options) as client, pytest.raises(RequestError) as raised:  # type: ignore[arg-type]
        client.request("GET", "/")
    return raised.value


def test_a_request_says_what_it_must_and_credentials_of_the_url_are_sent() -> None:
    heads: list[bytes] = []

    def behave(peer: Peer) -> None:
        heads.append(peer.request())
        peer.send(HELLO)

    with raw_server(behave) as server, Client(f"http://me:s%40cret@{server.address}/base") as client:
        reply = client.request("POST", "/path?x=1", (("X-One", "1"), ("X-One", "2")), b"body")
    assert (reply.status, reply.reason, reply.body) == (200, "OK", b"hello")
    lines = heads[0].decode().split("\r\n")
    assert lines[0] == "POST /path?x=1 HTTP/1.1"
    assert lines[1] == f"Host: {server.address}"
    assert {"X-One: 1", "X-One: 2", "Content-Length: 4", "Authorization: Basic bWU6c0BjcmV0"} <= set(lines)


@pytest.mark.parametrize(
    ("target", "header"), [("/a b", "x"), ("/\r\nX: 1", "x"), ("/", "a\r\nX: 1"), ("/\u00e4", "x"), ("/", "\u00e4")]
)
def test_a_request_cannot_be_split_by_what_it_carries(target: str, header: str) -> None:
    with raw_server(replies(HELLO)) as server, Client(server.url) as client:
        with pytest.raises(RequestError, match=r"cannot be sent: (the path|X) is not printable ASCII") as raised:
            client.request("GET", target, (("X", header),))
        assert raised.value.kind == "settings"
        assert server.accepted == 0


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://[", "http://a b", "http://a:0", "//a", "http://\u00e4"])
def test_an_address_that_is_none_is_said(url: str) -> None:
    with pytest.raises(RequestError, match="not a valid http:// or https:// URL"):
        Client(url)


DRIPS: dict[str, tuple[bytes, bytes]] = {
    "nothing": (b"", b""),
    "status line": (b"", b"H"),
    "headers": (OK + b"X: ", b"y"),
    "interim replies": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body with a length": (OK + b"Content-Length: 1000000\r\n\r\n", b" "),
    "body without a length": (OK + b"\r\n", b" "),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "trailers": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n"),
    "gzip": (OK + b"Content-Encoding: gzip\r\nContent-Length: 1000000\r\n\r\n" + gzip.compress(b"x")[:10], b"\x00\x00"),
}


@pytest.mark.parametrize("what", DRIPS)
def test_a_server_that_dribbles_is_held_to_the_deadline(what: str) -> None:
    """Every single wait is short: only a deadline for the whole request ends it."""
    first, then = DRIPS[what]

    def behave(peer: Peer) -> None:
        peer.request()
        peer.send(first)
        peer.drip(then) if then else peer.hold()

    with raw_server(behave) as server:
        error = failure(server.url, timeout_s=0.3)
    assert (error.kind, str(error)) == ("timeout", "no answer within 300 ms")


@pytest.mark.parametrize("scheme", ["http", "socks5"])
def test_a_proxy_that_dribbles_is_held_to_the_deadline(scheme: str) -> None:
    with raw_server(lambda peer: peer.drip(b"H" if scheme == "http" else b"")) as server:
        assert failure("https://server.test", timeout_s=0.3, proxy=f"{scheme}://{server.address}").kind == "timeout"


def test_a_tls_handshake_that_never_ends_is_held_to_the_deadline() -> None:
    record = b"\x16\x03\x03\x40\x00"  # the header of a record that is never complete

    def behave(peer: Peer) -> None:
        peer.send(record)
        peer.drip(b"\x00")

    with raw_server(behave) as server:
        assert failure(f"https://{server.address}", timeout_s=0.3).kind == "timeout"


def test_a_server_that_reads_nothing_is_held_to_the_deadline() -> None:
    with (
        raw_server(lambda peer: peer.hold()) as server,
        Client(server.url, timeout_s=0.3) as client,
        pytest.raises(RequestError) as raised,
    ):
        client.request("POST", "/", body=bytes(64 << 20))
    assert raised.value.kind == "timeout"


def gzipped(data: bytes, cut: int = 0, more: bytes = b"") -> bytes:
    packed = gzip.compress(data, mtime=0)
    packed = packed[: len(packed) - cut] + more
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed


BAD: dict[str, tuple[bytes, str]] = {
    "too large": (OK + b"Content-Length: 2000\r\n\r\n" + bytes(2000), "size"),
    "claims to be huge": (OK + b"Content-Length: 99999999999999\r\n\r\n" + bytes(2000), "size"),
    "too large without a length": (OK + b"\r\n" + bytes(2000), "size"),
    "too large in chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n400\r\n" + bytes(1024) + b"\r\n0\r\n\r\n", "size"),
    "gzip bomb": (gzipped(bytes(50 << 20)), "size"),
    "gzip of a byte too many": (gzipped(bytes(1001)), "size"),
    "shorter than its length": (OK + b"Content-Length: 10\r\n\r\nhello", "broken"),
    "half a chunk": (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhe", "broken"),
    "chunk of no length": (OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello", "broken"),
    "half a gzip": (gzipped(b"hello" * 10, cut=4), "broken"),
    "more than a gzip": (gzipped(b"hello", more=b"trailing"), "broken"),
    "not gzip": (OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", "broken"),
    "too many headers": (OK + b"X: y\r\n" * 200 + b"\r\n", "broken"),
    "header too long": (OK + b"X: " + b"y" * (1 << 17) + b"\r\n\r\n", "broken"),
    "status too long": (b"HTTP/1.1 " + b"2" * (1 << 17), "broken"),
    "status is no number": (b"HTTP/1.1 abc\r\n\r\n", "broken"),
    "another version": (b"HTTP/9.9 200 OK\r\n\r\n", "broken"),
    "not HTTP": (b"\x1b[31m<html>\r\n\r\n", "broken"),
    "nothing": (b"", "broken"),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_reply_is_one_printable_sentence(what: str) -> None:
    answer, kind = BAD[what]
    with raw_server(replies(answer)) as server:
        error = failure(server.url, limit_bytes=1000)
    assert error.kind == kind
    assert str(error).isprintable()


def test_endless_headers_and_bodies_are_refused() -> None:
    for prefix, line, kind in ((OK, b"X: y\r\n", "broken"), (OK + b"\r\n", bytes(65536), "size")):

        def behave(peer: Peer, prefix: bytes = prefix, line: bytes = line) -> None:
            peer.request()
            peer.send(prefix)
            peer.flood(line)

        with raw_server(behave) as server:
            assert failure(server.url, limit_bytes=1 << 20).kind == kind


GOOD: dict[str, bytes] = {
    "length": OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000,
    "until the end": OK + b"\r\n" + b"x" * 1000,
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1000 + b"\r\n0\r\n\r\n",
    "gzip": gzipped(b"x" * 1000),
    "after an interim reply": b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000,
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * 1000,
}


@pytest.mark.parametrize("framing", GOOD)
def test_a_reply_as_large_as_allowed_is_read_however_it_is_framed(framing: str) -> None:
    with raw_server(replies(GOOD[framing])) as server, Client(server.url, limit_bytes=1000) as client:
        assert client.request("GET", "/").body == b"x" * 1000


def test_the_rest_of_a_long_reply_can_be_left_unread() -> None:
    answer = b"HTTP/1.1 400 Bad\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    with raw_server(replies(answer)) as server, Client(server.url, limit_bytes=1000, truncate=True, keep=True) as client:
        for _ in range(2):  # and the next reply is not read from the middle of this one
            reply = client.request("GET", "/")
            assert (reply.status, reply.body) == (400, b"x" * 1000)
        assert server.accepted == 2


@given(st.binary(max_size=300), st.sampled_from([b"", OK, OK + b"Content-Encoding: gzip\r\n\r\n", OK + b"Content-Length: "]))
def test_any_bytes_are_a_reply_or_one_printable_sentence(garbage: bytes, before: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs, Client("http://server.test", limit_bytes=200) as client:
        theirs.sendall(before + garbage)
        theirs.shutdown(socket.SHUT_WR)
        client._socket = client._stream = opened = module._Socket(0.0)
        opened._raw = ours
        sentence, body = "", b""
        try:
            body = client.request("GET", "/").body
        except RequestError as error:
            sentence = str(error)
        assert sentence.isprintable()
        assert len(body) <= 200


def test_a_connection_is_kept_and_opened_again_when_the_server_closed_it() -> None:
    with raw_server(replies(HELLO, HELLO)) as server, Client(server.url, keep=True) as client:
        for count in (1, 1, 2, 2, 3):
            assert client.request("GET", "/").body == b"hello"
            assert server.accepted == count


def test_without_keep_every_request_has_its_own_connection() -> None:
    with raw_server(replies(HELLO, HELLO)) as server:
        client = Client(server.url)
        for count in (1, 2):
            assert client.request("GET", "/").body == b"hello"
            assert client._socket is None
            assert server.accepted == count


def test_a_new_connection_that_breaks_is_not_tried_again() -> None:
    with raw_server(lambda peer: None) as server:
        assert failure(server.url).kind == "broken"
        assert server.accepted == 1


def test_a_refusal_before_the_whole_request_was_read_is_a_reply() -> None:
    def behave(peer: Peer) -> None:
        peer.request()
        peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        peer._connection.shutdown(socket.SHUT_WR)
        while peer._connection.recv(1 << 16):
            pass

    with raw_server(behave) as server, Client(server.url) as client:
        assert client.request("POST", "/", body=bytes(4 << 20)).status == 413


@pytest.mark.parametrize("status", [200, 401])
def test_a_refusal_counts_even_if_its_body_ends_in_a_reset(status: int) -> None:
    def behave(peer: Peer) -> None:
        peer._connection.recv(10)  # the rest of the request stays unread, so that closing resets the connection
        peer.send(b"HTTP/1.0 %d Status\r\n\r\nwhy" % status)

    with raw_server(behave) as server:
        if status == 200:
            assert failure(server.url).kind == "broken"
        else:
            assert Client(server.url).request("GET", "/").status == 401


def test_a_redirect_is_a_reply_and_not_followed() -> None:
    with raw_server(replies(HELLO)) as other:
        moved = f"HTTP/1.1 307 Moved\r\nLocation: {other.url}\r\nContent-Length: 0\r\n\r\n".encode()
        with raw_server(replies(moved)) as server, Client(server.url) as client:
            assert client.request("GET", "/").status == 307
        assert other.accepted == 0


def test_nothing_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    error = failure(f"http://{address}")
    assert (error.kind, str(error)) == ("connect", "Connection refused")
    error = failure("http://server.test", proxy=f"http://{address}")
    assert (error.kind, str(error)) == ("proxy", f"the proxy http://{address} cannot be reached: Connection refused")
    assert failure(f"http://{'a' * 70}.test").kind == "connect"


def test_a_server_that_accepts_nothing_is_given_up_by_either_timeout() -> None:
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for waiting in (first, second):  # more than its backlog holds: the next SYN is dropped
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        error = failure(url, connect_s=0.2)
        assert (error.kind, str(error)) == ("connect", "no connection within 200 ms")
        assert failure(url, timeout_s=0.2).kind == "timeout"


def test_abort_ends_a_request_from_another_thread() -> None:
    with raw_server(lambda peer: peer.hold()) as server:
        client = Client(server.url)
        found: list[str] = []

        def ask() -> None:
            try:
                client.request("GET", "/")
            except RequestError as error:
                found.append(error.kind)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert server.arrived.wait(120)
        client.abort()
        thread.join(120)
        with pytest.raises(RequestError, match="aborted"):
            client.request("GET", "/")
    assert found == ["aborted"]


class Certificate(NamedTuple):
    certificate: bytes
    key: bytes
    file: Path
    server: ssl.SSLContext


def certificate(folder: Path, name: str, alternative: str) -> Certificate:
    """One that signs itself."""
    files = folder / f"{name}.crt", folder / f"{name}.key"
    command = f"openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN={name}".split()
    command += ["-addext", f"subjectAltName={alternative}", "-keyout", str(files[1]), "-out", str(files[0])]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return Certificate(files[0].read_bytes(), files[1].read_bytes(), files[0], context)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("own"), "own", "IP:127.0.0.1,DNS:server.test")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("other"), "other", "DNS:other.test")


def test_a_server_is_verified_by_its_authority_and_its_name(own: Certificate, other: Certificate) -> None:
    def status(tls: Tls) -> int:
        with Client(server.url, tls=tls) as client:
            return client.request("GET", "/").status

    with raw_server(replies(HELLO), own.server) as server:
        assert status(Tls(own.certificate)) == 200
        assert status(Tls(own.certificate, server_name="server.test")) == 200
        assert status(Tls(insecure=True)) == 200
        for tls in (Tls(), Tls(other.certificate), Tls(own.certificate, server_name="other.test")):
            error = failure(server.url, tls=tls)
            assert error.kind == "certificate"
            assert str(error).startswith("its certificate is not trusted: ")

    def speak_plainly(peer: Peer) -> None:
        peer.send(HELLO)
        peer.hold()

    with raw_server(speak_plainly) as plain:
        error = failure(f"https://{plain.address}")
    assert (error.kind, str(error)[:12]) == ("broken", "TLS failed: ")


def test_certificates_of_the_environment_count(own: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
    with raw_server(replies(HELLO), own.server) as server, Client(server.url) as client:
        assert client.request("GET", "/").body == b"hello"


def test_a_client_certificate_is_shown(own: Certificate, other: Certificate) -> None:
    demanding = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    demanding.load_cert_chain(own.file, own.file.with_suffix(".key"))
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(other.file)
    with raw_server(replies(HELLO), demanding) as server:
        with Client(server.url, tls=Tls(own.certificate, other.certificate, other.key)) as client:
            assert client.request("GET", "/").status == 200
        assert failure(server.url, tls=Tls(own.certificate)).kind == "broken"


def test_certificates_that_cannot_be_used_are_said(own: Certificate, other: Certificate) -> None:
    for tls, said in (
        (Tls(b"no certificate"), "the certificate authority is not a PEM certificate"),
        (Tls(own.certificate, own.certificate, other.key), "the client certificate and its key cannot be used together"),
    ):
        with raw_server(lambda peer: peer.hold()) as server:
            error = failure(f"https://{server.address}", tls=tls)
        assert (error.kind, str(error)) == ("settings", said)


def test_a_large_body_goes_through_tls_both_ways(own: Certificate) -> None:
    body = bytes(range(256)) * (12 << 10)

    def behave(peer: Peer) -> None:
        held = peer.request()
        while len(held) - held.index(b"\r\n\r\n") - 4 < len(body):
            held += peer._connection.recv(1 << 16)
        peer.send(OK + b"Content-Length: %d\r\n\r\n" % len(body) + held[held.index(b"\r\n\r\n") + 4 :])

    with raw_server(behave, own.server) as server, Client(server.url, tls=Tls(own.certificate)) as client:
        assert client.request("POST", "/", body=body).body == body


def test_a_body_cut_short_is_found_inside_tls(own: Certificate) -> None:
    with raw_server(replies(OK + b"Content-Length: 10\r\n\r\nhello"), own.server) as server:
        assert failure(server.url, tls=Tls(own.certificate)).kind == "broken"


def test_a_proxy_that_is_reached_by_tls(own: Certificate, monkeypatch: pytest.MonkeyPatch) -> None:
    """TLS to the server inside TLS to the proxy; the proxy's certificate is for its own name."""
    body = bytes(range(256)) * (1 << 10)
    answer = OK + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with raw_server(replies(answer), own.server) as server, http_proxy(account=b"bWU6eA==", tls=own.server) as proxy:
        url = f"https://server.test:{server.port}"
        named = f"https://me:x@{proxy.address}"
        assert "its certificate is not trusted" in str(failure(url, proxy=named, tls=Tls(own.certificate)))
        monkeypatch.setenv("SSL_CERT_FILE", str(own.file))
        with Client(url, proxy=named, tls=Tls(own.certificate)) as client:
            assert client.request("GET", "/").body == body
        with Client("http://page.test", proxy=named) as client:
            assert client.request("GET", "/x").body == b'{"by": "us"}\n'
    assert proxy.asked == [f"CONNECT server.test:{server.port}", "GET http://page.test/x"]


def test_a_socks_proxy_resolves_the_name(own: Certificate) -> None:
    with raw_server(replies(HELLO), own.server) as server, socks_proxy(account=b"me:x") as proxy:
        url = f"https://server.test:{server.port}"
        with Client(url, proxy=f"socks5://me:x@{proxy.address}", tls=Tls(own.certificate)) as client:
            assert client.request("GET", "/").body == b"hello"
    assert proxy.asked == [f"server.test:{server.port}"]


@pytest.mark.parametrize(
    ("proxy", "refuses", "account", "said"),
    [
        ("http://{}", b"403 Forbidden", b"", "answers 403 Forbidden"),
        (
            "http://{}",
            b"",
            b"bWU6eA==",
            r"wants a name and a password \(407\): write proxy-url of the kubeconfig as http://NAME",
        ),
        ("http://me:y@{}", b"", b"bWU6eA==", r"refuses the name and the password in proxy-url of the kubeconfig \(407\)"),
        ("socks5://{}", b"\x02", b"", "answers: not allowed by its rules"),
        ("socks5://{}", b"\x63", b"", "answers: error 99"),
        ("socks5://{}", b"", b"me:x", "accepts none of the ways to log in"),
        ("socks5://me:y@{}", b"", b"me:x", "refuses the name and the password in proxy-url"),
    ],
)
def test_a_proxy_that_refuses_is_named_without_its_password(proxy: str, refuses: bytes, account: bytes, said: str) -> None:
    start: Callable[..., object] = http_proxy if proxy.startswith("http") else socks_proxy
    with start(refuses, account) as running:  # type: ignore[attr-defined]
        error = failure("https://server.test", proxy=proxy.format(running.address))
        with pytest.raises(RequestError, match=f"the proxy (http|socks5)://{running.address} {said}"):
            raise error
        assert error.kind == "proxy"
        assert "me" not in str(error).partition("//")[2].partition(" ")[0]


@pytest.mark.parametrize("scheme", ["http", "https", "socks5"])
def test_a_proxy_that_hangs_up_or_talks_nonsense_is_named(scheme: str) -> None:
    for behave in (lambda peer: None, lambda peer: peer.send(b"\x05\xff nonsense\r\n\r\n")):
        with raw_server(behave) as server:
            error = failure("https://server.test", proxy=f"{scheme}://{server.address}")
        assert error.kind == "proxy"
        assert str(error).startswith(f"the proxy {scheme}://{server.address} ")


@given(st.binary(max_size=40), st.sampled_from(["http", "socks5"]))
def test_a_proxy_that_answers_anything(answer: bytes, scheme: str) -> None:
    """A connection or a known failure."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        opened = module._Socket(time.monotonic() + 60)
        opened._raw = ours
        proxy = Proxy("http" if scheme == "http" else "socks5", "p", 1, "me", "x")
        with suppress(OSError, RequestError, HTTPException):
            if scheme == "http":
                module._tunnel(opened, proxy, "server.test:443")
            else:
                module._socks(opened, proxy, "server.test", 443)
            assert answer.startswith(b"\x05" if scheme == "socks5" else b"HTTP/")


@pytest.mark.parametrize("token", ["", "two\nlines", "t\u00f6ken", "\x00", "a\x7f"])
def test_a_token_is_one_line_of_printable_ascii(token: str, tmp_path: Path) -> None:
    with pytest.raises(ExhumeError, match="holds no valid token"):
        check_token(token, "TOKEN")
    (tmp_path / "token").write_text(token)
    with pytest.raises(ExhumeError, match="holds no valid token") as raised:
        read_token(str(tmp_path / "token"))
    assert "lines" not in str(raised.value)


def test_a_token_file_is_read_and_a_private_one_must_be_private(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(ExhumeError, match="cannot be read: No such file"):
        read_token(str(file))
    file.write_text(" abc\n")
    file.chmod(0o640)
    assert read_token(str(file)) == "abc"
    with pytest.raises(ExhumeError, match=f"can be read by others: chmod 600 {file}"):
        read_token(str(file), private=True)
    file.chmod(0o600)
    assert read_token(str(file), private=True) == "abc"


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 529])
def test_a_temporary_status(status: int) -> None:
    assert temporary(status)
    assert not temporary(status - 200)


def test_retry_after_is_seconds_or_a_date() -> None:
    assert retry_after_s("7", 0) == 7
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 - 90.0) == 90.0
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT", 1445412480 + 90.0) == 0.0
    assert retry_after_s("99999999999999", 0.0) == LONGEST_RETRY_AFTER_S
    assert [retry_after_s(value, 0.0) for value in ("soon", "", "-1", "1.5", None)] == [None] * 5


@given(st.text(max_size=40) | st.from_regex(r"\A[A-Z][a-z]{2}, \d{1,3} [A-Z][a-z]{2} \d{1,6} \d\d:\d\d:\d\d [A-Z+0-9-]{0,6}\Z"))
def test_any_retry_after_is_a_bounded_wait_or_none(value: str) -> None:
    found = retry_after_s(value, 1e9)
    assert found is None or 0.0 <= found <= LONGEST_RETRY_AFTER_S


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_waits_grow_are_bounded_and_spread(attempt: int, chance: float) -> None:
    wait = backoff_s(attempt, chance=chance)
    assert 0 < wait <= 60.0
    assert wait <= backoff_s(attempt + 1, chance=chance)
    assert backoff_s(attempt, chance=1.0) == pytest.approx(2 * backoff_s(attempt, chance=0.0))
    assert 30.0 <= backoff_s(attempt % 5, 30.0, chance=chance) <= 33.0
    for asked in (0.0, 30.0, 3600.0):
        found = backoff_s(attempt, asked, longest_after_s=3600.0, chance=chance)
        assert max(asked, backoff_s(attempt, chance=1.0)) <= found <= 1.1 * max(asked, 60.0)
