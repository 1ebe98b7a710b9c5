"""A connection to Prometheus: opened soon or not at all, and read piece by piece until a deadline."""

import http.client
import socket
import ssl
import time
from collections.abc import Iterator
from urllib.parse import SplitResult

from exhume.fleet.prometheus_reply import Refusal
from exhume.host.quantities import SECOND, duration, size
from exhume.text import printable

# A server that is there takes a connection in a blink, however slow its answers are.
CONNECT_S = 10.0


def opened(url: SplitResult, patience_s: float, answered: bool) -> http.client.HTTPConnection:
    """`answered`: it was there a moment ago, and may be again. If not, nobody is there, and that is said at once."""
    connect_s = min(CONNECT_S, patience_s)
    host = url.hostname or ""
    connection = (
        http.client.HTTPSConnection(host, url.port or 443, timeout=connect_s, context=ssl.create_default_context())
        if url.scheme == "https"
        else http.client.HTTPConnection(host, url.port or 80, timeout=connect_s)
    )
    try:
        connection.connect()
    except (ConnectionRefusedError, socket.gaierror, TimeoutError) as error:
        why = (
            f"no connection within {duration(connect_s * SECOND)}"
            if isinstance(error, TimeoutError)
            else error.strerror or str(error)
        )
        if answered:
            raise ConnectionError(printable(why)) from None
        raise Refusal("never", printable(why)) from None
    connection.sock.settimeout(patience_s)
    return connection


def pieces(
    reply: http.client.HTTPResponse, connection: http.client.HTTPConnection, until: float, largest: int
) -> Iterator[bytes]:
    """So that a server that dribbles meets the deadline, too."""
    received = 0
    while piece := reply.read1(1 << 18):
        received += len(piece)
        if received > largest:
            raise Refusal("too much", f"the answer is larger than {size(largest)}")
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if connection.sock is not None:
            connection.sock.settimeout(left)
        yield piece
    if reply.length:
        raise http.client.IncompleteRead(b"", reply.length)
