"""The quiet window that an incident is compared with."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import numpy as np

from exhume.diagnosis.findings.cores import KERNEL, Core, cores
from exhume.recording.recording import Ints, Recording

# A core that is in the kernel for less than this is quiet.
_QUIET = 0.3
_SHORTEST_NS = 1_000_000_000
_STEPS = 400


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
