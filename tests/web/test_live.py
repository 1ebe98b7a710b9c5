"""A recording that is still being written grows; one that ends is read to its end; boots do not get mixed up."""

from pathlib import Path

import pytest

from exhume.recording.folder import Folder
from exhume.recording.recording import Node, labels
from exhume.recording.writer import Writer
from exhume.web import lanes as lanes_module
from exhume.web import outline as outline_module
from exhume.web import store as store_module
from exhume.web.store import Store
from tests.recording.made import ABOUT, BEGIN, NODE, SECOND, second, writer
from tests.web.serving import browser, view


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_LOOK_AGAIN_S", 0.0)


def test_what_is_written_is_shown_and_its_begin_stays(tmp_path: Path) -> None:
    writing = writer(tmp_path / "r")
    for at in range(12):
        writing.append(second(at, names=at == 0))
    shown = view(str(tmp_path / "r"))
    someone = browser(shown)
    before = someone.api("about")
    assert before["live"]
    for at in range(12, 31):
        writing.append(second(at))
    writing.settle()
    shown.builder.update()
    after = someone.api("about")
    assert after["start_ns"] == before["start_ns"]
    assert after["duration_us"] - before["duration_us"] == pytest.approx(19_000_000, abs=100_000)
    overview = someone.api("overview", columns=31)
    assert None not in overview["busy"]
    assert someone.api("flame", from_=BEGIN + 30 * SECOND, to=BEGIN + 31 * SECOND)["total"] > 0
    writing.close()
    shown.builder.update()
    ended = someone.api("about")
    assert not ended["live"]
    assert someone.api("flame")["total"] == 31 * 40
    shown.builder.update()  # and again, with nothing to do
    assert shown.builder._ranges(shown.store.folder)[0] == []


def test_what_goes_on_for_long_has_wider_cells_and_the_same_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "_CLOSE", 0)
    monkeypatch.setattr(lanes_module, "_CLOSE_NS", 0)
    writing = writer(tmp_path / "r")
    shown, asked = None, {"from_": BEGIN, "to": BEGIN + 90 * SECOND, "columns": 9}
    for at in range(90):
        rows = second(at, names=at == 0)
        rows["events"].add(BEGIN + at * SECOND, "line", "eth0", "warning", f"line {at}", labels())
        writing.append(rows)
        if at == 10:
            shown = view(str(tmp_path / "r"))
            monkeypatch.setattr(outline_module, "MOST_CELLS", 20)
        if shown is not None and at % 7 == 0:
            shown.builder.update()
    writing.close()
    assert shown is not None
    shown.builder.update()
    assert shown.builder.outline.width == 8
    fresh = view(str(tmp_path / "r"))
    live, read = (browser(each).api("lanes", **asked) for each in (shown, fresh))
    assert [flag["text"] for flag in live["flags"]] == [f"line {at}" for at in range(90)]
    assert {**live, "cores": None, "lines": None} == {**read, "cores": None, "lines": None}
    assert None not in browser(shown).api("overview", columns=9)["busy"]
    assert shown.builder._ranges(shown.store.folder)[0] == []


def test_the_newest_second_is_not_kept_as_it_was(tmp_path: Path) -> None:
    writing = writer(tmp_path / "r")
    writing.append(second(0, names=True))
    someone = browser(view(str(tmp_path / "r")))
    whole = {"from_": BEGIN - SECOND, "to": BEGIN + 3 * SECOND}
    assert someone.api("flame", **whole)["total"] == 40
    writing.append(second(1))
    assert someone.api("flame", **whole)["total"] == 80
    writing.close()


def test_another_boot_does_not_take_the_place_of_the_one_that_is_shown(tmp_path: Path) -> None:
    writing = writer(tmp_path / "r")
    writing.append(second(0, names=True))
    shown = view(str(tmp_path / "r"))
    writing.close()
    node = Node(NODE.hostname, "boot-2", NODE.kernel, NODE.cgroups, NODE.cpus)
    other = Writer(str(tmp_path / "r"), node, ABOUT, budget_bytes=1 << 30)
    other.append(second(50, names=True, node=node))
    about = browser(shown).api("about")
    assert (about["node"]["boot_id"], about["boots"]) == ("boot-1", ["boot-1", "boot-2"])
    assert not about["live"]  # it is another boot that grows
    assert not Store(Folder(str(tmp_path / "r"), -1), "x").live
    assert Store(Folder(str(tmp_path / "r")), "x").live
    other.close()


def test_a_recording_that_was_removed_is_told(tmp_path: Path) -> None:
    import shutil

    writing = writer(tmp_path / "r")
    writing.append(second(0, names=True))
    writing.close()
    someone = browser(view(str(tmp_path / "r")))
    shutil.rmtree(tmp_path / "r")
    answer = someone.get("/api/flame")
    assert answer.status == 503
    assert answer.json()["error"].startswith("there is no recording at")
