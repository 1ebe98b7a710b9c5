"""The child that reads tenants' files: without rights, on descriptors that the opener hands it, by pread alone.

It answers with ranges of addresses and names. Whatever a file makes of it, its alarm ends it after two seconds, and the
recorder starts another one.
"""

import os
import select
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from exhume.sources.sampling import elf, sandbox
from exhume.sources.sampling.demangle import function_name
from exhume.sources.sampling.memory import give_back
from exhume.sources.sampling.perf_map import LARGEST as LARGEST_PERF_MAP
from exhume.sources.sampling.perf_map import PerfMap
from exhume.sources.sampling.plt import Plt, Stub
from exhume.sources.sampling.symbol_child import TIME_S, begin, timed
from exhume.sources.sampling.symbol_messages import (
    BUILD_ID,
    LARGEST,
    Garbled,
    Named,
    Reply,
    Request,
    Told,
    What,
    pack_functions,
    unpack_request,
)

_LARGE: Final = 1 << 20
_MEMORY: Final = 16 << 20
"""Of all images together; the one that was asked about last stays however large it is."""
_MOST_IMAGES: Final = 200
"""With a debug file each, they are fewer than the files that the sandbox allows."""
_IDLE_S: Final = 30.0
"""After that an image is forgotten: its open file would keep a container's file system busy."""
_NO_SYMBOLS: Final = "it has no symbols, and there is no debug file for it"
_PART: Final = 4 << 20
_AGAIN_S: Final = 1.0
"""A perf map is not read again before that."""


class ElfImage:
    """An ELF file, and its separate debug file if it has one."""

    def __init__(self, fd: int) -> None:
        self.fds = [fd]
        self.read: elf.Read = partial(_pread, fd)
        self.elf = elf.parse(self.read)
        self.tables: list[tuple[elf.Table, elf.Read]] = [(self.elf.table, self.read)] if self.elf.table else []
        self.plt = Plt(self.elf)
        self.final = self.elf.whole or not self.elf.build_id
        """Whether a debug file is not wanted, or was looked for."""

    @property
    def nbytes(self) -> int:
        return sum(table.nbytes for table, _ in self.tables) + self.plt.nbytes

    def why_another(self, request: Request) -> str:
        """Why it is not the file that was recorded, by build id; "" where it is. Shorter ids come filled up with zeros, longer
        ones cut (struct perf_record_header_build_id)."""
        if not request.build_id or self.elf.build_id[:BUILD_ID].rstrip(b"\0") == request.build_id.rstrip(b"\0"):
            return ""
        if self.elf.build_id:
            return "another file has its place: its build id is not the one that was recorded"
        # perf writes ids down by path: the one of another container's file may be there for a file that has none.
        return (
            ""
            if _numbered(self.fds[0], request)
            else "another file has its place: one with a build id was recorded, it has none"
        )

    def add_debug(self, fd: int) -> None:
        self.fds.append(fd)
        self.final = True
        read: elf.Read = partial(_pread, fd)
        try:
            debug = elf.parse(read)
        except elf.Malformed:
            return
        if debug.build_id == self.elf.build_id and debug.table is not None:
            self.tables.insert(0, (debug.table, read))

    def function(self, offset: int) -> Named:
        segment = self.elf.segment(offset)
        if segment is None:
            return Named(offset, offset + 1, b"")
        shift = segment.address - segment.offset
        low, high = segment.offset, segment.offset + segment.size
        for table, read in self.tables:
            found = table.find(offset + shift)
            low, high = max(low, found.start - shift), min(high, found.end - shift)
            if found.which >= 0:
                return Named(low, high, function_name(table.name(found.which, read)).encode())
        stub = self.plt.find(offset + shift, self.read)
        name = self._called(stub)
        return Named(max(low, stub.start - shift), min(high, stub.end - shift), f"{name}@plt".encode() if name else b"")

    def _called(self, stub: Stub) -> str:
        """What a stub calls. A function that is chosen at run time has the name of the one that chooses; without a name it is
        called as objdump does."""
        if not stub.resolver:
            return function_name(stub.name)
        for table, read in self.tables:
            found = table.find(stub.resolver)
            if found.which >= 0:
                return function_name(table.name(found.which, read))
        return f"*ABS*+{stub.resolver:#x}"


class JitImage:
    """A perf map, which grows."""

    final = True

    def __init__(self, fd: int) -> None:
        self.fds = [fd]
        self.map = PerfMap()
        self.read: elf.Read = partial(_pread, fd)
        self.again_at = 0.0
        self.seen = 0
        """Up to there nothing more can be learnt: half a line at the end is not read again and again."""
        self.refresh()

    @property
    def nbytes(self) -> int:
        return self.map.nbytes

    def refresh(self) -> None:
        self.again_at = time.monotonic() + _AGAIN_S
        size = self._size()
        until = time.monotonic() + TIME_S / 2
        while size > self.map.taken and time.monotonic() < until:
            before = self.map.taken
            self.map.add(self.read(min(size - before, _PART), before))
            if self.map.taken == before:
                if size - before < _PART:
                    self.seen = size
                    break
                self.map.taken += _PART  # no line is that long

    def _size(self) -> int:
        return min(os.fstat(self.fds[0]).st_size, LARGEST_PERF_MAP)

    def function(self, address: int) -> Named:
        found = self.map.find(address)
        name = b"" if found.which < 0 else function_name(self.map.name(found.which, self.read)).encode()
        return Named(found.start, found.end, name)

    def settled(self, functions: list[Named]) -> bool:
        """Whether nothing can be learnt by reading on."""
        return all(function.name for function in functions) or self._size() <= max(self.seen, self.map.taken)


Image = ElfImage | JitImage


def _numbered(fd: int, request: Request) -> bool:
    """Whether the file has the number that was recorded. Files of overlayfs and btrfs have it on a device of their own, whose
    major number is 0; the opener has looked at those of tenants."""
    told = os.fstat(fd)
    device = os.major(told.st_dev), os.minor(told.st_dev)
    return bool(request.inode) and told.st_ino == request.inode and (not device[0] or device == request.device)


def _pread(fd: int, size: int, offset: int) -> bytes:
    """All of it, as far as the file goes."""
    parts = []
    while size > 0:
        part = os.pread(fd, min(size, 1 << 24), offset)
        if not part:
            break
        parts.append(part)
        size -= len(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


class Reader:
    """Answers requests: those with a file come by the link to the opener, those for files it has by the control socket."""

    def __init__(self, control: socket.socket, link: socket.socket) -> None:
        self._control, self._link = control, link
        self._images: OrderedDict[int, tuple[Image, float]] = OrderedDict()
        self._later: list[Request] = []

    def serve(self, missing: str = "") -> None:
        """`missing`: what of the sandbox could not be had."""
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._link, select.POLLIN)
        self._tell(Reply(Told.READY, 0, missing.encode()))
        while True:
            ready = dict(poll.poll(self._patience_ms()))
            if self._control.fileno() in ready:
                packet = self._control.recv(LARGEST)
                if not packet:
                    return
                self._answer(unpack_request(packet), -1)
            if self._link.fileno() in ready:
                packet, fds, _, _ = socket.recv_fds(self._link, LARGEST, 1)
                if not packet:
                    poll.unregister(self._link)
                    continue
                self._answer(unpack_request(packet), fds[0] if fds else -1)
            self._take_later()
            self._forget()

    def _tell(self, *replies: Reply) -> None:
        for reply in replies:
            self._control.send(reply.pack())

    def _patience_ms(self) -> float | None:
        if self._later:
            return 1000 * _AGAIN_S / 4
        return 10_000 if self._images else None

    def _timed(self, key: int, work: Callable[[], list[Reply]]) -> None:
        """Do work that depends on a tenant's file, and send what it gives; it takes two seconds at most, or all ends."""
        self._tell(Reply(Told.BEGIN, key))
        with timed():
            try:
                replies = work()
            except elf.Malformed as reason:
                replies = self._failed(key, str(reason))
            except MemoryError:
                replies = self._failed(key, "it takes too much memory")
            except OSError as error:
                replies = self._failed(key, f"it cannot be read: {os.strerror(error.errno or 0)}")
            except Exception as error:  # a bug of ours must cost one image, not all
                replies = self._failed(key, f"it cannot be read: {type(error).__name__}")
        self._tell(*replies)

    def _failed(self, key: int, reason: str) -> list[Reply]:
        self._drop(key)
        return [Reply(Told.FAILED, key, reason.encode())]

    def _answer(self, request: Request, fd: int) -> None:
        self._timed(request.key, lambda: self._replies(request, fd))

    def _replies(self, request: Request, fd: int) -> list[Reply]:
        key = request.key
        if request.what in (What.IMAGE, What.PERF_MAP) and fd >= 0:
            self._drop(key)
            try:
                image: Image = ElfImage(fd) if request.what is What.IMAGE else JitImage(fd)
                if isinstance(image, ElfImage) and (why := image.why_another(request)):
                    raise elf.Malformed(why)
            except BaseException:
                os.close(fd)
                raise
            if image.nbytes > _LARGE:
                give_back()
        elif key in self._images:
            image = self._images[key][0]
            if fd >= 0:
                if isinstance(image, ElfImage):
                    image.add_debug(fd)
                else:
                    os.close(fd)
        elif fd >= 0 or request.what in (What.ASK, What.ASK_FINAL):
            if fd >= 0:
                os.close(fd)
            return [Reply(Told.GONE, key)]
        else:
            return [Reply(Told.MISSED, key, b"its file did not arrive")]
        self._images[key] = image, time.monotonic()
        self._images.move_to_end(key)
        if request.what is What.ASK_FINAL and isinstance(image, ElfImage):
            image.final = True
        if not image.final and isinstance(image, ElfImage):
            return [Reply(Told.WANT, key, image.elf.build_id)]
        if isinstance(image, ElfImage) and not image.tables and not image.plt.there:
            return self._failed(key, _NO_SYMBOLS)
        return self._functions(request, image)

    def _functions(self, request: Request, image: Image) -> list[Reply]:
        functions = _each(image, request)
        if isinstance(image, JitImage) and not image.settled(functions):
            if time.monotonic() < image.again_at:
                self._later.append(request)
                return [Reply(Told.LATER, request.key)]
            image.refresh()
            functions = _each(image, request)
        bodies = pack_functions(functions)
        last = Reply(Told.END, request.key)
        if isinstance(image, ElfImage) and not image.tables:  # stubs have names, but that must not be taken for all
            last = Reply(Told.MISSED, request.key, _NO_SYMBOLS.encode())
        return [*(Reply(Told.FUNCTIONS, request.key, body) for body in bodies), last]

    def _take_later(self) -> None:
        now = time.monotonic()
        for request in list(self._later):
            held = self._images.get(request.key)
            if held is None or not isinstance(held[0], JitImage) or held[0].again_at <= now:
                self._later.remove(request)
                self._answer(request._replace(what=What.ASK), -1)

    def _forget(self) -> None:
        """What was not asked for of late, and the oldest where all together is too much."""
        now = time.monotonic()
        size = sum(image.nbytes for image, _ in self._images.values())
        for key in list(self._images):
            image, used = self._images[key]
            small = size <= _MEMORY or len(self._images) == 1
            if now - used < _IDLE_S and small and len(self._images) <= _MOST_IMAGES:
                return
            size -= image.nbytes
            self._timed(key, partial(self._gone, key))
            if image.nbytes > _LARGE:
                give_back()

    def _gone(self, key: int) -> list[Reply]:
        self._drop(key)
        return [Reply(Told.GONE, key)]

    def _drop(self, key: int) -> None:
        image, _ = self._images.pop(key, (None, 0.0))
        if image is not None:
            for fd in image.fds:
                os.close(fd)


def _each(image: Image, request: Request) -> list[Named]:
    """The function of each address; addresses of one function are looked up once."""
    found: list[Named] = []
    for address in sorted(request.addresses):
        if not found or not found[-1].start <= address < found[-1].end:
            found.append(image.function(address))
    return found


def main(arguments: list[str]) -> None:
    parent, control_fd, link_fd = (int(argument) for argument in arguments[:3])
    begin(parent)
    control, link = socket.socket(fileno=control_fd), socket.socket(fileno=link_fd)
    with suppress(BrokenPipeError, ConnectionResetError, Garbled):
        try:
            missing = sandbox.enter()
        except OSError as error:
            control.send(Reply(Told.FAILED, 0, f"it cannot give up its rights: {error.strerror}".encode()).pack())
            return
        Reader(control, link).serve("; ".join(missing))


if __name__ == "__main__":
    main(sys.argv[1:])
