"""A perf.data taken apart: its records read, put in order of time, and decoded, some at a time.

What rows are made of them is perf_data.py's. This has no part in it, so that it can be done by another process (`elsewhere`).
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from exhume.errors import ExhumeError
from exhume.host.quantities import size
from exhume.imports import perf_file, perf_layout
from exhume.imports.incoming import Input, Wanted
from exhume.imports.perf_file import Described
from exhume.imports.perf_order import in_order
from exhume.imports.perf_samples import SAMPLE, Decoder, of_nobody
from exhume.imports.perf_stream import Stream
from exhume.sources.sampling import records
from exhume.sources.sampling.records import Index
from exhume.text import printable

if TYPE_CHECKING:  # a look at what the cores did does without it
    from exhume.sources.sampling.chains import Stacks

# Samples without a time are put so far from each other where it is not known how often they were taken.
_STEP_NS: Final = 1_000_000
# Stacks of so many samples are looked at here, at once: this process has the time.
_MANY: Final = 1 << 11
_MMAP, _MMAP2 = 1, 10
_SIDE_BAND: Final = (1, 3, 4, 7, 10, 19)  # MMAP, COMM, EXIT, FORK, MMAP2, CGROUP
_NO_PID: Final = 0xFFFFFFFF
_KERNEL: Final = b"[kernel.kallsyms]"


class Known(NamedTuple):
    """What is known of a file besides its samples; more of it as it is read."""

    described: Described
    kernel_at: tuple[bytes, int]
    """A symbol of the kernel and its address; b"" where nothing told of it so far."""
    notes: list[str]
    """What is to be said of its records when all were read."""


class Batch(NamedTuple):
    samples: records.Samples
    tasks: records.Tasks
    stacks: "Stacks | None"
    """Of many samples."""
    at: int
    """So much of the file was read by then."""


class Apart:
    """Read it once."""

    def __init__(self, source: Input, wanted: Wanted) -> None:
        self.source = source
        self._whose = wanted.whose
        file = perf_file.opened(source)
        self.pipe = file.pipe
        self.stream = Stream(source, file.begin, file.left)
        self.records_at, self.records_size = source.at - len(file.begin), file.left
        self._described = file.described
        self._kernel_at: tuple[bytes, int] = (b"", 0)
        events = file.described.named_events()
        chosen = perf_layout.choose(events, wanted.event)
        if not chosen:
            known = ", ".join(printable(event.name) for event in events[:20])
            raise ExhumeError(f"{source.name} has no event {printable(wanted.event)}: it has {known}")
        self.event = event = events[chosen[0]]
        self.decoder = Decoder(events, chosen)
        self.step_ns = 0 if event.sample & perf_layout.TIME else 10**9 // event.hz if event.hz else _STEP_NS
        """Between two samples, where they have no time."""
        self._passed = 0

    @property
    def known(self) -> Known:
        notes = list(self.stream.notes)
        if self.stream.traced and not any("AUXTRACE" in note for note in (*self._described.notes, *notes)):
            notes.append(
                f"what the processor traced (AUXTRACE, {size(self.stream.traced)}) is passed over: only samples are read"
            )
        return Known(self._described, self._kernel_at, notes + self.decoder.notes())

    def batches(self) -> Iterator[Batch]:
        """In order of time."""
        from exhume.sources.sampling import chains

        for batch in in_order(self.chunks(), self.decoder.times):
            samples, tasks = self._decoded(batch)
            stacks = chains.of_samples(samples) if len(samples.time) >= _MANY else None
            yield Batch(samples, tasks, stacks, self.source.at)

    def chunks(self) -> Iterator[Index]:
        """Its records as they are in the file."""
        for chunk in self.stream.chunks():
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
        if self._kernel_at[0]:
            return
        # With --buildid-mmap, as newer ones do unasked, perf tells of the kernel as the kernel does of files, and with its id.
        maps = np.flatnonzero(((chunk.kind == _MMAP) | (chunk.kind == _MMAP2)) & (chunk.size > 5))
        for row in maps[chunk.words[chunk.at[maps] + 1].astype(np.uint32) == _NO_PID].tolist():
            mapped = records.parse_task(chunk.data, int(chunk.at[row]), 0)
            if isinstance(mapped, records.Mapped) and mapped.path.startswith(_KERNEL):
                self._kernel_at = mapped.path.removeprefix(_KERNEL), mapped.offset
                self._described.kernel_build_id = self._described.kernel_build_id or mapped.build_id
                return

    def _decoded(self, batch: Index) -> tuple[records.Samples, records.Tasks]:
        samples = batch.kind == SAMPLE
        about = np.zeros(len(batch.kind), dtype=bool)
        for kind in _SIDE_BAND:
            about |= batch.kind == kind
        if not self._whose:
            about[:] = False
        tasks = records.side_band(batch.gathered(about), self.decoder.clock, parents=True)
        decoded = self.decoder.decode(batch.only(samples))
        if self.step_ns:
            # What is told between two samples is told at the time of the second, which comes after it.
            times = self.step_ns * (self._passed + np.cumsum(samples) - samples)
            tasks = replace(tasks, times=times[about])
            decoded = decoded._replace(time=times[np.searchsorted(batch.at, decoded.time)])
            self._passed += int(samples.sum())
        self.decoder.missed(batch)
        return decoded if self._whose else of_nobody(decoded), tasks


def elsewhere(path: str, wanted: Wanted) -> Iterator[Batch | Known]:
    """All of a file: what is known of it comes before a batch that it could matter for, and in the end."""
    source = Input(path)
    try:
        apart = Apart(source, wanted)
        told = -1
        for batch in apart.batches():
            if told != (told := len(apart.known.described.build_ids)):
                yield apart.known
            yield batch
        yield apart.known
    finally:
        source.close()
