"""Every rule on every path: host, origin, token, method, and what every answer says about itself."""

import email.message
import urllib.request
from http.cookiejar import CookieJar

import anyio
import pytest

from exhume.web.application import ENDPOINTS
from exhume.web.listening import directory, new_token
from exhume.web.security import POLICY, Guard, cookie_name
from exhume.web.static_files import table
from tests.web.serving import HOST, PORT, TOKEN, Browser, browser, view

PAGE = directory(TOKEN)
PATHS = ("/", "/index.html", "/state.js", *ENDPOINTS, "/api/", "/api/nothing", "/nothing", "/../etc/passwd", "/favicon.ico")


@pytest.fixture(scope="module")
def stranger(recorded: str) -> Browser:
    """Somebody who knows the address and not the token."""
    return browser(view(recorded), token=None)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"])
def test_without_the_token_nothing_is_answered(stranger: Browser, path: str, method: str) -> None:
    answer = stranger.ask(method, path)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("token", ["", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é", "\x00", TOKEN + "\x00"])
def test_a_wrong_token_is_none(stranger: Browser, path: str, token: str) -> None:
    assert stranger.get(path, {"token": token}).status == 401
    assert stranger.get(path, headers={"X-Exhume-Token": token.encode("latin-1")}).status == 401
    assert stranger.get(path, headers={"Cookie": f"{cookie_name(PORT)}={token}".encode("latin-1")}).status == 401


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", ""),
        *(f"localhost:{PORT}.evil.example", f"user@127.0.0.1:{PORT}", f"0.0.0.0:{PORT}", f"127.0.0.2:{PORT}"),
    ],
)
def test_another_host_is_refused_even_with_the_token(user: Browser, path: str, host: str) -> None:
    assert user.get(path, headers={"Host": host}).status == 421


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", f"https://127.0.0.1:{PORT}", "http://127.0.0.1", f"http://127.0.0.1:{PORT}0", ""]
)
def test_another_origin_is_refused_even_with_the_token(user: Browser, path: str, origin: str) -> None:
    assert user.get(path, headers={"Origin": origin}).status == 403


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"])
def test_only_get_and_head_are_understood(user: Browser, path: str, method: str) -> None:
    answer = user.ask(method, path)
    assert answer.status == 405
    assert answer.headers["allow"] == "GET, HEAD"


def test_rules_are_looked_at_in_order(stranger: Browser) -> None:
    foreign = {"Host": "evil.example", "Origin": "https://evil.example"}
    assert stranger.ask("POST", "/", headers=foreign).status == 421
    assert stranger.ask("POST", "/", headers={"Origin": foreign["Origin"]}).status == 403
    assert stranger.ask("POST", "/").status == 401


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_loopback_has_three_names(user: Browser, host: str) -> None:
    authority = f"{host}:{PORT}"
    answer = user.get("/api/about", headers={"Host": authority, "Origin": f"http://{authority}"})
    assert answer.status == 200


@pytest.mark.parametrize("path", [*PATHS, "/?token=wrong"])
def test_every_answer_has_the_headers(user: Browser, stranger: Browser, path: str) -> None:
    for answer in (user.get(path), stranger.get(path), user.ask("POST", path), user.get(path, headers={"Host": "x"})):
        assert answer.headers["content-security-policy"] == POLICY
        assert "unsafe" not in POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] in ("no-store", "no-cache")
        assert "access-control-allow-origin" not in answer.headers


def test_data_is_never_stored(user: Browser) -> None:
    for path in ENDPOINTS:
        assert user.get(path).headers["cache-control"] == "no-store"


def test_the_first_page_sets_a_cookie_that_scripts_and_other_sites_cannot_use(stranger: Browser) -> None:
    answer = stranger.get(PAGE, {"token": TOKEN})
    assert answer.headers["set-cookie"] == f"exhume_token_{PORT}={TOKEN}; Path={PAGE}; HttpOnly; SameSite=Strict"
    assert stranger.get(f"{PAGE}api/about", headers={"Cookie": f"a=b; {cookie_name(PORT)}={TOKEN}; c"}).status == 200
    for path in ("/api/about", f"{PAGE}api/about", "/"):
        assert "set-cookie" not in stranger.get(path, {"token": TOKEN}).headers


def test_another_server_on_this_host_is_never_sent_the_cookie(stranger: Browser) -> None:
    """Cookies know no port: whichever path of such a server a page asks for, it is not below that of the cookie."""
    jar = CookieJar()
    first = urllib.request.Request(f"http://{HOST}:{PORT}{PAGE}?token={TOKEN}")
    headers = email.message.Message()
    headers["Set-Cookie"] = stranger.get(PAGE, {"token": TOKEN}).headers["set-cookie"]
    jar.extract_cookies(_Answer(headers), first)  # type: ignore[arg-type]
    assert [cookie.value for cookie in jar] == [TOKEN]
    for path, sent in (("/", False), ("/api/about", False), (PAGE[:-1] + "x/", False), (f"{PAGE}api/about", True)):
        asked = urllib.request.Request(f"http://{HOST}:{PORT + 1}{path}")
        jar.add_cookie_header(asked)
        assert asked.has_header("Cookie") == sent


class _Answer:
    def __init__(self, headers: email.message.Message) -> None:
        self._headers = headers

    def info(self) -> email.message.Message:
        return self._headers


def test_a_cookie_counts_below_its_own_path_alone(stranger: Browser) -> None:
    cookie = {"Cookie": f"{cookie_name(PORT)}={TOKEN}"}
    for path in ("/", "/api/about", "/main.js", "//api/about", f"/x{PAGE}api/about", PAGE[:-1], PAGE.upper()):
        assert stranger.get(path, headers=cookie).status == 401
    for path in ("", "main.js", "api/about"):
        assert stranger.get(PAGE + path, headers=cookie).status == 200


def test_the_path_gives_the_token_away_to_nobody() -> None:
    assert len(PAGE) == 34
    assert directory(TOKEN) == PAGE != directory(TOKEN + "x")
    assert not any(TOKEN[at : at + 4] in PAGE for at in range(len(TOKEN) - 4))


def test_the_path_alone_opens_nothing(stranger: Browser) -> None:
    for path in ("", "main.js", "api/about"):
        assert stranger.get(PAGE + path).status == 401


def test_a_cookie_of_a_view_on_another_port_is_of_no_use_and_does_no_harm(user: Browser, stranger: Browser) -> None:
    other = {"Cookie": f"{cookie_name(PORT + 1)}={TOKEN}"}
    assert stranger.get("/", headers=other).status == 401
    assert user.get("/api/about", headers={"Cookie": f"{cookie_name(PORT + 1)}=x"}).status == 200


def test_served_on_every_address_the_one_that_was_reached_counts(recorded: str) -> None:
    everywhere = browser(view(recorded), host="0.0.0.0")
    assert everywhere.get("/api/about").status == 200  # the connection came in by 127.0.0.1
    assert everywhere.get("/api/about", headers={"Host": f"10.0.0.1:{PORT}"}).status == 421
    assert everywhere.get("/api/about", headers={"Host": f"evil.example:{PORT}"}).status == 421


def test_served_on_one_address_loopback_does_not_count(recorded: str) -> None:
    assert browser(view(recorded), host="10.0.0.1").get("/api/about").status == 421


def test_two_hosts_are_refused(user: Browser) -> None:
    assert user.ask("GET", "/api/about", more=[("Host", "evil.example")]).status == 421
    assert user.ask("GET", "/api/about", more=[("Origin", f"http://{HOST}:{PORT}"), ("Origin", "null")]).status == 403


def test_websockets_are_closed(user: Browser) -> None:
    sent = []

    async def send(message: object) -> None:
        sent.append(message)

    async def receive() -> dict[str, object]:
        return {"type": "websocket.connect"}

    anyio.run(user.app, {"type": "websocket", "path": "/", "headers": []}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_guard_without_a_token_is_not_made() -> None:
    async def nothing(*_: object) -> None: ...

    with pytest.raises(ValueError):
        Guard(nothing, "", HOST, PORT)
    assert len({new_token() for _ in range(50)}) == 50
    assert min(len(new_token()) for _ in range(50)) >= 43


@pytest.mark.parametrize(
    "path",
    [
        *("/../../../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/static/../security.py", "//etc/passwd", "/%2e%2e/security.py"),
        *("/security.py", "/static/index.html", "/jsconfig.json", "/index.html/", "/index.html%00.js", "/.", "/C:/x", "/\\x"),
    ],
)
def test_no_path_leads_out_of_the_table(user: Browser, path: str) -> None:
    answer = user.get(path)
    assert answer.status == 404
    assert answer.json()["error"]


def test_the_table_has_the_page_and_nothing_else() -> None:
    assert all(path == "/" or path.endswith((".js", ".css", ".html", ".svg")) for path in table())
    assert all(path.count("/") == 1 for path in table())
