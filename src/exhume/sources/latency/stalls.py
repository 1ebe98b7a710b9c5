"""From looks to stalls: who was due and did not run, since when, for how long, and who held the core meanwhile.

How long a thread waited is exact, however seldom we look: the kernel adds it up when the wait ends (run_delay). What we add
is to see it while it lasts, and who is on the core then. A softirq that nobody serves has no such account: it began and
ended between two looks, and is told with that uncertainty, unless its core's ksoftirqd waits for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from exhume.sources.latency.discover import Thread, core_of, polls
from exhume.sources.latency.look import NAPI_DUE, NAPI_OFF, NET_RX, VECTOR_NAMES, VECTORS, Look, Rows
from exhume.text import decode

What = Literal["napi", "softirq", "runqueue"]

POLLS: Final = 1 << NET_RX
_BITS: Final = 1 << np.arange(VECTORS, dtype=np.uint32)


class Holder(NamedTuple):
    """Who was on the core; 0 is its idle task."""

    pid: int
    tid: int
    comm: str


@dataclass(slots=True, eq=False)
class Stall:
    """Something that was due and waits, or waited until `end`. Times are the recording's."""

    what: What
    core: int
    """Where it waits; of a thread that was moved about, where it was seen to wait longest."""
    start: int
    thread: Thread | None = None
    """Who waits, if it is a thread."""
    device: str = ""
    netns: int = 0
    vectors: tuple[str, ...] = ()
    """Which softirqs wait, if it is not a thread."""
    end: int = 0
    error_ns: int = 0
    """How far the length may be off, about."""
    throttled: bool = False
    """Its cgroup's quota held it back, not somebody on the core."""
    seen: Counter[int] = field(default_factory=Counter)
    """Looks at which it waited, by core."""
    on_core: dict[int, Counter[Holder]] = field(default_factory=dict)
    """Who was there at these looks, by core."""

    def length_ns(self, now: int) -> int:
        return (self.end or now) - self.start

    @property
    def subject(self) -> str:
        """As it is told: the device where it is known, else the thread, else the core."""
        if self.device:
            return self.device
        if self.thread is not None:
            return f"{self.thread.comm} [{self.thread.tid}]"
        return f"core {self.core}"

    @property
    def holders(self) -> Counter[Holder]:
        return self.on_core.get(self.core, Counter())

    @property
    def holder(self) -> Holder | None:
        """Who was seen there most often."""
        holders = self.holders
        return max(holders, key=lambda holder: holders[holder]) if holders and not self.throttled else None


@dataclass(frozen=True, slots=True)
class Change:
    """A stall passed the threshold, and lasts; or one that did is over."""

    stall: Stall
    over: bool


@dataclass(slots=True)
class _Wait:
    """A wait that is under way. As long as `pcount` stays, the thread has not run since."""

    stall: Stall
    pcount: int
    run_delay: int
    due: bool
    seen: int
    usual: int = 0
    """How long the thread waited before, on average."""
    told: bool = False
    hidden: bool = False
    """A softirq that waits where a thread does is part of that thread's stall."""


class Stalls:
    """Remembers from one look to the next what is needed to tell a stall, and nothing else."""

    def __init__(self, threshold_ns: int) -> None:
        self.threshold_ns = threshold_ns
        self._waits: dict[int, _Wait] = {}
        """By thread."""
        self._stuck: dict[tuple[int, bool], _Wait] = {}
        """By core, and whether it is the vector that polls devices."""
        self._time = self._time_before = self._begun = 0
        """Of the last two looks."""

    def add(self, look: Look, threads: list[Thread], ksoftirqd: list[Thread]) -> list[Change]:
        """What changed by this look; its rows are of these threads."""
        holders = _Holders(look.cores, ksoftirqd)
        changes: list[Change] = []
        self._add_threads(look, threads, holders, changes)
        self._add_cores(look, ksoftirqd, holders, changes)
        self.skip(look.time, look.begun)
        return changes

    def finish(self) -> list[Change]:
        """Nobody looks any more. What still waits is told as long as it was seen to."""
        changes = []
        for wait in (*self._waits.values(), *self._stuck.values()):
            if wait.told:
                wait.stall.end = self._time
                changes.append(Change(wait.stall, over=True))
        self._waits, self._stuck = {}, {}
        return changes

    @property
    def quiet(self) -> bool:
        """Nothing waits, as far as was seen: a look that has nothing to tell need not be added."""
        return not self._waits and not self._stuck

    def skip(self, time: int, begun: int = 0) -> None:
        """A look at `time` is done with, or had nothing to tell."""
        self._time_before, self._time, self._begun = self._time, time, begun or time

    @property
    def open(self) -> list[Stall]:
        """Told and not over."""
        return [wait.stall for wait in (*self._waits.values(), *self._stuck.values()) if wait.told]

    # Threads

    def _add_threads(self, look: Look, threads: list[Thread], holders: "_Holders", changes: list[Change]) -> None:
        rows = look.threads
        there = rows["there"] != 0
        waiting = (rows["last_queued"] != 0) & there
        grown = (rows["run_delay"] - rows["run_delay_before"] >= self.threshold_ns) & (rows["pcount_before"] != 0)
        interesting = waiting | (there & grown)
        if self._waits:
            interesting |= np.isin(rows["tid"], list(self._waits))
        for i in np.flatnonzero(interesting).tolist():
            self._add_thread(look.time, threads[i], rows[i], bool(there[i]), holders, changes)
        for tid in self._waits.keys() - set(rows["tid"].tolist()) if self._waits else ():
            self._left(self._waits.pop(tid), look.time, changes)

    def _add_thread(
        self,
        now: int,
        thread: Thread,
        row: np.void,
        there: bool,
        holders: "_Holders",
        changes: list[Change],
    ) -> None:
        pcount, run_delay, queued, core = (int(row[name]) for name in ("pcount", "run_delay", "last_queued", "cpu"))
        waiting = there and queued != 0
        wait = self._waits.get(thread.tid)
        if wait is not None and (not there or pcount != wait.pcount or not waiting):
            del self._waits[thread.tid]
            if there and pcount == wait.pcount:  # dequeued without having run: given another policy, or stopped
                pcount += 1
            if there:
                self._over(wait, now, run_delay - wait.run_delay, pcount - wait.pcount, changes)
            else:
                self._left(wait, now, changes)
            wait = None
        elif wait is None and there:
            self._unseen(min(queued, now) if waiting else now, thread, row, changes)
        if not waiting:
            return
        if wait is None:
            # One that slept at the last look has not waited since before it, whatever its mark says (see look.py).
            start = max(queued, self._begun) if row["asleep_before"] else queued
            stall = Stall("napi" if polls(thread) else "runqueue", core, min(start, now), thread, thread.device, thread.netns)
            wait = self._waits[thread.tid] = _Wait(stall, pcount, run_delay, not thread.napi, now, _usual(row))
            stall.error_ns = now - self._begun if start > queued else 0
        wait.seen = now
        wait.due = wait.due or _due(row)
        wait.stall.throttled = wait.stall.throttled or bool(row["throttled"])
        wait.stall.seen[core] += 1
        wait.stall.core = wait.stall.seen.most_common(1)[0][0]
        self._go_on(wait, core, now, holders, changes)

    def _go_on(self, wait: _Wait, core: int, now: int, holders: "_Holders", changes: list[Change]) -> None:
        holder = holders.on(core)
        if holder is not None and (wait.stall.thread is None or holder.tid != wait.stall.thread.tid):
            wait.stall.on_core.setdefault(core, Counter())[holder] += 1
        if wait.due and not wait.told and not wait.hidden and wait.stall.length_ns(now) >= self.threshold_ns:
            wait.told = True
            changes.append(Change(wait.stall, over=False))

    def _over(self, wait: _Wait, now: int, waited: int, times: int, changes: list[Change]) -> None:
        """The kernel's account is of this wait and of those that came after it until this look, which are short."""
        stall = wait.stall
        shortest, longest = wait.seen - stall.start, now - stall.start
        length = min(max(waited, shortest), longest)
        stall.end = stall.start + length
        stall.error_ns += min(longest - shortest, 2 * max(0, times - 1) * wait.usual)
        if wait.due and not wait.hidden and (wait.told or length >= self.threshold_ns):
            changes.append(Change(stall, over=True))

    def _left(self, wait: _Wait, now: int, changes: list[Change]) -> None:
        """Who waited is gone, or is not looked at any more."""
        if wait.told:
            wait.stall.end = wait.seen
            wait.stall.error_ns += now - wait.seen
            changes.append(Change(wait.stall, over=True))

    def _unseen(self, end: int, thread: Thread, row: np.void, changes: list[Change]) -> None:
        """A wait that began and ended between two looks. Of several, one was as long as their mean at least."""
        times, waited = _between(row)
        # No longer than there is time between the looks: what the account has beyond that is not of a wait (see look.py).
        waited = min(waited, end - self._begun)
        longest = waited // max(1, times)
        off = bool(int(row["state"]) & NAPI_OFF)
        if times < 1 or longest < self.threshold_ns or not int(row["pcount_before"]) or off:
            return
        core = int(row["cpu"])
        stall = Stall(
            "napi" if polls(thread) else "runqueue", core, end - longest, thread, thread.device, thread.netns, end=end
        )
        stall.error_ns = waited - longest
        changes.append(Change(stall, over=True))

    # Softirqs

    def _add_cores(self, look: Look, ksoftirqd: list[Thread], holders: "_Holders", changes: list[Change]) -> None:
        rows = look.cores
        same = rows["softirqs"] == rows["softirqs_before"]
        waits = ((rows["pending"] & rows["pending_before"])[:, None] & _BITS) != 0
        stuck = ((same & waits) @ _BITS.astype(np.int64)) * (rows["known"] != 0)
        still: set[tuple[int, bool]] = set()
        for i in np.flatnonzero(stuck).tolist():
            core, bits = core_of(ksoftirqd[i]), int(stuck[i])
            # The one that polls devices is told apart: others may have been stuck for longer.
            for polling, some in ((True, bits & POLLS), (False, bits & ~POLLS)):
                if some:
                    still.add((core, polling))
                    self._add_stuck(look.time, core, polling, some, rows[i], holders, changes)
        for key in [key for key in self._stuck if key not in still]:
            wait = self._stuck.pop(key)
            if any(core_of(thread) == key[0] for thread in ksoftirqd):
                self._served(wait, look.time, changes)
            else:
                self._left(wait, look.time, changes)

    def _add_stuck(
        self, now: int, core: int, polling: bool, bits: int, row: np.void, holders: "_Holders", changes: list[Change]
    ) -> None:
        wait = self._stuck.get((core, polling))
        if wait is None:
            # It was first seen to be due at the last look, and was not at the one before. ksoftirqd tells more exactly if it
            # was woken in between; if it waits for longer, softirqs were served beside it (d15121be7485, 6.4).
            queued = int(row["last_queued"])
            exact = 0 < self._time_before <= queued <= self._time
            stall = Stall("napi" if polling else "softirq", core, queued if exact else self._time)
            stall.error_ns = 0 if exact else self._time - self._time_before if self._time_before else now - self._time
            wait = self._stuck[core, polling] = _Wait(stall, int(row["pcount"]), int(row["run_delay"]), True, now)
        if polling and not wait.stall.device:
            wait.stall.device, wait.stall.netns = decode(row["device"].tobytes().split(b"\0", 1)[0]), int(row["netns"])
        wait.stall.vectors = tuple(name for i, name in enumerate(VECTOR_NAMES) if bits >> i & 1)
        wait.seen = now
        wait.hidden = not wait.told and self._is_part_of_another(wait.stall, polling)
        self._go_on(wait, core, now, holders, changes)

    def _is_part_of_another(self, stall: Stall, polling: bool) -> bool:
        """A device's softirq waits where the thread that polls it does; other vectors where anything that polls does."""
        others = [wait.stall for wait in self._waits.values() if wait.due and wait.stall.what == "napi"]
        if polling:
            return any(
                (other.core, other.device, other.netns) == (stall.core, stall.device, stall.netns) and stall.device
                for other in others
            )
        return (stall.core, True) in self._stuck or any(other.core == stall.core for other in others)

    def _served(self, wait: _Wait, now: int, changes: list[Change]) -> None:
        """It ran between the last look and this."""
        wait.stall.end = (wait.seen + now) // 2
        wait.stall.error_ns += now - wait.seen
        if wait.told or (not wait.hidden and wait.stall.length_ns(now) >= self.threshold_ns):
            changes.append(Change(wait.stall, over=True))


def _due(row: np.void) -> bool:
    """A NAPI's poll is due, and it is not being switched off."""
    state = int(row["state"])
    return bool(state & NAPI_DUE) and not state & NAPI_OFF


def _between(row: np.void) -> tuple[int, int]:
    """How often a thread got a core between the last two looks, and how long it had waited for that in all."""
    return int(row["pcount"]) - int(row["pcount_before"]), int(row["run_delay"]) - int(row["run_delay_before"])


def _usual(row: np.void) -> int:
    """A thread's mean wait between two looks; over its whole life where it did not run between them."""
    times, waited = _between(row)
    return max(0, waited) // times if times > 0 else int(row["run_delay"]) // max(1, int(row["pcount"]))


class _Holders:
    """Who is on which core, of one look; found out only for the cores that are asked for."""

    def __init__(self, cores: Rows, ksoftirqd: list[Thread]) -> None:
        self._cores, self._ksoftirqd = cores, ksoftirqd

    def on(self, core: int) -> Holder | None:
        for thread, row in zip(self._ksoftirqd, self._cores, strict=False):
            if core_of(thread) == core and row["known"]:
                comm = decode(row["curr_comm"].tobytes().split(b"\0", 1)[0])
                return Holder(int(row["curr_pid"]), int(row["curr_tid"]), comm)
        return None
