"""Heat maps: the numbers, and how they look in a terminal."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from exhume.host.quantities import SECOND
from exhume.recording.summary import CLASSES, OFFSETS, Summary, summarise
from exhume.render.heat import (
    Cells,
    CoreMap,
    Saturated,
    aligned,
    core_map,
    oddness,
    of_cores,
    offset_map,
    offsets_together,
    saturated,
    seconds_from,
    total,
)
from exhume.render.heat_text import BLOCKS, COLOURS, GAP, LEFT, axis, core_lines, level, mark_lines, offset_lines, runs, scale

HZ = 100


def summary(*rows: tuple[int, int, int, int, str]) -> Summary:
    """Each row: second, core, from and to (hundredths of it), class; the rest of a second that is named is idle."""
    classes: dict[tuple[int, int], list[int]] = {}
    for second, core, begin, end, kind in rows:
        ticks = classes.setdefault((second, core), [0] * HZ)
        ticks[begin:end] = [CLASSES.index(kind)] * (end - begin)
    times = [second * SECOND + tick * SECOND // HZ for second, _ in classes for tick in range(HZ)]
    cores = [core for _, core in classes for _ in range(HZ)]
    kinds = [kind for ticks in classes.values() for kind in ticks]
    return summarise(np.array(times), np.array(cores), np.array(kinds, dtype=np.int8))


def clock(time: int) -> str:
    return f"12:{time // SECOND // 60:02}:{time // SECOND % 60:02}"


def test_a_part_of_a_second_has_its_own_share() -> None:
    heat = offset_map(summary((7, 0, 30, 40, "system"), (7, 1, 30, 35, "user")), 7 * SECOND, 1, 10)
    assert heat.shares[:, 0].tolist() == pytest.approx([0, 0, 0, 0.75, 0, 0, 0, 0, 0, 0])


def test_a_second_without_samples_is_not_an_idle_one() -> None:
    heat = offset_map(summary((0, 0, 0, 0, "user"), (2, 0, 0, 100, "user")), 0, 3, 10)
    assert heat.shares[0, 0] == 0
    assert np.isnan(heat.shares[:, 1]).all()
    assert (heat.shares[:, 2] == 1).all()
    lines = offset_lines(heat, clock, [], colour=False)
    assert lines[0] == f"{'':{LEFT}} {GAP}@"
    assert "not recorded" in lines[-1]


def test_a_second_that_was_not_seen_whole_shows_the_part_that_was() -> None:
    half = summarise(np.arange(50, 100) * 10_000_000, np.zeros(50, dtype=np.int64), np.array([1, 0] * 25, dtype=np.int8))
    shares = offset_map(half, 0, 1, 10, seen=[(SECOND // 2, SECOND)]).shares[:, 0]
    assert np.isnan(shares[:5]).all()
    assert shares[5:].tolist() == pytest.approx([0.5] * 5)


def test_a_cell_that_was_not_seen_whole_has_the_share_of_its_part() -> None:
    part = summarise(np.arange(55, 100) * 10_000_000, np.zeros(45, dtype=np.int64), np.ones(45, dtype=np.int8))
    shares = offset_map(part, 0, 1, 10, HZ, [(550_000_000, SECOND)]).shares[:, 0]
    assert np.isnan(shares[:5]).all()
    assert shares[5:].tolist() == pytest.approx([1] * 5)


def test_shares_of_cores_are_of_the_time_that_was_recorded() -> None:
    """From 0.6 to 1.0 busy, from 5.0 to 5.2 half of it, nothing in between; seconds of the wall begin at .8."""
    ticks = np.append(np.arange(60, 100), np.arange(500, 520))
    kinds = np.array([1] * 40 + [1, 0] * 10, dtype=np.int8)
    made = summarise(ticks * 10_000_000, np.zeros(60, dtype=np.int64), kinds)
    seen = [(600_000_000, SECOND), (5 * SECOND, 5_200_000_000)]
    start = -200_000_000
    found = aligned(made, start, seen)
    assert (found.time.tolist(), total(found).tolist()) == ([start, start + SECOND, start + 5 * SECOND], [20, 20, 20])
    heat = core_map(found, start, 7, 10, HZ, seen)
    assert heat.busy[0].tolist() == pytest.approx([1, 1, *[np.nan] * 3, 0.5, np.nan], nan_ok=True)
    assert heat.recorded.tolist() == pytest.approx([200_000_000, 200_000_000, 0, 0, 0, 200_000_000, 0])
    assert core_lines(heat, clock, [], colour=False, most=1)[0].endswith(" 83% busy   0% kernel")


def test_a_core_that_sleeps_gives_no_samples_of_cycles_and_is_not_taken_for_busy() -> None:
    few = summarise(np.array([0, 1, 2]), np.zeros(3, dtype=np.int64), np.ones(3, dtype=np.int8))
    assert offset_map(few, 0, 1, 10, HZ).shares[0, 0] == pytest.approx(0.3)
    assert core_map(few, 0, 1, 10, HZ).busy[0, 0] == pytest.approx(0.03)


def test_the_begin_of_a_second_is_at_the_bottom() -> None:
    lines = offset_lines(offset_map(summary((0, 0, 0, 10, "user")), 0, 1, 10), clock, [], colour=False)
    assert lines[9] == "    0 ms @"
    assert lines[0].strip() == ""
    assert [line.split()[0] for line in lines[:10] if line.strip()] == ["800", "600", "400", "200", "0"]


@pytest.mark.parametrize("rows", [10, 25])
def test_every_grouping_keeps_all_samples(rows: int) -> None:
    made = summary((0, 0, 13, 77, "user"), (1, 0, 0, 5, "irq"))
    shares = offset_map(made, 0, 2, rows).shares
    assert (shares * HZ / rows).sum(axis=0).tolist() == pytest.approx([64, 5])


def test_the_oddest_core_comes_first() -> None:
    rows = [(second, core, 0, 20, "user") for second in range(8) for core in range(6)]
    made = summary(*rows, (3, 4, 0, 100, "system"), (4, 4, 0, 100, "system"))
    heat = core_map(made, 0, 8, 100)
    assert heat.cores[0] == 4
    assert sorted(heat.cores) == list(range(6))
    assert heat.kernel[0].tolist() == [0, 0, 0, 1, 1, 0, 0, 0]


def test_more_seconds_than_columns_share_a_column() -> None:
    made = summary(*((second, 0, 0, 100 if second < 3 else 0, "user") for second in range(10)))
    heat = core_map(made, 0, 10, 4)
    assert heat.seconds == 3
    assert heat.busy.tolist() == [[1, 0, 0, 0]]


def test_saturated_seconds_are_found_marked_and_told_as_runs() -> None:
    made = summary(
        (0, 0, 0, 94, "system"),
        (1, 1, 0, 90, "system"),
        (1, 1, 90, 96, "softirq"),
        (2, 1, 0, 100, "softirq"),
        (4, 1, 0, 100, "system"),
        (3, 0, 0, 100, "user"),
    )
    marks = saturated(made, HZ)
    assert [(mark.time // SECOND, mark.core) for mark in marks] == [(1, 1), (2, 1), (4, 1)]
    assert [run[:3] for run in runs(marks)] == [(1, SECOND, 2), (1, 4 * SECOND, 1)]
    assert mark_lines(0, 1, 5, marks) == [" " * LEFT + " ^^ ^"]
    assert mark_lines(0, 2, 3, marks) == [" " * LEFT + "^^^"]
    assert mark_lines(0, 1, 5, []) == []


def test_a_second_that_was_not_seen_whole_is_not_called_saturated() -> None:
    part = summarise(np.arange(50) * 10_000_000, np.zeros(50, dtype=np.int64), np.full(50, 2, dtype=np.int8))
    assert saturated(part, HZ) == []


def test_the_scale_is_the_largest_share_rounded_up() -> None:
    assert [scale(np.array([[share, np.nan]])) for share in (0, 0.03, 0.11, 0.5, 0.51, 1)] == [0.05, 0.05, 0.2, 0.5, 1, 1]
    assert scale(np.array([[np.nan]])) == 0.05


def test_only_nothing_looks_like_nothing() -> None:
    assert level(0, 1, 10) == 0
    assert level(0.0001, 1, 10) == 1
    assert level(1, 1, 10) == 9
    assert level(float("nan"), 1, 10) == -1


def test_the_axis_has_a_time_every_ten_columns() -> None:
    ticks, times = axis(60 * SECOND, 2, 25, clock)
    assert ticks[LEFT:] == "╵         ╵"
    assert times[LEFT:] == "12:01:00  12:01:20"
    assert axis(0, 1, 3, clock)[1].strip() == "12:00:00"


def test_strips_say_how_busy_each_core_was() -> None:
    made = summary((0, 0, 0, 100, "system"), (1, 0, 0, 0, "user"), (0, 12, 0, 50, "user"), (1, 12, 0, 50, "user"))
    lines = core_lines(core_map(made, 0, 2, 50), clock, [], colour=False, most=5)
    assert f"  core 0 {BLOCKS[-1]}{BLOCKS[0]}   50% busy  50% kernel" in lines
    assert any(line.startswith(" core 12 ") and line.endswith("50% busy   0% kernel") for line in lines)
    assert sum("busy " in line for line in core_lines(core_map(made, 0, 2, 50), clock, [], False, most=1)) == 1


def test_colours_are_of_the_256_and_end_with_the_line() -> None:
    heat = offset_map(summary((0, 0, 0, 100, "user"), (1, 0, 0, 0, "user")), 0, 2, 10)
    lines = offset_lines(heat, clock, [], colour=True)
    assert f"\x1b[48;5;{COLOURS[-1]}m \x1b[48;5;{COLOURS[0]}m \x1b[0m" in lines[0]
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert {len(line) for line in plain[:10]} == {LEFT + 2}


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 99), st.sampled_from(CLASSES)), max_size=40),
    st.integers(1, 7),
)
def test_no_sample_is_lost_on_the_way_to_a_map(rows: list[tuple[int, int, int, str]], columns: int) -> None:
    made = summary(*((second, core, tick, tick + 1, kind) for second, core, tick, kind in rows))
    busy = int((made.user + made.system + made.softirq + made.irq).sum())
    assert int(offsets_together(made, 0, 5).sum()) == busy
    heat = core_map(made, 0, 5, columns)
    samples = {core: int(total(of_cores(made, [core])).sum()) for core in heat.cores}
    if heat.seconds == 5:
        shares = dict(zip(heat.cores, heat.busy[:, 0].tolist(), strict=True))
        assert sum(shares[core] * samples[core] for core in shares) == pytest.approx(busy)
    assert sorted(heat.cores) == sorted(set(made.core.tolist()))
    core_lines(heat, clock, saturated(made, HZ), False, 10)
    offset_lines(offset_map(made, 0, 5, 25), clock, [], True)


@given(arrays(np.float64, st.tuples(st.integers(1, 6), st.integers(1, 8)), elements=st.floats(0, 1) | st.just(float("nan"))))
def test_oddness_is_a_number_for_any_shares(shares: np.typing.NDArray[np.float64]) -> None:
    odd = oddness(shares, shares)
    assert len(odd) == len(shares)
    assert np.isfinite(odd).all()


def test_maps_of_nothing() -> None:
    nothing = of_cores(summary((0, 0, 0, 1, "user")), [])
    heat = core_map(nothing, 0, 3, 10)
    assert isinstance(heat, CoreMap)
    assert heat.cores == []
    assert core_lines(heat, clock, [Saturated(0, 0, 1.0)], False, 10)
    assert np.isnan(offset_map(nothing, 0, 3, 10).shares).all()


@given(st.integers(0, 10 * SECOND), st.integers(1, 40))
def test_other_seconds_hold_the_same_samples(start: int, rows: int) -> None:
    """What is aligned to another clock is neither lost nor doubled, and lies where it was to half a fiftieth."""
    time = np.arange(20, 20 + rows) * SECOND
    busy = np.zeros((rows, OFFSETS), dtype=np.uint8)
    busy[:, 7] = 3
    counts = [np.full(rows, number, dtype=np.int64) for number in (97, 0, 3, 0, 0)]
    made = Summary._make([time, np.zeros(rows, dtype=np.int64), *counts, busy])
    found = aligned(made, start)
    assert ((found.time - start) % SECOND == 0).all()
    assert (int(found.idle.sum()), int(found.system.sum())) == (97 * rows, 3 * rows)
    cells = Cells(seconds_from(start, rows + 31), rows + 31)
    cells.add(0, offsets_together(made, cells.wanted.base, rows + 32), np.ones(rows + 32, dtype=np.bool_))
    second, part = np.nonzero(cells.counts)
    assert int(cells.counts.sum()) == 3 * rows
    where = np.sort(start + second * SECOND + part * (SECOND // OFFSETS))
    assert np.abs(where - (time + 7 * (SECOND // OFFSETS))).max() <= SECOND // OFFSETS // 2
