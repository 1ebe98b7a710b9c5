"""A root file system that is read, never run: a mounted root, a directory, an archive, a disk image, by the same code.

Nothing outside of it is ever opened: links are followed as a process in that root would follow them.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from exhume.host.quantities import compared, size

LARGEST = 1 << 20
"""The largest file that is taken in: unit files, crontabs and manifests are far below it."""

MOST_NAMES = 1 << 16
"""Of one directory, the first in order: more files than that in one place are an accident or an attack, and it is said."""

MOST_TROUBLES = 100


@dataclass(frozen=True, slots=True)
class Entry:
    kind: Literal["file", "directory", "link", "other"]
    """Other is what must not be opened: devices, sockets, pipes."""
    mode: int = 0
    size: int = 0
    target: str = ""
    """Of a link, as it is written there."""


class Tree(Protocol):
    """Paths begin with a slash and are the image's own; bytes that are no UTF-8 are kept by surrogateescape.

    What is not there, or is not what was asked for, is None or nothing: an image with a hole in it is still read. What could
    not be read although it is there is counted in `troubles`, a sentence each, a bounded number of them.
    """

    name: str
    """What to call it in sentences: the path that was given."""

    live: bool
    """Whether this is the root that we run in."""

    troubles: list[str]

    def entry(self, path: str, follow: bool = True) -> Entry | None:
        """What is at the path; a link that ends it is itself unless it is followed."""

    def real(self, path: str) -> str | None:
        """The path with every link on its way followed; None when it ends nowhere or goes round in circles."""

    def names(self, path: str) -> list[str]:
        """The names in a directory, sorted; nothing if it is none."""

    def read(self, path: str, largest: int = LARGEST) -> bytes | None:
        """A regular file, up to `largest` bytes of it; links are followed."""


def complain(troubles: list[str], sentence: str) -> None:
    """One more sentence, unless it has been said or there are too many: the last one says that there were more."""
    if len(troubles) < MOST_TROUBLES and sentence not in troubles:
        troubles.append(sentence)
    elif len(troubles) == MOST_TROUBLES and sentence not in troubles:
        troubles.append("More could not be read than is listed here.")


def beyond(length: int, read: int) -> str:
    """Of a file that is too large: what it has, and what was read of it."""
    whole, part = compared(size, length, read)
    return f"{whole}; its first {part} were read."
