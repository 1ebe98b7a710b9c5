"""The client of the API server: objects, lists by pages, patches, and who we are. One connection; not for several threads."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from urllib.parse import quote, urlencode, urlsplit

from exhume.cluster import credentials
from exhume.cluster.document import MANAGER, Document, list_in, text_in
from exhume.cluster.kubeconfig import Access, find
from exhume.cluster.replies import ApiError, Unreachable, refusal
from exhume.errors import ExhumeError
from exhume.host.http import client as http
from exhume.text import from_json, printable

TIMEOUT_S = 30.0
PAGE = 500
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
# A token of an exec plugin is renewed so long before it ends.
_EARLY_S = 30.0


class Client:
    def __init__(self, access: Access, timeout_s: float = TIMEOUT_S) -> None:
        self._access, self._timeout_s = access, timeout_s
        self._base = urlsplit(access.server).path
        self._http: http.Client | None = None
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
        target = quote(self._base + path, safe="/") + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        reply = self._send(method, target, data, kind)
        if reply.status == 401 and self._credential is not None:
            # The API server refuses the plugin's credential, whatever its expiry says: run the plugin again, once.
            self.close()
            self._credential = None
            reply = self._send(method, target, data, kind)
        if reply.status >= 300:
            raise refusal(method, path, reply.status, _document(reply.body) or {}, reply.retry_after_s)
        return reply.body

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, method: str, target: str, data: bytes | None, kind: str) -> http.Reply:
        """Every request may be sent twice: a patch sets values, and an object that exists is not created again."""
        access = self._access
        headers = [("Accept", "application/json" if kind else "application/json, */*"), *self._authorization().items()]
        headers += access.impersonated
        if data is not None:
            headers.append(("Content-Type", kind))
        try:
            if self._http is None:
                mine = self._credential or credentials.Credential()
                certificate, key = mine.certificate or access.certificate, mine.key or access.key
                tls = http.Tls(access.authority, certificate, key, access.server_name, access.insecure)
                self._http = http.Client(access.server, timeout_s=self._timeout_s, keep=True, tls=tls, proxy=access.proxy)
            return self._http.request(method, target, headers, data)
        except http.RequestError as error:
            if error.kind == "settings":
                raise ExhumeError(f"{self.described}: {error}") from None
            if error.kind == "size":
                raise ExhumeError(f"{method} {printable(target)} of the API server: {error}") from None
            raise Unreachable(f"the API server at {printable(access.server)} cannot be reached: {error}") from None

    def _authorization(self) -> dict[str, str]:
        """A token file wins over a token, and a token over a plugin (client-go: HTTPWrappersForConfig)."""
        access, token = self._access, self._access.token
        if access.token_file and (not token or os.access(access.token_file, os.R_OK)):
            token = http.read_token(access.token_file)
        elif access.exec is not None and not token:
            before = self._credential
            if before is None or (before.expires_s is not None and before.expires_s - _EARLY_S < time.time()):
                self._credential = credentials.ask(access.exec)
                if before is not None and before.certificate != self._credential.certificate:
                    self.close()
            assert self._credential is not None
            token = self._credential.token
        return {"Authorization": f"Bearer {http.check_token(token, self.described)}"} if token else {}


def connect(context: str = "") -> Client:
    return Client(find(context))


def _document(raw: bytes) -> Document | None:
    try:
        told = from_json(raw)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


__all__ = ["MERGE", "STRATEGIC", "ApiError", "Client", "connect"]
