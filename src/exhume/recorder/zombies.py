"""A recording of the zombies alone: one walk, or two with the cgroup events in between."""

import time
from collections.abc import Callable

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recording.recording import Recording
from exhume.recording.source_state import Failed, SourceState
from exhume.sources.cgroup_events import SETTLE_NS, CgroupEvents
from exhume.sources.facts import facts
from exhume.sources.zombies import Zombies


def record_zombies(root: Root, follow_ns: int = 0, progress: Callable[[float], None] | None = None) -> Recording:
    """Raises Unreadable when not even a count can be had; without cgroup events the rate comes from two counts alone."""
    tree = Tree(root)
    recording = Recording(facts(root, tree.layout))
    reader = Zombies(root, tree, again_ns=0)
    with Clock() as clock:
        anchor = clock.anchor()
        recording["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)
        events = CgroupEvents(root) if follow_ns else None
        if events is not None:
            _listen(recording, events, clock)
        notes = reader.read(recording, clock.now())
        if events is not None:
            _follow(recording, events, clock, follow_ns, progress)
            notes = reader.read(recording, clock.now())
            events.close()
        recording.add_source(clock.now(), reader.name, SourceState.read(notes))
    return recording


def _listen(recording: Recording, events: CgroupEvents, clock: Clock) -> None:
    try:
        events.open()
        recording.add_source(clock.now(), events.name, SourceState("on"))
    except Unreadable as error:
        recording.add_source(clock.now(), events.name, SourceState.off(Failed(str(error))))


def _follow(
    recording: Recording, events: CgroupEvents, clock: Clock, follow_ns: int, progress: Callable[[float], None] | None
) -> None:
    start = time.monotonic_ns()
    # What was removed last must have had its time to be released before it is called a zombie.
    end = start + follow_ns + SETTLE_NS
    while (now := time.monotonic_ns()) < end:
        time.sleep(min(0.2, (end - now) / 1e9))
        if recording.on(events.name):
            events.read(recording, clock.now())
        if progress is not None:
            progress(min(1.0, (now - start) / (end - start)))
