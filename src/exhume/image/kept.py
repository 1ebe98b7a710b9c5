"""An archive that has been read, as a Tree: everything is asked of memory."""

from exhume.host.paths import resolve
from exhume.host.tree import LARGEST, MOST_NAMES, Entry, beyond, complain
from exhume.image.folders import Folder, Leaf, find, lookup
from exhume.image.places import links_matter, wanted
from exhume.text import from_path, printable


class Kept:
    """A Tree (host/tree.py) of what one pass over an archive kept."""

    live = False

    def __init__(self, name: str, root: Folder, troubles: list[str]) -> None:
        self.name = name
        self.troubles = troubles
        self._root = root
        self._settle()

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        found = self._resolve(path, follow)
        return found[1] if found else None

    def real(self, path: str) -> str | None:
        found = self._resolve(path)
        return found[0] if found else None

    def names(self, path: str) -> list[str]:
        found = self._resolve(path)
        folder = find(self._root, found[0]) if found else None
        names = folder.names() if isinstance(folder, Folder) else []
        if len(names) > MOST_NAMES:
            shown = printable(from_path(path))
            complain(self.troubles, f"{shown} holds more than {MOST_NAMES:,} names; the first of them were read.")
        return names[:MOST_NAMES]

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        found = self._resolve(path)
        if found is None or found[1].kind != "file":
            return None
        leaf = find(self._root, found[0])
        if not isinstance(leaf, Leaf) or leaf.content is None:
            complain(self.troubles, f"{printable(from_path(path))} is there, but its content was not kept.")
            return None
        content = leaf.content[:largest]
        if leaf.entry.size > len(content) and largest >= LARGEST:
            shown = printable(from_path(path))
            complain(self.troubles, f"{shown} has {beyond(leaf.entry.size, len(content))}")
        return content

    def lacking(self) -> frozenset[str]:
        """Files without content that links in places that matter stand for: worth another pass over the archive."""
        found = set()
        ways = [("", self._root)]
        while ways:
            path, folder = ways.pop()
            for name, child in folder.children.items():
                at = f"{path}/{name.decode('utf-8', 'surrogateescape')}"
                if isinstance(child, Folder):
                    ways.append((at, child))
                elif child.entry.kind == "link" and wanted(at[1:]) and links_matter(at):
                    end = self._resolve(at)
                    leaf = find(self._root, end[0]) if end else None
                    if end and isinstance(leaf, Leaf) and leaf.entry.kind == "file" and leaf.content is None:
                        found.add(end[0][1:])
                elif child.hard and child.content is None and links_matter(at):
                    found.add(child.hard)
        return frozenset(found)

    def _resolve(self, path: str, follow: bool = True) -> tuple[str, Entry] | None:
        return resolve(path, lambda at: lookup(self._root, at), follow)

    def _settle(self) -> None:
        """Give every hard link what the other name has, which may have come from a layer below."""
        ways = [self._root]
        while ways:
            folder = ways.pop()
            for name, child in folder.children.items():
                if isinstance(child, Folder):
                    ways.append(child)
                elif child.hard:
                    other = find(self._root, child.hard)
                    if isinstance(other, Leaf) and not other.hard:
                        keep = "" if other.content is not None else child.hard
                        folder.children[name] = Leaf(other.entry, other.content, keep)
