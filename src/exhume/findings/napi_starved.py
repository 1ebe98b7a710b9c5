"""napi-starved: a network queue whose poll was due and did not run, as the driver tells it in the kernel log."""

from exhume.findings.events import Event, ago, events, severity
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.thresholds import Thresholds
from exhume.node.interrupts import queue_cores
from exhume.recording.recording import Recording

KIND = "napi-starved"
# Lines that say that the poll was late. A NETDEV WATCHDOG alone only says that nothing was sent: that is nic-reset's.
_KINDS = ("nic-queue-paused", "nic-tx-not-completed", "nic-tx-lost", "nic-napi-late")


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    if not recording.on("kernel-log"):
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    by_device: dict[str, list[Event]] = {}
    for event in events(recording, *_KINDS):
        if _late(event) and not interrupt_missing(event):
            by_device.setdefault(event.subject, []).append(event)
    findings = [_finding(recording, device, late, thresholds) for device, late in by_device.items()]
    if findings:
        return Examined(KIND, tuple(findings))
    dropped = sum(series.delta for series in recording.counters("softnet_dropped").values())
    return Examined(KIND, ruled_out=f"no driver complained, {dropped:,} packets dropped by softnet")


def _late(event: Event) -> bool:
    return event.kind == "nic-napi-late" or (event.number("napi_age_ms") or 0) >= 1000


def interrupt_missing(event: Event) -> bool:
    """A queue that waits while no poll is scheduled was not starved: its interrupt did not come, or it has nothing to do."""
    return event.kind in _KINDS and _late(event) and event.fields.get("napi_scheduled") == "0"


def _due(event: Event) -> bool:
    """Whether the driver itself says that the poll was scheduled. Older forms of its lines do not tell."""
    return event.kind == "nic-napi-late" or event.fields.get("napi_scheduled") == "1"


def _finding(recording: Recording, device: str, late: list[Event], thresholds: Thresholds) -> Finding:
    worst = max(late, key=lambda event: event.number("napi_age_ms") or 0)
    age_ms, queue, cpu = worst.number("napi_age_ms"), worst.number("queue"), worst.number("cpu")
    source = "kernel log"
    if cpu is None and queue is not None:
        cpu = queue_cores(recording).get((device, queue))
        source = "/proc/interrupts, the core that takes this queue's interrupts"
    evidence = [Evidence("late polls", len(late), "lines", "kernel log")]
    summary = f"{device}"
    if queue is not None:
        evidence.append(Evidence("queue", queue, "", "kernel log"))
        summary += f" queue {queue}"
    summary += " was not polled"
    if age_ms is not None:
        evidence.append(Evidence("not polled for", age_ms, "ms", "kernel log"))
        summary += f" for {age_ms:,} ms"
    threshold = worst.number("threshold_ms")
    if threshold is not None:
        evidence.append(Evidence("driver gives up at", threshold, "ms", "kernel log"))
        summary += f", the driver gives up at {threshold:,}"
    due = any(_due(event) for event in late)
    if due:
        evidence.append(Evidence("poll was scheduled", 1, "", "kernel log"))
        summary += "; the poll was due and did not get to run"
    else:
        summary += "; not known whether its poll was scheduled"
    if cpu is not None:
        evidence.append(Evidence("core", cpu, "", source))
        summary += f", on core {cpu}"
    summary += f" ({ago(late[-1].age_s)})"
    evidence.append(Evidence("line", worst.message, "", "kernel log"))
    current = severity(late[-1], thresholds, "critical" if due else "warning")
    return Finding(KIND, device, current, late[0].time, late[-1].time, summary, tuple(evidence))
