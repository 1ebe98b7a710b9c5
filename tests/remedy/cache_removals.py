"""Record which pages of some files leave the page cache, and which task removes them, by two tracepoints in a tracing instance.

`filemap:mm_filemap_delete_from_page_cache` fires in the task that removes a folio: a process that evicts or reclaims it,
`kswapd`, `kdamond` (DAMON). `sched:sched_process_fork` connects a process with its children. So a removal is attributed to a
process and its descendants, whatever else reclaims memory on the machine.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Self

from exhume.errors import Unreadable
from exhume.kernel.bpf.syscall import call
from exhume.kernel.bpf.tracefs import MOUNTS, Tracefs

_PREFIX = "exhume-test-removals"
_REMOVED, _FORKED = "events/filemap/mm_filemap_delete_from_page_cache", "events/sched/sched_process_fork"
_BUFFER_KIB = 8 << 10
"""Per CPU: some 170,000 events. Those of forks on a busy machine are among them."""
_PAGE = os.sysconf("SC_PAGE_SIZE")
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC  # PROC_PID_INIT_INO in include/linux/proc_ns.h
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # see exhume.kernel.bpf.tracefs, which mounts it read-only
_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1

_LINE = re.compile(r"^\s*(?P<comm>.+)-(?P<pid>\d+)\s+\[\d+\]\s.*?\s\d+\.\d+: (?P<event>\w+): (?P<rest>.*)$")
_REMOVAL = re.compile(r"dev (\d+):(\d+) ino ([0-9a-f]+) .*ofs=(\d+)(?: order=(\d+))?$")
_FORK = re.compile(r" pid=(\d+) child_comm=.* child_pid=(\d+)$")
_STATISTIC = re.compile(r"^(overrun|commit overrun|dropped events): (\d+)$", re.MULTILINE)
_numbers = count()


@dataclass(frozen=True, slots=True)
class Removal:
    """A folio that left the page cache."""

    pid: int
    comm: str
    """`<...>` if the kernel has forgotten it."""
    file: tuple[int, int]
    """Device and inode number."""
    index: int
    pages: int


@dataclass(frozen=True, slots=True)
class _Fork:
    parent: int
    child: int


def unavailable() -> str:
    """Why removals cannot be recorded here; empty if they can."""
    if os.geteuid() != 0:
        return "needs root to make a tracing instance"
    if os.stat("/proc/self/ns/pid").st_ino != _INITIAL_PID_NAMESPACE:
        return "needs the initial PID namespace: tracepoints have its process numbers"
    try:
        with Tracefs() as tracefs:
            tracefs.tracepoint("filemap", "mm_filemap_delete_from_page_cache")
            tracefs.tracepoint("sched", "sched_process_fork")
    except Unreadable as reason:
        return str(reason)
    return ""


class CacheRemovals:
    """Records while it is open; the answers are there afterwards. Raises RuntimeError if the buffer lost an event.

    A kernel without the event's field `order` does not give the size of a folio: there each removal counts as one page, which
    is right for file systems without large folios (ext4 before 6.16).
    """

    def __init__(self, *paths: str, buffer_kib: int = _BUFFER_KIB) -> None:
        self._files = {path: (status.st_dev, status.st_ino) for path in paths if (status := os.stat(path))}
        self._buffer_kib = buffer_kib
        self._name = f"{_PREFIX}-{os.getpid()}-{next(_numbers)}"
        self._events: list[Removal | _Fork] | None = None

    def __enter__(self) -> Self:
        self._tracefs = _writable_tracefs()
        instances = Path(f"/proc/self/fd/{self._tracefs}/instances")
        try:
            _remove_stale(instances)
            self._instance = instances / self._name
            self._instance.mkdir()
        except BaseException:
            os.close(self._tracefs)
            raise
        try:
            self._write("tracing_on", "0")
            self._write("buffer_size_kb", str(self._buffer_kib))
            wanted = " || ".join(f"i_ino == {inode}" for inode in sorted({inode for _, inode in self._files.values()}))
            self._write(f"{_REMOVED}/filter", wanted)
            for event in (_REMOVED, _FORKED):
                self._write(f"{event}/enable", "1")
            self._write("tracing_on", "1")
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._write("tracing_on", "0")
            if lost := self._lost():
                raise RuntimeError(f"the tracing buffer of {self._buffer_kib:,} KiB per CPU lost {lost:,} events")
            with (self._instance / "trace").open(errors="replace") as lines:
                wanted = set(self._files.values())
                events = (_event(line) for line in lines if not line.startswith("#"))
                self._events = [event for event in events if isinstance(event, _Fork) or event.file in wanted]
        finally:
            self._remove()

    def by(self, pid: int, *paths: str) -> tuple[Removal, ...]:
        """Removals by this process and all that descend from it."""
        return self._attributed({pid}, True, paths)

    def by_others(self, pids: Iterable[int], *paths: str) -> tuple[Removal, ...]:
        """Removals by all tasks but these and those that descend from them."""
        return self._attributed(set(pids), False, paths)

    def _attributed(self, roots: set[int], inside: bool, paths: tuple[str, ...]) -> tuple[Removal, ...]:
        assert self._events is not None, "still recording"
        files = {self._files[path] for path in paths or self._files}
        # Until a root's own fork its number may have been another task's; a root that is older is one from the start.
        tree = roots - {event.child for event in self._events if isinstance(event, _Fork)}
        found = []
        for event in self._events:
            if isinstance(event, Removal):
                if event.file in files and (event.pid in tree) == inside:
                    found.append(event)
            elif event.parent in tree or event.child in roots:
                tree.add(event.child)
            else:
                tree.discard(event.child)  # the number is used again
        return tuple(found)

    def _write(self, name: str, text: str) -> None:
        (self._instance / name).write_text(text)

    def _lost(self) -> int:
        statistics = [path.read_text() for path in self._instance.glob("per_cpu/cpu*/stats")]
        assert statistics, "no statistics of the tracing buffer"
        return sum(int(number) for text in statistics for _, number in _STATISTIC.findall(text))

    def _remove(self) -> None:
        try:
            self._instance.rmdir()
        finally:
            os.close(self._tracefs)


def pages(removals: Iterable[Removal]) -> int:
    """How many; a page that came back and was removed again counts twice."""
    return sum(one.pages for one in removals)


def indexes(removals: Iterable[Removal]) -> set[int]:
    """Places in the file."""
    return {one.index + offset for one in removals for offset in range(one.pages)}


def by_comm(removals: Iterable[Removal]) -> dict[str, int]:
    """Pages by the name of the task."""
    found = Counter[str]()
    for one in removals:
        found[one.comm] += one.pages
    return dict(found)


def _event(line: str) -> Removal | _Fork:
    parts = _LINE.match(line)
    if parts is not None and parts["event"] == "sched_process_fork" and (fork := _FORK.search(parts["rest"])):
        return _Fork(int(fork[1]), int(fork[2]))
    if parts is not None and (removal := _REMOVAL.match(parts["rest"])):
        major, minor, inode, offset, order = removal.groups()
        file = os.makedev(int(major), int(minor)), int(inode, 16)
        return Removal(int(parts["pid"]), parts["comm"], file, int(offset) // _PAGE, 1 << int(order or 0))
    raise RuntimeError(f"the tracing buffer has a line that is not understood: {line.strip()!r}")


def _writable_tracefs() -> int:
    """Where it is mounted, or mounted for us alone, at no path, until closed."""
    for mount in MOUNTS:
        with suppress(OSError):
            if os.path.isdir(f"{mount}/instances"):
                return os.open(mount, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    context = call(_FSOPEN, b"tracefs", _CLOEXEC)
    try:
        call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return call(_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _remove_stale(instances: Path) -> None:
    """Of tests that were killed: an instance goes on recording until it is removed."""
    for path in instances.glob(f"{_PREFIX}-*"):
        if not os.path.exists(f"/proc/{path.name.split('-')[3]}"):
            with suppress(OSError):
                path.rmdir()
