"""What is kept of a whole recording: the same numbers whether it is short, long, sampled or not, and little memory."""

from pathlib import Path

import numpy as np
import pytest

from exhume.host.quantities import SECOND
from exhume.recording.folder import Folder
from exhume.recording.recording import Node, Recording, labels
from exhume.recording.summary import summarise
from exhume.recording.writer import Writer
from exhume.render.lanes import unrecorded
from exhume.web import outline as outline_module
from exhume.web.building import spread
from exhume.web.outline import Outline
from exhume.web.rates import NONE, Rates, rates
from tests.web.serving import browser, decoded, view

BEGIN = 900 * SECOND
NODE = Node("n", "boot", "6.18", "v2", 2)
IDLE, USER, SYSTEM = 0, 1, 2


def made(seconds: int, hz: int = 10) -> Outline:
    """Core 1 is in the kernel in every tenth second, core 0 always in user space."""
    outline = Outline(BEGIN, seconds, 2, hz)
    time = np.repeat(BEGIN + np.arange(seconds * hz) * (SECOND // hz), 2)
    core = np.tile([0, 1], seconds * hz)
    kernel = (time - BEGIN) // SECOND % 10 == 5
    classes = np.where(core == 0, USER, np.where(kernel, SYSTEM, IDLE)).astype(np.int8)
    outline.put(0, outline.place(BEGIN + seconds * SECOND), summarise(time, core, classes))
    return outline


def edges(seconds: int, columns: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return BEGIN + np.arange(columns + 1) * (seconds * SECOND // columns)


def test_spikes_stay_visible_in_wide_columns() -> None:
    outline = made(100)
    assert outline.columns("kernel", edges(100, 10)).tolist() == [1.0] * 10
    assert outline.columns("busy", edges(100, 10), mean=True).tolist() == pytest.approx([0.55] * 10)
    cores, counts, a_cell = outline.worst(edges(100, 10))
    assert (cores, a_cell) == ([0, 1], 10)
    assert counts[1, SYSTEM].tolist() == [10] * 10
    assert counts[0, USER].tolist() == [10] * 10


def test_narrow_columns_repeat_their_second() -> None:
    assert made(10).columns("kernel", edges(10, 40)).tolist() == [0] * 20 + [1] * 4 + [0] * 16


def test_a_longer_recording_has_wider_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline_module, "MOST_CELLS", 25)
    outline = made(100)
    assert outline.width == 4
    assert outline.columns("kernel", edges(100, 5)).tolist() == [1.0] * 5
    assert outline.columns("busy", edges(100, 5), mean=True).tolist() == pytest.approx([0.55] * 5, abs=0.02)
    parts, known = outline.offsets(BEGIN, 100)
    assert parts.sum() == 100 * 10 + 10 * 10
    assert parts[5].sum() == 20  # the heat map is by second even so
    assert known.all()


@pytest.mark.parametrize("seconds", [100, 101])
def test_cells_that_become_wider_count_the_same(monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    grown = made(seconds)
    grown.put_line("zombies", 0, np.arange(seconds, dtype=np.float64))
    assert grown.fit(BEGIN + seconds * SECOND) == 0
    monkeypatch.setattr(outline_module, "MOST_CELLS", 30)
    assert grown.fit(BEGIN + seconds * SECOND) == 2
    wide = made(seconds)
    assert grown.width == wide.width == 4
    for columns in (5, 20):
        given = edges(100, columns)
        assert grown.columns("kernel", given).tolist() == wide.columns("kernel", given).tolist()
        means = [each.columns("busy", given, mean=True).tolist() for each in (grown, wide)]
        assert means[0] == pytest.approx(means[1], abs=0.02)
        assert grown.worst(given)[1].tolist() == wide.worst(given)[1].tolist()
        assert grown.worst(given)[2] == wide.worst(given)[2]
    assert grown.columns("zombies", edges(100, 5)).tolist() == [19, 39, 59, 79, 99]
    assert grown.offsets(BEGIN, 100)[0].tolist() == wide.offsets(BEGIN, 100)[0].tolist()
    assert grown.offsets(BEGIN, seconds)[1].all()
    assert (grown.known(0, 25), wide.known(0, 25)) == (1.0, 1.0)
    assert len(grown) <= len(wide) + 600


def test_a_view_that_goes_on_for_days_takes_no_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outline_module, "MOST_CORE_CELLS", 6_000)
    outline = made(300)
    for day in range(1, 20):
        begin = BEGIN + day * 3_000 * SECOND
        outline.fit(begin + 3_000 * SECOND)
        rows = summarise(np.array([begin]), np.array([0]), np.array([SYSTEM], dtype=np.int8))
        outline.put(outline.place(begin), outline.place(begin) + 1, rows)
        assert len(outline) * len(outline.cores) <= 6_000 + 1_200
    assert outline.width == 32
    found = outline.columns("kernel", BEGIN + np.array([0, 320, 2_960, 3_008]) * SECOND)
    assert found.tolist() == pytest.approx([1.0, np.nan, 0.1], nan_ok=True)


def test_what_was_not_read_is_not_known() -> None:
    outline = Outline(BEGIN, 100, 2, 10)
    assert np.isnan(outline.columns("kernel", edges(100, 10))).all()
    assert np.isnan(outline.columns("zombies", edges(100, 10))).all()
    assert outline.known(0, 100) == 0.0
    parts, known = outline.offsets(BEGIN - 50 * SECOND, 500)
    assert not parts.any()
    assert not known.any()


def test_seconds_can_be_put_again_and_beyond_the_end() -> None:
    outline = made(20)
    for _ in range(2):
        more = summarise(BEGIN + np.arange(15, 2000) * SECOND, np.full(1985, 7), np.full(1985, SYSTEM, dtype=np.int8))
        outline.put(15, 2000, more)
    assert outline.cores == [0, 1, 7]
    parts, _ = outline.offsets(BEGIN, 2000)
    assert parts[15:].sum() == 1985
    assert parts[:15].sum() == 15 * 10 + 10


@pytest.mark.parametrize("told", [0, 1, 6])
def test_cores_that_nobody_told_of_find_their_place(told: int) -> None:
    outline = Outline(BEGIN, 20, told, 10.0)
    time, core = np.repeat(BEGIN + np.arange(20) * SECOND, 3), np.tile([0, 5, 300], 20)
    outline.put(0, 10, summarise(time[:30], core[:30], np.full(30, USER, dtype=np.int8)))
    outline.put(10, 20, summarise(time[30:], core[30:] + 1, np.full(30, SYSTEM, dtype=np.int8)))
    cores, counts, _ = outline.worst(edges(30, 3))
    assert cores == [0, 5, 300, 1, 6, 301]
    assert counts[:, USER].tolist() == [[1, 0, 0]] * 3 + [[0, 0, 0]] * 3
    assert counts[:, SYSTEM].tolist() == [[0, 0, 0]] * 3 + [[0, 1, 0]] * 3
    assert counts.sum() == 6


def test_cores_that_cannot_be_take_no_memory() -> None:
    assert Outline(BEGIN, 20, 10**9, 10.0)._counts.nbytes < 200 << 20


def test_a_log_of_months_takes_little(tmp_path: Path) -> None:
    months = Outline(0, 180 * 86_400, 96, 97)
    assert months._counts.nbytes + sum(each.nbytes for each in months._shares.values()) < 100 << 20
    assert len(months) <= outline_module.MOST_CELLS + 1000


def test_ranges_are_spread() -> None:
    ranges = [(at, at + 1) for at in range(20)]
    found = list(spread(ranges))
    assert sorted(found) == ranges
    assert [first for first, _ in found[:3]] == [0, 8, 16]


def without_samples(path: Path, hz: int = 0) -> str:
    """Twenty seconds by /proc/stat alone: core 1 is in the kernel from the 5th to the 8th, and a few counters."""
    writer = Writer(str(path), NODE, {"hz": hz}, budget_bytes=1 << 30, segment_ns=5 * SECOND)
    ticks = np.zeros((2, 10), dtype=np.int64)
    for step in range(200):
        rows = Recording(NODE)
        time = BEGIN + step * SECOND // 10
        for core in (0, 1):
            ticks[core, 2 if core == 1 and 50 <= step < 80 else 7 if core == 0 and step >= 150 else 3] += 10
            rows["cpu"].add(time + SECOND // 10, core, *ticks[core].tolist())
        if step % 10 == 0:
            second = step // 10
            rows["anchors"].add(time, time, time, 1_760_000_000 * SECOND + time, 1)
            rows["memcg"].add(time, "/", 100, 5_000 + second, 5_100 + second, "cgroup-stat", "node", 1)
            rows["memcg"].add(time, "/a", 1, 1, 2, "cgroup-stat", "node", 1)
            rows.count(time, "pressure_us", second * 250_000, labels(cgroup="", kind="some", resource="cpu"))
            rows.count(time, "cpu_throttled_periods", 10 * max(0, second - 10), labels(cgroup="/a"))
            rows["units"].add(time, "ecs.service", "active", "running", second // 7, "", "", 1, "", "")
            if second in (6, 7):
                rows["events"].add(time, "nic-reset", "eth0", "critical", "<b>reset</b>", labels())
                rows["latency"].add(
                    time, "napi", "wait", 1, "eth0", 0, "", 1, 7_000_000, 7_000_000 * second, [0], 0, 0, "", 1000
                )
        writer.append(rows)
    writer.close()
    return str(path)


@pytest.mark.parametrize("direct", [True, False])
def test_without_samples_the_ticks_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    """The same lanes, whether they are read for the window or from the outline."""
    if not direct:
        monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
        monkeypatch.setattr("exhume.web.lanes._CLOSE_NS", 0)
    someone = browser(view(without_samples(tmp_path / "r")))
    about = someone.api("about")
    assert (about["sampled"], about["samples"]) == (False, 0)
    lanes = someone.api("lanes", from_=BEGIN, to=BEGIN + 20 * SECOND, columns=20)
    assert lanes["source"] == "ticks"
    strips = {core["core"]: core for core in lanes["cores"]}
    system, steal = decoded(strips[1]["system"]), decoded(strips[0]["steal"])
    assert (system[[4, 5, 6, 7, 8]] > 200).tolist() == [False, True, True, True, False]
    assert (steal[[13, 16, 19]] > 200).tolist() == [False, True, True]
    found = {line["key"]: line for line in lanes["lines"]}
    assert list(found) == ["zombies", "live", "napi", "pressure_cpu", "throttled"]
    assert found["zombies"]["values"][:3] == [5000, 5001, 5002]
    assert found["pressure_cpu"]["values"][3] == pytest.approx(25.0, abs=0.1)
    assert found["throttled"]["values"][15] == pytest.approx(10.0, abs=0.1)
    assert found["napi"]["most"] == pytest.approx(49.0)
    assert [(flag["t"] // 1_000_000, flag["text"]) for flag in lanes["flags"]] == [(6, "<b>reset</b>"), (7, "<b>reset</b>")]
    assert [(one["t"] // 1_000_000, one["unit"]) for one in lanes["restarts"]] == [(7, "ecs.service"), (14, "ecs.service")]


@pytest.mark.parametrize("direct", [True, False])
def test_after_the_last_reading_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    """A counter that stands still is not written down again: as long as others are, it is zero."""
    if not direct:
        monkeypatch.setattr("exhume.web.lanes._CLOSE_NS", 0)
    writer = Writer(str(tmp_path / "r"), NODE, {"hz": 0}, budget_bytes=1 << 30, segment_ns=5 * SECOND)
    for second in range(40):
        rows = Recording(NODE)
        time = BEGIN + second * SECOND
        rows["anchors"].add(time, time, time, 1_760_000_000 * SECOND + time, 1)
        if second <= 20:
            rows.count(time, "own_cpu_ns", second)
        if second <= 10:
            rows.count(time, "cpu_throttled_periods", 10 * second, labels(cgroup="/a"))
        writer.append(rows)
    writer.close()
    lanes = browser(view(str(tmp_path / "r"))).api("lanes", from_=BEGIN, to=BEGIN + 40 * SECOND, columns=40)
    (throttled,) = [line["values"] for line in lanes["lines"] if line["key"] == "throttled"]
    assert throttled == [10.0] * 10 + [0.0] * 10 + [None] * 20


@pytest.mark.parametrize("direct", [True, False])
def test_what_was_not_recorded_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    """The recorder was stopped for 40 seconds: what counters passed meanwhile is of no known time."""
    if not direct:
        monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
        monkeypatch.setattr("exhume.web.lanes._CLOSE_NS", 0)
    for first, last in ((0, 10), (50, 60)):
        writer = Writer(str(tmp_path / "r"), NODE, {"hz": 0}, budget_bytes=1 << 30)
        for step in range(first * 10, last * 10):
            rows = Recording(NODE)
            time = BEGIN + step * SECOND // 10
            for core in (0, 1):  # core 1 is in the kernel, also while nobody looks
                rows["cpu"].add(time, core, *(10 * step if place == (2 if core else 3) else 0 for place in range(10)))
            if step % 10 == 1:
                rows.count(time, "vmstat_pgscan_direct", 100 * step)
                rows["anchors"].add(time, time, time, 1_760_000_000 * SECOND + time, 1)
            writer.append(rows)
        writer.close()
    lanes = browser(view(str(tmp_path / "r"))).api("lanes", from_=BEGIN, to=BEGIN + 60 * SECOND, columns=60)
    strips = {core["core"]: decoded(core["system"]) for core in lanes["cores"]}
    gap = [True] * 40
    assert (strips[1] == 255).tolist()[10:50] == (strips[0] == 255).tolist()[10:50] == gap
    assert strips[1][:10].tolist() + strips[1][50:].tolist() == pytest.approx([254] * 20, abs=10 if direct else 40)
    (reclaim,) = [line["values"] for line in lanes["lines"]]
    assert reclaim[10:50] == [None] * 40
    assert reclaim[1:9] + reclaim[51:58] == pytest.approx([1000.0] * 15)
    assert {reclaim[9], reclaim[50]} <= {None, 1000.0}
    wide = browser(view(str(tmp_path / "r"))).api("lanes", from_=BEGIN - 5 * SECOND, to=BEGIN + 65 * SECOND, columns=7)
    (reclaim,) = [line["values"] for line in wide["lines"]]
    assert reclaim == [1000.0, 1000.0, None, None, None, 1000.0, 1000.0]
    assert (decoded(wide["cores"][0]["system"]) == 255).tolist() == [False, False, True, True, True, False, False]


def test_gaps_are_looked_for_where_segments_leave_room(recorded: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "gaps", None)
    assert unrecorded(Folder(recorded), 0, 1 << 62) == []


def at_rates(path: Path, *rates: int) -> str:
    """Ten seconds of each, core 0 in the kernel all the time, core 1 idle: by samples, without /proc/stat."""
    for number, hz in enumerate(rates):
        writer = Writer(str(path), NODE, {"hz": hz}, budget_bytes=1 << 30)
        rows = Recording(NODE)
        for stack, kind in enumerate(("idle", "system")):
            rows["stacks"].add(stack, kind, ())
        rows["threads"].add(0, 1, 1, 0, "x", "x", "/", "", "", "")
        time = np.repeat(BEGIN + number * 10 * SECOND + np.arange(10 * hz) * (SECOND // hz), 2)
        core = np.tile([0, 1], 10 * hz)
        rows["samples"].add_columns(
            {"time": time, "core": core, "thread": np.zeros(20 * hz, dtype=np.int64), "stack": 1 - core}
        )
        rows["anchors"].add(int(time[-1]), 1, 2, 1_760_000_000 * SECOND + int(time[-1]), 1)
        writer.append(rows)
        writer.close()
    return str(path)


@pytest.mark.parametrize("direct", [True, False])
@pytest.mark.parametrize("taken", [(97, 11, 97), (97, 11), (11, 97)])
def test_a_full_core_is_full_whatever_the_rate_of_sampling_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool, taken: tuple[int, ...]
) -> None:
    """An agent under load takes fewer samples, and that is when it counts."""
    if not direct:
        monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
    someone = browser(view(at_rates(tmp_path / "r", *taken)))
    seconds = 10 * len(taken)
    lanes = someone.api("lanes", from_=BEGIN, to=BEGIN + seconds * SECOND, columns=len(taken))
    strips = {core["core"]: decoded(core["system"]) for core in lanes["cores"]}
    assert strips[0].tolist() == pytest.approx([254] * len(taken), abs=3)
    assert strips[1].tolist() == [0] * len(taken)
    overview = someone.api("overview", columns=len(taken))
    assert overview["kernel"] == pytest.approx([1.0] * len(taken), abs=0.02)
    assert overview["busy"] == pytest.approx([0.5] * len(taken), abs=0.02)


def test_of_chapters_of_one_rate_nothing_is_scaled(tmp_path: Path) -> None:
    found = rates(Folder(at_rates(tmp_path / "r", 97, 97)))
    times = BEGIN + np.arange(20) * SECOND
    assert found.scaled(times, 97.0) is None
    assert NONE.scaled(times, 97.0) is None
    mixed = Rates(np.array([BEGIN, BEGIN + 9 * SECOND + 5]), np.array([0.0, 11.0])).scaled(times, 97.0, SECOND)
    assert mixed is not None
    assert mixed.tolist() == [1.0] * 9 + [97 / 11] * 11


def test_ticks_are_shares_of_a_second_whatever_the_last_rate_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
    lanes = browser(view(without_samples(tmp_path / "r", 999))).api("lanes", from_=BEGIN, to=BEGIN + 20 * SECOND, columns=20)
    strips = {core["core"]: decoded(core["system"]) for core in lanes["cores"]}
    assert strips[1][5:8].min() > 200


def test_the_zombies_are_in_the_overview(tmp_path: Path) -> None:
    someone = browser(view(without_samples(tmp_path / "r")))
    overview = someone.api("overview", columns=4)
    assert overview["zombies"][-1] == 5019
    assert overview["kernel"][1] > 0.9
    assert someone.api("heat")["most"] == 0
    assert someone.api("flame")["total"] == 0


def test_narrow_columns_between_samples_are_idle_and_not_unknown(recorded: str) -> None:
    """At 100 samples a second, columns of 2 ms: most have none."""
    begin = 12_345 * SECOND
    someone = browser(view(recorded))
    for length in (2 * SECOND, SECOND // 5):
        lanes = someone.api("lanes", from_=begin, to=begin + length, columns=1000)
        assert lanes["source"] == "samples"
        assert not any((decoded(core["system"]) == 255).any() for core in lanes["cores"])


def test_an_answer_that_was_begun_before_all_was_read_does_not_say_that_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page keeps what is whole for good. Here all is read right after marks and columns were taken."""
    monkeypatch.setattr("exhume.web.lanes._CLOSE_NS", 0)
    monkeypatch.setattr("exhume.web.lanes._CLOSE", 0)
    shown = view(without_samples(tmp_path / "r"), ready=False)
    marks, columns = shown.builder.marks, Outline.columns

    def marks_then_more(start: int, end: int) -> object:
        taken = marks(start, end)
        shown.builder.update()
        return taken

    def columns_then_more(self: Outline, *given: object, **named: object) -> object:
        taken = columns(self, *given, **named)  # type: ignore[arg-type]
        shown.builder.update()
        return taken

    monkeypatch.setattr(shown.builder, "marks", marks_then_more)
    assert browser(shown).api("lanes", columns=20)["ready"] < 1
    monkeypatch.undo()
    assert browser(shown).api("lanes", columns=20)["ready"] == 1

    shown = view(str(tmp_path / "r"), ready=False)
    monkeypatch.setattr(Outline, "columns", columns_then_more)
    assert browser(shown).api("overview", columns=20)["ready"] < 1
    assert browser(shown).api("overview", columns=20)["ready"] == 1
