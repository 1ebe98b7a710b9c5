"""nic-reset: the driver gave up and reset the device, or the kernel's transmit watchdog fired."""

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from exhume.diagnosis.findings.events import Moment, moment, severity
from exhume.diagnosis.findings.kind import Case, Kind, Step
from exhume.diagnosis.findings.model import SEVERITIES, Examined, Facts, Finding, Shown, Span
from exhume.diagnosis.findings.nic_events import interrupt_missing
from exhume.diagnosis.findings.stretches import growth, ordered
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import milliseconds
from exhume.record import record
from exhume.recording.events import GIVES_UP, NEAR_NS, Event, events, netdevs, nic_resets
from exhume.recording.events import NicReset as DecodedReset
from exhume.recording.recording import Recording
from exhume.sources.interrupts import queue_cores
from exhume.sources.kernel_forms import ENA_RESET_REASONS

_LOG = "kernel log"
# Lines about one queue. A poll that was scheduled and late is napi-starved's; if none was scheduled, its interrupt is missing.
_QUEUE = ("nic-queue-paused", "nic-tx-not-completed")
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
Outcome = Literal["reset", "failed", "stopped", "interrupt-missed", "counted"]
_OUTCOMES: dict[Outcome, str] = {
    "reset": "was reset",
    "failed": "failed to reset",
    "stopped": "stopped sending",
    "interrupt-missed": "missed an interrupt",
    "counted": "counts resets",
}


@record(frozen=True, slots=True, kw_only=True)
class ResetCounter:
    """A statistic of a device that counts resets, as ethtool -S shows it."""

    name: str
    total: int
    """Since the driver loaded."""
    grown: int
    """While we looked."""

    @property
    def shown(self) -> int:
        return self.grown or self.total

    def __str__(self) -> str:
        return f"{self.name} {self.shown}"


@record(frozen=True, slots=True, kw_only=True)
class NicReset(Facts):
    kind: ClassVar[str] = "nic-reset"
    outcome: Outcome
    """`counted`: only the device's statistics say so."""
    resets: Annotated[int | None, Shown("resets", source=_LOG)] = None
    """As recording/events.py decodes them, those from before the recording too; of interrupt-missed, the lines that say so."""
    last_line: Annotated[str, Shown("last line", source=_LOG)] = ""
    last: Moment | None = None
    driver: Annotated[str, Shown("driver", source=_LOG)] = ""
    driver_version: Annotated[str, Shown("driver version", source=_LOG)] = ""
    reason: Annotated[str, Shown("reason", source=".reason_from")] = ""
    reason_from: str = _LOG
    queue: Annotated[int | None, Shown("queue", source=_LOG)] = None
    """The queue that the driver complained of."""
    core: Annotated[int | None, Shown("core", source=".core_from")] = None
    """The core that serves it."""
    core_from: str = ""
    interrupt_missing_ms: int | None = None
    """How long a queue was not polled while no poll was scheduled."""
    counters: Annotated[tuple[ResetCounter, ...], Shown("counted", source="ethtool", join=", ")] = ()

    @property
    def focus_core(self) -> int | None:
        return self.core

    @property
    def focus_line(self) -> str:
        return self.last_line

    def summary(self) -> str:
        if self.outcome == "counted":
            counts = ", ".join(map(str, self.counters))
            grew = any(one.grown for one in self.counters)
            when = "while we looked" if grew else "since the driver loaded, time not known"
            return f"{self.subject} counts resets: {counts} ({when})"
        times = "once" if self.resets == 1 else f"{self.resets} times"
        driver = f" ({self.driver})" if self.driver else ""
        text = f"{self.subject}{driver} {_OUTCOMES[self.outcome]} {times}, last {self.last}"
        if (waited := self.interrupt_missing_ms) is not None:
            return f"{text}; interrupt missing: a queue was not polled for {milliseconds(waited)} and no poll was scheduled"
        return text + (f"; reason: {self.reason}" if self.reason else "")

    def short(self) -> tuple[str, str]:
        if self.resets is None:
            return f"{self.subject} {_OUTCOMES[self.outcome]}", ", ".join(map(str, self.counters))
        often = "once" if self.resets == 1 else f"{self.resets:,} times"
        what = f"{self.subject} reset{f' by {self.driver}' if self.driver else ''}"
        return what, f"{often} · {self.reason}" if self.reason else often


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    log, nic = recording.on("kernel-log"), recording.on("nic")
    resets: dict[str, list[DecodedReset]] = {}
    for reset in nic_resets(recording):
        resets.setdefault(reset.device, []).append(reset)
    if not log and not nic and not resets:
        return Examined(NicReset.kind, unseen=recording.why_off("kernel-log"))
    missing: dict[str, list[Event]] = {}
    names = netdevs(recording)
    for event in events(recording, *_QUEUE):
        if interrupt_missing(event):
            missing.setdefault(names.get(event.fields.get("pci") or event.subject, event.subject), []).append(event)
    counted = _counted(recording)
    findings = [
        _from_log(recording, device, resets.get(device, []), missing.get(device, []), counted.get(device, []), thresholds)
        for device in dict.fromkeys((*resets, *missing))
    ]
    named = {finding.subject for finding in findings}
    findings += [_from_counters(recording, name, stats) for name, stats in sorted(counted.items()) if name not in named]
    if findings:
        findings.sort(key=lambda finding: (-SEVERITIES.index(finding.severity), finding.start, finding.subject))
        return Examined(NicReset.kind, tuple(findings))
    return Examined(NicReset.kind, ruled_out="no reset in the kernel log" if log else "no reset counted by a device")


def _from_log(
    recording: Recording,
    device: str,
    resets: list[DecodedReset],
    missing: list[Event],
    counted: list[ResetCounter],
    thresholds: Thresholds,
) -> Finding[NicReset]:
    lines = sorted((*(line for reset in resets for line in reset.lines), *missing), key=lambda line: line.time)
    moments = [reset.last for reset in resets] or missing
    last = max(moments, key=lambda line: line.time)
    driver = _last_field(lines, "driver")
    reason, source = _reason(resets, counted)
    if missing and not reason:
        reason, source = "interrupt missing", _LOG
    queue, core, core_from = _starved(recording, device, moments)
    if queue is None and missing:
        queue = missing[-1].integer("queue")
    only_missing = all(line.kind in _QUEUE for line in lines)
    facts = NicReset(
        subject=device,
        outcome="interrupt-missed" if only_missing and missing else _outcome(resets),
        resets=len(moments),
        last_line=last.message,
        last=moment(recording, last),
        driver=driver,
        driver_version=_last_field(lines, "driver_version") if driver else "",
        reason=reason,
        reason_from=source,
        queue=queue,
        core=core,
        core_from=core_from,
        interrupt_missing_ms=(missing[-1].integer("napi_age_ms") or 0) if missing else None,
        counters=tuple(stat for stat in counted if stat.grown),
    )
    current = severity(last, thresholds, "warning" if only_missing and missing else "critical")
    spans = tuple(Span(-1, line.time, line.time) for line in moments)
    return Finding(facts, current, lines[0].time, last.time, spans)


def _outcome(resets: list[DecodedReset]) -> Outcome:
    outcomes = {reset.outcome for reset in resets}
    return "failed" if "failed" in outcomes else "reset" if "done" in outcomes else "stopped"


def _last_field(seen: list[Event], name: str) -> str:
    return next((event.fields[name] for event in reversed(seen) if event.fields.get(name)), "")


def _reason(resets: list[DecodedReset], counted: list[ResetCounter]) -> tuple[str, str]:
    """Why the driver reset: the lines of the last reset that tells, or the statistic that grew."""
    if reason := next((reset.reason for reset in reversed(resets) if reset.reason), ""):
        return reason, _LOG
    for stat in counted:
        if stat.grown and _STATS[stat.name]:
            return _STATS[stat.name], "ethtool"
    return "", ""


def _starved(recording: Recording, device: str, resets: list[Event]) -> tuple[int | None, int | None, str]:
    """The queue that the driver complained of before it reset, the core that serves it, and where that is from."""
    found = [
        line
        for line in _complaints(recording, device)
        if line.integer("queue") is not None and any(0 <= reset.time - line.time <= NEAR_NS for reset in resets)
    ]
    if not found:
        return None, None, ""
    line = max(found, key=lambda event: (event.integer("cpu") is not None, event.time, event.integer("queue") or 0))
    queue = line.integer("queue") or 0
    core, source = line.integer("cpu"), _LOG
    if core is None:
        core = recording.derived("counters", queue_cores).get((device, queue))
        source = "/proc/interrupts, the core that takes this queue's interrupts"
    return queue, core if core is not None and core >= 0 else None, source


def _complaints(recording: Recording, device: str) -> list[Event]:
    kinds = (*_QUEUE, *GIVES_UP, "nic-queue-cpu")
    return [event for event in events(recording, *kinds) if event.subject == device]


def _counted(recording: Recording) -> dict[str, list[ResetCounter]]:
    found: dict[str, list[ResetCounter]] = {}
    for at, series in recording.counters("nic_stat").items():
        where = dict(at)
        if where.get("stat") in _STATS and len(series.values):
            _, values = ordered(series)
            if values[-1] > 0:
                grown = max(0, int(values[-1] - values[0]))
                found.setdefault(where["device"], []).append(
                    ResetCounter(name=where["stat"], total=int(values[-1]), grown=grown)
                )
    order = list(_STATS)
    return {device: sorted(stats, key=lambda stat: order.index(stat.name)) for device, stats in found.items()}


def _from_counters(recording: Recording, device: str, stats: list[ResetCounter]) -> Finding[NicReset]:
    """Resets counted while we looked are current; those counted since boot have no time."""
    start, end = recording.window
    grew = any(stat.grown for stat in stats)
    shown = [stat for stat in stats if stat.grown] if grew else stats
    reason = next((_STATS[stat.name] for stat in shown if stat.grown and _STATS[stat.name]), "")
    moments = _grew_at(recording, device) if grew else []
    if moments:
        start, end = moments[0].start, moments[-1].end
    facts = NicReset(subject=device, outcome="counted", reason=reason, reason_from="ethtool", counters=tuple(shown))
    return Finding(facts, "critical" if grew else "info", start, end, tuple(moments))


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


def _steps(reset: Finding[NicReset], case: Case) -> Iterator[Step]:
    yield Step(f"dmesg -T | grep {reset.subject} shows what the driver said before it gave up")


KIND = Kind(
    facts=NicReset,
    detect=detect,
    role="symptom",
    harm=lambda facts: f"starve {facts.subject} until its driver resets",
    steps=_steps,
)
