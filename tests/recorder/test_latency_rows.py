"""What was counted, and the stalls, as rows."""

from exhume.recorder.latency_rows import (
    LATE_NS,
    Counted,
    Key,
    Totals,
    add_rows,
    add_stall,
    add_timeouts,
    collected,
    of_rare,
    of_windows,
    on_our_clock,
)
from exhume.recording.recording import Node, Recording
from exhume.sources.latency import hot, rare
from exhume.sources.latency.discover import Thread
from exhume.sources.latency.histogram import BUCKETS, Histogram
from exhume.sources.latency.hot_maps import Vector
from exhume.sources.latency.stalls import Stall

MS = 1_000_000
NODE = Node("node-7", "1", "6.1.0", "v2", 4)
NONE = Histogram()


def histogram(ns: int, *, count: int = 1, at: int = 0, pid: int = 0, comm: str = "") -> Histogram:
    bucket = min(BUCKETS - 1, (ns // 1000).bit_length())
    return Histogram(count, count * ns, ns, at, pid, comm, tuple(count * int(i == bucket) for i in range(BUCKETS)))


def napi(**given: object) -> hot.Napi:
    values: dict[str, object] = {
        "device": "eth0", "netns": 12, "ifindex": 2, "napi_id": 8193, "cpu": 1, "polls": 3, "packets": 40, "exhausted": 1,
        "threaded": 0, "untimed": 0, "wait": NONE, "gap": NONE, "poll": NONE,
    }  # fmt: skip
    return hot.Napi(**{**values, **given})  # type: ignore[arg-type]


def windows(*, softirqs: tuple[hot.Softirq, ...] = (), napis: tuple[hot.Napi, ...] = ()) -> hot.Taken:
    return hot.Taken(10, 10, softirqs, napis, (hot.RunQueue(0, histogram(5000)),), 0)


def test_each_measure_of_a_window_has_its_key() -> None:
    wait, run, gap, poll = (histogram(ns) for ns in (1000, 2000, 3000, 4000))
    taken = windows(softirqs=(hot.Softirq(1, Vector.NET_RX, wait, run),), napis=(napi(wait=wait, gap=gap, poll=poll),))
    assert dict(of_windows(taken)) == {
        Key("softirq", "wait", 1, name="net_rx"): wait,
        Key("softirq", "run", 1, name="net_rx"): run,
        Key("napi", "wait", 1, "eth0", 12): wait,
        Key("napi", "gap", 1, "eth0", 12): gap,
        Key("napi", "run", 1, "eth0", 12): poll,
        Key("runqueue", "wait", 0): histogram(5000),
    }


def test_what_is_rare_has_the_path_of_its_group() -> None:
    reclaim = rare.Reclaim("memcg", 2, 77, histogram(9000))
    taken = rare.Taken((reclaim,), (rare.RstatWait(3, histogram(8000)),), 0, 0, (), 0)
    assert dict(of_rare(taken, lambda number: f"/group{number}")) == {
        Key("reclaim", "memcg", 2, name="/group77"): histogram(9000),
        Key("rstat", "wait", 3): histogram(8000),
    }


def test_the_worst_case_is_told_on_the_clock_of_the_recording() -> None:
    assert on_our_clock(histogram(5, at=1000), 234).max_at_ns == 1234
    assert on_our_clock(NONE, 234) == NONE, "of none there is no time"


def test_cores_that_were_not_late_are_told_together_unless_each_is_asked_for() -> None:
    counted = [
        (Key("runqueue", "wait", 0), histogram(1000)),
        (Key("runqueue", "wait", 1), histogram(3000, pid=7)),
        (Key("runqueue", "wait", 2), histogram(LATE_NS)),
        (Key("napi", "wait", 1, "eth0"), histogram(1000)),
        (Key("napi", "wait", 2, "eth0"), histogram(1000)),
        (Key("softirq", "wait", 3, name="rcu"), NONE),
    ]
    together = collected(iter(counted), 0, each_core=False)
    assert {key: value.count for key, value in together.items()} == {
        Key("runqueue", "wait", -1): 2,
        Key("runqueue", "wait", 2): 1,
        Key("napi", "wait", 1, "eth0"): 1,
        Key("napi", "wait", 2, "eth0"): 1,
    }
    assert (together[Key("runqueue", "wait", -1)].max_ns, together[Key("runqueue", "wait", -1)].pid) == (3000, 7)
    assert collected(iter(counted), 0, each_core=True) == dict(counted[:5])


def stall(what: str, ms: int, **given: object) -> Stall:
    return Stall(what, 1, 1000 * MS, end=(1000 + ms) * MS, **given)  # type: ignore[arg-type]


def test_stalls_of_a_kind_are_one_row_with_the_worst_of_them() -> None:
    thread = Thread(1, 0, 700, 700, "kubelet", "", 0, kernel=False)
    counted: Counted = {}
    add_stall(counted, stall("napi", 100, device="eth0", netns=12))
    add_stall(counted, stall("napi", 300, device="eth0", netns=12))
    add_stall(counted, stall("runqueue", 60, thread=thread))
    add_stall(counted, stall("softirq", 70, vectors=("timer", "rcu")))
    assert set(counted) == {
        Key("napi", "stall", 1, "eth0", 12),
        Key("runqueue", "stall", 1, name="kubelet"),
        Key("softirq", "stall", 1, name="timer"),
    }
    both = counted[Key("napi", "stall", 1, "eth0", 12)]
    assert (both.count, both.sum_ns, both.max_ns, both.max_at_ns) == (2, 400 * MS, 300 * MS, 1300 * MS)
    assert sum(both.buckets) == 2
    assert both.buckets[17] == both.buckets[19] == 1, "from 65.536 ms on, and from 262.144 ms on"
    assert counted[Key("runqueue", "stall", 1, name="kubelet")].pid == 700


def test_a_stall_of_any_length_has_a_bucket() -> None:
    for ms in (0, 1, 67_109, 10**9):
        counted: Counted = {}
        add_stall(counted, stall("napi", ms))
        (one,) = counted.values()
        assert sum(one.buckets) == 1
    assert one.buckets[BUCKETS - 1] == 1


def test_rows_say_for_how_much_of_the_time_they_are() -> None:
    counted: Counted = {
        Key("napi", "wait", 1, "eth0", 12): histogram(5000, at=55, pid=9, comm="napi/eth0-1"),
        Key("napi", "stall", 1, "eth0", 12): histogram(100 * MS),
        Key("reclaim", "direct", 0, name="/a"): histogram(7000),
    }
    rows = Recording(NODE)
    add_rows(rows, 123, counted, {"napi": 50})
    found = {(row["what"], row["stage"]): row for row in rows["latency"].rows()}
    assert {key: row["share"] for key, row in found.items()} == {
        ("napi", "stall"): 1000,
        ("napi", "wait"): 50,
        ("reclaim", "direct"): 1000,
    }
    assert found["napi", "wait"] == {
        "time": 123, "what": "napi", "stage": "wait", "core": 1, "device": "eth0", "netns": 12, "name": "", "count": 1,
        "sum": 5000, "max": 5000, "histogram": [int(i == 3) for i in range(BUCKETS)], "worst_at": 55, "worst_pid": 9,
        "worst_comm": "napi/eth0-1", "share": 50,
    }  # fmt: skip


def test_a_watchdog_that_fired_is_an_event() -> None:
    timeout = rare.TransmitTimeout("eth0", 12, 5, 2, 1000)
    rows = Recording(NODE)
    add_timeouts(rows, rare.Taken((), (), 0, 0, (timeout,), 0), 234)
    (event,) = rows["events"].rows()
    assert (event["time"], event["kind"], event["subject"]) == (1234, "xmit-timeout", "eth0")
    assert dict(event["fields"]) == {"device": "eth0", "netns": "12", "queue": "5", "count": "2"}


def test_counters_go_on_from_second_to_second_and_are_not_told_while_they_rest() -> None:
    totals, rows = Totals(), Recording(NODE)
    for time, polls in ((1, 3), (2, 0), (3, 4)):
        totals.add_windows(rows, time, windows(napis=(napi(polls=polls, packets=0, exhausted=0),)))
    (series,) = rows.counters("napi_polls_in_windows").values()
    assert (series.times.tolist(), series.values.tolist()) == ([1, 3], [3, 7])
    (packets,) = rows.counters("napi_packets_in_windows").values()
    assert packets.values.tolist() == [0]
    totals.add_rare(rows, 4, rare.Taken((), (), 6, 1, (), 0))
    totals.add_rare(rows, 5, rare.Taken((), (), 2, 0, (), 0))
    flushes, forced = rows.counter("memcg_stat_flushes"), rows.counter("memcg_stat_flushes_forced")
    assert flushes is not None
    assert forced is not None
    assert (flushes.values.tolist(), forced.values.tolist()) == ([6, 8], [1])


def test_devices_that_come_and_go_do_not_take_ever_more_memory() -> None:
    totals = Totals()
    for number in range(3000):
        totals.add_windows(Recording(NODE), number, windows(napis=(napi(device=f"veth{number}"),)))
    assert len(totals._values) <= 4096 + 3
