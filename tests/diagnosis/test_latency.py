"""From a recording to what exhume latency shows, on recordings made of numbers."""

import json

import pytest

from exhume.diagnosis import latency
from exhume.diagnosis.findings.stalls import HeldStall
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.latency import MOST_WORST, LatencyReport, as_json
from exhume.recorder.latency_rows import Counted, Key, add_rows
from exhume.recording.recording import Recording
from exhume.recording.source_state import Failed, Gap, SourceState, Weaker
from exhume.sources.latency.histogram import BUCKETS, Histogram
from exhume.sources.latency.stalls import Holder
from tests.diagnosis.findings import made
from tests.diagnosis.findings.made import SECOND, stall

T = Thresholds()
ISSUE = {"what", "device", "netns", "cpu", "count", "p50_us", "p99_us", "max_us", "histogram_us", "worst"}


def recording(seconds: int = 10, on: tuple[str, ...] = ("latency", "latency-windows")) -> Recording:
    it = made.recording(on=on)
    it["anchors"].add(seconds * SECOND, 0, 0, (1_700_000_000 + seconds) * SECOND, 1)
    return it


def histogram(*us: int, at: int = 0, pid: int = 0, comm: str = "") -> Histogram:
    buckets = [0] * BUCKETS
    for one in us:
        buckets[min(BUCKETS - 1, one.bit_length())] += 1
    longest = 1000 * max(us)
    return Histogram(len(us), 1000 * sum(us), longest, at, pid, comm, tuple(buckets))


def counted(it: Recording, second: int, rows: Counted, share: int = 500) -> None:
    add_rows(it, second * SECOND, rows, dict.fromkeys(("napi", "softirq", "runqueue"), share))


def probe(report: LatencyReport, what: str, stage: str = "wait", core: int = 1) -> dict[str, object]:
    (found,) = [one for one in as_json(report)["probes"] if (one["what"], one["stage"], one["cpu"]) == (what, stage, core)]
    return dict(found)


def latency_report(it: Recording, device: str = "", threshold_ms: float | None = None) -> LatencyReport:
    return latency.latency_report(it, T, device, threshold_ms)


def stalls_seen(it: Recording) -> list[HeldStall]:
    return list(latency_report(it).stalls)


def test_a_quiet_node_is_healthy() -> None:
    report = latency_report(recording(), threshold_ms=50)
    assert (report.health, report.summary) == ("healthy", "no stall: no poll, softirq or watched thread was 50 ms late")
    assert (report.start, report.end) == ("2023-11-14T22:13:20.000Z", "2023-11-14T22:13:30.000Z")
    assert "7.5 ms late" in latency_report(recording(), threshold_ms=7.5).summary


def test_where_nothing_could_be_watched_it_is_said_why() -> None:
    it = recording(on=())
    it.add_source(0, "latency", SourceState.off(Failed("it takes root")))
    report = latency_report(it)
    assert (report.health, report.summary) == ("unknown", "nothing could be watched: it takes root")
    assert as_json(report)["sources"] == [
        {
            "name": "latency",
            "state": "off",
            "reason": "it takes root",
            "reasons": [{"code": "unreadable", "message": "it takes root"}],
        }
    ]
    assert latency_report(recording(on=())).summary == "nothing could be watched: latency was not read"


@pytest.mark.parametrize(("gap_ms", "health"), [(499, "healthy"), (500, "unknown"), (1512, "unknown")])
def test_no_stall_in_looks_that_were_far_apart_proves_nothing(gap_ms: int, health: str) -> None:
    it = recording(on=())
    it.add_source(0, "latency", SourceState.read((Gap(gap_ms),)))
    report = latency_report(it)
    assert report.health == health
    blind = f"no stall was seen, but exhume itself was kept from looking for {gap_ms:,} ms"
    assert (report.summary == blind) is (health == "unknown")


def test_a_watch_without_bpf_is_said_to_be_weak() -> None:
    it = recording(on=())
    it.add_source(0, "latency", SourceState.read((Weaker("/proc/PID/schedstat", "it takes root"), Gap(80))))
    report = latency_report(it)
    assert report.health == "healthy"
    assert report.summary.endswith("; seen weakly, without BPF: run it as root")


def test_a_stall_is_a_warning_and_one_of_a_second_of_a_device_critical() -> None:
    it = recording()
    stall(it, 5.0, 300)
    report = latency_report(it)
    assert report.health == "warning"
    assert report.summary == (
        "1 stall of 300 ms: eth0 on core 1, while kubelet [11] walked memory cgroups (mem_cgroup_iter) there"
    )
    stall(it, 8.0, 2500, device="", what="runqueue")
    assert latency_report(it).health == "warning", "that is no device"
    stall(it, 9.0, 1000)
    report = latency_report(it)
    assert report.health == "critical"
    assert report.summary.startswith("3 stalls, the longest of 2,500 ms")


def test_stalls_that_are_all_of_one_making_are_said_to_be() -> None:
    it = recording()
    for second in (2, 4, 6):
        stall(it, second, 100 * second)
    assert latency_report(it).summary == (
        "3 stalls, the longest of 600 ms: eth0 on core 1, each time, "
        "while kubelet [11] walked memory cgroups (mem_cgroup_iter) there"
    )
    stall(it, 8, 90, holder=Holder(99, 99, "other"))
    assert " of 600 ms: eth0 on core 1, while kubelet [11] walked" in latency_report(it).summary


@pytest.mark.parametrize("holder", [None, Holder(0, 0, "swapper/1")], ids=["unknown", "idle"])
def test_nobody_is_accused_where_nobody_is_known(holder: Holder | None) -> None:
    it = recording()
    stall(it, 5, 300, holder=holder)
    assert latency_report(it).summary == "1 stall of 300 ms: eth0 on core 1"


def test_one_that_lasts_is_as_long_as_it_was_watched() -> None:
    it = recording()
    stall(it, 5, 60, over=False)
    (seen,) = stalls_seen(it)
    assert not seen.over
    assert seen.ms == 5060
    assert as_json(latency_report(it))["stalls"][0]["ongoing"] is True


def test_one_that_was_announced_and_is_over_is_one() -> None:
    it = recording()
    stall(it, 5.0, 60, over=False)
    stall(it, 5.5, 560)
    (seen,) = stalls_seen(it)
    assert (seen.over, seen.ms, seen.core, seen.device) == (True, 560, 1, "eth0")
    assert (seen.holder_comm, seen.holder_cgroup, seen.stack) == (
        "kubelet",
        "/system.slice/kubelet.service",
        made.WALK,
    )


def test_stalls_are_told_oldest_first_and_other_events_are_none() -> None:
    it = recording()
    stall(it, 9, 100)
    stall(it, 3, 100, core=2)
    it["events"].add(4 * SECOND, "nic-reset", "eth0", "critical", "reset", ())
    assert [(seen.core, seen.start) for seen in stalls_seen(it)] == [(2, 2_900_000_000), (1, 8_900_000_000)]


def test_two_that_began_at_the_same_moment_are_two() -> None:
    it = recording()
    stall(it, 5, 100, core=1)
    stall(it, 5, 100, core=17)
    assert [seen.core for seen in stalls_seen(it)] == [1, 17]


def test_a_stall_without_a_length_is_none() -> None:
    it = recording()
    it["events"].add(5 * SECOND, "stall", "eth0", "warning", "", (("cpu", "-3"), ("us", "x" * 50), ("offender_pid", "9" * 40)))
    assert not stalls_seen(it)
    json.dumps(as_json(latency_report(it)))


def test_the_seconds_of_a_probe_are_one_with_its_worst_case() -> None:
    it = recording()
    for second, us in ((1, 10), (2, 3000), (3, 20)):
        counted(it, second, {Key("napi", "wait", 1, "eth0", 12): histogram(us, us, at=second * SECOND, pid=9, comm="napi")})
    one = probe(latency_report(it), "napi")
    assert one.keys() >= ISSUE
    assert (one["device"], one["netns"], one["cpu"], one["count"], one["max_us"]) == ("eth0", 12, 1, 6, 3000.0)
    assert one["histogram_us"] == {"8": 2, "16": 2, "2048": 2}
    assert one["measured_share"] == 0.15, "half of three seconds of ten"
    assert one["worst"] == [
        {"at": "2023-11-14T22:13:22.000Z", "us": 3000.0, "whom": {"pid": 9, "comm": "napi"}, "offender": None}
    ]


def test_the_run_queue_is_measured_for_a_time_of_its_own_and_a_device_without_polls_as_long_as_softirqs() -> None:
    it = recording()
    rows: Counted = {Key("softirq", "wait", 1): histogram(5), Key("runqueue", "wait", 1): histogram(7)}
    for second in (1, 2):
        napi: Counted = {Key("napi", "wait", 1, "eth0", 12): histogram(9)} if second == 1 else {}
        add_rows(it, second * SECOND, rows | napi, {"napi": 500, "softirq": 500, "runqueue": 200})
    report = latency_report(it)
    assert {what: probe(report, what)["measured_share"] for what in ("napi", "softirq", "runqueue")} == {
        "napi": 0.1,
        "softirq": 0.1,
        "runqueue": 0.04,
    }


def test_stalls_are_part_of_the_probe_that_they_are_of() -> None:
    it = recording()
    key = Key("napi", "wait", 1, "eth0", 4026531840)
    counted(it, 1, {key: histogram(10), key._replace(stage="stall"): histogram(300_000)})
    stall(it, 1, 300)
    report = latency_report(it)
    assert len(report.probes) == 1
    one = probe(report, "napi")
    assert (one["count"], one["stalls"], one["max_us"]) == (1, 1, 300_000.0)
    worst = one["worst"]
    assert isinstance(worst, list)
    assert worst[0]["us"] == 300_000
    told = {"pid": 11, "comm": "kubelet", "cgroup": "/system.slice/kubelet.service", "stack": list(made.WALK), "samples": 30}
    assert worst[0]["offender"].items() >= told.items()


def test_stalls_without_a_window_are_a_probe_of_their_own_and_of_all_the_time() -> None:
    it = recording()
    counted(it, 1, {Key("runqueue", "stall", 1, name="kubelet"): histogram(90_000)})
    counted(it, 1, {Key("reclaim", "direct", 2, name="/a"): histogram(700)})
    report = latency_report(it)
    one = probe(report, "runqueue")
    assert (one["stage"], one["name"], one["count"], one["stalls"], one["measured_share"]) == ("wait", "kubelet", 1, 1, 1.0)
    assert probe(report, "reclaim", "direct", core=2)["measured_share"] == 1.0


def test_no_more_than_the_worst_are_with_a_probe() -> None:
    it = recording(seconds=60)
    counted(it, 1, {Key("napi", "stall", 1, "eth0", 4026531840): histogram(90_000)})
    for second in range(1, 50):
        stall(it, second, 50 + second)
    report = latency_report(it)
    (seen,) = report.probes
    assert [one.ms for one in seen.worst] == [50 + second for second in range(49, 49 - MOST_WORST, -1)]
    assert len(report.stalls) == 49


def test_a_device_is_told_with_the_cores_that_poll_it() -> None:
    it = recording()
    counted(
        it,
        1,
        {
            Key("napi", "wait", 1, "eth0", 12): histogram(10),
            Key("napi", "wait", 2, "eth1", 12): histogram(10),
            Key("softirq", "wait", 1, name="net_rx"): histogram(10),
            Key("softirq", "wait", 2, name="net_rx"): histogram(10),
            Key("runqueue", "wait", -1): histogram(10),
        },
    )
    stall(it, 5, 300, core=2, device="eth1")
    report = latency_report(it, "eth0")
    assert report.health == "healthy"
    assert [(one.what, one.core) for one in report.probes] == [("napi", 1), ("softirq", 1)]
    assert report.stalls == ()
    report = latency_report(it, "eth1")
    assert (report.health, [(one.what, one.core) for one in report.probes]) == ("warning", [("napi", 2), ("softirq", 2)])
    assert latency_report(it, "eth7").probes == ()


def test_the_worst_of_each_kind_comes_first() -> None:
    it = recording()
    counted(
        it,
        1,
        {
            Key("rstat", "wait", 0): histogram(9),
            Key("runqueue", "wait", 0): histogram(5),
            Key("runqueue", "wait", 1): histogram(500),
            Key("softirq", "run", 0, name="rcu"): histogram(900),
            Key("softirq", "wait", 0, name="rcu"): histogram(1),
            Key("napi", "gap", 0, "eth0"): histogram(1),
            Key("napi", "wait", 0, "eth0"): histogram(1),
        },
    )
    assert [(one.what, one.stage, one.core) for one in latency_report(it).probes] == [
        ("napi", "wait", 0),
        ("napi", "gap", 0),
        ("softirq", "wait", 0),
        ("softirq", "run", 0),
        ("runqueue", "wait", 1),
        ("runqueue", "wait", 0),
        ("rstat", "wait", 0),
    ]


def test_it_is_json_of_the_schema() -> None:
    it = recording()
    counted(it, 1, {Key("napi", "wait", 1, "eth0", 12): histogram(10), Key("runqueue", "wait", -1): histogram(3)})
    stall(it, 5, 300)
    document = json.loads(json.dumps(as_json(latency_report(it))))
    assert document["schema"] == "exhume.latency/1"
    assert document.keys() >= {"schema", "window", "health", "summary", "probes", "stalls", "sources"}
    for one in document["probes"]:
        assert one.keys() >= ISSUE
        assert one["worst"][0].keys() >= {"at", "us", "offender"}
    assert [one["cpu"] for one in document["probes"]] == [1, None]
    assert document["stalls"][0]["offender"].keys() >= {"pid", "comm", "stack"}
