"""Zombies by where they lived: names that a machine made up (a number, a UUID, a container id, a random suffix) are one group.

Only what is not there any more is collapsed. A directory that still exists is a place of its own: 3,000 zombies in
`user-1000.slice` and 2 in `user-1001.slice` are two different stories, and a live pod can be asked who it is.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# Fewer names than this that differ in nothing but letters may well be names that somebody gave.
_MANY = 16
_FEW = 3  # members of a name that can be one of those, and came up twice by chance

# Both expressions look at a path's outline, not at the path: a million container ids have one outline, so that each is looked
# at once. NUL stands for a hexadecimal digit in the first, 0 for a decimal one in the second; no path has a NUL.
# (Bytes, because they are translated ten times as fast as text.)
_HEXADECIMAL = bytes.maketrans(b"0123456789abcdef", bytes(16))
_DECIMAL = bytes.maketrans(b"123456789", b"000000000")

_IDS = re.compile(
    rb"""
      (?P<uid> \0{8} (?P<dash>[-_]) \0{4} (?P=dash) \0{4} (?P=dash) \0{4} (?P=dash) \0{12} )   # systemd's slices have _ for -
    | (?P<id> (?<!po) \0{12,} )   # docker shows twelve digits; the d of pod is none
    """,
    re.VERBOSE,
)
_NUMBERS = re.compile(
    rb"""
    (?<![0A-Za-z]) (?:
        (?P<tmp> tmp ) [a-z0_]{8}                                               # Python's tempfile
      | (?= 0* [A-Za-z]+ 0+ [A-Za-z] | 0+ [A-Za-z]+ 0 ) [0A-Za-z]{5,}           # letters and digits mixed
      | (?<=-) (?: [bcdfghjklmnpqrstvwxz0]{5} | [bcdfghjklmnpqrstvwxz0]{8,10} )  # Kubernetes' generated names have no vowels
    ) (?![0A-Za-z])
    | 0+
    """,
    re.VERBOSE,
)
_SUFFIX = re.compile(
    r"(.*[-_.:@/]|) (?!(?:service|scope|slice)\Z) ([A-Za-z]{5,}) (\.(?:service|scope|slice)|)",
    re.DOTALL | re.ASCII | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class ZombieGroup:
    path: str
    """What its members have in common; `*`, `<id>` and `<uid>` stand for what they do not."""
    example: str
    """The path of one of them."""
    members: list[int]
    """Positions in what was given."""


def collapse(places: Sequence[tuple[str, str]]) -> list[ZombieGroup]:
    """Groups of zombies, largest first, each zombie in exactly one.

    A place is the path of the nearest directory that is still there, and the rest of the zombie's path (MemcgWalk.places).
    """
    shapes = Shapes()
    groups: dict[tuple[str, str], list[int]] = {}
    for position, (home, rest) in enumerate(places):
        groups.setdefault((home, shapes[rest]), []).append(position)
    found = []
    for (home, shape), members in _with_random_merged(groups).items():
        rests = {places[member][1] for member in members}
        found.append(ZombieGroup(home + _common(shape, rests), home + places[members[0]][1], members))
    return sorted(found, key=lambda group: (-len(group.members), group.path))


class Shapes(dict[str, str]):
    """Paths without what a machine made up in them, by path."""

    def __init__(self) -> None:
        self._cuts: dict[bytes, list[tuple[int, int, bytes]]] = {}
        self._plain: dict[bytes, str] = {}

    def __missing__(self, path: str) -> str:
        raw = path.encode("utf-8", "surrogatepass")
        shape = self._plain.get(raw.translate(_DECIMAL))
        if shape is None:
            shape = self._without_numbers(self._without_ids(raw))
        self[path] = shape
        return shape

    def _without_ids(self, path: bytes) -> bytes:
        outline = path.translate(_HEXADECIMAL)
        cuts = self._cuts.get(outline)
        if cuts is None:
            cuts = [(*found.span(), b"<uid>" if found["uid"] else b"<id>") for found in _IDS.finditer(outline)]
            self._cuts[outline] = cuts
        for start, end, placeholder in reversed(cuts):
            path = path[:start] + placeholder + path[end:]
        return path

    def _without_numbers(self, path: bytes) -> str:
        outline = path.translate(_DECIMAL)
        shape = self._plain.get(outline)
        if shape is None:
            replaced = _NUMBERS.sub(lambda found: (found["tmp"] or b"") + b"*", outline)
            shape = self._plain[outline] = replaced.decode("utf-8", "surrogatepass")
        return shape


def _common(shape: str, rests: set[str]) -> str:
    """The shape, but every directory that is the same in all of them by its own name."""
    if len(rests) == 1:
        return next(iter(rests))
    parts = shape.split("/")
    first = next(iter(rests)).split("/")
    same = list(range(len(parts))) if len(parts) > 2 else []
    for rest in rests:
        if not same:
            break
        names = rest.split("/")
        same = [index for index in same if names[index] == first[index]]
    for index in same:
        parts[index] = first[index]
    return "/".join(parts)


def _with_random_merged(groups: dict[tuple[str, str], list[int]]) -> dict[tuple[str, str], list[int]]:
    """A random suffix of letters alone cannot be told from a word by looking at one; but so many words of one length can."""
    families: dict[tuple[str, str, str, int], list[tuple[str, str]]] = {}
    for (home, shape), members in groups.items():
        suffix = _SUFFIX.fullmatch(shape) if len(members) <= _FEW else None
        if suffix is not None and (suffix[1].rpartition("/")[2] or not suffix[3]):
            families.setdefault((home, suffix[1], suffix[3], len(suffix[2])), []).append((home, shape))
    for (home, stem, kind, _), keys in families.items():
        if len(keys) >= _MANY:
            groups.setdefault((home, f"{stem}*{kind}"), []).extend(member for key in keys for member in groups.pop(key))
    return groups
