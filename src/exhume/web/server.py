"""Serving a view on a socket that listens already, until Ctrl-C."""

import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from exhume.web.application import application
from exhume.web.connections import Connection
from exhume.web.listening import Listening
from exhume.web.opening import Opening

if TYPE_CHECKING:
    from exhume.web.view import View

_PATIENCE_S = 1
# How long what a view takes is not loaded for the sake of a page that draws its first picture: two at once take longer.
_LOADS_S = 1.0


class _Server(uvicorn.Server):
    """Ends what is being worked out as soon as it is told to end, and not after waiting for it."""

    def __init__(self, config: uvicorn.Config, opening: Opening) -> None:
        super().__init__(config)
        self._opening = opening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._opening.stop()
        super().handle_exit(sig, frame)


def serve(make: "Callable[[], View]", listening: Listening, early: Callable[[], bytes | None] | None = None) -> None:
    """Until a signal ends it; then KeyboardInterrupt, or whatever the handler of that signal does. The view is made while
    the page's files are served already; what goes wrong with it ends it, and is raised. `early` waits for what answers the
    page's first question without a view, if anything can."""
    opening = Opening()
    config = uvicorn.Config(
        application(opening, listening.token, listening.host, listening.port),
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        http=Connection,
        ws="none",
        loop="asyncio",
        interface="asgi3",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    server = _Server(config, opening)

    def made() -> None:
        try:
            first = early() if early is not None else None
            opening.early.set_result(first)
            if first is not None:
                opening.drawn.wait(_LOADS_S)
            found = make()
            found.start()
            opening.view.set_result(found)
        except BaseException as error:
            opening.failed(error)
            server.should_exit = True

    threading.Thread(target=made, name="exhume-opens", daemon=True).start()
    try:
        server.run(sockets=[listening.socket])
    finally:
        opening.stop()
    if opening.view.done() and (error := opening.view.exception()) is not None:
        raise error
