"""A program with little to do, a hundred times a second, which tells how late it was allowed to do it."""

import statistics
import time

from exhume.lab.work import call, say

STEP_S = 0.01


def main(name: str) -> None:
    call(name)
    late: list[float] = []
    worst, told = 0.0, time.monotonic()
    while True:
        due = time.monotonic() + STEP_S
        time.sleep(STEP_S)
        now = time.monotonic()
        late.append(now - due)
        worst = max(worst, now - due)
        if now - told >= 0.5:
            say(late_ms=round(statistics.median(late) * 1000, 3), worst_late_ms=round(worst * 1000, 1))
            told, late = now, []
