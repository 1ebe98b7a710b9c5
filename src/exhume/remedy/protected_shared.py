"""Files that a protected unit reads by a link, under another name than its own: a change for somebody else would reach it."""

import posixpath
from collections.abc import Iterator

from exhume.host.paths import MOST_LINKS
from exhume.host.systemd import names
from exhume.host.systemd.fragments import families
from exhume.host.systemd.places import destination
from exhume.host.tree import Tree
from exhume.remedy.protected_units import Protection


def reader(path: str, tree: Tree, protection: Protection) -> str:
    """The protected unit whose drop-ins or dependencies are, or would be, at a path or in its directory; empty if none."""
    path = real_path(tree, path)
    directory = posixpath.dirname(path)
    for place, unit in _directories(protection).items():
        files = (f"{place}/{name}" for name in tree.names(place) if name.endswith(".conf"))
        if directory in _hops(tree, place) or any(path in _hops(tree, file) for file in files):
            return unit
    return ""


def led_from(path: str, tree: Tree, protection: Protection) -> str:
    """The protected unit whose file is at a path, or is found over it by links, however many; empty if none."""
    path = real_path(tree, path)
    files = protection.units.layout.files
    for unit in sorted(protection.names):
        for name in (unit, names.template(unit), *protection.units.aliases(unit)):
            if any(path in _hops(tree, found.path) for found in files.get(name, ())):
                return unit
    return ""


def _directories(protection: Protection) -> dict[str, str]:
    """The directories beside unit files that a protected unit reads, and which one it is."""
    units = protection.units
    layout = units.layout
    readers: dict[str, str] = {}
    for unit in protection.names:
        for name in (unit, *units.aliases(unit)):
            readers |= dict.fromkeys((*families(name), names.kind(name)), unit)
    found: dict[str, str] = {}
    for stem, places in layout.drop_ins.items():
        if unit := readers.get(stem) or (stem if names.valid(stem) and protection.named(stem) else ""):
            found |= dict.fromkeys(places, unit)
    for stem, links in layout.links.items():
        if unit := readers.get(stem) or (stem if names.kind(stem) in names.ACTED_ON and protection.named(stem) else ""):
            found |= dict.fromkeys((posixpath.dirname(link.path) for link in links), unit)
    return found


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
