"""A recording on disk, as the recorder writes it: rows each second into the open segment, one sealed segment a minute."""

import errno
import fcntl
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from exhume import __version__
from exhume.errors import ExhumeError, Refused
from exhume.host.quantities import MILLISECOND
from exhume.recording import arrow, files, layout
from exhume.recording.carry import Carry
from exhume.recording.chapters import next_ids
from exhume.recording.open_segment import OpenSegment
from exhume.recording.recording import Node, Recording
from exhume.recording.retention import Retention
from exhume.recording.schema import TABLES
from exhume.recording.sealing import seal
from exhume.text import printable

_CLOCKS = ("anchors", "cpu", "samples")
# Dictionaries first: a sample on disk never refers to a row that is not there.
_ORDER = (*layout.DICTIONARIES, *(table for table in TABLES if table not in (*layout.DICTIONARIES, "summary")))
_QUEUE = 4
_TROUBLES = 20
_CLOSE_SECONDS = 60
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REASONS = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk full",
    errno.EROFS: "disk read-only",
    errno.ENOENT: "directory removed",
}


class _OverBudget(OSError):
    """What is kept may not be removed, and what is new does not fit."""


class Writer:
    """One at a time for a directory. Trouble with the disk is counted and told, never raised, once it was opened."""

    def __init__(
        self,
        path: str,
        node: Node,
        about: Mapping[str, str | int | bool],
        *,
        budget_bytes: int,
        keep_ns: int = 0,
        segment_ns: int = 60_000_000_000,
        late_ns: int = layout.LATE_NS,
        pins_go: bool = False,
    ) -> None:
        """`late_ns`: rows that are older than those before them by more than that have a segment that begins with them.
        `pins_go`: where there is no room otherwise, the oldest of what is pinned goes, too."""
        self.chapter = 1
        """Changes when dictionaries must be written anew: forget then which stacks, frames and threads were written."""
        self.lost: dict[str, int] = {}
        self._path = files.without_links(path)
        self._node = node
        self._about: dict[str, Any] = {"version": __version__, **about}
        self._segment_ns = segment_ns
        self._late_ns = late_ns
        self._budget = budget_bytes
        self._troubles: deque[str] = deque(maxlen=_TROUBLES)
        self._carry = Carry()
        self._chapter_path = ""
        self._segment: OpenSegment | None = None
        self._newest = 0
        self._begin_ms = -1
        self._begun: set[int] = set()
        self._lock = -1
        self._closed = False
        self._prepare()
        self.next_ids = next_ids(self._path)
        """The first id of stacks, frames and threads that is not taken: they are unique in all of a recording."""
        self._retention = Retention(self._path, budget_bytes, keep_ns, node.boot_id, pins_go)
        left = self._retention.walk()
        self._jobs: queue.Queue[tuple[str, str] | None] = queue.Queue()
        for job in left:
            self._jobs.put(job)
        self._thread = threading.Thread(target=self._seal_all, name="exhume-seal", daemon=True)
        self._thread.start()

    @property
    def size_bytes(self) -> int:
        return self._retention.size_bytes

    @property
    def troubles(self) -> list[str]:
        """What went wrong, for people; the last of it."""
        return list(self._troubles)

    def take_troubles(self) -> list[str]:
        """What went wrong since this was asked last: who runs for months is to hear of what comes back."""
        taken = []
        while self._troubles:
            taken.append(self._troubles.popleft())
        return taken

    @property
    def sealing(self) -> bool:
        """Whether the sealing thread has something to do."""
        return self._jobs.unfinished_tasks > 0

    def settle(self) -> None:
        """Wait until everything that can be sealed is: for tests and benchmarks."""
        self._jobs.join()

    def keep_pace(self) -> None:
        """Wait while the sealing thread is behind: for those who write faster than the clock runs."""
        while self._jobs.unfinished_tasks >= _QUEUE - 1:
            time.sleep(0.002)

    def cut(self) -> None:
        """End the open segment: for those who write many rows of a short time."""
        self._finish_segment()

    def turn(self) -> None:
        """Begin a new chapter at the next append."""
        self.chapter += 1
        self._chapter_path = ""

    def change(self, about: Mapping[str, str | int | bool], *, budget_bytes: int, keep_ns: int) -> None:
        """A recorder with other settings goes on. A chapter says how it was recorded: a new one begins at the next append."""
        self._about = {"version": __version__, **about}
        self._budget = budget_bytes
        self._retention.limit(budget_bytes, keep_ns)
        self.turn()

    def pin(self, start: int, end: int, reason: str) -> None:
        """Segments that touch this stay when others go: those that are sealed, the open one, and those to come."""
        try:
            self._retention.pin(start, end, reason)
            if self._segment is not None and self._segment.begin < end and self._newest >= start:
                self._segment.pin(reason)
        except OSError as error:
            self._tell(f"could not pin a segment: {error.strerror}")

    def append(self, rows: Recording) -> None:
        """Everything new, about once a second."""
        clocks = [rows[table].ints("time") for table in _CLOCKS if len(rows[table])]
        if clocks:
            newest, oldest = max(int(times.max()) for times in clocks), min(int(times.min()) for times in clocks)
        else:
            newest = oldest = self._newest
        removed = self._segment is not None and not self._segment.there()
        if removed:
            self._forget_removed()
        try:
            self._make_ready(rows, oldest, newest)
        except OSError as error:
            self._lose(sum(len(rows[table]) for table in _ORDER), error)
            if any(len(rows[table]) for table in layout.DICTIONARIES):
                self.chapter += 1
            self._carry.learn(rows)
            return
        self._newest = max(self._newest, newest)
        self._write(rows, removed)
        if self._retention.size_bytes > self._budget - self._retention.headroom:
            self._retention.free(now=self._newest)

    def leave(self) -> None:
        """Close without sealing the open segment: for a recording that is read once and removed."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
        self.close()

    def close(self) -> None:
        """Seal the open segment, wait for it, and let another recorder have the directory."""
        if self._closed:
            return
        self._closed = True
        self._finish_segment()
        self._jobs.put(None)
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive():
            self._tell("the last segment was not sealed in time; it is readable, and the next recorder will seal it")
        elif self._lock >= 0:  # otherwise it is ours until that thread is gone, with us
            os.close(self._lock)

    def _prepare(self) -> None:
        """The directory, ours alone, and its lock."""
        shown = printable(self._path)
        try:
            os.makedirs(self._path, mode=0o700, exist_ok=True)
            with files.directory(self._path) as at:
                self._make_ours(at)
        except OSError as error:
            raise ExhumeError(f"cannot record into {shown}: {error.strerror or error}") from error

    def _make_ours(self, at: int) -> None:
        """Nothing is changed before the directory is known to be a recording of this user's, or new."""
        shown = printable(self._path)
        found, names = os.fstat(at), os.listdir(at)
        if layout.MARK in names:
            layout.check_mark(self._path)
        elif set(names) - {layout.LOCK}:
            raise ExhumeError(f"{shown} holds something that is not a recording: name a directory that is new or empty")
        if found.st_uid != os.geteuid():
            raise ExhumeError(f"{shown} belongs to user {found.st_uid}: name a directory of your own to record into")
        if found.st_mode & 0o077 and layout.MARK not in names:
            # Not to be made ours alone: somebody may want to use an empty /mnt or /dev/shm later.
            if found.st_mode & 0o1022 or os.path.ismount(self._path):
                raise ExhumeError(f"{shown} is there for others as well: name a directory in it that is not there yet")
            os.fchmod(at, 0o700)
        self._take_lock(at)
        if layout.MARK not in names:
            files.replace(layout.MARK, layout.mark_text().encode(), at)

    def _take_lock(self, at: int) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        lock = os.open(layout.LOCK, flags, 0o600, dir_fd=at)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise Refused(
                f"another recorder writes into {printable(self._path)}: stop it first, or name another directory"
            ) from None
        self._lock = lock

    def _make_ready(self, rows: Recording, oldest: int, newest: int) -> None:
        try:
            self._ready(rows, oldest, newest)
        except OSError as error:
            if error.errno not in _FULL or not self._retention.free(at_least=1):
                raise
            self._ready(rows, oldest, newest)

    def _ready(self, rows: Recording, oldest: int, newest: int) -> None:
        """See to it that there is an open segment for these rows."""
        back = oldest < self._newest - self._late_ns
        if self._segment is not None and back and oldest < self._segment.begin:
            self._finish_segment()
        if self._segment is not None:
            full = newest - self._segment.begin >= self._segment_ns or self._segment.size > max(self._budget // 8, 1 << 16)
            if not self._chapter_path or (full and self._jobs.qsize() < _QUEUE):
                self._finish_segment()
        if not self._chapter_path:
            self._restore()
            self._begin_chapter(rows, newest)
        if self._segment is None:
            begin = self._free(oldest) if back else max(max(oldest, self._newest) // MILLISECOND, self._begin_ms + 1, 0)
            self._begin_ms = max(begin, self._begin_ms)
            self._segment = OpenSegment(self._chapter_path, begin)
            self._begun.add(begin)
            self._carry.due = True
            if reason := self._retention.pinned(self._segment.begin):
                self._segment.pin(reason)

    def _free(self, oldest: int) -> int:
        """When a segment of rows that go back begins, in milliseconds: what is older than its begin would not be found, and its
        begin is its name, of which a chapter has one."""
        begin = after = max(oldest // MILLISECOND, 0)
        while begin in self._begun and begin:
            begin -= 1
        while begin in self._begun:
            begin = after = after + 1
        return begin

    def _begin_chapter(self, rows: Recording, newest: int) -> None:
        anchors = rows["anchors"]
        if len(anchors):
            begin = {clock: int(anchors.ints(clock)[0]) for clock in ("time", "monotonic", "boot", "real")}
        else:
            boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
            begin = {"time": newest, "monotonic": time.monotonic_ns(), "boot": boot, "real": time.time_ns()}
        about = {"begun": _rfc3339(begin["real"]), **self._about}
        text = layout.chapter_text(layout.Chapter(self._node, about, begin)).encode()
        name = base = layout.chapter_name(begin["real"])
        again = 1
        with files.directory(self._path) as at:
            while os.path.lexists(os.path.join(self._path, name)):
                again += 1
                name = f"{base}-{again}"
            os.mkdir(name, 0o700, dir_fd=at)
            with files.directory(name, at) as fd:
                files.replace(layout.CHAPTER, text, fd)
            os.fsync(at)
        self._chapter_path = os.path.join(self._path, name)
        self._begun.clear()
        self._retention.begin_chapter(name, len(text))

    def _finish_segment(self) -> None:
        """Hand the open segment to the sealing thread."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.close()
            self._jobs.put((segment.chapter, segment.name))

    def _write(self, rows: Recording, removed: bool) -> None:
        assert self._segment is not None
        lost_names = removed
        for table in _ORDER:
            if table in ("counters", "sources"):
                self._write_carried(table)
            if not len(rows[table]):
                continue
            if table == "samples" and lost_names:
                self._count("directory removed" if removed else "disk full", len(rows[table]))
                continue
            written = self._put(table, arrow.to_batch(rows[table]))
            if not written and table in layout.DICTIONARIES:
                lost_names = True
            if not written and table in ("counters", "sources"):
                self._carry.due = True
        if lost_names and not removed:
            self.chapter += 1
        self._carry.learn(rows)

    def _write_carried(self, table: str) -> None:
        """What a reader of this segment alone must know of the time before it."""
        assert self._segment is not None
        if self._carry.due and (batch := self._carry.batch(table, self._segment.begin)) is not None:
            self._put(table, batch)
        if table == "sources":
            self._carry.due = False

    def _put(self, table: str, batch: Any) -> bool:
        assert self._segment is not None
        data = batch.serialize()
        for retry in (True, False):
            try:
                if self._retention.over(len(data)):
                    raise _OverBudget(errno.EDQUOT, "the budget is used up")
                self._segment.write(table, data)
                self._retention.open(self._segment.chapter, self._segment.name, self._segment.size)
                return True
            except OSError as error:
                if retry and error.errno in _FULL and self._retention.free(len(data), at_least=1):
                    continue
                self._lose(batch.num_rows, error)
                return False
        return False

    def _forget_removed(self) -> None:
        """The directory went away under us: begin again, as if it had just been named."""
        assert self._segment is not None
        self._segment.close()
        self._segment = None
        self._chapter_path = ""
        self.chapter += 1
        self._tell(f"{printable(self._path)} was removed while it was written: what was in it is lost")

    def _restore(self) -> None:
        """Make the directory again if it went, where its parent is still there."""
        if os.path.exists(os.path.join(self._path, layout.MARK)):
            return
        if not os.path.isdir(self._path):
            os.mkdir(self._path, 0o700)
        try:
            self._prepare()
        except ExhumeError as error:
            raise OSError(errno.ENOENT, str(error)) from error
        self._retention.walk()

    def _lose(self, rows: int, error: OSError) -> None:
        reason = "over budget" if isinstance(error, _OverBudget) else _REASONS.get(error.errno or 0, "disk error")
        self._count(reason, rows)
        if reason == "over budget" and self._retention.pinned_bytes > self._budget // 2:
            self._tell("what is pinned takes most of the budget: remove pins, or record with a larger budget")
        self._tell(f"{reason}: rows could not be written to {printable(self._path)} ({error.strerror})")

    def _count(self, reason: str, rows: int) -> None:
        self.lost[reason] = self.lost.get(reason, 0) + rows

    def _tell(self, sentence: str) -> None:
        if sentence not in tuple(self._troubles):
            self._troubles.append(sentence)

    def _seal_all(self) -> None:
        """The sealing thread. What could not be sealed is tried again after the next one that could."""
        failed: list[tuple[str, str]] = []
        while (job := self._jobs.get()) is not None:
            if not self._seal(*job):
                failed.append(job)
            else:
                failed = [again for again in failed if not self._seal(*again)]
            self._retention.free(now=self._newest)
            arrow.give_memory_back()
            self._jobs.task_done()

    def _seal(self, chapter: str, name: str) -> bool:
        for retry in (True, False):
            try:
                self._retention.sealed(chapter, name, seal(os.path.join(self._path, chapter), name))
                return True
            except FileNotFoundError:
                self._retention.sealed(chapter, name, None)
                return True
            except Exception as error:  # a thread has nobody to raise to; the segment stays readable as it is
                if not (retry and isinstance(error, OSError) and error.errno in _FULL and self._retention.free(at_least=1)):
                    self._tell(f"a segment could not be sealed, it stays as it is: {printable(str(error))}")
                    return False
        return False


def _rfc3339(real_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(real_ns // 1_000_000_000))
