"""The records of a perf.data in order of time.

perf writes what each CPU's ring held one after the other, in rounds: a record may come a round later than a younger one of
another CPU. So some is held back, until nothing older can come (ordered-events.c and session.c in tools/perf/util).
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from exhume.imports import perf_file
from exhume.sources.sampling import records
from exhume.sources.sampling.records import Index, Ints

# Three times as much is no faster, and takes 45 MB more in the two processes that have some of these at a time.
_BATCH: Final = 2 << 20
# What is held back for the sake of order is no more than that. A round is what the rings held, half a megabyte a CPU.
_MOST_HELD: Final = 24 << 20


def in_order(chunks: Iterator[Index], times: Callable[[Index], Ints]) -> Iterator[Index]:
    """Records in batches: none has one that is younger than one of a later batch, unless too much had to be held. `times` tells
    when each record of a chunk was, 0 for those that have no time, which are of before."""
    held: list[Index] = []
    size = 0
    highest = flush = limit = 0
    whens: list[Ints] = []
    for chunk in chunks:
        time = times(chunk)
        rounds = np.flatnonzero(chunk.kind == perf_file.FINISHED_ROUND)
        if len(rounds):
            upto = np.maximum.accumulate(np.maximum(time, highest))
            for row in rounds.tolist()[-2:]:
                limit, flush = flush, int(upto[row])
        highest = max(highest, int(time.max(initial=0)))
        held.append(chunk)
        whens.append(time)
        size += len(chunk.data)
        if size < _BATCH or (not limit and size < _MOST_HELD):
            continue
        whole, when = records.joined(held), np.concatenate(whens)
        ready = when <= limit if size < _MOST_HELD or not (when > limit).all() else when < highest
        yield whole.only(ready)
        rest = ~ready & (whole.kind < perf_file.OWN)
        held, whens = [whole.gathered(rest)], [when[rest]]
        size = len(held[0].data)
        if size > _BATCH:
            size = max(0, size - _BATCH)
    if held:
        yield records.joined(held)
