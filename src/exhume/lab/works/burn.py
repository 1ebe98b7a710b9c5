"""Honest work in user space: a share of a core's time, or all that it can get."""

import time

from exhume.lab.work import call, say

STEP_S = 0.02


def main(name: str, share: str) -> None:
    call(name)
    told = time.monotonic()
    number = 1
    while True:
        begin, used = time.monotonic(), time.process_time()
        while time.process_time() - used < STEP_S * float(share):
            for _ in range(500):
                number = number * 6364136223846793005 + 1442695040888963407 & 0xFFFFFFFFFFFFFFFF
        if (rest := STEP_S - (time.monotonic() - begin)) > 0 and float(share) < 1:
            time.sleep(rest)
        if time.monotonic() - told > 0.5:
            told = time.monotonic()
            say(cpu_s=round(time.process_time(), 3))
