"""What cores did between edges of time, as counts by class: from readings of /proc/stat, or from stack samples.

Short windows are counted when they are asked for, to the width of a column; long ones come from the outline, which is made
of the same counts by second.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from exhume.diagnosis.findings.cores import TICK_NS, Core, cores
from exhume.recording.chosen import loaded
from exhume.recording.folder import Folder
from exhume.recording.recording import Ints
from exhume.web.rates import Rates
from exhume.web.unrecorded import Gaps, across, between_readings, recorded_ns, unrecorded

CLASSES = ("idle", "user", "system", "softirq", "irq", "steal")
"""The classes of recording/summary.py in their order, and what the hypervisor took, which only /proc/stat knows."""
_STATES = (("idle", "iowait"), ("user", "nice"), ("system",), ("softirq",), ("irq",), ("steal",))
_AROUND_NS = 1_000_000_000

Counts = NDArray[np.float64]


class Counted(NamedTuple):
    """Of each core (first axis) and class (second) the counts between each two edges (third)."""

    cores: list[int]
    counts: Counts
    a_second: float
    """What a whole second of a core counts; 0 where that is not known."""


def of_ticks(folder: Folder, edges: Ints) -> Counted | None:
    """By /proc/stat; None where it was not read. Ticks are spread evenly between two readings, but none over a gap."""
    start, end = int(edges[0]) - _AROUND_NS, int(edges[-1]) + _AROUND_NS
    recording = folder.load(start, end, ("cpu",))
    if not len(recording["cpu"]):
        return None
    known = cores(recording)
    gaps = between_readings(recording["cpu"].ints("time"), unrecorded(folder, start, end))
    counts = np.stack([_between(core, edges, gaps) for core in known]) if known else np.zeros((0, len(CLASSES), len(edges) - 1))
    if gaps:  # a column that is in part recorded is what that part was
        counts *= np.diff(edges) / np.maximum(recorded_ns(edges, gaps), 1)
    return Counted([core.number for core in known], counts, 1e9 / TICK_NS)


def _between(core: Core, edges: Ints, gaps: Gaps) -> Counts:
    # Times are so large that floats lose nanoseconds of them: from the first edge on they do not.
    at = (edges - edges[0]).astype(np.float64)
    times = (core.times - edges[0]).astype(np.float64)
    found = np.empty((len(CLASSES), len(edges) - 1))
    lost = across(core.times, gaps) if gaps else None
    for place, states in enumerate(_STATES):
        passed = core.passed(*states)
        if lost is not None:
            passed[lost] = 0
        reached = np.concatenate((np.zeros(1), np.cumsum(passed, dtype=np.float64)))
        found[place] = np.diff(np.interp(at, times, reached))
    return found


def of_samples(folder: Folder, edges: Ints, hz: int, rates: Rates) -> Counted:
    """By stack samples, which are read one by one: for short windows. Taken at another rate, one counts for more, or less."""
    rows, dictionaries = loaded(folder, int(edges[0]), int(edges[-1]))
    stacks = dictionaries["stacks"]
    ids = stacks.ints("id")
    kinds = np.array([CLASSES.index(kind) if kind in CLASSES else 0 for kind in stacks.texts("class")], dtype=np.int64)
    width = len(edges) - 1
    if not len(rows["time"]) or not len(ids):
        return Counted([], np.zeros((0, len(CLASSES), width)), float(hz))
    order = np.argsort(ids, kind="stable")
    place = np.minimum(np.searchsorted(ids[order], rows["stack"]), len(ids) - 1)
    kind = kinds[order][place]
    numbers, core = np.unique(rows["core"], return_inverse=True)
    column = np.clip(np.searchsorted(edges, rows["time"], "right") - 1, 0, width - 1)
    cell = (core * len(CLASSES) + kind) * width + column
    each = rates.scaled(rows["time"], hz) if hz else None
    counts = np.bincount(cell, each, minlength=len(numbers) * len(CLASSES) * width).astype(np.float64)
    return Counted(numbers.tolist(), counts.reshape(len(numbers), len(CLASSES), width), float(hz))
