"""soft-lockup: the kernel itself noticed a core that did not schedule, an RCU stall, or a task that hung.

Of cores that are stuck at once one is the reason and the others wait for it: each is told by itself, those that do something
first, and of these the one that was stuck first.
"""

from exhume.findings.events import ago, severity
from exhume.findings.held import belongs
from exhume.findings.kernel_threads import of_kernel
from exhume.findings.kernel_work import UNKNOWN, spins, telling
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
    alike: dict[tuple[str, int], list[Lockup]] = {}
    for lockup in seen:
        alike.setdefault((lockup.kind, lockup.core), []).append(lockup)
    parts = sorted((part for some in alike.values() for part in _parts(some)), key=lambda part: _order(_first(part)))
    if parts:
        return Examined(KIND, tuple(_finding(recording, part, thresholds) for part in parts))
    return Examined(KIND, ruled_out="none in the kernel log (it needs about 20 s of one; shorter stalls leave no line)")


def _parts(seen: list[Lockup]) -> list[list[Lockup]]:
    parts: list[list[Lockup]] = []
    for lockup in seen:
        if parts and lockup.event.time - parts[-1][-1].event.time <= _APART_NS:
            parts[-1].append(lockup)
        else:
            parts.append([lockup])
    return parts


def _first(seen: list[Lockup]) -> Lockup:
    """The one that says most: with a trace, not of one that waits for others, and the one that was stuck first."""
    return min(seen, key=lambda one: (one.work == UNKNOWN, *_order(one)))


def _order(one: Lockup) -> tuple[bool, bool, int, int, int, int]:
    kind = tuple(_NAMES).index(one.kind)
    return one.waits, spins(one.stack), one.span.start, one.event.time, one.core, kind


def _finding(recording: Recording, seen: list[Lockup], thresholds: Thresholds) -> Finding:
    worst, last = _first(seen), seen[-1]
    current = severity(last.event, thresholds, "warning" if last.kind == "hung-task" else "critical")
    evidence = [Evidence("lines", len(seen), "", _LINE), Evidence("last line", last.event.message, "", _LINE)]
    said = f"the kernel reported {_NAMES[worst.kind]}"
    if worst.core >= 0:
        evidence.append(Evidence("core", worst.core, "", _LINE))
        said += f" on core {worst.core}"
    if worst.who is not None:
        said += f" in {printable(str(worst.who), 64)}"
        if worst.who.tid >= 0:
            evidence += [Evidence("process", str(worst.who), "", _LINE), *belongs(worst.who, _LINE)]
            evidence += of_kernel(recording, worst.who, worst.stack)
    if worst.waits:
        evidence.append(Evidence("waits", 1, "for others: it is held up, not what holds up", _TRACE if worst.stack else _LINE))
    if stuck_ns := max(one.stuck_ns for one in seen if one.who == worst.who):
        seconds = stuck_ns // 10**9
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
