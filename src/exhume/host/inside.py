"""Files of a root that may hold links: /var/lib/docker is a link on many nodes, and of another's root it must stay inside."""

import os
import stat
from collections.abc import Iterator
from itertools import islice

from exhume.host.root import Root
from exhume.text import from_path

_MOST_LINKS = 40  # MAXSYMLINKS in include/linux/namei.h


def resolve(root: Root, name: str) -> str | None:
    """Where a name leads when links are followed as the node itself would; None if they lead nowhere."""
    if "\0" in name:
        return None
    if root.own:
        return name
    done: list[str] = []
    todo = name.split("/")[::-1]
    links = 0
    while todo:
        part = todo.pop()
        if part in ("", "."):
            continue
        if part == "..":
            del done[-1:]
            continue
        try:
            target = os.readlink(root.at("/".join([*done, part])))
        except OSError:  # no link, or not there
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.startswith("/"):
            done.clear()
        todo.extend(target.split("/")[::-1])
    return "/".join(done)


def regular(root: Root, name: str, largest: int) -> bytes | None:
    """A whole regular file; None for one that is not there, not readable, not regular or larger than that."""
    path = resolve(root, name)
    if path is None:
        return None
    try:
        fd = os.open(root.at(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
                return None
            return file.read(largest)
    except OSError:
        return None


def names(root: Root, name: str, most: int) -> Iterator[str]:
    """The names in a directory, no more than so many, in the order of the directory; none if it cannot be read."""
    path = resolve(root, name)
    if path is None:
        return
    try:
        with os.scandir(root.at(path)) as entries:
            for entry in islice(entries, most):
                yield from_path(entry.name)
    except OSError:
        return
