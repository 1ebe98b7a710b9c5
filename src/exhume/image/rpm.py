"""rpm's database in SQLite: which package a file is of. Headers are taken apart here, so no rpm is needed to look at an image.

A header is a store of tags: a count of entries, a size, the entries (tag, type, offset, count, each 32 bits, most significant
byte first) and the data (rpm documentation, "RPM v4 package format", header structure). The older databases, Berkeley DB and
ndb, are not read, and that is said.
"""

import struct

from exhume.host.paths import LONGEST
from exhume.host.tree import Tree, complain
from exhume.image.sqlite import Database

_PLACES = ("/usr/lib/sysimage/rpm", "/var/lib/rpm")
DATABASES = tuple(f"{place}/rpmdb.sqlite" for place in _PLACES)
_OTHERS = {"Packages.db": "ndb", "Packages": "Berkeley DB"}

_NAME, _DIRECTORY_INDEXES, _BASENAMES, _DIRECTORIES = 1000, 1116, 1117, 1118  # rpmtag.h
_INT32, _STRING, _STRINGS = 4, 6, 8
_ENTRY = struct.Struct(">iIiI")
_LARGEST_HEADER = 64 << 20
_MOST_HEADERS = 5000


class Malformed(Exception):
    """Why a header cannot be read, as the end of a sentence."""


def owners(tree: Tree, wanted: set[bytes]) -> dict[bytes, str]:
    found: dict[bytes, str] = {}
    for path in DATABASES:
        if database := Database.read(tree, path):
            with database:
                found = _look_up(database, wanted, path, tree.troubles)
            break
    else:
        for place in _PLACES:
            for name, kind in _OTHERS.items():
                if tree.entry(f"{place}/{name}"):
                    complain(
                        tree.troubles, f"{place}/{name} is rpm's database in the form of {kind}, which cannot be read here."
                    )
    return found


def _look_up(database: Database, wanted: set[bytes], path: str, troubles: list[str]) -> dict[bytes, str]:
    """By rpm's own index of base names to the few headers that can have a path, and by those to the whole path."""
    numbers: dict[int, None] = {}
    for name in {form.rpartition(b"/")[2] for form in wanted}:
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            continue  # the index is by text
        for (number,) in database.rows("select hnum from Basenames where key = ?", text):
            if isinstance(number, int):
                numbers[number] = None
    found: dict[bytes, str] = {}
    for number in list(numbers)[:_MOST_HEADERS]:
        for (blob,) in database.rows("select blob from Packages where hnum = ?", number):
            try:
                package, files = header(blob)
            except Malformed as why:
                complain(troubles, f"{path} has a header that cannot be read: {why}.")
                continue
            for form in wanted.intersection(files):
                found.setdefault(form, package)
    return found


def header(blob: object) -> tuple[str, list[bytes]]:
    """The package's name and its files."""
    if not isinstance(blob, bytes) or len(blob) < 8:
        raise Malformed("it is cut short")
    count, size = struct.unpack_from(">II", blob)
    start = 8 + count * _ENTRY.size
    if start + size > len(blob) or size > _LARGEST_HEADER:
        raise Malformed("it is cut short")
    data = blob[start : start + size]
    entries = {tag: (kind, offset, items) for tag, kind, offset, items in _ENTRY.iter_unpack(blob[8:start])}
    name = _strings(data, entries.get(_NAME), _STRING)
    bases = _strings(data, entries.get(_BASENAMES), _STRINGS)
    directories = _strings(data, entries.get(_DIRECTORIES), _STRINGS)
    indexes = _numbers(data, entries.get(_DIRECTORY_INDEXES))
    if not name or len(indexes) != len(bases) or any(index >= len(directories) for index in indexes):
        raise Malformed("its lists of files do not fit together")
    files = [
        directories[i] + base for i, base in zip(indexes, bases, strict=True) if len(directories[i]) + len(base) <= LONGEST
    ]
    return name[0].decode("utf-8", "backslashreplace"), files


def _strings(data: bytes, entry: tuple[int, int, int] | None, kind: int) -> list[bytes]:
    """Strings that each end with a NUL."""
    if entry is None:
        return []
    found_kind, offset, items = entry
    if found_kind != kind or not 0 <= offset <= len(data):
        raise Malformed("an entry is not of its kind")
    parts = data[offset:].split(b"\0", items) if items <= len(data) else []
    if len(parts) <= items:
        raise Malformed("a list is cut short")
    return parts[:items]


def _numbers(data: bytes, entry: tuple[int, int, int] | None) -> list[int]:
    if entry is None:
        return []
    kind, offset, items = entry
    if kind != _INT32 or offset < 0 or offset + 4 * items > len(data):
        raise Malformed("an entry is not of its kind")
    return list(struct.unpack_from(f">{items}I", data, offset))
