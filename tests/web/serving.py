"""A view of a recording without a socket: the application behind its guard, asked as uvicorn would ask it."""

import base64
import json
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlencode

import anyio
import numpy as np
from numpy.typing import NDArray

from exhume.recording.folder import Folder
from exhume.web.application import application
from exhume.web.incidents import Incidents
from exhume.web.opening import Opening
from exhume.web.security import App
from exhume.web.store import Store
from exhume.web.view import View

TOKEN = "t" * 43
HOST, PORT = "127.0.0.1", 8431
Headers = Mapping[str, "str | bytes"]


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes = b""

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True, slots=True)
class Browser:
    """Whoever asks: with the token, unless there is none."""

    app: App
    token: str | None = TOKEN

    def ask(
        self, method: str, path: str, query: Mapping[str, object] | str = "", headers: Headers | None = None, more: Any = ()
    ) -> Answer:
        """`more` are further headers, also of a name that there is already. The path is as it stands in the request's line."""
        given: dict[str, str | bytes] = {"Host": f"{HOST}:{PORT}"}
        if self.token is not None:
            given["X-Exhume-Token"] = self.token
        rows = [*{**given, **(headers or {})}.items(), *more]
        path, _, told = path.partition("?")
        text = query if isinstance(query, str) else urlencode({name: str(value) for name, value in query.items()})
        scope = {
            "type": "http",
            "method": method,
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": (text or told).encode(),
            "headers": [(name.lower().encode(), _bytes(value)) for name, value in rows],
            "server": (HOST, PORT),
            "client": ("127.0.0.1", 40_000),
            "scheme": "http",
            "http_version": "1.1",
        }
        return anyio.run(_asked, self.app, scope)

    def get(self, path: str, query: Mapping[str, object] | str = "", headers: Headers | None = None) -> Answer:
        return self.ask("GET", path, query, headers)

    def api(self, path: str, **query: object) -> Any:
        """An answer that must be one. A parameter that Python keeps for itself is written `from_`."""
        answer = self.get(f"/api/{path}", {name.rstrip("_"): value for name, value in query.items()})
        assert answer.status == 200, answer.content
        return answer.json()


async def _asked(app: App, scope: MutableMapping[str, Any]) -> Answer:
    answer = Answer()

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            for name, value in message["headers"]:
                assert name.decode() not in answer.headers, f"{name!r} twice"
                answer.headers[name.decode()] = value.decode("latin-1")
        elif message["type"] == "http.response.body":
            answer.content += message.get("body", b"")

    await app(scope, receive, send)
    return answer


def _bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode("latin-1")


def view(path: str, ready: bool = True) -> View:
    """With its outline read, and without incidents unless a test brings some."""
    store = Store(Folder(path), "recording")
    found = View(store, None, Incidents(store, lambda *_: []))
    if ready:
        found.builder.update()
    return found


def browser(shown: View, token: str | None = TOKEN, host: str = HOST) -> Browser:
    return Browser(application(Opening.done(shown), TOKEN, host, PORT), token)


def decoded(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(base64.b64decode(text), dtype=np.uint8)
