"""Connections of those who only hold them keep nobody else out."""

import asyncio
import socket
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from exhume.web import connections
from exhume.web.connections import Connection
from tests.web.test_server import got, served


def test_silent_connections_do_not_keep_the_owner_out(recorded: str) -> None:
    with served(recorded) as (_, url):
        base, _, token = url.partition("/?token=")
        host, _, port = base.rpartition("/")[0].removeprefix("http://").partition(":")
        held = [socket.create_connection((host, int(port))) for _ in range(150)]
        try:
            for each in held[::2]:
                each.sendall(b"GET / HTTP/1.1\r\n")  # and nothing more
            for _ in range(3):
                assert got(f"{base}/api/about", token)[0] == 200
            held[0].settimeout(10)
            assert held[0].recv(1) == b""  # the oldest made room
        finally:
            for each in held:
                each.close()


@pytest.mark.parametrize("begun", [b"", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTT"])
def test_what_is_never_asked_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    """Neither the first request nor the rest of one. An answer that takes longer is not cut off."""
    monkeypatch.setattr(connections, "SILENT_S", 0.2)

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        await asyncio.sleep(0.5)
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    async def held() -> bytes:
        config = uvicorn.Config(slow, log_config=None, lifespan="off", ws="none")
        config.load()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Connection(config, ServerState(), {}), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(begun)
        found = await asyncio.wait_for(reader.read(), 120)
        writer.close()
        server.close()
        return found

    found = asyncio.run(held())
    assert found.endswith(b"ok") == (b"\r\n\r\n" in begun)
    assert not connections._waiting
