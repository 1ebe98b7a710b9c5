"""Where unit files are looked for, and what is there: files, links, masks, and the directories of drop-ins and dependencies.

The order is that of systemd.unit(5), "System Unit Search Path" and "User Unit Search Path": who comes first wins. A root where
/lib is a link to usr/lib has one place, not two.
"""

import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from exhume.host.paths import MOST_LINKS
from exhume.host.systemd import names
from exhume.host.tree import Tree

Role = Literal["control", "transient", "generator", "config", "vendor"]

SYSTEM: tuple[tuple[str, Role], ...] = (
    ("/etc/systemd/system.control", "control"),
    ("/run/systemd/system.control", "control"),
    ("/run/systemd/transient", "transient"),
    ("/run/systemd/generator.early", "generator"),
    ("/etc/systemd/system", "config"),
    ("/etc/systemd/system.attached", "config"),
    ("/run/systemd/system", "config"),
    ("/run/systemd/system.attached", "config"),
    ("/run/systemd/generator", "generator"),
    ("/usr/local/lib/systemd/system", "vendor"),
    ("/usr/lib/systemd/system", "vendor"),
    ("/lib/systemd/system", "vendor"),
    ("/run/systemd/generator.late", "generator"),
)
USER: tuple[tuple[str, Role], ...] = (
    ("/etc/systemd/user", "config"),
    ("/run/systemd/user", "config"),
    ("/usr/local/share/systemd/user", "vendor"),
    ("/usr/share/systemd/user", "vendor"),
    ("/usr/local/lib/systemd/user", "vendor"),
    ("/usr/lib/systemd/user", "vendor"),
)
QUADLETS = ("/run/containers/systemd", "/etc/containers/systemd", "/usr/share/containers/systemd")
"""Files of which podman's generator makes services, in this order (podman-systemd.unit(5), rootful unit search path)."""
DEPENDENCY_DIRECTORIES = {".wants": "Wants", ".requires": "Requires", ".upholds": "Upholds"}


@dataclass(frozen=True, slots=True)
class Place:
    path: str
    """With links on its way followed."""
    role: Role
    written: str
    """As the manual has it."""

    @property
    def runtime(self) -> bool:
        return self.written.startswith("/run/")


@dataclass(frozen=True, slots=True)
class Found:
    """A name in a place: a file, or a link and where it leads."""

    name: str
    place: Place
    target: str = ""
    """Of a link: where it points, a path of the tree; out of the search path links behind it are followed. Empty of a file."""
    masks: bool = False
    """An empty file, or a link to one or to /dev/null."""
    inside: bool = False
    """Of a link: whether it stays in the search path, which makes it an alias and not a linked file."""

    @property
    def path(self) -> str:
        return f"{self.place.path}/{self.name}"


@dataclass(frozen=True, slots=True)
class Link:
    """A link in a .wants, .requires or .upholds directory."""

    path: str
    owner: str
    """Whose directory it is: a unit's name, a template's, or a prefix of names (systemd.unit(5))."""
    kind: str
    """Wants, Requires or Upholds."""
    name: str
    target: str
    """The base name of where it points."""
    place: Place
    masks: bool = False
    """A link to /dev/null, which hides those of the same name in the places after."""


@dataclass(frozen=True, slots=True)
class Layout:
    places: tuple[Place, ...]
    files: dict[str, tuple[Found, ...]]
    """Of each name, where it is found, in the order of the places."""
    links: dict[str, tuple[Link, ...]]
    """Dependency links by the name of the directory's owner."""
    drop_ins: dict[str, tuple[str, ...]]
    """Directories of drop-ins (without the .d), in the order of the places."""
    strays: tuple[Found, ...] = ()
    """Links beside the unit files whose names are no unit's: systemctl counts what they point to as known by another name."""


def search_path(tree: Tree, manager: str = "system", home: str = "") -> tuple[Place, ...]:
    """The places that are there, each once; with `home` those of a user's own before those of all users."""
    wanted = list(SYSTEM if manager == "system" else USER)
    if home:
        wanted.insert(0, (f"{home}/.config/systemd/user", "config"))
        wanted.append((f"{home}/.local/share/systemd/user", "vendor"))
    places: dict[str, Place] = {}
    for written, role in wanted:
        real = tree.real(written)
        if real is not None and real not in places:
            places[real] = Place(real, role, written)
    return tuple(places.values())


def read_layout(tree: Tree, places: tuple[Place, ...], manager: str = "system") -> Layout:
    # What is not there is searched as well: a link to it is one that stays inside and leads nowhere.
    written = (path for path, _ in (SYSTEM if manager == "system" else USER))
    inside = tuple(dict.fromkeys(f"{path}/" for path in (*(place.path for place in places), *written)))
    files: dict[str, list[Found]] = {}
    links: dict[str, list[Link]] = {}
    drop_ins: dict[str, list[str]] = {}
    strays: list[Found] = []
    for place in places:
        for name in tree.names(place.path):
            if names.valid(name):
                if found := _found(tree, inside, place, name):
                    files.setdefault(name, []).append(found)
            elif name.endswith(".d"):
                drop_ins.setdefault(name.removesuffix(".d"), []).append(f"{place.path}/{name}")
            elif (suffix := posixpath.splitext(name)[1]) in DEPENDENCY_DIRECTORIES:
                owner = name.removesuffix(suffix)
                links.setdefault(owner, []).extend(_links(tree, place, name, owner, DEPENDENCY_DIRECTORIES[suffix]))
            elif (entry := tree.entry(f"{place.path}/{name}", follow=False)) is not None and entry.kind == "link":
                strays.append(Found(name, place, entry.target))
    return Layout(
        places,
        {name: tuple(found) for name, found in files.items()},
        {owner: tuple(found) for owner, found in links.items()},
        {name: tuple(found) for name, found in drop_ins.items()},
        tuple(strays),
    )


def _found(tree: Tree, prefixes: tuple[str, ...], place: Place, name: str) -> Found | None:
    path = f"{place.path}/{name}"
    entry = tree.entry(path, follow=False)
    if entry is None or entry.kind not in ("file", "link"):
        return None
    if entry.kind == "file":
        return Found(name, place, masks=entry.size == 0)
    target = destination(tree, place.path, entry.target)
    inside = target.startswith(prefixes)
    for _ in range(MOST_LINKS):
        if target == "/dev/null":
            return Found(name, place, target, masks=True)
        # An alias is followed by names; a file from elsewhere to where it really is.
        step = None if inside else tree.entry(target, follow=False)
        if step is None or step.kind != "link":
            break
        target = destination(tree, posixpath.dirname(target), step.target)
    end = tree.entry(target)
    # null_or_empty(), src/basic/stat-util.c: an empty file, or any device.
    masks = end is not None and (end.kind == "other" or (end.kind == "file" and end.size == 0))
    return Found(name, place, target, masks, inside)


def destination(tree: Tree, directory: str, target: str) -> str:
    """Where a link points when its directories, not its end, are followed (chase_symlinks() with CHASE_NOFOLLOW)."""
    whole = target if target.startswith("/") else f"{directory}/{target}"
    parent, _, name = whole.rpartition("/")
    if name in ("", ".", ".."):
        return tree.real(whole) or posixpath.normpath(whole)
    real = tree.real(parent or "/")
    return f"{'' if real == '/' else real}/{name}" if real is not None else posixpath.normpath(whole)


def _links(tree: Tree, place: Place, directory: str, owner: str, kind: str) -> Iterator[Link]:
    """unit_file_process_dir(), src/core/load-dropin.c: the name of the link counts, what it points to must only be fitting."""
    for name in tree.names(f"{place.path}/{directory}"):
        if names.valid(name):
            path = f"{place.path}/{directory}/{name}"
            entry = tree.entry(path, follow=False)
            if entry is not None and entry.kind == "link":
                yield Link(
                    path, owner, kind, name, posixpath.basename(entry.target.rstrip("/")), place, entry.target == "/dev/null"
                )


def homes(tree: Tree) -> tuple[tuple[str, str], ...]:
    """Users and their homes by /etc/passwd."""
    found = []
    for line in (tree.read("/etc/passwd") or b"").split(b"\n"):
        fields = line.decode("utf-8", "surrogateescape").split(":")
        if len(fields) == 7 and fields[5].startswith("/"):
            found.append((fields[0], fields[5]))
    return tuple(found)
