"""The samples among the records of a perf.data: of which event each is, those of the chosen ones decoded, and what is to be
said of the others and of those that were lost."""

from typing import Final

import numpy as np

from exhume.imports import event_names, perf_file, perf_layout
from exhume.imports.perf_layout import Event
from exhume.kernel.perf import Record
from exhume.sources.sampling import records
from exhume.sources.sampling.records import Index, Ints
from exhume.text import printable

SAMPLE: Final = 9
_DROPPED: Final = 1 << 47  # PERF_RECORD_MISC_LOST_SAMPLES_BPF, in a record's first word: a filter did not want them
_NO_PID: Final = 0xFFFFFFFF
_NOBODY: Final = _NO_PID << 32 | _NO_PID
_LAST: Final = (1 << 63) - 1


class Decoder:
    def __init__(self, events: list[Event], chosen: list[int]) -> None:
        self._events, self._chosen = events, chosen
        self._event = events[chosen[0]]
        self._owner = _Owner(events)
        self._counts = np.zeros(len(events), dtype=np.int64)
        self._strange = self._broken = 0
        self._lost = self._lost_samples = 0
        self._periods = (0, 0)
        self.throttled = 0

    @property
    def time(self) -> int:
        """Where a sample has its time, in words; -1 if it has none."""
        return self._owner.time

    @property
    def clock(self) -> int:
        """Where all other records have it, in words from their end; 0 if they have none."""
        return self._owner.clock

    def times(self, found: Index) -> Ints:
        """When each was; 0 for those that have no time, which are of before."""
        times = np.zeros(len(found.at), dtype=np.int64)
        samples = found.kind == SAMPLE
        if self._owner.time >= 0:
            own = samples & (found.size > self._owner.time)
            times[own] = found.words[found.at[own] + self._owner.time].view(np.int64)
        if self._owner.clock:
            others = ~samples & (found.kind < perf_file.OWN) & (found.size > self._owner.clock)
            ends = found.at[others] + found.size[others]
            times[others] = found.words[ends - self._owner.clock].view(np.int64)
        return np.where((times < 0) | (times > 1 << 62), 0, times)

    def missed(self, batch: Index) -> None:
        """Counts what perf or the kernel says is not there."""
        self._lost += batch.total(Record.LOST, 2)
        told = batch.only(batch.kind == Record.LOST_SAMPLES)
        self._lost_samples += told.only(told.words[told.at] & np.uint64(_DROPPED) == 0).total(Record.LOST_SAMPLES, 1)
        self.throttled += batch.throttled

    def decode(self, samples: Index) -> records.Samples:
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

    def notes(self) -> list[str]:
        """What is to be said when all was read."""
        notes = []
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
        if self.throttled:
            times = "once" if self.throttled == 1 else f"{self.throttled:,} times"
            notes.append(f"the kernel paused sampling {times}, because it took too long")
        return notes


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


def of_nobody(each: records.Samples) -> records.Samples:
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
