"""One attempt to send a profile to its receiver: the request, how it is sent, and what the reply means: sent, again, or never.

TLS is always verified.
"""

import json
import os
import re
from typing import Literal, NamedTuple
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from exhume.agent.settings import Push
from exhume.agent.spool import Kind, Parcel
from exhume.errors import ExhumeError
from exhume.host.http import client as http
from exhume.host.http.address import loopback
from exhume.text import decode, printable

TIMEOUT_S = 60.0
LARGEST_REPLY = 64 << 10
OTLP_PATH = "/v1development/profiles"
# What the samples of a profile are, in Pyroscope's words (SampleTypeConfig in pkg/og/storage/tree of its source).
_SAMPLE_TYPES = {
    "samples": {"units": "samples", "aggregation": "sum", "sampled": True},
    "cpu": {"units": "nanoseconds", "aggregation": "sum", "sampled": True},
}
# A label's value in Pyroscope's `name{key=value,...}` has no quotes, so none of the form's own characters either.
_UNFIT = re.compile(r"[^A-Za-z0-9_./:@-]")
# Not known, not allowed (RFC 9110, 15.5): it is the sender that is refused, not what it sends, and a token
# that has run out is replaced some time. Many receivers say 403 of one.
UNTRUSTED = (401, 403)
UNTRUSTED_AFTER_S = 300.0


class Outcome(NamedTuple):
    state: Literal["sent", "again", "failed"]
    detail: str = ""
    """Why, for people."""
    after_s: float | None = None
    """How long the receiver wants to be left alone, if it says so."""
    answered: bool = False
    """It was the receiver that said so, about this profile; otherwise nobody was reached."""
    untrusted: bool = False
    """It is the token that the receiver does not like."""


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
    headers = {"Idempotency-Key": identity}
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


def identity(path: str) -> tuple[int, ...]:
    """What changes when a token does, whether it is written over, replaced, or behind a link that leads elsewhere now."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return ()
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


class Sender:
    """`send` blocks, for `timeout_s` at most; `close` ends it from another thread."""

    def __init__(self, timeout_s: float = TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._client: http.Client | None = None
        self._closed = False

    def send(self, wanted: Request, token_file: str = "", over_http: bool = False) -> Outcome:
        """`over_http`: the token may go to other machines unencrypted."""
        url = wanted.url
        headers = list(wanted.headers.items())
        try:
            client = http.Client(url.geturl(), timeout_s=self._timeout_s, limit_bytes=LARGEST_REPLY, truncate=True)
            if token_file:
                headers.append(("Authorization", f"Bearer {http.read_token(token_file, private=True)}"))
                if url.scheme == "http" and not over_http and not loopback(client.first_host):
                    where = printable(client.first_host)
                    hint = "agent.push.token_over_http allows it"
                    return Outcome("again", f"the token is not sent to {where} over http://; {hint}")
            with client:
                self._client = client
                if self._closed:
                    return Outcome("again", "the agent ends")
                target = (url.path or "/") + (f"?{url.query}" if url.query else "")
                return judged(client.request("POST", target, headers, wanted.body))
        except ExhumeError as error:
            return Outcome("again", str(error))
        finally:
            self._client = None

    def close(self) -> None:
        self._closed = True
        if (client := self._client) is not None:
            client.abort()


def judged(reply: http.Reply) -> Outcome:
    """408, 429 and 5xx are temporary, a refused token lasts until there is another, every other refusal is final."""
    status = reply.status
    detail = f"{status} {printable(reply.reason, 60)}"
    if 200 <= status < 300:
        refused = rejected(reply.body) if reply.headers.get_content_type() == "application/x-protobuf" else ""
        return Outcome("failed", f"{detail}, but: {refused}", answered=True) if refused else Outcome("sent", answered=True)
    if words := printable(decode(reply.body[:300].strip()), 200):
        detail += f": {words}"
    if reply.temporary:
        return Outcome("again", detail, reply.retry_after_s, answered=True)
    if status in UNTRUSTED:
        wait_s = reply.retry_after_s
        detail += "; tried again every few minutes, and when agent.push.token_file changes"
        return Outcome("again", detail, UNTRUSTED_AFTER_S if wait_s is None else wait_s, answered=True, untrusted=True)
    if 300 <= status < 400:
        detail += "; redirects are not followed, name the right place in agent.push.url"
    return Outcome("failed", detail, answered=True)


def rejected(said: bytes) -> str:
    """Why a collector that said yes took nothing: partial_success (1) of ExportProfilesServiceResponse, with rejected_profiles
    (1) and error_message (2). "" where it took it, or says something else; to send it again would be no use (OTLP, "Partial
    Success")."""
    partial = _fields(said).get(1)
    if not isinstance(partial, bytes):
        return ""
    found = _fields(partial)
    why = found.get(2)
    return (printable(decode(why), 200) if isinstance(why, bytes) and why else "it took nothing of it") if found.get(1) else ""


def _fields(data: bytes) -> dict[int, int | bytes]:
    """The numbers and bytes of a message by their fields, the last of each; what is no message has none."""
    found: dict[int, int | bytes] = {}
    at = 0
    try:
        while at < len(data):
            key, at = _varint(data, at)
            value, at = _varint(data, at)
            if key & 7 == 0:
                found[key >> 3] = value
            elif key & 7 == 2 and at + value <= len(data):
                found[key >> 3] = data[at : at + value]
                at += value
            else:
                return {}
    except IndexError:
        return {}
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise IndexError
