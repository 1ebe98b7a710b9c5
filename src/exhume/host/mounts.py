"""What is mounted where on the node, by the kernel's own device number: the way from an inode back to its file system."""

import os
import re
from dataclasses import dataclass

from exhume.host.root import Root

_STACKED = frozenset({b"overlay", b"aufs", b"ecryptfs"})
_OCTAL = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    device: tuple[int, int]
    """Major and minor number of the file system, st_dev of its files (except on btrfs)."""
    kind: str
    root: str
    """Which of its directories is mounted: `/` unless it is a bind mount."""
    point: str


def mounts(root: Root) -> tuple[Mount, ...]:
    return parse_mounts(root.read(f"{root.proc_self()}/mountinfo"))


def devices_by_mount(raw: bytes) -> dict[int, tuple[int, int] | None]:
    """Major and minor number of each mount of a mountinfo file, by the mount's own number. None for a stacked file system:
    the pages of its files are those of files of another one."""
    found: dict[int, tuple[int, int] | None] = {}
    for line in raw.split(b"\n"):
        number, _, device, *_ = (*line.split(b" ", 3), b"", b"", b"")
        major, _, minor = device.partition(b":")
        if all(part.isdigit() and len(part) < 11 for part in (number, major, minor)):
            kind = line.partition(b" - ")[2].split(b" ", 1)[0]
            found[int(number)] = None if kind in _STACKED else (int(major), int(minor))
    return found


def parse_mounts(raw: bytes) -> tuple[Mount, ...]:
    """Lines of mountinfo (show_mountinfo in fs/proc_namespace.c); what does not parse is passed over."""
    found = []
    for line in raw.split(b"\n"):
        before, separator, after = line.partition(b" - ")
        left, right = before.split(b" "), after.split(b" ")
        major, colon, minor = left[2].partition(b":") if len(left) >= 6 else (b"", b"", b"")
        if not separator or not colon or not (major.isdigit() and minor.isdigit()) or len(major + minor) > 12:
            continue
        kind, inner, point = (os.fsdecode(_OCTAL.sub(_character, field)) for field in (right[0], left[3], left[4]))
        if "\0" not in point:
            found.append(Mount((int(major), int(minor)), kind, inner, point))
    return tuple(found)


def _character(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8) & 0xFF])
