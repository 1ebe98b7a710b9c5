"""Reclaim from the live directory above zombies, in small steps, and stop before the living lose more than was agreed to.

cgroup v2 has `memory.reclaim` (5.19), which takes a size. A step can take more than it asks for: each live group may lose that
much, and a whole folio of each of its two file lists. So before each step its worst case is added to what was lost so far, and
if that is more than the limit there is no further step. What was lost is read from the groups' own counters around each step.

cgroup v1 has `memory.force_empty`, which takes no size: it frees all it can, at 25 GB/s where folios are large. No limit can be
kept there, so it is used only where the loss of all cache was accepted. A timer interrupts each write (EINTR; what was freed
stays freed), to keep the core free for others.

Both run in a child process (see `child`), on a core that serves no network queue. After each step it rests three times as
long as the step took. Steps grow only when none of the zombies went although they had time to: the kernel frees a group some
time after its last page.
"""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from exhume.errors import Unreadable
from exhume.host.cgroups import Hierarchy
from exhume.host.root import Root

SMALLEST_S = 0.001
"""Of one write to memory.force_empty."""
SMALLEST_BYTES = 128 << 10
"""Of one write to memory.reclaim. The kernel takes no less at a time: SWAP_CLUSTER_MAX is 32 pages."""
LARGEST = 4
"""Steps double at most so often."""
MOST_STEPS = 2000
REST = 3.0
SHORTEST_REST_S = 0.01
SETTLE_S = 0.1
MOST_WITHOUT_EFFECT = 12
WAITED_S = 0.5
"""A step that waits for longer ends the reclaim. Behind a starved core each one does so: the scheduler lets the worker in
that drains it once a second at best."""


class End(Enum):
    """Why it stopped."""

    GONE = "all of them are gone"
    LIMIT = "another step could have taken more from the live groups than was agreed to"
    NOTHING_LEFT = "the kernel has nothing more to reclaim there"
    NO_EFFECT = "no more of them went"
    WAITED = "a step waited in the kernel, for a core that runs no tasks or for a disk, and the next ones would too"
    TOO_LONG = "it took too long"


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """So far, or in the end."""

    left: int
    lost_bytes: int
    steps: int
    end: End | None = None


def worst_step_bytes(live_groups: int, folio_bytes: int, size: int = 0) -> int:
    """The most that one step can take from so many live groups with page cache."""
    return live_groups * ((SMALLEST_BYTES << size) + 2 * folio_bytes)


def largest_folio_bytes(root: Root) -> int:
    """Of the page cache: as large as one entry of a page middle directory maps, where the kernel knows huge pages at all."""
    try:
        raw = root.read("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", 64).strip()
    except Unreadable:
        return os.sysconf("SC_PAGE_SIZE")
    return int(raw) if raw.isdigit() and len(raw) < 12 else 2 << 20


@dataclass(frozen=True, slots=True)
class Level:
    """The memory of a live group, and what the kernel ever reclaimed from it."""

    usage_bytes: int
    reclaimed_bytes: int


class Usage:
    """The memory of live groups. Where there is memory.reclaim, memory.stat flushes per-CPU counts and walks no group."""

    def __init__(self, root: Root, hierarchy: Hierarchy, paths: tuple[str, ...]) -> None:
        self._root = root
        self._unified = hierarchy.version == 2
        # A group's counter includes its children's: of those on one path only the topmost counts.
        known = set(paths)
        self._groups = [f"{hierarchy.path}{path}" for path in paths if not known & set(_above(path))]

    def read(self) -> list[Level]:
        if not self._unified:
            return [Level(_number(self._read(f"{group}/memory.usage_in_bytes")), 0) for group in self._groups]
        return [Level(_number(self._read(f"{group}/memory.current")), self._reclaimed(group)) for group in self._groups]

    def _reclaimed(self, group: str) -> int:
        lines = self._read(f"{group}/memory.stat").split(b"\n")
        stolen = next((line[8:] for line in lines if line.startswith(b"pgsteal ")), b"")
        return _number(stolen) * os.sysconf("SC_PAGE_SIZE")

    def _read(self, file: str) -> bytes:
        try:
            return self._root.read(file, 1 << 16)
        except Unreadable:
            return b""


def _number(raw: bytes) -> int:
    digits = raw.strip()
    return int(digits) if digits.isdigit() and len(digits) < 19 else 0


def lost_bytes(before: list[Level], after: list[Level]) -> int:
    """What the groups lost together. A group that grows meanwhile does not fall, and pgsteal lags by a batch of each CPU: the
    larger of both counts. What others gained does not make up for a loss."""
    pairs = zip(before, after, strict=True)
    return sum(max(0, old.usage_bytes - new.usage_bytes, new.reclaimed_bytes - old.reclaimed_bytes) for old, new in pairs)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a reclaim may cost."""

    most_lost_bytes: int | None
    """None: all of it was accepted."""
    live_groups: int
    folio_bytes: int

    def allows(self, lost_bytes: int, size: int) -> bool:
        if self.most_lost_bytes is None:
            return True
        return lost_bytes + worst_step_bytes(self.live_groups, self.folio_bytes, size) <= self.most_lost_bytes


def reclaim(
    root: Root,
    hierarchy: Hierarchy,
    home: str,
    usage: Usage,
    limit: Limit,
    count: Callable[[], int],
    send: Callable[[Reclaimed], None],
) -> None:
    """Step by step until the zombies that `count` counts are gone, or End says why not. Runs in a child; `send` has the result
    of each step, and the last one an end."""
    name = "memory.force_empty" if hierarchy.version == 1 else "memory.reclaim"
    file = root.at(f"{hierarchy.path}{home}/{name}")
    try:
        fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{file} cannot be written: {os.strerror(error.errno or 0)}") from None
    if hierarchy.version == 1 and limit.most_lost_bytes is not None:
        raise Unreadable("memory.force_empty takes no size, so that no limit can be kept")
    signal.signal(signal.SIGALRM, _alarm)
    left, lost, without_effect, size = count(), 0, 0, 0
    for step in range(1, MOST_STEPS + 1):
        if not limit.allows(lost, size):
            size = max(0, size - 1)
            if not limit.allows(lost, size):
                send(Reclaimed(left, lost, step - 1, End.LIMIT))
                return
        before, began, ran = usage.read(), time.monotonic(), time.thread_time()
        exhausted = _force_empty(fd, size) if hierarchy.version == 1 else _reclaim(fd, size)
        took, ran = time.monotonic() - began, time.thread_time() - ran
        lost += lost_bytes(before, usage.read())
        if took - ran > WAITED_S:
            send(Reclaimed(count(), lost, step, End.WAITED))
            return
        time.sleep(max(SHORTEST_REST_S, REST * took))
        was, left = left, count()
        if left == was:
            time.sleep(SETTLE_S)
            left = count()
        if left == 0:
            send(Reclaimed(left, lost, step, End.GONE))
            return
        if left < was:
            without_effect = 0
        else:
            without_effect += 1
            size = min(size + 1, LARGEST)
        if exhausted and left == was:
            send(Reclaimed(left, lost, step, End.NOTHING_LEFT))
            return
        if without_effect >= MOST_WITHOUT_EFFECT:
            send(Reclaimed(left, lost, step, End.NO_EFFECT))
            return
        send(Reclaimed(left, lost, step))
    send(Reclaimed(left, lost, MOST_STEPS, End.TOO_LONG))


class _Time(Exception):
    """The timer went off."""


def _alarm(*_: object) -> None:
    raise _Time  # otherwise Python would take the write up again after EINTR (PEP 475)


def _force_empty(fd: int, size: int) -> bool:
    """Whether the kernel says that nothing is left."""
    try:
        signal.setitimer(signal.ITIMER_REAL, SMALLEST_S * 2**size)
        try:
            os.write(fd, b"0")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Time:
        return False
    except OSError as error:
        raise Unreadable(f"memory.force_empty failed: {os.strerror(error.errno or 0)}") from None
    return True


def _reclaim(fd: int, size: int) -> bool:
    """swappiness=0 (6.11) keeps anonymous memory where it is; an older kernel refuses the word, and is asked without."""
    for request in (f"{SMALLEST_BYTES << size} swappiness=0", str(SMALLEST_BYTES << size)):
        try:
            os.write(fd, request.encode())
        except BlockingIOError:  # EAGAIN: less than asked was reclaimed
            return False
        except OSError as error:
            if error.errno == 22:
                continue
            raise Unreadable(f"memory.reclaim failed: {os.strerror(error.errno or 0)}") from None
        return False
    raise Unreadable("this kernel does not take a size for memory.reclaim")


def _above(path: str) -> list[str]:
    """The directories that a path is in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts))]
