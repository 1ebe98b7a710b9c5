"""Serving: a socket on loopback unless another address was asked for, until Ctrl-C."""

import socket
from types import FrameType

import uvicorn

from exhume.errors import ExhumeError, UsageError
from exhume.web.application import application
from exhume.web.security import new_token
from exhume.web.view import View

_WAITING = 64
_AT_ONCE = 100
_PATIENCE_S = 1


class _Server(uvicorn.Server):
    """Ends what is being worked out as soon as it is told to end, and not after waiting for it."""

    def __init__(self, config: uvicorn.Config, view: View) -> None:
        super().__init__(config)
        self._view = view

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._view.stop()
        super().handle_exit(sig, frame)


class Server:
    """Listens from the moment it is made, so that its address can be told before it answers."""

    def __init__(self, view: View, host: str, port: int) -> None:
        self._view = view
        self._socket = _listen(host, port)
        self.host, self.port = host, int(self._socket.getsockname()[1])
        self.token = new_token()

    @property
    def url(self) -> str:
        """On every address there is one that always leads here from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/?token={self.token}"

    def run(self) -> None:
        """Until a signal ends it; then KeyboardInterrupt, or whatever the handler of that signal does."""
        config = uvicorn.Config(
            application(self._view, self.token, self.host, self.port),
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
        self._view.start()
        try:
            _Server(config, self._view).run(sockets=[self._socket])
        finally:
            self._view.stop()
            self._socket.close()


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (socket.gaierror, UnicodeError):
        raise UsageError(f"--host {host} is no address of a network: say 127.0.0.1, or one that this machine has") from None
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(_WAITING)
    except OSError as error:
        listening.close()
        raise ExhumeError(f"{host}:{port} cannot be served on: {error.strerror}; --port names another one") from error
    return listening
