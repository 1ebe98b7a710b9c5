"""One pass over a tar archive: what matters is kept in memory, nothing is written anywhere, no name leads out of the root."""

from dataclasses import dataclass, field
from typing import Final

from exhume.host.paths import LONGEST, decode
from exhume.host.tree import LARGEST, Entry, complain
from exhume.image.folders import Budget, Folder, Leaf, find, folder_at
from exhume.image.places import matters, wanted
from exhume.image.streams import Source
from exhume.image.tar import Member, members
from exhume.text import decode as shown_bytes
from exhume.text import printable

_LONGEST_NAME: Final = 255  # NAME_MAX of include/uapi/linux/limits.h
_WHITEOUT: Final = b".wh."
_OPAQUE: Final = b".wh..wh..opq"
_OWN: Final = b".wh..wh."  # what aufs kept for itself, and Docker does not unpack


@dataclass(slots=True)
class Layer:
    """A tar archive as directories, and what it hides of the layers below (the OCI image specification, layer.md)."""

    root: Folder = field(default_factory=Folder)
    hidden: list[tuple[bytes, ...]] = field(default_factory=list)
    opaque: list[tuple[bytes, ...]] = field(default_factory=list)


class Pass:
    """One reading of one archive. `also` are paths to keep that no table names: what links in places that matter point to."""

    def __init__(self, budget: Budget, layered: bool = False, also: frozenset[str] = frozenset()) -> None:
        self.layer = Layer()
        self._budget = budget
        self._layered = layered
        self._also = also
        self._last: tuple[tuple[bytes, ...], Folder | None] = ((), self.layer.root)

    def read(self, source: Source) -> Layer:
        for member in members(source):
            parts = self._parts(member.name)
            if parts is not None:
                self._add(parts, member)
        return self.layer

    def _parts(self, name: bytes) -> tuple[bytes, ...] | None:
        parts = tuple(part for part in name.split(b"/") if part not in (b"", b"."))
        if b".." in parts:
            why = "lead out of it"
        elif b"\0" in name:
            why = "have a NUL in them"
        elif len(name) > LONGEST or any(len(part) > _LONGEST_NAME for part in parts):
            why = "are longer than any file system has them"
        else:
            return parts
        complain(self._budget.troubles, f"It has names that {why} and were left out, as {printable(shown_bytes(name), 80)!r}.")
        return None

    def _add(self, parts: tuple[bytes, ...], member: Member) -> None:
        if not parts:
            if member.kind == "directory":
                self.layer.root.mode, self.layer.root.implied = member.mode, False
            return
        name = parts[-1]
        if self._layered and any(part.startswith(_OWN) for part in parts[:-1]):
            return
        if self._layered and name.startswith(_WHITEOUT):
            self._hide(parts[:-1], name)
            return
        folder = self._folder(parts[:-1])
        if folder is None:
            return
        there = folder.children.get(name)
        path = decode(b"/".join(parts))
        if member.kind == "directory":
            if isinstance(there, Folder):
                there.mode, there.implied = member.mode, False
            elif self._budget.folder(name, matters(path)):
                folder.children[name] = Folder(member.mode)
            return
        if there is None and len(folder.children) >= self._budget.most_names:
            where = printable(shown_bytes(b"/" + b"/".join(parts[:-1])))
            most = self._budget.most_names
            complain(self._budget.troubles, f"{where} holds more than {most:,} names; the first of the archive were read.")
            return
        if isinstance(there, Folder):
            self._last = ((), self.layer.root)
        leaf = self._leaf(path, name, member)
        if leaf is None:
            if self._budget.rest(name):
                folder.put_rest(name, "other" if member.kind == "other" else "file", bool(member.mode & 0o111))
        else:
            folder.children[name] = leaf

    def _leaf(self, path: str, name: bytes, member: Member) -> Leaf | None:
        """What to keep of it; None if its name and kind are enough."""
        largest = LARGEST if path in self._also else wanted(path)
        budget = self._budget
        if member.kind == "link":
            allowed = len(member.target) <= LONGEST and b"\0" not in member.target and member.target != b""
            entry = Entry("link", 0o777, 0, decode(member.target))
            return Leaf(entry) if allowed and budget.leaf(name, len(member.target), bool(largest)) else None
        if member.kind == "hard":
            return self._hard(name, member, bool(largest))
        if member.kind == "other" or not largest or member.sparse:
            return None
        if not budget.leaf(name, min(largest, member.size), matters=True):
            return None
        content = member.data.read(min(largest, member.size))
        return Leaf(Entry("file", member.mode, member.size), content)

    def _hard(self, name: bytes, member: Member, is_wanted: bool) -> Leaf | None:
        parts = self._parts(member.target)
        if not parts:
            return None
        other = decode(b"/".join(parts))
        found = find(self.layer.root, other)
        if isinstance(found, Leaf) and (found.content is not None or found.entry.kind != "file"):
            return found if self._budget.leaf(name, 0, is_wanted) else None
        if not is_wanted or isinstance(found, Folder) or not self._budget.leaf(name, len(other), matters=True):
            return None
        return Leaf(Entry("file", member.mode, 0), None, other)

    def _hide(self, parent: tuple[bytes, ...], name: bytes) -> None:
        hidden = name[len(_WHITEOUT) :]
        if not self._budget.leaf(name, sum(map(len, parent)), matters=True):
            return
        if name == _OPAQUE:
            self.layer.opaque.append(parent)
        elif hidden not in (b"", b".", b"..") and not name.startswith(_OWN):
            self.layer.hidden.append((*parent, hidden))

    def _folder(self, parts: tuple[bytes, ...]) -> Folder | None:
        """The directory that something is put into; a link on the way is followed in the root, as tar would by unpacking."""
        if self._last[0] == parts:
            return self._last[1]
        folder: Folder | None = self.layer.root
        for depth, name in enumerate(parts, 1):
            assert folder is not None
            child = folder.children.get(name)
            if isinstance(child, Leaf) and child.entry.kind == "link":
                child = folder_at(self.layer.root, decode(b"/" + b"/".join(parts[:depth])))
            if not isinstance(child, Folder):
                if not self._budget.folder(name, matters(decode(b"/".join(parts[:depth])))):
                    folder = None
                    break
                child = folder.children[name] = Folder(implied=True)
            folder = child
        self._last = (parts, folder)
        return folder


def hide(root: Folder, layer: Layer) -> None:
    """Take away what a layer hides of those below it."""
    for parts in layer.hidden:
        folder = find(root, decode(b"/".join(parts[:-1])))
        if isinstance(folder, Folder):
            folder.remove(parts[-1])
    for parts in layer.opaque:
        folder = find(root, decode(b"/".join(parts)))
        if isinstance(folder, Folder):
            folder.clear()
