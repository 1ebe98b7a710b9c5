"""A server on loopback that misbehaves as it is told, byte by byte."""

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator


class Peer:
    """One accepted connection."""

    def __init__(self, connection: socket.socket, over: threading.Event) -> None:
        self._connection, self._over = connection, over

    def request(self) -> bytes:
        """The head of a request; b"" when the client hung up."""
        held = b""
        while b"\r\n\r\n" not in held:
            more = self._connection.recv(65536)
            if not more:
                return b""
            held += more
        return held

    def send(self, data: bytes) -> None:
        self._connection.sendall(data)

    def drip(self, data: bytes) -> None:
        """Again and again, with a short pause, until the client hangs up."""
        while not self._over.wait(0.02):
            self.send(data)

    def flood(self, data: bytes) -> None:
        while not self._over.is_set():
            self.send(data)

    def hold(self) -> None:
        self._over.wait(120)


class Listener:
    def __init__(self, port: int, secure: bool) -> None:
        self.address = f"127.0.0.1:{port}"
        self.url = f"{'https' if secure else 'http'}://{self.address}"
        self.port = port
        self.requests: list[bytes] = []
        self.accepted = 0
        self.arrived = threading.Event()
        """Set when a connection was accepted."""


@contextlib.contextmanager
def raw_server(behave: Callable[[Peer], None], tls: ssl.SSLContext | None = None) -> Iterator[Listener]:
    """`behave` has each connection to itself, and may be cut off by the client at any point."""
    over = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        listener = Listener(server.getsockname()[1], tls is not None)

        def one(connection: socket.socket) -> None:
            with contextlib.suppress(OSError), contextlib.closing(connection):
                stream = connection if tls is None else tls.wrap_socket(connection, server_side=True)
                with stream:
                    behave(Peer(stream, over))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    listener.accepted += 1
                    listener.arrived.set()
                    threads.append(threading.Thread(target=one, args=(connection,), daemon=True))
                    threads[-1].start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield listener
        finally:
            over.set()
            server.shutdown(socket.SHUT_RDWR)
            accepting.join(120)
            for thread in threads:
                thread.join(120)


def replies(*answers: bytes) -> Callable[[Peer], None]:
    """Each request of a connection gets the next answer; then the connection ends."""

    def behave(peer: Peer) -> None:
        for answer in answers:
            if not peer.request():
                return
            peer.send(answer)

    return behave
