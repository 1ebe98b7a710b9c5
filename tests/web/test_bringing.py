"""A perf.data is shown before it is imported: what is seen first stays as it is, the rest comes, and nothing outlives us."""

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from exhume.imports.first_look import FirstLook
from exhume.imports.glance import glance
from exhume.imports.incoming import Wanted
from exhume.web.bringing import Bringing
from exhume.web.incidents import Incidents
from exhume.web.store import Store
from exhume.web.view import View
from tests.imports import made_perf as made
from tests.web.serving import Browser, browser
from tests.web.test_server import children, got, served

SECOND = 1_000_000_000
KERNEL = 0xFFFFFFFF81000000
SAMPLES = 4000
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Four seconds of two cores; core 1 is in the kernel all the time."""
    path = tmp_path_factory.mktemp("perf") / "perf.data"
    records = b"".join(
        made.sample(7 * (at % 2), 5 * SECOND + at * SECOND // 1000, at % 2, kernel=(KERNEL + 9,) if at % 2 else (), user=(at,))
        for at in range(SAMPLES)
    )
    path.write_bytes(made.file(made.comm(7, b"worker", 1) + records, [made.Attr(kind=1, config=0, period=500)]))
    return str(path)


def waited(what: str, until: float = PATIENCE_S) -> Iterator[None]:
    end = time.monotonic() + until
    while time.monotonic() < end:
        yield
        time.sleep(0.02)
    pytest.fail(f"{what} did not happen")


class Brought:
    """A view of a file that is imported when `go` is called, and what was told of it."""

    def __init__(self, path: str, place: Path) -> None:
        self.told: list[str] = []
        self.coming = Bringing(lambda: glance(path, Wanted()), str(place), self.told.extend)
        self.early = json.loads(self.coming.early() or b"null")
        looked = self.coming.first()
        assert looked is not None
        store = Store(FirstLook(looked), "perf.data", None, self.coming)
        self.view = View(store, None, Incidents(store, lambda *_: []))
        self.view.builder.update()
        self.user: Browser = browser(self.view)

    def go(self) -> None:
        self.coming.start()
        assert self.coming.ended.wait(PATIENCE_S)
        for _ in waited("the end of the import"):
            if self.coming.folder is not None or self.coming.failed:
                return


def test_what_is_seen_first_is_what_the_import_shows_and_the_rest_follows(capture: str, tmp_path: Path) -> None:
    one = Brought(capture, tmp_path / "r")
    about, heat = one.user.api("about"), one.user.api("heat")
    first = one.user.api("first")
    assert (first["about"], first["heat"]) == (about, heat)
    assert one.early == {"about": {**about, "ready": 0.0}, "heat": heat}  # as the process that looked has it
    wide = one.user.api("lanes", columns=4)
    assert (about["samples"], about["live"], heat["ready"]) == (SAMPLES, False, 1.0)
    assert {strip["core"] for strip in wide["cores"]} == {0, 1}
    assert wide["ready"] < 1.0  # by second, until the samples are there: the page asks again
    for path in ("flame", "verdict", "heat?comm=worker", "heat?symbol=read"):
        answer = one.user.get(f"/api/{path}")
        assert (answer.status, answer.json()["not_yet"]) == (202, "perf.data is still being imported: 0%")
    download = one.user.get("/api/export?format=folded")
    assert (download.status, "still being imported" in download.json()["error"]) == (503, True)

    one.go()
    assert one.user.api("heat") == heat
    assert {**one.user.api("about"), "notes": []} == {**about, "notes": []}
    assert one.user.api("flame")["total"] == SAMPLES
    assert one.user.api("lanes", columns=4)["ready"] == 1.0
    assert one.user.api("heat", comm="worker")["most"] > 0
    assert one.user.api("verdict")["schema"] == "exhume.report/2"
    assert one.user.get("/api/export?format=folded").status == 200
    assert any("without names" in note for note in one.told)


def test_of_an_import_that_fails_what_was_seen_stays(capture: str, tmp_path: Path) -> None:
    place = tmp_path / "r"
    place.mkdir()
    (place / "something").write_text("else")  # so that no recording can be made there
    one = Brought(capture, place)
    heat = one.user.api("heat")
    one.go()
    answer = one.user.get("/api/flame")
    assert answer.status == 503
    assert answer.json()["error"].startswith("perf.data: it could not be imported: ")
    assert one.user.api("heat") == heat
    assert one.told == [one.coming.failed]


def test_an_import_that_is_ended_is_told(capture: str, tmp_path: Path) -> None:
    one = Brought(capture, tmp_path / "r")
    os.kill(one.coming._child, signal.SIGKILL)
    one.go()
    sentence = one.user.get("/api/flame").json().get("error", "")
    assert "was ended" in sentence or one.coming.folder is not None  # it may have been done before


def test_stopping_ends_it(capture: str, tmp_path: Path) -> None:
    one = Brought(capture, tmp_path / "r")
    one.view.stop()
    one.view.stop()
    assert not Path(f"/proc/{one.coming._child}").exists()


def test_the_command_shows_a_file_at_once_and_removes_what_it_imported(
    capture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with served(capture) as (process, url):
        base, _, token = url.partition("/?token=")
        first = json.loads(got(f"{base}/api/first", token)[1])
        assert json.loads(got(f"{base}/api/about", token)[1])["name"] == first["about"]["name"] == "perf.data"
        heat = got(f"{base}/api/heat", token)
        for _ in waited("the import"):
            if (answer := got(f"{base}/api/flame", token))[0] != 202:
                break
        assert json.loads(answer[1])["total"] == SAMPLES
        assert got(f"{base}/api/heat", token) == heat
        assert json.loads(heat[1]) == first["heat"] == json.loads(got(f"{base}/api/first", token)[1])["heat"]
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 0
    assert list(tmp_path.glob("exhume-import-*")) == []


@pytest.mark.parametrize("arguments", [["--from", "+1h"], ["--event", "no-such-event"], ["--config", "/no/such/file"]])
def test_what_is_wrong_is_told_without_an_address(capture: str, arguments: list[str]) -> None:
    with served(capture, *arguments) as (process, url):
        assert url == ""
        assert process.wait(120) in (3, 64)


def test_a_file_that_begins_as_one_and_is_none_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(b"PERFILE2" + bytes(200))
    with served(str(path)) as (process, _):
        assert process.wait(120) == 3
        assert process.stderr is not None
        assert "perf.data" in process.stderr.read()


def test_a_file_without_samples_is_refused_as_an_import_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "perf.data"
    path.write_bytes(made.file(made.comm(7, b"x", 5)))
    with served(str(path)) as (process, _):
        assert process.wait(120) == 3
        assert process.stderr is not None
        assert "no stack sample in it" in process.stderr.read()


@pytest.mark.parametrize("imports", [True, False])
def test_nothing_outlives_a_server_that_was_killed(capture: str, recorded: str, imports: bool) -> None:
    """Neither what imports nor what judges, which would go on for minutes."""
    with served(capture if imports else recorded) as (process, url):
        assert url
        for _ in waited("a child"):
            if found := children(process.pid):
                break
        for child in found:
            os.kill(child, signal.SIGSTOP)
        process.kill()
        process.wait(120)
        for child in found:
            os.kill(child, signal.SIGCONT)
        for _ in waited("the end of the children"):
            if not any(_runs(child) for child in found):
                break


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
