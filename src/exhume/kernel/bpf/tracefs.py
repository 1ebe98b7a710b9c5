"""Tracepoints as tracefs describes them; where tracefs is not mounted, it is mounted for us alone, at no path, until closed."""

import errno
import os
import re
from dataclasses import dataclass
from typing import Final

from exhume.errors import Unreadable
from exhume.kernel.bpf.syscall import Handle, call
from exhume.text import decode

MOUNTS: Final = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")

# Numbers that all architectures share (since 5.2), and their flags: include/uapi/linux/mount.h
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSOPEN_CLOEXEC = _FSMOUNT_CLOEXEC = 1
_FSCONFIG_CMD_CREATE = 6
_MOUNT_ATTRIBUTES = 0xF  # read-only, nosuid, nodev, noexec

_LARGEST = 1 << 20
_FIELD = re.compile(
    rb"\tfield:(?P<declaration>[^;]*);\toffset:(?P<offset>\d{1,9});\tsize:(?P<size>\d{1,9});\tsigned:(?P<signed>[01]);"
)
_NAME = re.compile(rb"(\w+)(?:\[[^\]]*\])?$")


class TracefsError(Unreadable):
    """A tracepoint that cannot be described."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a tracepoint's record. A `__data_loc` field holds where its data is: offset, and length in the upper half."""

    offset: int
    size: int
    signed: bool
    data_loc: bool = False


@dataclass(frozen=True, slots=True)
class Tracepoint:
    """A tracepoint's number, which a reboot may change, and the layout of its record."""

    name: str
    id: int
    fields: dict[str, Field]

    def field(self, name: str) -> Field:
        found = self.fields.get(name)
        if found is None:
            raise TracefsError(f"the tracepoint {self.name} of this kernel has no field {name}")
        return found


class Tracefs(Handle):
    """An open tracefs."""

    def __init__(self, mounts: tuple[str, ...] = MOUNTS) -> None:
        super().__init__(_open_mounted(mounts))
        if self._fd < 0:
            super().__init__(_mount_detached(mounts))

    def tracepoint(self, category: str, name: str) -> Tracepoint:
        path = f"events/{category}/{name}/format"
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self.fd)
        except FileNotFoundError:
            raise TracefsError(f"this kernel has no tracepoint {category}:{name}") from None
        except OSError as error:
            raise TracefsError(f"tracefs: {path} cannot be opened: {error.strerror}") from None
        with open(fd, "rb") as file:
            return parse_format(f"{category}:{name}", file.read(_LARGEST))


def parse_format(name: str, raw: bytes) -> Tracepoint:
    """A `format` file of tracefs."""
    number = re.search(rb"^ID: (\d{1,9})$", raw, re.MULTILINE)
    if number is None:
        raise TracefsError(f"tracefs does not say the number of the tracepoint {name}")
    fields = {}
    for found in _FIELD.finditer(raw):
        declaration = found["declaration"].strip()
        field = _NAME.search(declaration)
        if field is not None:
            fields[decode(field[1])] = Field(
                int(found["offset"]), int(found["size"]), found["signed"] == b"1", declaration.startswith(b"__data_loc")
            )
    return Tracepoint(name, int(number[1]), fields)


def _open_mounted(mounts: tuple[str, ...]) -> int:
    for path in mounts:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            os.stat("events", dir_fd=fd)
        except OSError:
            os.close(fd)
            continue
        return fd
    return -1


def _mount_detached(mounts: tuple[str, ...]) -> int:
    context = -1
    try:
        context = call(_FSOPEN, b"tracefs", _FSOPEN_CLOEXEC)
        call(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0)
        return call(_FSMOUNT, context, _FSMOUNT_CLOEXEC, _MOUNT_ATTRIBUTES)
    except OSError as error:
        reasons = {
            errno.ENODEV: "the kernel was built without tracefs",
            errno.EPERM: "it takes CAP_SYS_ADMIN to mount it",
            errno.ENOSYS: "this kernel has no fsmount(2)",
        }
        why = reasons.get(error.errno or 0, error.strerror)
        raise TracefsError(f"tracefs is mounted neither at {' nor at '.join(mounts)}, and not by us: {why}") from None
    finally:
        if context >= 0:
            os.close(context)
