"""perf records: what the kernel writes comes back exact, and what it would never write does no harm."""

import contextlib
import os
import struct
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from exhume.host.root import Root
from exhume.sources.facts import online_cpus
from exhume.sources.sampling import records
from exhume.sources.sampling.records import Exited, Forked, Grouped, Mapped, Named
from exhume.sources.sampling.sampler import Sampler
from tests.sources.sampling import made_records as made

WORDS = st.integers(0, (1 << 64) - 1)
NUMBERS = st.integers(0, (1 << 32) - 1)
TIMES = st.integers(0, (1 << 63) - 1)
NAMES = st.binary(max_size=15).map(lambda name: name.replace(b"\0", b""))
ADDRESSES = st.lists(st.integers(0, (1 << 64) - 4096), max_size=6)


def everything(data: bytes) -> None:
    """All that is ever done with a ring, checked for staying inside it."""
    for cgroups in (True, False):
        found = records.samples(data, cgroups)
        assert all(0 <= begin <= end <= len(data) for begin, end in zip(found.begin, found.end, strict=True))
        assert all(begin % 8 == end % 8 == 0 for begin, end in zip(found.begin, found.end, strict=True))
        assert {len(column) for column in (found.task, found.time, found.core, found.cgroup, found.begin)} == {len(found.end)}
        assert found.lost >= 0
        assert found.throttled >= 0
    told = records.tasks(data)
    for pid in {*told.pid.tolist()} - {-1}:
        told.of(np.array([pid], dtype=np.int64))
    for at in records.starts(data):
        records.parse_task(data, at)
        records.parse_cgroup(data, at)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS, TIMES, st.integers(0, 8191), ADDRESSES, ADDRESSES, TIMES), max_size=6),
    st.booleans(),
)
def test_samples_come_back_as_they_were_written(
    written: list[tuple[int, int, int, int, list[int], list[int], int]], cgroups: bool
) -> None:
    data = b"".join(
        made.sample(pid, tid, when, core, kernel, user, group if cgroups else None)
        for pid, tid, when, core, kernel, user, group in written
    )
    found = records.samples(data, cgroups)
    assert (found.task & 0xFFFFFFFF).tolist() == [each[0] for each in written]
    assert (found.task >> 32 & 0xFFFFFFFF).tolist() == [each[1] for each in written]
    assert found.time.tolist() == [each[2] for each in written]
    assert found.core.tolist() == [each[3] for each in written]
    assert found.cgroup.tolist() == [each[6] if cgroups else 0 for each in written]
    for (_, _, _, _, kernel, user, _), begin, end in zip(written, found.begin, found.end, strict=True):
        chain = struct.unpack(f"={(end - begin) // 8}Q", data[begin:end])
        assert [word for word in chain if word < records.CONTEXT_MAX] == [*kernel, *user]


@pytest.mark.parametrize("depth", [3, 4, 1 << 16, 1 << 40, (1 << 64) - 1])
@pytest.mark.parametrize("cgroup", [9, None])
def test_a_chain_that_says_it_is_longer_than_its_record_is_passed_over(depth: int, cgroup: int | None) -> None:
    good = made.sample(1, 2, 3, 0, user=[0x1000], cgroup=cgroup)
    found = records.samples(
        good + made.sample(4, 5, 6, 0, user=[0x1000], cgroup=cgroup, depth=depth) + good, cgroup is not None
    )
    assert (found.task & 0xFFFFFFFF).tolist() == [1, 1]


def test_what_was_lost_and_throttled_is_counted() -> None:
    data = made.lost(7) + made.sample(1, 1, 1) + made.lost_samples(5) + made.throttle() + made.lost(1) + made.throttle()
    found = records.samples(data, True)
    assert (found.lost, found.throttled, len(found.time)) == (13, 2, 1)
    told = records.tasks(data)
    assert told.lost == 8


@given(NUMBERS, NUMBERS, NUMBERS, TIMES, NAMES)
def test_what_happens_to_tasks_comes_back_as_it_was_written(pid: int, other: int, tid: int, when: int, name: bytes) -> None:
    data = (
        made.fork(pid, other, when, tid or 1)
        + made.comm(pid, tid, name, when)
        + made.comm(pid, tid, name, when, by_exec=True)
        + made.mmap2(pid, 0x1000, 0x2000, name, when, 0x3000, 99)
        + made.exit_of(pid, when, tid or 1)
        + made.cgroup(77, b"/a/" + name)
    )
    told = records.tasks(data)
    groups = list(told.groups)
    assert told.of(np.array([pid], dtype=np.int64)) == [
        Forked(when, pid, other, tid or 1),
        Named(when, pid, tid, False, name),
        Named(when, pid, tid, True, name),
        Mapped(when, pid, 0x1000, 0x2000, 0x3000, (8, 1), 99, 3, name),
        Exited(when, pid, tid or 1),
    ]
    assert groups == [Grouped(77, b"/a/" + name)]
    assert told.of(np.array([pid ^ 1], dtype=np.int64)) == []


def test_records_are_picked_by_process_in_the_order_of_the_ring() -> None:
    data = made.comm(5, 5, b"a", 30) + made.comm(6, 6, b"b", 20) + made.lost(3) + made.comm(5, 9, b"c", 10)
    told = records.tasks(data)
    assert [each.time for each in told.of(np.array([5], dtype=np.int64))] == [30, 10]
    assert [each.time for each in told.of(np.array([5, 6], dtype=np.int64))] == [30, 20, 10]


LOOKALIKES = st.one_of(
    WORDS, st.builds(lambda kind, size: size << 48 | kind, st.integers(0, 200), st.sampled_from([0, 4, 8, 16, 24, 40, 60]))
)


def one_by_one(data: bytes) -> list[int]:
    found, at = [], 0
    while at + 8 <= len(data):
        size = struct.unpack_from("=H", data, at + 6)[0]
        if not size or size % 8 or at + size > len(data):
            break
        found.append(at // 8)
        at += size
    return found


@given(st.lists(st.tuples(st.integers(0, 300), st.lists(LOOKALIKES, max_size=8)), max_size=8), st.lists(LOOKALIKES, max_size=3))
@example([(9, [8 << 48 | 9])], [])
@example([(9, [16 << 48 | 9, 7]), (9, [24 << 48 | 9]), (3, [1, 2])], [])
@example([(9, [1]), (300, [2]), (9, [3])], [40 << 48 | 9])
@example([(9, [1]), (9, [3])], [12 << 48 | 9, 8 << 48 | 9])
@example([(9, [1]), (9, [2] * 4095), (9, [3] * 4094), (9, [4])], [5])  # 32 kB, and less
@example([], [9 << 48])  # an odd size, half of which is a whole number of 16-bit words
@example([(9, [1])], [17 << 48 | 9, 7])
@example([], [8 << 48])  # a header alone, of the kind 0
@example([], [0])
def test_records_begin_where_those_before_them_end_whatever_looks_like_one(
    built: list[tuple[int, list[int]]], rest: list[int]
) -> None:
    data = b"".join(made.record(kind, struct.pack(f"={len(body)}Q", *body)) for kind, body in built)
    data += struct.pack(f"={len(rest)}Q", *rest)
    assert records.starts(data).tolist() == one_by_one(data)


@pytest.mark.parametrize("most", [0, 5, 1000], ids=["from record to record", "too many to jump over", "by jumps"])
def test_records_are_found_in_what_a_chain_that_led_into_data_left(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(records, "_MOST_JUMPS", most)
    lookalike = 0x7120000000000000 | 9
    data = made.sample(1, 1, 5, user=[0x1000, lookalike]) * 20 + made.comm(1, 1, b"a", 6)
    assert records.starts(data).tolist() == one_by_one(data)
    assert len(records.starts(data)) == 21


KINDS = st.sampled_from([1, 2, 3, 4, 7, 10, 19])
FLAGS = st.sampled_from([0, 1 << 13, 1 << 14, 3 << 13, 2])


@given(st.lists(st.tuples(KINDS, FLAGS, st.lists(WORDS, max_size=14)), max_size=8), st.integers(0, 5))
@example([(1, 0, [0, 0, 0])], 0)
def test_many_are_parsed_as_one_is(built: list[tuple[int, int, list[int]]], clock: int) -> None:
    data = b"".join(made.record(kind, struct.pack(f"={len(body)}Q", *body), misc) for kind, misc, body in built)
    at = records.starts(data)
    alone = [records.parse_task(data, where, clock) for where in at.tolist()]
    assert records.parse_tasks(data, at, clock) == [record for record in alone if record is not None]


@given(st.binary(max_size=400))
@example(b"")
@example(b"\0" * 64)
@example(b"\xff" * 64)
def test_random_bytes_do_no_harm(data: bytes) -> None:
    everything(data)


@given(st.lists(st.tuples(st.integers(0, 24), st.integers(0, 0xFFFF), st.integers(0, 12), st.lists(WORDS, max_size=12))))
def test_records_with_any_kind_flags_and_size_do_no_harm(built: list[tuple[int, int, int, list[int]]]) -> None:
    everything(
        b"".join(
            struct.pack("=IHH", kind, misc, 8 * size) + struct.pack(f"={len(words)}Q", *words)
            for kind, misc, size, words in built
        )
    )


WHOLE = (
    made.fork(5, 4, 1)
    + made.comm(5, 5, b"name", 2, by_exec=True)
    + made.mmap2(5, 0x1000, 0x1000, b"/bin/true", 3)
    + made.sample(5, 5, 4, 1, [0xFFFFFFFF81000000], [0x1000, 0x2000])
    + made.cgroup(3, b"/x")
    + made.lost(2)
    + made.exit_of(5, 6)
)


def test_a_ring_cut_anywhere_has_what_was_whole_before() -> None:
    whole = records.starts(WHOLE)
    for cut in range(len(WHOLE)):
        found = records.starts(WHOLE[:cut])
        assert found.tolist() == whole[: len(found)].tolist()
        everything(WHOLE[:cut])


@pytest.fixture(scope="module")
def ring() -> bytes:
    """What real rings held after a fifth of a second."""
    if os.geteuid() != 0:
        pytest.skip("system-wide samples need root")
    with Sampler(online_cpus(Root()), 999) as sampler:
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                os.stat("/nowhere")
        for _ in range(3):
            os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
        taken = sampler.take()
    return b"".join(each.samples[:6000] + each.tasks[:3000] for each in taken)


@given(st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=20), st.integers(0, 1 << 20))
def test_a_real_ring_with_bytes_changed_and_its_end_cut_does_no_harm(
    ring: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(ring)
    for at, value in changes:
        data[at % len(data)] = value
    everything(bytes(data[: len(data) - cut % 64]))
