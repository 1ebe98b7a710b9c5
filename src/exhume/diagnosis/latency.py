"""How late a node was: histograms of the whole window, and the stalls with who caused them. What `exhume latency` shows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from exhume.diagnosis.findings.model import SEVERITIES, Severity
from exhume.diagnosis.findings.napi_starved import grade, measured_severity
from exhume.diagnosis.findings.stalls import HeldStall, recorded_holders
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.diagnosis.report import HEALTHS, Health, wall
from exhume.host.quantities import milliseconds
from exhume.recording.recording import Recording
from exhume.recording.source_state import Gap, SourceState, Weaker
from exhume.recording.source_state import as_json as state_json
from exhume.sources.latency.histogram import EMPTY, Histogram, edges, merge, percentile

SCHEMA = "exhume.latency/1"
MOST_WORST = 10


def waiting(stall: HeldStall) -> str:
    """What was due."""
    if stall.device:
        return stall.device
    if stall.thread:
        return stall.thread
    if stall.what == "napi":
        return "a network device that is not known"
    return f"softirqs {', '.join(stall.vectors.split())}"


def holder_did(stall: HeldStall) -> str:
    """What the holder of the core was busy with; empty if that is unknown."""
    if stall.stack:
        words = stall.work.words
        return words if stall.stack[0] in words else f"{words} ({stall.stack[0]})"
    return "ran its own code" if stall.samples else ""


@dataclass(frozen=True, slots=True)
class ProbeSeen:
    """One thing that was measured, over the whole window."""

    what: str
    stage: str
    core: int
    device: str
    netns: int
    name: str
    histogram: Histogram
    stalls: Histogram
    """Of all the time, where the histogram is of windows."""
    share: float
    """Of the time in which it was counted."""
    worst: tuple[HeldStall, ...]

    @property
    def max_ns(self) -> int:
        return max(self.histogram.max_ns, self.stalls.max_ns)


@dataclass(frozen=True, slots=True)
class ThreadSeen:
    """A thread that was asked for by name."""

    name: str
    tid: int
    waits: int
    mean_us: float


@dataclass(frozen=True, slots=True)
class LatencyReport:
    start: str
    end: str
    health: Health
    summary: str
    watched: str
    """What was looked at, in words."""
    threads: tuple[ThreadSeen, ...]
    probes: tuple[ProbeSeen, ...]
    stalls: tuple[HeldStall, ...]
    sources: tuple[tuple[str, SourceState], ...]
    recording: Recording

    def wall(self, time: int) -> str:
        return wall(self.recording, time)


def latency_report(
    recording: Recording,
    thresholds: Thresholds,
    device: str = "",
    threshold_ms: float | None = None,
    present: Collection[str] = (),
) -> LatencyReport:
    """With `device`, only what concerns it: its own numbers, and the cores that polled it. `present` are devices that are
    known to be there, whether they were polled or not. From `threshold_ms` on a stall counts, else from `napi_stall_ms` on."""
    stalls = recorded_holders(recording)
    probes = _probes(recording, stalls)
    known = {probe.device for probe in probes} | {stall.device for stall in stalls} | set(present)
    if device:
        stalls = [stall for stall in stalls if stall.device == device]
        cores = {probe.core for probe in probes if probe.device == device}
        probes = [probe for probe in probes if probe.device == device or (not probe.device and probe.core in cores)]
    sources = tuple((name, row.state) for name, row in recording.sources().items())
    threads = _threads(recording)
    watched = _watched(recording)
    threshold_ms = thresholds.napi_stall_ms if threshold_ms is None else threshold_ms
    health, summary = _judge(stalls, probes, recording, threshold_ms, thresholds)
    if device and health == "healthy" and not stalls:
        if device not in known:
            others = ", ".join(sorted(filter(None, known))[:MOST_WORST])
            health, summary = "unknown", f"there is no device {device}, and none of that name was polled; there are {others}"
        elif not any(probe.device == device for probe in probes):
            why = "its packets go by the backlog of each core" if device == "lo" else "or not in a window of the probes"
            summary = f"no stall of {device}, which was not polled, {why}"
        else:
            summary = f"{device}: {summary}"
    start, end = recording.window
    return LatencyReport(
        start=wall(recording, start),
        end=wall(recording, end),
        health=health,
        summary=summary,
        watched=watched,
        threads=threads,
        probes=tuple(probes),
        stalls=tuple(stalls),
        sources=sources,
        recording=recording,
    )


def _watched(recording: Recording) -> str:
    counted = {dict(at)["kind"]: series.last for at, series in recording.counters("latency_watched").items()}
    words = {"napi": "NAPI thread", "cores": "core's softirqs", "threads": "thread by name"}
    plural = {"napi": "NAPI threads", "cores": "cores' softirqs", "threads": "threads by name"}
    return ", ".join(
        f"{counted[kind]:,} {words[kind] if counted[kind] == 1 else plural[kind]}" for kind in words if kind in counted
    )


def _threads(recording: Recording) -> tuple[ThreadSeen, ...]:
    waited = recording.counters("thread_wait_ns")
    found = []
    for at, times in recording.counters("thread_waits").items():
        of = dict(at)
        took = waited[at].delta if at in waited else 0
        found.append(
            ThreadSeen(of["thread"], int(of["tid"]), times.delta, took / 1000 / times.delta if times.delta > 0 else 0.0)
        )
    return tuple(sorted(found, key=lambda thread: (-thread.mean_us, thread.name, thread.tid)))


def _probes(recording: Recording, stalls: Sequence[HeldStall]) -> list[ProbeSeen]:
    groups: dict[tuple[str, str, int, str, int, str], list[Histogram]] = {}
    windows: dict[bool, dict[int, int]] = {True: {}, False: {}}
    """Of the run queue and of the rest, by second. What was counted all the time, as stalls and reclaim are, is not in it."""
    for row in recording["latency"].rows():
        key = (row["what"], row["stage"], row["core"], row["device"], row["netns"], row["name"])
        histogram = Histogram(
            row["count"], row["sum"], row["max"], row["worst_at"], row["worst_pid"], row["worst_comm"], tuple(row["histogram"])
        )
        groups.setdefault(key, []).append(histogram)
        if _in_windows(row["what"], row["stage"]):
            windows[row["what"] == "runqueue"][row["time"]] = row["share"]
    start, end = recording.window
    seconds = max(1.0, (end - start) / 1e9)
    measured = {which: min(1.0, sum(shares.values()) / 1000 / seconds) for which, shares in windows.items()}
    merged = {key: merge(parts) for key, parts in groups.items()}
    found = []
    for what, stage, core, device, netns, name in groups:
        if stage == "stall" and (what, "wait", core, device, netns, name) in groups:
            continue
        whole = merged[what, stage, core, device, netns, name]
        waits = stage in ("wait", "stall")
        late = merged.get((what, "stall", core, device, netns, name), EMPTY) if waits else EMPTY
        worst = [s for s in stalls if waits and (s.what, s.core, s.device, s.netns) == (what, core, device, netns)]
        worst.sort(key=lambda stall: -stall.ns)
        share = measured[what == "runqueue"] if _in_windows(what, stage) else 1.0
        stage = "wait" if waits else stage
        found.append(ProbeSeen(what, stage, core, device, netns, name, whole, late, share, tuple(worst[:MOST_WORST])))
    order = {"napi": 0, "softirq": 1, "runqueue": 2, "reclaim": 3, "rstat": 4}
    found.sort(key=lambda p: (order.get(p.what, 9), p.stage != "wait", p.stage, -p.max_ns, p.core, p.name))
    return found


def _in_windows(what: str, stage: str) -> bool:
    return what in ("napi", "softirq", "runqueue") and stage != "stall"


def _judge(
    stalls: Sequence[HeldStall],
    probes: Sequence[ProbeSeen],
    recording: Recording,
    threshold_ms: float,
    thresholds: Thresholds,
) -> tuple[Health, str]:
    watch = recording.source("latency")
    if watch is None or not watch.up:
        return "unknown", f"nothing could be watched: {recording.why_off('latency')}"
    gap = watch.find(Gap)
    weak = "; seen weakly, without BPF: run it as root" if watch.find(Weaker) is not None else ""
    if not stalls:
        longest = max((probe.max_ns / 1e6 for probe in probes if probe.what == "runqueue"), default=0.0)
        if gap is not None and gap.limits:
            return "unknown", f"no stall was seen, but exhume itself was kept from looking for {milliseconds(gap.gap_ms)}"
        others = f"; other threads waited up to {milliseconds(longest)} for a core" if longest >= threshold_ms else ""
        return "healthy", f"no stall: no poll, softirq or watched thread was {milliseconds(threshold_ms)} late{others}{weak}"
    longest_stall = max(stalls, key=lambda stall: stall.ns)
    times = "1 stall" if len(stalls) == 1 else f"{len(stalls)} stalls, the longest"
    summary = f"{times} of {milliseconds(longest_stall.ns / 1e6)}: {waiting(longest_stall)} on core {longest_stall.core}"
    who = longest_stall.who
    if who is not None and longest_stall.holder_tid:
        held = {(stall.core, stall.holder_pid) for stall in stalls}
        every = ", each time" if len(stalls) > 1 and len(held) == 1 else ""
        did = f" {holder_did(longest_stall)} there" if holder_did(longest_stall) else " held the core"
        policy = f" ({longest_stall.policy})" if longest_stall.policy else ""
        summary += f"{every}, while {who}{policy}{did}"
    elif longest_stall.throttled:
        summary += ", which the quota of its cgroup held back"
    severity = _severity(recording, stalls, threshold_ms, thresholds)
    short = "; below the warning thresholds" if severity == "info" else ""
    return HEALTHS[SEVERITIES.index(severity)], summary + short + weak


def _severity(recording: Recording, stalls: Sequence[HeldStall], threshold_ms: float, thresholds: Thresholds) -> Severity:
    """That of the finding napi-starved, whenever it was. Other softirqs and threads are a warning at most: they are no sign
    that a device starves."""
    start, end = recording.window
    late = [stall for stall in stalls if stall.ns >= threshold_ms * 1e6]
    polls, others = [stall for stall in late if stall.what == "napi"], [stall for stall in late if stall.what != "napi"]
    levels: list[Severity] = [measured_severity(recording, polls, thresholds.ageless())]
    if others and grade(others, end - start, thresholds) != "info":
        levels.append("warning")
    return max(levels, key=SEVERITIES.index)


def as_json(report: LatencyReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "window": {"start": report.start, "end": report.end},
        "health": report.health,
        "summary": report.summary,
        "watched": report.watched,
        "threads": [
            {"name": each.name, "tid": each.tid, "waits": each.waits, "mean_us": round(each.mean_us, 1)}
            for each in report.threads
        ],
        "probes": [_probe_json(report, probe) for probe in report.probes],
        "stalls": [_stall_json(report, stall) for stall in report.stalls],
        "sources": [{"name": name} | state_json(state) for name, state in report.sources],
    }


def _probe_json(report: LatencyReport, probe: ProbeSeen) -> dict[str, Any]:
    histogram = probe.histogram
    bounds = edges()
    return {
        "what": probe.what,
        "stage": probe.stage,
        "device": probe.device or None,
        "netns": probe.netns or None,
        "cpu": probe.core if probe.core >= 0 else None,
        "name": probe.name or None,
        "count": histogram.count,
        "p50_us": round(percentile(histogram, 50), 1),
        "p99_us": round(percentile(histogram, 99), 1),
        "max_us": round(probe.max_ns / 1000, 1),
        "histogram_us": {f"{bounds[i]:g}": count for i, count in enumerate(histogram.buckets) if count},
        "measured_share": round(probe.share, 3),
        "stalls": probe.stalls.count,
        "worst": [_stall_json(report, stall) for stall in probe.worst]
        or [
            {
                "at": report.wall(histogram.max_at_ns) if histogram.max_at_ns else None,
                "us": round(histogram.max_ns / 1000, 1),
                "whom": {"pid": histogram.pid, "comm": histogram.comm},
                "offender": None,
            }
        ],
    }


def _stall_json(report: LatencyReport, stall: HeldStall) -> dict[str, Any]:
    return {
        "at": report.wall(stall.start),
        "us": stall.ns // 1000,
        "error_us": stall.error_ns // 1000,
        "ongoing": not stall.over,
        "what": stall.what,
        "cpu": stall.core,
        "device": stall.device or None,
        "netns": stall.netns or None,
        "thread": stall.thread or None,
        "offender": None
        if stall.holder_tid is None
        else {
            "pid": stall.holder_pid,
            "comm": stall.holder_comm,
            "cgroup": stall.holder_cgroup or None,
            "policy": stall.policy or None,
            "stack": list(stall.stack),
            "did": holder_did(stall) or None,
            "samples": stall.samples,
        },
    }
