"""What `systemctl --root=R list-unit-files` says of each unit file: enabled, static, masked and so on.

After unit_file_lookup_state() and find_symlinks_in_scope(), src/shared/install.c, with the links indexed by what they point to
instead of looked through for each unit anew.
"""

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

from exhume.host.systemd import names
from exhume.host.systemd.fragments import Fragments, fitting
from exhume.host.systemd.places import Found, Place
from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import Sections

MOST_LINKS = 64  # UNIT_FILE_FOLLOW_SYMLINK_MAX, src/shared/install.c


@dataclass(frozen=True, slots=True)
class _Seen:
    """A link that has to do with a unit: its name, and whether it is in a directory of dependencies."""

    name: str
    target: str
    place: Place
    dependency: bool


class States:
    def __init__(self, fragments: Fragments) -> None:
        self._fragments = fragments
        self._about: dict[str, list[_Seen]] = {}
        layout = fragments.layout
        for owned in layout.links.values():
            for link in owned:
                # There the name alone counts, wherever it points: the unit of that name, or the template of that instance.
                self._add(_Seen(link.name, names.template(link.name), link.place, True))
        for name, everywhere in layout.files.items():
            for found in everywhere:
                if found.target:
                    self._add(_Seen(name, posixpath.basename(found.target), found.place, False))

        for stray in layout.strays:
            self._add(_Seen(stray.name, posixpath.basename(stray.target.rstrip("/")), stray.place, False))

    def _add(self, seen: _Seen) -> None:
        for name in {seen.name, seen.target}:
            self._about.setdefault(name, []).append(seen)

    def state(self, name: str) -> str:
        """One of STATES; "bad" where systemctl cannot make sense of it, "" for what is not there."""
        if name not in self._fragments.layout.files and not names.template(name):
            return ""
        chased = self._chase(name)
        if chased is None:
            return "bad" if name in self._fragments.layout.files else ""
        own, found = chased
        if found.masks:
            return "masked-runtime" if found.place.runtime else "masked"
        # A file's base name, in case that it is a linked one; an instance has its template's.
        base = posixpath.basename(found.target) if found.target and not found.inside else found.name
        if name != base and names.form(own) != "instance":
            return "alias"
        if found.place.role in ("generator", "transient"):
            return {"generator": "generated", "transient": "transient"}[found.place.role]
        sections = self._fragments.install(own, found)
        if sections.broken:
            return "bad"
        return self._enabled(own, found, sections)

    def _chase(self, name: str) -> tuple[str, Found] | None:
        """The name that is asked about in the end, and the file, mask or linked file that it is found as."""
        files = self._fragments.layout.files
        own = name
        for _ in range(MOST_LINKS):
            everywhere = files.get(own) or files.get(names.template(own) or own)
            if not everywhere:
                return None
            found = everywhere[0]
            target = posixpath.basename(found.target)
            if found.inside and target != own and not fitting(own, target):
                return None
            if not found.target or (found.masks and (not found.inside or target == own)):
                return own, found
            if not found.inside:
                end = self._fragments.tree.entry(found.target)
                return (own, found) if end is not None and end.kind == "file" else None
            if names.form(own) == "instance" and names.form(target) == "template":
                target = names.with_instance(target, names.instance(own))
            if target == own:
                # A link to a file of the same name in another place: that one, or, made for an instance, the template.
                real = self._fragments.tree.real(found.target)
                later = [each for each in _candidates(files, own, found.target) if each.path == real]
                return (own, later[0]) if later else None
            own = target
        return None

    def _enabled(self, name: str, found: Found, sections: Sections) -> str:
        # config_parse_alias(): a mount or a slice has none.
        aliases = sections.words("Install", "Alias") if names.kind(name) in names.MAY_ALIAS else ()
        known = {name, *aliases, *(expand(alias, name) for alias in aliases)}
        default = sections.last("Install", "DefaultInstance")
        if default and names.form(name) == "template":
            known.add(names.with_instance(name, default))
        state = self._linked(name, found, known)
        if state:
            return state
        if self._linked(name, found, None):
            return "indirect"
        if aliases or any(sections.words("Install", key) for key in ("WantedBy", "RequiredBy", "UpheldBy")):
            return "disabled"
        return "indirect" if sections.every_word("Install", "Also") else "static"

    def _linked(self, name: str, found: Found, known: set[str] | None) -> str:
        """enabled, enabled-runtime, linked ... by the links that there are; with `known` only those of these names count."""
        about = self._about.get(name, ())
        if not about:
            return ""
        runtime = anywhere = linked = linked_runtime = below = False
        for place in self._fragments.layout.places:
            same, hit = _look(about, place, name, known, below)
            if hit:
                if place.written in ("/etc/systemd/system", "/etc/systemd/user") or place.written.endswith(
                    "/.config/systemd/user"
                ):
                    return "enabled"
                runtime = runtime or place.runtime
                anywhere = anywhere or not place.runtime
            elif same:
                linked = linked or (place.role == "config" and not place.runtime)
                linked_runtime = linked_runtime or place.runtime
            below = below or place.path == found.place.path
        if runtime:
            return "enabled-runtime"
        if anywhere and names.form(name) == "instance":
            return "static"
        return "linked" if linked else "linked-runtime" if linked_runtime else ""


def _look(about: Iterable[_Seen], place: Place, name: str, known: set[str] | None, below: bool) -> tuple[bool, bool]:
    """Whether a place has a link of the unit's own name to a file of that name, and whether one that enables it."""
    same = hit = False
    for link in about:
        if link.place.path != place.path:
            continue
        by_name = link.name == name and (link.dependency or not below)
        by_target = link.target == name
        if by_name and by_target and not link.dependency:
            same = True
        elif (by_name or by_target) and (known is None or link.name in known):
            hit = True
    return same, hit


def _candidates(files: dict[str, tuple[Found, ...]], own: str, target: str) -> list[Found]:
    return [*files.get(own, ()), *files.get(posixpath.basename(target), ())]
