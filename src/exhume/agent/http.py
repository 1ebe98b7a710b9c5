"""The agent's door: metrics, health and readiness over HTTP, which no client can hold open, fill or bring down.

So few connections are served at a time; each has so long, however slowly it talks, and when all are taken the oldest goes. Only
GET and HEAD are known, a request has so many bytes, and its body is never read.
"""

import base64
import errno
import hmac
import http.client
import http.server
import os
import selectors
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from io import BufferedIOBase
from typing import Any

from exhume import __version__
from exhume.errors import ExhumeError, UsageError

MOST = 16
LONGEST_S = 10.0
LARGEST = 16 << 10
"""Bytes of a request: http.server alone would take a hundred headers of 64 KiB each."""
OPEN = ("/-/healthy", "/healthz", "/-/ready", "/readyz")
"""Pages that want no password: a kubelet's probes have none, and there is nothing to learn from them."""
# Whoever asks all the time is let in so often a second, after a first rush: each takes a third of a millisecond of CPU, and
# with TLS some two. Nobody is to make the agent give things up by asking.
RATE, RUSH = 20.0, 100.0
# There are no descriptors or no memory left: who knocks stays at the door, and to look again at once would be all we do.
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
FULL_S = 0.1
_PLAIN = "text/plain; charset=utf-8"

Page = tuple[int, bytes, str]
"""Status, body and content type."""


class Door:
    """Serves until it is closed. `pages` are by path; each is called in a thread of its own with the Accept header."""

    def __init__(
        self,
        address: tuple[str, int],
        pages: dict[str, Callable[[str], Page]],
        tls: ssl.SSLContext | None = None,
        secret: bytes = b"",
    ) -> None:
        try:
            self._server = _Server(address, pages, tls, secret)
        except OSError as error:
            raise ExhumeError(
                f"nothing can listen at {address[0]}:{address[1]}: {error.strerror}; choose agent.listen"
            ) from None
        self.address: tuple[str, int] = self._server.server_address[:2]  # type: ignore[assignment]
        self._thread = threading.Thread(target=self._server.serve, name="door", daemon=True)
        self._thread.start()

    def change(self, tls: ssl.SSLContext | None, secret: bytes) -> None:
        """For whoever comes from now on."""
        self._server.tls, self._server.secret = tls, secret

    def close(self) -> None:
        self._server.leave()
        self._thread.join(5)
        self._server.server_close()
        self._server.let_go(0.0)


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64

    def __init__(
        self,
        address: tuple[str, int],
        pages: dict[str, Callable[[str], Page]],
        tls: ssl.SSLContext | None,
        secret: bytes,
    ) -> None:
        self.pages, self.tls, self.secret = pages, tls, secret
        self._open: dict[Any, tuple[float, socket.socket]] = {}
        """By the client's address and port: since when, and what to hang up."""
        self._lock = threading.Lock()
        self._may, self._since = RUSH, time.monotonic()
        """How many may come at once, as of when."""
        self._ends, self._says_so = socket.socketpair()
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            super().__init__(address, _Handler)
        except BaseException:
            self._hear_no_more()
            raise

    def serve(self) -> None:
        """Until `leave`. Unlike serve_forever it does not wake to see whether it is to end: only while somebody is in, who may
        have to be let go."""
        self.socket.setblocking(False)
        with selectors.DefaultSelector() as waiting:
            waiting.register(self, selectors.EVENT_READ)
            waiting.register(self._ends, selectors.EVENT_READ)
            while True:
                for key, _ in waiting.select(1.0 if self._open else None):
                    if key.fileobj is self._ends:
                        return
                    self._hold_back()
                    self._let_in()
                self.let_go(LONGEST_S)

    def _hold_back(self) -> None:
        """Until the next one may come."""
        now = time.monotonic()
        self._may, self._since = min(RUSH, self._may + (now - self._since) * RATE) - 1.0, now
        if self._may < 0.0:
            time.sleep(-self._may / RATE)

    def _let_in(self) -> None:
        try:
            request, client_address = self.get_request()
        except OSError as error:  # who knocked has left
            if error.errno in FULL:
                time.sleep(FULL_S)
            return
        try:
            self.process_request(request, client_address)
        except Exception:  # there is no thread for it to be had
            self.shutdown_request(request)

    def leave(self) -> None:
        with suppress(OSError):
            self._says_so.send(b"x")

    def server_close(self) -> None:
        super().server_close()
        self._hear_no_more()

    def _hear_no_more(self) -> None:
        self._ends.close()
        self._says_so.close()

    def server_bind(self) -> None:
        """Without http.server's, which asks the resolver for our name: on a starving node that can take a minute."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= MOST:
                oldest = min(self._open, key=lambda each: self._open[each][0])
                _hang_up(self._open.pop(oldest)[1])
            self._open[client_address] = time.monotonic(), request
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._open.pop(client_address, None)

    def instead(self, client_address: Any, connection: socket.socket) -> None:
        """The same connection, by another object: what TLS makes of it."""
        with self._lock:
            since, _ = self._open.get(client_address, (0.0, connection))
            self._open[client_address] = since, connection

    def let_go(self, after_s: float) -> None:
        now = time.monotonic()
        with self._lock:
            for client, (since, connection) in list(self._open.items()):
                if now - since >= after_s:
                    _hang_up(connection)
                    del self._open[client]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left, talked nonsense or was let go is no trouble of ours."""


def _hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # not TLS's own, which would talk to the client first


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = f"exhume/{__version__}"
    sys_version = ""
    timeout = LONGEST_S

    def setup(self) -> None:
        if (tls := self.server.tls) is not None:
            self.request.settimeout(LONGEST_S)
            self.request = tls.wrap_socket(self.request, server_side=True, do_handshake_on_connect=False)
            self.server.instead(self.client_address, self.request)
            try:
                self.request.do_handshake()
            except BaseException:
                self.request.close()  # nobody else would: the socket that the server knows was taken over by this one
                raise
        super().setup()
        self.rfile = _Sparing(self.rfile)  # type: ignore[assignment]

    def finish(self) -> None:
        try:
            super().finish()
        finally:
            if self.server.tls is not None:
                self.request.close()

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def _answer(self) -> None:
        status, body, kind = self._page()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="exhume"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _page(self) -> Page:
        path = self.path.partition("?")[0]
        if path not in OPEN and not self._known():
            return 401, b"this agent wants a user and a password\n", _PLAIN
        page = self.server.pages.get(path)
        if page is None:
            return 404, b"there is /metrics, /-/healthy and /-/ready\n", _PLAIN
        return page(self.headers.get("Accept", ""))

    def _known(self) -> bool:
        if not self.server.secret:
            return True
        kind, _, given = self.headers.get("Authorization", "").partition(" ")
        try:
            said = base64.b64decode(given, validate=True)
        except ValueError:
            return False
        return kind.lower() == "basic" and hmac.compare_digest(said, self.server.secret)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """A scrape every few seconds is not to fill the journal."""


class _Sparing:
    """What a request is read from, up to so many bytes: more headers get a 431, and a longer first line no answer."""

    def __init__(self, file: BufferedIOBase) -> None:
        self._file, self._left = file, LARGEST

    def readline(self, most: int) -> bytes:
        line = self._file.readline(min(most, self._left))
        self._left -= len(line)
        if self._left <= 0:
            raise http.client.LineTooLong("request")
        return line

    def close(self) -> None:
        self._file.close()


def context(cert: str, key: str) -> ssl.SSLContext | None:
    """What serves by TLS, if a certificate is set."""
    if not cert:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(cert, key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"the certificate {cert} with the key {key} cannot be used: {error}") from None
    return made


def secret(path: str) -> bytes:
    """USER:PASSWORD of a file that nobody else can read."""
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & 0o077:
                raise UsageError(f"{path} holds a password and can be read by others: chmod 600 {path}")
            said = file.read(4096).strip()
    except OSError as error:
        raise UsageError(f"agent.auth_file {path} cannot be read: {error.strerror}") from None
    if b":" not in said or b"\n" in said:
        raise UsageError(f"agent.auth_file {path} must hold one line, USER:PASSWORD")
    return said
