"""perf.data, read without perf: its samples, and the processes and mappings its side-band tells of, as rows of a recording.

A thread takes the file apart (perf_stream.py, perf_order.py, perf_samples.py), ahead of the one that makes rows of it.
"""

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from exhume.errors import ExhumeError
from exhume.node.root import Root
from exhume.profile import records
from exhume.profile.importing import event_names, perf_end, perf_file, perf_kernel, perf_layout
from exhume.profile.importing.ahead import ahead
from exhume.profile.importing.perf_order import in_order
from exhume.profile.importing.perf_samples import SAMPLE, Decoder, of_nobody
from exhume.profile.importing.perf_stream import Stream
from exhume.profile.kernel_symbols import KernelSymbols
from exhume.profile.records import Index
from exhume.recording.incoming import Anchor, Axis, Ids, Input, Wanted
from exhume.recording.recording import Node, Recording
from exhume.text import decode, printable

if TYPE_CHECKING:  # a look at what the cores did does without these
    from exhume.profile.chains import Stacks
    from exhume.profile.importing.kernel_marks import Marks
    from exhume.profile.importing.perf_sketch import Sketch
    from exhume.profile.profiler import Profiler
    from exhume.profile.user_symbols import UserSymbols

# How long a batch waits for names that were not met before.
_WAIT_S: Final = 5.0
_MMAP, _MMAP2 = 1, 10
# Samples without a time are put so far from each other where it is not known how often they were taken.
_STEP_NS: Final = 1_000_000
_SIDE_BAND: Final = (1, 3, 4, 7, 10, 19)  # MMAP, COMM, EXIT, FORK, MMAP2, CGROUP
_NO_PID: Final = 0xFFFFFFFF
_CLOCK_REALTIME: Final = 0
_CLOCKS: Final = {1: "CLOCK_MONOTONIC", 4: "CLOCK_MONOTONIC_RAW", 7: "CLOCK_BOOTTIME", 11: "CLOCK_TAI"}
_KERNEL: Final = b"[kernel.kallsyms]"


def looks(head: bytes) -> bool:
    return head[:8] in perf_file.MAGICS


def opened(source: Input, wanted: Wanted) -> "PerfData":
    return PerfData(source, wanted)


class _Batch(NamedTuple):
    """Some of the file, taken apart."""

    samples: records.Samples
    tasks: records.Tasks
    stacks: "Stacks | None"


class PerfData:
    """An Import (recording/incoming.py)."""

    def __init__(self, source: Input, wanted: Wanted) -> None:
        self._source = source
        self._wanted = wanted
        file = perf_file.opened(source)
        self._described = described = file.described
        self._stream = Stream(source, file.begin, file.left)
        self._pipe = file.pipe
        self._records_at, self._records_size = source.at - len(file.begin), file.left
        self._events = described.named_events()
        self._chosen = perf_layout.choose(self._events, wanted.event)
        if not self._chosen:
            known = ", ".join(printable(event.name) for event in self._events[:20])
            raise ExhumeError(f"{source.name} has no event {printable(wanted.event)}: it has {known}")
        self._event = event = self._events[self._chosen[0]]
        self._decoder = Decoder(self._events, self._chosen)
        self._step_ns = 0 if event.sample & perf_layout.TIME else 10**9 // event.hz if event.hz else _STEP_NS
        self._passed = 0
        self._kernel_at: tuple[bytes, int] = (b"", 0)
        self._kernel: Callable[[], KernelSymbols] | None = None
        """How its symbols are had, known with the first batch, and so is what follows."""
        self._build_ids: dict[bytes, bytes] = {}
        self._here = False
        """It is of this machine, as it was booted."""
        self._profiler: Profiler | None = None
        self._symbols: UserSymbols | None = None
        self.notes = described.notes
        self.axis: Axis = "wall" if event.clock == _CLOCK_REALTIME else "boot"
        self.node = Node(described.hostname, "", described.kernel, "", described.cpus)
        # Samples of what is no clock do not stand for time: of a core that has none it is not known that it slept.
        name = event_names.plain(event.name)
        self.about: dict[str, str | int | bool] = {"hz": event.hz, "event": name, "kernel_only": event.kernel_only}
        self.about["every_core"] = event.every_core
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
            self.notes.append(
                "its samples have no time (perf record --per-thread): those are made up, in the order of the file, "
                f"{self._step_ns / 1e6:.3g} ms from one to the next"
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
            for samples, tasks, stacks in ahead(self._taken_apart()):
                profiler = self._profiler or self._begin(ids)
                profiler.fold(samples, tasks, rows, stacks=stacks)
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

    @property
    def can_be_sketched(self) -> bool:
        """Not a pipe's, which is read once; not without times, which are made up in order; not packed, which takes its time."""
        return self._source.seekable and not self._pipe and not self._step_ns and not self._described.packed

    def sketch(self, offset: int = 0) -> "Sketch | None":
        """Only what the cores did; `offset` is added to all times. None where it turns out to be packed."""
        from exhume.profile.importing.perf_sketch import Sketch

        found: Sketch | None = None
        for chunk in self._looked_at():
            if found is None:
                found = Sketch(self._marks_of(), self._decoder.decode, offset)
            self._decoder.missed(chunk)
            found.add(chunk.only(chunk.kind == SAMPLE))
            if self._stream.packed:
                break
        if found is not None:
            found.end()
        if self._stream.packed:
            return None
        self._tell()
        return found

    def _anchors(self) -> list[Anchor]:
        described, source = self._described, self._source
        if self._step_ns:
            return []
        if described.clock_data is not None:
            both = described.clock_data
            return [Anchor(both.time, both.real, "perf wrote both clocks down (perf record -k)")]
        if not source.changed_ns:
            return []
        last = described.last_sample or perf_end.last_time(source, self._records_at, self._records_size, self._decoder.time)
        if not 0 < last < source.changed_ns:
            return []
        return [Anchor(last, source.changed_ns, "guessed from the time of the file", sure=False)]

    def _looked_at(self) -> Iterator[Index]:
        for chunk in self._stream.chunks():
            self._look(chunk)
            yield chunk

    def _look(self, chunk: Index) -> None:
        """What perf itself wrote between the kernel's records, and where the kernel was."""
        for row in np.flatnonzero((chunk.kind >= perf_file.OWN) & (chunk.kind != perf_file.FINISHED_ROUND)).tolist():
            begin = 8 * int(chunk.at[row])
            raw = chunk.data[begin : begin + 8 * int(chunk.size[row])]
            kind = int(chunk.kind[row])
            if kind in (perf_file.HEADER_FEATURE, perf_file.HEADER_BUILD_ID):
                perf_file.take_record(self._described, kind, int(chunk.words[chunk.at[row]] >> np.uint64(32)) & 0xFFFF, raw)
        if self._kernel_at[0] or self._kernel is not None:
            return
        # With --buildid-mmap, as newer ones do unasked, perf tells of the kernel as the kernel does of files, and with its id.
        maps = np.flatnonzero(((chunk.kind == _MMAP) | (chunk.kind == _MMAP2)) & (chunk.size > 5))
        for row in maps[chunk.words[chunk.at[maps] + 1].astype(np.uint32) == _NO_PID].tolist():
            mapped = records.parse_task(chunk.data, int(chunk.at[row]), 0)
            if isinstance(mapped, records.Mapped) and mapped.path.startswith(_KERNEL):
                self._kernel_at = mapped.path.removeprefix(_KERNEL), mapped.offset
                self._described.kernel_build_id = self._described.kernel_build_id or mapped.build_id
                return

    def _taken_apart(self) -> Iterator[_Batch]:
        """Nothing here may touch what makes rows: that goes on at the same time."""
        from exhume.profile import chains
        from exhume.profile.profiler import MANY

        for batch in in_order(self._looked_at(), self._decoder.times):
            if self._kernel is None:
                self._kernel = self._kernel_of()
                self._build_ids = {path: build_id for path, build_id in self._described.build_ids.items() if build_id}
                if not self._wanted.symbols:
                    self.notes.append("functions of user space stay without names, as was asked for")
            samples, tasks = self._decoded(batch)
            yield _Batch(samples, tasks, chains.of_samples(samples) if len(samples.time) >= MANY else None)

    def _decoded(self, batch: Index) -> tuple[records.Samples, records.Tasks]:
        samples = batch.kind == SAMPLE
        about = np.zeros(len(batch.kind), dtype=bool)
        for kind in _SIDE_BAND:
            about |= batch.kind == kind
        if not self._wanted.whose:
            about[:] = False
        tasks = records.side_band(batch.gathered(about), self._decoder.clock, parents=True)
        decoded = self._decoder.decode(batch.only(samples))
        if self._step_ns:
            # What is told between two samples is told at the time of the second, which comes after it.
            times = self._step_ns * (self._passed + np.cumsum(samples) - samples)
            tasks = replace(tasks, times=times[about])
            decoded = decoded._replace(time=times[np.searchsorted(batch.at, decoded.time)])
            self._passed += int(samples.sum())
        self._decoder.missed(batch)
        return decoded if self._wanted.whose else of_nobody(decoded), tasks

    def _begin(self, ids: Ids) -> "Profiler":
        """With the first batch: by then it is known where the kernel was."""
        from exhume.profile.profiler import Imported, Profiler
        from exhume.profile.user_symbols import UserSymbols

        assert self._kernel is not None
        root, kernel = Root(), self._kernel()
        names = self._wanted.symbols and self._wanted.whose
        self._symbols = UserSymbols(root, os.path.expanduser("~/.debug")) if names else None
        cgroups = bool(self._event.sample & perf_layout.CGROUP)
        # Made-up times are of no clock.
        alive = perf_kernel.Alive(root, self._event.clock if not self._step_ns else _CLOCK_REALTIME)
        imported = Imported(self._here, self._build_ids, _WAIT_S, alive)
        self._profiler = profiler = Profiler(perf_kernel.NowhereRoot(), cgroups, cgroups, self._symbols, kernel, imported)
        profiler.number_from({"stacks": ids.stacks, "threads": ids.threads, "frames": ids.frames})
        return profiler

    def _kernel_of(self) -> Callable[[], KernelSymbols]:
        """Read in a tenth of a second, its symbols tell what a core did, and make fewer frames than addresses would."""
        root = self._kernel_root()
        return lambda: KernelSymbols(root)

    def _marks_of(self) -> "Callable[[], Marks | None]":
        """What tells what a core did, and no more; it has None where the kernel's functions have no names."""
        from exhume.profile.importing import kernel_marks

        root = self._kernel_root()

        def load() -> "Marks | None":
            kernel = kernel_marks.load(root)
            return None if kernel.reason else kernel_marks.Marks(kernel)

        return load

    def _kernel_root(self) -> Root:
        """Where the symbols are that fit the file: nowhere if another kernel runs here."""
        root, described = Root(), self._described
        symbol, address = self._kernel_at
        why = perf_kernel.why_other(described.kernel_build_id, described.kernel, symbol, address, root)
        self._here = not why
        if why:
            self.notes.append(f"the kernel's functions stay without names: {why}; {perf_kernel.WHAT_TO_DO}")
        return root if not why else perf_kernel.NowhereRoot()

    def _tell(self) -> None:
        notes = self.notes
        notes += self._stream.notes
        if self._stream.traced and not any("AUXTRACE" in note for note in notes):
            notes.append(
                f"what the processor traced (AUXTRACE, {self._stream.traced:,} bytes) is passed over: only samples are read"
            )
        notes += self._decoder.notes()
        if self._symbols is not None and (missing := self._symbols.notes()):
            shown = "; ".join(f"{printable(decode(name.encode()))}: {why}" for name, why in sorted(missing.items())[:5])
            more = f", and {len(missing) - 5} more" if len(missing) > 5 else ""
            files = "file" if len(missing) == 1 else "files"
            notes.append(f"functions of {len(missing)} {files} stay without names: {shown}{more}")
