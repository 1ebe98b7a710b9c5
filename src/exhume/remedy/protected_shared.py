"""Files that a protected unit reads by a link, under another name than its own: a change for somebody else would reach it."""

import posixpath
from collections.abc import Iterator

from exhume.image.systemd import names
from exhume.image.systemd.fragments import families
from exhume.image.systemd.places import destination
from exhume.image.tree import MOST_LINKS, Tree
from exhume.remedy.protected_units import Protection


def reader(path: str, tree: Tree, protection: Protection) -> str:
    """The protected unit whose drop-ins or dependencies are, or would be, at a path or in its directory; empty if none."""
    path = real_path(tree, path)
    directory = posixpath.dirname(path)
    seen: set[str] = set()
    for unit in protection.names:
        for place in _directories(unit, protection):
            if place in seen:
                continue
            seen.add(place)
            files = (f"{place}/{name}" for name in tree.names(place) if name.endswith(".conf"))
            if directory in _hops(tree, place) or any(path in _hops(tree, file) for file in files):
                return unit
    return ""


def _directories(unit: str, protection: Protection) -> Iterator[str]:
    layout = protection.units.layout
    for name in (unit, *protection.units.aliases(unit)):
        for family in (*families(name), names.kind(name)):
            yield from layout.drop_ins.get(family, ())
            yield from (posixpath.dirname(link.path) for link in layout.links.get(family, ()))


def _hops(tree: Tree, path: str) -> Iterator[str]:
    """A path and where it leads if it is a link, one after the other, whether or not anything is there."""
    yield path
    for _ in range(MOST_LINKS):
        entry = tree.entry(path, follow=False)
        if entry is None or entry.kind != "link":
            return
        path = destination(tree, posixpath.dirname(path), entry.target)
        yield path


def real_path(tree: Tree, path: str) -> str:
    """With the links on its way followed, as far as it is there; the end of it is never followed."""
    above, _, name = path.rpartition("/")
    rest = [name]
    while above:
        real = tree.real(above)
        if real is not None:
            return posixpath.normpath(f"{real}/{'/'.join(reversed(rest))}")
        above, _, name = above.rpartition("/")
        rest.append(name)
    return posixpath.normpath("/" + "/".join(reversed(rest)))
