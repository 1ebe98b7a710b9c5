"""nic-reset: the driver gave up and reset the device, or the kernel's transmit watchdog fired."""

from dataclasses import dataclass

from exhume.findings.events import Event, events, netdevs, severity, when
from exhume.findings.model import SEVERITIES, Evidence, Examined, Finding, Span
from exhume.findings.napi_starved import RESETS, interrupt_missing
from exhume.findings.stretches import growth, ordered
from exhume.findings.thresholds import Thresholds
from exhume.node.interrupts import queue_cores
from exhume.node.kernel_forms import ENA_RESET_REASONS
from exhume.recording.recording import Recording

KIND = "nic-reset"
_WHY = (
    "nic-tx-timeout",
    "nic-tx-hang",
    "nic-tx-lost",
    "nic-keepalive-lost",
    "nic-admin-queue-down",
    "nic-interrupt-lost",
    "nic-firmware-silent",
)
# Lines about one queue. They are napi-starved's, unless they say that no poll was due: then its interrupt is what is missing.
_QUEUE = ("nic-queue-paused", "nic-tx-not-completed")
# Lines after which the driver can reset for one reason only (check_for_* in ena_netdev.c); the driver prints none itself.
REASONS = {
    "nic-napi-late": ENA_RESET_REASONS[15],
    "nic-keepalive-lost": ENA_RESET_REASONS[1],
    "nic-admin-queue-down": ENA_RESET_REASONS[2],
    "nic-tx-lost": ENA_RESET_REASONS[3],
    "nic-interrupt-lost": ENA_RESET_REASONS[14],
    "nic-tx-timeout": ENA_RESET_REASONS[10],
}
# ENA statistics that count resets by reason (ena_ethtool.c); they outlive the kernel log's ring buffer.
_STATS = {
    "total_resets": "",
    "suspected_poll_starvation": ENA_RESET_REASONS[15],
    "missing_tx_cmpl": ENA_RESET_REASONS[3],
    "os_netdev_wd": ENA_RESET_REASONS[10],
    "tx_timeout": ENA_RESET_REASONS[10],
    "wd_expired": ENA_RESET_REASONS[1],
    "missing_intr": ENA_RESET_REASONS[14],
    "reset_fail": "",
}
# A line further from its reset than this is about another one.
_NEAR_NS = 60 * 10**9


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    log, nic = recording.on("kernel-log"), recording.on("nic")
    if not log and not nic:
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    by_device: dict[str, list[Event]] = {}
    for event in events(recording, *RESETS, *_WHY, *_QUEUE):
        if event.kind not in _QUEUE or interrupt_missing(event):
            by_device.setdefault(event.fields.get("pci") or event.subject, []).append(event)
    names = netdevs(recording)
    counted = _counted(recording)
    findings = []
    for device, seen in by_device.items():
        name = names.get(device, device)
        findings.append(_from_log(recording, name, seen, counted.get(name, []), thresholds))
    named = {finding.subject for finding in findings}
    findings += [_from_counters(recording, name, stats) for name, stats in sorted(counted.items()) if name not in named]
    if findings:
        findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), finding.start, finding.subject))
        return Examined(KIND, tuple(findings))
    return Examined(KIND, ruled_out="no reset in the kernel log" if log else "no reset counted by a device")


def _from_log(recording: Recording, device: str, seen: list[Event], counted: list["_Stat"], thresholds: Thresholds) -> Finding:
    resets = [event for event in seen if event.kind == "nic-reset-done"] or seen
    last = resets[-1]
    driver = next((event.fields["driver"] for event in reversed(seen) if event.fields.get("driver")), "")
    evidence = [
        Evidence("resets", len(resets), "", "kernel log"),
        Evidence("last line", last.message, "", "kernel log"),
    ]
    if driver:
        version = next((event.fields["driver_version"] for event in reversed(seen) if event.fields.get("driver_version")), "")
        evidence.append(Evidence("driver", driver, "", "kernel log"))
        if version:
            evidence.append(Evidence("driver version", version, "", "kernel log"))
    missing = next((event for event in reversed(seen) if interrupt_missing(event)), None)
    reason, source = _reason(recording, device, seen, resets, counted, driver)
    if missing is not None and not reason:
        reason, source = "interrupt missing", "kernel log"
    if reason:
        evidence.append(Evidence("reason", reason, "", source))
    starved = _starved(recording, device, seen, resets)
    if starved is not None:
        evidence += starved
    evidence += [stat.evidence for stat in counted if stat.grown]
    if starved is None and missing is not None and (queue := missing.number("queue")) is not None:
        evidence.append(Evidence("queue", queue, "", "kernel log"))
    failed = any(event.kind == "nic-reset-failed" for event in seen)
    only_missing = all(event.kind in _QUEUE for event in seen)
    did = (
        "missed an interrupt"
        if only_missing
        else "failed to reset"
        if failed
        else "was reset"
        if resets[0].kind == "nic-reset-done"
        else "stopped sending"
    )
    times = "once" if len(resets) == 1 else f"{len(resets)} times"
    summary = f"{device}{f' ({driver})' if driver else ''} {did} {times}, last {when(recording, last)}"
    if reason and missing is None:
        summary += f"; reason: {reason}"
    if missing is not None:
        age = missing.number("napi_age_ms")
        summary += f"; interrupt missing: a queue was not polled for {age or 0:,} ms and no poll was scheduled"
    current = severity(last, thresholds, "warning" if only_missing else "critical")
    spans = tuple(Span(-1, event.time, event.time) for event in resets)
    return Finding(KIND, device, current, seen[0].time, last.time, summary, tuple(evidence), spans)


def _reason(
    recording: Recording, device: str, seen: list[Event], resets: list[Event], counted: list["_Stat"], driver: str
) -> tuple[str, str]:
    """Why the driver reset: what it said right before, or the statistic that grew."""
    if driver in ("", "ena"):
        lines = [*seen, *(event for event in events(recording, "nic-napi-late") if event.subject == device)]
        for event in sorted(lines, key=lambda event: (event.kind == "nic-napi-late", event.time), reverse=True):
            near = any(-_NEAR_NS <= reset.time - event.time <= _NEAR_NS for reset in resets)
            if event.kind in REASONS and near and (driver or event.kind == "nic-napi-late"):
                return event.fields.get("reset_reason") or REASONS[event.kind], "kernel log"
    for stat in counted:
        if stat.grown and _STATS[stat.name]:
            return _STATS[stat.name], "ethtool"
    return "", ""


def _starved(recording: Recording, device: str, seen: list[Event], resets: list[Event]) -> list[Evidence] | None:
    """The queue that the driver complained of before it reset, and the core that serves it."""
    lines = [event for event in (*seen, *events(recording, *_QUEUE, "nic-queue-cpu")) if event.subject == device]
    found = [
        event
        for event in lines
        if event.number("queue") is not None and any(0 <= reset.time - event.time <= _NEAR_NS for reset in resets)
    ]
    if not found:
        return None
    told = max(found, key=lambda event: (event.number("cpu") is not None, event.time, event.number("queue") or 0))
    queue = told.number("queue") or 0
    evidence = [Evidence("queue", queue, "", "kernel log")]
    core, source = told.number("cpu"), "kernel log"
    if core is None:
        core = recording.derived("counters", queue_cores).get((device, queue))
        source = "/proc/interrupts, the core that takes this queue's interrupts"
    if core is not None and core >= 0:
        evidence.append(Evidence("core", core, "", source))
    return evidence


@dataclass(frozen=True, slots=True)
class _Stat:
    """A statistic of a device that counts resets."""

    name: str
    last: int
    grown: int

    @property
    def evidence(self) -> Evidence:
        if self.grown:
            return Evidence(self.name, self.grown, "while we looked", "ethtool")
        return Evidence(self.name, self.last, "since the driver loaded", "ethtool")


def _counted(recording: Recording) -> dict[str, list[_Stat]]:
    found: dict[str, list[_Stat]] = {}
    for at, series in recording.counters("nic_stat").items():
        where = dict(at)
        if where.get("stat") in _STATS and len(series.values):
            _, values = ordered(series)
            if values[-1] > 0:
                grown = max(0, int(values[-1] - values[0]))
                found.setdefault(where["device"], []).append(_Stat(where["stat"], int(values[-1]), grown))
    order = list(_STATS)
    return {device: sorted(stats, key=lambda stat: order.index(stat.name)) for device, stats in found.items()}


def _from_counters(recording: Recording, device: str, stats: list[_Stat]) -> Finding:
    """Resets counted while we looked are current; those counted since boot are told, without a time."""
    start, end = recording.window
    grew = any(stat.grown for stat in stats)
    told = [stat for stat in stats if stat.grown] if grew else stats
    counts = ", ".join(f"{stat.name} {stat.evidence.value}" for stat in told)
    when = "while we looked" if grew else "since the driver loaded, time not known"
    evidence = [stat.evidence for stat in told]
    reason = next((_STATS[stat.name] for stat in told if stat.grown and _STATS[stat.name]), "")
    if reason:
        evidence.append(Evidence("reason", reason, "", "ethtool"))
    moments = _grew_at(recording, device) if grew else []
    if moments:
        start, end = moments[0].start, moments[-1].end
    summary = f"{device} counts resets: {counts} ({when})"
    return Finding(KIND, device, "critical" if grew else "info", start, end, summary, tuple(evidence), tuple(moments))


def _grew_at(recording: Recording, device: str) -> list[Span]:
    """Between which readings."""
    found = set()
    for at in recording.counters("nic_stat"):
        where = dict(at)
        steps = growth(recording, "nic_stat", at) if where.get("device") == device and where.get("stat") in _STATS else None
        if steps is not None:
            grown = (steps.amount > 0).nonzero()[0].tolist()
            found |= {Span(-1, int(steps.times[i]), int(steps.times[i + 1])) for i in grown}
    return sorted(found)
