"""The files of the page: a fixed table, read once at start. No path of a request ever reaches the file system."""

import hashlib
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
INDEX = "index.html"


class File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def table() -> dict[str, File]:
    """By path as it is asked for: `/` and `/main.js`. Tests of the page and settings of its checker stay where they are."""
    found = {}
    for entry in files("exhume.web").joinpath("static").iterdir():
        kind = entry.name.rpartition(".")[2]
        if kind in _TYPES and entry.is_file():
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[f"/{entry.name}"] = File(content, _TYPES[kind], etag)
    if f"/{INDEX}" in found:
        found["/"] = found[f"/{INDEX}"]
    return found


def reply(file: File, request: Request) -> Response:
    """A browser asks each time whether its copy is still right, since another version may serve on this port tomorrow."""
    headers = {"ETag": file.etag, "Cache-Control": "no-cache"}
    if file.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)
