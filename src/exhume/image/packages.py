"""Which package brought a file: dpkg, rpm, apk and pacman, from their databases. Only what is asked for is looked up."""

import re
from collections.abc import Iterable

from exhume.host.tree import Tree
from exhume.image import rpm

_DPKG = "/var/lib/dpkg"
_APK = ("/usr/lib/apk/db/installed", "/lib/apk/db/installed")
_PACMAN = "/var/lib/pacman/local"
_LARGEST = 32 << 20
# Top-level directories that a merged /usr made links of (file-hierarchy(7)): a package may have the file in either.
_MERGED = ("/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/")


def owners(tree: Tree, paths: Iterable[str]) -> dict[str, str]:
    """The package of each path that one has; the rest are in no package, or in none that can be read."""
    wanted = {path: forms(path) for path in paths}
    found: dict[str, str] = {}
    for look in (_dpkg, rpm.owners, _apk, _pacman):
        if asked := {form for path, ways in wanted.items() if path not in found for form in ways}:
            packages = look(tree, asked)
            for path, ways in wanted.items():
                package = next((packages[form] for form in ways if form in packages), None)
                if package is not None:
                    found.setdefault(path, package)
    return found


def forms(path: str) -> list[bytes]:
    """The ways in which a package may have the path, as bytes, the plain one first; none for what can be no file's name."""
    if not path.startswith("/") or "\n" in path or "\0" in path:
        return []
    try:
        raw = path.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return []
    if path.startswith(_MERGED):
        return [raw, b"/usr" + raw]
    return [raw, raw.removeprefix(b"/usr")] if path.startswith(tuple(f"/usr{merged}" for merged in _MERGED)) else [raw]


def _dpkg(tree: Tree, wanted: set[bytes]) -> dict[bytes, str]:
    claims: dict[bytes, list[str]] = {}
    diverted = diversions(tree.read(f"{_DPKG}/diversions") or b"")
    # A file that was diverted is in the list of its package under the name that it would have had.
    original = {to: (source, by) for source, (to, by) in diverted.items()}
    asked = wanted | {original[form][0] for form in wanted if form in original}
    for name in tree.names(f"{_DPKG}/info"):
        if name.endswith(".list"):
            package = name.removesuffix(".list").partition(":")[0]
            for form in asked.intersection((tree.read(f"{_DPKG}/info/{name}", _LARGEST) or b"").split(b"\n")):
                claims.setdefault(form, []).append(package)
    # Images without a shell (distroless) have a paragraph and the sums of its files for each package.
    for name in tree.names(f"{_DPKG}/status.d"):
        if name.endswith(".md5sums"):
            lines = (tree.read(f"{_DPKG}/status.d/{name}", _LARGEST) or b"").split(b"\n")
            for form in asked.intersection(b"/" + line[34:].lstrip(b"/.") for line in lines):
                claims.setdefault(form, []).append(name.removesuffix(".md5sums"))
    found = {}
    for form in wanted:
        if form in original:
            source, by = original[form]
            packages = [package for package in claims.get(source, []) if package != by]
        elif form in diverted:
            packages = [package for package in claims.get(form, []) if package == diverted[form][1]]
        else:
            packages = claims.get(form, [])
        if packages:
            found[form] = packages[0]
    return found


def diversions(text: bytes) -> dict[bytes, tuple[bytes, str]]:
    """From, to and the package that diverts, a line each; ":" stands for the administrator (dpkg-divert(1))."""
    lines = text.split(b"\n")
    return {
        source: (to, by.decode("utf-8", "surrogateescape"))
        for source, to, by in zip(lines[::3], lines[1::3], lines[2::3], strict=False)
        if source.startswith(b"/") and to.startswith(b"/")
    }


def _apk(tree: Tree, wanted: set[bytes]) -> dict[bytes, str]:
    """Records of one letter, a colon and a value: P a package, F a directory, R a file in it (apk-tools, doc/apk-package.5)."""
    path = next((path for path in _APK if tree.entry(path)), None)
    if path is None:
        return {}
    found: dict[bytes, str] = {}
    package, place = "", b""
    for line in (tree.read(path, _LARGEST) or b"").split(b"\n"):
        letter, value = line[:2], line[2:]
        if letter == b"P:":
            package = value.decode("utf-8", "surrogateescape")
        elif letter == b"F:":
            place = b"/" + value + b"/" if value else b"/"
        elif letter == b"R:" and (form := place + value) in wanted:
            found.setdefault(form, package)
    return found


def _pacman(tree: Tree, wanted: set[bytes]) -> dict[bytes, str]:
    """A directory NAME-VERSION-RELEASE for each package, with the names of its files below %FILES%, without the slash."""
    found: dict[bytes, str] = {}
    for name in tree.names(_PACMAN):
        match = re.fullmatch(r"(.+)-[^-]+-[^-]+", name)
        if match and (text := tree.read(f"{_PACMAN}/{name}/files", _LARGEST)):
            for form in wanted & {b"/" + line for line in text.split(b"\n")}:
                found.setdefault(form, match[1])
    return found


def known(tree: Tree) -> bool:
    """Whether there is any database that can be read: without one, "in no package" says nothing."""
    places = (f"{_DPKG}/info", f"{_DPKG}/status.d", _PACMAN, *_APK, *rpm.DATABASES)
    return any(tree.entry(place) for place in places)
