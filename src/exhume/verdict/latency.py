"""How late a node was: histograms of the whole window, and the stalls with who caused them. What `exhume latency` shows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from exhume.node.latency.histogram import EMPTY, Histogram, edges, merge, percentile
from exhume.recording.recording import Recording
from exhume.verdict.report import Health, wall

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

    @property
    def whom(self) -> str:
        return self.device or self.thread or self.vectors or "device unknown"


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
class LatencyReport:
    start: str
    end: str
    health: Health
    summary: str
    probes: tuple[ProbeSeen, ...]
    stalls: tuple[StallSeen, ...]
    sources: tuple[tuple[str, str, str], ...]
    recording: Recording

    def wall(self, time: int) -> str:
        return wall(self.recording, time)


def latency_report(recording: Recording, device: str = "", threshold_ms: float = 50) -> LatencyReport:
    """With `device`, only what concerns it: its own numbers, and the cores that polled it."""
    stalls = stalls_seen(recording)
    probes = _probes(recording, stalls)
    if device:
        stalls = [stall for stall in stalls if stall.device == device]
        cores = {probe.core for probe in probes if probe.device == device}
        probes = [probe for probe in probes if probe.device == device or (not probe.device and probe.core in cores)]
    sources = tuple((name, row["state"], row["reason"]) for name, row in recording.sources().items())
    health, summary = _judge(stalls, recording, device, threshold_ms)
    start, end = recording.window
    return LatencyReport(
        wall(recording, start), wall(recording, end), health, summary, tuple(probes), tuple(stalls), sources, recording
    )


def stalls_seen(recording: Recording) -> list[StallSeen]:
    """Oldest first. One that was announced and is not over yet is in it as it was last seen."""
    found: dict[tuple[str, str], StallSeen] = {}
    _, end = recording.window
    for row in recording["events"].rows():
        if row["kind"] not in ("stall", "stall-begins"):
            continue
        fields = dict(row["fields"])
        key = (fields.get("start_ns", ""), fields.get("cpu", "") + fields.get("tid", ""))
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
            offender=_offender(fields),
        )
    return sorted(found.values(), key=lambda stall: stall.at)


def _offender(fields: dict[str, str]) -> Offender | None:
    if "offender_pid" not in fields:
        return None
    stack = tuple(filter(None, fields.get("stack", "").split(";")))
    return Offender(
        _number(fields, "offender_pid"),
        fields.get("offender_comm", ""),
        fields.get("offender_cgroup", ""),
        stack,
        _number(fields, "offender_samples"),
    )


def _number(fields: dict[str, str], name: str) -> int:
    text = fields.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0


def _probes(recording: Recording, stalls: Sequence[StallSeen]) -> list[ProbeSeen]:
    groups: dict[tuple[str, str, int, str, int, str], list[tuple[Histogram, int]]] = {}
    for row in recording["latency"].rows():
        key = (row["what"], row["stage"], row["core"], row["device"], row["netns"], row["name"])
        histogram = Histogram(
            row["count"], row["sum"], row["max"], row["worst_at"], row["worst_pid"], row["worst_comm"], tuple(row["histogram"])
        )
        groups.setdefault(key, []).append((histogram, row["share"]))
    start, end = recording.window
    seconds = max(1.0, (end - start) / 1e9)
    merged = {key: merge(histogram for histogram, _ in parts) for key, parts in groups.items()}
    found = []
    for (what, stage, core, device, netns, name), parts in groups.items():
        if stage == "stall" and (what, "wait", core, device, netns, name) in groups:
            continue
        whole = merged[what, stage, core, device, netns, name]
        waits = stage in ("wait", "stall")
        late = merged.get((what, "stall", core, device, netns, name), EMPTY) if waits else EMPTY
        worst = [s for s in stalls if waits and (s.what, s.core, s.device, s.netns) == (what, core, device, netns)]
        worst.sort(key=lambda stall: -stall.us)
        # A row is of a second; seconds without a window have no rows.
        share = min(1.0, sum(share for _, share in parts) / 1000 / seconds)
        stage = "wait" if waits else stage
        found.append(ProbeSeen(what, stage, core, device, netns, name, whole, late, share, tuple(worst[:MOST_WORST])))
    order = {"napi": 0, "softirq": 1, "runqueue": 2, "reclaim": 3, "rstat": 4}
    found.sort(key=lambda p: (order.get(p.what, 9), p.stage != "wait", p.stage, -p.max_ns, p.core, p.name))
    return found


def _judge(stalls: Sequence[StallSeen], recording: Recording, device: str, threshold_ms: float) -> tuple[Health, str]:
    if not recording.on("latency"):
        return "unknown", f"nothing could be watched: {recording.why_off('latency')}"
    of = f" of {device}" if device else ""
    if not stalls:
        return "healthy", f"no stall{of}: nothing that was due waited for {threshold_ms:g} ms or longer"
    longest = max(stalls, key=lambda stall: stall.us)
    napi = [stall for stall in stalls if stall.what == "napi"]
    times = "1 stall" if len(stalls) == 1 else f"{len(stalls)} stalls, the longest"
    summary = f"{times} of {longest.us / 1000:,.0f} ms: {longest.whom} on core {longest.core}"
    if longest.offender is not None and longest.offender.pid:
        held = {(stall.core, stall.offender.pid if stall.offender else 0) for stall in stalls}
        every = "each time " if len(stalls) > 1 and len(held) == 1 else ""
        summary += f", {every}held by {longest.offender.comm} [{longest.offender.pid}]"
        if longest.offender.stack:
            summary += f" in {longest.offender.stack[0]}"
    return ("critical" if any(stall.us >= CRITICAL_US for stall in napi) else "warning"), summary


def as_json(report: LatencyReport) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "window": {"start": report.start, "end": report.end},
        "health": report.health,
        "summary": report.summary,
        "probes": [_probe_json(report, probe) for probe in report.probes],
        "stalls": [_stall_json(report, stall) for stall in report.stalls],
        "sources": [{"name": name, "state": state, "reason": reason} for name, state, reason in report.sources],
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
            "stack": list(offender.stack),
            "samples": offender.samples,
        },
    }
