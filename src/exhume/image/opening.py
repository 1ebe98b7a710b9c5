"""What a person calls an image, as a Tree: its content decides what it is, never its name."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

from exhume import budget
from exhume.errors import ExhumeError, UsageError
from exhume.host.directory import Directory
from exhume.host.tree import Tree
from exhume.image.archive import Pass
from exhume.image.disk import open_disk
from exhume.image.folders import MOST_KEPT, Budget
from exhume.image.kept import Kept
from exhume.image.layers import ArchiveBox, LayoutBox, read_layers, unpacked
from exhume.image.streams import Plain, packing
from exhume.image.tar import BLOCK, is_header
from exhume.text import from_path, printable


@contextmanager
def open_image(path: str, most_kept: int = MOST_KEPT) -> Iterator[Tree]:
    """A directory, a tar archive of a root, a container image (docker-save, OCI archive or layout), a raw or qcow2 disk image.

    ExhumeError, a sentence, for what it cannot be. Archives are read whole before this returns; nothing is unpacked to disk.
    """
    shown = printable(from_path(path))
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "no path has a NUL in it"
        raise UsageError(f"{shown} cannot be opened: {why}") from None
    try:
        mode = os.fstat(fd).st_mode
        budget.current().opened(fd, path)
        if stat.S_ISDIR(mode):
            with Directory(path) as directory:
                yield _layout(path, directory, most_kept) if _is_layout(directory) else directory
        elif stat.S_ISREG(mode):
            yield _file(path, fd, most_kept)
        else:
            raise UsageError(f"{shown} is neither a file nor a directory; mount it read-only and give the directory as --root")
    finally:
        os.close(fd)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What is wrong, with the name of what it is wrong with."""
    try:
        yield
    except ExhumeError as error:
        raise type(error)(f"{printable(from_path(path))} cannot be read as an image: {error}.") from None


def _layout(path: str, directory: Directory, most_kept: int) -> Tree:
    with _told(path):
        return read_layers(path, LayoutBox(directory), most_kept)


def _is_layout(directory: Directory) -> bool:
    return all((entry := directory.entry(name)) is not None and entry.kind == "file" for name in ("/oci-layout", "/index.json"))


def _file(path: str, fd: int, most_kept: int) -> Tree:
    with _told(path):
        how = packing(os.pread(fd, BLOCK, 0))
        if not is_header(unpacked(Plain(fd)).read(BLOCK)):
            if how:
                raise UsageError(
                    f"it is packed by {how}, and what is in it is no tar archive; unpack it and give what comes out"
                )
            return open_disk(path, fd)
        tree = _archive(path, fd, most_kept, frozenset())
        if _is_box(tree):
            return read_layers(path, ArchiveBox(lambda: unpacked(Plain(fd))), most_kept)
        lacking = tree.lacking()
        return _archive(path, fd, most_kept, lacking) if lacking else tree


def _archive(path: str, fd: int, most_kept: int, also: frozenset[str]) -> Kept:
    troubles: list[str] = []
    layer = Pass(Budget(troubles, most_kept), also=also).read(unpacked(Plain(fd)))
    return Kept(path, layer.root, troubles)


def _is_box(tree: Kept) -> bool:
    """Whether an archive holds an image rather than a root: manifests at its top, and none of a root's places."""
    top = set(tree.names("/"))
    return bool(top & {"manifest.json", "index.json"}) and not top & {"etc", "usr"}
