"""The stalls of one device in a sentence, and the numbers behind it: how often, how long, where, and who held the core."""

from typing import NamedTuple

from exhume.findings.events import ago
from exhume.findings.held import INTERRUPT, Who
from exhume.findings.kernel_threads import of_kernel
from exhume.findings.kernel_work import (
    CGROUPFS,
    COMPACTION,
    CONSOLE,
    FAULT,
    FLUSH,
    FORK,
    IDLE,
    LOCK,
    MIGRATION,
    NETWORK,
    NUMA,
    OFFLINE,
    OOM,
    POLLING,
    RECLAIM,
    SHOOTDOWN,
    STATISTICS,
    TRIM,
    UNKNOWN,
    UNMAP,
    USER,
    WALK,
    WRITEBACK,
    Work,
)
from exhume.findings.model import Evidence
from exhume.findings.spans import total_ns
from exhume.findings.stalls import Stall, steal_while
from exhume.findings.thresholds import Thresholds
from exhume.recording.recording import Recording

MEASURED = "latency probes"
SAMPLED = "stack samples of the core meanwhile"
# Shares of the late time by what was done meanwhile, as evidence that rules of the verdict ask for.
SHARES = {
    WALK: "walked memory cgroups",
    FLUSH: "summed up statistics",
    STATISTICS: "read statistics",
    RECLAIM: "reclaimed memory",
    CONSOLE: "printed to a console",
    NETWORK: "network itself",
    CGROUPFS: "listed cgroup directories",
    FAULT: "served page faults",
    WRITEBACK: "wrote pages back",
    UNMAP: "gave back memory",
    TRIM: "trimmed its memory",
    COMPACTION: "compacted memory",
    NUMA: "balanced memory between nodes",
    OFFLINE: "emptied memory to be taken away",
    MIGRATION: "moved pages elsewhere",
    POLLING: "polled",
    OOM: "looked for a process to kill",
    LOCK: "spun on a lock",
    SHOOTDOWN: "waited for other cores",
    FORK: "started or ended processes",
    USER: "ran its own code",
}
_MOST_CORES = 4
_MOST_GROUPS = 2
_MOST_FUNCTIONS = 6


class Described(NamedTuple):
    summary: str
    evidence: tuple[Evidence, ...]


class _Group(NamedTuple):
    """Stalls with the same offender at the same work."""

    stalls: tuple[Stall, ...]
    late_ns: int

    @property
    def work(self) -> Work:
        """All are of one kind; of functions of the kernel that have no words of their own, the one that took longest."""
        return max(self.stalls, key=lambda stall: (stall.ns, stall.work)).work

    @property
    def who(self) -> Who | None:
        return self.stalls[0].who

    @property
    def in_turns(self) -> bool:
        return self.stalls[0].in_turns


def text(stack: tuple[str, ...]) -> str:
    """The innermost functions of a stack."""
    return " < ".join(stack[:_MOST_FUNCTIONS])


def described(recording: Recording, subject: str, stalls: list[Stall], thresholds: Thresholds) -> Described:
    longest = max(stalls, key=lambda stall: (stall.ns, -stall.start))
    groups = _groups(stalls)
    stolen = steal_while(recording, [stall.span for stall in stalls])
    evidence = _evidence(recording, stalls, longest, groups)
    summary = _times(subject, stalls, longest) + ", " + _meanwhile(stalls, groups)
    if stolen >= thresholds.steal_ratio:
        evidence.append(Evidence("steal", round(stolen, 3), "of the core's time meanwhile", "/proc/stat"))
        summary += f"; the hypervisor took {stolen:.0%} of the core's time meanwhile"
    if all(stall.over for stall in stalls):
        age = max(0, recording.window[1] - max(stall.end for stall in stalls)) // 10**9
        summary += f" ({'last ' if len(stalls) > 1 else ''}{ago(age)})" if age else ""
    return Described(summary, tuple(evidence))


def _times(subject: str, stalls: list[Stall], longest: Stall) -> str:
    where = _where(stalls, longest)
    if len(stalls) == 1:
        lasts = "" if longest.over else " and still waits"
        return f"{subject} was due to be polled{where} and was not for {longest.ms:,} ms{lasts}"
    lasting = sum(not stall.over for stall in stalls)
    lasts = f", {lasting} of them still going on" if lasting else ""
    return f"{subject} was due to be polled and was not: {len(stalls):,} stalls of up to {longest.ms:,} ms{where}{lasts}"


def _where(stalls: list[Stall], longest: Stall) -> str:
    cores = sorted({stall.core for stall in stalls if stall.core >= 0})
    if not cores:
        return ""
    if len(cores) == 1:
        return f" on core {cores[0]}"
    if len(cores) <= _MOST_CORES:
        return f" on cores {', '.join(map(str, cores[:-1]))} and {cores[-1]}"
    return f" on {len(cores)} cores, the longest on core {longest.core}"


def _groups(stalls: list[Stall]) -> list[_Group]:
    """Those that made it wait longest first. A program that is started anew each time is one offender, not many."""
    by_what: dict[tuple[str, str, bool], list[Stall]] = {}
    for stall in stalls:
        comm = stall.who.comm if stall.who is not None else ""
        by_what.setdefault((comm, stall.work.key, stall.in_turns), []).append(stall)
    groups = [(key, _Group(tuple(some), sum(stall.ns for stall in some))) for key, some in by_what.items()]
    return [group for _, group in sorted(groups, key=lambda each: (-each[1].late_ns, each[0]))]


def _meanwhile(stalls: list[Stall], groups: list[_Group]) -> str:
    if len(groups) == 1:
        return f"{'all of them ' if len(stalls) > 1 else ''}while {_did(groups[0])}"
    told = groups[:_MOST_GROUPS]
    parts = [f"{len(group.stalls):,}{' of them' if i == 0 else ''} while {_did(group)}" for i, group in enumerate(told)]
    left = len(stalls) - sum(len(group.stalls) for group in told)
    if left:
        parts.append(f"{left:,} with others there")
    return ", ".join(parts)


def _did(group: _Group) -> str:
    if group.who is None:
        return "nobody saw who held the core"
    if group.work == IDLE:
        return "the core was idle, or not running at all"
    if group.in_turns:
        return f"several took turns there, {_name(group)} most"
    if group.work == NETWORK:
        return f"{_name(group)} {NETWORK.words} there: more work for the network than this core can do"
    return f"{_name(group)} {group.work.words}{'' if group.who == INTERRUPT or group.work == UNKNOWN else ' there'}"


def _name(group: _Group) -> str:
    """With its pid, unless it was another one each time."""
    assert group.who is not None
    same = {stall.who.pid for stall in group.stalls if stall.who is not None}
    return str(group.who) if len(same) == 1 else group.who.comm


def _evidence(recording: Recording, stalls: list[Stall], longest: Stall, groups: list[_Group]) -> list[Evidence]:
    start, end = recording.window
    late = total_ns(stall.span for stall in stalls)
    window = max(1, end - start, max(stall.end for stall in stalls) - min(stall.start for stall in stalls))
    evidence = [
        Evidence("core", longest.core, "", MEASURED),
        Evidence("stalls", len(stalls), "", MEASURED),
        Evidence("longest", longest.ms, "ms", MEASURED),
        Evidence("late", late // 1_000_000, "ms", MEASURED),
        Evidence("late share", round(late / window, 4), "of the time", MEASURED),
    ]
    if longest.core < 0:
        del evidence[0]
    reason = recording.sources().get("latency", {}).get("reason", "")
    if reason:
        evidence.append(Evidence("measured by", reason, "", MEASURED))
    return evidence + _offender(recording, stalls, groups)


def _offender(recording: Recording, stalls: list[Stall], groups: list[_Group]) -> list[Evidence]:
    """Who made it wait longest; of what was done meanwhile only what stacks, or the name of a thread of the network's, say."""
    whole = max(1, sum(stall.ns for stall in stalls))
    worst, evidence = groups[0], []
    deepest = max(worst.stalls, key=lambda stall: (stall.samples, stall.stack))
    if worst.who is not None and worst.who.tid > 0:
        evidence.append(Evidence("process", _name(worst), "", MEASURED))
        evidence.append(Evidence("its share", round(worst.late_ns / whole, 3), "of the late time", MEASURED))
        if worst.who.cgroup:
            evidence.append(Evidence("its cgroup", worst.who.cgroup, "", "/proc/PID/cgroup"))
        evidence += of_kernel(recording, worst.who, deepest.stack)
    if worst.work not in (UNKNOWN, IDLE):
        evidence.append(Evidence("it", worst.work.words, "", SAMPLED if worst.stalls[0].stack else "who it is"))
    if policy := max((stall.policy for stall in worst.stalls), default=""):
        evidence.append(Evidence("policy", policy, "", "/proc/TID/stat"))
    if deepest.stack:
        evidence.append(Evidence("stack", text(deepest.stack), "", SAMPLED))
    for work, what in SHARES.items():
        # Nobody is accused of what was done in turns with others.
        some = [stall for stall in stalls if stall.work == work and not stall.in_turns]
        if some:
            share = round(sum(stall.ns for stall in some) / whole, 3)
            evidence.append(Evidence(what, share, "of the late time", SAMPLED))
    idle = sum(stall.ns for stall in stalls if stall.work == IDLE)
    unknown = sum(stall.ns for stall in stalls if stall.who is None)
    turns = sum(stall.ns for stall in stalls if stall.in_turns)
    for late, what in ((idle, "idle or not running"), (unknown, "holder not known"), (turns, "in turns")):
        if late:
            evidence.append(Evidence(what, round(late / whole, 3), "of the late time", MEASURED))
    return evidence
