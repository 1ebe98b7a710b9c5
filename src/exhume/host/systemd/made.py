"""A tree with the files on top of it that generators would have written at boot: as if they had run, and nothing was."""

import posixpath
from collections.abc import Mapping

from exhume.host.tree import LARGEST, Entry, Tree

PLACE = "/run/systemd/generator"


class Made:
    """A Tree. Files and links have paths below PLACE; everything else is the tree's own."""

    def __init__(self, below: Tree, files: Mapping[str, bytes], links: Mapping[str, str]) -> None:
        self.name = below.name
        self.live = below.live
        self.troubles = below.troubles
        self._below = below
        self._files = dict(files)
        self._links = dict(links)
        self._directories: dict[str, set[str]] = {}
        for path in (*self._files, *self._links):
            while path.startswith(PLACE) and path != PLACE:
                above, _, name = path.rpartition("/")
                self._directories.setdefault(above, set()).add(name)
                path = above

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        if path.startswith(PLACE):
            if path in self._files:
                return Entry("file", 0o644, len(self._files[path]))
            if path in self._directories:
                return Entry("directory", 0o755)
            if path in self._links:
                target = self._links[path]
                return self.entry(_absolute(path, target)) if follow else Entry("link", 0o777, 0, target)
        return self._below.entry(path, follow)

    def real(self, path: str) -> str | None:
        if path.startswith(PLACE):
            if path in self._files or path in self._directories:
                return path
            if path in self._links:
                return self.real(_absolute(path, self._links[path]))
        return self._below.real(path)

    def names(self, path: str) -> list[str]:
        own = self._directories.get(path)
        return sorted({*own, *self._below.names(path)}) if own else self._below.names(path)

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        if path.startswith(PLACE):
            if path in self._files:
                return self._files[path][:largest]
            if path in self._links:
                return self.read(_absolute(path, self._links[path]), largest)
        return self._below.read(path, largest)


def _absolute(path: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
