"""What a plan for a unit changes on the disk: the links that start it, the mask, the drop-in. Nothing that is so already."""

import os
import posixpath

from exhume.errors import Refused
from exhume.host.systemd import names
from exhume.host.systemd.places import DEPENDENCY_DIRECTORIES, Found
from exhume.host.tree import Tree
from exhume.remedy.plan_model import Relief, Step
from exhume.remedy.protected_shared import led_from, reader
from exhume.remedy.protected_units import Protection
from exhume.remedy.steps.files import make_link, remove_link, write_file
from exhume.remedy.templates_systemd import do_nothing
from exhume.text import printable

ETC = "/etc/systemd/system"
OURS = "exhume.conf"
"""How the name of a drop-in of ours ends: no other file is written."""
_DROP_IN = f"z-{OURS}"
# systemd.unit(5): what is found there comes before /etc.
_EARLY = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
)


class UnitFiles:
    """The files and links of units, as they are in one tree."""

    def __init__(self, tree: Tree, protection: Protection) -> None:
        self._tree = tree
        self._protection = protection
        self._units = protection.units

    def unlinked(self, unit: str, relief: list[Relief]) -> list[Step]:
        """The links in /etc and /run that enable it or give it another name; what a vendor or a generator made is masked."""
        steps = []
        own = {place.path: place.written for place in self._units.layout.places if place.role == "config"}
        for path in self._units.links(unit):
            directory, name = posixpath.split(path)
            inner = posixpath.basename(directory)
            place = posixpath.dirname(directory) if posixpath.splitext(inner)[1] in DEPENDENCY_DIRECTORIES else directory
            if place not in own or ((own[place], name) == (ETC, unit) and place == directory):
                continue
            whose = posixpath.splitext(inner)[0]
            if place != directory and (theirs := self._of_protected(path, whose)):
                text = "the link stays, because it is one of a protected unit's; the mask keeps it from starting"
                relief.append(Relief(unit, f"{printable(theirs)} wants it", text))
                continue
            entry = self._tree.entry(path, follow=False)
            if entry is not None and entry.kind == "link":
                self._free(path)
                why = f"{printable(whose)} does not start it any more" if place != directory else "nor is it found by this name"
                steps.append(remove_link(path, entry.target, why))
                if place == directory and (under := self._under(name, path)) is not None:
                    text = f"{printable(under.path)} is found by this name once the link is gone; look at it, and fix it apart"
                    relief.append(Relief(name, "another unit has this name as well", text))
        return steps

    def _of_protected(self, link: str, whose: str) -> str:
        """The protected unit among whose dependencies a link is."""
        named = names.valid(whose) and names.kind(whose) != "target" and self._protection.named(whose)
        return whose if named else reader(link, self._tree, self._protection)

    def _under(self, name: str, link: str) -> Found | None:
        """What a link of that name hides: the next one in the search path, if it is a unit of its own."""
        found = self._units.layout.files.get(name) or ()
        after = next((found[at + 1 :] for at, each in enumerate(found) if each.path == link), ())
        return after[0] if after and not after[0].masks and not after[0].target else None

    def masked(self, unit: str) -> list[Step]:
        """A link to /dev/null in /etc; where the unit file itself is there, in its place, by one rename."""
        first = self.first(unit)
        if first is not None and first.place.written in _EARLY:
            if first.place.role == "transient":
                return []  # it goes when it is stopped
            why = f"a mask in /etc comes after {first.place.written}, so that the unit is left with nothing to run"
            service = names.kind(unit) == "service"
            return self.written(self.drop_in(unit), do_nothing(self._units.merged(unit)), why) if service else []
        if first is not None and first.masks and first.place.written == ETC:
            return []
        here = first is not None and first.place.written == ETC and not first.target
        why = "no link, trigger or D-Bus name starts it any more"
        if here:
            why += "; its file is kept in the journal, and undo puts it back"
        self._free(f"{ETC}/{unit}")
        return [make_link(f"{ETC}/{unit}", "/dev/null", why, "medium" if here else "low", over_file=here)]

    def _free(self, path: str) -> None:
        if unit := led_from(path, self._tree, self._protection):
            raise Refused(f"{printable(path)} stays: links of {printable(unit)} lead there, and it is protected")

    def first(self, unit: str) -> Found | None:
        files = self._units.layout.files
        found = files.get(unit) or ()
        return found[0] if found else None

    def drop_in(self, unit: str) -> str:
        """After every other drop-in, whose names decide the order (systemd.unit(5)); the one of before, if it is the last."""
        last = max((posixpath.basename(path) for path in self._units.drop_ins(unit)), key=os.fsencode, default="")
        name = last if last.endswith(_DROP_IN) else f"z{_DROP_IN}"
        if os.fsencode(last) > os.fsencode(name):
            name = f"{last.removesuffix('.conf')}{_DROP_IN}"  # z comes after the dot that follows there
        return f"{ETC}/{unit}.d/{name}"

    def written(self, path: str, content: bytes, why: str) -> list[Step]:
        """The file, unless that is in it already. Refused where a protected unit reads it too, by a link to its directory."""
        if unit := reader(path, self._tree, self._protection):
            raise Refused(f"{printable(path)} cannot be written: {printable(unit)} reads what is there, and is protected")
        entry = self._tree.entry(path, follow=False)
        same = entry is not None and entry.kind == "file" and self._tree.read(path) == content
        return [] if same else [write_file(path, content, why)]
