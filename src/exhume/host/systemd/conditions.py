"""Conditions and assertions of a unit (systemd.unit(5)) as far as the tree alone decides them.

What lies in /run, /proc, /sys and /dev, and what only the running machine knows, is said to be open; on the live root the files
there are looked at as well.
"""

import fnmatch
from dataclasses import dataclass

from exhume.host.systemd.specifiers import expand
from exhume.host.systemd.unit_file import Sections
from exhume.host.tree import Tree
from exhume.text import printable

_OF_THE_MACHINE = ("/run/", "/proc/", "/sys/", "/dev/", "/var/run/")
_MOST_MATCHES = 1000


@dataclass(frozen=True, slots=True)
class Judged:
    failing: tuple[str, ...] = ()
    """A sentence each: what keeps the unit from starting, and why."""
    open: tuple[str, ...] = ()
    """The settings that cannot be decided here."""


def judge(tree: Tree, name: str, sections: Sections) -> Judged:
    failing: list[str] = []
    open_: list[str] = []
    for word in ("Condition", "Assert"):
        triggering: list[tuple[str, bool | None]] = []
        for key, value in _settings(sections, word):
            either = value.startswith("|")
            said = f"{key}={printable(value)}"
            holds = _holds(tree, key.removeprefix(word), expand(value.removeprefix("|").lstrip(), name))
            if either:
                triggering.append((said, holds))
            elif holds is None:
                open_.append(said)
            elif not holds:
                failing.append(f"{said} does not hold on this image")
        # One of those with a pipe is enough (condition_test_list(), src/shared/condition.c).
        if triggering and not any(holds for _, holds in triggering):
            settings = [said for said, _ in triggering]
            if any(holds is None for _, holds in triggering):
                open_ += [said for said, holds in triggering if holds is None]
            else:
                failing.append(f"none of {', '.join(settings)} holds on this image")
    return Judged(tuple(failing), tuple(open_))


def _settings(sections: Sections, word: str) -> list[tuple[str, str]]:
    """In order; an empty one forgets all conditions before it, of whatever kind."""
    found: list[tuple[str, str]] = []
    for section, key, value in sections.assignments:
        if section == "Unit" and key.startswith(word) and key != word:
            if value:
                found.append((key, value))
            else:
                found.clear()
    return found


def _holds(tree: Tree, kind: str, value: str) -> bool | None:
    negated = value.startswith("!")
    holds = _plain(tree, kind, value.removeprefix("!").lstrip())
    return None if holds is None else holds != negated


def _plain(tree: Tree, kind: str, value: str) -> bool | None:
    if kind == "User":
        return value in ("root", "0", "@system") or None
    if kind == "OSRelease":
        return None
    if not value.startswith("/"):
        return None
    if not tree.live and (value + "/").startswith(_OF_THE_MACHINE):
        return None
    if kind == "PathExistsGlob":
        return _any_match(tree, value)
    entry = tree.entry(value)
    if kind == "PathExists":
        return entry is not None
    if kind == "PathIsDirectory":
        return entry is not None and entry.kind == "directory"
    if kind == "PathIsSymbolicLink":
        own = tree.entry(value, follow=False)
        return own is not None and own.kind == "link"
    if kind == "DirectoryNotEmpty":
        return bool(tree.names(value))
    if kind == "FileNotEmpty":
        return entry is not None and entry.kind == "file" and entry.size > 0
    if kind == "FileIsExecutable":
        return entry is not None and entry.kind == "file" and bool(entry.mode & 0o111)
    if kind in ("PathIsReadWrite", "PathIsMountPoint", "PathIsEncrypted") and entry is None:
        return False
    return None


def _any_match(tree: Tree, pattern: str) -> bool | None:
    """glob(3), a directory at a time; None when there is too much to look through."""
    places = [""]
    for part in pattern.strip("/").split("/"):
        if not any(c in part for c in "*?["):
            places = [f"{place}/{part}" for place in places]
            continue
        found: list[str] = []
        for place in places:
            hidden = part.startswith(".")
            fitting = (name for name in tree.names(place or "/") if fnmatch.fnmatchcase(name, part))
            found += [f"{place}/{name}" for name in fitting if hidden or not name.startswith(".")]
            if len(found) > _MOST_MATCHES:
                return None
        places = found
    return any(tree.entry(place) is not None for place in places)
