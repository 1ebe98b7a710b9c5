"""Whether all cores are quiet, by what is read of them anyway: then what was seen may wait a little longer for the disk.

Only batches become longer. The cores themselves are read at the same rate whatever they do: read half as often, a burst of 400
ms that comes out of quiet would be told in half of the cases (diagnosis/findings/core_saturated.py), and read ten times a
second always.
"""

import re

# Of a step's time, what each core must have been idle for it to be a quiet one.
QUIET = 0.75
# For how long after the last sign of work a node is not called quiet.
AWAKE_NS = 3_000_000_000
TICK_NS = 10_000_000  # USER_HZ is 100 on every architecture that has a perf clock
# idle and iowait of each core: the fourth and fifth number of its line (proc_stat(5))
_IDLE = re.compile(rb"^cpu\d+ \d+ \d+ \d+ (\d{1,18}) (\d{1,18})", re.MULTILINE)


class Pace:
    """Shown each reading, asked between them."""

    def __init__(self) -> None:
        self._before: list[int] = []
        self._at = 0
        self._awake_until = 1 << 63

    def quiet(self, now: int) -> bool:
        """Whether there was no sign of work lately."""
        return now >= self._awake_until

    def see(self, raw: bytes, now: int) -> None:
        """`raw` is what /proc/stat said just `now`."""
        idle = parse_idle(raw)
        if self._at == 0 or not self._without_work(idle, now):
            self._awake_until = now + AWAKE_NS
        self._before, self._at = idle, now

    def _without_work(self, idle: list[int], now: int) -> bool:
        """Cores that came or went, and a file that is none, are not known to be quiet."""
        if not idle or len(idle) != len(self._before):
            return False
        least = QUIET * (now - self._at) / TICK_NS
        return all(after - before >= least for before, after in zip(self._before, idle, strict=True))


def parse_idle(raw: bytes) -> list[int]:
    """Ticks without work of each core that is online."""
    end = raw.find(b"\nintr")  # what follows is long, one number an interrupt, and has no core in it
    return [int(idle) + int(waiting) for idle, waiting in _IDLE.findall(raw if end < 0 else raw[:end])]
