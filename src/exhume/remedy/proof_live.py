"""The validation window, live: the node is recorded into memory, watched for the leak going on, and then judged.

It is the flight recorder's own loop, so that before and after are read by the same readers. What it holds is bounded: stacks
are sampled less often on larger nodes, and of a storm of cgroups the first are kept and the others counted.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.host.quantities import SECOND, duration
from exhume.host.root import Root
from exhume.recorder.memory import Memory
from exhume.recorder.profiles import FLIGHT
from exhume.recorder.recorder import Options, Recorder, Status
from exhume.recorder.samples import Options as SampleOptions
from exhume.recording.recording import Node, Recording, Table
from exhume.remedy.criteria_leak import BLOCK_NS, EVENTS, Leaks, by_count, by_events
from exhume.remedy.criteria_statistics import Sequential
from exhume.text import printable

# That a node that is well is said to leak before its time is up; looks may be as many as one likes.
ALPHA = 0.01
# So many seconds must have had a leak in them, whatever the odds.
_FEWEST = 5
# What was removed may be let go a few seconds later, when its files are.
_SETTLED_NS = 5_000_000_000
# Where nobody knows which place to look at, what somebody cleans up within seconds is not to be taken for a leak.
_SHORTEST_S = 30.0
_LOOK_NS = 4_000_000_000
# What looking may take of a core: of a storm of cgroups it is dear.
_SHARE = 0.01
# Samples of ten minutes; 32 bytes each.
_MOST_SAMPLES = 1_000_000
_MOST_HZ = 49
# Rows of cgroup events that are kept: each has a path.
_MOST_EVENTS = 300_000


class Kept(Memory):
    """Of a storm of cgroups the first are kept and the others counted."""

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        self._dropped = 0

    def append(self, rows: Recording) -> None:
        events = rows["cgroup_events"]
        if self._dropped or len(self.recording["cgroup_events"]) + len(events) > _MOST_EVENTS:
            # From then on all of them: half of a life looks like a zombie. The reader's own count of each second says 0.
            self._dropped += len(events)
            rows.tables["cgroup_events"] = Table(events.schema)
            own = rows.counter("cgroup_events_lost")
            rows.count(rows.window[1], "cgroup_events_lost", self._dropped + (own.last if own is not None else 0))
        super().append(rows)


class LeakWatch:
    """Whether the leak goes on, asked again and again: by the places that leaked before, or by any where those are not known.

    The chance that a node which has no more than a harmless rate anywhere is ever said to leak is ALPHA, for all looks and all
    places together.
    """

    def __init__(self, before: Recording | None, thresholds: Thresholds) -> None:
        self._harmless = thresholds.leak_per_minute
        then = by_events(before) if before is not None else None
        self.places = then.leaking(self._harmless) if then is not None else []
        self._lags = {place: then.usual_lag_ns(place) for place in self.places} if then is not None else {}

    def goes_on(self, so_far: Recording) -> str:
        """A sentence if it does, for sure; else nothing."""
        now = by_events(so_far) or by_count(so_far)
        if now is None:
            return ""
        expected = now.source == EVENTS and bool(self.places)
        places = self.places if expected else list(now.places)
        for place in places:
            test = self._test(now, place)
            if not expected and (now.seconds < _SHORTEST_S or not now.steady(now.at([place]))):
                continue
            if test.hit >= _FEWEST and test.odds >= len(places) / ALPHA:
                there = f" in {printable(place, 80)}" if place else ""
                came = len(now.at([place]))
                return f"the leak goes on: {came:,} came{there} within {duration(now.seconds * SECOND)}"
        return ""

    def _test(self, now: Leaks, place: str) -> Sequential:
        """Only what is older than any that was let go there counts, as one that stays."""
        step = 1_000_000_000 if now.source == EVENTS else BLOCK_NS
        stayed = now
        if now.source == EVENTS:
            stayed = now.older(max(_SETTLED_NS, now.lag_ns(place), self._lags.get(place, 0)))
        hit = len(np.unique((stayed.at([place]) - now.start) // step))
        return Sequential(self._harmless / 60, seconds=int(now.seconds) + 1, hit=hit)


@dataclass(frozen=True, slots=True)
class Watched:
    recording: Recording
    early: str
    """Why it was ended before its time; empty if it was not."""
    stopped: bool
    """By whoever asked for it."""


def watch(
    root: Root,
    for_ns: int,
    before: Recording | None,
    thresholds: Thresholds,
    stop: Callable[[], bool] = lambda: False,
    told: Callable[[float, Recording], None] | None = None,
    log: Root | None = None,
) -> Watched:
    """Records for so long, or until the leak is seen to go on. `told` hears now and then how far it is, and what is there."""
    leak = LeakWatch(before, thresholds)
    recorder = Recorder(root, FLIGHT, Options(SampleOptions(_hz(), kernel_only=True), log=log))
    kept = Kept(recorder.node)
    early, due = "", _LOOK_NS

    def heard(status: Status) -> None:
        nonlocal early, due
        if status.elapsed_ns >= due and not early:
            begin = time.thread_time_ns()
            early = leak.goes_on(kept.recording)
            due = status.elapsed_ns + max(_LOOK_NS, round((time.thread_time_ns() - begin) / _SHARE))
        if told is not None:
            told(min(1.0, status.elapsed_ns / for_ns), kept.recording)

    try:
        recorder.run(kept, for_ns, lambda: bool(early) or stop(), heard)
    finally:
        recorder.close()
    return Watched(kept.recording, early, stop() and not early)


def _hz() -> int:
    """As often as the memory for ten minutes of all cores allows; a walk that matters lasts for 300 ms."""
    return max(7, min(_MOST_HZ, _MOST_SAMPLES // (600 * (os.cpu_count() or 1))))
