"""Connections on which nothing is asked: whoever is on the machine can open them, without the token, and must not take up the
places of the one who has it.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

# How long a request may take to arrive: a browser sends it at once.
SILENT_S = 10.0
# Those that wait for a request at the same time; of more, the one that waits longest is closed.
MOST_WAITING = 64

_waiting: "dict[Connection, asyncio.TimerHandle]" = {}
"""In the order in which they began to."""


class Connection(H11Protocol):
    """As uvicorn has it, which waits for ever for the first request, and for the rest of one that has begun."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._look()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def _look(self) -> None:
        answering = self.cycle is not None and not self.cycle.response_complete
        if answering or self.transport.is_closing():
            self._leave()
        elif self not in _waiting:
            _waiting[self] = self.loop.call_later(SILENT_S, self._close)
            while len(_waiting) > MOST_WAITING:
                next(iter(_waiting))._close()

    def _close(self) -> None:
        self._leave()
        self.transport.close()

    def _leave(self) -> None:
        if (timer := _waiting.pop(self, None)) is not None:
            timer.cancel()
