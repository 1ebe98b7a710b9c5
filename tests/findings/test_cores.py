"""Stretches of kernel time: found where they are, through coarse ticks, and not where they are not."""

from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.findings.cores import _maximal_runs, busy, cores, saturated
from tests.findings import made


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


@settings(max_examples=300)
@given(st.lists(st.sampled_from([-3.0, -1.0, 1.0, 2.0, 4.0, 0.5, -0.25]), max_size=14))
def test_the_linear_search_finds_what_the_definition_says(weights: list[float]) -> None:
    found, expected = _maximal_runs(weights), brute_force(weights)
    assert sum(sum(weights[a : b + 1]) for a, b in found) == sum(sum(weights[a : b + 1]) for a, b in expected)
    assert len(found) == len(expected)
