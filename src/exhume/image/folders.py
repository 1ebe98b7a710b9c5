"""Directories of an archive in memory: what matters by name, kind and content, everything else by a few bytes each.

A training image has a million files. As Python objects their names alone would take 300 MB; as one run of bytes for each
directory they take 30, and can still be found, listed, replaced and removed by a layer above.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from exhume.host.paths import decode, resolve
from exhume.host.quantities import size
from exhume.host.tree import MOST_NAMES, Entry, complain

MOST_KEPT: Final = 128 << 20
"""Bytes, as counted below, that all folders of an image may take; half of them are for what matters."""

_FOLDER, _LEAF = 350, 450  # bytes that one costs beside its content, measured on CPython 3.11
_GONE: Final = b"-"
_RUN: Final = 4096  # bytes of names that are searched for one
_REST: Final[dict[bytes, Entry]] = {b"f": Entry("file", 0o644), b"x": Entry("file", 0o755), b"o": Entry("other", 0o600)}
_RECORD: Final[dict[tuple[str, bool], bytes]] = {("file", False): b"f", ("file", True): b"x"}


@dataclass(frozen=True, slots=True)
class Leaf:
    """What is not a directory, with its content if that was kept."""

    entry: Entry
    content: bytes | None = None
    hard: str = ""
    """The other name that it is a link to, until that is looked up."""


class Names:
    """Names and a letter for the kind of each; the last one of a name counts.

    Kept as runs of bytes (NUL, name, slash, letter), a name always in the run of its hash, so that a search costs the length
    of one run however many names a directory has.
    """

    __slots__ = ("_runs", "_size")

    def __init__(self) -> None:
        self._runs: list[bytearray] = []
        self._size = 0

    def __bool__(self) -> bool:
        return self._size > 0

    def add(self, name: bytes, letter: bytes) -> None:
        record = b"\0" + name + b"/" + letter
        if not self._runs:
            self._runs.append(bytearray())
        self._runs[hash(name) % len(self._runs)] += record
        self._size += len(record)
        if self._size > _RUN * len(self._runs):
            self._spread()

    def get(self, name: bytes) -> bytes:
        """The letter; b"" if there is none."""
        run = self._runs[hash(name) % len(self._runs)] if self._runs else b""
        at = run.rfind(b"\0" + name + b"/")
        return bytes(run[at + len(name) + 2 : at + len(name) + 3]) if at >= 0 else b""

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        """Every record, in order for each name."""
        for run in self._runs:
            at = 1
            while 0 < at < len(run):
                end = run.find(b"\0", at)
                record = bytes(run[at : end if end >= 0 else None])
                yield record[:-2], record[-1:]
                at = end + 1

    def clear(self) -> None:
        self._runs, self._size = [], 0

    def _spread(self) -> None:
        runs = [bytearray() for _ in range(4 * len(self._runs))]
        for name, letter in self:
            runs[hash(name) % len(runs)] += b"\0" + name + b"/" + letter
        self._runs = runs


class Folder:
    __slots__ = ("children", "implied", "mode", "rest")

    def __init__(self, mode: int = 0o755, implied: bool = False) -> None:
        self.mode = mode
        self.implied = implied
        """Whether no entry of the archive is the directory itself, only something below it."""
        self.children: dict[bytes, Folder | Leaf] = {}
        self.rest = Names()
        """All others, by name and kind alone."""

    def get(self, name: bytes) -> "Folder | Leaf | None":
        found = self.children.get(name)
        if found is not None or not self.rest:
            return found
        entry = _REST.get(self.rest.get(name))
        return Leaf(entry) if entry else None

    def entry(self) -> Entry:
        return Entry("directory", self.mode)

    def put_rest(self, name: bytes, kind: str, executable: bool) -> None:
        self.children.pop(name, None)
        self.rest.add(name, _RECORD.get((kind, executable), b"o"))

    def remove(self, name: bytes) -> None:
        self.children.pop(name, None)
        if self.rest.get(name) not in (b"", _GONE):
            self.rest.add(name, _GONE)

    def clear(self) -> None:
        self.children.clear()
        self.rest.clear()

    def names(self) -> list[str]:
        there = {decode(name): True for name in self.children}
        for name, letter in self.rest:
            if name not in self.children:
                there[decode(name)] = letter != _GONE
        return sorted(name for name, is_there in there.items() if is_there)


class Budget:
    """What may still be kept. What is left out for want of room is said, once for each kind of it."""

    def __init__(self, troubles: list[str], most: int = MOST_KEPT, most_names: int = MOST_NAMES) -> None:
        self.troubles = troubles
        self.most_names = most_names
        self._most = self._left = most

    def folder(self, name: bytes, matters: bool) -> bool:
        return self._take(_FOLDER + len(name), matters)

    def leaf(self, name: bytes, size: int, matters: bool) -> bool:
        return self._take(_LEAF + len(name) + size, matters)

    def rest(self, name: bytes) -> bool:
        return self._take(len(name) + 3, False)

    def _take(self, more: int, matters: bool) -> bool:
        if self._left - more < (0 if matters else self._most // 2):
            what = "files that matter" if matters else "names"
            complain(self.troubles, f"It holds more {what} than {size(self._most)} of memory keep; the rest was left out.")
            return False
        self._left -= more
        return True


def find(root: Folder, path: str) -> Folder | Leaf | None:
    """What is at a path that has no link on its way."""
    found: Folder | Leaf | None = root
    for name in path.encode("utf-8", "surrogateescape").split(b"/"):
        if name:
            found = found.get(name) if isinstance(found, Folder) else None
    return found


def lookup(root: Folder, path: str) -> Entry | None:
    found = find(root, path)
    if found is None:
        return None
    return found.entry() if isinstance(found, Folder) else found.entry


def folder_at(root: Folder, path: str) -> Folder | None:
    """The directory that a path leads to, links followed."""
    found = resolve(path, lambda at: lookup(root, at))
    folder = find(root, found[0]) if found else None
    return folder if isinstance(folder, Folder) else None


def put_over(root: Folder, layer: Folder) -> None:
    """A layer onto what is below it. A directory that the layer only implies may be a link below: then it is followed."""
    ways = [("", root, layer)]
    while ways:
        path, below, above = ways.pop()
        if not above.implied:
            below.mode = above.mode
        if above.rest:
            for name, letter in above.rest:
                below.children.pop(name, None)
                below.rest.add(name, letter)
        for name, child in above.children.items():
            at = f"{path}/{decode(name)}"
            there = below.get(name)
            if isinstance(child, Folder) and child.implied and isinstance(there, Leaf) and there.entry.kind == "link":
                there = folder_at(root, at)
            if isinstance(child, Folder) and isinstance(there, Folder):
                ways.append((at, there, child))
            else:
                below.children[name] = child
