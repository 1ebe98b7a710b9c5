"""A recording of latency alone: the watch for a while, with what network devices there are."""

import time
from collections.abc import Callable
from contextlib import suppress

from exhume.errors import Unreadable
from exhume.kernel.clock import Clock
from exhume.node.cgroups import Tree
from exhume.node.facts import facts
from exhume.node.interrupts import Interrupts
from exhume.node.nic import Nic
from exhume.node.root import Reader, Root
from exhume.node.softnet import Softnet
from exhume.recorder.latency import SECOND, Latency, Options, Told
from exhume.recording.recording import Recording


def record_latency(
    root: Root,
    for_ns: int,
    options: Options,
    progress: Callable[[float], None] | None = None,
    on_stall: Callable[[Told], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Recording:
    """The backlogs, interrupts and devices are read at the beginning and at the end: they say which device a core serves."""
    recording = Recording(facts(root, Tree(root).layout))
    readers: list[Reader] = [Softnet(root), Interrupts(root), Nic(root)]
    watch = Latency(root, recording.node, options, on_stall)
    with Clock() as clock:
        _anchor(recording, clock)
        notes = _read(recording, clock, readers)
        watch.start()
        watch.ready.wait(10)
        _anchor(recording, clock)
        start = time.monotonic_ns()
        anchored = start
        while (now := time.monotonic_ns()) < start + for_ns and watch.is_alive() and not stop():
            time.sleep(min(0.1, (start + for_ns - now) / 1e9))
            if now - anchored >= SECOND:
                anchored = now
                _anchor(recording, clock)
            if progress is not None:
                progress(min(1.0, (now - start) / for_ns))
        watch.finish()
        notes |= _read(recording, clock, readers)
        _anchor(recording, clock)
        for name, (state, reason) in notes.items():
            recording["sources"].add(clock.now(), name, state, reason, 0)
    if watch.failure is not None:
        raise watch.failure
    watch.collect(recording)
    for row in watch.sources():
        recording["sources"].add(*row)
    return recording


def _anchor(recording: Recording, clock: Clock) -> None:
    anchor = clock.anchor()
    recording["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)


def _read(recording: Recording, clock: Clock, readers: list[Reader]) -> dict[str, tuple[str, str]]:
    notes = {}
    for reader in readers:
        notes[reader.name] = ("off", "")
        with suppress(OSError):
            try:
                notes[reader.name] = ("on", reader.read(recording, clock.now()))
            except Unreadable as error:
                notes[reader.name] = ("off", str(error))
    return notes
