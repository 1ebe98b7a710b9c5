"""Whether lives follow each other like the starts of something that crashes: one at a time, and in a rhythm.

Jobs, builds and sessions run side by side or come when somebody wants them. What a supervisor starts again has one life at a
time, and its pauses are the supervisor's: the same each time (RestartSec= of systemd), or doubled until a bound is reached
(the kubelet from 10 s to 300 s; others from half a second, with a tenth of jitter).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from exhume.host.quantities import MINUTE

# How much the pauses may differ, as their standard deviation over their mean. Starts at random have about 1.
SPREAD = 0.35
# With few of them even random ones can look regular.
SPREAD_OF_FEW, FEW = 0.25, 8
# Of the lives, so many may be others': something that was started in the same place meanwhile, and stays.
STRANGERS = 0.2
# Of the steps from one life to the next, so many may overlap: who waits for an exit may be told before the kernel is done.
OVERLAPS = 0.1


@dataclass(frozen=True, slots=True)
class Rhythm:
    starts: int
    period_ns: int
    """The median from one start to the next."""
    backs_off: bool
    """The pauses double: only who sees failures does that."""
    first: int
    last: int
    life_ns: int
    """The median from start to end; -1 if no end was seen."""

    @property
    def timed(self) -> bool:
        """A period of whole minutes is a clock's: timers and cron."""
        apart = abs(self.period_ns - max(1, round(self.period_ns / MINUTE)) * MINUTE)
        return not self.backs_off and apart <= self.period_ns // 50


def rhythm(lives: Iterable[tuple[int, int]], fewest: int) -> Rhythm | None:
    """Of lives as (start, end), -1 for an end that was not seen; None if they are no loop."""
    ordered = sorted(lives)
    kept = _without_strangers(ordered)
    if len(kept) < max(3, fewest) or len(ordered) - len(kept) > max(1, STRANGERS * len(ordered)):
        return None
    overlapping = sum(end > start + (start - before) // 10 for (before, end), (start, _) in pairwise(kept))
    if overlapping > OVERLAPS * (len(kept) - 1):
        return None
    starts = [start for start, _ in kept]
    pauses = np.diff(np.array(starts, dtype=np.int64)).astype(np.float64)
    backs_off = _doubles(pauses.tolist())
    if not backs_off and not _steady(pauses):
        return None
    lengths = [end - start for start, end in kept if end >= 0]
    life = int(np.median(lengths)) if lengths else -1
    return Rhythm(len(kept), int(np.median(pauses)), backs_off, starts[0], starts[-1], life)


def _without_strangers(ordered: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Without those that live on while three others begin, or have no end and are not among the last."""
    kept = []
    for at, (start, end) in enumerate(ordered):
        later = ordered[at + 3][0] if at + 3 < len(ordered) else None
        if later is None or 0 <= end <= later:
            kept.append((start, end))
    return kept


def _steady(pauses: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> bool:
    """The longest tenth does not count: a busy machine is late now and then."""
    counted = np.sort(pauses)[: len(pauses) - len(pauses) // 10]
    mean = float(counted.mean())
    return mean > 0 and float(counted.std()) <= (SPREAD if len(counted) >= FEW else SPREAD_OF_FEW) * mean


def _doubles(pauses: list[float]) -> bool:
    """About twice as long each time, and from some point on the same."""
    if min(pauses) <= 0 or pauses[-1] < 3 * pauses[0]:
        return False
    steps = [after / before for before, after in pairwise(pauses)]
    grows = next((at for at, step in enumerate(steps) if step < 1.5), len(steps))
    # The step into the bound may be any.
    return grows >= 2 and all(step <= 2.7 for step in steps[:grows]) and all(0.75 <= step <= 1.5 for step in steps[grows:])
