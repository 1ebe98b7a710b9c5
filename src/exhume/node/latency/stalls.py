"""From looks to stalls: who was due and did not run, since when, for how long, and who held the core meanwhile.

How long a thread waited is exact, however seldom we look: the kernel adds it up when the wait ends (run_delay). What we add
is to see it while it lasts, and who is on the core then. A softirq that nobody serves has no such account: it began and
ended between two looks, and is told with that uncertainty, unless its core's ksoftirqd waits for it.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

import numpy as np

from exhume.node.latency.discover import Thread, core_of, polls
from exhume.node.latency.look import NAPI_DUE, NET, VECTOR_NAMES, VECTORS, Look, Rows
from exhume.text import decode

What = Literal["napi", "softirq", "runqueue"]

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
    start: int
    thread: Thread | None = None
    """Who waits, if it is a thread."""
    device: str = ""
    netns: int = 0
    vectors: tuple[str, ...] = ()
    """Which softirqs wait, if it is not a thread that was chosen."""
    end: int = 0
    error_ns: int = 0
    """How far the length may be off, about."""
    holders: Counter[Holder] = field(default_factory=Counter)

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
    def holder(self) -> Holder | None:
        """Who was seen there most often."""
        return max(self.holders, key=lambda holder: self.holders[holder]) if self.holders else None


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


class Stalls:
    """Remembers from one look to the next what is needed to tell a stall, and nothing else."""

    def __init__(self, threshold_ns: int) -> None:
        self.threshold_ns = threshold_ns
        self._waits: dict[int, _Wait] = {}
        """By thread."""
        self._stuck: dict[int, _Wait] = {}
        """By core."""
        self._time = 0

    def add(self, look: Look, threads: list[Thread], ksoftirqd: list[Thread]) -> list[Change]:
        """What changed by this look; its rows are of these threads."""
        holders = _Holders(look.cores, ksoftirqd)
        changes: list[Change] = []
        if len(look.threads):
            self._add_threads(look, threads, holders, changes)
        self._add_cores(look, ksoftirqd, holders, changes)
        self._time = look.time
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

    def skip(self, time: int) -> None:
        """A look at `time` had nothing to tell."""
        self._time = time

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
        if self._waits:
            known = set(rows["tid"].tolist())
            self._waits = {tid: wait for tid, wait in self._waits.items() if tid in known}

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
            wait = None
        elif wait is None and not waiting:
            self._unseen(now, thread, row, changes)
        if not waiting:
            return
        if wait is None:
            stall = Stall("napi" if polls(thread) else "runqueue", core, queued, thread, thread.device, thread.netns)
            wait = self._waits[thread.tid] = _Wait(stall, pcount, run_delay, not thread.napi, now, _usual(row))
        wait.seen = now
        wait.due = wait.due or bool(int(row["state"]) & NAPI_DUE)
        self._go_on(wait, now, holders, changes)

    def _go_on(self, wait: _Wait, now: int, holders: "_Holders", changes: list[Change]) -> None:
        holder = holders.on(wait.stall.core)
        if holder is not None and (wait.stall.thread is None or holder.tid != wait.stall.thread.tid):
            wait.stall.holders[holder] += 1
        if wait.due and not wait.told and wait.stall.length_ns(now) >= self.threshold_ns:
            wait.told = True
            changes.append(Change(wait.stall, over=False))

    def _over(self, wait: _Wait, now: int, waited: int, times: int, changes: list[Change]) -> None:
        """The kernel's account is of this wait and of those that came after it until this look, which are short."""
        stall = wait.stall
        shortest, longest = wait.seen - stall.start, now - stall.start
        length = min(max(waited, shortest), longest)
        stall.end, stall.error_ns = stall.start + length, min(longest - shortest, 2 * (times - 1) * wait.usual)
        if wait.due and (wait.told or length >= self.threshold_ns):
            changes.append(Change(stall, over=True))

    def _unseen(self, now: int, thread: Thread, row: np.void, changes: list[Change]) -> None:
        """A wait that began and ended between two looks. Of several, one was as long as their mean at least."""
        times, waited = _between(row)
        longest = waited // max(1, times)
        if times < 1 or longest < self.threshold_ns or not int(row["pcount_before"]):
            return
        core = int(row["cpu"])
        stall = Stall(
            "napi" if polls(thread) else "runqueue", core, now - longest, thread, thread.device, thread.netns, end=now
        )
        stall.error_ns = waited - longest
        changes.append(Change(stall, over=True))

    # Softirqs

    def _add_cores(self, look: Look, ksoftirqd: list[Thread], holders: "_Holders", changes: list[Change]) -> None:
        rows = look.cores
        if not len(rows):
            return
        same = rows["softirqs"] == rows["softirqs_before"]
        waits = ((rows["pending"] & rows["pending_before"])[:, None] & _BITS) != 0
        stuck = ((same & waits) @ _BITS.astype(np.int64)) * (rows["known"] != 0)
        still = set()
        for i in np.flatnonzero(stuck).tolist():
            still.add(core_of(ksoftirqd[i]))
            self._add_stuck(look.time, core_of(ksoftirqd[i]), int(stuck[i]), rows[i], holders, changes)
        for core in [core for core in self._stuck if core not in still]:
            wait = self._stuck.pop(core)
            row = next((rows[i] for i, thread in enumerate(ksoftirqd) if core_of(thread) == core), None)
            if row is not None:
                self._served(wait, look.time, row, changes)

    def _add_stuck(self, now: int, core: int, bits: int, row: np.void, holders: "_Holders", changes: list[Change]) -> None:
        wait = self._stuck.get(core)
        if wait is None:
            queued = int(row["last_queued"])
            exact = 0 < queued <= self._time
            stall = Stall("softirq", core, queued if exact else self._time, error_ns=0 if exact else now - self._time)
            wait = self._stuck[core] = _Wait(stall, int(row["pcount"]), int(row["run_delay"]), True, now)
        if bits & NET:
            wait.stall.what = "napi"
            if not wait.stall.device:
                wait.stall.device, wait.stall.netns = decode(row["device"].tobytes().split(b"\0", 1)[0]), int(row["netns"])
        wait.stall.vectors = tuple(name for i, name in enumerate(VECTOR_NAMES) if bits >> i & 1)
        wait.seen = now
        self._go_on(wait, now, holders, changes)

    def _served(self, wait: _Wait, now: int, row: np.void, changes: list[Change]) -> None:
        waited = int(row["run_delay"]) - wait.run_delay
        times = int(row["pcount"]) - wait.pcount
        if not wait.stall.error_ns and times >= 1:
            self._over(wait, now, waited, times, changes)
        else:
            wait.stall.end = (wait.seen + now) // 2
            wait.stall.error_ns += now - wait.seen
            if wait.told or wait.stall.length_ns(now) >= self.threshold_ns:
                changes.append(Change(wait.stall, over=True))


def _between(row: np.void) -> tuple[int, int]:
    """How often a thread got a core between the last two looks, and how long it had waited for that in all."""
    return int(row["pcount"]) - int(row["pcount_before"]), int(row["run_delay"]) - int(row["run_delay_before"])


def _usual(row: np.void) -> int:
    """A thread's mean wait between two looks; over its whole life where it did not run between them."""
    times, waited = _between(row)
    return waited // times if times > 0 else int(row["run_delay"]) // max(1, int(row["pcount"]))


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
