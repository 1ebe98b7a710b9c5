"""What goes over the wire: who we say we are, what an address brings along, and how long an answer may take."""

import base64
import http.server
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exhume.errors import ExhumeError
from exhume.fleet.prometheus_query import TOKEN_FILE, Client

NOW = b'{"status":"success","data":{"resultType":"scalar","result":[%.3f,"%.3f"]}}'
Behaviour = Callable[[http.server.BaseHTTPRequestHandler], None]


def good(handler: http.server.BaseHTTPRequestHandler, now: float | None = None) -> None:
    at = time.time() if now is None else now
    body = NOW % (at, at)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def serving(behaves: Behaviour) -> Iterator[tuple[str, list[http.server.BaseHTTPRequestHandler]]]:
    came: list[http.server.BaseHTTPRequestHandler] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def do_GET(self) -> None:
            came.append(self)
            behaves(self)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}", came
        finally:
            server.shutdown()
            thread.join(120)


def test_a_name_and_a_password_in_the_address_are_sent_and_a_tenant_goes_along() -> None:
    with serving(good) as (address, came):
        Client(f"http://me:s%40cret@{address}/prom/?tenant=7").now_s()
    assert came[0].headers["Authorization"] == "Basic " + base64.b64encode(b"me:s@cret").decode()
    assert came[0].path == "/prom/api/v1/query?tenant=7"


def test_a_token_is_read_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("abc\n")
    monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
    with serving(good) as (address, came):
        Client(f"http://{address}").now_s()
        assert came[0].headers["Authorization"] == "Bearer abc"
        (tmp_path / "token").write_text("abc\ndef")
        with pytest.raises(ExhumeError, match="holds no valid token"):
            Client(f"http://{address}").now_s()
        (tmp_path / "token").unlink()
        with pytest.raises(ExhumeError, match="cannot be read"):
            Client(f"http://{address}").now_s()


def test_a_gateway_that_takes_no_forms_is_asked_by_address() -> None:
    def behaves(handler: http.server.BaseHTTPRequestHandler) -> None:
        if handler.command == "POST":
            handler.send_error(405)
        else:
            good(handler)

    with serving(behaves) as (address, came):
        client = Client(f"http://{address}?tenant=7")
        client.now_s()
        client.now_s()
    assert [each.command for each in came] == ["POST", "GET", "GET"]
    assert came[1].path.startswith("/api/v1/query?query=time")
    assert came[1].path.endswith("&tenant=7")
    assert client.troubles == ()


def test_a_clock_that_is_minutes_away_is_said_and_the_servers_counts() -> None:
    theirs = time.time() - 600
    with serving(lambda handler: good(handler, theirs)) as (address, _):
        client = Client(f"http://{address}")
        assert client.now_s() == pytest.approx(theirs, abs=0.01)
    assert client.troubles == (f"http://{address}: its clock is 10 min from this one's; its own is used (1 time)",)


def test_an_answer_that_dribbles_is_not_waited_for_without_end() -> None:
    """A byte now and then keeps every single wait short: only a deadline for the whole ends it."""
    over = threading.Event()

    def behaves(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            while not over.wait(0.02):
                handler.wfile.write(b" ")
        except OSError:
            pass

    with serving(behaves) as (address, came):
        try:
            with pytest.raises(ExhumeError, match=r"does not answer: no answer within 300 ms"):
                Client(f"http://{address}", timeout_s=0.3, sleep=lambda _: None).now_s()
        finally:
            over.set()
    assert len(came) == 2


def test_an_endless_answer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.fleet.prometheus_query.LIMIT_BYTES", 10_000)

    def behaves(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b" " * 20_000)

    with serving(behaves) as (address, _), pytest.raises(ExhumeError, match="the reply is larger than"):
        Client(f"http://{address}").now_s()


def test_elsewhere_is_not_followed() -> None:
    def behaves(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", "http://127.0.0.1:1/")
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    with serving(behaves) as (address, came), pytest.raises(ExhumeError, match="it sends elsewhere, which is not followed"):
        Client(f"http://{address}").now_s()
    assert len(came) == 1


def test_where_nobody_is_that_is_said_at_once_and_who_was_there_is_waited_for() -> None:
    slept: list[float] = []
    with serving(good) as (address, _):
        was_there = Client(f"http://{address}", sleep=slept.append)
        was_there.now_s()
    with pytest.raises(ExhumeError, match="does not answer: Connection refused"):
        Client(f"http://{address}", sleep=slept.append).now_s()
    assert slept == []
    with pytest.raises(ExhumeError, match="asked 6 times in vain: Connection refused"):
        was_there.now_s()
    assert len(slept) == 5
