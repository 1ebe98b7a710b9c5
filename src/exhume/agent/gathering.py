"""From what the recorder saw to numbers that only ever grow, or that say how it is now: what the metrics are made of.

Rows come batch by batch and are forgotten; what is kept is bounded by METRICS, whatever a node has. The kernel's counters begin
anew when what they count goes away; ours do not, because only growth is added.
"""

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from exhume.agent.histogram import Histogram
from exhume.agent.metrics import METRICS, MOST_CORES, MOST_DEVICES, OTHER, TOP
from exhume.diagnosis.findings.core_facts import CoreSaturated
from exhume.diagnosis.findings.crash_loop import CrashLoop
from exhume.diagnosis.findings.memcg_leak import MemcgLeak
from exhume.diagnosis.findings.model import Facts, Finding, of
from exhume.diagnosis.report import HEALTHS, Report
from exhume.diagnosis.zombies import PERCPU_BYTES, SLAB_BYTES
from exhume.recording.events import ResetDecoder, stalls
from exhume.recording.recording import Recording

Values = Mapping[tuple[str, ...], float]
# The rate of a leak is that of so long; a node with one zombie every ten seconds has sixty of them then.
RATE_NS = 600 * 10**9
_RATE_EVERY_NS = 10 * 10**9
_LEAST_NS = 60 * 10**9
# Gauges are believed for so long after their source was seen last: a node so sick that a read takes seconds is not to lose
# the very numbers that an alert waits for.
_GONE_NS = 60 * 10**9
# Series whose last reading is remembered: a node with 5,000 cgroups under quota has three times as many.
_MOST_SERIES = 1 << 14
_RECLAIM = {
    "vmstat_pgscan_kswapd": ("kswapd", "scanned"),
    "vmstat_pgsteal_kswapd": ("kswapd", "stolen"),
    "vmstat_pgscan_direct": ("direct", "scanned"),
    "vmstat_pgsteal_direct": ("direct", "stolen"),
}
_THROTTLED = {
    "cpu_throttled_ns": ("exhume_cpu_throttled_seconds_total", 1e-9),
    "cpu_throttled_periods": ("exhume_cpu_throttled_periods_total", 1.0),
    "cpu_periods": ("exhume_cpu_quota_periods_total", 1.0),
}
_PRESSURES = ("cpu", "memory", "io")
_LOST = {"samples_lost": "samples", "samples_throttled": "throttled samples", "side_band_lost": "task records"}
_CHANGES = {"mkdir": "made", "rmdir": "removed", "release": "released"}


class Gathered:
    """The numbers of every metric, by its labels; `samples` is what the collector asks for."""

    def __init__(self, cpus: int) -> None:
        self.values: dict[str, dict[tuple[str, ...], float]] = {name: {} for name in METRICS}
        self.histograms: dict[tuple[str, ...], Histogram] = {}
        self._cpus = max(1, cpus)
        self._before: dict[tuple[str, object], int] = {}
        self._dying: deque[tuple[int, int]] = deque()
        self._off: dict[str, int] = {}
        """Sources that are off, and since when."""
        self._devices: list[str] = []
        self._resets = ResetDecoder()
        self._saturated: dict[int, int] = {}
        self._memory_hierarchy: int | None = None
        self.since: int | None = None
        """When the first batch began."""
        for health in HEALTHS:
            self.values["exhume_node_health"][health,] = float(health == "unknown")
        # What grows begins at 0: of a counter that appears with its first event Prometheus does not know that it has grown.
        cores = [*map(str, range(min(self._cpus, MOST_CORES - 1))), *([OTHER] if self._cpus >= MOST_CORES else [])]
        for core in cores:
            for what in ("seconds", "episodes"):
                self.values[f"exhume_core_saturated_{what}_total"][core,] = 0.0
        for name in ("exhume_agent_batches_total", "exhume_verdicts_failed_total"):
            self.values[name][()] = 0.0
        for change in _CHANGES.values():
            self.values["exhume_memory_cgroup_changes_total"][change,] = 0.0
        for outcome in ("sent", "failed", "dropped"):
            self.values["exhume_profiles_pushed_total"][outcome,] = 0.0

    def samples(self, name: str) -> Iterator[tuple[tuple[str, ...], float]]:
        yield from list(self.values[name].items())

    # What a batch brings

    def add(self, rows: Recording) -> None:
        begin, end = rows.window
        if self.since is None and end:
            self.since = begin
        self._sources(rows)
        self._memcg(rows)
        self._zombies(rows)
        self._cgroup_events(rows)
        self._counters(rows)
        self._latency(rows)
        self._events(rows)

    def _sources(self, rows: Recording) -> None:
        into = self.values["exhume_source_up"]
        for name, row in rows.sources().items():
            now = rows.window[1]
            _put(into, (name,), float(row.state.up), METRICS["exhume_source_up"].most)
            if row.state.up:
                self._off.pop(name, None)
            elif (name,) in into and now - self._off.setdefault(name, now) >= _GONE_NS:
                self._clear(name)

    def _clear(self, source: str) -> None:
        """What says how it is now is not known any more."""
        for metric in METRICS.values():
            if metric.source == source and metric.kind == "gauge":
                self.values[metric.name] = {}
        if source == "memcg":
            self._dying.clear()

    def _memcg(self, rows: Recording) -> None:
        whole = [row for row in rows["memcg"].rows() if row["path"] == "/" and row["scope"] == "node"]
        if not whole:
            return
        last = max(whole, key=lambda row: int(row["time"]))
        hierarchy = "v1" if last["method"] == "proc-cgroups" and rows.node.cgroups != "v2" else "v2"
        for state in ("live", "dying"):
            if last[state] >= 0:
                self.values["exhume_memory_cgroups"][state, hierarchy] = float(last[state])
        if last["dying"] >= 0:
            cost = SLAB_BYTES + PERCPU_BYTES * self._cpus
            self.values["exhume_zombie_memory_cgroup_bytes"][()] = float(last["dying"] * cost)
            self._rate(int(last["time"]), int(last["dying"]))

    def _rate(self, now: int, dying: int) -> None:
        if self._dying and now < self._dying[-1][0]:  # another clock: what was is not to be compared with what is
            self._dying.clear()
        if self._dying and now - self._dying[-1][0] < _RATE_EVERY_NS:
            return
        self._dying.append((now, dying))
        while self._dying[0][0] < now - RATE_NS:
            self._dying.popleft()
        first, had = self._dying[0]
        if now - first >= _LEAST_NS:
            rate = max(0, dying - had) / ((now - first) / 1e9)
            self.values["exhume_memory_cgroup_leak_rate"][()] = rate

    def _zombies(self, rows: Recording) -> None:
        table = rows["memcg_walk"]
        if not len(table):
            if "memcg_walk_zombies" in rows["counters"].texts("name"):  # they were counted, and too few to be named
                self.values["exhume_zombie_memory_cgroups"] = {}
            return
        last = int(table.ints("time").max())
        counted: Counter[str] = Counter()
        for row in table.rows():
            if row["time"] == last:
                counted[row["unit"] or row["path"]] += row["zombies"]
        self.values["exhume_zombie_memory_cgroups"] = _top(counted)

    def _cgroup_events(self, rows: Recording) -> None:
        into = self.values["exhume_memory_cgroup_changes_total"]
        table = rows["cgroup_events"]
        for kind, hierarchy in zip(table.texts("kind"), table.ints("hierarchy").tolist(), strict=True):
            if kind in _CHANGES and (self._memory_hierarchy is None or hierarchy == self._memory_hierarchy):
                into[_CHANGES[kind],] += 1.0

    def count_only(self, hierarchy: int | None) -> None:
        """Which hierarchy's cgroups are memory cgroups: column 2 of /proc/cgroups; None where that is not known."""
        self._memory_hierarchy = hierarchy

    def _counters(self, rows: Recording) -> None:
        table = rows["counters"]
        names, at, values = table.texts("name"), table.column("labels"), table.ints("value").tolist()
        for name, labels, value in zip(names, at, values, strict=True):
            if name in _RECLAIM:
                self._grow("exhume_reclaim_pages_total", _RECLAIM[name], (name, labels), value)
            elif name in _THROTTLED:
                metric, unit = _THROTTLED[name]
                self._grow(metric, (), (name, labels), value, unit)
            elif name == "pressure_us":
                known = dict(labels)
                if known.get("kind") == "some" and not known.get("cgroup") and known.get("resource") in _PRESSURES:
                    key = (known["resource"],)
                    self._grow("exhume_pressure_waiting_seconds_total", key, (name, labels), value, 1e-6)
            elif name in _LOST:
                self._grow("exhume_agent_lost_total", (_LOST[name],), (name, labels), value, first=0)
            elif name == "rows_lost":
                key = (f"rows, {dict(labels).get('reason', '')}",)
                self._grow("exhume_agent_lost_total", key, (name, labels), value, first=0)

    def _grow(
        self,
        metric: str,
        labels: tuple[str, ...],
        series: tuple[str, object],
        value: int,
        unit: float = 1.0,
        first: int | None = None,
    ) -> None:
        """The first reading is where it begins, not what grew, unless it is our own and begins with 0."""
        before = self._before.pop(series, value if first is None else first)
        self._before[series] = value
        while len(self._before) > _MOST_SERIES:
            del self._before[next(iter(self._before))]
        self._count(metric, labels, max(0, value - before if value >= before else value) * unit)

    def _count(self, metric: str, labels: tuple[str, ...], more: float) -> None:
        """A counter grows; where there is no room for another series, the one that stands for all others does."""
        into = self.values[metric]
        if METRICS[metric].folds and labels not in into and len(into) >= METRICS[metric].most - 1:
            labels = (OTHER,) * len(labels)
        into[labels] = into.get(labels, 0.0) + more

    def _latency(self, rows: Recording) -> None:
        for row in rows["latency"].rows():
            key = (row["what"], self._device(row["device"]) if row["what"] == "napi" else "")
            if row["stage"] == "wait" and row["what"] in ("napi", "softirq", "runqueue"):
                self.histograms.setdefault(key, Histogram()).add(row["histogram"], row["sum"])
                for metric in ("exhume_stalls_total", "exhume_stall_seconds_total"):
                    self._count(metric, key, 0.0)
        for stall in stalls(rows):
            if stall.ended:
                key = (stall.what, self._device(stall.device) if stall.what == "napi" else "")
                self._count("exhume_stalls_total", key, 1.0)
                self._count("exhume_stall_seconds_total", key, stall.ns / 1e9)

    def _device(self, name: str) -> str:
        if name not in self._devices:
            if len(self._devices) >= MOST_DEVICES:
                return OTHER
            self._devices.append(name)
        return name

    def _events(self, rows: Recording) -> None:
        # Resets that the kernel log still had from before we began are not ours to count.
        for reset in self._resets.decode(rows):
            if reset.time >= (self.since or 0):
                self._count("exhume_nic_resets_total", (self._device(reset.device), reset.reason or "unknown"), 1.0)

    # What the judges say

    def judged(self, findings: Iterable[Finding[Facts]], loops: Iterable[Finding[CrashLoop]] = ()) -> None:
        """All findings of the last minute, whatever their severity; of crash loops more, if there are more."""
        found = list(findings)
        kinds = Counter((finding.kind, finding.severity) for finding in found)  # a detector has one kind
        self.values["exhume_findings"] = {key: float(count) for key, count in kinds.items()}
        self._loops(list(loops) or of(found, CrashLoop), of(found, MemcgLeak))
        for finding in of(found, CoreSaturated):
            if finding.serious:
                self._cores(finding)

    def _loops(self, loops: list[Finding[CrashLoop]], leaking: list[Finding[MemcgLeak]]) -> None:
        rates: dict[str, float] = {}
        for loop in loops:
            if period_s := loop.facts.period_s:
                rates[loop.facts.name] = max(rates.get(loop.facts.name, 0.0), 1 / period_s)
        leaks = {leak.facts.owner.unit or leak.subject for leak in leaking}
        leaks |= {loop.facts.name for loop in loops if loop.facts.leaks}
        most = sorted(rates.items(), key=lambda item: (item[0] not in leaks, -item[1], item[0]))[:TOP]
        self.values["exhume_crash_loop_restarts_rate"] = {(unit,): rate for unit, rate in most}
        self.values["exhume_crash_loop_leaks"] = {(unit,): float(unit in leaks) for unit, _ in most}

    def _cores(self, finding: Finding[CoreSaturated]) -> None:
        """The same stretch is seen again at every look for a minute: what was counted once is not counted again."""
        for span in sorted(finding.spans):
            if span.core < 0:
                continue
            counted = self._saturated.get(span.core, 0)
            key = (str(span.core),)
            if span.end > counted:
                self._count("exhume_core_saturated_seconds_total", key, (span.end - max(span.start, counted)) / 1e9)
                self._count("exhume_core_saturated_episodes_total", key, float(span.start >= counted))
                self._saturated[span.core] = span.end

    def verdict_failed(self) -> None:
        self._count("exhume_verdicts_failed_total", (), 1.0)

    def incident(self, kind: str) -> None:
        self._count("exhume_incidents_total", (kind,), 1.0)

    def verdict(self, report: Report, at_s: float) -> None:
        self.health(report.health)
        verdict = report.verdict
        self.values["exhume_verdict_confidence"] = (
            {(verdict.cause, verdict.subject): verdict.confidence} if verdict.cause is not None else {}
        )
        self.values["exhume_verdict_timestamp_seconds"] = {(): at_s}

    def stepped_down(self, given_up: Iterable[str]) -> None:
        self.values["exhume_agent_stepped_down"] = {(name,): 1.0 for name in given_up}

    def health(self, now: str) -> None:
        self.values["exhume_node_health"] = {(health,): float(health == now) for health in HEALTHS}

    def no_verdict(self) -> None:
        """The last one was about the past."""
        self.values["exhume_verdict_confidence"] = {}

    def at_least(self, name: str, value: float) -> None:
        """A counter that is measured and may be seen smaller for a moment, as that of children that have just ended."""
        self.values[name][()] = max(value, self.values[name].get((), 0.0))

    def set(self, name: str, value: float, *labels: str) -> None:
        _put(self.values[name], labels, value, METRICS[name].most)


def _top(counted: Counter[str]) -> dict[tuple[str, ...], float]:
    most = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    told: dict[tuple[str, ...], float] = {(name,): float(count) for name, count in most[:TOP]}
    if rest := sum(count for _, count in most[TOP:]):
        told[OTHER,] = float(rest)
    return told


def _put(into: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    if key in into or len(into) < most:
        into[key] = value
