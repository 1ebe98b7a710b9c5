"""Walks over memory cgroups that a recording shows, by the program that asked for them: in samples, in stalls, in traces."""

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from exhume.diagnosis.findings.held import Who, programs_of, stack_of
from exhume.diagnosis.findings.kernel_work import FLUSH, WALK, spins
from exhume.diagnosis.findings.lockups import traced_lockups
from exhume.diagnosis.findings.model import Span
from exhume.diagnosis.findings.sampled import by_core, period_ns
from exhume.diagnosis.findings.spans import merged
from exhume.diagnosis.findings.stalls import held_stalls
from exhume.diagnosis.findings.walk_families import family, through
from exhume.host.quantities import SECOND
from exhume.recording.recording import Ints, Recording

SAMPLES = "stack samples"
_STALLS = "stack samples in stalls of the network"
_TRACES = "kernel log: call trace"
_WALKS = frozenset({WALK.key, FLUSH.key})
# Samples of a walk that are closer than this are of one.
_ONE_NS = 100_000_000
# Of a stretch so much must be walked for it to be one.
_DENSE = 0.8


@dataclass(slots=True)
class Walk:
    """What one program walked: all processes of one name in one cgroup."""

    source: str
    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter)
    """By how long, in ns."""
    families: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    whose: Counter[Who] = field(default_factory=Counter)
    spans: list[Span] = field(default_factory=list)
    walked_ns: int = 0
    spun_ns: int = 0
    """Of it, what was spent waiting for a lock: then others walk, too."""
    stretch_ns: int = 0
    """The longest walk at a stretch."""
    densest: float = 0.0
    """The most of a core's time that was walked within a second."""
    share: float | None = None
    """Of its own samples."""
    core_share: float | None = None
    """Of the samples of the core that most of it was on, from begin to end."""
    age_s: int = 0

    def add(self, who: Who, stack: tuple[str, ...], kind: str, ns: int) -> None:
        self.whose[who] += ns
        self.stacks[stack] += ns
        self.families[kind] += ns
        self.ways[through(stack)] += ns
        self.walked_ns += ns
        self.spun_ns += ns if spins(stack) else 0

    @property
    def core(self) -> int:
        lengths: Counter[int] = Counter()
        for span in self.spans:
            lengths[span.core] += span.end - span.start
        return max(lengths, key=lambda core: (lengths[core], -core), default=-1)


Walks = dict[tuple[str, str], Walk]


def _key(who: Who) -> tuple[str, str]:
    """The kernel's workers take any work in turns: which of them it was says nothing."""
    return ("kworker" if who.comm.startswith("kworker/") and who.cgroup in ("", "/") else who.comm), who.cgroup


def by_samples(recording: Recording) -> Walks:
    table, period = recording["samples"], period_ns(recording)
    stacks, threads, cores, times = (table.ints(name) for name in ("stack", "thread", "core", "time"))
    numbers, which = np.unique(stacks, return_inverse=True)
    walking = np.array([stack_of(recording, number).work.key in _WALKS for number in numbers.tolist()], dtype=np.bool_)[which]
    known = programs_of(recording)
    keys = {key: i for i, key in enumerate(sorted({_key(who) for who in known.values()}))}
    ids, of_thread = np.unique(threads, return_inverse=True)
    keyed = np.array([keys[_key(known[one])] if one in known else -1 for one in ids.tolist()], dtype=np.int64)[of_thread]
    rows = np.flatnonzero(walking & (keyed >= 0))
    rows = rows[np.lexsort((times[rows], cores[rows], keyed[rows]))]
    own = np.bincount(keyed[keyed >= 0], minlength=len(keys))
    names, found = list(keys), {}
    for first, after in pairwise([0, *(np.flatnonzero(np.diff(keyed[rows])) + 1).tolist(), len(rows)] if len(rows) else []):
        mine = rows[first:after]
        walk = found[names[keyed[mine[0]]]] = Walk(SAMPLES)
        pairs, counts = np.unique(np.stack((threads[mine], stacks[mine])), axis=1, return_counts=True)
        for thread, number, count in zip(*pairs.tolist(), counts.tolist(), strict=True):
            seen = stack_of(recording, number)
            walk.add(known[thread], seen.names, family(seen.names, seen.work), count * period)
        walk.spans, walk.stretch_ns = _stretches(cores[mine], times[mine], period)
        walk.densest = _densest(times[mine], period)
        walk.share = len(mine) / int(own[keyed[mine[0]]])
        there, core = by_core(recording)[walk.core].times, times[mine[cores[mine] == walk.core]]
        meanwhile = np.searchsorted(there, times[mine].max(), "right") - np.searchsorted(there, times[mine].min(), "left")
        walk.core_share = len(core) / max(1, int(meanwhile))
    return found


def _stretches(cores: Ints, times: Ints, period: int) -> tuple[list[Span], int]:
    """The stretches in which it walked, and the longest time that it walked in one without doing much else. The samples are
    in order of core and time."""
    starts = np.concatenate(([0], np.flatnonzero((np.diff(cores) != 0) | (np.diff(times) >= _ONE_NS)) + 1))
    ends = np.concatenate((starts[1:], [len(times)])) - 1
    begun, ended = times[starts] - period, times[ends]
    walked = (ends - starts + 1) * period
    dense = walked >= _DENSE * (ended - begun)
    spans = [Span(*each) for each in zip(cores[starts].tolist(), begun.tolist(), ended.tolist(), strict=True)]
    return spans, int(walked[dense].max(initial=0))


def _densest(times: Ints, period: int) -> float:
    times = np.sort(times)
    within = np.searchsorted(times, times + SECOND, "left") - np.arange(len(times))
    return int(within.max()) * period / SECOND


def by_stalls(recording: Recording) -> Walks:
    found: Walks = {}
    whole: Counter[tuple[str, str]] = Counter()
    for stall in held_stalls(recording):
        if stall.work.key in _WALKS and stall.stack and stall.who is not None and stall.who.tid > 0 and not stall.in_turns:
            walk = found.setdefault(_key(stall.who), Walk(_STALLS))
            walked = stall.ns * stall.samples // stall.total if stall.total else stall.ns
            walk.add(stall.who, stall.stack, family(stall.stack, stall.work), walked)
            walk.spans.append(stall.span)
            whole[_key(stall.who)] += stall.ns
    for key, walk in found.items():
        parts = [Span(core, *part) for core, parts in merged(walk.spans).items() for part in parts]
        walk.spans = parts
        walk.stretch_ns = max(span.end - span.start for span in parts)
        walk.core_share = walk.walked_ns / max(1, whole[key])
        walk.densest = min(1.0, walk.stretch_ns / SECOND)
    return found


def by_traces(recording: Recording, found: Walks) -> Walks:
    """What was seen running needs no trace."""
    known = {comm for comm, _ in found}
    traced: Walks = {}
    for lockup in traced_lockups(recording):
        who = lockup.who
        if lockup.work.key in _WALKS and lockup.stuck_ns and lockup.core >= 0 and who is not None and who.comm not in known:
            walk = traced.setdefault(_key(who), Walk(_TRACES))
            walk.add(who, lockup.stack, family(lockup.stack, lockup.work), lockup.stuck_ns)
            walk.spans.append(lockup.span)
            walk.age_s = lockup.event.age_s
    for walk in traced.values():
        walk.spans = [Span(core, *part) for core, parts in merged(walk.spans).items() for part in parts]
        walk.walked_ns = sum(span.end - span.start for span in walk.spans)
        walk.stretch_ns = max(span.end - span.start for span in walk.spans)
    return traced
