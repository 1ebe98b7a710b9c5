"""Between a client and a server on loopback: it hands through, or is silent, talks nonsense, hangs up, is not there at all."""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Literal, TypeVar

T = TypeVar("T")
State = Literal["through", "silent", "nonsense", "hangs up", "away"]
STATES: tuple[State, ...] = ("through", "silent", "nonsense", "hangs up", "away")
_NONSENSE = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"


class Relay:
    """In a thread of its own. Connections that are there when it becomes something else are cut."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._state: State = "through"
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.came = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = 0
        self.port = self._do(self._listen())

    def become(self, state: State) -> None:
        self._do(self._become(state))

    def close(self) -> None:
        self._do(self._become("away"))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(120)
        self._loop.close()

    def _do(self, what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, self._loop).result(20)

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _become(self, state: State) -> None:
        self._state = state
        if state == "away" and self._server is not None:
            self._server.close()
            self._server = None
        for writer in tuple(self._open):
            writer.transport.abort()
        await asyncio.sleep(0.05)  # for those who served them to notice
        if state != "away" and self._server is None:
            await self._listen()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        self._open.add(writer)
        try:
            if self._state == "silent":
                while await reader.read(65536):
                    pass
            elif self._state == "nonsense":
                writer.write(_NONSENSE)
                await writer.drain()
            elif self._state == "through":
                await self._hand_through(reader, writer)
        except OSError:
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()

    async def _hand_through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, to_behind = await asyncio.open_connection("127.0.0.1", self._behind)
        try:
            ways = [asyncio.create_task(_pump(reader, to_behind)), asyncio.create_task(_pump(behind, writer))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        finally:
            to_behind.transport.abort()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
