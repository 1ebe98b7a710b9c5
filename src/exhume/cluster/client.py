"""A thin client of the API server, on http.client alone: a starving node has better things to do than to import more.

One connection, kept open; not for several threads. Each request has a deadline and an answer of bounded size. See
docs/decisions/kubernetes-client.md for what the libraries would have cost.
"""

import http.client
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from exhume.cluster import credentials
from exhume.cluster.connection import Connection
from exhume.cluster.document import MANAGER, Document, list_in, text_in
from exhume.cluster.kubeconfig import Access, find
from exhume.cluster.proxy import chosen
from exhume.cluster.replies import ApiError, Unreachable, refusal
from exhume.errors import ExhumeError
from exhume.host.quantities import size
from exhume.text import from_json, printable

PATIENCE_S = 15.0
LARGEST = 64 << 20
PAGE = 500
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# A token of an exec plugin is renewed so long before it ends.
_EARLY_S = 30.0


class Client:
    def __init__(self, access: Access, patience_s: float = PATIENCE_S) -> None:
        self._access, self._patience_s = access, patience_s
        self._address = urlsplit(access.server)
        self._connection: Connection | None = None
        self._credential: credentials.Credential | None = None

    @property
    def described(self) -> str:
        return self._access.described or self._access.server

    def get(self, path: str, **query: str) -> Document:
        return self.request("GET", path, query=query)

    def create(self, path: str, body: Document, **query: str) -> Document:
        return self.request("POST", path, body, query={"fieldManager": MANAGER, **query})

    def patch(self, path: str, body: Document, kind: str = MERGE, **query: str) -> Document:
        return self.request("PATCH", path, body, kind, {"fieldManager": MANAGER, **query})

    def list(self, path: str, **query: str) -> Iterator[Document]:
        """All objects of a list, by pages: a large cluster's is never held by the server at once."""
        more = ""
        while True:
            asked = {"limit": str(PAGE), **query, **({"continue": more} if more else {})}
            try:
                page = self.request("GET", path, query=asked)
            except ApiError as error:
                if error.status != 410 or not error.goes_on or error.goes_on == more:
                    raise
                # etcd has forgotten the state that the first page was of; the rest is of a later one (API concepts, 410 Gone).
                more = error.goes_on
                continue
            yield from list_in(page, "items")
            more = text_in(page, "metadata", "continue")
            if not more:
                return

    def request(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        kind: str = "application/json",
        query: Mapping[str, str] | None = None,
    ) -> Document:
        told = _document(self._answer(method, path, body, kind, query))
        if told is None:
            raise ExhumeError(f"{printable(self._access.server)} did not answer as an API server does")
        return told

    def text(self, path: str, **query: str) -> bytes:
        """What is no object: the log of a pod."""
        return self._answer("GET", path, None, "", query)

    def _answer(self, method: str, path: str, body: Document | None, kind: str, query: Mapping[str, str] | None) -> bytes:
        target = quote(self._address.path + path, safe="/") + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        status, raw, retry_after = self._exchange(method, target, data, kind)
        if status == 401 and self._credential is not None:
            # What the plugin brought is good no more, whatever it said: it is asked anew, once.
            self.close()
            self._credential = None
            status, raw, retry_after = self._exchange(method, target, data, kind)
        if status >= 300:
            raise refusal(method, path, status, _document(raw) or {}, retry_after)
        return raw

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, method: str, target: str, data: bytes | None, kind: str) -> tuple[int, bytes, str]:
        """A connection that the server closed while it was idle is opened anew, once. All we ask for can be asked twice."""
        headers = {"Accept": "application/json" if kind else "application/json, */*", **self._authorization()}
        if data is not None:
            headers |= {"Content-Type": kind, "Content-Length": str(len(data))}
        kept = self._connection is not None
        while True:
            try:
                if self._connection is None:
                    proxy = chosen(self._access.server, self._access.proxy, os.environ)
                    self._connection = Connection(self._access, self._credential, proxy, self._patience_s)
                self._connection.send_request(method, target, (*headers.items(), *self._access.impersonated), data)
                reply = self._connection.getresponse()
                raw = reply.read(LARGEST + 1)
                if len(raw) > LARGEST:
                    self.close()
                    raise ExhumeError(f"the answer to {method} {printable(target)} is larger than {size(LARGEST)}")
                return reply.status, raw, reply.headers.get("Retry-After", "")
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.close()
                if kept and isinstance(error, ConnectionError | http.client.RemoteDisconnected | http.client.CannotSendRequest):
                    kept = False
                    continue
                raise Unreachable(
                    f"the API server at {printable(self._access.server)} cannot be reached: {_why(error)}"
                ) from None

    def _authorization(self) -> dict[str, str]:
        """A token file wins over a token, and a token over a plugin (client-go: HTTPWrappersForConfig)."""
        access, token = self._access, self._access.token
        if access.token_file:
            try:
                token = Path(access.token_file).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                if not token:
                    raise ExhumeError(f"the token in {printable(access.token_file)} cannot be read") from None
        elif access.exec is not None and not token:
            before = self._credential
            if before is None or (before.expires_s is not None and before.expires_s - _EARLY_S < time.time()):
                self._credential = credentials.ask(access.exec)
                if before is not None and before.certificate != self._credential.certificate:
                    self.close()
            assert self._credential is not None
            token = self._credential.token
        if not (token.isascii() and token.isprintable()):
            raise ExhumeError(f"the token of {self.described} holds what no token may")
        return {"Authorization": f"Bearer {token}"} if token else {}


def connect(context: str = "") -> Client:
    return Client(find(context))


def _document(raw: bytes) -> Document | None:
    try:
        told = from_json(raw)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.strerror if isinstance(error, OSError) else ""
    return printable(text or str(error) or type(error).__name__)


__all__ = ["MERGE", "STRATEGIC", "ApiError", "Client", "connect"]
