"""How late a node was: histograms of the whole window, and the stalls with who caused them. What `exhume latency` shows."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from exhume.diagnosis.findings.held import walked
from exhume.diagnosis.findings.kernel_work import INTERRUPTS, SOFTIRQS, Walks, work
from exhume.diagnosis.report import Health, wall
from exhume.host.quantities import milliseconds
from exhume.recording.recording import Recording
from exhume.recording.source_state import Gap, SourceState, Weaker
from exhume.recording.source_state import as_json as state_json
from exhume.sources.latency.histogram import EMPTY, Histogram, edges, merge, percentile

SCHEMA = "exhume.latency/1"
# Stalls of this length are what drivers reset for, or nearly (ENA: 5 s), and jobs notice.
CRITICAL_US = 1_000_000
MOST_WORST = 10


@dataclass(frozen=True, slots=True)
class Offender:
    pid: int
    comm: str
    cgroup: str
    stack: tuple[str, ...]
    """The kernel functions it was in most of the time, innermost first; empty where it is not known, or was in user space."""
    samples: int
    policy: str = ""
    """Its scheduling policy, if it is not an ordinary one."""
    walked: Walks = field(default_factory=Walks)
    """Which statistics its kernel walks groups for."""

    @property
    def did(self) -> str:
        """What it was busy with, in words."""
        if self.stack:
            done = work(self.stack, self.walked)
            return f"{done.words} ({self.stack[0]})" if self.stack[0] not in done.words else done.words
        return "ran its own code" if self.samples else ""

    @property
    def who(self) -> str:
        """Not the program that a softirq or an interrupt came on top of."""
        if self.stack and work(self.stack).key in (SOFTIRQS.key, INTERRUPTS.key):
            return "the core"
        return f"{self.comm} [{self.pid}]"


@dataclass(frozen=True, slots=True)
class StallSeen:
    """A stall, over or not."""

    at: int
    """When it began, on the recording's clock."""
    us: int
    error_us: int
    ongoing: bool
    what: str
    core: int
    device: str
    netns: int
    thread: str
    vectors: str
    offender: Offender | None
    throttled: bool = False

    @property
    def whom(self) -> str:
        if self.device:
            return self.device
        if self.thread:
            return self.thread
        if self.what == "napi":
            return "a network device that is not known"
        return f"softirqs {', '.join(self.vectors.split())}"


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
    worst: tuple[StallSeen, ...]

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
    stalls: tuple[StallSeen, ...]
    sources: tuple[tuple[str, SourceState], ...]
    recording: Recording

    def wall(self, time: int) -> str:
        return wall(self.recording, time)


def latency_report(
    recording: Recording, device: str = "", threshold_ms: float = 50, present: Collection[str] = ()
) -> LatencyReport:
    """With `device`, only what concerns it: its own numbers, and the cores that polled it. `present` are devices that are
    known to be there, whether they were polled or not."""
    stalls = stalls_seen(recording)
    probes = _probes(recording, stalls)
    known = {probe.device for probe in probes} | {stall.device for stall in stalls} | set(present)
    if device:
        stalls = [stall for stall in stalls if stall.device == device]
        cores = {probe.core for probe in probes if probe.device == device}
        probes = [probe for probe in probes if probe.device == device or (not probe.device and probe.core in cores)]
    sources = tuple((name, row.state) for name, row in recording.sources().items())
    threads = _threads(recording)
    watched = _watched(recording)
    health, summary = _judge(stalls, probes, recording, threshold_ms)
    if device and health == "healthy":
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


def stalls_seen(recording: Recording) -> list[StallSeen]:
    """Oldest first. One that was announced and is not over yet is in it as it was last seen."""
    found: dict[tuple[str, str, str], StallSeen] = {}
    _, end = recording.window
    for row in recording["events"].rows():
        if row["kind"] not in ("stall", "stall-begins"):
            continue
        fields = dict(row["fields"])
        key = (fields.get("start_ns", ""), fields.get("cpu", ""), fields.get("tid", ""))
        over = row["kind"] == "stall"
        if key in found and not over:
            continue
        at, us = _number(fields, "start_ns"), _number(fields, "us")
        if not over:
            us = max(us, (end - at) // 1000)
        found[key] = StallSeen(
            at=at,
            us=us,
            error_us=_number(fields, "error_us"),
            ongoing=not over,
            what=fields.get("what", ""),
            core=_number(fields, "cpu"),
            device=fields.get("device", ""),
            netns=_number(fields, "netns"),
            thread=fields.get("thread", ""),
            vectors=fields.get("vectors", ""),
            offender=_offender(fields, walked(recording)),
            throttled="throttled" in fields,
        )
    return sorted(found.values(), key=lambda stall: stall.at)


def _offender(fields: dict[str, str], walks: Walks) -> Offender | None:
    if "offender_pid" not in fields:
        return None
    stack = tuple(filter(None, fields.get("stack", "").split(";")))
    return Offender(
        _number(fields, "offender_pid"),
        fields.get("offender_comm", ""),
        fields.get("offender_cgroup", ""),
        stack,
        _number(fields, "offender_samples"),
        fields.get("offender_policy", ""),
        walks,
    )


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _probes(recording: Recording, stalls: Sequence[StallSeen]) -> list[ProbeSeen]:
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
        worst.sort(key=lambda stall: -stall.us)
        share = measured[what == "runqueue"] if _in_windows(what, stage) else 1.0
        stage = "wait" if waits else stage
        found.append(ProbeSeen(what, stage, core, device, netns, name, whole, late, share, tuple(worst[:MOST_WORST])))
    order = {"napi": 0, "softirq": 1, "runqueue": 2, "reclaim": 3, "rstat": 4}
    found.sort(key=lambda p: (order.get(p.what, 9), p.stage != "wait", p.stage, -p.max_ns, p.core, p.name))
    return found


def _in_windows(what: str, stage: str) -> bool:
    return what in ("napi", "softirq", "runqueue") and stage != "stall"


def _judge(
    stalls: Sequence[StallSeen], probes: Sequence[ProbeSeen], recording: Recording, threshold_ms: float
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
    longest_stall = max(stalls, key=lambda stall: stall.us)
    times = "1 stall" if len(stalls) == 1 else f"{len(stalls)} stalls, the longest"
    summary = f"{times} of {milliseconds(longest_stall.us / 1000)}: {longest_stall.whom} on core {longest_stall.core}"
    offender = longest_stall.offender
    if offender is not None and offender.pid:
        held = {(stall.core, stall.offender.pid if stall.offender else 0) for stall in stalls}
        every = ", each time" if len(stalls) > 1 and len(held) == 1 else ""
        did = f" {offender.did} there" if offender.did else " held the core"
        policy = f" ({offender.policy})" if offender.policy else ""
        summary += f"{every}, while {offender.who}{policy}{did}"
    elif longest_stall.throttled:
        summary += ", which the quota of its cgroup held back"
    # As it is shown: a second is a second, if it is one when rounded to milliseconds.
    critical = any(round(stall.us / 1000) * 1000 >= CRITICAL_US for stall in stalls if stall.what == "napi")
    return ("critical" if critical else "warning"), summary + weak


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


def _stall_json(report: LatencyReport, stall: StallSeen) -> dict[str, Any]:
    offender = stall.offender
    return {
        "at": report.wall(stall.at),
        "us": stall.us,
        "error_us": stall.error_us,
        "ongoing": stall.ongoing,
        "what": stall.what,
        "cpu": stall.core,
        "device": stall.device or None,
        "netns": stall.netns or None,
        "thread": stall.thread or None,
        "offender": None
        if offender is None
        else {
            "pid": offender.pid,
            "comm": offender.comm,
            "cgroup": offender.cgroup or None,
            "policy": offender.policy or None,
            "stack": list(offender.stack),
            "did": offender.did or None,
            "samples": offender.samples,
        },
    }
