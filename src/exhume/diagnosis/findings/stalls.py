"""Who held the core during a stall and did what there.

The latency probes record it with the stall. A recorder that samples all cores records no stack with it: then the samples of
that core in that time tell.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np

from exhume.diagnosis.findings.cores import cores
from exhume.diagnosis.findings.held import NOBODY, REST, Held, Who, blamed, held, of_network, walked
from exhume.diagnosis.findings.kernel_work import IDLE, NETWORK, UNKNOWN, Walks, Work, work
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.spans import merged, overlap_ns, total_ns
from exhume.record import record
from exhume.recording.events import Stall, stalls
from exhume.recording.recording import Recording


@record(frozen=True, slots=True, kw_only=True)
class HeldStall(Stall):
    """A stall with the holder of its core. The stack and the samples are the holder's."""

    who: Who | None
    """None: unknown."""
    work: Work

    @property
    def span(self) -> Span:
        return Span(self.core, self.start, self.end)

    @property
    def in_turns(self) -> bool:
        """No thread had the core for even half of the time."""
        return self.total > 0 and 2 * self.samples < self.total


def held_stalls(recording: Recording) -> tuple[HeldStall, ...]:
    """In order of time, whatever it was that waited."""
    return tuple(stall if stall.stack else _sampled(recording, stall) for stall in recorded_holders(recording))


def recorded_holders(recording: Recording) -> list[HeldStall]:
    """By what the probes recorded alone."""
    files = walked(recording)
    return [_with_holder(stall, files) for stall in stalls(recording)]


_FIELDS = tuple(field.name for field in fields(Stall))


def _with_holder(stall: Stall, files: Walks) -> HeldStall:
    known = {name: getattr(stall, name) for name in _FIELDS}
    if not stall.holder_tid:
        unknown = stall.holder_tid is None
        return HeldStall(**known | {"stack": ()}, who=None if unknown else REST, work=UNKNOWN if unknown else IDLE)
    who = Who(stall.holder_comm, stall.holder_pid, stall.holder_tid, stall.holder_cgroup)
    did = work(stall.stack, files) if stall.stack else NETWORK if of_network(who) else UNKNOWN
    return HeldStall(**known, who=blamed(who, did), work=did)


def _sampled(recording: Recording, stall: HeldStall) -> HeldStall:
    """With what the samples of all cores say of it, if there are any."""
    found = held(recording, stall.core, [stall.span], stall.waiting)
    if found is None or found.who == NOBODY:
        return stall
    return replace(stall, who=found.who, work=found.work, stack=found.stack, samples=found.samples, total=found.total)


def held_while(recording: Recording, core: int, spans: Sequence[Span]) -> Held | None:
    """Who was on a core in these stretches, by samples of all cores, or else by those that were taken because of a stall."""
    found = held(recording, core, spans)
    if found is not None:
        return found
    parts = merged(spans).get(core, [])
    ends = [end for _, end in parts]
    seen = []
    for stall in recorded_holders(recording):
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
