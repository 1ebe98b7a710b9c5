"""A thin client of the API server, on http.client alone: a starving node has better things to do than to import more.

One connection, kept open; not for several threads. Each request has a deadline and an answer of bounded size. See
docs/decisions/kubernetes-client.md for what the libraries would have cost.
"""

import http.client
import json
import os
import ssl
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from exhume import __version__
from exhume.cluster import credentials
from exhume.cluster.document import MANAGER, Document, list_in, text_in
from exhume.cluster.kubeconfig import Access, find
from exhume.cluster.replies import ApiError, refusal
from exhume.errors import ExhumeError
from exhume.text import printable

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
        self._connection: http.client.HTTPConnection | None = None
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
            page = self.request("GET", path, query=asked)
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
        target = quote(self._address.path + path, safe="/") + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        headers = {"Accept": "application/json", "User-Agent": f"exhume/{__version__}", **self._authorization()}
        if data is not None:
            headers["Content-Type"] = kind
        status, raw, retry_after = self._exchange(method, target, data, headers)
        told = _document(raw)
        if status == 401 and self._credential is not None:
            self.close()  # the plugin is asked anew next time
            self._credential = None
        if status >= 300:
            raise refusal(method, path, status, told or {}, retry_after)
        if told is None:
            raise ExhumeError(f"{printable(self._access.server)} did not answer as an API server does")
        return told

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, method: str, target: str, data: bytes | None, headers: dict[str, str]) -> tuple[int, bytes, str]:
        """A connection that the server closed while it was idle is opened anew, once. All we ask for can be asked twice."""
        kept = self._connection is not None
        while True:
            try:
                if self._connection is None:
                    self._connection = self._open()
                self._connection.request(method, target, data, headers)
                reply = self._connection.getresponse()
                raw = reply.read(LARGEST + 1)
                if len(raw) > LARGEST:
                    self.close()
                    raise ExhumeError(f"the answer to {method} {printable(target)} is larger than {LARGEST >> 20} MiB")
                return reply.status, raw, reply.headers.get("Retry-After", "")
            except (OSError, http.client.HTTPException) as error:
                self.close()
                if kept and isinstance(error, ConnectionError | http.client.RemoteDisconnected | http.client.CannotSendRequest):
                    kept = False
                    continue
                raise ExhumeError(
                    f"the API server at {printable(self._access.server)} cannot be reached: {_why(error)}"
                ) from None

    def _open(self) -> http.client.HTTPConnection:
        host, port = self._address.hostname or "", self._address.port
        if self._address.scheme == "http":
            return http.client.HTTPConnection(host, port or 80, timeout=self._patience_s)
        return _Named(host, port or 443, self._access.server_name, self._context(), self._patience_s)

    def _context(self) -> ssl.SSLContext:
        access = self._access
        try:
            context = ssl.create_default_context(cadata=access.authority.decode("ascii") if access.authority else None)
        except (ssl.SSLError, ValueError):
            raise ExhumeError(f"the certificate authority of {self.described} is no PEM certificate") from None
        if access.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        credential = self._credential
        certificate = (credential and credential.certificate) or access.certificate
        key = (credential and credential.key) or access.key
        if certificate and key:
            # ssl takes a certificate from a file only; the key is on the disk for as long as it takes to be read, for us alone.
            handle, path = tempfile.mkstemp()
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(certificate + b"\n" + key)
                context.load_cert_chain(path)
            except ssl.SSLError:
                raise ExhumeError(f"the client certificate of {self.described} and its key cannot be used together") from None
            finally:
                os.unlink(path)
        return context

    def _authorization(self) -> dict[str, str]:
        access, token = self._access, self._access.token
        if access.token_file:
            try:
                token = Path(access.token_file).read_text(encoding="ascii").strip()
            except (OSError, ValueError):
                raise ExhumeError(f"the token in {printable(access.token_file)} cannot be read") from None
        elif access.exec is not None:
            before = self._credential
            if before is None or (before.expires_s is not None and before.expires_s - _EARLY_S < time.time()):
                self._credential = credentials.ask(access.exec)
                if before is not None and before.certificate != self._credential.certificate:
                    self.close()
            assert self._credential is not None
            token = self._credential.token
        if not token.isprintable():
            raise ExhumeError(f"the token of {self.described} holds what no token may")
        return {"Authorization": f"Bearer {token}"} if token else {}


class _Named(http.client.HTTPSConnection):
    """TLS where the server's certificate may be for another name than its address (tls-server-name)."""

    def __init__(self, host: str, port: int, name: str, context: ssl.SSLContext, patience_s: float) -> None:
        super().__init__(host, port, timeout=patience_s, context=context)
        self._name, self._tls = name or host, context

    def connect(self) -> None:
        http.client.HTTPConnection.connect(self)
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def connect(context: str = "") -> Client:
    return Client(find(context))


def _document(raw: bytes) -> Document | None:
    try:
        told = json.loads(raw)
    except (ValueError, RecursionError):
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
