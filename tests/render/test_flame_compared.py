"""Flame graphs of an incident against a quiet time, and which time is quiet."""

from xml.etree import ElementTree

import pytest

from exhume.render.baseline import quiet
from exhume.render.flame import Compared, Node, compare
from exhume.render.flame_svg import ROW, flame, left_out
from tests.render.test_report_html import FOCUS, compared, profile
from tests.render.told import BEGIN, SECOND, WALK
from tests.render.told import told as recorded


def test_the_flame_graph_says_what_grew_and_what_shrank() -> None:
    found = compared(recorded())
    changes = {change.placed.node.name: change for change in found.changes()}
    walk = changes[WALK[0]]
    assert walk.share == pytest.approx(1.0)
    assert walk.before == 0.0
    assert found.root.base > 0
    root = ElementTree.fromstring(flame(found, by_change=True))
    shades = {group.findtext("title", "").split("\n")[0]: group.attrib["class"] for group in root.iter("g")}
    assert shades[WALK[0]] == "more4"
    assert shades["all"] == "same"
    kinds = {group.findtext("title", "").split("\n")[0]: group.attrib["class"] for group in
             ElementTree.fromstring(flame(found, by_change=False)).iter("g")}  # fmt: skip
    assert kinds[WALK[0]] == "kernel"
    assert kinds["main.main"] == "user"


def test_what_is_idle_more_rarely_is_less() -> None:
    recording = recorded()
    around = (FOCUS[0] - 3 * SECOND, FOCUS[1])
    before = (BEGIN, BEGIN + 10 * SECOND)
    found = compare(profile(recording, *around), profile(recording, *before), before, 39)
    assert found is not None
    root = ElementTree.fromstring(flame(found, by_change=True))
    assert [group.attrib["class"] for group in root.iter("g") if group.findtext("title", "").startswith("idle")] == ["less4"]
    unknown = compare(profile(recording, *around), None, None, 39)
    assert unknown is not None
    assert {change.before for change in unknown.changes()} == {None}
    assert compare(profile(recording, 0, 1), None, None, 39) is None


def test_the_quiet_time_is_as_long_and_nearest_before() -> None:
    recording = recorded(held=((20.0, 26.0), (60.0, 66.6)))
    assert quiet(recording, FOCUS, 39) == (FOCUS[0] - (FOCUS[1] - FOCUS[0]), FOCUS[0])
    early = (BEGIN + 20 * SECOND, BEGIN + 26 * SECOND)
    assert quiet(recording, early, 39) == (BEGIN + 14 * SECOND, BEGIN + 20 * SECOND)


@pytest.mark.parametrize("ns", [30 * 10**6, 3 * 10**8, 4 * SECOND, 90 * SECOND])
def test_the_quiet_time_is_as_long_as_what_was_chosen(ns: int) -> None:
    recording = recorded(seconds=200, held=((100.0, 100.0 + ns / 1e9),))
    focus = (BEGIN + 100 * SECOND, BEGIN + 100 * SECOND + ns)
    for nearest in (False, True):
        assert quiet(recording, focus, 39, nearest) == (focus[0] - ns, focus[0])


def test_the_nearest_quiet_time_may_be_after() -> None:
    recording = recorded(held=((40.0, 62.0),))
    focus = (BEGIN + 61 * SECOND, BEGIN + 62 * SECOND)
    before, after = quiet(recording, focus, 39), quiet(recording, focus, 39, nearest=True)
    assert before is not None
    assert after is not None
    assert before[1] <= BEGIN + 41 * SECOND
    assert focus[1] <= after[0] < focus[1] + 3 * SECOND
    assert after[1] - after[0] == before[1] - before[0] == SECOND


def test_where_nothing_was_quiet_before_it_is_after_or_shorter_or_none() -> None:
    first = (BEGIN, BEGIN + 8 * SECOND)
    found = quiet(recorded(seconds=30, held=((0.0, 8.0),)), first, 39)
    assert found is not None
    assert found[0] > first[1]
    assert found[1] - found[0] == 8 * SECOND
    shorter = quiet(recorded(seconds=12, held=((0.0, 8.0),)), first, 39)
    assert shorter is not None
    assert 10**9 <= shorter[1] - shorter[0] < 4 * SECOND
    assert quiet(recorded(seconds=8, held=((0.0, 8.0),)), first, 39) is None


def test_without_counters_samples_say_what_is_quiet() -> None:
    recording = recorded(held=((50.0, 58.0), (60.0, 66.6)))
    recording.tables.pop("cpu")
    found = quiet(recording, FOCUS, 39)
    assert found is not None
    length = FOCUS[1] - FOCUS[0]
    assert found[1] - found[0] == length
    held = (BEGIN + 50 * SECOND, BEGIN + 58 * SECOND)
    assert max(0, min(found[1], held[1]) - max(found[0], held[0])) < 0.3 * length


def test_one_stack_of_a_hair_s_breadth_does_not_make_the_picture_high() -> None:
    def tower(height: int, samples: int) -> Node:
        top = Node("top", "user", samples)
        for level in range(height - 1):
            top = Node(f"level{level}", "user", samples, (top,))
        return top

    def of(thin: int) -> tuple[float, str]:
        found = Compared(Node("all", "all", 1000, (tower(19, 900), tower(60, thin))))
        height = ElementTree.fromstring(flame(found, by_change=False)).attrib["viewBox"].split()[3]
        return (float(height) - 2) / ROW, left_out(found)

    assert of(thin=20) == (61, "")
    assert of(thin=19) == (20, " Left out: 41 frames below row 20, of stacks with 1.9% of the samples.")
