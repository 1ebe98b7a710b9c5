"""Answers: JSON, and errors as one sentence for people."""

import json
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

from starlette.responses import Response


class Complaint(Exception):
    """A request that cannot be answered, with the status and the sentence that say why."""

    def __init__(self, status: int, sentence: str, parameter: str | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.parameter = parameter


class Download(NamedTuple):
    """An answer that is to be kept as a file."""

    name: str
    media_type: str
    parts: list[bytearray]

    def reply(self) -> Response:
        return _Parts(self)


class _Parts(Response):
    """Sent a part at a time: joined, all of it would be in memory twice."""

    def __init__(self, download: Download) -> None:
        size = sum(map(len, download.parts))
        headers = {"Content-Disposition": f'attachment; filename="{download.name}"', "Content-Length": str(size)}
        super().__init__(None, media_type=download.media_type, headers=headers)
        self._parts = download.parts

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if scope["method"] != "HEAD":
            while self._parts:
                await send({"type": "http.response.body", "body": bytes(self._parts.pop(0)), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def answer(document: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Names may hold anything, halves of surrogate pairs too: escaped, all of it is ASCII."""
    body = json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")
    return Response(body, status, media_type="application/json", headers=headers)


def error(status: int, sentence: str, parameter: str | None = None, headers: Mapping[str, str] | None = None) -> Response:
    return answer({"error": sentence, "parameter": parameter}, status, headers)
