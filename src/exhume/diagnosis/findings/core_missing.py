"""Time of a core that nobody accounted: its clock stood still while the others' did not."""

from collections.abc import Sequence

import numpy as np

from exhume.diagnosis.findings.cores import EMPTY, Core, Stretch, before, looked_up
from exhume.recording.recording import Ints


def unaccounted(suspects: Sequence[Core], all_cores: Sequence[Core], shortest_ms: int) -> list[Stretch]:
    """The stretches in which a suspect's clock stood still and the others' did not, and which nothing made up for later."""
    found = [(core.number, start, end) for core in suspects for start, end in _still(core, shortest_ms)]
    if not found or len(all_cores) < 2:
        return []
    own, starts, ends = np.array(found, dtype=np.int64).T
    by_others = np.zeros(len(own), dtype=np.int64)
    for core, first, last in looked_up(all_cores, starts, ends):
        total = before(core.passed())
        by_others += np.where(own == core.number, 0, (total[last] - total[first]) * core.tick_ns)
    moved = by_others * 2 >= (ends - starts) * (len(all_cores) - 1)
    return [Stretch(*one, 0.0) for one, there in zip(found, moved.tolist(), strict=True) if there]


def _still(core: Core, shortest_ms: int) -> list[tuple[int, int]]:
    """The stretches in which a core has no ticks, nor has them later."""
    total, wall = core.passed() * core.tick_ns, np.diff(core.times)
    empty = total < EMPTY * wall
    edges = np.flatnonzero(np.diff(np.concatenate(([False], empty, [False])).astype(np.int8)))
    first, after = edges[::2], edges[1::2]
    starts: Ints = core.times[first]
    ends: Ints = core.times[after]
    made_up = np.append(np.maximum(0, total - wall), 0)[after]
    sums = before(total)
    long = ends - starts - (sums[after] - sums[first]) - made_up >= shortest_ms * 1_000_000
    return list(zip(starts[long].tolist(), ends[long].tolist(), strict=True))
