"""Stalls of a recording: what was due and did not run, since when, and who held the core meanwhile and did what there.

They are events of the latency probes. A recorder that samples all cores tells no stack with them: then the samples of that
core in that time say who it was.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from exhume.diagnosis.findings.cores import cores
from exhume.diagnosis.findings.events import Event, events
from exhume.diagnosis.findings.held import NOBODY, REST, Held, Who, blamed, held, of_network, walked
from exhume.diagnosis.findings.kernel_work import IDLE, NETWORK, UNKNOWN, Walks, Work, work
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.spans import merged, overlap_ns, total_ns
from exhume.recording.recording import Recording

# Longer is no stall but nonsense in the recording.
_LONGEST_NS: Final = 24 * 3600 * 10**9
_FURTHEST_NS: Final = 1 << 62
# A recorder that has not read the cores for so long was not there: whether a stall goes on nobody knows then.
_SILENCE_NS: Final = 10 * 10**9
# An end that was not seen for so long is not to come: the thread that waited is gone, with its device.
_LASTS_NS: Final = 60 * 10**9


@dataclass(frozen=True, slots=True)
class Stall:
    """Times are the recording's. Of one that is not over `end` is as far as the recording goes; of one whose end was not seen,
    as far as it was seen."""

    what: str
    core: int
    start: int
    end: int
    over: bool
    device: str
    netns: int
    waiting: int
    """The thread that waited, 0 where it was a softirq."""
    who: Who | None
    """Who held the core, as far as was seen."""
    work: Work
    stack: tuple[str, ...]
    """Its kernel stack, the innermost function first."""
    samples: int
    """Stack samples of it in that time."""
    total: int
    """Of the core, whoever they are of."""
    policy: str = ""
    """The scheduling policy of who held the core, if it is not an ordinary one."""

    @property
    def ns(self) -> int:
        return self.end - self.start

    @property
    def ms(self) -> int:
        return self.ns // 1_000_000

    @property
    def span(self) -> Span:
        return Span(self.core, self.start, self.end)

    @property
    def in_turns(self) -> bool:
        """Nobody had the core for even half of the time."""
        return self.total > 0 and 2 * self.samples < self.total


def stalls(recording: Recording) -> tuple[Stall, ...]:
    """In order of time, whatever it was that waited."""
    return tuple(stall if stall.stack else _sampled(recording, stall) for stall in _as_told(recording))


def _as_told(recording: Recording) -> list[Stall]:
    told = recording.derived("events", _told)
    until = _seen_until(recording) if told else _Until(())
    files = walked(recording)
    found = (_stall(event, until.after(event.time) if lasts else event.time, files) for event, lasts in told)
    return sorted((stall for stall in found if stall is not None), key=_order)


def _told(recording: Recording) -> tuple[tuple[Event, bool], ...]:
    """The last word on each stall, and whether it may go on: what was announced and is over is one. What it is called may
    change while it lasts, when it began does not; and who waits anew does not wait any longer."""
    known: dict[tuple[int | None, int, int | None], Event] = {}
    latest: dict[tuple[str, int | None], int] = {}
    for event in events(recording, "stall", "stall-begins"):
        core, start, tid = key = event.integer("cpu"), event.integer("start_ns") or event.time, event.integer("tid")
        known[key] = max(known[key], event, key=_last_word) if key in known else event
        waits = ("core", core) if tid is None else ("thread", tid)
        latest[waits] = max(start, latest.get(waits, start))
    return tuple(
        (event, event.kind != "stall" and start == latest[("core", core) if tid is None else ("thread", tid)])
        for (core, start, tid), event in known.items()
    )


def _last_word(event: Event) -> tuple[bool, int, list[tuple[str, str]]]:
    return event.kind == "stall", event.time, sorted(event.fields.items())


def _order(stall: Stall) -> tuple[object, ...]:
    """By time; of those at once any order will do that does not depend on that of the rows."""
    of = (stall.device, stall.netns, stall.waiting, stall.what, stall.stack, stall.samples, stall.total, str(stall.who))
    return stall.start, stall.end, stall.core, *of


def _stall(event: Event, end: int, files: Walks) -> Stall | None:
    length = (event.integer("us") or 0) * 1000
    start = event.time - length
    if not 0 < length <= end - start <= _LONGEST_NS or abs(end) >= _FURTHEST_NS:
        return None
    number = event.integer
    who, did, stack = _told_holder(event, files)
    return Stall(
        event.fields.get("what", ""),
        core if (core := number("cpu")) is not None else -1,
        start,
        end,
        event.kind == "stall" or end == event.time,
        event.fields.get("device", ""),
        number("netns") or 0,
        number("tid") or 0,
        who,
        did,
        stack,
        max(0, number("offender_samples") or 0),
        max(0, number("samples") or 0),
        event.fields.get("offender_policy", ""),
    )


def _told_holder(event: Event, files: Walks) -> tuple[Who | None, Work, tuple[str, ...]]:
    tid = event.integer("offender_tid")
    if tid is None:
        return None, UNKNOWN, ()
    if tid == 0:
        return REST, IDLE, ()
    fields = event.fields
    who = Who(fields.get("offender_comm", ""), event.integer("offender_pid") or 0, tid, fields.get("offender_cgroup", ""))
    stack = tuple(name for name in fields.get("stack", "").split(";") if name)
    did = work(stack, files) if stack else NETWORK if of_network(who) else UNKNOWN
    return blamed(who, did), did, stack


def _sampled(recording: Recording, stall: Stall) -> Stall:
    """With what the samples of all cores say of it, if there are any."""
    found = held(recording, stall.core, [stall.span], stall.waiting)
    if found is None or found.who == NOBODY:
        return stall
    return replace(stall, who=found.who, work=found.work, stack=found.stack, samples=found.samples, total=found.total)


class _Until(NamedTuple):
    times: tuple[int, ...]
    """When the recorder last read the cores before it fell silent, and at the end."""

    def after(self, time: int) -> int:
        last = next((last for last in self.times if last >= time), time)
        return last if last - time <= _LASTS_NS else time


def _seen_until(recording: Recording) -> _Until:
    for name in ("cpu", "anchors"):
        times = np.unique(recording[name].ints("time"))
        if len(times):
            silent = np.flatnonzero(np.diff(times) > _SILENCE_NS)
            return _Until((*times[silent].tolist(), int(times[-1])))
    return _Until(())


def held_while(recording: Recording, core: int, spans: Sequence[Span]) -> Held | None:
    """Who was on a core in these stretches, by samples of all cores, or else by those that were taken because of a stall."""
    found = held(recording, core, spans)
    if found is not None:
        return found
    parts = merged(spans).get(core, [])
    ends = [end for _, end in parts]
    seen = []
    for stall in _as_told(recording):
        if stall.core == core and stall.stack and stall.who is not None:
            first = bisect_right(ends, stall.start)
            if first < len(parts) and parts[first][0] < stall.end:
                seen.append(stall)
    if not seen:
        return None
    by_who: Counter[Who] = Counter()
    works: Counter[str] = Counter()
    for stall in seen:
        assert stall.who is not None
        by_who[stall.who] += max(1, stall.samples)
        works[stall.work.key] += max(1, stall.samples)
    who = max(by_who, key=lambda one: (by_who[one], one))
    own = [stall for stall in seen if stall.who == who]
    own_works: Counter[Work] = Counter()
    for stall in own:
        own_works[stall.work] += max(1, stall.samples)
    did = max(own_works, key=lambda one: (own_works[one], one))
    stack = max((stall for stall in own if stall.work == did), key=lambda stall: (stall.samples, stall.stack)).stack
    total = sum(max(1, stall.samples, stall.total) for stall in seen)
    covered = overlap_ns([stall.span for stall in seen], spans) / max(1, total_ns(spans))
    return Held(who, by_who[who], total, did, stack, dict(works), covered)


def steal_while(recording: Recording, spans: Iterable[Span]) -> float:
    """Share of these cores' time that the hypervisor took meanwhile, by the readings of /proc/stat around each stretch."""
    by_number = {core.number: core for core in cores(recording)}
    stolen = accounted = 0
    for span in spans:
        core = by_number.get(span.core)
        if core is None:
            continue
        first = max(0, int(np.searchsorted(core.times, span.start, "right")) - 1)
        last = min(len(core.times) - 1, int(np.searchsorted(core.times, span.end, "left")))
        if first < last:
            spent, total = core.spent("steal", start=int(core.times[first]), end=int(core.times[last]))
            stolen, accounted = stolen + spent, accounted + total
    return stolen / accounted if accounted else 0.0
