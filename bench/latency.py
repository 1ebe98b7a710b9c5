"""exhume latency: whether stalls are what they were made to be, when they are told, and what watching costs the packets."""

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from bench.measure import ENVIRONMENT, Row
from exhume.host.root import Root
from exhume.recorder.latency import Latency, Options
from exhume.recorder.latency_told import Told
from exhume.recorder.recorder import node_of
from tests.starved import FAR, RECEIVER, SENDER, Link, held, hold, link

LENGTHS_MS = (100, 300, 700)
TIMES = 20
PAIRS, PAIR_S = 4, 10


class _Watched:
    def __init__(self) -> None:
        if os.geteuid():
            raise RuntimeError("it takes root")
        self.told: list[tuple[int, Told]] = []
        self.watch = Latency(Root(), node_of(Root()), Options(), self._tell)

    def _tell(self, told: Told) -> None:
        self.told.append((time.monotonic_ns(), told))

    def __enter__(self) -> "_Watched":
        self.watch.start()
        self.watch.ready.wait(10)
        time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        self.watch.finish()


def latency_stalls() -> Iterator[Row]:
    """20 stalls each of 100, 300 and 700 ms, made for real: length within 5 ms, right device, core and offender."""
    wanted = [ms for ms in LENGTHS_MS for _ in range(TIMES)]
    random.shuffle(wanted)
    errors: dict[int, list[float]] = {ms: [] for ms in LENGTHS_MS}
    right = dict.fromkeys(LENGTHS_MS, 0)
    with link(real_time=True) as made, _Watched() as watched:
        for ms in wanted:
            watched.told.clear()
            process = hold(ms)
            begin, end = held(process)
            time.sleep(0.2)
            over = [told for _, told in watched.told if told.over and _is(told, made, process.pid)]
            if len(over) == 1:
                errors[ms].append(abs(over[0].length_ns - (end - begin)) / 1e6)
                right[ms] += errors[ms][-1] <= 5
            else:
                print(f"  {ms} ms: told {[(t.length_ns, t.holder) for _, t in watched.told]}", file=sys.stderr)
    for ms in LENGTHS_MS:
        worst = max(errors[ms], default=float("nan"))
        yield Row(f"stalls of {ms} ms not within 5 ms, or of another device, core, offender", TIMES - right[ms], None, "", 0)
        yield Row(f"stalls of {ms} ms: error, median", statistics.median(errors[ms] or [float("nan")]), None, "ms", None)
        yield Row(f"stalls of {ms} ms: error, worst of {TIMES}", worst, None, "ms", 5)


def _is(told: Told, made: Link, pid: int) -> bool:
    stall = told.stall
    offender = told.offender.pid if told.offender is not None else (told.holder.pid if told.holder is not None else 0)
    return (stall.what, stall.device, stall.netns, stall.core, offender) == ("napi", made.device, made.netns, made.core, pid)


def latency_announce() -> Iterator[Row]:
    """How long after passing the threshold a stall of 3 s is announced."""
    late = []
    while_it_lasts = 0
    with link(real_time=True) as made, _Watched() as watched:
        for _ in range(10):
            watched.told.clear()
            process = hold(3000)
            begin, end = held(process)
            time.sleep(0.3)
            announced = [(at, told) for at, told in watched.told if not told.over and told.stall.device == made.device]
            if announced:
                at = announced[0][0]
                late.append((at - begin) / 1e6 - 50)
                while_it_lasts += begin < at < end
    yield Row("stalls of 3 s not announced while they last, of 10", 10 - while_it_lasts, None, "", 0)
    yield Row("announced after passing the threshold, worst of 10", max(late, default=float("nan")), None, "ms", 300)


def latency_healthy() -> Iterator[Row]:
    """Stalls that are told in 60 s of heavy traffic that is served."""
    with link(traffic=False) as made, _Watched() as watched:
        flood = _flood(60)
        rate = _rate(flood)
        told = [told for _, told in watched.told if told.over]
        for one in told:
            print(f"  {one.stall.subject} {one.length_ns / 1e6:.0f} ms, held by {one.holder}", file=sys.stderr)
        stolen = sum(one.holder is None or not one.holder.pid for one in told)
        name = made.device
    yield Row(f"stalls told in 60 s of {rate / 1000:,.0f} thousand packets/s through {name}", len(told), None, "", 0)
    yield Row("  of them on a core that was idle or did not run", stolen, None, "", None)


def _flood(seconds: float) -> "subprocess.Popen[str]":
    command = ["ip", "netns", "exec", SENDER, sys.executable, "-m", "bench.flood", "10.77.3.2", str(seconds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def _rate(process: "subprocess.Popen[str]") -> float:
    output, _ = process.communicate()
    return float(output)


def _delivered(seconds: float) -> float:
    """Packets a second that came out at the far end: what is sent into a queue that is full is no traffic."""
    before, begin = _received(), time.monotonic()
    _flood(seconds).communicate()
    return (_received() - before) / (time.monotonic() - begin)


def _received() -> int:
    done = subprocess.run(("ip", "netns", "exec", RECEIVER, "cat", "/proc/net/dev"), capture_output=True, text=True, check=True)
    return next(int(line.split(":")[1].split()[1]) for line in done.stdout.splitlines() if line.strip().startswith(FAR + ":"))


# Something that wakes as often as the watch and uses as much of a core, but looks at nothing: what any watcher would cost here.
_NOTHING = """
import os, sys, time
os.setpriority(os.PRIO_PROCESS, 0, -15)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < 250_000:
        pass
    time.sleep(0.025)
"""


def _turns(load: Callable[[float], float]) -> tuple[list[float], list[float], list[float]]:
    """Rates alone, beside the watch, and beside something that does nothing, in turns; a turn is a period of the probes'
    windows."""
    alone, beside, control = [], [], []
    watch = [sys.executable, "-m", "exhume", "latency", "--json", "--for", f"{PAIR_S + 4}s"]
    for _ in range(PAIRS):
        alone.append(load(PAIR_S))
        process = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
        time.sleep(1.5)  # its first window is open already, and is part of what is measured
        beside.append(load(PAIR_S))
        output, _ = process.communicate()
        json.loads(output)
        nothing = subprocess.Popen([sys.executable, "-c", _NOTHING, str(PAIR_S + 2)])
        time.sleep(0.5)
        control.append(load(PAIR_S))
        nothing.wait()
    return alone, beside, control


def latency_overhead() -> Iterator[Row]:
    """Packets over veth without and with `exhume latency`, in interleaved turns."""
    for what, setup in (("packets/s over veth, no NAPI", False), ("packets/s over veth, NAPI thread", True)):
        with link(traffic=False, threaded=setup):
            yield from _overhead(what, *_turns(_delivered))


def _overhead(what: str, alone: list[float], beside: list[float], control: list[float]) -> Iterator[Row]:
    for name, rates in (("the watch", beside), ("nothing", control)):
        ratios = sorted(on / off for on, off in zip(rates, alone, strict=True))
        print(f"  {what}, beside {name}: {', '.join(f'{ratio:.3f}' for ratio in ratios)}", file=sys.stderr)
    # The bar is for the rate without over the rate beside: 97 % is 1.031.
    middle = statistics.median(alone) / 1000
    yield Row(f"{what}: alone against beside the watch", middle, statistics.median(beside) / 1000, "k/s", 1 / 0.97)
    yield Row("  against beside something that only wakes as often", middle, statistics.median(control) / 1000, "k/s", None)
