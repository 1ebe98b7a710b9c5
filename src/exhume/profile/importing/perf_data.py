"""perf.data, read without perf: its samples, and the processes and mappings its side-band tells of, as rows of a recording.

perf writes what each CPU's ring held one after the other, in rounds: a record may come a round later than a younger one of
another CPU. So some is held back, until nothing older can come (ordered-events.c and session.c in tools/perf/util).
"""

import gc
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from exhume.errors import ExhumeError
from exhume.kernel.perf import Record
from exhume.node.root import Root
from exhume.profile import records
from exhume.profile.importing import event_names, perf_end, perf_file, perf_kernel, perf_layout
from exhume.profile.importing.perf_layout import Event
from exhume.profile.importing.perf_stream import Stream
from exhume.profile.kernel_symbols import KernelSymbols
from exhume.profile.records import Index, Ints
from exhume.recording.incoming import Anchor, Axis, Ids, Input, Wanted
from exhume.recording.recording import Node, Recording
from exhume.text import decode, printable

if TYPE_CHECKING:  # a look at what the cores did does without these
    from exhume.profile.importing.perf_sketch import Sketch
    from exhume.profile.profiler import Profiler
    from exhume.profile.user_symbols import UserSymbols

_BATCH: Final = 6 << 20
# What is held back for the sake of order is no more than that. A round is what the rings held, half a megabyte a CPU.
_MOST_HELD: Final = 24 << 20
# How long a batch waits for names that were not met before.
_WAIT_S: Final = 5.0
_SAMPLE, _MMAP, _MMAP2 = 9, 1, 10
_DROPPED: Final = 1 << 47  # PERF_RECORD_MISC_LOST_SAMPLES_BPF, in a record's first word: a filter did not want them
# Samples without a time are put so far from each other where it is not known how often they were taken.
_STEP_NS: Final = 1_000_000
_SIDE_BAND: Final = (1, 3, 4, 7, 10, 19)  # MMAP, COMM, EXIT, FORK, MMAP2, CGROUP
_NO_PID: Final = 0xFFFFFFFF
_NOBODY: Final = _NO_PID << 32 | _NO_PID
_LAST: Final = (1 << 63) - 1
_CLOCK_REALTIME: Final = 0
_CLOCKS: Final = {1: "CLOCK_MONOTONIC", 4: "CLOCK_MONOTONIC_RAW", 7: "CLOCK_BOOTTIME", 11: "CLOCK_TAI"}
_KERNEL: Final = b"[kernel.kallsyms]"


def looks(head: bytes) -> bool:
    return head[:8] in perf_file.MAGICS


def opened(source: Input, wanted: Wanted) -> "PerfData":
    return PerfData(source, wanted)


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
        self._owner = _Owner(self._events)
        self._counts = np.zeros(len(self._events), dtype=np.int64)
        self._strange = self._broken = 0
        self._lost = self._lost_samples = 0
        self._periods = (0, 0)
        self._step_ns = 0 if event.sample & perf_layout.TIME else 10**9 // event.hz if event.hz else _STEP_NS
        self._passed = 0
        self._kernel_at: tuple[bytes, int] = (b"", 0)
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
            for batch in self._in_order():
                profiler = self._profiler or self._begin(ids)
                self._fold(profiler, batch, rows)
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
        self._tell(self._profiler.throttled if self._profiler is not None else 0)

    @property
    def can_be_sketched(self) -> bool:
        """Not a pipe's, which is read once; not without times, which are made up in order; not packed, which takes its time."""
        return self._source.seekable and not self._pipe and not self._step_ns and not self._described.packed

    def sketch(self, offset: int = 0) -> "Sketch | None":
        """Only what the cores did; `offset` is added to all times. None where it turns out to be packed."""
        from exhume.profile.importing.perf_sketch import Sketch

        found: Sketch | None = None
        throttled = 0
        for chunk in self._stream.chunks():
            self._look(chunk)
            samples = chunk.only(chunk.kind == _SAMPLE)
            if found is None:
                found = Sketch(self._kernel_of(), offset)
            self._lost_in(chunk)
            throttled += chunk.throttled
            found.add(self._decode(samples))
            if self._stream.packed:
                return None
        self._tell(throttled)
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
        last = described.last_sample or perf_end.last_time(source, self._records_at, self._records_size, self._owner.time)
        if not 0 < last < source.changed_ns:
            return []
        return [Anchor(last, source.changed_ns, "guessed from the time of the file", sure=False)]

    def _in_order(self) -> Iterator[Index]:
        """Records in batches: none has one that is younger than one of a later batch, unless too much had to be held."""
        held: list[Index] = []
        size = 0
        highest = flush = limit = 0
        times: list[Ints] = []
        for chunk in self._stream.chunks():
            time = self._times(chunk)
            rounds = np.flatnonzero(chunk.kind == perf_file.FINISHED_ROUND)
            if len(rounds):
                upto = np.maximum.accumulate(np.maximum(time, highest))
                for row in rounds.tolist()[-2:]:
                    limit, flush = flush, int(upto[row])
            highest = max(highest, int(time.max(initial=0)))
            self._look(chunk)
            held.append(chunk)
            times.append(time)
            size += len(chunk.data)
            if size < _BATCH or (not limit and size < _MOST_HELD):
                continue
            whole, when = records.joined(held), np.concatenate(times)
            ready = when <= limit if size < _MOST_HELD or not (when > limit).all() else when < highest
            yield whole.only(ready)
            rest = ~ready & self._useful(whole)
            held, times = [whole.gathered(rest)], [when[rest]]
            size = len(held[0].data)
            if size > _BATCH:
                size = max(0, size - _BATCH)
        if held:
            yield records.joined(held)

    def _useful(self, found: Index) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        return found.kind < perf_file.OWN

    def _times(self, found: Index) -> Ints:
        """When each was; 0 for those that have no time, which are of before."""
        times = np.zeros(len(found.at), dtype=np.int64)
        samples = found.kind == _SAMPLE
        if self._owner.time >= 0:
            own = samples & (found.size > self._owner.time)
            times[own] = found.words[found.at[own] + self._owner.time].view(np.int64)
        if self._owner.clock:
            others = ~samples & (found.kind < perf_file.OWN) & (found.size > self._owner.clock)
            ends = found.at[others] + found.size[others]
            times[others] = found.words[ends - self._owner.clock].view(np.int64)
        return np.where((times < 0) | (times > 1 << 62), 0, times)

    def _look(self, chunk: Index) -> None:
        """What perf itself wrote between the kernel's records, and where the kernel was."""
        for row in np.flatnonzero((chunk.kind >= perf_file.OWN) & (chunk.kind != perf_file.FINISHED_ROUND)).tolist():
            begin = 8 * int(chunk.at[row])
            raw = chunk.data[begin : begin + 8 * int(chunk.size[row])]
            kind = int(chunk.kind[row])
            if kind in (perf_file.HEADER_FEATURE, perf_file.HEADER_BUILD_ID):
                perf_file.take_record(self._described, kind, int(chunk.words[chunk.at[row]] >> np.uint64(32)) & 0xFFFF, raw)
        if self._kernel_at[0] or self._profiler is not None:
            return
        # With --buildid-mmap, as newer ones do unasked, perf tells of the kernel as the kernel does of files, and with its id.
        maps = np.flatnonzero(((chunk.kind == _MMAP) | (chunk.kind == _MMAP2)) & (chunk.size > 5))
        for row in maps[chunk.words[chunk.at[maps] + 1].astype(np.uint32) == _NO_PID].tolist():
            mapped = records.parse_task(chunk.data, int(chunk.at[row]), 0)
            if isinstance(mapped, records.Mapped) and mapped.path.startswith(_KERNEL):
                self._kernel_at = mapped.path.removeprefix(_KERNEL), mapped.offset
                self._described.kernel_build_id = self._described.kernel_build_id or mapped.build_id
                return

    def _begin(self, ids: Ids) -> "Profiler":
        """With the first batch: by then it is known where the kernel was."""
        root, described = Root(), self._described
        names = self._wanted.symbols and self._wanted.whose
        from exhume.profile.profiler import Imported, Profiler
        from exhume.profile.user_symbols import UserSymbols

        kernel = self._kernel_of()()
        if not self._wanted.symbols:
            self.notes.append("functions of user space stay without names, as was asked for")
        self._symbols = UserSymbols(root, os.path.expanduser("~/.debug")) if names else None
        build_ids = {path: build_id for path, build_id in described.build_ids.items() if build_id}
        cgroups = bool(self._event.sample & perf_layout.CGROUP)
        # Made-up times are of no clock.
        alive = perf_kernel.Alive(root, self._event.clock if not self._step_ns else _CLOCK_REALTIME)
        imported = Imported(self._here, build_ids, _WAIT_S, alive)
        self._profiler = profiler = Profiler(perf_kernel.NowhereRoot(), cgroups, cgroups, self._symbols, kernel, imported)
        profiler.number_from({"stacks": ids.stacks, "threads": ids.threads, "frames": ids.frames})
        return profiler

    def _kernel_of(self) -> Callable[[], KernelSymbols]:
        """Read in a tenth of a second, its symbols tell what a core did, and make fewer frames than addresses would."""
        root, described = Root(), self._described
        symbol, address = self._kernel_at
        why = perf_kernel.why_other(described.kernel_build_id, described.kernel, symbol, address, root)
        self._here = not why
        if why:
            self.notes.append(f"the kernel's functions stay without names: {why}; {perf_kernel.WHAT_TO_DO}")
        return lambda: KernelSymbols(root if not why else perf_kernel.NowhereRoot())

    def _fold(self, profiler: "Profiler", batch: Index, rows: Recording) -> None:
        samples = batch.kind == _SAMPLE
        about = np.zeros(len(batch.kind), dtype=bool)
        for kind in _SIDE_BAND:
            about |= batch.kind == kind
        if not self._wanted.whose:
            about[:] = False
        tasks = records.side_band(batch.gathered(about), self._owner.clock, parents=True)
        decoded = self._decode(batch.only(samples))
        decoded = decoded._replace(throttled=batch.throttled)
        if self._step_ns:
            # What is told between two samples is told at the time of the second, which comes after it.
            times = self._step_ns * (self._passed + np.cumsum(samples) - samples)
            tasks = replace(tasks, times=times[about])
            decoded = decoded._replace(time=times[np.searchsorted(batch.at, decoded.time)])
            self._passed += int(samples.sum())
        self._lost_in(batch)
        profiler.fold(decoded if self._wanted.whose else _of_nobody(decoded), tasks, rows)

    def _lost_in(self, batch: Index) -> None:
        self._lost += batch.total(Record.LOST, 2)
        told = batch.only(batch.kind == Record.LOST_SAMPLES)
        self._lost_samples += told.only(told.words[told.at] & np.uint64(_DROPPED) == 0).total(Record.LOST_SAMPLES, 1)

    def _decode(self, samples: Index) -> records.Samples:
        """Those of the chosen events, which have one layout each."""
        if len(self._events) == 1:
            self._counts[0] += len(samples.at)
            self._weigh(samples)
            found = records.decode(samples, self._owner.layouts[0])
            self._broken += len(samples.at) - len(found.time)
            return found
        owner = self._owner.of(samples)
        self._strange += int((owner < 0).sum())
        self._counts += np.bincount(owner[owner >= 0], minlength=len(self._events))
        self._weigh(samples.only(owner == self._chosen[0]))
        layouts = [self._owner.layouts[at] for at in self._chosen]
        parts = []
        for layout in dict.fromkeys(layouts):
            mine = np.zeros(len(samples.at), dtype=bool)
            for at, other in zip(self._chosen, layouts, strict=True):
                if other == layout:
                    mine |= owner == at
            parts.append(records.decode(samples.only(mine), layout))
            self._broken += int(mine.sum()) - len(parts[-1].time)
        return parts[0] if len(parts) == 1 else _together(parts)

    def _weigh(self, samples: Index) -> None:
        """How many events each sample stands for, at least and at most; of a clock that is time, and about the same."""
        place = perf_layout.period_at(self._event)
        if self._event.called_clock or place < 0:
            return
        periods = samples.words[samples.at[samples.size > place] + place]
        periods = periods[(periods > 0) & (periods < 1 << 62)]
        if len(periods):
            least, most = self._periods
            self._periods = min(least or _LAST, int(periods.min())), max(most, int(periods.max()))

    def _tell(self, throttled: int) -> None:
        notes = self.notes
        notes += self._stream.notes
        if self._stream.traced and not any("AUXTRACE" in note for note in notes):
            notes.append(
                f"what the processor traced (AUXTRACE, {self._stream.traced:,} bytes) is passed over: only samples are read"
            )
        others = [at for at in range(len(self._events)) if at not in self._chosen and self._counts[at]]
        if others:
            told = ", ".join(f"{printable(self._events[at].name)} ({self._counts[at]:,})" for at in others[:20])
            taken = int(self._counts[self._chosen].sum())
            names = " and ".join(dict.fromkeys(printable(self._events[at].name) for at in self._chosen[:4]))
            notes.append(f"the samples of {names} ({taken:,}) were taken; it has others, which --event NAME takes: {told}")
        if uneven := event_names.uneven(event_names.plain(self._event.name), *self._periods):
            notes.append(uneven)
        if self._strange:
            those = "sample is of no event that the file tells of: it was" if self._strange == 1 else ""
            those = those or "samples are of no event that the file tells of: they were"
            notes.append(f"{self._strange:,} {those} passed over")
        if self._broken:
            those = "sample is damaged: it was" if self._broken == 1 else "samples are damaged: they were"
            notes.append(f"{self._broken:,} {those} passed over")
        # perf counts those that the kernel told of once more when it ends (record__read_lost_samples in builtin-record.c).
        if lost := max(self._lost, self._lost_samples):
            records_ = "record" if lost == 1 else "records"
            notes.append(f"perf lost {lost:,} {records_}: its buffers were full (perf record -m makes them larger)")
        if throttled:
            times = "once" if throttled == 1 else f"{throttled:,} times"
            notes.append(f"the kernel paused sampling {times}, because it took too long")
        if self._symbols is not None and (missing := self._symbols.notes()):
            shown = "; ".join(f"{printable(decode(name.encode()))}: {why}" for name, why in sorted(missing.items())[:5])
            more = f", and {len(missing) - 5} more" if len(missing) > 5 else ""
            files = "file" if len(missing) == 1 else "files"
            notes.append(f"functions of {len(missing)} {files} stay without names: {shown}{more}")


class _Owner:
    """Which event a sample is of, by the id that it carries (perf_evlist__id2evsel in tools/perf/util/evlist.c)."""

    def __init__(self, events: list[Event]) -> None:
        self.layouts = [perf_layout.layout(event) for event in events]
        self.clock = perf_layout.clock(events[0])
        self.time = self.layouts[0].time
        self._place = self.layouts[0].identifier
        pairs = sorted({number: at for at, event in enumerate(events) for number in event.ids}.items())
        self._ids = np.array([number for number, _ in pairs], dtype=np.uint64)
        self._events = np.array([at for _, at in pairs], dtype=np.int64)

    def of(self, samples: Index) -> Ints:
        """-1 for those of none. Without an id it is the first."""
        owner = np.zeros(len(samples.at), dtype=np.int64)
        if self._place < 0 or not len(self._ids):
            return owner
        fits = samples.size > self._place
        numbers = samples.words[samples.at[fits] + self._place]
        at = np.minimum(np.searchsorted(self._ids, numbers), len(self._ids) - 1)
        owner[fits] = np.where(self._ids[at] == numbers, self._events[at], np.where(numbers == 0, 0, -1))
        return owner


def _of_nobody(each: records.Samples) -> records.Samples:
    """The same without who ran, but for the idle task, and without the stacks of user space."""
    words = np.frombuffer(each.data, dtype=np.uint64, count=len(each.data) // 8)
    users = np.append(np.flatnonzero(words == np.uint64(records.CONTEXT_USER)) * 8, len(each.data))
    end = np.minimum(each.end, users[np.searchsorted(users, each.begin)])
    return each._replace(task=np.where(each.task & _NO_PID == 0, 0, _NOBODY), cgroup=np.zeros_like(each.cgroup), end=end)


def _together(parts: list[records.Samples]) -> records.Samples:
    """Samples of several layouts, in order of time as far as each part is."""
    shifts = np.cumsum([0, *(len(part.data) for part in parts)]).tolist()
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("task", "time", "core", "cgroup")}
    return records.Samples(
        data=b"".join(part.data for part in parts),
        begin=np.concatenate([part.begin + shift for part, shift in zip(parts, shifts, strict=False)]),
        end=np.concatenate([part.end + shift for part, shift in zip(parts, shifts, strict=False)]),
        lost=0,
        throttled=0,
        **columns,
    )
