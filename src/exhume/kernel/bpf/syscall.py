"""bpf(2) and its neighbours through ctypes: numbers, attributes, file descriptors that close themselves, errors for people."""

import ctypes
import errno
import os
import resource
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Final, Self

from exhume.errors import Unreadable
from exhume.kernel.bpf import privileges

ENOTSUPP: Final = 524  # include/linux/errno.h; the kernel lets it out to user space here and there

# bpf(2) gives up with EAGAIN when a signal comes in the middle of a verification; libbpf tries as often.
_TRIES = 5
_LOG_SIZES = (1 << 20, (1 << 24) - 1)  # the second is the largest that any kernel takes (bpf_verifier_log_attr_valid)

Buffer = ctypes.Array[ctypes.c_char]


class Command(IntEnum):
    """enum bpf_cmd in include/uapi/linux/bpf.h"""

    MAP_CREATE = 0
    MAP_LOOKUP_ELEM = 1
    MAP_UPDATE_ELEM = 2
    MAP_DELETE_ELEM = 3
    MAP_GET_NEXT_KEY = 4
    PROG_LOAD = 5
    PROG_TEST_RUN = 10
    PROG_GET_NEXT_ID = 11
    MAP_GET_NEXT_ID = 12
    OBJ_GET_INFO_BY_FD = 15
    RAW_TRACEPOINT_OPEN = 17
    MAP_LOOKUP_BATCH = 24
    LINK_CREATE = 28
    ENABLE_STATS = 32
    ITER_CREATE = 33


class MapKind(IntEnum):
    """enum bpf_map_type in include/uapi/linux/bpf.h"""

    HASH = 1
    ARRAY = 2
    PERCPU_HASH = 5
    PERCPU_ARRAY = 6
    STACK_TRACE = 7
    LRU_HASH = 9
    LRU_PERCPU_HASH = 10


class ProgramKind(IntEnum):
    """enum bpf_prog_type in include/uapi/linux/bpf.h"""

    KPROBE = 2
    TRACEPOINT = 5
    PERF_EVENT = 7
    RAW_TRACEPOINT = 17
    TRACING = 26


@dataclass(frozen=True, slots=True)
class Architecture:
    """Numbers of system calls."""

    bpf: int
    perf_event_open: int


_ARCHITECTURES = {
    # arch/x86/entry/syscalls/syscall_64.tbl
    "x86_64": Architecture(bpf=321, perf_event_open=298),
    # include/uapi/asm-generic/unistd.h
    "aarch64": Architecture(bpf=280, perf_event_open=241),
}


class BpfError(Unreadable):
    """The kernel did not do what was asked through bpf(2) or perf_event_open(2)."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.errno = number


class Rejected(BpfError):
    """The verifier did not accept a program. The end of its log is a note of the exception, all of it in `log`."""

    def __init__(self, message: str, number: int, log: str) -> None:
        super().__init__(message, number)
        self.log = log


class Handle:
    """Something of the kernel's that lives as long as its file descriptor."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @property
    def fd(self) -> int:
        if self._fd < 0:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@cache
def architecture() -> Architecture:
    machine = os.uname().machine
    found = _ARCHITECTURES.get(machine)
    if found is None or sys.maxsize < 1 << 32:
        bits = "" if sys.maxsize >> 32 else " in a 32-bit process"
        raise BpfError(f"BPF programs are made for {' and '.join(_ARCHITECTURES)} here, not for {machine}{bits}")
    return found


_libc = ctypes.CDLL(None, use_errno=True)
_syscall = _libc.syscall
_syscall.restype = ctypes.c_long


Argument = int | bytes | Buffer | ctypes.c_long | None


def converted(*arguments: Argument) -> list[Argument]:
    """Every number in 64 bits, as the kernel reads them."""
    return [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]


def call(*arguments: Argument) -> int:
    """A system call: its number and what it takes."""
    result: int = _syscall(*converted(*arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, strerror(code))
    return result


def strerror(code: int) -> str:
    return "Operation not supported by this kernel" if code == ENOTSUPP else os.strerror(code)


def attributes(layout: str, *values: int | bytes) -> Buffer:
    """A union bpf_attr, in a buffer that the kernel may answer in."""
    packed = struct.pack("=" + layout, *values)
    return ctypes.create_string_buffer(packed, len(packed))


def address(buffer: Buffer) -> int:
    """For an attribute that points; whoever calls keeps the buffer alive until the system call is over."""
    return ctypes.addressof(buffer)


def bpf(command: Command, attr: Buffer) -> int:
    """bpf(2), again if a signal disturbed it. Raises OSError: only the caller knows what its errors mean."""
    return Repeatable(command, attr)()


class Repeatable:
    """bpf(2) that is done again and again with the same attributes: what has to be converted for it is converted once. The
    buffers that the attributes point to live as long as it does."""

    def __init__(self, command: Command, attr: Buffer, *pointed_to: Buffer) -> None:
        self._arguments = converted(architecture().bpf, command, attr, len(attr))
        self._pointed_to = pointed_to

    def __call__(self) -> int:
        for attempt in range(_TRIES):
            try:
                return call(*self._arguments)
            except OSError as error:
                if error.errno not in (errno.EAGAIN, errno.EINTR) or attempt == _TRIES - 1:
                    raise
        raise AssertionError("not reached")


def create_map(kind: MapKind, key_size: int, value_size: int, entries: int, flags: int = 0, name: str = "exhume") -> int:
    """The file descriptor of a new map; OSError as bpf(2) has it, for those who only want to know whether it can be had."""
    return _create(
        Command.MAP_CREATE,
        attributes("IIIIIII16s", kind, key_size, value_size, entries, flags, 0, 0, _object_name(name)),
    )


def load_program(
    kind: ProgramKind, code: bytes, log: Buffer | None = None, name: str = "exhume", attach: tuple[int, int] | None = None
) -> int:
    """The file descriptor of a new program; OSError as bpf(2) has it, the verifier's reasons go to `log`. `attach` is for
    programs that are checked against what they will hang on: the kind of attachment, and its number in BTF."""
    instructions = ctypes.create_string_buffer(code, len(code))
    # Most helpers that read kernel memory are for programs under the GPL, which this bytecode is then declared to be.
    licence = ctypes.create_string_buffer(b"GPL")
    log_part = (1, len(log), address(log)) if log is not None else (0, 0, 0)
    count = len(code) // 8
    first = (kind, count, address(instructions), address(licence), *log_part, 0, 0, _object_name(name))
    if attach is None:
        return _create(Command.PROG_LOAD, attributes("IIQQIIQII16s", *first))
    # prog_ifindex, expected_attach_type, what is said of the program's own BTF, attach_btf_id
    return _create(Command.PROG_LOAD, attributes("IIQQIIQII16s" + "II36xI4x", *first, 0, *attach))


def verifier_log(kind: ProgramKind, code: bytes, attach: tuple[int, int] | None = None) -> str:
    """Have a program refused once more, this time with reasons; empty if there are none, or if it is accepted after all."""
    for size in _LOG_SIZES:
        log = ctypes.create_string_buffer(size)
        try:
            os.close(load_program(kind, code, log, attach=attach))
        except OSError as error:
            if error.errno != errno.ENOSPC:  # before 6.4 a log that is too long is an error, and loses its end
                return log.value.decode("utf-8", "backslashreplace")
        else:
            return ""
    return log.value.decode("utf-8", "backslashreplace")


def error(what: str, cause: OSError) -> BpfError:
    """The sentence for people: what failed, and why it is likely to have failed."""
    code = cause.errno or 0
    if code in (errno.EPERM, errno.EACCES):
        return BpfError(f"{what} is not permitted: {privileges.reason()}", code)
    if code == errno.ENOSYS:
        return BpfError(f"{what} failed: the kernel was built without CONFIG_BPF_SYSCALL, or a sandbox hides it", code)
    return BpfError(f"{what} failed: {strerror(code)}", code)


def _object_name(name: str) -> bytes:
    # BPF_OBJ_NAME_LEN is 16 with its end; bpf_obj_name_cpy takes letters, digits, _ and .
    return "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in name)[:15].encode()


def _create(command: Command, attr: Buffer) -> int:
    try:
        return bpf(command, attr)
    except OSError as refused:
        if refused.errno != errno.EPERM:
            raise
    # Before 5.11 (commit 97306be45fbe ff.) maps and programs count as locked memory, and too much of it gives EPERM.
    with _memlock_raised():
        return bpf(command, attr)


@contextmanager
def _memlock_raised() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    for wanted in ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (before[1], before[1])):
        try:
            resource.setrlimit(resource.RLIMIT_MEMLOCK, wanted)
            break
        except (OSError, ValueError):  # only CAP_SYS_RESOURCE may go beyond the hard limit
            continue
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, before)
