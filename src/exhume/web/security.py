"""Who may ask: every request is looked at here before anything else sees it, whatever its path.

A page of another site can make a browser send requests to a server on loopback. It cannot choose the Host that goes with
its own name (which stops DNS rebinding), it cannot hide its Origin, and it does not know the token of this start.
"""

import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from exhume.web.listening import directory
from exhume.web.replies import error

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
LOOPBACK = ("127.0.0.1", "localhost", "::1")
_EVERY = ("0.0.0.0", "::", "")
_METHODS = ("GET", "HEAD")


def cookie_name(port: int) -> str:
    """With the port, for people who look at their cookies: the path tells views apart (listening.directory)."""
    return f"exhume_token_{port}"


class Guard:
    """Host, Origin, token and method, in this order; and the headers that every answer has."""

    def __init__(self, app: App, token: str, host: str, port: int) -> None:
        if not token:
            raise ValueError("without a token nobody could be told apart")
        self._app = app
        self._token = token.encode("ascii")
        self._port = port
        self._cookie = cookie_name(port)
        self._directory = directory(token)
        self._everywhere = host in _EVERY
        self._hosts = _authorities(LOOPBACK if host in (*LOOPBACK, *_EVERY) else (host,), port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            return
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, self._telling(send, None))
            return
        path = scope["path"]
        if self._private(scope):
            path = path[len(self._directory) - 1 :]
        await self._app({**scope, "path": path}, receive, self._telling(send, self._new_cookie(scope)))

    def _private(self, scope: Scope) -> bool:
        """Whether it is below the path that only the page knows. The same is to be had without it, by query or header."""
        return bool(scope["path"].startswith(self._directory))

    def _refusal(self, scope: Scope) -> App | None:
        hosts, origins = _all(scope, b"host"), _all(scope, b"origin")
        ours = self._ours(scope)
        if len(hosts) != 1 or hosts[0].lower() not in ours:
            return error(421, "this server does not answer for that host: open the address that exhume view printed")
        if any(origin.lower() not in {f"http://{name}" for name in ours} for origin in origins):
            return error(403, "requests of other sites are refused")
        if not any(self._is_token(given) for given in self._given(scope)):
            return error(401, "the token is missing or of another start: open the address that exhume view printed")
        if scope["method"] not in _METHODS:
            return error(405, "only GET and HEAD are understood", headers={"Allow": ", ".join(_METHODS)})
        return None

    def _ours(self, scope: Scope) -> Collection[str]:
        """Served on every address, the one that the connection came in by counts: it is a number, no other site's name."""
        server = scope.get("server")
        if not self._everywhere or not server:
            return self._hosts
        return self._hosts | _authorities((str(server[0]),), self._port)

    def _given(self, scope: Scope) -> list[bytes]:
        """Every token that came along."""
        query = parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True, max_num_fields=None)
        found = [value for name, value in query if name == "token"] + _all(scope, b"x-exhume-token")
        for line in _all(scope, b"cookie") if self._private(scope) else ():
            found += [value for name, value in _cookies(line) if name == self._cookie]
        return [value.encode("utf-8", "surrogateescape") for value in found]

    def _is_token(self, given: bytes) -> bool:
        return hmac.compare_digest(given, self._token)

    def _new_cookie(self, scope: Scope) -> bytes | None:
        """For the first load of the page, which has the token in its address."""
        if scope["path"] != self._directory or b"token=" not in scope.get("query_string", b""):
            return None
        name, path = self._cookie.encode(), self._directory.encode()
        return b"%s=%s; Path=%s; HttpOnly; SameSite=Strict" % (name, self._token, path)

    def _telling(self, send: Send, cookie: bytes | None) -> Send:
        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), *HEADERS]
                if not any(name.lower() == b"cache-control" for name, _ in headers):
                    headers.append((b"cache-control", b"no-store"))
                if cookie is not None:
                    headers.append((b"set-cookie", cookie))
                message = {**message, "headers": headers}
            await send(message)

        return told


def _authorities(names: Collection[str], port: int) -> frozenset[str]:
    """Names as a Host header has them; without the port where it is the one that browsers leave out."""
    spoken = [f"[{name}]" if ":" in name else name.lower() for name in names]
    return frozenset(f"{name}:{port}" for name in spoken) | frozenset(spoken if port == 80 else ())


def _all(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name.lower() == wanted]


def _cookies(line: str) -> list[tuple[str, str]]:
    """By hand: what other programs on loopback have set must not hide ours, however it is written."""
    pairs = (part.partition("=") for part in line.split(";"))
    return [(name.strip(), value.strip()) for name, _, value in pairs]
