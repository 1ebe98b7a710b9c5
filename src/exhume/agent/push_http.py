"""One attempt to hand a profile to its receiver: what is sent, and how.

TLS is verified, always. Redirects are not followed: a token and a profile go where they were meant to go. A receiver that
dribbles is hung up on after so long, however often it sends a byte.
"""

import http.client
import json
import os
import re
import socket
import ssl
import stat
import threading
import time
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from exhume import __version__
from exhume.agent.push_answer import Outcome, judged
from exhume.agent.settings import Push, loopback
from exhume.agent.spool import Kind, Parcel
from exhume.host.quantities import SECOND, duration
from exhume.text import decode, printable

TIMEOUT_S = 10.0
"""Of each step: to connect, to send a piece, to receive one."""
DEADLINE_S = 60.0
LARGEST_ANSWER = 64 << 10
LARGEST_TOKEN = 64 << 10
OTLP_PATH = "/v1development/profiles"
# What the samples of a profile are, in Pyroscope's words (SampleTypeConfig in pkg/og/storage/tree of its source).
_SAMPLE_TYPES = {
    "samples": {"units": "samples", "aggregation": "sum", "sampled": True},
    "cpu": {"units": "nanoseconds", "aggregation": "sum", "sampled": True},
}
# A label's value in Pyroscope's `name{key=value,...}` has no quotes, so none of the form's own characters either.
_UNFIT = re.compile(r"[^A-Za-z0-9_./:@-]")


class Request(NamedTuple):
    url: SplitResult
    headers: dict[str, str]
    body: bytes


def kind_of(push: Push) -> Kind:
    """What must be in a parcel for this receiver."""
    return "otlp" if push.form == "otlp" else "pprof"


def request(push: Push, parcel: Parcel, identity: str) -> Request:
    """`identity` stays the same over all attempts, so that whoever cares can tell the second from the first."""
    url = urlsplit(push.url)
    headers = {"User-Agent": f"exhume/{__version__}", "Idempotency-Key": identity}
    if push.form == "otlp":
        path = url.path.rstrip("/")
        url = url._replace(path=path if path.endswith(OTLP_PATH) else path + OTLP_PATH)
        headers |= {"Content-Type": "application/x-protobuf", "Content-Encoding": "gzip"}
        return Request(url, headers, parcel.body)
    if push.form == "pprof":
        return Request(url, headers | {"Content-Type": "application/octet-stream"}, parcel.body)
    query = {
        "name": series(parcel),
        "from": str(parcel.start_real // 10**9),
        # A profile of less than a second must not end when it begins.
        "until": str(max(parcel.end_real // 10**9, parcel.start_real // 10**9 + 1)),
        "format": "pprof",
        "spyName": "exhume",
        "sampleRate": str(parcel.hz or 100),
    }
    path = url.path.rstrip("/")
    url = url._replace(path=path if path.endswith("/ingest") else f"{path}/ingest")
    url = url._replace(query="&".join(part for part in (url.query, urlencode(query, quote_via=quote)) if part))
    boundary = f"exhume-{identity}"
    body = multipart(
        boundary,
        ("profile", "profile.pprof", parcel.body),
        ("sample_type_config", "sample_type_config.json", json.dumps(_SAMPLE_TYPES).encode()),
    )
    return Request(url, headers | {"Content-Type": f"multipart/form-data; boundary={boundary}"}, body)


def series(parcel: Parcel) -> str:
    """`exhume{node=node-7,zone=b}`."""
    labels = ",".join(f"{_UNFIT.sub('_', key)}={_UNFIT.sub('_', value)}" for key, value in parcel.labels if key and value)
    return f"{parcel.name}{{{labels}}}"


def multipart(boundary: str, *parts: tuple[str, str, bytes]) -> bytes:
    """Fields with file names: Pyroscope looks for files only. The boundary is in no gzip of ours but by a chance of 2^-200."""
    made = []
    for name, file, data in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="{file}"\r\n'
        made += [head.encode(), b"Content-Type: application/octet-stream\r\n\r\n", data, b"\r\n"]
    return b"".join([*made, f"--{boundary}--\r\n".encode()])


def token(path: str) -> str:
    """Read anew each time: tokens are rotated. One that other users can read is not sent."""
    if not path:
        return ""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
            raise ValueError(f"{printable(path)} can be read by others: chmod 600 {printable(path)}")
        found = file.read(LARGEST_TOKEN).strip()
    if not found or not found.isascii() or not decode(found).isprintable():
        raise ValueError(f"{printable(path)} has no token that could be sent")
    return found.decode("ascii")


def identity(path: str) -> tuple[int, ...]:
    """What changes when a token does, whether it is written over, replaced, or behind a link that leads elsewhere now."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


class Sender:
    """`send` blocks, for DEADLINE_S at most; `close` ends it from another thread."""

    def __init__(self, timeout_s: float = TIMEOUT_S, deadline_s: float = DEADLINE_S) -> None:
        self._timeout_s, self._deadline_s = timeout_s, deadline_s
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False

    def send(self, wanted: Request, token_file: str = "", over_http: bool = False) -> Outcome:
        """`over_http`: the token may go to other machines unencrypted."""
        try:
            secret = token(token_file)
        except (OSError, ValueError) as error:
            return Outcome("again", f"the token could not be read: {error}")
        headers = wanted.headers | ({"Authorization": f"Bearer {secret}"} if secret else {})
        try:
            connection, target = connect_to(wanted.url, self._timeout_s, headers)
        except (OSError, ValueError) as error:
            return Outcome("again", str(error))
        if secret and wanted.url.scheme == "http" and not over_http and not loopback(connection.host):
            where = printable(connection.host)
            return Outcome("again", f"the token is not sent to {where} over http://; agent.push.token_over_http allows it")
        self._connection = connection
        hung_up = threading.Timer(self._deadline_s, _hang_up, (connection,))
        hung_up.daemon = True
        begun = time.monotonic()
        try:
            if self._closed:
                return Outcome("again", "the agent ends")
            hung_up.start()
            return _exchange(connection, target, wanted.body, headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            late = time.monotonic() - begun >= self._deadline_s
            return Outcome("again", f"no answer within {duration(self._deadline_s * SECOND)}" if late else _why(error))
        finally:
            hung_up.cancel()
            self._connection = None
            connection.close()

    def close(self) -> None:
        self._closed = True
        if (connection := self._connection) is not None:
            _hang_up(connection)


def connect_to(url: SplitResult, timeout_s: float, headers: dict[str, str]) -> tuple[http.client.HTTPConnection, str]:
    """Who to talk to and what to ask for. Through a proxy where the environment names one (HTTPS_PROXY, NO_PROXY)."""
    from urllib.request import getproxies, proxy_bypass  # on Linux of the environment alone

    host = url.hostname or ""
    port = url.port or (443 if url.scheme == "https" else 80)
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    proxies = getproxies()
    proxy = "" if proxy_bypass(f"{host}:{port}", proxies) else proxies.get(url.scheme, proxies.get("all", ""))
    tls = ssl.create_default_context()
    if not proxy:
        if url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=tls), target
        return http.client.HTTPConnection(host, port, timeout=timeout_s), target
    through = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if through.scheme != "http" or not through.hostname:
        raise ValueError(f"the proxy of the environment is none that is known here: {printable(proxy)}")
    if url.scheme == "https":
        tunnel = http.client.HTTPSConnection(through.hostname, through.port or 80, timeout=timeout_s, context=tls)
        tunnel.set_tunnel(host, port)
        return tunnel, target
    headers["Host"] = url.netloc
    return http.client.HTTPConnection(through.hostname, through.port or 80, timeout=timeout_s), f"http://{url.netloc}{target}"


def _exchange(connection: http.client.HTTPConnection, target: str, body: bytes, headers: dict[str, str]) -> Outcome:
    try:
        connection.request("POST", target, body, headers)
    except (BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise  # otherwise it may have answered before it had all: too large, or not allowed
    answer = connection.getresponse()
    said = answer.read(LARGEST_ANSWER)
    return judged(answer.status, answer.reason, said, answer.headers.get("Retry-After"), answer.headers.get_content_type())


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not to be trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    return printable(str(error) or type(error).__name__, 200)


def _hang_up(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
