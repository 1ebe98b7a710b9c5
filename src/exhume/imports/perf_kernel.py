"""Whether a perf.data was recorded by the kernel that runs here: only then do its symbols fit the addresses in it."""

import os
import struct
import time
from typing import Final

from exhume.errors import Unreadable
from exhume.host.root import Root, unreadable

_NOTE = struct.Struct("<III")
_GNU_BUILD_ID: Final = 3  # NT_GNU_BUILD_ID of elf.h
_HEAD: Final = 1 << 16
# Where kernels lie that were not moved at boot: __START_KERNEL of x86-64, KIMAGE_VADDR of arm64 by VA_BITS and release.
_LINKED_AT: Final = frozenset(
    (0xFFFFFFFF81000000, 0xFFFF800080000000, 0xFFFF800080010000, 0xFFFF800008000000, 0xFFFF800008010000, 0xFFFF800010010000)
)
WHAT_TO_DO: Final = "import it on the node it was recorded on, or run perf script there and import its text"


class NowhereRoot(Root):
    """Answers nothing: the processes of a file are not those of this machine."""

    def __init__(self) -> None:
        super().__init__("/dev/null/nowhere")

    def read(self, name: str, largest: int = 0) -> bytes:
        raise Unreadable(f"/{name} is not of this machine")


class Alive:
    """Whether processes of a file still run here, and their numbers are not those of others by now."""

    def __init__(self, root: Root, clock: int) -> None:
        """`clock` is that of the file: -1 for perf's own, or a clockid_t."""
        self._root = root
        self._behind_ns = 0
        if clock in (-1, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW):  # these stand still while the machine is suspended
            self._behind_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        self._known = clock in (-1, time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW, time.CLOCK_BOOTTIME)

    def __call__(self, pid: int, until: int) -> bool:
        """One that has this number, and began before that time."""
        from exhume.sources.processes import parse_stat
        from exhume.sources.sampling.tasks import TICK_NS

        try:
            found = parse_stat(self._root.read(f"proc/{pid}/stat", 4096)) if self._known else None
        except Unreadable:
            return False
        return found is not None and found.start * TICK_NS - self._behind_ns <= until


def build_id_of(notes: bytes) -> bytes:
    """The build id among ELF notes, as /sys/kernel/notes has them; b"" if there is none."""
    at = 0
    while at + _NOTE.size <= len(notes):
        name_size, size, kind = _NOTE.unpack_from(notes, at)
        name_at = at + _NOTE.size
        value_at = name_at + (name_size + 3 & ~3)
        if kind == _GNU_BUILD_ID and notes[name_at : name_at + name_size] == b"GNU\0":
            return notes[value_at : value_at + size]
        at = value_at + (size + 3 & ~3)
    return b""


def address_of(root: Root, name: bytes) -> int:
    """Of a symbol that is among the first in kallsyms, as _text and _stext are; 0 if it is not shown."""
    try:
        with open(root.open("proc/kallsyms", os.O_RDONLY), "rb") as file:
            head = file.read(_HEAD)
    except OSError as error:
        raise unreadable("proc/kallsyms", error) from None
    for line in head.split(b"\n"):
        words = line.split()
        if len(words) == 3 and words[2] == name:
            return int(words[0], 16)
    return 0


def why_other(build_id: bytes, release: str, symbol: bytes, address: int, root: Root) -> str:
    """Why the kernel here is not the recorded one, as a sentence's end; "" if it is.

    `symbol` and `address` are of perf's record of the kernel: the boot has put it there (KASLR), so another boot shows.
    """
    try:
        own = build_id_of(root.read("sys/kernel/notes", _HEAD))
        own_release = root.read("proc/sys/kernel/osrelease", 256).decode("ascii", "replace").strip()
        if build_id and own and own[: len(build_id)] != build_id:
            return "another kernel runs here: its build id is not the recorded one"
        if not build_id and release and release != own_release:
            return f"another kernel runs here: {own_release}"
        if not build_id and not release and address in _LINKED_AT:
            return "nothing in the file says which kernel it was"
        if not address or not symbol:
            return "the file does not say where the kernel was (kernel.kptr_restrict hid it from perf)"
        here = address_of(root, symbol)
    except Unreadable as error:
        return str(error)
    if not here:
        return "/proc/kallsyms shows no addresses: kernel.kptr_restrict hides them, or it takes root"
    # A file that perf could not finish has neither build id nor release: an address that KASLR drew tells as well.
    return "" if here == address else "this machine was booted again since: its kernel is at another address"
