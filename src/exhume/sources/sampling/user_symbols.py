"""Names for addresses in user space: the side in the recorder. It opens and reads no tenant's file; its two children do.

`ask` queues, `answers` drives everything. Whatever goes wrong with an image costs its names and is noted.
"""

import os
import signal
import time
from array import array
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from exhume.host.root import Root
from exhume.recording.source_state import Limit, Note, Reasons
from exhume.sources.sampling import vdso
from exhume.sources.sampling.symbol_children import Child, Children
from exhume.sources.sampling.symbol_messages import (
    BUILD_ID,
    LAST,
    MOST_ADDRESSES,
    MOST_PIDS,
    Garbled,
    Named,
    Reply,
    Request,
    Told,
    What,
    unpack_functions,
)
from exhume.text import decode

_MOST_STUCK: Final = 4
_MOST_FAILED_STARTS: Final = 3
_MOST_NOTES: Final = 64
_LONGEST_PAUSE_S: Final = 60.0
_FORGIVEN_S: Final = 600.0
_LONGEST_PATH: Final = 4096
_CLOSED: Final = "closed"


class Image(NamedTuple):
    """What is mapped executable. kind: "elf" (a file), "vdso", "perf-map" (code of a JIT, /tmp/perf-PID.map has its names)."""

    kind: str
    path: bytes
    """As the process sees it; may end in b" (deleted)"."""
    device: tuple[int, int]
    inode: int
    """0 where not known."""
    build_id: bytes = b""
    """Where it is known, a file with another one is not this image, and one with this build id is, whatever its inode."""
    pid: int = 0
    """Of a perf map that may be read when its process has ended: whose it is."""


class Function(NamedTuple):
    """A range of addresses of one image, and what is there.

    Ranges of one image do not overlap unless its file changes. What has no name has a range too: the gap between functions,
    the whole image if none of it will ever be known, or the one address if another process may still lead to its names.
    """

    key: int
    start: int
    end: int
    name: str


@dataclass(slots=True)
class _Asked:
    """An image, what is to be asked about it and what has been."""

    image: Image
    pids: tuple[int, ...] = ()
    waiting: set[int] = field(default_factory=set)
    sent: "array[int]" = field(default_factory=lambda: array("Q"))
    heard: list[Named] = field(default_factory=list)
    loaded: bool = False
    build_id: bytes = b""
    """Of the debug file that is asked for next."""
    no_debug: bool = False
    unknown: bool = False


class UserSymbols:
    """Names for addresses in user space. The thread that asks first must live on: the kernel ends the children with it."""

    def __init__(self, root: Root | None = None, cache: str = "") -> None:
        """`cache`: where perf keeps the files that it recorded, to be looked into first."""
        self._root = root.path if root is not None else "/"
        self._cache = cache
        self._children: Children | None = None
        self._images: dict[int, _Asked] = {}
        self._queue: deque[int] = deque()
        self._ready: list[Function] = []
        self._notes: dict[str, str] = {}
        self._pending = 0
        self._dead: list[Child] = []
        """Killed, and not gone yet."""
        self._dead_cpu_ns = 0
        self._failed_starts = 0
        self._denied: dict[int, str] = {}
        """Why not, by the key of an image that needs more rights."""
        self._missing = ""
        self._faults = 0
        self._not_before = 0.0
        self._off = ""

    @property
    def pending(self) -> int:
        """Addresses that are not answered yet."""
        return self._pending

    def ask(self, key: int, image: Image, pids: Sequence[int], addresses: Sequence[int]) -> None:
        wanted = [address for address in addresses if 0 <= address < LAST]
        self._ready += [Function(key, address, address + 1, "") for address in addresses if not 0 <= address < LAST]
        if image.kind == "vdso":
            self._ready += [Function(key, *found) for found in vdso.functions_of(wanted)]
            return
        asked = self._images.get(key)
        if asked is None:
            asked = self._images[key] = _Asked(image, unknown=image.kind not in ("elf", "perf-map"))
        if asked.unknown or self._off:
            if wanted:
                self._ready.append(Function(key, 0, LAST, ""))
            return
        asked.pids = tuple(dict.fromkeys((*pids, *asked.pids)))[:MOST_PIDS]
        before = len(asked.waiting)
        asked.waiting.update(wanted)
        self._pending += len(asked.waiting) - before
        if not before and asked.waiting and not asked.sent:
            self._queue.append(key)
        self._drive()

    def answers(self, wait_s: float = 0.0) -> list[Function]:
        until = time.monotonic() + wait_s
        while True:
            self._drive()
            left = until - time.monotonic()
            if not self._pending or left <= 0:
                break
            if self._children is None:
                time.sleep(min(left, max(0.001, self._not_before - time.monotonic())))
            else:
                self._children.wait(min(left, 0.5))
        found, self._ready = self._ready, []
        return found

    @property
    def reasons(self) -> Reasons:
        """Why programs have no names, or not all of them; else what of its sandbox the reader does without."""
        if self._off and self._off != _CLOSED:
            return (Limit(f"only the kernel's functions have names: {self._off}"),)
        found: list[Limit | Note] = []
        if self._denied:
            of = sum(asked.image.kind in ("elf", "perf-map") for asked in self._images.values())
            why = next(iter(self._denied.values()))
            found.append(Limit(f"only some programs have names: {len(self._denied)} of {of} files were not opened ({why})"))
        if self._missing:
            found.append(Note(f"the symbol reader's sandbox is without: {self._missing}"))
        return tuple(found)

    def notes(self) -> dict[str, str]:
        return dict(self._notes)

    def cpu_ns(self) -> int:
        self._reap()
        now = self._children.cpu_ns() if self._children is not None else 0
        return self._dead_cpu_ns + now + sum(child.cpu_ns() for child in self._dead)

    def memory_bytes(self) -> int:
        return sum(child.memory_bytes() for child in self._children.both) if self._children is not None else 0

    def close(self) -> None:
        """Ends the children; what is pending is not answered any more. One that hangs in the kernel is left to it."""
        self._end_children()
        until = time.monotonic() + 1.0
        while self._dead and time.monotonic() < until:
            self._reap()
            time.sleep(0.002)
        for child in self._dead:
            child.process.returncode = -signal.SIGKILL  # it has been sent; init will reap it
        self._dead = []
        self._queue.clear()
        self._pending = 0
        self._off = self._off or _CLOSED

    # What children say

    def _drive(self) -> None:
        if self._children is not None:
            for child in self._children.both:
                for reply in child.hear():
                    self._take(reply)
            self._look_after(self._children)
        self._reap()
        if self._off:
            self._give_up()
        elif self._queue:
            self._send()

    def _take(self, reply: Reply) -> None:
        asked = self._images.get(reply.key)
        if asked is None:
            return
        if reply.told is Told.FUNCTIONS:
            try:
                asked.heard += unpack_functions(reply.body)
                if len(asked.heard) > len(asked.sent):
                    raise Garbled("more functions than addresses")
            except Garbled:
                self._fail(reply.key, "its names were garbled")
        elif reply.told is Told.END:
            asked.loaded = True
            self._finish(reply.key, asked)
        elif reply.told is Told.WANT:
            asked.no_debug = asked.no_debug or not reply.body
            asked.loaded, asked.build_id = True, b"" if asked.no_debug else reply.body[:64]
            self._ask_again(reply.key, asked)
        elif reply.told is Told.GONE:
            asked.loaded, asked.build_id = False, b""
            if asked.sent:
                self._ask_again(reply.key, asked)
        elif reply.told is Told.MISSED and not asked.build_id:
            self._note(asked, decode(reply.body))
            self._finish(reply.key, asked)
        elif reply.told in (Told.MISSED, Told.FAILED, Told.DENIED) and asked.build_id:
            asked.no_debug, asked.build_id = True, b""
            self._ask_again(reply.key, asked)
        elif reply.told in (Told.FAILED, Told.DENIED):
            if reply.told is Told.DENIED:
                self._denied[reply.key] = decode(reply.body)
            self._fail(reply.key, decode(reply.body))

    def _finish(self, key: int, asked: _Asked) -> None:
        """Hand out what was heard of the image; an address that nothing was heard of is one without a name."""
        heard = sorted(set(asked.heard))
        starts = [named.start for named in heard]
        self._ready += [Function(key, named.start, named.end, decode(named.name)) for named in heard]
        for address in asked.sent:
            at = bisect_right(starts, address) - 1
            if at < 0 or address >= heard[at].end:
                self._ready.append(Function(key, address, address + 1, ""))
        self._pending -= len(asked.sent)
        asked.sent, asked.heard, asked.build_id = array("Q"), [], b""
        if asked.waiting:
            self._queue.append(key)

    def _ask_again(self, key: int, asked: _Asked) -> None:
        asked.waiting.update(asked.sent)
        asked.sent, asked.heard = array("Q"), []
        self._pending = sum(len(each.waiting) + len(each.sent) for each in self._images.values())
        if key not in self._queue:
            self._queue.appendleft(key)

    def _fail(self, key: int, reason: str) -> None:
        """No name of this image will ever be known."""
        asked = self._images[key]
        self._note(asked, reason)
        asked.unknown = True
        if asked.sent or asked.waiting:
            self._ready.append(Function(key, 0, LAST, ""))
        self._pending -= len(asked.sent) + len(asked.waiting)
        asked.waiting, asked.sent, asked.heard = set(), array("Q"), []

    def _note(self, asked: _Asked, reason: str) -> None:
        if len(self._notes) < _MOST_NOTES:
            name = decode(asked.image.path) or f"[{asked.image.kind}]"
            self._notes[name] = reason

    def _give_up(self) -> None:
        for key, asked in self._images.items():
            if asked.waiting or asked.sent:
                self._fail(key, self._off)
        self._queue.clear()

    # What is sent to them

    def _send(self) -> None:
        children = self._children
        if children is None:
            if time.monotonic() < self._not_before:
                return
            try:
                children = self._children = Children(self._root, self._cache)
            except OSError as error:
                self._off = f"the symbol reader does not start: {os.strerror(error.errno or 0)}"
                self._give_up()
                return
        for _ in range(len(self._queue)):
            key = self._queue[0]
            asked = self._images[key]
            if asked.waiting and not asked.sent:
                request = _request(key, asked)
                direct = request.what in (What.ASK, What.ASK_FINAL)
                if not (children.reader if direct else children.opener).send(request):
                    return
                asked.sent = request.addresses
                asked.waiting.difference_update(request.addresses)
            self._queue.popleft()

    def _look_after(self, children: Children) -> None:
        """Replace them when one has ended or hangs, and hold the image it was busy with responsible."""
        broken = [child for child in children.both if not child.alive or child.overdue()]
        if not broken:
            if all(child.ready for child in children.both):
                self._failed_starts, self._missing = 0, children.reader.missing
            return
        self._failed_starts += any(not child.ready for child in broken)
        for child in broken:
            child.hung = child.alive
            if child.current in self._images:
                self._fail(
                    child.current, "it could not be read in time" if child.hung else "it took too long, or broke its reader"
                )
        self._end_children()
        if sum(child.hung for child in self._dead) >= _MOST_STUCK:
            self._off = "too many files of this node hang when they are opened"
        if self._failed_starts >= _MOST_FAILED_STARTS:
            self._off = "the symbol reader does not start"
        for child in broken:
            if child.refused:
                self._off = f"the symbol reader does not start: {child.refused}"
        for key, asked in reversed(self._images.items()):
            asked.loaded, asked.build_id = False, b""
            if asked.sent:
                self._ask_again(key, asked)
        # A node full of such files must not keep us busy starting children.
        now = time.monotonic()
        self._faults = self._faults + 1 if now - self._not_before < _FORGIVEN_S else 1
        self._not_before = now + min(_LONGEST_PAUSE_S, 0.05 * 2 ** min(self._faults, 16))

    def _end_children(self) -> None:
        if self._children is not None:
            for child in self._children.both:
                child.kill()
                self._dead.append(child)
            self._children = None

    def _reap(self) -> None:
        for child in list(self._dead):
            process = child.process
            try:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status, usage = process.pid, 0, None
            if pid:
                process.returncode = os.waitstatus_to_exitcode(status)
                if usage is not None:
                    self._dead_cpu_ns += int((usage.ru_utime + usage.ru_stime) * 1e9)
                self._dead.remove(child)


def _request(key: int, asked: _Asked) -> Request:
    addresses = array("Q", sorted(asked.waiting)[:MOST_ADDRESSES])
    image = asked.image
    if asked.build_id:
        return Request(What.DEBUG, key, addresses, asked.pids, asked.build_id)
    if asked.loaded:
        return Request(What.ASK_FINAL if asked.no_debug else What.ASK, key, addresses)
    if image.kind == "perf-map":
        return Request(What.PERF_MAP, key, addresses, asked.pids, b"/tmp/perf-%d.map" % image.pid if image.pid else b"")
    path = image.path[:_LONGEST_PATH]
    return Request(What.IMAGE, key, addresses, asked.pids, path, image.device, image.inode, image.build_id[:BUILD_ID])
