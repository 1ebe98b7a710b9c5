"""The application: the page's files and its questions, each answered in a thread, behind the guard."""

import asyncio
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response

from exhume.errors import ExhumeError, NotYet
from exhume.text import printable
from exhume.web import static_files
from exhume.web.opening import Opening
from exhume.web.replies import Complaint, Download, answer, error
from exhume.web.security import App, Guard, Receive, Scope, Send

if TYPE_CHECKING:
    from exhume.web.parameters import Query
    from exhume.web.view import View

_WINDOW = ("from", "to")
_FILTERS = ("cores", "comm", "pid", "tid", "cgroup", "idle")
# Questions at once, by their weight: a slow one must not keep the page from asking how far a live recording has got, and a
# verdict on days not that on a selection, nor a download.
_AT_ONCE = {"light": 4, "heavy": 2, "verdict": 2, "export": 1}
_SLOW = ("verdict", "export")
_LOOK_S = 0.5


# What answers is loaded when it is asked for, and can be answered: until then the page's files are served.
def _first(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.first import first

    return first(view, query)


def _about(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.overview import about

    return about(view, query)


def _overview(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.overview import overview

    return overview(view, query)


def _lanes(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.lanes import lanes

    return lanes(view, query)


def _heat(view: "View", query: "Query") -> dict[str, Any]:
    from exhume.web.heat import heat

    return heat(view, query)


def _flame(view: "View", query: "Query") -> dict[str, Any]:
    _ = view.store.whole
    from exhume.web.flame import flame

    return flame(view, query)


def _verdict(view: "View", query: "Query") -> dict[str, Any]:
    _ = view.store.whole
    from exhume.web.verdicts import verdict

    return verdict(view, query)


def _export(view: "View", query: "Query") -> Download:
    from exhume.web.exports import export

    return export(view, query)


class Endpoint(NamedTuple):
    answer: "Callable[[View, Query], dict[str, Any] | Download]"
    parameters: Sequence[str]
    weight: str


_FIRST, _DOWNLOAD = "/api/first", "/api/export"
ENDPOINTS = {
    _FIRST: Endpoint(_first, (), "light"),
    "/api/about": Endpoint(_about, (), "light"),
    "/api/overview": Endpoint(_overview, ("columns",), "light"),
    "/api/lanes": Endpoint(_lanes, (*_WINDOW, "columns", "cores"), "light"),
    "/api/heat": Endpoint(_heat, (*_WINDOW, *_FILTERS, "symbol"), "heavy"),
    "/api/flame": Endpoint(_flame, (*_WINDOW, *_FILTERS, "by", "reverse", "base", "base_from", "base_to"), "heavy"),
    "/api/verdict": Endpoint(_verdict, _WINDOW, "verdict"),
    _DOWNLOAD: Endpoint(_export, (*_WINDOW, *_FILTERS, "format"), "export"),
}


class Application:
    """Without the guard: see `application`."""

    def __init__(self, opening: Opening, files: Mapping[str, static_files.File]) -> None:
        self._opening = opening
        self._view = opening.view
        self._files = files
        self._limits: dict[str, anyio.CapacityLimiter] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        response = await self._respond(request)
        if request.method == "HEAD":
            response.body = b""  # its length has been told already
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        path = request.scope["path"]
        if path in self._files:
            return static_files.reply(self._files[path], request)
        endpoint = ENDPOINTS.get(path)
        if endpoint is None:
            return error(404, "there is nothing at this address")
        if path != _FIRST:
            self._opening.drawn.set()
        elif not self._view.done():
            early = await asyncio.wrap_future(self._opening.early)
            if early is not None:
                return Response(early, media_type="application/json")
        try:
            async with self._limit(endpoint.weight):
                if await request.is_disconnected():  # it was asked for while somebody panned, and is not wanted any more
                    return error(503, "nobody waits for this")
                view = await asyncio.wrap_future(self._view) if not self._view.done() else self._view.result()
                query = _query(request, endpoint)
                if endpoint.weight in _SLOW:
                    return await self._slow(request, view, endpoint, query)
                with view.quiet.asking():
                    return await anyio.to_thread.run_sync(self._made, view, endpoint, query, abandon_on_cancel=True)
        except Complaint as complaint:
            return error(complaint.status, complaint.sentence, complaint.parameter)
        except NotYet:
            return self._later(asked_again=path != _DOWNLOAD)
        except ExhumeError as failure:
            return error(503, printable(str(failure), 400))
        except Exception as bug:
            if os.environ.get("EXHUME_TRACEBACK"):
                raise
            told = f"{type(bug).__name__}: {printable(str(bug), 200)}"
            sys.stderr.write(f"exhume: a bug in exhume view, at {path}: {told}\n")
            return error(500, f"a bug in exhume: {told}")

    async def _slow(self, request: Request, view: "View", endpoint: Endpoint, query: "Query") -> Response:
        """Given up, as far as it can be, when nobody waits for it any more."""

        async def watch() -> None:
            while not await request.is_disconnected():
                await asyncio.sleep(_LOOK_S)
            query.unwanted.set()
            view.judges.end_unwanted()

        watching = asyncio.ensure_future(watch())
        try:
            return await anyio.to_thread.run_sync(self._made, view, endpoint, query, abandon_on_cancel=True)
        finally:
            watching.cancel()

    def _later(self, asked_again: bool) -> Response:
        """What was asked for is still being imported, or could not be. The page asks again, but a download is not asked for
        by the page."""
        store = self._view.result().store
        if store.failed or not asked_again:
            return error(503, store.failed or store.waiting)
        return answer({"not_yet": store.waiting, "share": round(store.share, 3)}, 202)

    def _made(self, view: "View", endpoint: Endpoint, query: "Query") -> Response:
        """In a thread: making JSON of a large tree takes its time, too."""
        found = endpoint.answer(view, query)
        return found.reply() if isinstance(found, Download) else answer(found)

    def _limit(self, weight: str) -> anyio.CapacityLimiter:
        """Made where they are used: they belong to an event loop."""
        if weight not in self._limits:
            self._limits[weight] = anyio.CapacityLimiter(_AT_ONCE[weight])
        return self._limits[weight]


def _query(request: Request, endpoint: Endpoint) -> "Query":
    from exhume.web.parameters import Query

    return Query(request.scope.get("query_string", b""), endpoint.parameters)


def application(opening: Opening, token: str, host: str, port: int) -> App:
    """The view may still be made; until then only the page's files are there, and perhaps what it asks for first."""
    return Guard(Application(opening, static_files.table()), token, host, port)
