"""Recordings of latency alone: one watch, cut into windows, with what network devices there are."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from exhume.errors import Unreadable
from exhume.host.cgroups import Tree
from exhume.host.quantities import SECOND
from exhume.host.root import Root
from exhume.kernel.clock import Clock
from exhume.recorder.latency import Latency, Options
from exhume.recorder.latency_told import Told
from exhume.recording.recording import Recording
from exhume.recording.source_state import Failed, SourceState
from exhume.sources.facts import facts
from exhume.sources.interrupts import Interrupts
from exhume.sources.nic import Nic
from exhume.sources.reader import Reader
from exhume.sources.softnet import Softnet


class LatencyAlone:
    """A context manager. The watch goes on between windows, so that nothing falls between them."""

    def __init__(self, root: Root, options: Options, on_stall: Callable[[Told], None] | None = None) -> None:
        self._node = facts(root, Tree(root).layout)
        self._readers: list[Reader] = [Softnet(root), Interrupts(root), Nic(root)]
        self._watch = Latency(root, self._node, options, on_stall)
        self._clock = Clock()

    def __enter__(self) -> Self:
        self._watch.start()
        self._watch.ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._watch.finish()
        self._clock.close()

    def window(
        self,
        for_ns: int,
        progress: Callable[[float], None] | None = None,
        stop: Callable[[], bool] = lambda: False,
        last: bool = True,
    ) -> Recording:
        """The backlogs, interrupts and devices are read at its beginning and its end: they say which device a core serves.
        The watch is over after the `last` one."""
        recording = Recording(self._node)
        self._anchor(recording)
        states = self._read(recording)
        start = anchored = time.monotonic_ns()
        while (now := time.monotonic_ns()) < start + for_ns and self._watch.is_alive() and not stop():
            time.sleep(min(0.1, (start + for_ns - now) / 1e9))
            if now - anchored >= SECOND:
                anchored = now
                self._anchor(recording)
            if progress is not None:
                progress(min(1.0, (now - start) / for_ns))
        if last or stop():
            self._watch.finish()
        states |= self._read(recording)
        self._anchor(recording)
        self._watch.collect(recording)
        for name, state in states.items():
            recording.add_source(self._clock.now(), name, state)
        for row in self._watch.sources():
            recording.add_source(*row)
        if self._watch.failure is not None:
            raise self._watch.failure
        return recording

    def _anchor(self, recording: Recording) -> None:
        anchor = self._clock.anchor()
        recording["anchors"].add(anchor.perf_ns, anchor.monotonic_ns, anchor.boot_ns, anchor.real_ns, anchor.error_ns)

    def _read(self, recording: Recording) -> dict[str, SourceState]:
        states = {}
        for reader in self._readers:
            try:
                states[reader.name] = SourceState.read(reader.read(recording, self._clock.now()))
            except Unreadable as error:
                states[reader.name] = SourceState.off(Failed(str(error)))
            except OSError as error:
                states[reader.name] = SourceState.off(Failed(error.strerror or str(error)))
        return states
