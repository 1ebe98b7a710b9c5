"""One HTTP/1.1 client with a total deadline for each request and a size limit for each reply.

Messages are parsed by http.client. Sockets, TLS and proxies are handled here, because neither http.client nor urllib3 can hold
a peer that sends a byte now and then to a deadline: docs/decisions/http.md. Every wait, through TLS and through a proxy, ends
up in `_Socket`, which knows the deadline; only the resolver has its own timeouts (resolv.conf). Redirects are never followed:
a token goes to the host it was meant for.
"""

import http.client
import io
import os
import socket
import ssl
import stat
import time
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Literal, TypeVar, cast
from urllib.parse import unquote

from exhume import __version__
from exhume.errors import ExhumeError
from exhume.host.http.address import Proxy, basic, join_host, port_of, proxy_for, split_url
from exhume.host.http.retry import retry_after_s, temporary
from exhume.host.quantities import SECOND, duration, size
from exhume.record import record
from exhume.text import decode, printable

CONNECT_S = 10.0
"""A server that is up accepts a connection soon, however slow its replies are."""
TIMEOUT_S = 60.0
LIMIT_BYTES = 64 << 20
LONGEST_TOKEN = 64 << 10
_PIECE = 1 << 20
# RFC 1928, section 6.
_SOCKS_REPLIES = (
    "",
    "general failure",
    "not allowed by its rules",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "time to live expired",
)

Kind = Literal["settings", "connect", "proxy", "certificate", "timeout", "broken", "size", "aborted"]
"""Why there is no reply. settings: a certificate, a key or a header cannot be used; connect: nothing accepts connections at the
address; proxy: it is away or refuses; broken: the connection ended, or the reply is not HTTP; aborted: by this program."""
T = TypeVar("T")


class RequestError(ExhumeError):
    """There is no reply. The sentence does not name the server; the caller does."""

    def __init__(self, kind: Kind, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: Kind = kind


@record(frozen=True, slots=True)
class Tls:
    authority: bytes = b""
    """Certificates (PEM) to verify the server with; empty: those of the system (SSL_CERT_FILE names others)."""
    certificate: bytes = b""
    key: bytes = b""
    server_name: str = ""
    """The name in the server's certificate, if it is not the host of the URL."""
    insecure: bool = False


@record(frozen=True, slots=True)
class Reply:
    status: int
    reason: str
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def temporary(self) -> bool:
        return temporary(self.status)

    @property
    def retry_after_s(self) -> float | None:
        return retry_after_s(self.headers.get("Retry-After"), time.time())


def read_token(path: str, private: bool = False) -> str:
    """Read for each request: tokens are rotated. With `private` a file that other users can read is refused."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(fd, "rb") as file:
            mode = stat.S_IMODE(os.fstat(fd).st_mode)
            found = file.read(LONGEST_TOKEN).strip()
    except (OSError, ValueError) as error:
        raise ExhumeError(f"the token in {printable(path)} cannot be read: {_reason(error)}") from None
    if private and mode & 0o077:
        raise ExhumeError(f"the token in {printable(path)} can be read by others: chmod 600 {printable(path)}")
    return check_token(decode(found), printable(path))


def check_token(token: str, source: str) -> str:
    if not token or not (token.isascii() and token.isprintable()):
        raise ExhumeError(f"{source} holds no valid token: a token is one line of printable ASCII")
    return token


class Client:
    """Requests to one server. For one thread; only `abort` may come from another."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        connect_s: float = CONNECT_S,
        limit_bytes: int = LIMIT_BYTES,
        truncate: bool = False,
        keep: bool = False,
        tls: Tls | None = None,
        proxy: str = "",
    ) -> None:
        """`timeout_s` is for a whole request, from the connection to the last byte of the reply. A reply above `limit_bytes`,
        counted after decompression, is an error, or is cut there with `truncate`. With `keep` the connection stays open between
        requests, until `close`. `proxy` overrules the environment. A user and a password in the URL are sent as basic
        authentication."""
        try:
            self._url = split_url(url)
        except ValueError:
            raise RequestError("settings", "the address is not a valid http:// or https:// URL") from None
        self._timeout_s, self._connect_s = timeout_s, connect_s
        self._limit_bytes, self._truncate, self._keep = limit_bytes, truncate, keep
        self._tls = tls or Tls()
        self._context: ssl.SSLContext | None = None
        self._host, self._port = self._url.hostname or "", port_of(self._url)
        self._proxy = proxy_for(self._url, proxy, os.environ)
        plain = self._url.scheme == "http" and self._proxy is not None and self._proxy.kind != "socks5"
        self._page_proxy = self._proxy if plain else None
        """A proxy that is asked for pages, and not for a tunnel."""
        self._socket: _Socket | None = None
        self._stream: _Stream | None = None
        self._aborted = False

    @property
    def first_host(self) -> str:
        """The host that reads a request to an http:// URL: the proxy, or the server."""
        return self._host if self._proxy is None else self._proxy.host

    def request(self, method: str, target: str, headers: Iterable[tuple[str, str]] = (), body: bytes | None = None) -> Reply:
        """A kept connection that the server has closed meanwhile is opened again, once, so that a request may come twice."""
        message = self._message(method, target, headers, body)
        deadline = time.monotonic() + self._timeout_s
        kept = self._stream is not None
        while True:
            try:
                return self._exchange(method, message, deadline)
            except (OSError, ValueError, zlib.error, http.client.HTTPException, RequestError) as error:
                self.close()
                if not (kept and isinstance(error, ConnectionError)):
                    raise self._failure(error) from None
                kept = False

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = self._stream = None

    def abort(self) -> None:
        """End a request in progress, and refuse others."""
        self._aborted = True
        if (open_socket := self._socket) is not None:
            open_socket.abort()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _message(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
        host = self._url.netloc.rpartition("@")[2]
        fields = [("Host", host), ("User-Agent", f"exhume/{__version__}"), ("Accept-Encoding", "identity")]
        if self._page_proxy is not None:  # it needs the whole URL (RFC 9112, section 3.2.2)
            fields += self._page_proxy.headers
            target = f"http://{host}{target}"
        if not self._keep:
            fields.append(("Connection", "close"))
        fields += headers
        if self._url.username is not None and not any(name == "Authorization" for name, _ in fields):
            fields.append(("Authorization", basic(unquote(self._url.username), unquote(self._url.password or ""))))
        if body is not None:
            fields.append(("Content-Length", str(len(body))))
        for name, value in (("the path", target.replace(" ", "\n")), *fields):
            if not (value.isascii() and value.isprintable()):
                raise RequestError("settings", f"the request cannot be sent: {name} is not printable ASCII")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
        return "\r\n".join(lines).encode("ascii") + (body or b"")

    def _exchange(self, method: str, message: bytes, deadline: float) -> Reply:
        stream = self._stream = self._stream or self._connect(deadline)
        assert self._socket is not None
        self._socket.deadline = deadline
        # A server may refuse before it has read everything (413) and hang up: its reply is there all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            stream.sendall(message)
        response = http.client.HTTPResponse(cast(socket.socket, stream), method=method)
        try:
            response.begin()
            body, whole = self._body(response)
        finally:
            response.close()
        if response.will_close or not whole or not self._keep:
            self.close()
        # tinyproxy answers wrong credentials by 401 and not by 407 (reqs.c).
        tinyproxy = response.status == 401 and (response.headers.get("Server") or "").startswith("tinyproxy")
        if self._page_proxy is not None and (response.status == 407 or tinyproxy):
            raise _refused(self._page_proxy, response)
        if response.status == 407:
            raise RequestError("proxy", "a proxy on the way wants a name and a password (407): name it in HTTPS_PROXY")
        return Reply(response.status, response.reason, response.headers, body)

    def _body(self, response: http.client.HTTPResponse) -> tuple[bytes, bool]:
        """The body, and whether it was read to its end. gzip is not asked for, but some gateways send nothing else."""
        encoding = (response.headers.get("Content-Encoding") or "").strip().lower()
        inflater = zlib.decompressobj(31) if encoding in ("gzip", "x-gzip") else None
        pieces: list[bytes] = []
        held = 0
        try:
            while piece := response.read(_PIECE):
                if inflater is not None:
                    piece = inflater.decompress(piece, self._limit_bytes - held + 1)
                held += len(piece)
                pieces.append(piece)
                if held > self._limit_bytes:
                    if self._truncate:
                        return b"".join(pieces)[: self._limit_bytes], False
                    raise RequestError("size", f"the reply is larger than {size(self._limit_bytes)}")
        except ConnectionResetError:
            # A server that refuses without reading the request closes by a reset; the status is what counts.
            if response.status < 400:
                raise
            return b"".join(pieces), False
        if response.length or (inflater is not None and pieces and (not inflater.eof or inflater.unused_data)):
            raise http.client.IncompleteRead(b"")
        return b"".join(pieces), True

    def _connect(self, deadline: float) -> "_Stream":
        self._socket = opened = _Socket(deadline)
        if self._aborted:
            raise ConnectionAbortedError
        stream: _Stream = opened
        if self._proxy is not None:
            stream = self._through(self._proxy, opened)
        else:
            opened.connect(self._host, self._port, self._connect_s)
        if self._url.scheme == "https":
            self._context = self._context or _context(self._tls)
            stream = _TlsStream(stream, self._context, self._tls.server_name or self._host)
        return stream

    def _through(self, proxy: Proxy, opened: "_Socket") -> "_Stream":
        """A stream to the server by way of the proxy, or to the proxy alone where that is asked for pages."""
        stream: _Stream = opened
        try:
            opened.connect(proxy.host, proxy.port, self._connect_s)
            if proxy.kind == "https":
                # Verified with the certificates of the system: those of a kubeconfig are for the API server.
                stream = _TlsStream(stream, _context(Tls()), proxy.host)
        except (RequestError, ssl.SSLError, ConnectionError) as error:
            raise RequestError("proxy", f"the proxy {proxy} cannot be reached: {_reason(error)}") from None
        try:
            if proxy.kind == "socks5":
                _socks(stream, proxy, self._host, self._port)
            elif self._page_proxy is None:
                _tunnel(stream, proxy, join_host(self._host, self._port))
        except (http.client.HTTPException, ConnectionError) as error:
            raise RequestError("proxy", f"the proxy {proxy} does not answer as one: {_reason(error)}") from None
        return stream

    def _failure(self, error: Exception) -> RequestError:
        if self._aborted:
            return RequestError("aborted", "the request was aborted")
        if isinstance(error, RequestError):
            return error
        if isinstance(error, ssl.SSLCertVerificationError):
            return RequestError("certificate", _reason(error))
        if isinstance(error, TimeoutError):
            return RequestError("timeout", f"no answer within {duration(self._timeout_s * SECOND)}")
        if isinstance(error, OSError):
            return RequestError("broken", _reason(error))
        if isinstance(error, http.client.IncompleteRead):
            return RequestError("broken", "the reply is incomplete")
        return RequestError("broken", f"the reply is not valid HTTP: {_reason(error)}")


def _refused(proxy: Proxy, response: http.client.HTTPResponse) -> RequestError:
    if response.status in (401, 407) and proxy.headers:
        why = f"refuses the name and the password in {proxy.source} ({response.status})"
    elif response.status == 407:
        why = f"wants a name and a password (407): write {proxy.source} as {proxy.kind}://NAME:PASSWORD@HOST:PORT"
    else:
        why = f"answers {response.status} {printable(response.reason, 60)}".rstrip()
    return RequestError("proxy", f"the proxy {proxy} {why}")


def _tunnel(stream: "_Stream", proxy: Proxy, where: str) -> None:
    """RFC 9110, section 9.3.6."""
    fields = (("Host", where), ("User-Agent", f"exhume/{__version__}"), *proxy.headers)
    lines = [f"CONNECT {where} HTTP/1.1", *(f"{name}: {value}" for name, value in fields), "", ""]
    stream.sendall("\r\n".join(lines).encode("ascii"))
    response = http.client.HTTPResponse(cast(socket.socket, stream), method="CONNECT")
    try:
        response.begin()
    finally:
        response.close()
    if not 200 <= response.status < 300:
        raise _refused(proxy, response)


def _socks(stream: "_Stream", proxy: Proxy, host: str, port: int) -> None:
    """RFC 1928, and RFC 1929 for a name and a password. The proxy resolves names."""

    def exactly(count: int) -> bytes:
        held = b""
        while len(held) < count:
            more = stream.recv(count - len(held))
            if not more:
                raise RequestError("proxy", f"the proxy {proxy} ended the connection")
            held += more
        return held

    user, password = proxy.user.encode()[:255], proxy.password.encode()[:255]
    stream.sendall(b"\x05\x02\x00\x02" if user else b"\x05\x01\x00")
    version, method = exactly(2)
    if version != 5 or method not in ((0, 2) if user else (0,)):
        raise RequestError("proxy", f"the proxy {proxy} accepts none of the ways to log in that were offered")
    if method == 2:
        stream.sendall(bytes((1, len(user))) + user + bytes((len(password),)) + password)
        if exactly(2)[1] != 0:
            raise RequestError("proxy", f"the proxy {proxy} refuses the name and the password in {proxy.source}")
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        name = socket.inet_pton(family, host)
        kind = b"\x04" if ":" in host else b"\x01"
    except OSError:
        name = host.encode("idna")
        kind = bytes((3, len(name)))
    stream.sendall(b"\x05\x01\x00" + kind + name + port.to_bytes(2, "big"))
    _, code, _, address_kind = exactly(4)
    if code:
        why = _SOCKS_REPLIES[code] if code < len(_SOCKS_REPLIES) else f"error {code}"
        raise RequestError("proxy", f"the proxy {proxy} answers: {why}")
    length = {1: 4, 4: 16}.get(address_kind) or exactly(1)[0]
    exactly(length + 2)


def _context(tls: Tls) -> ssl.SSLContext:
    try:
        made = ssl.create_default_context(cadata=tls.authority.decode("ascii") if tls.authority else None)
    except (ssl.SSLError, ValueError):
        raise RequestError("settings", "the certificate authority is not a PEM certificate") from None
    if tls.insecure:
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if tls.certificate and tls.key:
        # ssl loads a certificate from a file only; a memory file keeps the key off every disk.
        with open(os.memfd_create("certificate"), "wb") as file:
            file.write(tls.certificate + b"\n" + tls.key)
            file.flush()
            try:
                # With an empty password a protected key is refused; without one OpenSSL would ask at the terminal.
                made.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password=lambda: "")
            except ssl.SSLError:
                sentence = "the client certificate and its key cannot be used together"
                raise RequestError("settings", sentence) from None
    return made


class _Stream:
    """What http.client.HTTPResponse needs of a socket."""

    def recv(self, size: int) -> bytes:
        raise NotImplementedError

    def sendall(self, data: bytes) -> None:
        raise NotImplementedError

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))


class _Reader(io.RawIOBase):
    def __init__(self, stream: _Stream) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)


class _Socket(_Stream):
    """A TCP connection on which every wait ends at one deadline, however often the peer sends a byte."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._raw: socket.socket | None = None
        self._aborted = False

    def connect(self, host: str, port: int, connect_s: float) -> None:
        """To the first address of the host that accepts."""
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise RequestError("connect", _reason(error)) from None
        reason = "it has no address"
        for family, kind, protocol, _, address in addresses:
            try:
                self._raw = socket.socket(family, kind, protocol)
                self._raw.settimeout(min(connect_s, self._left()))
                self._raw.connect(address)
                self._raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return
            except OSError as error:
                self.close()
                self._left()  # raises when the whole request is out of time
                reason = (
                    f"no connection within {duration(connect_s * SECOND)}"
                    if isinstance(error, TimeoutError)
                    else _reason(error)
                )
        raise RequestError("connect", reason)

    def recv(self, size: int) -> bytes:
        return self._ready().recv(size)

    def sendall(self, data: bytes) -> None:
        self._ready().sendall(data)

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def abort(self) -> None:
        self._aborted = True
        with suppress(OSError):
            if self._raw is not None:
                self._raw.shutdown(socket.SHUT_RDWR)

    def _ready(self) -> socket.socket:
        assert self._raw is not None
        self._raw.settimeout(self._left())
        return self._raw

    def _left(self) -> float:
        if self._aborted:
            raise ConnectionAbortedError
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


class _TlsStream(_Stream):
    """TLS over any stream: also inside the TLS of a proxy, which ssl.SSLSocket cannot do."""

    def __init__(self, below: _Stream, context: ssl.SSLContext, name: str) -> None:
        self._below = below
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._run(self._tls.do_handshake)

    def recv(self, size: int) -> bytes:
        try:
            return self._run(lambda: self._tls.read(size))
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return b""  # many servers close without notice; a body that is cut short is found by its length

    def sendall(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            piece = view[:_PIECE]
            view = view[self._run(lambda piece=piece: self._tls.write(piece)) :]  # type: ignore[misc]

    def _run(self, operation: Callable[[], T]) -> T:
        while True:
            try:
                result = operation()
            except ssl.SSLWantReadError:
                self._flush()
                if data := self._below.recv(1 << 16):
                    self._incoming.write(data)
                elif self._incoming.eof:
                    raise ssl.SSLEOFError("the server ended the TLS connection") from None
                else:
                    self._incoming.write_eof()
            except ssl.SSLError:
                with suppress(OSError):
                    self._flush()  # the alert that names the reason to the peer
                raise
            else:
                self._flush()
                return result

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._below.sendall(self._outgoing.read())


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {printable(error.verify_message, 200)}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS failed: {printable(error.reason.replace('_', ' ').lower(), 100)}"
    text = error.strerror if isinstance(error, OSError) else ""
    return printable(text or str(error) or type(error).__name__, 200)
