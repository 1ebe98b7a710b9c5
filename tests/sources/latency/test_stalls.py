"""From looks to stalls, with looks made by hand."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exhume.sources.latency.discover import Thread
from exhume.sources.latency.look import CORE, NAPI_DUE, NAPI_OFF, NET_RX, NET_TX, THREAD, Look
from exhume.sources.latency.stalls import Change, Holder, Stall, Stalls
from tests.examples import examples

MS = 1_000_000
LATE = 50 * MS
BEGIN = 1_000_000 * MS
NAPI = Thread(1 << 63, 1 << 62, 700, 700, "napi/eth0-5", "eth0", 4026531840)
PLAIN = Thread(1 << 63, 0, 800, 900, "kubelet", "", 0, kernel=False)
KSOFTIRQD = [Thread(1 << 63, 0, 10 + core, 10 + core, f"ksoftirqd/{core}", "", 0) for core in range(3)]


def thread(of: Thread, **columns: int) -> tuple[Thread, Mapping[str, int]]:
    return of, {"there": 1, "cpu": 1, "pcount": 5, "pcount_before": 5, "state": NAPI_DUE, **columns}


class Watched:
    """Looks at the times that are given, in milliseconds since the first."""

    def __init__(self) -> None:
        self.stalls = Stalls(LATE)
        self.told: list[Change] = []

    def look(
        self, at_ms: float, *threads: tuple[Thread, Mapping[str, int]], cores: Mapping[int, Mapping[str, Any]] | None = None
    ) -> list[Change]:
        rows, of_cores = np.zeros(len(threads), THREAD), np.zeros(3, CORE)
        for row, (of, columns) in zip(rows, threads, strict=True):
            row["tid"] = of.tid
            for name, value in columns.items():
                row[name] = value
        for core, row in enumerate(of_cores):
            row["known"], row["curr_tid"], row["curr_pid"], row["curr_comm"] = 1, 1000 + core, 2000 + core, b"busy\0\0"
            for name, value in (cores or {}).get(core, {}).items():
                row[name] = value
        look = Look(BEGIN + round(at_ms * MS), rows, of_cores)
        changes = self.stalls.add(look, [of for of, _ in threads], KSOFTIRQD)
        self.told += changes
        return changes


@pytest.fixture
def watched() -> Watched:
    it = Watched()
    it.look(0, thread(NAPI), thread(PLAIN))
    return it


def queued(at_ms: float) -> int:
    return BEGIN + round(at_ms * MS)


def over(changes: list[Change]) -> Stall:
    (change,) = changes
    assert change.over
    return change.stall


def begun(changes: list[Change]) -> Stall:
    (change,) = changes
    assert not change.over
    return change.stall


def test_a_stall_is_told_once_while_it_lasts_and_once_when_it_is_over(watched: Watched) -> None:
    assert watched.look(25, thread(NAPI, last_queued=queued(10))) == []
    assert watched.look(50, thread(NAPI, last_queued=queued(10))) == []
    first = begun(watched.look(75, thread(NAPI, last_queued=queued(10))))
    assert (first.start, first.length_ns(queued(75))) == (queued(10), 65 * MS)
    assert watched.stalls.open == [first]
    for at in (100, 125, 150):
        assert watched.look(at, thread(NAPI, last_queued=queued(10))) == []
    last = over(watched.look(175, thread(NAPI, pcount=6, run_delay=147 * MS)))
    assert last is first
    assert last.length_ns(0) == 147 * MS, "exactly as the kernel counted"
    assert last.error_ns == 0
    assert (last.what, last.core, last.device, last.netns, last.subject) == ("napi", 1, "eth0", 4026531840, "eth0")
    assert last.holder == Holder(2001, 1001, "busy")
    assert last.holders[Holder(2001, 1001, "busy")] == 6
    same = {"pcount": 6, "pcount_before": 6, "run_delay": 147 * MS, "run_delay_before": 147 * MS}
    assert watched.look(200, thread(NAPI, **same)) == []
    assert watched.stalls.quiet
    assert watched.stalls.finish() == []


def test_a_wait_that_ends_before_the_threshold_is_none(watched: Watched) -> None:
    watched.look(25, thread(NAPI, last_queued=queued(10)))
    watched.look(50, thread(NAPI, last_queued=queued(10)))
    watched.look(75, thread(NAPI, pcount=6, run_delay=49 * MS))
    assert watched.told == []


def test_one_that_passed_the_threshold_between_two_looks_is_told_when_it_is_over(watched: Watched) -> None:
    watched.look(25, thread(NAPI, last_queued=queued(10)))
    stall = over(watched.look(75, thread(NAPI, pcount=6, run_delay=51 * MS)))
    assert (stall.start, stall.end) == (queued(10), queued(61))


def test_the_kernels_account_is_of_this_wait_and_not_of_those_before_it(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20), run_delay=9000 * MS))
    watched.look(90, thread(PLAIN, last_queued=queued(20), run_delay=9000 * MS))
    stall = over(watched.look(125, thread(PLAIN, pcount=6, run_delay=9100 * MS)))
    assert stall.length_ns(0) == 100 * MS


def test_short_waits_after_it_make_the_length_uncertain_by_about_as_much(watched: Watched) -> None:
    usual = {"pcount": 1005, "pcount_before": 5, "run_delay": 1000 * MS}
    watched.look(25, thread(PLAIN, last_queued=queued(20), **usual))
    watched.look(100, thread(PLAIN, last_queued=queued(20), **usual))
    stall = over(watched.look(125, thread(PLAIN, pcount=1009, run_delay=1096 * MS)))
    assert stall.length_ns(0) == 96 * MS
    assert stall.error_ns == 6 * MS, "three more waits of 1 ms on average, and the double of that"


def test_a_length_is_never_less_than_was_seen_nor_more_than_there_was(watched: Watched) -> None:
    for run_delay, length in ((0, 80), (5000 * MS, 105)):
        watched.look(25, thread(NAPI, last_queued=queued(20)))
        watched.look(100, thread(NAPI, last_queued=queued(20)))
        assert over(watched.look(125, thread(NAPI, pcount=6, run_delay=run_delay))).length_ns(0) == length * MS


def test_a_thread_with_nothing_to_poll_is_not_late(watched: Watched) -> None:
    for at in (25, 75, 125):
        watched.look(at, thread(NAPI, last_queued=queued(10), state=0))
    watched.look(150, thread(NAPI, pcount=6, run_delay=140 * MS, state=0))
    assert watched.told == []
    watched.look(175, thread(NAPI, last_queued=queued(160), pcount=6, state=0))
    assert begun(watched.look(225, thread(NAPI, last_queued=queued(160), pcount=6))).start == queued(160)


def test_a_device_that_is_being_switched_off_is_not_late(watched: Watched) -> None:
    for at in (25, 75, 125):
        watched.look(at, thread(NAPI, last_queued=queued(10), state=NAPI_DUE | NAPI_OFF))
    watched.look(150, thread(NAPI, pcount=6, run_delay=140 * MS, state=NAPI_OFF))
    watched.look(500, thread(NAPI, pcount=7, pcount_before=6, run_delay=440 * MS, run_delay_before=140 * MS, state=NAPI_OFF))
    assert watched.told == []


def test_a_thread_that_is_moved_to_another_core_goes_on_waiting(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)))
    begun(watched.look(75, thread(PLAIN, last_queued=queued(20))))
    # It is taken off one queue, which ends a wait by the kernel's account, and put on another (sched_info_dequeue).
    assert watched.look(100, thread(PLAIN, last_queued=queued(90), run_delay=70 * MS, cpu=2)) == []
    stall = over(watched.look(150, thread(PLAIN, run_delay=120 * MS, pcount=6, cpu=2)))
    assert (stall.start, stall.length_ns(0), stall.core) == (queued(20), 120 * MS, 1)


def test_the_core_of_a_stall_is_where_it_was_seen_to_wait_longest(watched: Watched) -> None:
    for at, core in ((25, 1), (75, 2), (100, 2), (125, 2)):
        watched.look(at, thread(PLAIN, last_queued=queued(20), cpu=core))
    stall = over(watched.look(150, thread(PLAIN, run_delay=120 * MS, pcount=6, cpu=0)))
    assert (stall.core, stall.holder) == (2, Holder(2002, 1002, "busy"))


def test_a_thread_that_slept_at_the_last_look_waits_since_then_at_most(watched: Watched) -> None:
    watched.look(100, thread(PLAIN))
    watched.look(125, thread(PLAIN, last_queued=queued(3), asleep_before=1))
    assert watched.told == []
    stall = begun(watched.look(150, thread(PLAIN, last_queued=queued(3))))
    assert (stall.start, stall.error_ns) == (queued(100), 25 * MS)


def test_nobody_on_the_core_is_to_blame_for_a_quota(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)))
    stall = begun(watched.look(75, thread(PLAIN, last_queued=queued(20), throttled=1)))
    assert stall.throttled
    assert stall.holder is None


def test_a_thread_that_is_stopped_while_it_waits_waits_no_more(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)))
    begun(watched.look(75, thread(PLAIN, last_queued=queued(20))))
    assert over(watched.look(100, thread(PLAIN, run_delay=60 * MS))).length_ns(0) == 60 * MS


def test_a_thread_that_ends_while_it_waits_waits_no_more(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)))
    begun(watched.look(75, thread(PLAIN, last_queued=queued(20))))
    stall = over(watched.look(100, thread(PLAIN, there=0)))
    assert (stall.length_ns(0), stall.error_ns) == (55 * MS, 25 * MS)
    assert watched.stalls.quiet


@pytest.mark.parametrize("others", [(), (thread(NAPI),)], ids=["nobody", "another"])
def test_a_thread_that_is_not_looked_at_any_more_waits_no_more(
    watched: Watched, others: tuple[tuple[Thread, Mapping[str, int]], ...]
) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)))
    begun(watched.look(75, thread(PLAIN, last_queued=queued(20))))
    assert over(watched.look(100, *others)).length_ns(0) == 55 * MS
    assert watched.stalls.quiet


def test_one_wait_after_another_is_two_stalls(watched: Watched) -> None:
    for pcount, start in ((5, 20), (6, 120)):
        waited = (pcount - 5) * 90 * MS
        watched.look(start + 10, thread(PLAIN, last_queued=queued(start), pcount=pcount, run_delay=waited))
        watched.look(start + 80, thread(PLAIN, last_queued=queued(start), pcount=pcount, run_delay=waited))
    watched.look(220, thread(PLAIN, pcount=7, run_delay=180 * MS))
    assert [change.over for change in watched.told] == [False, True, False, True]
    assert [change.stall.length_ns(0) for change in watched.told if change.over] == [90 * MS, 90 * MS]


def test_several_threads_wait_each_for_itself(watched: Watched) -> None:
    watched.look(25, thread(NAPI, last_queued=queued(10)), thread(PLAIN, last_queued=queued(20), cpu=2))
    both = watched.look(100, thread(NAPI, last_queued=queued(10)), thread(PLAIN, last_queued=queued(20), cpu=2))
    assert [(c.stall.subject, c.stall.what, c.stall.core) for c in both] == [
        ("eth0", "napi", 1),
        ("kubelet [800]", "runqueue", 2),
    ]
    assert [c.stall.holder for c in both] == [Holder(2001, 1001, "busy"), Holder(2002, 1002, "busy")]
    over(watched.look(125, thread(NAPI, pcount=6, run_delay=100 * MS), thread(PLAIN, last_queued=queued(20), cpu=2)))
    assert [stall.subject for stall in watched.stalls.open] == ["kubelet [800]"]
    assert [change.stall.end for change in watched.stalls.finish()] == [queued(125)]


def test_a_wait_that_no_look_saw_is_told_by_the_kernels_account(watched: Watched) -> None:
    stall = over(watched.look(500, thread(NAPI, pcount=6, run_delay=300 * MS)))
    assert (stall.length_ns(0), stall.end, stall.error_ns) == (300 * MS, queued(500), 0)
    assert (stall.what, stall.device, stall.holder) == ("napi", "eth0", None)


def test_of_several_that_no_look_saw_one_was_as_long_as_their_mean(watched: Watched) -> None:
    stall = over(watched.look(500, thread(PLAIN, pcount=8, run_delay=300 * MS)))
    assert (stall.length_ns(0), stall.error_ns) == (100 * MS, 200 * MS)
    assert watched.look(900, thread(PLAIN, pcount=28, pcount_before=8, run_delay=700 * MS, run_delay_before=300 * MS)) == []


def test_one_that_no_look_saw_is_told_though_the_next_has_begun(watched: Watched) -> None:
    stall = over(watched.look(500, thread(PLAIN, pcount=6, run_delay=300 * MS, last_queued=queued(495))))
    assert (stall.length_ns(0), stall.end) == (300 * MS, queued(495))
    assert begun(watched.look(560, thread(PLAIN, pcount=6, run_delay=300 * MS, last_queued=queued(495)))).start == queued(495)


def test_the_first_look_at_a_thread_has_nothing_to_compare_with() -> None:
    watched = Watched()
    assert watched.look(0, thread(PLAIN, pcount=900, pcount_before=0, run_delay=10**9 * MS)) == []


def test_who_waits_does_not_hold_the_core_itself(watched: Watched) -> None:
    """The look reads one after the other: meanwhile it may have got the core."""
    mine = {1: {"curr_tid": PLAIN.tid, "curr_pid": PLAIN.pid}}
    watched.look(25, thread(PLAIN, last_queued=queued(20)), cores=mine)
    stall = begun(watched.look(75, thread(PLAIN, last_queued=queued(20)), cores=mine))
    assert stall.holder is None


# Softirqs

DUE = {"pending": 1 << NET_RX, "pending_before": 1 << NET_RX}


def counts(net_rx: int) -> list[int]:
    return [net_rx if vector == NET_RX else 7 for vector in range(10)]


def stuck(**columns: Any) -> dict[int, Mapping[str, Any]]:
    return {2: {**DUE, "softirqs": counts(4), "softirqs_before": counts(4), **columns}}


def test_a_softirq_that_nobody_serves_is_told_with_how_uncertain_it_is(watched: Watched) -> None:
    watched.look(25, cores=stuck())
    stall = begun(watched.look(50, cores=stuck()))
    assert (stall.what, stall.subject) == ("napi", "core 2")
    assert watched.look(75, cores=stuck(device=b"eth7\0x", netns=12)) == []  # its list could not be read before
    assert (stall.what, stall.core, stall.device, stall.netns, stall.vectors) == ("napi", 2, "eth7", 12, ("net_rx",))
    assert (stall.start, stall.error_ns) == (queued(0), 25 * MS)
    for at in (100, 125):
        assert watched.look(at, cores=stuck()) == []
    assert over(watched.look(150, cores=stuck(softirqs=counts(5)))) is stall
    assert (stall.end, stall.error_ns) == (queued(137.5), 50 * MS)
    assert stall.holder == Holder(2002, 1002, "busy")
    assert watched.stalls.quiet


def test_when_one_began_is_told_exactly_by_the_ksoftirqd_that_was_woken_for_it(watched: Watched) -> None:
    watched.look(25)
    waits = {"last_queued": queued(12), "pcount": 9, "run_delay": 40 * MS}
    watched.look(50, cores=stuck(**waits))
    stall = begun(watched.look(75, cores=stuck(**waits)))
    assert (stall.start, stall.error_ns) == (queued(12), 0)
    over(watched.look(85, cores=stuck(softirqs=counts(5), pcount=10, run_delay=(40 + 143) * MS)))
    assert (stall.end, stall.error_ns) == (queued(80), 10 * MS), "when it ended is known by the looks alone"


def test_a_ksoftirqd_that_waits_since_long_before_says_nothing_of_when_it_began(watched: Watched) -> None:
    """Softirqs are served beside it meanwhile (d15121be7485, 6.4)."""
    for at in (25, 50):
        watched.look(at)
    watched.look(75, cores=stuck(last_queued=queued(3)))
    stall = begun(watched.look(100, cores=stuck(last_queued=queued(3))))
    assert (stall.start, stall.error_ns) == (queued(50), 25 * MS)


def test_a_ksoftirqd_that_waits_only_since_the_last_look_says_nothing_of_when_it_began(watched: Watched) -> None:
    watched.look(25, cores=stuck(last_queued=queued(20)))
    stall = begun(watched.look(75, cores=stuck(last_queued=queued(20))))
    assert (stall.start, stall.error_ns) == (queued(0), 25 * MS)


RCU = {"pending": 1 << 9, "pending_before": 1 << 9}


@pytest.mark.parametrize("softirq", [RCU, {"device": b"eth0", "netns": NAPI.netns}], ids=["another vector", "its own device"])
def test_one_that_waits_where_a_thread_that_polls_does_is_part_of_its_stall(watched: Watched, softirq: dict[str, Any]) -> None:
    waits = thread(NAPI, last_queued=queued(20), cpu=2)
    watched.look(25, waits, cores=stuck(**softirq))
    stall = begun(watched.look(75, waits, cores=stuck(**softirq)))
    assert stall.thread == NAPI
    after = thread(NAPI, cpu=2, pcount=6, run_delay=60 * MS)
    assert over(watched.look(100, after, cores=stuck(**softirq, softirqs=[9] * 10))) is stall
    assert watched.stalls.quiet


def test_a_thread_that_polls_nothing_has_its_stall_beside_that_of_the_softirq(watched: Watched) -> None:
    waits = thread(PLAIN, last_queued=queued(20), cpu=2)
    watched.look(25, waits, cores=stuck())
    assert {change.stall.what for change in watched.look(75, waits, cores=stuck())} == {"runqueue", "napi"}


def test_the_vector_that_polls_devices_is_told_apart_from_those_that_wait_for_longer(watched: Watched) -> None:
    watched.look(25, cores=stuck(**RCU))
    first = begun(watched.look(75, cores=stuck(**RCU)))
    both = {"pending": 1 << 9 | 1 << NET_RX}
    watched.look(100, cores=stuck(**{**both, "pending_before": 1 << 9}))
    watched.look(125, cores=stuck(**both, pending_before=1 << 9 | 1 << NET_RX))
    second = begun(watched.look(175, cores=stuck(**both, pending_before=1 << 9 | 1 << NET_RX)))
    assert [(stall.what, stall.vectors) for stall in (first, second)] == [("softirq", ("rcu",)), ("napi", ("net_rx",))]
    assert (first.start, second.start) == (queued(0), queued(100))


def test_softirqs_that_run_are_not_stuck_though_more_are_due(watched: Watched) -> None:
    for at in range(25, 500, 25):
        watched.look(at, cores=stuck(softirqs=counts(at), softirqs_before=counts(at - 25)))
    assert watched.told == []


def test_one_that_is_due_at_every_other_look_is_not_stuck(watched: Watched) -> None:
    for at in range(25, 500, 25):
        watched.look(at, cores=stuck(**({"pending_before": 0} if at % 50 else {"pending": 0})))
    assert watched.told == []


def test_another_vector_is_no_matter_of_the_network(watched: Watched) -> None:
    vectors = {"pending": 1 << 1 | 1 << 9, "pending_before": 1 << 1 | 1 << 9}
    watched.look(25, cores=stuck(**vectors))
    stall = begun(watched.look(75, cores=stuck(**vectors)))
    assert (stall.what, stall.vectors, stall.device, stall.subject) == ("softirq", ("timer", "rcu"), "", "core 2")


def test_transmission_is_no_poll(watched: Watched) -> None:
    watched.look(25, cores=stuck(pending=1 << NET_TX, pending_before=1 << NET_TX))
    stall = begun(watched.look(75, cores=stuck(pending=1 << NET_TX, pending_before=1 << NET_TX)))
    assert (stall.what, stall.vectors) == ("softirq", ("net_tx",))


def test_a_core_that_cannot_be_read_is_not_stuck(watched: Watched) -> None:
    for at in (25, 50, 75, 100):
        watched.look(at, cores=stuck(known=0))
    assert watched.told == []


def test_a_core_that_is_not_looked_at_any_more_is_not_stuck_any_more(watched: Watched) -> None:
    watched.look(25, cores=stuck())
    stall = begun(watched.look(75, cores=stuck()))
    changes = watched.stalls.add(Look(queued(100), np.zeros(0, THREAD), np.zeros(0, CORE)), [], [])
    assert over(changes) is stall
    assert stall.end == queued(75)


def test_what_nobody_looks_at_any_more_is_told_as_long_as_it_was_seen(watched: Watched) -> None:
    watched.look(25, thread(PLAIN, last_queued=queued(20)), thread(NAPI), cores=stuck())
    watched.look(80, thread(PLAIN, last_queued=queued(20)), thread(NAPI, last_queued=queued(70)), cores=stuck())
    assert [change.over for change in watched.told] == [False, False]
    closed = watched.stalls.finish()
    assert {id(change.stall) for change in closed} == {id(change.stall) for change in watched.told}
    assert all(change.over and change.stall.end == queued(80) for change in closed)
    assert watched.stalls.quiet
    assert watched.stalls.finish() == []


def test_looks_with_nothing_to_tell_count_as_looks(watched: Watched) -> None:
    watched.stalls.skip(queued(1000))
    watched.look(1025, cores=stuck())
    assert watched.look(1049, cores=stuck()) == []
    assert begun(watched.look(1050, cores=stuck())).start == queued(1000)


# Anything at all

words = st.one_of(st.integers(0, 3), st.integers(0, 2**64 - 1), st.integers(BEGIN - 100 * MS, BEGIN + 400 * MS))
small = st.one_of(st.integers(0, 3), st.integers(0, 2**32 - 1))
row = st.fixed_dictionaries(
    {
        "there": st.integers(0, 1),
        "cpu": st.integers(0, 4),
        "last_queued": words,
        "pcount": words,
        "run_delay": words,
        "pcount_before": words,
        "run_delay_before": words,
        "state": words,
        "asleep_before": st.integers(0, 1),
        "throttled": st.integers(0, 1),
    }
)
core_row = st.fixed_dictionaries(
    {
        "known": st.integers(0, 1),
        "pending": small,
        "pending_before": small,
        "softirqs": st.lists(st.integers(0, 2), min_size=10, max_size=10),
        "softirqs_before": st.lists(st.integers(0, 2), min_size=10, max_size=10),
        "last_queued": words,
        "pcount": words,
        "run_delay": words,
        "curr_tid": small,
        "curr_comm": st.binary(max_size=16),
        "device": st.binary(max_size=16),
    }
)
one_look = st.tuples(
    st.integers(0, 200),
    st.dictionaries(st.sampled_from([NAPI, PLAIN, *KSOFTIRQD]), row, max_size=3),
    st.dictionaries(st.integers(0, 2), core_row, max_size=3),
    st.booleans(),
)


@settings(max_examples=examples(100))
@given(st.lists(one_look, max_size=8))
def test_any_looks_tell_stalls_that_begin_before_they_end_and_each_once(
    looks: list[tuple[int, dict[Thread, dict[str, int]], dict[int, dict[str, Any]], bool]],
) -> None:
    watched = Watched()
    at = 0
    for step, threads, cores, skipped in looks:
        at += step
        if skipped and watched.stalls.quiet:
            watched.stalls.skip(queued(at))
        else:
            watched.look(at, *threads.items(), cores=cores)
    told = [*watched.told, *watched.stalls.finish()]
    begun_ones = [id(change.stall) for change in told if not change.over]
    over_ones = [id(change.stall) for change in told if change.over]
    assert len(begun_ones) == len({*begun_ones})
    assert len(over_ones) == len({*over_ones})
    assert {*begun_ones} <= {*over_ones}
    for change in told:
        stall = change.stall
        assert stall.length_ns(0) >= 0
        assert stall.error_ns >= 0
        assert isinstance(stall.subject, str)
        if not change.over:
            assert over_ones.index(id(stall)) >= 0
            places = [(id(other.stall), other.over) for other in told]
            assert places.index((id(stall), False)) < places.index((id(stall), True))
    assert watched.stalls.quiet
    assert watched.stalls.open == []
