"""nic-reset: the driver gave up and reset the device, or the kernel's transmit watchdog fired."""

from exhume.findings.events import Event, ago, events, netdevs, severity
from exhume.findings.model import Evidence, Examined, Finding, Span
from exhume.findings.napi_starved import RESETS, interrupt_missing
from exhume.findings.thresholds import Thresholds
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
# ENA statistics that count resets by reason (ena_ethtool.c); they outlive the kernel log's ring buffer.
_STATS = (
    "total_resets",
    "suspected_poll_starvation",
    "missing_tx_cmpl",
    "tx_timeout",
    "wd_expired",
    "missing_intr",
    "reset_fail",
)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    log, nic = recording.on("kernel-log"), recording.on("nic")
    if not log and not nic:
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    by_device: dict[str, list[Event]] = {}
    for event in events(recording, *RESETS, *_WHY, *_QUEUE):
        if event.kind not in _QUEUE or interrupt_missing(event):
            by_device.setdefault(event.fields.get("pci") or event.subject, []).append(event)
    names = netdevs(recording)
    reasons = {
        event.subject: event.fields["reset_reason"]
        for event in events(recording, "nic-napi-late")
        if event.fields.get("reset_reason")
    }
    findings = [
        _from_log(name, seen, reasons.get(name, ""), thresholds)
        for name, seen in ((names.get(device, device), seen) for device, seen in by_device.items())
    ]
    named = {finding.subject for finding in findings}
    findings += [finding for finding in _from_counters(recording) if finding.subject not in named]
    if findings:
        return Examined(KIND, tuple(findings))
    return Examined(KIND, ruled_out="no reset in the kernel log" if log else "no reset counted by a device")


def _from_log(device: str, seen: list[Event], reason: str, thresholds: Thresholds) -> Finding:
    resets = [event for event in seen if event.kind == "nic-reset-done"] or seen
    last = resets[-1]
    driver = next((event.fields["driver"] for event in reversed(seen) if event.fields.get("driver")), "")
    evidence = [
        Evidence("resets", len(resets), "", "kernel log"),
        Evidence("last line", last.message, "", "kernel log"),
    ]
    if driver:
        evidence.append(Evidence("driver", driver, "", "kernel log"))
    missing = next((event for event in reversed(seen) if interrupt_missing(event)), None)
    if missing is not None and not reason:
        reason = "interrupt missing"
    if reason:
        evidence.append(Evidence("reason", reason, "", "kernel log"))
    if missing is not None and (queue := missing.number("queue")) is not None:
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
    summary = f"{device}{f' ({driver})' if driver else ''} {did} {times}, last {ago(last.age_s)}"
    if missing is not None:
        age = missing.number("napi_age_ms")
        summary += f"; interrupt missing: a queue was not polled for {age or 0:,} ms and no poll was scheduled"
    current = severity(last, thresholds, "warning" if only_missing else "critical")
    spans = tuple(Span(-1, event.time, event.time) for event in resets)
    return Finding(KIND, device, current, seen[0].time, last.time, summary, tuple(evidence), spans)


def _from_counters(recording: Recording) -> list[Finding]:
    """Resets counted while we looked are current; those counted since boot are told, without a time."""
    by_device: dict[str, list[Evidence]] = {}
    grew: dict[str, int] = {}
    for at, series in recording.counters("nic_stat").items():
        where = dict(at)
        if where.get("stat") in _STATS and series.last > 0:
            by_device.setdefault(where["device"], []).append(
                Evidence(where["stat"], series.last, "since the driver loaded", "ethtool")
            )
            grew[where["device"]] = grew.get(where["device"], 0) + max(0, series.delta)
    start, end = recording.window
    findings = []
    for device, evidence in by_device.items():
        counts = ", ".join(f"{item.what} {item.value}" for item in evidence)
        when = "while we looked" if grew[device] else "since the driver loaded, time not known"
        findings.append(
            Finding(
                KIND,
                device,
                "critical" if grew[device] else "info",
                start,
                end,
                f"{device} counts resets: {counts} ({when})",
                tuple(evidence),
            )
        )
    return findings
