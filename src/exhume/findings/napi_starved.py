"""napi-starved: a network queue whose poll was due and did not run: measured by the latency probes from the first 50 ms on,
and as the driver tells it in the kernel log when seconds have passed.

Of the stalls that were measured only those of network polls count here. Other softirqs that were late, and threads that were
watched by name, are told by `exhume latency`; they are no sign that a device starves.
"""

from dataclasses import dataclass, field

from exhume.findings.events import Event, aged, events, netdevs, severity, when
from exhume.findings.model import SEVERITIES, Evidence, Examined, Finding, Severity, Span
from exhume.findings.spans import overlap_ns, total_ns
from exhume.findings.stall_words import described
from exhume.findings.stalls import Stall, stalls
from exhume.findings.thresholds import Thresholds
from exhume.node.interrupts import queue_cores
from exhume.recording.recording import Recording

KIND = "napi-starved"
# Lines that say that the poll was late. A NETDEV WATCHDOG alone only says that nothing was sent: that is nic-reset's.
_KINDS = ("nic-queue-paused", "nic-tx-not-completed", "nic-tx-lost", "nic-napi-late")
RESETS = ("nic-reset-done", "nic-reset-failed", "nic-reset-triggered")
# A reset that comes later than this after a stall did not follow from it: drivers look once a second, and a reset takes some.
_FOLLOWS_NS = 60 * 10**9


@dataclass(slots=True)
class _Device:
    """What is known of one device, or of one core that nobody knows the device of."""

    subject: str
    known: bool = True
    """Whether it is a device."""
    lines: list[Event] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    measured = [
        stall for stall in stalls(recording) if stall.what == "napi" and stall.ns >= thresholds.napi_stall_ms * 1_000_000
    ]
    log, probes = recording.on("kernel-log"), recording.on("latency")
    late = [event for event in events(recording, *_KINDS) if _late(event) and not interrupt_missing(event)] if log else []
    if not log and not probes and not measured:
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    findings = [_finding(recording, device, thresholds) for device in _devices(recording, late, measured)]
    if findings:
        findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), finding.start, finding.subject))
        return Examined(KIND, tuple(findings))
    dropped = sum(series.delta for series in recording.counters("softnet_dropped").values())
    in_part = recording.sources()["latency"]["reason"] if probes else ""
    said = [
        f"no poll was {thresholds.napi_stall_ms} ms late{f' ({in_part})' if in_part else ''}" if probes else "",
        "no driver complained" if log else "",
        f"{dropped:,} packets dropped by softnet",
    ]
    return Examined(KIND, ruled_out=", ".join(part for part in said if part))


def _late(event: Event) -> bool:
    return event.kind == "nic-napi-late" or (event.number("napi_age_ms") or 0) >= 1000


def interrupt_missing(event: Event) -> bool:
    """A queue that waits while no poll is scheduled was not starved: its interrupt did not come, or it has nothing to do."""
    return event.kind in _KINDS and _late(event) and event.fields.get("napi_scheduled") == "0"


def _due(event: Event) -> bool:
    """Whether the driver itself says that the poll was scheduled. Older forms of its lines do not tell."""
    return event.kind == "nic-napi-late" or event.fields.get("napi_scheduled") == "1"


def _devices(recording: Recording, late: list[Event], measured: list[Stall]) -> list[_Device]:
    """Stalls and lines by the device that they are of.

    Devices in different network namespaces may have one name; lines of drivers are of the node's own, whose number is the
    smallest: it is the first to be given out (proc_alloc_inum in fs/proc/generic.c), later a fixed one below all others
    (NET_NS_INIT_INO in include/uapi/linux/nsfs.h).
    """
    own: dict[str, int] = {}
    for stall in measured:
        if stall.netns:
            own[stall.device] = min(own.get(stall.device, stall.netns), stall.netns)
    lines: dict[str, list[Event]] = {}
    for event in late:
        lines.setdefault(event.subject, []).append(event)
    told_of = {device: _line_spans(recording, device, seen) for device, seen in lines.items()}
    found: dict[tuple[str, int], _Device] = {}
    for device, seen in lines.items():
        found[device, own.get(device, 0)] = _Device(device, lines=seen)
    for stall in measured:
        device, netns = stall.device, stall.netns
        if not device:
            netns = 0
            device = next((name for name, spans in told_of.items() if overlap_ns([stall.span], spans)), "")
        subject = device or f"an unknown device on core {stall.core}"
        if device and netns and netns != own[device]:
            subject += f" of network namespace {netns}"
        key = (device, netns or own.get(device, 0)) if device else ("", stall.core)
        found.setdefault(key, _Device(subject, bool(device))).stalls.append(stall)
    return list(found.values())


def _cores(recording: Recording) -> dict[tuple[str, int], int]:
    return recording.derived("counters", queue_cores)


def _served(recording: Recording, core: int) -> str:
    """The devices whose interrupts a core takes: one of them may be the one that nobody named."""
    return ", ".join(sorted({device for (device, _), takes in _cores(recording).items() if takes == core}))


def _core_of(recording: Recording, device: str, event: Event) -> tuple[int | None, str]:
    """The core that a line is about, and where that is from."""
    cpu, queue = event.number("cpu"), event.number("queue")
    if cpu is None and queue is not None:
        return _cores(recording).get((device, queue)), "/proc/interrupts, the core that takes this queue's interrupts"
    return cpu, "kernel log"


def _line_spans(recording: Recording, device: str, late: list[Event]) -> tuple[Span, ...]:
    """When the driver says that a queue was not polled."""
    spans = []
    for event in late:
        core, _ = _core_of(recording, device, event)
        age_ms = max(0, event.number("napi_age_ms") or 0)
        spans.append(Span(-1 if core is None else core, event.time - age_ms * 1_000_000, event.time))
    return tuple(spans)


def _finding(recording: Recording, device: _Device, thresholds: Thresholds) -> Finding:
    starts, ends, spans = [], [], []
    evidence: list[Evidence] = []
    levels: list[Severity] = []
    summary = ""
    if device.stalls:
        said = described(recording, device.subject, device.stalls, thresholds)
        summary, evidence = said.summary, list(said.evidence)
        if not device.known and (served := _served(recording, device.stalls[0].core)):
            evidence.append(Evidence("core serves", served, "", "/proc/interrupts"))
        reset = _reset_after(recording, device)
        if reset is not None:
            evidence.append(Evidence("reset after", reset.message, "", "kernel log"))
        levels.append(_level(recording, device.stalls, reset, thresholds))
        starts += [stall.start for stall in device.stalls]
        ends += [stall.end for stall in device.stalls]
        spans += [stall.span for stall in device.stalls]
    if device.lines:
        told, more, due = _told(recording, device, measured=bool(device.stalls))
        summary = f"{summary}; the driver says: {told}" if summary else f"{device.subject}{told}"
        evidence += more
        levels.append(severity(device.lines[-1], thresholds, "critical" if due else "warning"))
        starts.append(device.lines[0].time)
        ends.append(device.lines[-1].time)
        spans += _line_spans(recording, device.subject, device.lines)
    worst = max(levels, key=SEVERITIES.index)
    found = tuple(sorted(set(spans)))
    return Finding(KIND, device.subject, worst, min(starts), max(ends), summary, tuple(evidence), found)


def _told(recording: Recording, device: _Device, measured: bool) -> tuple[str, list[Evidence], bool]:
    """What the driver's lines say, after the device's name or, where the stalls themselves were measured, after those."""
    late = device.lines
    worst = max(late, key=lambda event: event.number("napi_age_ms") or 0)
    age_ms, queue = worst.number("napi_age_ms"), worst.number("queue")
    cpu, source = _core_of(recording, device.subject, worst)
    evidence = [Evidence("late polls", len(late), "lines", "kernel log")]
    said = "" if not measured else device.subject
    if queue is not None:
        evidence.append(Evidence("queue", queue, "", "kernel log"))
        said += f" queue {queue}"
    said += " was not polled"
    if age_ms is not None:
        evidence.append(Evidence("not polled for", age_ms, "ms", "kernel log"))
        said += f" for {age_ms:,} ms"
    threshold = worst.number("threshold_ms")
    if threshold is not None:
        evidence.append(Evidence("driver gives up at", threshold, "ms", "kernel log"))
        said += f", the driver gives up at {threshold:,}"
    due = any(_due(event) for event in late)
    if due:
        evidence.append(Evidence("poll was scheduled", 1, "", "kernel log"))
        said += "; the poll was due and did not get to run"
    else:
        said += "; not known whether its poll was scheduled"
    if cpu is not None:
        evidence.append(Evidence("core of the queue" if measured else "core", cpu, "", source))
        said += f", on core {cpu}"
    said += f" ({when(recording, late[-1])})"
    evidence.append(Evidence("line", worst.message, "", "kernel log"))
    return said, evidence, due


def _reset_after(recording: Recording, device: _Device) -> Event | None:
    """The first reset of that device while its poll was late or soon after."""
    names = netdevs(recording)
    for event in events(recording, *RESETS):
        if names.get(event.fields.get("pci") or event.subject, event.subject) == device.subject and any(
            stall.start <= event.time <= stall.end + _FOLLOWS_NS for stall in device.stalls
        ):
            return event
    return None


def _level(recording: Recording, seen: list[Stall], reset: Event | None, thresholds: Thresholds) -> Severity:
    """By number, length and share of time: of what is current, and of what was before, which is less bad for being over."""
    start, end = recording.window
    since = max(start, end - thresholds.recent_s * 10**9)
    levels: list[Severity] = ["info"]
    if reset is not None:
        levels.append(severity(reset, thresholds))
    recent = [stall for stall in seen if stall.end >= since]
    before = [stall for stall in seen if stall.end < since]
    for some, window_ns in ((recent, end - since), (before, since - start)):
        if some:
            age_s = max(0, end - max(stall.end for stall in some)) // 10**9
            levels.append(aged(age_s, thresholds, _grade(some, window_ns, thresholds)))
    return max(levels, key=SEVERITIES.index)


def _grade(seen: list[Stall], window_ns: int, thresholds: Thresholds) -> Severity:
    longest = max(stall.ns for stall in seen)
    if longest >= thresholds.napi_stall_critical_ms * 1_000_000:
        return "critical"
    if longest >= thresholds.napi_stall_warning_ms * 1_000_000:
        return "warning"
    spans = [stall.span for stall in seen]
    share = total_ns(spans) / max(1, window_ns, max(stall.end for stall in seen) - min(stall.start for stall in seen))
    return "warning" if len(seen) >= thresholds.napi_stalls and share >= thresholds.napi_stall_ratio else "info"
