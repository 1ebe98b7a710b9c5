"""A disk image as a Tree: its partitions are looked through for an ext file system with a root, which is read as it lies."""

import stat
from collections import OrderedDict
from typing import Final

from exhume.errors import ExhumeError, UsageError
from exhume.host.paths import LONGEST, decode, resolve
from exhume.host.tree import LARGEST, MOST_NAMES, Entry, beyond, complain
from exhume.image.blocks import Blocks, Part, blocks_of
from exhume.image.ext4 import MOUNT, ROOT, Ext4, Inode, is_ext
from exhume.image.partitions import partitions
from exhume.image.streams import Damaged
from exhume.text import from_path, printable

_MOST_DIRECTORY: Final = 64 << 20  # bytes of a directory that are read: ext4's entries take 12 and up
_MOST_CACHED: Final = 1 << 18  # names of directories, together
_MOST_ENTRIES: Final = 1 << 14
_CONTENT: Final = frozenset(("/etc", "/usr", "/bin", "/sbin"))

# Where a file system, or what is under one, has its mark (libblkid's superblocks and the formats' own descriptions).
_MARKS: Final = (
    (0, b"XFSB", "XFS"),
    (65536 + 64, b"_BHRfS_M", "Btrfs"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0, b"LUKS\xba\xbe", "an encrypted LUKS volume"),
    (0, b"hsqs", "SquashFS"),
    (1024, b"\xe2\xe1\xf5\xe0", "EROFS"),
    (0x8001, b"CD001", "ISO 9660"),
    (1024, b"\x10\x20\xf5\xf2", "F2FS"),
    (4096, b"\xfc\x4e\x2b\xa9", "Linux RAID"),
    (82, b"FAT32", "FAT"),
    (54, b"FAT", "FAT"),
    (4086, b"SWAPSPACE2", "swap"),
    (0, b"KDMV", "a VMDK image"),
    (0, b"conectix", "a VHD image"),
    (0, b"vhdxfile", "a VHDX image"),
)


class Disk:
    """A Tree (host/tree.py) of an ext2, ext3 or ext4 file system."""

    live = False

    def __init__(self, name: str, files: Ext4, most_names: int = MOST_NAMES) -> None:
        self.name = name
        self.troubles: list[str] = []
        self._files = files
        self._most_names = most_names
        self._directories: OrderedDict[int, dict[bytes, int]] = OrderedDict()
        self._cached = 0
        self._numbers: dict[str, int] = {}
        self._entries: dict[int, Entry] = {}
        if files.cut_off:
            complain(self.troubles, "Its end cannot be read: the disk is smaller than the file system that is on it.")
        if files.dirty:
            complain(self.troubles, "Its journal holds writes that are not in their places yet; they were not read.")

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        found = resolve(path, self._itself, follow)
        return found[1] if found else None

    def real(self, path: str) -> str | None:
        found = resolve(path, self._itself)
        return found[0] if found else None

    def names(self, path: str) -> list[str]:
        found = resolve(path, self._itself)
        if found is None or found[1].kind != "directory":
            return []
        return sorted(decode(name) for name in self._names(found[0], self._number(found[0])))

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        found = resolve(path, self._itself)
        if found is None or found[1].kind != "file":
            return None
        if found[1].size > largest >= LARGEST:
            self._say(path, f"has {beyond(found[1].size, largest)}")
        try:
            return self._files.content(self._files.inode(self._number(found[0])), largest)
        except Damaged as error:
            self._say(path, f"cannot be read: {error}.")
            return None

    def _itself(self, path: str) -> Entry | None:
        """What is at a path that has no link on its way."""
        number = self._number(path)
        if not number:
            return None
        if number not in self._entries:
            if len(self._entries) >= _MOST_ENTRIES:
                self._entries.clear()
            try:
                self._entries[number] = self._entry(self._files.inode(number))
            except Damaged as error:
                self._say(path, f"cannot be read: {error}.")
                return None
        return self._entries[number]

    def _entry(self, inode: Inode) -> Entry:
        mode = stat.S_IMODE(inode.mode)
        if stat.S_ISREG(inode.mode):
            return Entry("file", mode, inode.size)
        if stat.S_ISDIR(inode.mode):
            return Entry("directory", mode)
        if stat.S_ISLNK(inode.mode):
            short = inode.size < len(inode.area)  # a longer one has a block of its own
            target = inode.area[: inode.size] if short else self._files.content(inode, LONGEST)
            return Entry("link", mode, 0, decode(target.partition(b"\0")[0]))
        return Entry("other", mode)

    def _number(self, path: str) -> int:
        """The inode's; 0 if there is none. The way to a directory is remembered, files are asked of it."""
        parent, _, name = path.rpartition("/")
        if not name:
            return ROOT
        above = self._numbers.get(parent, 0)
        if not above:
            above, here = ROOT, ""
            for part in parent.split("/")[1:]:
                above = self._names(here, above).get(part.encode("utf-8", "surrogateescape"), 0)
                here += "/" + part
                if not above:
                    return 0
            if len(self._numbers) > _MOST_CACHED // 64:
                self._numbers.clear()
            self._numbers[parent] = above
        return self._names(parent, above).get(name.encode("utf-8", "surrogateescape"), 0)

    def _names(self, path: str, number: int) -> dict[bytes, int]:
        if number in self._directories:
            self._directories.move_to_end(number)
            return self._directories[number]
        found: dict[bytes, int] = {}
        try:
            inode = self._files.inode(number)
            if stat.S_ISDIR(inode.mode):
                for name, at in self._files.names(inode, _MOST_DIRECTORY):
                    if len(found) >= self._most_names:
                        self._say(path or "/", f"holds more than {self._most_names:,} names; the first of them were read.")
                        break
                    found[name] = at
        except Damaged as error:
            self._say(path or "/", f"cannot be read: {error}.")
        self._directories[number] = found
        self._cached += len(found)
        while self._cached > _MOST_CACHED and len(self._directories) > 1:
            self._cached -= len(self._directories.popitem(last=False)[1])
        return found

    def _say(self, path: str, sentence: str) -> None:
        complain(self.troubles, f"{printable(from_path(path))} {sentence}")


def open_disk(name: str, fd: int) -> Disk:
    disk = blocks_of(fd)
    whole = is_ext(disk)
    parts: list[tuple[str, Blocks]] = [("the whole of it", disk)]
    if not whole:
        parts = [(f"partition {one.number}", Part(disk, one.begin, one.size)) for one in partitions(disk)] or parts
    seen: list[str] = []
    roots: list[tuple[str, Disk]] = []
    for where, blocks in parts:
        if not is_ext(blocks):
            seen.append(f"{where} is {mark}" if (mark := _mark(blocks)) else f"{where} is not known")
            continue
        try:
            tree = Disk(name, Ext4(blocks))
        except ExhumeError as error:
            seen.append(f"{where}: {error}")
            continue
        if _CONTENT.intersection("/" + one for one in tree.names("/")):
            roots.append((where, tree))
        else:
            seen.append(f"{where} is ext without a root on it")
    if not roots:
        if len(parts) == 1 and not whole and not _mark(disk):
            raise UsageError("it is no directory, no archive and no disk image that is known here")
        raise UsageError(f"no ext file system with a root is on it ({'; '.join(seen[:8])}); {MOUNT}")
    where, tree = max(roots, key=lambda one: len(_CONTENT.intersection("/" + name for name in one[1].names("/"))))
    others = [other for other, _ in roots if other != where]
    if others:
        complain(tree.troubles, f"The root was taken from {where}; {', '.join(others)} may hold another one.")
    return tree


def _mark(blocks: Blocks) -> str:
    return next((name for at, mark, name in _MARKS if blocks.read(at, len(mark)) == mark), "")
