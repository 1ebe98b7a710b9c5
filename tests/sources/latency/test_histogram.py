"""The histogram against numpy, and what the program in the kernel makes of a value against what Python does."""

import math
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.kernel.bpf import R0, R6, R7, R8, R9, Block, Btf, Builder, Helper, Routine
from exhume.sources.latency.histogram import BUCKETS, EMPTY, HISTOGRAM, Histogram, Task, add, edges, merge, percentile, read
from tests.examples import examples
from tests.kernel.bpf.needs import needs_bpf

TIMES = st.one_of(st.integers(0, 5000), st.integers(0, 1 << 30), st.integers(0, 1 << 44))
LISTS = st.lists(TIMES, min_size=1, max_size=200)


def bucket(value_ns: int) -> int:
    return min((value_ns // 1000).bit_length(), BUCKETS - 1)


def histogram(values: list[int], pid: int = 1) -> Histogram:
    buckets = [0] * BUCKETS
    for value in values:
        buckets[bucket(value)] += 1
    longest = max(values, default=0)
    return Histogram(len(values), sum(values), longest, values.index(longest) if values else 0, pid, f"c{pid}", tuple(buckets))


def test_buckets_are_powers_of_two_of_a_microsecond() -> None:
    bounds = edges()
    assert len(bounds) == BUCKETS + 1
    assert bounds[:4] == (0, 1, 2, 4)
    assert bounds[BUCKETS - 1] == 2 ** (BUCKETS - 2)
    assert math.isinf(bounds[-1])


@given(LISTS, st.integers(0, 100))
def test_a_percentile_is_in_the_bucket_of_the_true_one_and_never_above_the_maximum(values: list[int], q: int) -> None:
    found = percentile(histogram(values), q)
    assert found <= max(values) / 1000
    # numpy's rank may be one off where q times the number is whole, but for rounding: both are right then.
    ranks = (q, max(0, q - 1e-6))
    true = {bucket(int(np.percentile(np.array(values), rank, method="inverted_cdf"))) for rank in ranks}
    bounds = edges()
    assert any(bounds[b] <= found <= bounds[b + 1] or found == max(values) / 1000 for b in true)


@given(LISTS)
def test_percentiles_grow_and_end_at_the_maximum(values: list[int]) -> None:
    found = [percentile(histogram(values), q) for q in range(101)]
    assert found == sorted(found)
    assert found[-1] == max(values) / 1000


@given(st.lists(st.lists(TIMES, max_size=50), max_size=6))
def test_merged_histograms_are_the_histogram_of_all_values(lists: list[list[int]]) -> None:
    merged = merge([histogram(values, pid) for pid, values in enumerate(lists, 1)])
    everything = [value for values in lists for value in values]
    expected = np.bincount([bucket(value) for value in everything], minlength=BUCKETS)
    assert merged.buckets == tuple(expected.tolist())
    assert (merged.count, merged.sum_ns) == (len(everything), sum(everything))
    assert merged.max_ns == max(everything, default=0)
    if everything:
        worst = next(pid for pid, values in enumerate(lists, 1) if merged.max_ns in values)
        assert (merged.pid, merged.comm) == (worst, f"c{worst}")


def test_a_spread_on_a_scale_of_powers_is_found_again() -> None:
    values = [int(1000 * 2 ** (i / 100)) for i in range(100, 2000)]
    for q in (10, 50, 90, 99):
        assert percentile(histogram(values), q) == pytest.approx(np.percentile(values, q) / 1000, rel=0.01)


def test_nothing_measured_has_no_percentile_and_a_wrong_one_is_refused() -> None:
    assert percentile(EMPTY, 99) == 0
    assert merge([]) == merge([EMPTY]) == EMPTY
    for q in (-1, 101):
        with pytest.raises(ValueError, match="between 0 and 100"):
            percentile(EMPTY, q)


def test_a_name_is_hostile_bytes() -> None:
    record = np.zeros(1, HISTOGRAM)
    record["comm"] = np.void(b"\xff\x1bx\0rest of before")
    assert read(record[0]).comm == "\\xff\x1bx"


class Adder:
    """The instructions of `add`, run on demand with a value of ours."""

    def __init__(self, block: Block, *, named: bool) -> None:
        btf = Btf.vmlinux()
        p = Builder()
        p.address_of(R6, block)
        p.load(R7, R6)
        p.load(R8, R6 + 8)
        p.call(Helper.get_current_task)
        p.mov(R9, R0)
        task = Task(R9, btf.offset("task_struct", "pid"), btf.offset("task_struct", "comm")) if named else None
        add(p, R6 + 16, R7, R8, task=task)
        p.exit(0)
        self._block = block
        self.routine = Routine(p)

    def add(self, value: int, now: int) -> None:
        self._block.write(struct.pack("=QQ", value, now))
        self.routine.run()


@needs_bpf
@pytest.mark.parametrize("named", [False, True], ids=["current", "a given task"])
def test_the_program_counts_as_python_does(named: bool) -> None:
    edge_cases = [0, 1, 999, 1000, 1001, 1999, 2000, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    for power in range(BUCKETS + 8):
        edge_cases += [1000 * (1 << power) - 1, 1000 * (1 << power), 1000 * (1 << power) + 999]
    comm = Path("/proc/thread-self/comm").read_text().rstrip("\n")
    with Block(16 + HISTOGRAM.itemsize) as block:
        adder = Adder(block, named=named)
        with adder.routine:

            @settings(max_examples=examples(60))
            @given(st.lists(st.one_of(st.sampled_from(edge_cases), TIMES), max_size=30))
            def check(values: list[int]) -> None:
                block.write(bytes(block.size))
                for at, value in enumerate(values):
                    adder.add(value, at)
                got = read(np.frombuffer(block.read(16), HISTOGRAM)[0])
                mine = histogram(values)
                assert (got.count, got.buckets, got.max_ns) == (mine.count, mine.buckets, mine.max_ns)
                assert got.sum_ns == mine.sum_ns % (1 << 64)
                if got.max_ns:
                    assert got.max_at_ns == mine.max_at_ns
                    assert got.pid == threading.get_native_id()
                    assert got.comm == comm

            check()
            for value in edge_cases:
                block.write(bytes(block.size))
                adder.add(value, 7)
                got = read(np.frombuffer(block.read(16), HISTOGRAM)[0])
                assert got.buckets.index(1) == bucket(value), value


@given(st.binary(min_size=HISTOGRAM.itemsize, max_size=HISTOGRAM.itemsize), st.floats(0, 100))
def test_garbage_is_read_without_a_word(raw: bytes, q: float) -> None:
    got = read(np.frombuffer(raw, HISTOGRAM)[0])
    assert 0 <= percentile(got, q) <= got.max_ns / 1000
    assert merge([got, got]).count == 2 * got.count
