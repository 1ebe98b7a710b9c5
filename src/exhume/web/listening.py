"""Where a view is served: a socket on loopback unless another address was asked for, and the address to tell.

It loads next to nothing: a browser that is told of it begins to load the page while the server is still getting ready.
"""

import hashlib
import secrets
import socket

from exhume.errors import ExhumeError, UsageError

_WAITING = 64


def new_token() -> str:
    return secrets.token_urlsafe(32)


def directory(token: str) -> str:
    """The path below which the page is served, which does not give the token away.

    Cookies know no port. One for this path alone goes to no other server on the same host, because none knows the path.
    """
    return f"/{hashlib.sha256(b'path of ' + token.encode()).hexdigest()[:32]}/"


class Listening:
    """Listens from the moment it is made, so that its address can be told before it answers."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = _listen(host, port)
        self.host, self.port = host, int(self.socket.getsockname()[1])
        self.token = new_token()

    @property
    def url(self) -> str:
        """On every address there is one that always leads here from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}{directory(self.token)}?token={self.token}"


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
