"""perf.data, read without perf: its samples, and the processes and mappings its side-band tells of, as rows of a recording.

perf_apart.py takes the file apart; of a large one another process does, ahead of the one that makes rows of it.
"""

import gc
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from exhume.host.quantities import duration
from exhume.host.root import Root
from exhume.imports import event_names, perf_end, perf_file, perf_kernel, perf_layout
from exhume.imports.ahead import ahead, worth_it
from exhume.imports.incoming import Anchor, Axis, Ids, Input, Wanted
from exhume.imports.perf_apart import Apart, Batch, Known, elsewhere
from exhume.imports.perf_samples import SAMPLE
from exhume.recording.recording import Node, Recording
from exhume.sources.sampling.kernel_symbols import KernelSymbols
from exhume.text import decode, printable

if TYPE_CHECKING:  # a look at what the cores did does without these
    from exhume.imports.kernel_marks import Marks
    from exhume.imports.perf_sketch import Sketch
    from exhume.sources.sampling.profiler import Profiler
    from exhume.sources.sampling.user_symbols import UserSymbols

# How long a batch waits for names that were not met before.
_WAIT_S: Final = 5.0
# Files below that are read before another process has begun to.
_LARGE: Final = 8 << 20
_CLOCK_REALTIME: Final = 0
_CLOCKS: Final = {1: "CLOCK_MONOTONIC", 4: "CLOCK_MONOTONIC_RAW", 7: "CLOCK_BOOTTIME", 11: "CLOCK_TAI"}


def looks(head: bytes) -> bool:
    return head[:8] in perf_file.MAGICS


def opened(source: Input, wanted: Wanted) -> "PerfData":
    return PerfData(source, wanted)


class PerfData:
    """An Import (imports/incoming.py)."""

    def __init__(self, source: Input, wanted: Wanted) -> None:
        self._source = source
        self._wanted = wanted
        self._apart = Apart(source, wanted)
        self._known = self._apart.known
        described, self._event = self._known.described, self._apart.event
        event, step_ns = self._apart.event, self._apart.step_ns
        self._profiler: Profiler | None = None
        self._symbols: UserSymbols | None = None
        self._build_ids: dict[bytes, bytes] = {}
        self._told = 0
        self.notes = list(described.notes)
        self._noted = len(self.notes)
        self.axis: Axis = "wall" if event.clock == _CLOCK_REALTIME else "boot"
        self.node = Node(described.hostname, "", described.kernel, "", described.cpus)
        # Samples of what is no clock do not stand for time: of a core that has none it is not known that it slept.
        name = event_names.plain(event.name)
        self.about: dict[str, str | int | bool] = {"hz": event.hz, "event": name, "kernel_only": event.kernel_only}
        self.about["every_core"] = event.every_core and not described.of_some
        self.anchors = self._anchors() if self.axis == "boot" else []
        if event.sample & perf_layout.STACK_USER:
            self.notes.append(
                "stacks of user space are in it as memory (--call-graph dwarf), which is not unwound: they have one frame; "
                "the text of perf script has them whole, import that"
            )
        if event.clock in _CLOCKS:
            self.notes.append(
                f"its times are of {_CLOCKS[event.clock]} (perf record -k): the kernel's log has another clock, "
                "which differs from it by some milliseconds or more"
            )
        elif self.axis == "wall":
            self.notes.append("its times are of the wall clock (perf record -k CLOCK_REALTIME)")
        if not event.sample & perf_layout.TIME:
            self.about["times"] = "made up"
            self.notes.append(
                "its samples have no time (perf record --per-thread): those are made up, in the order of the file, "
                f"{duration(step_ns)} from one to the next"
            )
        if not event.sample & perf_layout.CPU:
            self.notes.append("its samples do not say which CPU they are of (perf record --sample-cpu, or -a): it is -1")

    @property
    def full(self) -> bool:
        return self._profiler is not None and self._profiler.full

    def forget(self) -> None:
        if self._profiler is not None:
            self._profiler.forget()

    def batches(self, ids: Ids) -> Iterator[Recording]:
        rows = Recording(self.node)
        # Looking for cycles among a million rows that have none takes a fifth of the time.
        collecting = gc.isenabled()
        gc.disable()
        try:
            for batch in self._batches(ids):
                profiler = self._profiler or self._begin(ids)
                self._learn()
                profiler.fold(batch.samples, batch.tasks, rows, stacks=batch.stacks)
                found = profiler.next_ids
                ids.stacks, ids.frames, ids.threads = found["stacks"], found["frames"], found["threads"]
                if len(rows["samples"]):
                    yield rows
                    rows = Recording(self.node)
        finally:
            if collecting:
                gc.enable()
            if self._profiler is not None:
                self._profiler.close()
        self._tell()

    def _batches(self, ids: Ids) -> Iterator[Batch]:
        source, apart = self._source, self._apart
        if not source.seekable or source.path == "-" or source.size < _LARGE or not worth_it():
            for batch in apart.batches():
                self._known = apart.known
                yield batch
            self._known = apart.known
            return
        with ahead(elsewhere, source.path, self._wanted) as items:
            # While that begins: where the kernel was is among the first that perf writes.
            next(apart.chunks(), None)
            self._known = apart.known
            if self._known.kernel_at[0] and not apart.pipe:
                self._begin(ids)
            for item in items:
                if isinstance(item, Known):
                    self._known = item
                else:
                    source.passed(item.at)
                    yield item

    @property
    def can_be_sketched(self) -> bool:
        """Not a pipe's, which is read once; not without times, which are made up in order; not packed, which takes its time."""
        apart = self._apart
        return self._source.seekable and not apart.pipe and not apart.step_ns and not self._known.described.packed

    def sketch(self, offset: int = 0, closely: bool = True) -> "Sketch | None":
        """Only what the cores did; `offset` is added to all times. None where it turns out to be packed."""
        from exhume.imports.perf_sketch import Sketch

        found: Sketch | None = None
        apart = self._apart
        for chunk in apart.chunks():
            if found is None:
                self._known = apart.known
                found = Sketch(self._marks_of(), apart.decoder.decode, offset, closely)
            apart.decoder.missed(chunk)
            found.add(chunk.only(chunk.kind == SAMPLE))
            if apart.stream.packed:
                break
        if found is not None:
            found.end()
        if apart.stream.packed:
            return None
        self._known = apart.known
        self._tell()
        return found

    def _anchors(self) -> list[Anchor]:
        described, source, apart = self._known.described, self._source, self._apart
        if apart.step_ns:
            return []
        if described.clock_data is not None:
            both = described.clock_data
            return [Anchor(both.time, both.real, "perf wrote both clocks down (perf record -k)")]
        if not source.changed_ns:
            return []
        last = described.last_sample or perf_end.last_time(source, apart.records_at, apart.records_size, apart.decoder.time)
        if not 0 < last < source.changed_ns:
            return []
        return [Anchor(last, source.changed_ns, "guessed from the time of the file", sure=False)]

    def _begin(self, ids: Ids) -> "Profiler":
        """With the first batch: by then it is known where the kernel was."""
        from exhume.sources.sampling.profiler import Imported, Profiler
        from exhume.sources.sampling.user_symbols import UserSymbols

        root, kernel = Root(), self._kernel_root()
        names = self._wanted.symbols and self._wanted.whose
        self._symbols = UserSymbols(root, os.path.expanduser("~/.debug")) if names else None
        if not self._wanted.symbols:
            self.notes.append("functions of user space stay without names, as was asked for")
        cgroups = bool(self._event.sample & perf_layout.CGROUP)
        # Made-up times are of no clock.
        alive = perf_kernel.Alive(root, self._event.clock if not self._apart.step_ns else _CLOCK_REALTIME)
        imported = Imported(kernel.own, self._build_ids, _WAIT_S, alive)
        # Read in a tenth of a second, its symbols tell what a core did, and make fewer frames than addresses would.
        symbols = KernelSymbols(kernel)
        self._profiler = profiler = Profiler(perf_kernel.NowhereRoot(), cgroups, cgroups, self._symbols, symbols, imported)
        profiler.number_from({"stacks": ids.stacks, "threads": ids.threads, "frames": ids.frames})
        return profiler

    def _learn(self) -> None:
        """Build ids, which perf inject -b puts between the samples."""
        known = self._known.described.build_ids
        if len(known) != self._told:
            self._told = len(known)
            self._build_ids.clear()
            self._build_ids.update((path, build_id) for path, build_id in known.items() if build_id)

    def _marks_of(self) -> "Callable[[], Marks | None]":
        """What tells what a core did, and no more; it has None where the kernel's functions have no names."""
        from exhume.imports import kernel_marks

        root = self._kernel_root()

        def load() -> "Marks | None":
            kernel = kernel_marks.load(root)
            return None if kernel.reason else kernel_marks.Marks(kernel)

        return load

    def _kernel_root(self) -> Root:
        """Where the symbols are that fit the file: nowhere if another kernel runs here."""
        root, described = Root(), self._known.described
        symbol, address = self._known.kernel_at
        why = perf_kernel.why_other(described.kernel_build_id, described.kernel, symbol, address, root)
        if why:
            self.notes.append(f"the kernel's functions stay without names: {why}; {perf_kernel.WHAT_TO_DO}")
        return root if not why else perf_kernel.NowhereRoot()

    def _tell(self) -> None:
        notes = self.notes
        notes += self._known.described.notes[self._noted :]
        notes += self._known.notes
        if self._symbols is not None and (missing := self._symbols.notes()):
            shown = "; ".join(f"{printable(decode(name.encode()), 64)}: {why}" for name, why in sorted(missing.items())[:5])
            more = f", and {len(missing) - 5} more" if len(missing) > 5 else ""
            files = "file" if len(missing) == 1 else "files"
            notes.append(f"functions of {len(missing)} {files} stay without names: {shown}{more}")
