"""Serving a view on a socket that listens already, until Ctrl-C."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType

import uvicorn

from exhume.web.application import application
from exhume.web.listening import Listening
from exhume.web.view import View

_AT_ONCE = 100
_PATIENCE_S = 1


class _Server(uvicorn.Server):
    """Ends what is being worked out as soon as it is told to end, and not after waiting for it."""

    def __init__(self, config: uvicorn.Config, view: "Future[View]") -> None:
        super().__init__(config)
        self._view = view

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        _stop(self._view)
        super().handle_exit(sig, frame)


def serve(make: Callable[[], View], listening: Listening) -> None:
    """Until a signal ends it; then KeyboardInterrupt, or whatever the handler of that signal does. The view is made while
    the page's files are served already; what goes wrong with it ends it, and is raised."""
    view: Future[View] = Future()
    view.set_running_or_notify_cancel()  # a request that is given up does not cancel it
    config = uvicorn.Config(
        application(view, listening.token, listening.host, listening.port),
        log_config=None,
        log_level="critical",
        access_log=False,
        lifespan="off",
        http="h11",
        ws="none",
        loop="asyncio",
        interface="asgi3",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_AT_ONCE,
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    server = _Server(config, view)

    def made() -> None:
        try:
            found = make()
            found.start()
            view.set_result(found)
        except BaseException as error:
            view.set_exception(error)
            server.should_exit = True

    threading.Thread(target=made, name="exhume-opens", daemon=True).start()
    try:
        server.run(sockets=[listening.socket])
    finally:
        _stop(view)
    if view.done() and (error := view.exception()) is not None:
        raise error


def _stop(view: "Future[View]") -> None:
    if view.done() and view.exception() is None:
        view.result().stop()
