"""The timeline: what lanes hold, and how they look in the terminal and as SVG."""

import random
import re
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.cpu_full import CpuFull
from exhume.diagnosis.findings.model import Facts, Finding, Span
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.recording.recording import Recording
from exhume.render import timeline_svg, timeline_text
from exhume.render.baseline import quiet
from exhume.render.lanes import STATES
from exhume.render.scene import Clock
from exhume.render.timeline import MOST_FLAGS, Count, Timeline, timeline
from tests.diagnosis.findings import made
from tests.diagnosis.findings.facts import facts
from tests.examples import examples
from tests.recording.made import recordings
from tests.render.told import BEGIN, SECOND, Names, told

FOCUS = (BEGIN + 60 * SECOND, BEGIN + round(66.6 * SECOND))
WINDOW = (BEGIN + 40 * SECOND, BEGIN + 80 * SECOND)


def seconds(time: int) -> str:
    return f"{(time - BEGIN) / SECOND:.1f}"


CLOCK = Clock(seconds, seconds, seconds, "UTC", seconds)
HELD = Finding(facts(CoreSaturated, "core 39"), "warning", *FOCUS, (Span(39, *FOCUS),))


def of(recording: Recording, *findings: Finding[Facts], columns: int = 40) -> Timeline:
    return timeline(recording, *WINDOW, FOCUS, findings, columns)


def plain(text: str, *_: str) -> str:
    return text


def test_the_core_that_a_finding_names_comes_first_and_is_full_in_its_time() -> None:
    picture = of(told(), HELD)
    assert picture.strips[0].core == 39
    kernel = picture.strips[0].shown
    assert kernel[20:26] == pytest.approx(np.ones(6), abs=0.06)
    assert float(kernel[:19].max()) < 0.05
    assert float(kernel[28:].max()) < 0.05
    assert [strip.core for strip in picture.strips[1:]] == [0, 1]  # the next in the kernel, to compare
    assert float(picture.strips[1].shares[STATES.index("user")].mean()) == pytest.approx(0.14, abs=0.03)


def test_time_in_which_no_core_was_read_is_not_known() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 3.0, "system")]})
    picture = timeline(recording, 0, 6 * SECOND, (0, 6 * SECOND), (), 6)
    unknown = np.isnan(picture.strips[0].shown)
    assert unknown.tolist() == [False, False, False, True, True, True]
    assert "┊┊┊" in timeline_text.lines(picture, CLOCK, 100, plain)[0]


def test_ticks_are_not_spread_over_a_time_that_was_not_recorded() -> None:
    recording = made.recording(cpus=1)
    made.cores(recording, 10.0, {0: [(0.0, 2.0, "user"), (2.0, 8.0, "system")]})
    table = Recording(recording.node)
    table["cpu"].add_rows([tuple(row.values()) for row in recording["cpu"].rows() if not 2 * SECOND < row["time"] < 8 * SECOND])
    for gaps, unknown in (((), []), (((2 * SECOND, 8 * SECOND),), [2, 3, 4, 5, 6, 7])):
        (strip,) = timeline(table, 0, 10 * SECOND, (0, 1), (), 10, gaps).strips
        assert np.flatnonzero(np.isnan(strip.shown)).tolist() == unknown


def test_without_counters_stack_samples_tell_what_the_cores_did() -> None:
    recording = told()
    recording.tables.pop("cpu")
    strip = of(recording, HELD).strips[0]
    assert strip.core == 39
    assert strip.shown[21:26] == pytest.approx(np.ones(5))
    assert float(np.nan_to_num(strip.shares[STATES.index("softirq")]).sum()) > 0


def test_a_count_begins_with_what_was_known_before_the_window() -> None:
    recording = made.recording()
    for second, dying in ((1, 5), (3, 9), (4, -1), (6, 12), (30, 99)):
        recording["memcg"].add(second * SECOND, "/", 3, dying, 3 + dying, "proc-cgroups", "node", 1)
        recording["memcg"].add(second * SECOND, "/system.slice", 1, 1, 2, "cgroup-stat", "node", 1)
    zombies, live = timeline(recording, 2 * SECOND, 10 * SECOND, (0, 1), columns=8).counts
    assert zombies.name == "zombies"
    assert zombies.readings.tolist() == [5, 9, 12]
    assert zombies.values.tolist() == [5, 9, 9, 9, 12, 12, 12, 12]
    assert live.readings.tolist() == [3, 3, 3, 3]
    (later, _) = timeline(recording, 0, 10 * SECOND, (0, 1), columns=2).counts
    assert later.values.tolist() == [9, 12]  # the most of each
    assert later.told == zombies.told == "5 to 12"
    assert (
        np.isnan(timeline(recording, 0, 10 * SECOND, (0, 1), columns=20).counts[0].values).tolist() == [True] * 2 + [False] * 18
    )


def test_stalls_are_bars_of_their_device_and_a_driver_s_word_is_one_too() -> None:
    recording = made.recording()
    made.stall(recording, 3.0, 700.0, device="eth1")
    made.stall(recording, 5.0, 200.0, device="eth1")
    starved = Finding(facts(NapiStarved, "eth0"), "critical", 0, 1, (Span(2, SECOND, 6 * SECOND),))
    picture = timeline(recording, 0, 10 * SECOND, (0, 1), (starved,))
    assert [(bars.name, len(bars.spans)) for bars in picture.bars] == [("eth0", 1), ("eth1", 2)]
    assert picture.bars[1].spans[0].end - picture.bars[1].spans[0].start == 700_000_000
    assert picture.flags == ()  # a stall is told once


def test_critical_lines_stay_when_there_are_too_many() -> None:
    recording = made.recording()
    for i in range(3 * MOST_FLAGS):
        recording["events"].add(i, "line", "eth0", "info" if i % 3 == 0 else "warning", f"line {i}", ())
    recording["events"].add(9_999, "line", "eth0", "critical", "the last", ())
    picture = timeline(recording, 0, 10_000, (0, 1))
    assert len(picture.flags) == MOST_FLAGS
    assert picture.flags[-1].text == "the last"
    assert picture.hidden_flags == 2 * MOST_FLAGS + 1 - MOST_FLAGS


def test_restarts_are_where_the_counter_of_a_unit_rose() -> None:
    (restarts,) = of(told()).restarts
    assert restarts.unit == "ecs.service"
    assert [(time - BEGIN) // SECOND for time in restarts.times] == [40, 50, 60, 70]


def test_the_order_of_rows_does_not_matter() -> None:
    recording = told(seconds=70, cpus=3, core=2, sampled=1)
    mixed = Recording(recording.node)
    for name, table in recording.tables.items():
        rows = [tuple(row.values()) for row in table.rows()]
        random.Random(7).shuffle(rows)
        mixed[name].add_rows(rows)
    one, other = (of(each, HELD) for each in (recording, mixed))
    assert one.flags == other.flags
    assert one.restarts == other.restarts
    assert timeline_svg.svg(one, CLOCK) == timeline_svg.svg(other, CLOCK)


def test_the_terminal_shows_lanes_below_each_other_over_one_axis() -> None:
    picture = of(told(), HELD, columns=timeline_text.room(100))
    lines = timeline_text.lines(picture, CLOCK, 100, plain)
    assert all(len(line) <= 100 for line in lines)
    by_name = {line[2 : timeline_text.LEFT].strip(): line for line in lines[:-1]}
    assert list(by_name) == ["core 39", "core 0", "zombies", "restarts", "kernel log"]
    full = [match.start() for match in re.finditer("█", by_name["core 39"])]
    critical = by_name["kernel log"].index("▼")
    assert full == list(range(full[0], full[-1] + 1))  # one stretch
    assert 0 <= critical - full[-1] <= 1  # the driver complains as the core comes free
    assert "68,43" in by_name["zombies"]
    assert lines[-1].split()[0] == "40.0"


def test_only_full_time_is_painted() -> None:
    painted = timeline_text.lines(of(told(), HELD), CLOCK, 100, lambda text, colour: f"<{colour}>{text}</>")
    assert re.search("<red>█+</>", painted[0])
    assert "<red>" not in painted[1]


def test_the_svg_is_whole_and_keeps_to_its_frame() -> None:
    starved = Finding(facts(NapiStarved, "eth0"), "critical", *FOCUS, (Span(39, *FOCUS),))
    root = ElementTree.fromstring(timeline_svg.svg(of(told(), HELD, starved), CLOCK))
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    for rect in root.iter("rect"):
        right = float(rect.attrib["x"]) + float(rect.attrib["width"])
        assert timeline_svg.LEFT <= float(rect.attrib["x"]) <= right <= width
        assert float(rect.attrib["y"]) + float(rect.attrib["height"]) <= height
    kinds = [element.attrib.get("class") for element in root.iter()]
    for kind in ("system", "user", "count zombies", "count live", "late", "restart", "flag critical", "flag warning", "focus"):
        assert kind in kinds, kind
    texts = [element.text for element in root.iter("text")]
    assert "core 39" in texts
    assert "kernel up to 100%" in texts


def test_names_are_text() -> None:
    names = Names(unit='<script>"\x1b[31m&', device="]]></svg>", message="\x00<b onload=x>'")
    starved = Finding(facts(NapiStarved, names.device), "critical", *FOCUS, (Span(39, *FOCUS),))
    root = ElementTree.fromstring(timeline_svg.svg(of(told(names=names), starved), CLOCK))
    assert {element.tag for element in root.iter()} <= {"svg", "rect", "path", "text", "title"}
    assert any("\\x00<b onload=x>'" in (title.text or "") for title in root.iter("title"))


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(recordings(), st.integers(0, 1 << 62), st.integers(0, 1 << 61), st.integers(1, 70))
def test_any_recording_has_a_timeline(recording: Recording, start: int, length: int, columns: int) -> None:
    picture = timeline(recording, start, start + length, (start, start + length // 2), (HELD,), columns)
    assert all(strip.shares.shape == (len(STATES), columns) for strip in picture.strips)
    ElementTree.fromstring(timeline_svg.svg(picture, CLOCK))
    for line in timeline_text.lines(picture, CLOCK, 100, plain):
        assert "\n" not in line
        assert line.isprintable()


@pytest.mark.parametrize("counted", [True, False])
def test_the_most_of_a_core_does_not_depend_on_the_width_of_the_picture(counted: bool) -> None:
    recording = told(cpus=4, core=2)
    if not counted:
        recording.tables.pop("cpu")
    pictures = [of(recording, columns=columns) for columns in (7, 16, 56, 300)]
    told_of = [[(strip.core, strip.most) for strip in picture.strips] for picture in pictures]
    assert all(each == told_of[0] for each in told_of)
    assert max(most for _, most in told_of[0]) == pytest.approx(1.0, abs=0.05)


def test_where_the_machine_is_full_cores_are_shown_by_how_busy_they_are() -> None:
    recording = made.recording(cpus=2)
    made.cores(recording, 3.0, {0: [(0.0, 3.0, "user")], 1: [(0.0, 1.0, "system")]})
    full = Finding(facts(CpuFull), "warning", 0, 3 * SECOND)
    window = (0, 3 * SECOND, (0, 3 * SECOND))
    busy, kernel = timeline(recording, *window, (full, HELD), 6), timeline(recording, *window, (HELD, full), 6)
    assert [(strip.core, strip.measure) for strip in busy.strips] == [(0, "busy"), (1, "busy")]
    assert float(busy.strips[0].shown.min()) > 0.9
    assert [(strip.core, strip.measure) for strip in kernel.strips] == [(1, "kernel"), (0, "kernel")]
    assert "busy up to 100%" in timeline_text.lines(busy, CLOCK, 100, plain)[0]
    assert "busy up to 100%" in timeline_svg.svg(busy, CLOCK)


@pytest.mark.parametrize(
    ("values", "told_as"),
    [
        ([102, 101, 102], "between 101 and 102"),
        ([5, 9, 12], "5 to 12"),
        ([3000, 20, 0], "3,000 down to 0"),
        ([7, 7], "7"),
        ([0, 0], "0"),
    ],
)
def test_a_count_is_told_by_its_least_and_its_most(values: list[int], told_as: str) -> None:
    count = Count("zombies", np.array(values, dtype=np.float64), np.array(values))
    assert count.told == told_as
    assert ((count.heights >= 0) & (count.heights <= 1)).all()


def test_a_small_change_of_a_count_is_no_cliff() -> None:
    def swing(*values: int) -> float:
        heights = Count("zombies", np.array(values, dtype=np.float64), np.array(values)).heights
        return float(heights.max() - heights.min())

    assert swing(102, 101, 102) < 0.25
    assert swing(14, 13) == 0.25
    assert swing(68_434, 68_438) < 0.01
    assert swing(3_112, 3_300) == 1.0


def test_the_axis_is_as_exact_as_its_times_are_near() -> None:
    clock = Clock(lambda time: "short", lambda time: "exact", seconds, "", seconds)
    near, far = (timeline(told(), BEGIN, BEGIN + length, FOCUS, (), 60) for length in (2 * SECOND, 20 * SECOND))
    for picture, expected, other in ((near, "exact", "short"), (far, "short", "exact")):
        assert timeline_text.lines(picture, clock, 100, plain)[-1].split() == [expected] * 3
        ticks = [element.text for element in ElementTree.fromstring(timeline_svg.svg(picture, clock)).iter("text")]
        assert expected in ticks
        assert other not in ticks


def test_the_number_of_a_core_may_be_anything() -> None:
    recording = made.recording(cpus=1)
    recording["cpu"].add(0, 0, *range(10))  # read once: that tells nothing of any time
    recording["stacks"].add(1, "system", ())
    recording["samples"].add_rows([(SECOND, 1 << 46, 1, 1), (2 * SECOND, 3, 1, 1), (2 * SECOND, -1, 1, 1)])
    picture = timeline(recording, 0, 4 * SECOND, (0, 1), (), 4)
    assert [strip.core for strip in picture.strips] == [3, 1 << 46]
    assert quiet(recording, (3 * SECOND, 4 * SECOND), 1 << 46) is None
