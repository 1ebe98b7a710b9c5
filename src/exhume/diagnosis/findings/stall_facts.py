"""The facts of measured stalls of one device: how often, how long, where, and who held the core."""

from collections import Counter
from typing import Annotated, NamedTuple

from exhume.diagnosis.findings.held import INTERRUPT, Who
from exhume.diagnosis.findings.kernel_threads import is_kernel_thread
from exhume.diagnosis.findings.kernel_work import IDLE, NETWORK, UNKNOWN, Work
from exhume.diagnosis.findings.model import Shown
from exhume.diagnosis.findings.offender import NO_WORK, Offender, WorkShares, innermost, process_of, work_shares
from exhume.diagnosis.findings.spans import total_ns
from exhume.diagnosis.findings.stalls import HeldStall, steal_while
from exhume.diagnosis.findings.subjects import Process
from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, ago, milliseconds
from exhume.record import record
from exhume.recording.recording import Recording

_PROBES = "latency probes"
_SAMPLES = "stack samples of the core meanwhile"
_MOST_CORES = 4
_MOST_HOLDERS = 2


@record(frozen=True, slots=True, kw_only=True)
class StallHolder:
    """Stalls with the same holder of the core at the same work."""

    stalls: int
    holder: Process | None
    """None: unknown."""
    work: str
    """The key of the work (kernel_work.py)."""
    did: str
    in_turns: bool
    """Several shared the core; this one had most of it."""
    itself: bool
    """The core itself, serving interrupts."""

    def __str__(self) -> str:
        if self.holder is None:
            return "nobody saw who held the core"
        if self.work == IDLE.key:
            return "the core was idle, or not running at all"
        if self.in_turns:
            return f"several took turns there, {self.holder} most"
        if self.work == NETWORK.key:
            return f"{self.holder} {self.did} there: more work for the network than this core can do"
        return f"{self.holder} {self.did}{'' if self.itself or self.work == UNKNOWN.key else ' there'}"


@record(frozen=True, slots=True, kw_only=True)
class MeasuredStalls:
    """Stalls as the latency probes measured them."""

    stalls: Annotated[int, Shown("stalls", source=_PROBES)]
    unfinished: int
    """Of these, stalls that had not ended."""
    cores: tuple[int, ...]
    longest_core: Annotated[int | None, Shown("core", source=_PROBES)] = None
    longest_ms: Annotated[int, Shown("longest", "ms", _PROBES)]
    late_ms: Annotated[int, Shown("late", "ms", _PROBES)]
    late_ratio: Annotated[float, Shown("late share", "of the time", _PROBES, digits=4)]
    measured_by: Annotated[str, Shown("measured by", source=_PROBES)] = ""
    """What limits the probes here."""
    offender: Annotated[Offender | None, Shown()] = None
    """The program or thread that held the core longest."""
    offender_ratio: Annotated[float | None, Shown("its share", "of the late time", _PROBES, digits=3)] = None
    did: Annotated[str, Shown("it", source=".did_from")] = ""
    did_from: str = ""
    policy: Annotated[str, Shown("policy", source="/proc/TID/stat")] = ""
    """Its scheduling policy, if that is not an ordinary one."""
    stack: Annotated[tuple[str, ...], Shown("stack", source=_SAMPLES)] = ()
    work: Annotated[WorkShares, Shown(unit="of the late time", source=_SAMPLES)] = NO_WORK
    """Without what was done in turns with others."""
    idle_ratio: Annotated[float, Shown("idle or not running", "of the late time", _PROBES, digits=3, zero=False)] = 0.0
    unknown_ratio: Annotated[float, Shown("holder not known", "of the late time", _PROBES, digits=3, zero=False)] = 0.0
    in_turns_ratio: Annotated[float, Shown("in turns", "of the late time", _PROBES, digits=3, zero=False)] = 0.0
    steal_ratio: Annotated[float | None, Shown("steal", "of the core's time meanwhile", "/proc/stat", digits=3)] = None
    holders: tuple[StallHolder, ...] = ()
    """Those that made it wait longest."""
    other_stalls: int = 0
    """Stalls with further holders."""
    last_age_s: int = 0
    """0: it goes on, or has just ended."""

    def sentence(self, subject: str) -> str:
        text = f"{self._times(subject)}, {self._meanwhile()}"
        if self.steal_ratio is not None:
            text += f"; the hypervisor took {self.steal_ratio:.0%} of the core's time meanwhile"
        return text + (f" ({'last ' if self.stalls > 1 else ''}{ago(self.last_age_s * SECOND)})" if self.last_age_s else "")

    def _times(self, subject: str) -> str:
        if self.stalls == 1:
            lasts = " and still waits" if self.unfinished else ""
            return f"{subject} was due to be polled{self._where()} and was not for {milliseconds(self.longest_ms)}{lasts}"
        lasts = f", {self.unfinished} of them still going on" if self.unfinished else ""
        many = f"{self.stalls:,} stalls of up to {milliseconds(self.longest_ms)}{self._where()}{lasts}"
        return f"{subject} was due to be polled and was not: {many}"

    def _where(self) -> str:
        if not self.cores:
            return ""
        if len(self.cores) == 1:
            return f" on core {self.cores[0]}"
        if len(self.cores) <= _MOST_CORES:
            return f" on cores {', '.join(map(str, self.cores[:-1]))} and {self.cores[-1]}"
        return f" on {len(self.cores)} cores, the longest on core {self.longest_core}"

    def _meanwhile(self) -> str:
        if len(self.holders) == 1 and not self.other_stalls:
            return f"{'all of them ' if self.stalls > 1 else ''}while {self.holders[0]}"
        parts = [f"{one.stalls:,}{' of them' if i == 0 else ''} while {one}" for i, one in enumerate(self.holders)]
        return ", ".join([*parts, *([f"{self.other_stalls:,} with others there"] if self.other_stalls else [])])


class _Group(NamedTuple):
    """Stalls with the same offender at the same work."""

    stalls: tuple[HeldStall, ...]
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


def measured(recording: Recording, stalls: list[HeldStall], thresholds: Thresholds) -> MeasuredStalls:
    start, end = recording.window
    longest = max(stalls, key=lambda stall: (stall.ns, -stall.start))
    late = total_ns(stall.span for stall in stalls)
    window = max(1, end - start, max(stall.end for stall in stalls) - min(stall.start for stall in stalls))
    groups = _groups(stalls)
    whole = max(1, sum(stall.ns for stall in stalls))
    stolen = steal_while(recording, [stall.span for stall in stalls])
    over = all(stall.over for stall in stalls)
    worst = groups[0]
    deepest = max(worst.stalls, key=lambda stall: (stall.samples, stall.stack))
    done: Counter[str] = Counter()
    for stall in stalls:
        done[stall.work.key] += 0 if stall.in_turns else stall.ns
    known = worst.who is not None and worst.who.tid > 0
    shown = groups[:_MOST_HOLDERS]
    return MeasuredStalls(
        stalls=len(stalls),
        unfinished=sum(not stall.over for stall in stalls),
        cores=tuple(sorted({stall.core for stall in stalls if stall.core >= 0})),
        longest_core=longest.core if longest.core >= 0 else None,
        longest_ms=longest.ms,
        late_ms=late // 1_000_000,
        late_ratio=late / window,
        measured_by=recording.reason("latency"),
        offender=_offender(recording, worst, deepest.stack),
        offender_ratio=worst.late_ns / whole if known else None,
        did=worst.work.words if worst.work not in (UNKNOWN, IDLE) else "",
        did_from=_SAMPLES if worst.stalls[0].stack else "who it is",
        policy=max((stall.policy for stall in worst.stalls), default=""),
        stack=innermost(deepest.stack),
        work=work_shares(done, whole),
        idle_ratio=sum(stall.ns for stall in stalls if stall.work == IDLE) / whole,
        unknown_ratio=sum(stall.ns for stall in stalls if stall.who is None) / whole,
        in_turns_ratio=sum(stall.ns for stall in stalls if stall.in_turns) / whole,
        steal_ratio=stolen if stolen >= thresholds.steal_ratio else None,
        holders=tuple(_holder(group) for group in shown),
        other_stalls=len(stalls) - sum(len(group.stalls) for group in shown),
        last_age_s=max(0, end - max(stall.end for stall in stalls)) // 10**9 if over else 0,
    )


def _holder(group: _Group) -> StallHolder:
    return StallHolder(
        stalls=len(group.stalls),
        holder=_process(group, group.who) if group.who is not None else None,
        work=group.work.key,
        did=group.work.words,
        in_turns=group.in_turns,
        itself=group.who == INTERRUPT,
    )


def _offender(recording: Recording, group: _Group, stack: tuple[str, ...]) -> Offender | None:
    who = group.who
    if who is None or who.tid <= 0:
        return None
    thread = is_kernel_thread(recording, who, stack)
    return Offender(process=_process(group, who), seen_in=_PROBES, cgroup=who.cgroup, kernel_thread=thread)


def _groups(stalls: list[HeldStall]) -> list[_Group]:
    """Those that made it wait longest first. A program that is started anew each time is one offender, not many."""
    by_what: dict[tuple[str, str, bool], list[HeldStall]] = {}
    for stall in stalls:
        comm = stall.who.comm if stall.who is not None else ""
        by_what.setdefault((comm, stall.work.key, stall.in_turns), []).append(stall)
    groups = [(key, _Group(tuple(some), sum(stall.ns for stall in some))) for key, some in by_what.items()]
    return [group for _, group in sorted(groups, key=lambda each: (-each[1].late_ns, each[0]))]


def _process(group: _Group, who: Who) -> Process:
    """With its pid, unless it was another one each time."""
    same = {stall.who.pid for stall in group.stalls if stall.who is not None}
    return process_of(who) if len(same) == 1 else Process(who.comm)
