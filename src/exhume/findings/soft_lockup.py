"""soft-lockup: the kernel itself noticed a core that did not schedule, an RCU stall, or a task that hung."""

from exhume.findings.events import ago, severity
from exhume.findings.held import belongs
from exhume.findings.kernel_work import UNKNOWN, telling
from exhume.findings.lockups import Lockup, lockups
from exhume.findings.model import Evidence, Examined, Finding
from exhume.findings.stall_words import SHARES, text
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording
from exhume.text import printable

KIND = "soft-lockup"
_NAMES = {
    "soft-lockup": "a soft lockup",
    "hard-lockup": "a hard lockup",
    "rcu-stall": "an RCU stall",
    "rcu-kthread-starved": "a starved RCU thread",
    "hung-task": "a hung task",
}
_LINE, _TRACE = "kernel log", "kernel log: call trace"
# What the kernel said again so much later is another story. It repeats itself every 20 s or so while it lasts.
_APART_NS = 300 * 10**9


def detect(recording: Recording, thresholds: Thresholds) -> Examined:
    seen = lockups(recording)
    if not seen and not recording.on("kernel-log"):
        return Examined(KIND, unseen=recording.why_off("kernel-log"))
    findings = [
        _finding(part, name, thresholds)
        for kind, name in _NAMES.items()
        for part in _parts([lockup for lockup in seen if lockup.kind == kind])
    ]
    if findings:
        return Examined(KIND, tuple(findings))
    return Examined(KIND, ruled_out="none in the kernel log (it needs about 20 s of one; shorter stalls leave no line)")


def _parts(seen: list[Lockup]) -> list[list[Lockup]]:
    parts: list[list[Lockup]] = []
    for lockup in seen:
        if parts and lockup.event.time - parts[-1][-1].event.time <= _APART_NS:
            parts[-1].append(lockup)
        else:
            parts.append([lockup])
    return parts


def _finding(seen: list[Lockup], name: str, thresholds: Thresholds) -> Finding:
    last = seen[-1]
    # The one that says most: with a trace, and of those the longest, and the latest.
    worst = max(seen, key=lambda one: (one.work != UNKNOWN, one.stuck_ns, one.event.time, one.core))
    current = severity(last.event, thresholds, "warning" if last.kind == "hung-task" else "critical")
    evidence = [Evidence("lines", len(seen), "", _LINE), Evidence("last line", last.event.message, "", _LINE)]
    said = f"the kernel reported {name}"
    if worst.core >= 0:
        evidence.append(Evidence("core", worst.core, "", _LINE))
        said += f" on core {worst.core}"
    if worst.who is not None:
        said += f" in {printable(str(worst.who), 64)}"
        if worst.who.tid >= 0:
            evidence += [Evidence("process", str(worst.who), "", _LINE), *belongs(worst.who, _LINE)]
    if worst.stuck_ns:
        seconds = worst.stuck_ns // 10**9
        evidence.append(Evidence("stuck for", seconds, "s", _LINE))
        said += f", stuck for {seconds} s" if worst.kind != "hung-task" else f", which waits for more than {seconds} s"
    if worst.stack:
        evidence += _did(worst)
        said += f": it {_words(worst)}"
        said += f", {telling(worst.stack)}" if worst.work.key not in ("kernel", UNKNOWN.key) else ""
    said += f"; {len(seen)} in the log, last {ago(last.event.age_s)}"
    spans = tuple(lockup.span for lockup in seen)
    start = min(span.start for span in spans)
    return Finding(KIND, last.event.subject or last.kind, current, start, last.event.time, said, tuple(evidence), spans)


def _words(lockup: Lockup) -> str:
    """A task that hangs is not in a function but waits in it."""
    if lockup.kind == "hung-task" and lockup.work.key == "kernel":
        return f"waits in {telling(lockup.stack)}"
    return lockup.work.words


def _did(lockup: Lockup) -> list[Evidence]:
    evidence = [
        Evidence("it", _words(lockup), "", _TRACE),
        Evidence("function", telling(lockup.stack), "", _TRACE),
        Evidence("stack", text(lockup.stack), "", _TRACE),
    ]
    if (what := SHARES.get(lockup.work)) is not None:
        evidence.append(Evidence(what, 1.0, "of the call trace", _TRACE))
    return evidence
