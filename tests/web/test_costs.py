"""What questions cost grows with what is shown: long windows never read samples, and a slow question holds up no other."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anyio
import pytest

from exhume.recording.folder import Folder
from exhume.recording.recording import Recording
from exhume.web import application as application_module
from exhume.web.application import Endpoint
from exhume.web.store import Cache
from tests.recording.made import BEGIN, SECOND, write
from tests.web.serving import PORT, TOKEN, Answer, Browser, _asked, browser, view


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("long") / "r"
    write(path, 900, segment_ns=60 * SECOND)
    return str(path)


def test_the_whole_of_a_long_recording_is_shown_without_its_samples(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Folder.load

    def without(
        folder: Folder, start: int | None = None, end: int | None = None, tables: Iterable[str] | None = None
    ) -> Recording:
        assert tables is not None
        assert not set(tables) & {"samples", "stacks", "cpu"}
        return load(folder, start, end, tables)

    def never(*_: object) -> Any:
        raise AssertionError("samples were read")

    monkeypatch.setattr(Folder, "load", without)
    monkeypatch.setattr(Folder, "profile", never)
    monkeypatch.setattr(Folder, "pieces", never)
    monkeypatch.setattr("exhume.web.lanes._CLOSE", 60)
    someone = browser(view(long))
    assert someone.api("about")["ready"] == 1.0
    assert None not in someone.api("overview", columns=300)["busy"]
    lanes = someone.api("lanes", columns=300)
    assert len(lanes["cores"]) == 2
    assert lanes["source"] == "summary"  # a shorter window has counters, too
    assert someone.api("heat")["columns"] == 900
    assert someone.api("first") == {"about": someone.api("about"), "heat": None}  # the page asks for it when it is there


def test_of_samples_without_counters_none_are_promised(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
    assert browser(view(recorded)).api("lanes", columns=3)["source"] == "samples"


def test_the_first_answer_about_many_segments_opens_none_of_them_to_count(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.first._MOST_COUNTED", 10)
    someone = browser(view(long))
    first = someone.api("first")["about"]
    counted = someone.api("about")
    assert (first["samples"], first["sampled"]) == (None, True)
    assert counted["samples"] > 900
    assert {**first, "samples": counted["samples"]} == counted


def test_a_longer_window_has_several_seconds_a_column(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.render.heat.MOST_COLUMNS", 100)
    heat = browser(view(long)).api("heat")
    assert (heat["columns"], heat["seconds_per_column"], heat["seconds"]) == (100, 9, 900)


def test_the_same_selection_is_read_once(long: str, monkeypatch: pytest.MonkeyPatch) -> None:
    someone = browser(view(long, ready=False))
    window = {"from_": BEGIN + 5 * SECOND, "to": BEGIN + 6 * SECOND}
    first = someone.api("flame", **window)
    monkeypatch.setattr(Folder, "profile", None)
    assert someone.api("flame", **window) == first
    assert someone.api("flame", **window, by="core", reverse=1, comm="comm1")["total"] > 0


def test_a_cache_is_bounded_by_number_and_size() -> None:
    cache: Cache[str] = Cache(3, 10)
    for key in "abcd":
        assert cache.get(key, lambda key=key: key * 2, len) == key * 2  # type: ignore[misc]
    assert len(cache) == 3
    cache.get("large", lambda: "x" * 50, len)
    assert len(cache) == 1
    with pytest.raises(ZeroDivisionError):
        cache.get("fails", lambda: str(1 // 0), len)
    assert cache.get("fails", lambda: "now", len) == "now"


def _scope(path: str) -> dict[str, Any]:
    headers = [(b"host", f"127.0.0.1:{PORT}".encode()), (b"x-exhume-token", TOKEN.encode())]
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "server": ("127.0.0.1", PORT),
    }


def test_slow_questions_do_not_hold_up_the_page(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    held, most, now, lock = threading.Event(), 0, 0, threading.Lock()

    def slow(*_: object) -> dict[str, Any]:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        assert held.wait(120)
        with lock:
            now -= 1
        return {}

    monkeypatch.setitem(application_module.ENDPOINTS, "/api/flame", Endpoint(slow, (), "heavy"))
    found: list[Answer] = []

    async def ask(path: str) -> None:
        found.append(await _asked(user.app, _scope(path)))

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(ask, "/api/flame")
            await anyio.sleep(0.05)
            await ask("/api/about")
            assert [answer.status for answer in found] == [200]
            held.set()

    user.app._app._limits.clear()  # type: ignore[attr-defined]
    anyio.run(all_of_them)
    user.app._app._limits.clear()  # type: ignore[attr-defined]
    assert [answer.status for answer in found] == [200] * 9
    assert most <= 2


def test_what_nobody_waits_for_is_not_made(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> dict[str, Any]:
        raise AssertionError

    monkeypatch.setitem(application_module.ENDPOINTS, "/api/flame", Endpoint(never, (), "heavy"))
    sent: list[Any] = []

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    anyio.run(user.app, _scope("/api/flame"), gone, send)
    assert sent[0]["status"] == 503


def test_a_verdict_that_takes_minutes_holds_up_no_other_and_no_download(user: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """And ends when whoever asked for it goes away."""
    gone = threading.Event()
    given_up: list[bool] = []

    def verdict(_view: object, query: Any) -> dict[str, Any]:
        if query.asked("from"):
            return {}
        given_up.append(query.unwanted.wait(120))
        return {}

    monkeypatch.setattr(application_module, "_LOOK_S", 0.01)
    monkeypatch.setitem(application_module.ENDPOINTS, "/api/verdict", Endpoint(verdict, ("from",), "verdict"))
    statuses: list[int] = []

    async def impatient() -> None:
        async def receive() -> dict[str, Any]:
            return {"type": "http.disconnect"} if gone.is_set() else {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None: ...

        await user.app(_scope("/api/verdict"), receive, send)

    async def all_of_them() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(impatient)
            await anyio.sleep(0.05)
            for path, query in (("/api/verdict", b"from=1"), ("/api/export", b"format=folded")):
                statuses.append((await _asked(user.app, {**_scope(path), "query_string": query})).status)
            gone.set()

    user.app._app._limits.clear()  # type: ignore[attr-defined]
    anyio.run(all_of_them)
    user.app._app._limits.clear()  # type: ignore[attr-defined]
    assert statuses == [200, 200]
    assert given_up == [True]
