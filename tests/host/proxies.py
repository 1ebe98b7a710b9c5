"""Small proxies on loopback: one that takes CONNECT and whole addresses, one that speaks SOCKS5. They count who came."""

import contextlib
import selectors
import socket
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Proxied:
    address: str
    asked: list[str] = field(default_factory=list)
    """What each client asked for, and with which name."""


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    seen: Proxied
    refuses: bytes
    account: bytes
    tls: ssl.SSLContext | None

    def finish_request(self, request: socket.socket | tuple[bytes, socket.socket], client_address: object) -> None:
        if self.tls is not None and isinstance(request, socket.socket):
            with contextlib.suppress(OSError), self.tls.wrap_socket(request, server_side=True) as wrapped:
                super().finish_request(wrapped, client_address)
        else:
            super().finish_request(request, client_address)


@contextlib.contextmanager
def http_proxy(refuses: bytes = b"", account: bytes = b"", tls: ssl.SSLContext | None = None) -> Iterator[Proxied]:
    """`refuses` is its answer to everybody; with an account only those who bring it (in base64) are let through. Names are not
    looked up: everything is connected to the port asked for on this machine. With `tls` the proxy itself is reached by TLS."""
    with _serving(_Http, refuses, account, tls) as seen:
        yield seen


@contextlib.contextmanager
def socks_proxy(refuses: bytes = b"", account: bytes = b"") -> Iterator[Proxied]:
    """`refuses` is the code of its reply; an account is NAME:PASSWORD."""
    with _serving(_Socks, refuses, account, None) as seen:
        yield seen


@contextlib.contextmanager
def _serving(
    handler: type[socketserver.StreamRequestHandler], refuses: bytes, account: bytes, tls: ssl.SSLContext | None
) -> Iterator[Proxied]:
    with _Server(("127.0.0.1", 0), handler) as server:
        server.seen = Proxied(f"127.0.0.1:{server.server_address[1]}")
        server.refuses, server.account, server.tls = refuses, account, tls
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.seen
        finally:
            server.shutdown()
            thread.join()


class _Http(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        line, head = self.rfile.readline(), b""
        while (more := self.rfile.readline()).strip():
            head += more
        method, where, _ = line.split()
        self.server.seen.asked.append(f"{method.decode()} {where.decode()}")
        if self.server.account and b"Proxy-Authorization: Basic " + self.server.account not in head:
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
        elif self.server.refuses:
            self.wfile.write(b"HTTP/1.1 " + self.server.refuses + b"\r\n\r\n")
        elif method == b"CONNECT":
            port = int(where.rpartition(b":")[2])
            with socket.create_connection(("127.0.0.1", port), 10) as other:
                self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                _both_ways(self.connection, other)
        else:
            self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"by": "us"}\n')


class _Socks(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        _, count = self.rfile.read(2)
        ways = self.rfile.read(count)
        wanted = 2 if self.server.account else 0
        self.wfile.write(bytes((5, wanted if wanted in ways else 255)))
        if wanted not in ways:
            return
        if wanted == 2:
            self.rfile.read(1)
            user = self.rfile.read(self.rfile.read(1)[0])
            password = self.rfile.read(self.rfile.read(1)[0])
            good = user + b":" + password == self.server.account
            self.wfile.write(bytes((1, 0 if good else 1)))
            if not good:
                return
        _, _, _, kind = self.rfile.read(4)
        host = socket.inet_ntoa(self.rfile.read(4)) if kind == 1 else self.rfile.read(self.rfile.read(1)[0]).decode()
        port = int.from_bytes(self.rfile.read(2), "big")
        self.server.seen.asked.append(f"{host}:{port}")
        if self.server.refuses:
            self.wfile.write(b"\x05" + self.server.refuses + b"\x00\x01" + bytes(6))
            return
        with socket.create_connection(("127.0.0.1", port), 10) as other:
            self.wfile.write(b"\x05\x00\x00\x01" + bytes(6))
            _both_ways(self.connection, other)


def _both_ways(one: socket.socket, other: socket.socket) -> None:
    with selectors.DefaultSelector() as ready, contextlib.suppress(OSError):
        ready.register(one, selectors.EVENT_READ, other)
        ready.register(other, selectors.EVENT_READ, one)
        while True:
            for key, _ in ready.select(10):
                data = key.fileobj.recv(65536)  # type: ignore[union-attr]
                if not data:
                    return
                key.data.sendall(data)
                while isinstance(key.fileobj, ssl.SSLSocket) and key.fileobj.pending():
                    key.data.sendall(key.fileobj.recv(65536))
