"""Who the kernel's watchdogs complained about and what it did, by the call trace that they printed."""

from dataclasses import fields

from exhume.diagnosis.findings.held import Who, blamed, walked
from exhume.diagnosis.findings.kernel_work import LOCK, SHOOTDOWN, UNKNOWN, Walks, Work, work
from exhume.diagnosis.findings.model import Span
from exhume.record import record
from exhume.recording.events import Lockup, lockups
from exhume.recording.recording import Recording


@record(frozen=True, slots=True)
class TracedLockup(Lockup):
    who: Who | None
    work: Work

    @property
    def span(self) -> Span:
        return Span(self.core, self.event.time - self.stuck_ns, self.event.time)

    @property
    def waits(self) -> bool:
        """For others, by what it does: in D state, for a lock that another holds, for cores that do not answer. Those are
        stuck as well, and it is never because of this one."""
        return self.kind == "hung-task" or self.work in (LOCK, SHOOTDOWN)


def traced_lockups(recording: Recording) -> list[TracedLockup]:
    """In order of time."""
    found = lockups(recording)
    cgroups = _cgroups(recording) if any(lockup.comm for lockup in found) else {}
    return [_traced(lockup, cgroups, walked(recording)) for lockup in found]


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


_FIELDS = tuple(field.name for field in fields(Lockup))


def _traced(lockup: Lockup, cgroups: dict[tuple[int, str], str], files: Walks) -> TracedLockup:
    did = work(lockup.stack, files) if lockup.stack else UNKNOWN
    who = None
    if lockup.comm:
        who = Who(lockup.comm, lockup.pid, lockup.pid)
        who = who if lockup.kind == "hung-task" else blamed(who, did)
        who = who._replace(cgroup=cgroups.get((who.pid, who.comm), ""))
    return TracedLockup(**{name: getattr(lockup, name) for name in _FIELDS}, who=who, work=did)
