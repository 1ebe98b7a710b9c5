"""One profile over many nodes: every sample counted once, the difference by shares, hostile names harmless."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exhume.cli.main import main
from exhume.fleet.profile import around
from exhume.recording.folder import Folder
from exhume.render.flame import Node, merge, walk
from tests.render.made import Ran, write


def tree(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def node(name: str, own: int, below: list[Node]) -> Node:
        by_name = {child.name: child for child in below}  # siblings of one name are one frame
        return Node(name, "kernel", own + sum(child.value for child in by_name.values()), tuple(by_name.values()))

    return st.builds(node, st.sampled_from("abc"), st.integers(0, 5), st.lists(children, max_size=3))


TREES = st.recursive(
    st.builds(lambda name, value: Node(name, "kernel", value), st.sampled_from("abc"), st.integers(0, 9)), tree
)


def paths(root: Node) -> Counter[tuple[str, ...]]:
    """Samples by path, the root left out."""
    found: Counter[tuple[str, ...]] = Counter()
    waiting: list[tuple[Node, tuple[str, ...]]] = [(child, (child.name,)) for child in root.children]
    while waiting:
        node, path = waiting.pop()
        found[path] += node.value
        waiting += [(child, (*path, child.name)) for child in node.children]
    return found


@given(st.lists(TREES, max_size=5))
def test_every_sample_of_every_tree_is_in_the_whole_once(roots: list[Node]) -> None:
    whole = merge(roots)
    assert whole.value == sum(root.value for root in roots)
    expected: Counter[tuple[str, ...]] = Counter()
    for root in roots:
        expected.update(paths(root))
    assert paths(whole) == expected
    names = [child.name for child in whole.children]
    assert len(names) == len(set(names))


def test_a_stack_as_deep_as_none_is_no_trouble() -> None:
    node = Node("leaf", "kernel", 1)
    for i in range(5000):
        node = Node(str(i % 7), "kernel", 1, (node,))
    assert merge([node, node]).value == 2


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fleet")
    for name in ("sick/one", "sick/two", "well/three"):
        (place / name).parent.mkdir(exist_ok=True)
        write(place / name)
    return place


def test_a_directory_of_recordings_stands_for_all_of_them(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "profile", str(fleet / "sick")]) == 0
    text = capsys.readouterr().out
    assert "9,600 samples" in text.splitlines()[0]
    assert "mem_cgroup_nr_lru_pages" in text


def test_equal_nodes_have_no_difference(fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "profile", str(fleet / "sick"), "--against", str(fleet / "well")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_what_only_the_sick_do_is_on_top_of_the_difference(
    tmp_path: Path, fleet: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(0, "<script>alert(1)</script>", "k:read k:mem_cgroup_iter")
    sick = write(tmp_path / "sick", does=lambda *_: ran)
    assert main(["fleet", "profile", sick, "--against", str(fleet / "well"), "--no-idle"]) == 0
    first = capsys.readouterr().out.splitlines()[3]
    assert "+100.0%" in first
    page = tmp_path / "difference.html"
    assert main(["fleet", "profile", sick, "--against", str(fleet / "well"), "-o", str(page)]) == 0
    assert "<script>alert" not in page.read_text()
    assert "mem_cgroup_iter" in page.read_text()


def test_a_picture_and_what_is_not_there(fleet: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "all.svg"
    assert main(["fleet", "profile", str(fleet / "sick"), "-o", str(picture)]) == 0
    assert picture.read_text().startswith("<svg") or "<svg" in picture.read_text()
    assert main(["fleet", "profile", str(fleet / "sick"), "--around", "nic-reset"]) == 3
    assert "no nic-reset" in capsys.readouterr().err
    assert main(["fleet", "profile", str(fleet / "sick"), "-o", "x.png"]) == 64
    assert main(["fleet", "profile", str(tmp_path / "nowhere")]) == 3


def test_times_around_events_that_touch_are_one(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Folder(str(fleet / "well" / "three"))
    recording = folder.load(tables=["events"])
    second = 10**9
    for time, kind in (
        (10, "nic-reset-done"),
        (12, "nic-reset-triggered"),
        (40, "nic-reset-done"),
        (60, "stall"),
        (90, "nic-reset-done"),
    ):
        recording["events"].add(time * second, kind, "eth0", "critical", "", ())
    monkeypatch.setattr(folder, "load", lambda tables: recording)
    assert around(folder, "nic-reset", 2 * second, second) == [(8 * second, 13 * second), (88 * second, 91 * second)]
    assert sum(1 for _ in walk(merge([]))) == 1
