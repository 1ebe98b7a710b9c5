"""A container image that is not unpacked: the layers of a docker-save or OCI archive, or of an OCI layout, put over each other.

An archive is read twice, because its manifest may come behind its layers: once for the documents, once for the layers, which
may have any order in it.
"""

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from exhume.host.directory import Directory
from exhume.host.paths import decode
from exhume.host.tree import LARGEST
from exhume.image.archive import Layer, Pass, hide
from exhume.image.folders import Budget, Folder, put_over
from exhume.image.kept import Kept
from exhume.image.manifests import clean, layer_names
from exhume.image.streams import Damaged, Plain, Source, Unpacked, packing
from exhume.image.tar import BLOCK, members
from exhume.text import from_path, printable

_MOST_DOCUMENTS: Final = 16 << 20
_MOST_MEMBERS: Final = 20_000  # an archive of a hundred images has about a thousand

Opened = Callable[[], Source]


class Box(Protocol):
    """What holds manifests and layers."""

    documents: dict[str, bytes]
    there: dict[str, str]
    """Every name in it, and the name that has the content: its own, or where a link leads."""

    def layers(self, names: set[str]) -> Iterator[tuple[str, Source]]: ...


class ArchiveBox:
    """A tar archive with the image in it."""

    def __init__(self, opened: Opened) -> None:
        self.documents: dict[str, bytes] = {}
        self.there: dict[str, str] = {}
        self._opened = opened
        left = _MOST_DOCUMENTS
        for member in members(opened()):
            name = clean(decode(member.name))
            if len(self.there) >= _MOST_MEMBERS:
                raise Damaged(f"it has a manifest and more than {_MOST_MEMBERS:,} files, so it is no image archive")
            if member.kind == "file":
                self.there[name] = name
                if member.size <= min(LARGEST, left) and not member.sparse:
                    head = member.data.read(member.size)
                    if head[:1] in (b"{", b"["):
                        self.documents[name] = head
                        left -= len(head)
            elif member.kind in ("link", "hard"):  # older Dockers save a layer that comes twice as a link to the first
                self.there[name] = _beside(name, decode(member.target), member.kind == "link")
        for name, other in list(self.there.items()):
            if self.there.get(other) != other:
                del self.there[name]

    def layers(self, names: set[str]) -> Iterator[tuple[str, Source]]:
        for member in members(self._opened()):
            name = clean(decode(member.name))
            if member.kind == "file" and not member.sparse and name in names:
                yield name, member.data


class LayoutBox:
    """A directory in the OCI image layout."""

    def __init__(self, tree: Directory) -> None:
        self._tree = tree
        self.documents: dict[str, bytes] = {}
        self.there: dict[str, str] = {}
        left = _MOST_DOCUMENTS
        algorithms = [f"blobs/{name}" for name in tree.names("/blobs")]
        for name in ["oci-layout", "index.json", *(f"{at}/{name}" for at in algorithms for name in tree.names("/" + at))]:
            entry = tree.entry("/" + name)
            if entry is None or entry.kind != "file":
                continue
            self.there[name] = name
            if entry.size <= min(LARGEST, left):
                text = tree.read("/" + name) or b""
                if text[:1] in (b"{", b"["):
                    self.documents[name] = text
                    left -= len(text)

    def layers(self, names: set[str]) -> Iterator[tuple[str, Source]]:
        for name in sorted(names):
            with self._tree.opened("/" + name) as fd:
                yield name, Plain(fd)


def read_layers(name: str, box: Box, most: int | None = None) -> Kept:
    """The image as a process in it would see it."""
    order = layer_names(box.documents, box.there)
    tree = _read(name, box, order, frozenset(), most)
    lacking = tree.lacking()
    return _read(name, box, order, lacking, most) if lacking else tree


def _read(name: str, box: Box, order: list[str], also: frozenset[str], most: int | None) -> Kept:
    troubles: list[str] = []
    budget = Budget(troubles) if most is None else Budget(troubles, most)
    read: dict[str, Layer] = {}
    for at, source in box.layers(set(order)):
        if at not in read:  # a name that the archive has twice
            try:
                read[at] = Pass(budget, layered=True, also=also).read(unpacked(source))
            except Damaged as error:
                raise Damaged(f"layer {printable(from_path(at), 100)} is damaged: {error}") from None
    root = Folder()
    for at in order:
        hide(root, read[at])
        put_over(root, read[at].root)
    return Kept(name, root, troubles)


class _Rewound:
    """A source whose first bytes have been looked at."""

    def __init__(self, head: bytes, source: Source) -> None:
        self._head = head
        self._source = source

    def read(self, size: int) -> bytes:
        if not self._head:
            return self._source.read(size)
        chunk, self._head = self._head[:size], self._head[size:]
        return chunk + self._source.read(size - len(chunk)) if len(chunk) < size else chunk

    def skip(self, size: int) -> int:
        passed = min(size, len(self._head))
        self._head = self._head[passed:]
        return passed + self._source.skip(size - passed)


def unpacked(source: Source) -> Source:
    """The source as it is, or what is packed in it: its first bytes tell."""
    head = source.read(BLOCK)
    how = packing(head)
    whole = _Rewound(head, source)
    return Unpacked(whole, how) if how else whole


def _beside(name: str, target: str, symbolic: bool) -> str:
    """Where a link of the archive leads: from its own directory, or, of a hard link, from the top."""
    parts = name.split("/")[:-1] if symbolic and not target.startswith("/") else []
    for part in target.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
