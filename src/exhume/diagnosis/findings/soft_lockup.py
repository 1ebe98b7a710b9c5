"""soft-lockup: the kernel itself noticed a core that did not schedule, an RCU stall, or a task that hung.

Of cores that are stuck at once one is the reason and the others wait for it: each is told by itself, those that do something
first, and of these the one that was stuck first.
"""

from collections.abc import Iterator
from typing import Annotated, ClassVar

from exhume.diagnosis.findings.events import severity
from exhume.diagnosis.findings.kernel_work import UNKNOWN, spins, telling
from exhume.diagnosis.findings.kind import MOSTLY, TOGETHER_NS, Case, Culprit, Judged, Kind, Rule, Step
from exhume.diagnosis.findings.lockups import TracedLockup, traced_lockups
from exhume.diagnosis.findings.model import Examined, Facts, Finding, Shown
from exhume.diagnosis.findings.napi_starved import NapiStarved
from exhume.diagnosis.findings.nic_reset import NicReset
from exhume.diagnosis.findings.offender import (
    NO_WORK,
    Offender,
    WorkShares,
    blamed,
    innermost,
    offender,
    process_of,
    work_shares,
)
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, ago, duration
from exhume.record import record
from exhume.recording.events import LockupKind, lockup_episodes
from exhume.recording.recording import Recording
from exhume.text import printable

_NAMES: dict[LockupKind, tuple[str, str]] = {
    "soft-lockup": ("a", "soft lockup"),
    "hard-lockup": ("a", "hard lockup"),
    "rcu-stall": ("an", "RCU stall"),
    "rcu-kthread-starved": ("a", "starved RCU thread"),
    "hung-task": ("a", "hung task"),
}
_LINE, _TRACE = "kernel log", "kernel log: call trace"


@record(frozen=True, slots=True, kw_only=True)
class SoftLockup(Facts):
    kind: ClassVar[str] = "soft-lockup"
    complaint: LockupKind
    """Which watchdog: a key of _NAMES."""
    lines: Annotated[int, Shown("lines", source=_LINE)]
    last_line: Annotated[str, Shown("last line", source=_LINE)]
    last_age_s: int
    core: Annotated[int | None, Shown("core", source=_LINE)] = None
    victim: Process | None = None
    """The task that the line names."""
    offender: Annotated[Offender | None, Shown()] = None
    """The task, unless it is the core itself that served interrupts."""
    waits: Annotated[bool, Shown("waits", "for others: it is held up, not what holds up", ".waits_from")] = False
    waits_from: str = _LINE
    stuck_s: Annotated[int, Shown("stuck for", "s", _LINE, zero=False)] = 0
    did: Annotated[str, Shown("it", source=_TRACE)] = ""
    did_unclassified: bool = False
    """Known only by the name of the function, or not at all."""
    function: Annotated[str, Shown("function", source=_TRACE)] = ""
    stack: Annotated[tuple[str, ...], Shown("stack", source=_TRACE)] = ()
    work: Annotated[WorkShares, Shown(unit="of the call trace", source=_TRACE)] = NO_WORK

    @property
    def focus_core(self) -> int | None:
        return self.core

    @property
    def focus_offender(self) -> Offender | None:
        return self.offender

    @property
    def focus_stack(self) -> tuple[str, ...]:
        return self.stack

    @property
    def focus_line(self) -> str:
        return self.last_line

    @property
    def focus_did(self) -> str:
        return self.did

    @property
    def blamed(self) -> str:
        return "" if self.waits else blamed(self.offender, self.work)

    def summary(self) -> str:
        text = f"the kernel reported {' '.join(_NAMES[self.complaint])}"
        text += f" on core {self.core}" if self.core is not None else ""
        text += f" in {printable(str(self.victim), 64)}" if self.victim is not None else ""
        if self.stuck_s:
            hangs = self.complaint == "hung-task"
            text += (
                f", which waits for more than {duration(self.stuck_s * SECOND)}"
                if hangs
                else f", stuck for {duration(self.stuck_s * SECOND)}"
            )
        if self.did:
            text += f": it {self.did}" + ("" if self.did_unclassified else f", {self.function}")
        return f"{text}; {self.lines} in the log, last {ago(self.last_age_s * SECOND)}"

    def short(self) -> tuple[str, str]:
        where = f" on core {self.core}" if self.core is not None else ""
        numbers = (f"{duration(self.stuck_s * SECOND)}" if self.stuck_s else "", str(self.victim or ""), self.function)
        return f"{_NAMES[self.complaint][1]}{where}", " · ".join(filter(None, numbers))


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    seen = traced_lockups(recording)
    if not seen and not recording.on("kernel-log"):
        return Examined(SoftLockup.kind, unseen=recording.why_off("kernel-log"))
    parts = sorted(lockup_episodes(seen), key=lambda part: _order(_first(part)))
    if parts:
        return Examined(SoftLockup.kind, tuple(_finding(recording, part, thresholds) for part in parts))
    return Examined(
        SoftLockup.kind, ruled_out="none in the kernel log (it needs about 20 s of one; shorter stalls leave no line)"
    )


def _first(seen: list[TracedLockup]) -> TracedLockup:
    """The one that says most: with a trace, not of one that waits for others, and the one that was stuck first."""
    return min(seen, key=lambda one: (one.work == UNKNOWN, *_order(one)))


def _order(one: TracedLockup) -> tuple[bool, bool, int, int, int, int]:
    kind = tuple(_NAMES).index(one.kind)
    return one.waits, spins(one.stack), one.span.start, one.event.time, one.core, kind


def _finding(recording: Recording, seen: list[TracedLockup], thresholds: Thresholds) -> Finding[SoftLockup]:
    worst, last = _first(seen), seen[-1]
    who = worst.who
    facts = SoftLockup(
        subject=last.event.subject or last.kind,
        complaint=worst.kind,
        lines=len(seen),
        last_line=last.event.message,
        last_age_s=last.event.age_s,
        core=worst.core if worst.core >= 0 else None,
        victim=process_of(who) if who is not None else None,
        offender=offender(recording, who, _LINE, worst.stack) if who is not None and who.tid >= 0 else None,
        waits=worst.waits,
        waits_from=_TRACE if worst.stack else _LINE,
        stuck_s=max(one.stuck_ns for one in seen if one.who == who) // 10**9,
        did=_words(worst) if worst.stack else "",
        did_unclassified=worst.work.key in ("kernel", UNKNOWN.key),
        function=telling(worst.stack) if worst.stack else "",
        stack=innermost(worst.stack),
        work=work_shares({worst.work.key: 1.0} if worst.stack else {}, 1.0),
    )
    current = severity(last.event, thresholds, "warning" if last.kind == "hung-task" else "critical")
    spans = tuple(lockup.span for lockup in seen)
    return Finding(facts, current, min(span.start for span in spans), last.event.time, spans)


def _words(lockup: TracedLockup) -> str:
    """A task that hangs is not in a function but waits in it."""
    if lockup.kind == "hung-task" and lockup.work.key == "kernel":
        return f"waits in {telling(lockup.stack)}"
    return lockup.work.words


def in_the_trace(share: float, said: str, sure: float = 0.9) -> Judged:
    """Whether the call trace that the kernel printed explains a lockup: it is in the work, or it is not."""
    return (sure, f"{said} in the call trace that the kernel printed") if share >= MOSTLY else None


def _starves(lockup: Finding[SoftLockup], napi: Finding[NapiStarved]) -> Judged:
    core = lockup.facts.core
    apart = max(0, lockup.start - napi.end, napi.start - lockup.end)
    if apart > TOGETHER_NS or core is None:
        return None
    served = {span.core for span in napi.spans if span.core >= 0}
    if not served:
        return 0.4, "at the same time; which core serves the queue is not known"
    return (0.9, f"the queue is served by core {core}, which did not schedule") if core in served else None


def _resets(lockup: Finding[SoftLockup], reset: Finding[NicReset]) -> Judged:
    """A device whose queue is unknown, but whose driver gave up while a core was stuck."""
    apart = max(0, reset.start - lockup.end, lockup.start - reset.end)
    if apart > TOGETHER_NS:
        return None
    if lockup.facts.core is None:
        return 0.3, f"tasks hung when the driver gave up on {reset.subject}, but no core was seen to be stuck"
    return 0.45, f"the driver gave up on {reset.subject} while a core was stuck; which core serves it is not known"


def _culprits(lockup: Finding[SoftLockup], case: Case) -> Iterator[Culprit]:
    if who := lockup.facts.blamed:
        yield Culprit(who, 1.0)


def _steps(lockup: Finding[SoftLockup], case: Case) -> Iterator[Step]:
    yield Step("dmesg -T shows the call trace of the core that was stuck")


KIND = Kind(
    facts=SoftLockup,
    detect=detect,
    role="symptom",
    title=lambda finding: f"long stays of {finding.facts.blamed or 'somebody'} in the kernel",
    harm=lambda facts: "hold a core, or tasks, until the kernel complains",
    rules=(
        Rule(SoftLockup, NapiStarved, _starves, "late polls of queues that other cores serve"),
        Rule(SoftLockup, NicReset, _resets, "resets while no core is stuck"),
    ),
    culprits=_culprits,
    steps=_steps,
)
