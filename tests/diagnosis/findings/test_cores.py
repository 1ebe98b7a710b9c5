"""Stretches of kernel time: found where they are, through coarse ticks, and not where they are not."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.diagnosis.findings.core_missing import unaccounted
from exhume.diagnosis.findings.cores import Core, busy, cores, maximal_runs, saturated, share, together
from exhume.recording.recording import Recording
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND
from tests.examples import examples


def stretches(shares: list[tuple[float, float, str]], ratio: float = 0.95, ms: int = 300) -> list[tuple[float, float]]:
    recording = made.recording(cpus=1)
    made.cores(recording, 3.0, {0: shares})
    (core,) = cores(recording)
    return [(found.start / made.SECOND, found.end / made.SECOND) for found in saturated(core, ratio, ms)]


def test_a_burst_of_a_second_is_found_where_it_is() -> None:
    ((start, end),) = stretches([(1.0, 2.0, "system")])
    assert abs(start - 1.0) <= 0.05
    assert abs(end - 2.0) <= 0.05


def test_a_burst_of_300_ms_is_seen() -> None:
    assert len(stretches([(1.0, 1.35, "system")])) == 1


def test_a_burst_of_200_ms_is_not_told() -> None:
    assert stretches([(1.0, 1.2, "system")]) == []


def test_softirq_and_irq_time_count_as_kernel_time() -> None:
    assert len(stretches([(0.5, 0.9, "softirq"), (0.9, 1.3, "irq"), (1.3, 1.6, "system")])) == 1


def test_user_time_is_not_kernel_time() -> None:
    assert stretches([(0.0, 3.0, "user")]) == []


def test_two_bursts_are_two_stretches() -> None:
    found = stretches([(0.2, 0.8, "system"), (2.0, 2.6, "system")])
    assert len(found) == 2


def test_one_stray_tick_does_not_cut_a_long_stretch() -> None:
    assert len(stretches([(0.0, 1.5, "system"), (1.5, 1.51, "user"), (1.51, 3.0, "system")])) == 1


def test_a_core_that_is_half_system_is_not_saturated() -> None:
    shares = [(i / 10, i / 10 + 0.05, "system") for i in range(30)]
    assert stretches(shares) == []


def test_the_machine_is_as_busy_as_its_cores_are() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 2.0, {0: [(0.0, 2.0, "system")], 1: [(0.0, 1.0, "user")]})
    assert round(busy(cores(recording)), 2) == round(1.5 / 4, 2)


def rows(*readings: tuple[float, dict[int, tuple[int, int]]]) -> Recording:
    """CPU rows from (seconds, core → (system, idle) ticks)."""
    recording = made.recording()
    for seconds, by_core in readings:
        for core, (system, idle) in by_core.items():
            recording["cpu"].add(round(seconds * SECOND), core, 0, 0, system, idle, 0, 0, 0, 0, 0, 0)
    return recording


def test_three_stray_ticks_in_three_seconds_are_not_a_full_core() -> None:
    """A core without a tick of its own (nohz_full, interrupts off) is accounted now and then, and only by what it did then."""
    readings = [(i * 0.05, {0: (i // 16, 0)}) for i in range(61)]
    (core,) = cores(rows(*readings))
    assert core.spent("system") == (3, 3)
    assert saturated(core, 0.95, 300) == []


def test_a_late_reading_is_one_step_as_long_as_it_took() -> None:
    (core,) = cores(rows((0, {0: (0, 0)}), (0.05, {0: (0, 5)}), (1.05, {0: (100, 5)}), (1.1, {0: (100, 10)})))
    (found,) = saturated(core, 0.95, 300)
    assert (found.start, found.ms) == (SECOND // 20, 1_000)
    (core,) = cores(rows((0, {0: (0, 0)}), (0.05, {0: (0, 5)}), (1.05, {0: (5, 5)}), (1.1, {0: (5, 10)})))
    assert saturated(core, 0.95, 300) == []


def test_a_burst_that_is_accounted_when_it_ends_is_found_where_it_was() -> None:
    silent = [(0.05 * i, {0: (0, 5)}) for i in range(1, 41)]
    (core,) = cores(rows((0, {0: (0, 0)}), *silent, (2.05, {0: (200, 5)}), (2.1, {0: (200, 10)})))
    (found,) = saturated(core, 0.95, 300)
    assert (found.start, found.end) == (SECOND // 20, 41 * SECOND // 20)


def test_a_burst_that_began_before_we_looked_counts_with_its_ticks() -> None:
    (core,) = cores(rows((5.0, {0: (0, 0)}), (5.05, {0: (200, 0)}), (5.1, {0: (200, 5)})))
    (found,) = saturated(core, 0.95, 300)
    assert (found.ms, found.end) == (2_000, 101 * SECOND // 20)


def test_a_step_of_many_minutes_is_not_cut_short() -> None:
    (core,) = cores(rows((0, {0: (0, 0)}), (1, {0: (100, 0)}), (1_001, {0: (100_100, 0)}), (1_002, {0: (100_100, 100)})))
    assert core.spent("system") == (100_100, 100_200)
    assert [found.ms for found in saturated(core, 0.95, 300)] == [1_001_000]


def gap(first: int, after: int, made_up: int = 0, other: int = 5) -> list[int]:
    """Milliseconds in which core 0 stood still: it has no ticks from one reading to another, `made_up` in the one after."""
    ticks, others, readings = 0, 0, []
    for i in range(61):
        if i and not first < i <= after:
            ticks += made_up if made_up and i == after + 1 else 5
        others += other if i else 0
        readings.append((0.05 * i, {0: (0, ticks), 1: (0, others)}))
    zero, one = cores(rows(*readings))
    return [found.ms for found in unaccounted([zero], [zero, one], 300)]


def _slowly(core: Core, others: list[Core], shortest_ms: int) -> list[tuple[int, int, int]]:
    """Stretch by stretch and core by core."""
    total, wall, found, first = core.passed(), np.diff(core.times), [], None
    for i in range(len(total) + 1):
        if i < len(total) and total[i] * core.tick_ns < 0.1 * wall[i]:
            first = i if first is None else first
        elif first is not None:
            start, end = int(core.times[first]), int(core.times[i])
            made_up = max(0, int(total[i]) * core.tick_ns - int(wall[i])) if i < len(total) else 0
            missing = end - start - int(total[first:i].sum()) * core.tick_ns - made_up
            passed = sum(other.spent(start=start, end=end)[1] for other in others) * core.tick_ns
            if missing >= shortest_ms * 1_000_000 and passed >= (end - start) * len(others) / 2:
                found.append((core.number, start, end))
            first = None
    return found


@settings(max_examples=examples(50))
@given(
    st.lists(st.lists(st.sampled_from([0, 0, 0, 1, 10, 10, 40]), min_size=12, max_size=12), min_size=2, max_size=4),
    st.booleans(),
)
def test_all_stretches_at_once_are_what_one_after_the_other_would_be(ticks: list[list[int]], apart: bool) -> None:
    recording = made.recording()
    for core, steps in enumerate(ticks):
        for i in range(13):
            time = i * SECOND // 10 + (core * 3_000_000 if apart else 0)
            recording["cpu"].add(time, core, 0, 0, 0, sum(steps[:i]), 0, 0, 0, 0, 0, 0)
    everyone = cores(recording)
    expected = [each for core in everyone for each in _slowly(core, [other for other in everyone if other is not core], 300)]
    assert [(one.core, one.start, one.end) for one in unaccounted(everyone, everyone, 300)] == expected


def _stolen(share: float, of_kernel: float = 1.0, seconds: float = 6.0, step: float = 0.05) -> Core:
    """Core 0 with so much steal all the time, and in the kernel for such a share of what is left of the middle third."""
    recording = made.recording(cpus=1)
    for i in range(round(seconds / step) + 1):
        now = i * step
        inside = min(max(0.0, now - seconds / 3), seconds / 3)
        stolen, system = now * share, inside * (1 - share) * of_kernel
        system_ticks, idle_ticks, steal_ticks = (int(spent * 100 + 1e-6) for spent in (system, now - stolen - system, stolen))
        recording["cpu"].add(round(now * SECOND), 0, 0, 0, system_ticks, idle_ticks, 0, 0, 0, steal_ticks, 0, 0)
    (core,) = cores(recording)
    return core


@pytest.mark.parametrize("share", [0.0, 0.08, 0.2, 0.35])
def test_what_the_hypervisor_took_does_not_hide_a_core_that_is_full_of_kernel_time(share: float) -> None:
    (found,) = saturated(_stolen(share), 0.95, 300)
    assert abs(found.ms - 2_000) <= 100
    assert found.ratio >= 0.95
    assert saturated(_stolen(share, of_kernel=0.8), 0.95, 300) == []


def test_of_a_core_that_hardly_ran_nothing_is_said() -> None:
    assert saturated(_stolen(0.7), 0.95, 300) == []


def test_all_cores_as_one_have_the_time_of_all() -> None:
    recording = made.recording(cpus=4)
    made.cores(recording, 3.0, {core: [(1.0, 2.0, "system")] for core in range(3)})
    whole = together(cores(recording))
    (found,) = saturated(whole, 0.7, 300)
    assert (whole.number, found.core) == (-1, -1)
    assert abs(found.ms - 1_000) <= 60
    assert 0.7 <= found.ratio <= 0.8
    assert saturated(whole, 0.8, 300) == []


def test_all_cores_as_one_need_not_be_read_at_once() -> None:
    readings = [(0.1 * i + 0.03 * core, {core: (max(0, i - 10) * 10, min(i, 10) * 10)}) for i in range(31) for core in range(3)]
    whole = together(cores(rows(*readings)))
    (found,) = saturated(whole, 0.8, 300)
    assert abs(found.start - SECOND) <= 0.2 * SECOND
    assert abs(found.end - 3 * SECOND) <= 0.2 * SECOND


def test_time_that_nobody_accounted_is_found_where_the_others_had_some() -> None:
    assert gap(20, 28) == [400]
    assert gap(20, 25) == []  # 250 ms
    assert gap(0, 60) == [3_000]  # all the time
    assert gap(52, 60) == [400]  # to the end


def test_time_that_was_accounted_later_is_not_missing() -> None:
    assert gap(20, 28, made_up=45) == []


def test_a_machine_that_stood_still_as_a_whole_has_no_core_to_blame() -> None:
    assert gap(20, 28, other=0) == []


def test_a_core_without_a_tick_is_not_an_idle_one() -> None:
    still = dict.fromkeys((1, 2), (7, 7))
    everyone = cores(rows((0, {0: (0, 0), **still}), (1, {0: (100, 0), **still})))
    assert busy(everyone) == share(everyone, "system") == 1.0


def test_a_file_that_never_changes_is_no_core_at_all() -> None:
    assert cores(rows((0, {0: (9, 9)}), (1, {0: (9, 9)}))) == []


def test_cores_are_worked_out_once_and_again_after_more_rows() -> None:
    recording = rows((0, {0: (0, 0)}), (1, {0: (50, 50)}))
    first = cores(recording)
    assert cores(recording) is first
    recording["cpu"].add(2 * SECOND, 0, 0, 0, 150, 50, 0, 0, 0, 0, 0, 0)
    assert cores(recording)[0].share("system") == 0.75


def test_rows_in_any_order_are_the_same_cores() -> None:
    forth = [(0.5 * i, {core: (i * core, i) for core in range(3)}) for i in range(5)]
    for one, other in zip(cores(rows(*forth)), cores(rows(*reversed(forth))), strict=True):
        assert (one.times == other.times).all()
        assert (one.ticks == other.ticks).all()


def brute_force(weights: list[float]) -> list[tuple[int, int]]:
    """Ruzzo and Tompa's definition, slowly: take the best run, then what is left and right of it."""

    def best(low: int, high: int) -> list[tuple[int, int]]:
        runs = [
            (sum(weights[i:j]), -(j - i), -i, i, j - 1)
            for i in range(low, high)
            for j in range(i + 1, high + 1)
            if sum(weights[i:j]) > 0
        ]
        if not runs:
            return []
        *_, first, last = max(runs)
        return [*best(low, first), (first, last), *best(last + 1, high)]

    return best(0, len(weights))


@settings(max_examples=examples(300))
@given(st.lists(st.sampled_from([-3.0, -1.0, 1.0, 2.0, 4.0, 0.5, -0.25]), max_size=14))
def test_the_linear_search_finds_what_the_definition_says(weights: list[float]) -> None:
    found, expected = maximal_runs(weights), brute_force(weights)
    assert sum(sum(weights[a : b + 1]) for a, b in found) == sum(sum(weights[a : b + 1]) for a, b in expected)
    assert len(found) == len(expected)


class Counted(float):
    """A weight that counts how often it is compared and added."""

    operations = 0

    def __add__(self, other: float) -> "Counted":
        Counted.operations += 1
        return Counted(float(self) + other)

    __radd__ = __add__

    def __lt__(self, other: float) -> bool:
        Counted.operations += 1
        return float(self) < other

    def __ge__(self, other: float) -> bool:
        Counted.operations += 1
        return float(self) >= other


@pytest.mark.parametrize("pattern", [(1.0, -2.0), (2.0, -1.0), (1.0, -1.0), (1.0, -1.5, 1.0, -0.25)])
def test_the_search_takes_as_many_steps_as_there_are_readings(pattern: tuple[float, ...]) -> None:
    """Falling runs are the worst of them: none is ever joined to another, and each new one looks for a smaller one."""
    for falling in (False, True):
        weights: list[float] = [Counted(pattern[i % len(pattern)] - (i * 1e-3 if falling else 0.0)) for i in range(4_000)]
        Counted.operations = 0
        maximal_runs(weights)
        assert Counted.operations < 10 * len(weights)
