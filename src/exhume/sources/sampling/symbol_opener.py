"""The child that opens tenants' files with our privileges and reads none of them: it hands the descriptor to the reader.

A path is resolved inside the root of a process that maps it. Whether it is a regular file, of a size and a file system that
may be read, and the very file that is mapped, is looked at on an O_PATH descriptor; only then is it opened, so that no FIFO,
device or trace_pipe ever is.
"""

import ctypes
import errno
import os
import socket
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple

from exhume.errors import Unreadable
from exhume.host.paths import decode, open_in
from exhume.host.quantities import size
from exhume.sources.sampling.symbol_child import begin, timed
from exhume.sources.sampling.symbol_messages import LARGEST, Garbled, Reply, Request, Told, What, unpack_request

LARGEST_FILE: Final = 16 << 30
_LARGEST_MAPS: Final = 16 << 20
_DELETED: Final = b" (deleted)"
_GONE: Final = (errno.ENOENT, errno.ESRCH)
# File systems whose files are not data but doors into the kernel; include/uapi/linux/magic.h and fs/*/.
_DOORS: Final = {
    0x9FA0: "proc", 0x62656572: "sysfs", 0x64626720: "debugfs", 0x74726163: "tracefs", 0x27E0EB: "cgroup",
    0x63677270: "cgroup2", 0x73636673: "securityfs", 0xCAFE4A11: "bpf", 0x6165676C: "pstore", 0xDE5E81E4: "efivarfs",
    0xF97CFF8C: "selinuxfs", 0x62656570: "configfs", 0x42494E4D: "binfmt_misc", 0x67596969: "rpc_pipefs", 0x43415D53: "smackfs",
    0x65735543: "fusectl", 0x6E736673: "nsfs", 0x19800202: "mqueue",
}  # fmt: skip

_libc = ctypes.CDLL(None, use_errno=True)


class Missed(Exception):
    """Nothing could be opened now; another process may still lead there."""


class Denied(Unreadable):
    """It may be opened, by a process with more rights."""


class Mapping(NamedTuple):
    """A line of /proc/PID/maps."""

    start: int
    end: int
    device: tuple[int, int]
    inode: int
    path: bytes


class Opener:
    """Opens what requests name. `root` is the node's root directory, where its /proc is; `cache` is where perf keeps files
    that it recorded (perf-buildid-cache(1)), "" to leave that alone."""

    def __init__(self, root: str = "/", cache: str = "") -> None:
        self._root = os.fsencode(root)
        self._cache = os.fsencode(cache)

    def open(self, request: Request) -> int:
        """The file descriptor; raises Missed, or Unreadable where it shall never be opened."""
        if self._cache and request.what is What.IMAGE and request.build_id:
            with suppress(Missed, Unreadable):  # the very file, whatever is at its path by now
                return _open_checked(self._in_own(self._cache + _cached_path(request.build_id)))
        missed: Missed | None = None
        refused: Unreadable | None = None
        for pid in request.pids:
            try:
                return self._open_by(pid, request)
            except Missed as reason:
                missed = reason
            except Unreadable as reason:
                refused = reason
        # Short processes are gone when their names are asked for. Most were of the node's own root.
        with suppress(Missed, Unreadable):
            if request.what is What.DEBUG:
                return _open_checked(self._in_own(_debug_path(request.path)))
            if request.what is What.IMAGE and (request.build_id or (request.inode and any(request.device))):
                return self._open_own(request)
            if request.what is What.PERF_MAP and request.path:
                return self._open_left_map(request.path)
        raise missed or refused or Missed("no process that maps it is left")

    def _at(self, name: str) -> bytes:
        return os.path.join(self._root, os.fsencode(name))

    def _open_by(self, pid: int, request: Request) -> int:
        if request.what is What.IMAGE and request.path.endswith(_DELETED):
            return self._open_mapped(pid, request)
        with self._root_of(pid) as root:
            if request.what is What.PERF_MAP:
                return self._open_perf_map(pid, root)
            if request.what is What.DEBUG:
                return _open_checked(_path_in(root, _debug_path(request.path)))
            return self._open_image(pid, root, request)

    @contextmanager
    def _root_of(self, pid: int) -> Iterator[int]:
        try:
            root = os.open(self._at(f"proc/{pid}/root"), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise _refused("the process", error) from None
        try:
            yield root
        finally:
            os.close(root)

    def _open_image(self, pid: int, root: int, request: Request) -> int:
        try:
            fd = _path_in(root, request.path)
        except (Missed, Unreadable):
            return self._open_mapped(pid, request)
        told = os.fstat(fd)
        if request.inode and not _same(request, told.st_ino, _device(told)):
            # Another file, or one of overlayfs or btrfs, which have numbers of their own. The mapping itself cannot be forged.
            try:
                mapped = self._open_mapped(pid, request, told)
            except Unreadable:
                if told.st_ino == request.inode:
                    return _open_checked(fd)
                os.close(fd)
                raise
            except Missed:
                os.close(fd)
                raise
            os.close(fd)
            return mapped
        return _open_checked(fd)

    def _in_own(self, path: bytes) -> int:
        root = os.open(self._root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            return _path_in(root, path)
        finally:
            os.close(root)

    def _open_own(self, request: Request) -> int:
        fd = self._in_own(request.path)
        told = os.fstat(fd)
        if not request.build_id and not _same(request, told.st_ino, _device(told)):  # a build id is what the reader looks at
            os.close(fd)
            raise Missed("another file has its place")
        return _open_checked(fd)

    def _open_mapped(self, pid: int, request: Request, at_path: os.stat_result | None = None) -> int:
        """By the mapping itself, which leads to the file even when its path does not."""
        try:
            with open(self._at(f"proc/{pid}/maps"), "rb") as file:
                mappings = parse_maps(file.read(_LARGEST_MAPS))
        except OSError as error:
            raise _refused("the process", error) from None
        same = [m for m in mappings if _same(request, m.inode, m.device)]
        # Of overlayfs perf has the numbers of the file below; maps, since Linux 6.8, those of overlayfs; and stat(2) another
        # device for each layer. Such devices are no real ones, and have the major number 0.
        if at_path is not None:
            major = os.major(at_path.st_dev)
            same += [m for m in mappings if (m.inode, m.device[0]) == (at_path.st_ino, major)]
        same += [m for m in mappings if m.path == request.path]
        for mapping in same:
            try:
                name = self._at(f"proc/{pid}/map_files/{mapping.start:x}-{mapping.end:x}")
                return _open_checked(os.open(name, os.O_PATH | os.O_CLOEXEC))
            except OSError as error:
                raise _refused("the mapped file", error) from None
        raise Missed("the file at its path is another by now, or was deleted, and no process maps the old one")

    def _open_perf_map(self, pid: int, root: int) -> int:
        try:
            with open(self._at(f"proc/{pid}/status"), "rb") as file:
                status = file.read(1 << 16)
        except OSError as error:
            raise _refused("the process", error) from None
        inner, uids = parse_status(status)
        fd = _path_in(root, b"/tmp/perf-%d.map" % inner)
        if os.fstat(fd).st_uid not in (0, *uids):
            os.close(fd)
            raise Unreadable("its perf map belongs to another user")
        return _open_checked(fd)

    def _open_left_map(self, path: bytes) -> int:
        """The perf map of a process that ended. Anybody may have put it there: one of root or of our own user is believed,
        as perf does (dso__load in tools/perf/util/symbol.c)."""
        fd = self._in_own(path)
        if os.fstat(fd).st_uid not in (0, os.getuid()):
            os.close(fd)
            raise Unreadable("its perf map belongs to another user")
        return _open_checked(fd)


def parse_maps(raw: bytes) -> list[Mapping]:
    """The executable mappings of files."""
    found = []
    for line in raw.split(b"\n"):
        words = line.split(None, 5)
        if len(words) == 6 and words[1][2:3] == b"x" and words[4].isdigit() and words[4] != b"0":
            try:
                start, end = (int(part, 16) for part in words[0].split(b"-"))
                major, minor = (int(part, 16) for part in words[3].split(b":"))
            except ValueError:
                continue
            found.append(Mapping(start, end, (major, minor), int(words[4]), words[5]))
    return found


def parse_status(raw: bytes) -> tuple[int, tuple[int, ...]]:
    """What the process calls itself, in its own PID namespace, and its users."""
    inner, uids = 0, ()  # type: tuple[int, tuple[int, ...]]
    for line in raw.split(b"\n"):
        name, _, rest = line.partition(b":")
        numbers = rest.split()
        if name == b"NSpid" and numbers and numbers[-1].isdigit():
            inner = int(numbers[-1])
        elif name == b"Uid":
            uids = tuple(int(number) for number in numbers[:4] if number.isdigit())
        elif name == b"Pid" and not inner and numbers and numbers[0].isdigit():
            inner = int(numbers[0])
    return inner, uids


def _same(request: Request, inode: int, device: tuple[int, int]) -> bool:
    return inode == request.inode and (device == request.device or not any(request.device))


def _device(told: os.stat_result) -> tuple[int, int]:
    return os.major(told.st_dev), os.minor(told.st_dev)


def _debug_path(build_id: bytes) -> bytes:
    name = build_id.hex().encode()
    return b"/usr/lib/debug/.build-id/" + name[:2] + b"/" + name[2:] + b".debug"


def _cached_path(build_id: bytes) -> bytes:
    name = build_id.hex().encode()
    return b"/.build-id/" + name[:2] + b"/" + name[2:] + b"/elf"


def _path_in(root: int, path: bytes) -> int:
    if not path.startswith(b"/") or b"\0" in path:
        raise Missed("it has no path")
    try:
        return open_in(root, decode(path), os.O_PATH)
    except OSError as error:
        raise _refused("the file", error) from None


def _open_checked(place: int) -> int:
    """Open for reading what an O_PATH descriptor leads to, if it is what may be opened. The descriptor is taken over."""
    try:
        told = os.fstat(place)
        if not stat.S_ISREG(told.st_mode):
            raise Unreadable("it is not a regular file")
        if told.st_size > LARGEST_FILE:
            raise Unreadable(f"it is larger than {size(LARGEST_FILE)}")
        door = _DOORS.get(_file_system(place))
        if door is not None:
            raise Unreadable(f"it is a file of {door}")
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        name = f"/proc/self/fd/{place}"
        try:
            return os.open(name, flags | os.O_NOATIME)
        except PermissionError:
            return os.open(name, flags)
    except OSError as error:
        raise _refused("the file", error) from None
    finally:
        os.close(place)


def _file_system(fd: int) -> int:
    room = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes on 64-bit machines and begins with f_type, a long
    if _libc.fstatfs(fd, room) != 0:
        return 0
    return ctypes.c_long.from_buffer(room).value & 0xFFFFFFFF


_NEEDED: Final = {
    "the process": "CAP_SYS_PTRACE",  # proc(5): PTRACE_MODE_READ
    "the mapped file": "CAP_CHECKPOINT_RESTORE",  # proc_map_files_get_link in fs/proc/base.c
    "the file": "CAP_DAC_READ_SEARCH",
}


def _refused(what: str, error: OSError) -> Missed | Unreadable:
    if error.errno in _GONE:
        return Missed(f"{what} is gone")
    if error.errno in (errno.EACCES, errno.EPERM):
        return Denied(f"{what} is not readable without {'root' if os.geteuid() else _NEEDED[what]}")
    return Unreadable(f"{what} cannot be opened: {os.strerror(error.errno or 0)}")


def serve(control: socket.socket, link: socket.socket, opener: Opener) -> None:
    """Answer requests until the recorder is gone."""
    control.send(Reply(Told.READY, 0).pack())
    while packet := control.recv(LARGEST):
        request = unpack_request(packet)
        control.send(Reply(Told.BEGIN, request.key).pack())
        fd = -1
        with timed():
            try:
                fd = opener.open(request)
                reply = Reply(Told.OPENED, request.key)
            except Missed as reason:
                reply = Reply(Told.MISSED, request.key, str(reason).encode())
            except Unreadable as reason:
                told = Told.DENIED if isinstance(reason, Denied) else Told.FAILED
                reply = Reply(told, request.key, str(reason).encode())
        control.send(reply.pack())
        if fd >= 0:
            socket.send_fds(link, [packet], [fd])  # waits while the reader is busy with what came before
            control.send(Reply(Told.BEGIN, request.key).pack())
            with timed():
                os.close(fd)  # FUSE asks its server even here
            control.send(Reply(Told.CLOSED, request.key).pack())


def main(arguments: list[str]) -> None:
    (parent, control_fd, link_fd), (root, cache) = map(int, arguments[:3]), arguments[3:5]
    begin(parent)
    control, link = socket.socket(fileno=control_fd), socket.socket(fileno=link_fd)
    with suppress(BrokenPipeError, ConnectionResetError, Garbled):
        serve(control, link, Opener(root, cache))


if __name__ == "__main__":
    main(sys.argv[1:])
