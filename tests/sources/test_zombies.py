"""When zombies are named anew: seldom while they are as many as they were, and by whoever asks for it at once."""

from pathlib import Path

import pytest

from exhume.agent.settings import Settings
from exhume.errors import Unreadable
from exhume.host.cgroups import Tree as CgroupTree
from exhume.host.root import Root
from exhume.recording.recording import Node, Recording
from exhume.sources.zombies import AGAIN_NS, AT_LATEST_NS, Zombies
from tests.trees import Tree

SECOND = 1_000_000_000


class Counted:
    """A node with so many zombies, and who names them."""

    def __init__(self, path: Path, zombies: int, again_ns: int = AGAIN_NS) -> None:
        self._tree = Tree(path).v1(["a", "b"], total=zombies + 3)
        root = Root(str(path))
        self._reader = Zombies(root, CgroupTree(root), again_ns)

    def has(self, zombies: int) -> None:
        self._tree.proc_cgroups(zombies + 3)

    def took(self, seconds: float) -> None:
        """The last one took so much of a core."""
        self._reader._cost_ns = round(seconds * SECOND)

    def asks(self, seconds: float) -> bool:
        """Whether it names or counts anew at that time."""
        self.told(seconds)
        return self._reader._walked == round(seconds * SECOND)

    def told(self, seconds: float) -> int | None:
        """How many it tells of at that time; None where it says nothing."""
        recording = Recording(Node("", "", "", "v1", 2))
        self._reader.read(recording, round(seconds * SECOND))
        zombies = recording["memcg_walk"].ints("zombies")
        return int(zombies.sum()) if len(zombies) else None


def test_as_many_as_there_were_are_not_named_again_for_a_while(tmp_path: Path) -> None:
    node = Counted(tmp_path, 60_000)
    assert node.told(1) == 60_000
    node.has(60_300)
    assert [node.told(at) for at in (30, 62, 130, 300)] == [None] * 4
    assert node.told(2 + AT_LATEST_NS / SECOND) == 60_300


@pytest.mark.parametrize("now", [61_500, 58_500])
def test_more_or_fewer_are_named_again_after_a_minute(tmp_path: Path, now: int) -> None:
    node = Counted(tmp_path, 60_000)
    assert node.told(1) == 60_000
    node.has(now)
    assert node.told(30) is None
    assert node.told(62) == now


def test_a_leak_is_named_again_each_time_that_it_has_grown_by_a_fiftieth(tmp_path: Path) -> None:
    node = Counted(tmp_path, 60_000)
    named = []
    for minute in range(20):
        node.has(60_000 + 300 * minute)
        named += [minute] if node.told(1 + 61 * minute) is not None else []
    assert named[0] == 0
    assert 3 <= len(named) <= 6


def test_few_zombies_are_named_again_when_there_is_one_more(tmp_path: Path) -> None:
    node = Counted(tmp_path, 20)
    assert node.told(1) == 20
    node.has(21)
    assert node.told(62) == 21


def test_what_is_dear_is_done_for_no_more_than_its_share_of_a_core(tmp_path: Path) -> None:
    node = Counted(tmp_path, 60_000)
    assert node.told(1) == 60_000
    node.took(0.25)  # 500 s of a two-thousandth of a core
    node.has(63_000)
    assert [node.told(at) for at in (62, 130, 300, 490)] == [None] * 4
    assert node.told(560) == 63_000


def test_what_is_dear_waits_for_ten_minutes_at_most_since_verdicts_need_the_names(tmp_path: Path) -> None:
    node = Counted(tmp_path, 1_000_000)
    assert node.told(1) == 1_000_000
    node.took(4)
    node.has(1_100_000)
    assert [node.told(at) for at in (62, 300, 590)] == [None] * 3
    assert node.told(660) == 1_100_000
    assert Settings().keep_s * SECOND > AT_LATEST_NS + 2 * AGAIN_NS


def test_where_none_can_be_counted_and_the_walk_is_dear_it_waits(tmp_path: Path) -> None:
    node = Counted(tmp_path, 0)
    node.told(1)
    node.took(1)
    assert node.asks(62) is False
    assert node.asks(670) is True


def test_one_that_failed_is_tried_again_after_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Counted(tmp_path, 60_000)
    assert node.told(1) == 60_000
    node.took(10)

    def fails(*_: object) -> str:
        raise Unreadable("not now")

    node.has(90_000)
    with monkeypatch.context() as patched:
        patched.setattr(Zombies, "_by_walk", fails)
        patched.setattr(Zombies, "_by_count", fails)
        with pytest.raises(Unreadable):
            node.told(62)
    assert node.told(90) is None
    assert node.told(123) == 90_000


@pytest.mark.parametrize("now", [80_000, 40_000])
def test_another_heap_is_named_after_a_minute_however_dear_that_is(tmp_path: Path, now: int) -> None:
    node = Counted(tmp_path, 60_000)
    assert node.told(1) == 60_000
    node.took(10)
    node.has(now)
    assert node.told(30) is None
    assert node.told(62) == now


def test_who_asks_for_every_reading_has_it(tmp_path: Path) -> None:
    node = Counted(tmp_path, 60_000, again_ns=0)
    assert [node.told(at) for at in (1, 2, 3)] == [60_000] * 3
