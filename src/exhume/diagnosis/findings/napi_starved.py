"""napi-starved: a network queue whose poll was due and did not run: measured by the latency probes from the first 50 ms on,
and as the driver tells it in the kernel log when seconds have passed.

Of the stalls that were measured only those of network polls count here. Other softirqs that were late, and threads that were
watched by name, are told by `exhume latency`; they are no sign that a device starves.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar

from exhume.diagnosis.findings import subjects
from exhume.diagnosis.findings.events import Moment, aged, moment, severity
from exhume.diagnosis.findings.kind import (
    HARDLY,
    MOSTLY,
    NEARLY,
    TOGETHER_NS,
    Case,
    Culprit,
    Judged,
    Kind,
    Rule,
    Step,
)
from exhume.diagnosis.findings.model import SEVERITIES, Examined, Facts, Finding, Severity, Shown, Span
from exhume.diagnosis.findings.nic_events import LATE_POLLS, interrupt_missing
from exhume.diagnosis.findings.nic_events import due as due_by
from exhume.diagnosis.findings.nic_events import late as is_late
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.offender import NO_WORK, Offender, WorkShares, blamed
from exhume.diagnosis.findings.spans import overlap_ns, total_ns
from exhume.diagnosis.findings.stall_facts import MeasuredStalls, measured
from exhume.diagnosis.findings.stalls import HeldStall, held_stalls
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import MILLISECOND, SECOND, duration, milliseconds
from exhume.record import record
from exhume.recording.events import Event, events, nic_resets
from exhume.recording.recording import Recording
from exhume.sources.interrupts import queue_cores

# A reset that comes later than this after a stall did not follow from it: drivers look once a second, and a reset takes some.
_FOLLOWS_NS = 60 * 10**9
_LOG = "kernel log"


@record(frozen=True, slots=True, kw_only=True)
class DriverComplaint:
    """What the driver says in the kernel log; the worst of its lines."""

    lines: Annotated[int, Shown("late polls", "lines", _LOG)]
    queue: Annotated[int | None, Shown("queue", source=_LOG)] = None
    not_polled_ms: Annotated[int | None, Shown("not polled for", "ms", _LOG)] = None
    timeout_ms: Annotated[int | None, Shown("driver gives up at", "ms", _LOG)] = None
    scheduled: Annotated[bool, Shown("poll was scheduled", source=_LOG)]
    """The poll was due. Older drivers do not say so."""
    core: Annotated[int | None, Shown("core of the queue", source=".core_from")] = None
    core_from: str = _LOG
    line: Annotated[str, Shown("line", source=_LOG)]
    last: Moment

    def sentence(self, device: str) -> str:
        text = device + (f" queue {self.queue}" if self.queue is not None else "") + " was not polled"
        text += f" for {milliseconds(self.not_polled_ms)}" if self.not_polled_ms is not None else ""
        text += f", the driver gives up at {milliseconds(self.timeout_ms)}" if self.timeout_ms is not None else ""
        due = "the poll was due and did not get to run" if self.scheduled else "not known whether its poll was scheduled"
        where = f", on core {self.core}" if self.core is not None else ""
        return f"{text}; {due}{where} ({self.last})"


@record(frozen=True, slots=True, kw_only=True)
class NapiStarved(Facts):
    kind: ClassVar[str] = "napi-starved"
    measured: Annotated[MeasuredStalls | None, Shown()] = None
    core_serves: Annotated[tuple[str, ...], Shown("core serves", source="/proc/interrupts", join=", ")] = ()
    """Of an unknown device: the devices whose interrupts that core takes."""
    reset_line: Annotated[str, Shown("reset after", source=_LOG)] = ""
    """The line of a reset that followed."""
    complaint: Annotated[DriverComplaint | None, Shown()] = None

    @property
    def focus_core(self) -> int | None:
        if self.measured is not None:
            return self.measured.longest_core
        return self.complaint.core if self.complaint is not None else None

    @property
    def longest_ms(self) -> int:
        stall_ms = self.measured.longest_ms if self.measured is not None else 0
        return max(stall_ms, (self.complaint.not_polled_ms or 0) if self.complaint is not None else 0)

    @property
    def offender(self) -> Offender | None:
        return self.measured.offender if self.measured is not None else None

    @property
    def work(self) -> WorkShares:
        return self.measured.work if self.measured is not None else NO_WORK

    @property
    def steal_ratio(self) -> float:
        return (self.measured.steal_ratio or 0.0) if self.measured is not None else 0.0

    @property
    def focus_offender(self) -> Offender | None:
        return self.offender

    @property
    def focus_stack(self) -> tuple[str, ...]:
        return self.measured.stack if self.measured is not None else ()

    @property
    def focus_line(self) -> str:
        return self.complaint.line if self.complaint is not None else ""

    @property
    def focus_did(self) -> str:
        return self.measured.did if self.measured is not None else ""

    @property
    def blamed(self) -> str:
        return blamed(self.offender, self.work)

    def summary(self) -> str:
        if self.measured is None:
            return self.complaint.sentence(self.subject) if self.complaint is not None else self.subject
        driver = f"; the driver says: {self.complaint.sentence(self.subject)}" if self.complaint is not None else ""
        return self.measured.sentence(self.subject) + driver

    def short(self) -> tuple[str, str]:
        """Packets wait: that is what a late poll means."""
        if (seen := self.measured) is not None:
            late = f" · {seen.late_ratio:.0%} of the time late" if seen.late_ratio >= 0.005 else ""
            often = f"{seen.stalls:,} times, up to " if seen.stalls > 1 else ""
            return f"{self.subject} not polled", f"packets wait {often}{milliseconds(seen.longest_ms)}{late}"
        if (told := self.complaint) is None or told.not_polled_ms is None:
            return f"{self.subject} not polled", ""
        queue = f" queue {told.queue}" if told.queue is not None else ""
        limit = f" · driver gives up at {milliseconds(told.timeout_ms)}" if told.timeout_ms is not None else ""
        return f"{self.subject}{queue} not polled", f"packets wait {milliseconds(told.not_polled_ms)}{limit}"


@dataclass(slots=True)
class _Device:
    """What is known of one device, or of one core that nobody knows the device of."""

    subject: str
    known: bool = True
    """Whether it is a device."""
    lines: list[Event] = field(default_factory=list)
    stalls: list[HeldStall] = field(default_factory=list)


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    measured = [
        stall for stall in held_stalls(recording) if stall.what == "napi" and stall.ns >= thresholds.napi_stall_ms * 1_000_000
    ]
    log, probes = recording.on("kernel-log"), recording.on("latency")
    late = [event for event in events(recording, *LATE_POLLS) if is_late(event) and not interrupt_missing(event)] if log else []
    if not log and not probes and not measured:
        return Examined(NapiStarved.kind, unseen=recording.why_off("kernel-log"))
    findings = [_finding(recording, device, thresholds) for device in _devices(recording, late, measured)]
    if findings:
        findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), finding.start, finding.subject))
        return Examined(NapiStarved.kind, tuple(findings))
    dropped = sum(series.delta for series in recording.counters("softnet_dropped").values())
    in_part = recording.reason("latency") if probes else ""
    said = [
        f"no poll was {milliseconds(thresholds.napi_stall_ms)} late{f' ({in_part})' if in_part else ''}" if probes else "",
        "no driver complained" if log else "",
        f"{dropped:,} packets dropped by softnet",
    ]
    return Examined(NapiStarved.kind, ruled_out=", ".join(part for part in said if part))


def measured_severity(recording: Recording, stalls: Sequence[HeldStall], thresholds: Thresholds) -> Severity:
    """Of late polls alone, whatever the drivers say: that of the worst device."""
    devices = _devices(recording, [], stalls)
    levels = (_level(recording, device.stalls, _reset_after(recording, device), thresholds) for device in devices)
    return max(levels, key=SEVERITIES.index, default="info")


def _devices(recording: Recording, late: Sequence[Event], measured: Sequence[HeldStall]) -> list[_Device]:
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
        subject = device or subjects.unknown_device(stall.core)
        if device and netns and netns != own[device]:
            subject = subjects.device(device, netns)
        key = (device, netns or own.get(device, 0)) if device else ("", stall.core)
        found.setdefault(key, _Device(subject, bool(device))).stalls.append(stall)
    return list(found.values())


def _cores(recording: Recording) -> dict[tuple[str, int], int]:
    return recording.derived("counters", queue_cores)


def _served(recording: Recording, core: int) -> tuple[str, ...]:
    """The devices whose interrupts a core takes: one of them may be the unnamed one."""
    return tuple(sorted({device for (device, _), takes in _cores(recording).items() if takes == core}))


def _core_of(recording: Recording, device: str, event: Event) -> tuple[int | None, str]:
    """The core that a line is about, and where that is from."""
    cpu, queue = event.integer("cpu"), event.integer("queue")
    if cpu is None and queue is not None:
        return _cores(recording).get((device, queue)), "/proc/interrupts, the core that takes this queue's interrupts"
    return cpu, "kernel log"


def _line_spans(recording: Recording, device: str, late: list[Event]) -> tuple[Span, ...]:
    """When the driver says that a queue was not polled."""
    spans = []
    for event in late:
        core, _ = _core_of(recording, device, event)
        age_ms = max(0, event.integer("napi_age_ms") or 0)
        spans.append(Span(-1 if core is None else core, event.time - age_ms * 1_000_000, event.time))
    return tuple(spans)


def _finding(recording: Recording, device: _Device, thresholds: Thresholds) -> Finding[NapiStarved]:
    starts, ends, spans = [], [], []
    levels: list[Severity] = []
    serves: tuple[str, ...] = ()
    reset = None
    if device.stalls:
        serves = () if device.known else _served(recording, device.stalls[0].core)
        reset = _reset_after(recording, device)
        levels.append(_level(recording, device.stalls, reset, thresholds))
        starts += [stall.start for stall in device.stalls]
        ends += [stall.end for stall in device.stalls]
        spans += [stall.span for stall in device.stalls]
    if device.lines:
        due = any(due_by(event) for event in device.lines)
        levels.append(severity(device.lines[-1], thresholds, "critical" if due else "warning"))
        starts.append(device.lines[0].time)
        ends.append(device.lines[-1].time)
        spans += _line_spans(recording, device.subject, device.lines)
    facts = NapiStarved(
        subject=device.subject,
        measured=measured(recording, device.stalls, thresholds) if device.stalls else None,
        core_serves=serves,
        reset_line=reset.message if reset is not None else "",
        complaint=_complaint(recording, device) if device.lines else None,
    )
    worst = max(levels, key=SEVERITIES.index)
    return Finding(facts, worst, min(starts), max(ends), tuple(sorted(set(spans))))


def _complaint(recording: Recording, device: _Device) -> DriverComplaint:
    late = device.lines
    worst = max(late, key=lambda event: event.integer("napi_age_ms") or 0)
    core, source = _core_of(recording, device.subject, worst)
    return DriverComplaint(
        lines=len(late),
        queue=worst.integer("queue"),
        not_polled_ms=worst.integer("napi_age_ms"),
        timeout_ms=worst.integer("threshold_ms"),
        scheduled=any(due_by(event) for event in late),
        core=core,
        core_from=source,
        line=worst.message,
        last=moment(recording, late[-1]),
    )


def _reset_after(recording: Recording, device: _Device) -> Event | None:
    """The last line of the first reset of that device while its poll was late or soon after."""
    return next(
        (
            reset.last
            for reset in nic_resets(recording)
            if reset.device == device.subject
            and any(stall.start <= reset.last.time <= stall.end + _FOLLOWS_NS for stall in device.stalls)
        ),
        None,
    )


def _level(recording: Recording, seen: list[HeldStall], reset: Event | None, thresholds: Thresholds) -> Severity:
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
            levels.append(aged(age_s, thresholds, grade(some, window_ns, thresholds)))
    return max(levels, key=SEVERITIES.index)


def grade(seen: Sequence[HeldStall], window_ns: int, thresholds: Thresholds) -> Severity:
    """By number, length and share of time alone."""
    longest = max(stall.ns for stall in seen)
    if longest >= thresholds.napi_stall_critical_ms * 1_000_000:
        return "critical"
    if longest >= thresholds.napi_stall_warning_ms * 1_000_000:
        return "warning"
    spans = [stall.span for stall in seen]
    share = total_ns(spans) / max(1, window_ns, max(stall.end for stall in seen) - min(stall.start for stall in seen))
    return "warning" if len(seen) >= thresholds.napi_stalls and share >= thresholds.napi_stall_ratio else "info"


def held_by(napi: Finding[NapiStarved], share: float, said: str, sure: float = 0.93) -> Judged:
    """Whether a stall's own stacks explain it: what the core did while the poll was late. Steal explains it as well."""
    if share < HARDLY:
        return None
    where = f"in {share:.0%} of the time in which the poll was late"
    if (steal := napi.facts.steal_ratio) >= MOSTLY:
        return 0.4, f"{said} {where}, but the hypervisor took {steal:.0%} of the core's time meanwhile"
    if share < MOSTLY:
        return 0.4, f"{said} only {where}"
    return (max(sure, 0.97) if share >= NEARLY and sure >= 0.9 else sure), f"{said} {where}"


def _resets(napi: Finding[NapiStarved], reset: Finding[NicReset]) -> Judged:
    if napi.subject != reset.subject:
        if reset.subject not in napi.facts.core_serves:
            return None
        same = _resets(replace(napi, facts=replace(napi.facts, subject=reset.subject)), reset)
        return same and (0.7 * same[0], f"{same[1]}; which device that was is not known, but its core serves {reset.subject}")
    resets = [span.end for span in reset.spans] or [reset.end]
    if napi.facts.complaint is not None:
        lines = [*([span.end for span in napi.spans] or [napi.end]), napi.end]
        gaps = [moment - line for moment in resets for line in lines if -SECOND <= moment - line <= TOGETHER_NS]
        if gaps:
            return 0.99, f"the driver reset {reset.subject} {duration(max(0, min(gaps)))} after its poll was found late"
        return None
    # The driver did not complain of a late poll: then it is only as sure as the stall was long. Drivers give up after seconds.
    after = [
        (span.end - span.start, moment - span.end)
        for span in napi.spans
        for moment in resets
        if span.start <= moment <= span.end + TOGETHER_NS
    ]
    if not after:
        return None
    length, gap = max(after)
    when = f"{duration(gap)} after" if gap > 0 else "during"
    said = f"the driver reset {reset.subject} {when} a stall of {milliseconds(length / MILLISECOND)}"
    return (0.9, said) if length >= SECOND else (0.4, f"{said}, which is short: drivers wait for seconds")


def _culprits(napi: Finding[NapiStarved], case: Case) -> Iterator[Culprit]:
    if not napi.facts.work.of_network and (who := napi.facts.blamed) and napi.facts.measured is not None:
        yield Culprit(who, napi.facts.measured.offender_ratio or 0.0)


def _steps(napi: Finding[NapiStarved], case: Case) -> Iterator[Step]:
    yield Step(
        f"exhume latency --device {napi.subject} shows it as it happens; free that core, or poll elsewhere: taskset -p "
        "for a NAPI thread, /proc/irq/N/smp_affinity for an interrupt"
    )


KIND = Kind(
    facts=NapiStarved,
    detect=detect,
    role="symptom",
    title=lambda finding: f"long stays of {finding.facts.blamed} in the kernel" if finding.facts.blamed else "late polls",
    harm=lambda facts: f"keep {facts.subject} from being polled",
    rules=(Rule(NapiStarved, NicReset, _resets, "resets without a late poll before them"),),
    culprits=_culprits,
    steps=_steps,
)
