"""The stacks of an incident against those of a quiet time: which branches have a larger share of the samples than then."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from exhume.diagnosis.findings.cores import KERNEL, Core, cores
from exhume.recording.recording import Ints, Recording
from exhume.recording.tally import Tally
from exhume.render.flame import Node, Placed, plant

# Branches with a smaller share are not drawn.
LEAST = 0.002
# A core that is in the kernel for less than this is quiet.
_QUIET = 0.3
_SHORTEST_NS = 1_000_000_000
_STEPS = 400


class Change(NamedTuple):
    """A branch of the incident, its share of all samples, and its share in the quiet time; None if there is none."""

    placed: Placed
    share: float
    before: float | None


class Compared(NamedTuple):
    root: Node
    quiet: Node | None
    before: tuple[int, int] | None
    """When the quiet time was."""
    core: int | None

    def changes(self) -> Iterator[Change]:
        """Every branch, parents before their children. No recursion: stacks may be deeper than Python's."""
        waiting: list[tuple[Placed, Node | None]] = [(Placed(self.root, 0, 0), self.quiet)]
        total = max(1, self.root.value)
        quiet = self.quiet.value if self.quiet is not None else 0
        while waiting:
            placed, twin = waiting.pop()
            before = None if not quiet else twin.value / quiet if twin is not None else 0.0
            yield Change(placed, placed.node.value / total, before)
            twins = {(child.kind, child.name, child.module): child for child in twin.children} if twin is not None else {}
            start = placed.start
            below = []
            for child in placed.node.children:
                below.append((Placed(child, start, placed.depth + 1), twins.get((child.kind, child.name, child.module))))
                start += child.value
            waiting.extend(reversed(below))


def compare(
    now: tuple[Tally, Recording], then: tuple[Tally, Recording] | None, before: tuple[int, int] | None, core: int | None
) -> Compared | None:
    """None if the incident has no samples."""
    if not len(now[0].count):
        return None
    root = plant(*now, "process", "frame").node(LEAST)
    quiet = plant(*then, "process", "frame").node() if then is not None and len(then[0].count) else None
    return Compared(root, quiet, before if quiet is not None else None, core)


def quiet(recording: Recording, focus: tuple[int, int], core: int | None, nearest: bool = False) -> tuple[int, int] | None:
    """As long as the incident, without complaints of the kernel and with that core not held: before it, or else after; or the
    `nearest` on either side. Where nothing was quiet for so long, half as long, and so on."""
    first, last = recording.window
    samples = recording["samples"].ints("time")
    if len(samples):
        first, last = min(first or int(samples.min()), int(samples.min())), max(last, int(samples.max()))
    bad = np.sort(_complaints(recording))
    shares = _shares(recording, core)
    length = max(1, focus[1] - focus[0])
    shortest = min(_SHORTEST_NS, length)
    while length >= shortest:
        step = max(length // 4, (last - first) // _STEPS, 1)
        before = range(focus[0] - length, first - 1, -step)
        after = range(focus[1], last - length + 1, step)
        starts = [*before, *after]
        if nearest:  # of two as near the one before
            starts.sort(key=lambda start: focus[0] - length - start if start < focus[0] else start - focus[1])
        for start in starts:
            # Away from the incident: counters are not read often enough to tell what less than a second was like.
            wide = max(length, _SHORTEST_NS)
            low, high = (max(first, start + length - wide), start + length)
            if start >= focus[1]:
                low, high = start, min(last, start + wide)
            if np.searchsorted(bad, low) == np.searchsorted(bad, high) and _calm(shares, low, high):
                return start, start + length
        length //= 2
    return None


def _calm(shares: list[Callable[[int, int], float]], start: int, end: int) -> bool:
    """In each quarter: the begin of an incident at the end of a quiet time does not show in its mean."""
    edges = [start + (end - start) * i // 4 for i in range(5)]
    return all(share(first, last) < _QUIET for first, last in pairwise(edges) for share in shares)


def _shares(recording: Recording, core: int | None) -> list[Callable[[int, int], float]]:
    """For that core, or for each, its kernel time between two moments: by counters, or where there are none by samples."""
    counted = [partial(_of_ticks, one) for one in cores(recording) if core is None or one.number == core]
    if counted:
        return list(counted)
    table, stacks = recording["samples"], recording["stacks"]
    kinds = dict(zip(stacks.ints("id").tolist(), stacks.texts("class"), strict=True))
    kernel = np.array(
        [kinds.get(stack) in ("system", "softirq", "irq") for stack in table.ints("stack").tolist()], dtype=np.bool_
    )
    times, numbers = table.ints("time"), table.ints("core")
    if core is None and (numbers >= 0).any():
        told = np.unique(numbers[numbers >= 0]).tolist()
    else:  # of files that do not tell the core, all that ran together
        told = [one for one in np.unique(numbers).tolist() if core is None or one == core]
    return [partial(_of_samples, times[numbers == number], kernel[numbers == number]) for number in told]


def _of_ticks(core: Core, start: int, end: int) -> float:
    return core.share(*KERNEL, start=start, end=end)


def _of_samples(times: Ints, kernel: "np.ndarray[tuple[int], np.dtype[np.bool_]]", start: int, end: int) -> float:
    """A time without samples is not known to be quiet."""
    inside = kernel[(times >= start) & (times < end)]
    return float(inside.mean()) if len(inside) else 1.0


def _complaints(recording: Recording) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    table = recording["events"]
    serious = np.array([severity != "info" for severity in table.texts("severity")], dtype=np.bool_)
    return table.ints("time")[serious]
