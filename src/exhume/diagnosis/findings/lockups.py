"""What the kernel's own watchdogs complained about, each with the call trace that it printed: who, where, how long, at what."""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Final, Literal, get_args

from exhume.diagnosis.findings.events import Event, events
from exhume.diagnosis.findings.held import Who, blamed, walked
from exhume.diagnosis.findings.kernel_work import LOCK, SHOOTDOWN, UNKNOWN, Walks, Work, work
from exhume.diagnosis.findings.model import Span
from exhume.recording.recording import Recording

Complaint = Literal["soft-lockup", "hard-lockup", "rcu-stall", "rcu-kthread-starved", "hung-task"]
KINDS: Final[tuple[Complaint, ...]] = get_args(Complaint)
# RCU's complaint has a line for each core that is late, and that one has the trace.
_OF_CORE = "rcu-stall-cpu"
_TOGETHER_NS = 2 * 10**9
_LONGEST_S = 86_400


@dataclass(frozen=True, slots=True)
class Lockup:
    kind: Complaint
    event: Event
    core: int
    """-1 where the line names none: a task that hangs is on no core."""
    who: Who | None
    stuck_ns: int
    """How long, as the line says; 0 where it does not."""
    stack: tuple[str, ...]
    """As the call trace has it, the innermost function first."""
    work: Work

    @property
    def span(self) -> Span:
        return Span(self.core, self.event.time - self.stuck_ns, self.event.time)

    @property
    def waits(self) -> bool:
        """For others, by what it does: in D state, for a lock that somebody else has, for cores that do not answer. Those are
        stuck as well, and it is never because of this one."""
        return self.kind == "hung-task" or self.work in (LOCK, SHOOTDOWN)


def lockups(recording: Recording) -> list[Lockup]:
    """In order of time."""
    seen = events(recording, *KINDS, _OF_CORE, "call-trace")
    late: dict[tuple[str, str, str], str] = {}
    for event in seen:
        if event.kind == "call-trace":
            of = event.fields.get("of", ""), event.fields.get("of_ns", ""), event.fields.get("cpu", "")
            late[of] = max(late.get(of, ""), event.fields.get("stack", ""), key=len)
    of_cores = [event.time for event in seen if event.kind == _OF_CORE]
    found = []
    for event in seen:
        if event.kind == "rcu-stall" and _follows(of_cores, event.time):
            continue  # told by the lines of its cores
        if event.kind != "call-trace":
            rest = late.get((event.kind, str(event.time), event.fields.get("cpu", "")), "")
            found.append(_lockup(event, max(event.fields.get("stack", ""), rest, key=len), walked(recording)))
    if any(lockup.who is not None for lockup in found):
        cgroups = _cgroups(recording)
        found = [_placed(lockup, cgroups) for lockup in found]
    return found


def _follows(times: list[int], time: int) -> bool:
    at = bisect_left(times, time)
    return at < len(times) and times[at] - time <= _TOGETHER_NS


def _cgroups(recording: Recording) -> dict[tuple[int, str], str]:
    """By thread or process and its name: the log has no more than those."""
    known: dict[tuple[int, str], str] = {}
    for name in ("processes", "threads"):
        table = recording[name]
        columns = table.ints("pid").tolist(), table.ints("tid").tolist(), table.texts("comm"), table.texts("cgroup")
        for pid, tid, comm, cgroup in zip(*columns, strict=True):
            if cgroup:
                known[tid or pid, comm] = max(cgroup, known.get((tid or pid, comm), ""))
    return known


def _placed(lockup: Lockup, cgroups: dict[tuple[int, str], str]) -> Lockup:
    who = lockup.who
    return lockup if who is None else replace(lockup, who=who._replace(cgroup=cgroups.get((who.pid, who.comm), "")))


def _lockup(event: Event, trace: str, files: Walks) -> Lockup:
    # Of RCU's own thread the trace says where it waits to run, not who keeps it from that.
    stack = tuple(name for name in trace.split(";") if name) if event.kind != "rcu-kthread-starved" else ()
    did = work(stack, files) if stack else UNKNOWN
    cpu, pid = event.integer("cpu"), event.integer("pid")
    who = Who(event.fields["comm"], pid or 0, pid or 0) if event.fields.get("comm") else None
    seconds = min(max(0, event.integer("seconds") or 0), _LONGEST_S)
    hangs = event.kind == "hung-task"
    lockup = Lockup(
        next((kind for kind in KINDS if kind == event.kind), "rcu-stall"),
        event,
        -1 if cpu is None or hangs else cpu,
        who,
        seconds * 10**9,
        stack,
        did,
    )
    return lockup if who is None or hangs else replace(lockup, who=blamed(who, did))
