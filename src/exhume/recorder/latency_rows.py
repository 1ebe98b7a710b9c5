"""What the probes counted in a second, and the stalls that ended in it, as rows of the recording."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from exhume.recording.recording import Recording, labels
from exhume.sources.latency import hot, rare
from exhume.sources.latency.histogram import BUCKETS, Histogram, merge
from exhume.sources.latency.stalls import Stall

# What takes longer is told by core.
LATE_NS = 2_000_000


class Key(NamedTuple):
    """What is counted together."""

    what: str
    stage: str
    core: int
    device: str = ""
    netns: int = 0
    name: str = ""


Counted = dict[Key, Histogram]


def of_windows(taken: hot.Taken) -> Iterator[tuple[Key, Histogram]]:
    for softirq in taken.softirqs:
        name = softirq.vector.name.lower()
        yield Key("softirq", "wait", softirq.cpu, name=name), softirq.wait
        yield Key("softirq", "run", softirq.cpu, name=name), softirq.run
    for napi in taken.napis:
        for stage, histogram in (("wait", napi.wait), ("gap", napi.gap), ("run", napi.poll)):
            yield Key("napi", stage, napi.cpu, napi.device, napi.netns), histogram
    for queue in taken.runqueues:
        yield Key("runqueue", "wait", queue.cpu), queue.wait


def of_rare(taken: rare.Taken, path: Callable[[int], str]) -> Iterator[tuple[Key, Histogram]]:
    for reclaim in taken.reclaims:
        yield Key("reclaim", reclaim.kind, reclaim.cpu, name=path(reclaim.cgroup_id)), reclaim.duration
    for waited in taken.rstat_waits:
        yield Key("rstat", "wait", waited.cpu), waited.wait


def on_our_clock(histogram: Histogram, offset_ns: int) -> Histogram:
    """BPF stamps with CLOCK_MONOTONIC, everything else here with the perf clock."""
    return replace(histogram, max_at_ns=histogram.max_at_ns + offset_ns) if histogram.max_at_ns else histogram


def collected(counted: Iterator[tuple[Key, Histogram]], offset_ns: int, each_core: bool) -> Counted:
    """Cores on which nothing was late are told together unless each is asked for: a large node would have thousands of rows."""
    found: Counted = {}
    for key, histogram in counted:
        if histogram.count:
            ours = on_our_clock(histogram, offset_ns)
            if not each_core and not key.device and histogram.max_ns < LATE_NS:
                key = key._replace(core=-1)
            found[key] = merge((found[key], ours)) if key in found else ours
    return found


def add_stall(counted: Counted, stall: Stall) -> None:
    """A stall that is over. It has a row of its own: stalls are all counted, events only in windows."""
    name = stall.thread.comm if stall.what == "runqueue" and stall.thread is not None else ""
    if stall.what == "softirq":
        name = stall.vectors[0] if stall.vectors else ""
    key = Key(stall.what, "stall", stall.core, stall.device, stall.netns, name)
    length = stall.end - stall.start
    bucket = min(BUCKETS - 1, (length // 1000).bit_length())
    tid, comm = (stall.thread.tid, stall.thread.comm) if stall.thread is not None else (0, "")
    one = Histogram(1, length, length, stall.end, tid, comm, tuple(int(i == bucket) for i in range(BUCKETS)))
    counted[key] = merge((counted[key], one)) if key in counted else one


def add_rows(into: Recording, now: int, counted: Counted, share: dict[str, int]) -> None:
    """`share` is for how much of the time each kind was counted, per mille; those that are not named always are."""
    for key, histogram in sorted(counted.items()):
        into["latency"].add(
            now,
            key.what,
            key.stage,
            key.core,
            key.device,
            key.netns,
            key.name,
            histogram.count,
            histogram.sum_ns,
            histogram.max_ns,
            list(histogram.buckets),
            histogram.max_at_ns,
            histogram.pid,
            histogram.comm,
            1000 if key.stage == "stall" else share.get(key.what, 1000),
        )


def add_timeouts(into: Recording, taken: rare.Taken, offset_ns: int) -> None:
    """The kernel's transmit watchdog fired (net:net_dev_xmit_timeout, 5.3); the kernel log says it as well, if it is read."""
    for timeout in taken.timeouts:
        into["events"].add(
            timeout.last_ns + offset_ns,
            "xmit-timeout",
            timeout.device,
            "warning",
            f"{timeout.device}: nothing was sent by queue {timeout.queue} for too long, {timeout.count} times",
            labels(device=timeout.device, netns=timeout.netns, queue=timeout.queue, count=timeout.count),
        )


class Totals:
    """Counters that go on from second to second."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}

    def add_windows(self, into: Recording, now: int, taken: hot.Taken) -> None:
        for napi in taken.napis:
            at = labels(cpu=napi.cpu, device=napi.device, netns=napi.netns)
            for name, value in (
                ("napi_polls_in_windows", napi.polls),
                ("napi_packets_in_windows", napi.packets),
                ("napi_budget_exhausted_in_windows", napi.exhausted),
            ):
                self._add(into, now, name, at, value)

    def add_rare(self, into: Recording, now: int, taken: rare.Taken) -> None:
        self._add(into, now, "memcg_stat_flushes", (), taken.flushes)
        self._add(into, now, "memcg_stat_flushes_forced", (), taken.forced_flushes)

    def _add(self, into: Recording, now: int, name: str, at: tuple[tuple[str, str], ...], value: int) -> None:
        if len(self._values) > 4096:  # devices that came and went
            self._values.clear()
        before = self._values.get((name, at))
        if value or before is None:
            self._values[name, at] = (before or 0) + value
            into.count(now, name, self._values[name, at], at)
