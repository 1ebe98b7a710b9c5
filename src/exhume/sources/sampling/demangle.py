"""Names of C++ and Rust functions as people wrote them. What does not demangle stays as it is."""

import re
from collections.abc import Callable
from typing import Final

from exhume.text import decode

LONGEST: Final = 512
LARGEST: Final = 4 << 20
"""A name whose demangled form may be longer than this, in bytes, stays mangled. Each reference to an earlier part can double a
name: 250 bytes become gigabytes. Of 307,557 names of C++ libraries on a Debian 12 node (Arrow, LLVM, Boost ...) 0.3 % are left
mangled by this; their longest true form has 42 KB. RLIMIT_AS of the sandbox bounds what this estimate misses."""

_Demangle = Callable[[str], str | None]
_itanium: _Demangle | None = None
_rust: _Demangle | None = None
try:
    from pycxxfilt import itanium_demangle as _itanium
    from pycxxfilt import rust_demangle as _rust
except ImportError:  # the `record` extra is not installed: names stay mangled
    pass

_RUST_HASH: Final = re.compile(r"17h[0-9a-f]{16}E(?:\.llvm\.[0-9A-F]+)?$")
_VERSION: Final = re.compile(r"@{1,2}[A-Za-z_][\w.+-]*$")
# compiler/rustc_symbol_mangling/src/legacy.rs
_RUST_ESCAPE: Final = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$")
# Itanium C++ ABI 5.1: references to parts (S_, S0_, T_ ...), literals, lengths of identifiers, opened and closed groups.
_ITANIUM_TOKEN: Final = re.compile(r"[ST][0-9A-Z]*_|L[a-z]{1,2}\d*E|\d{1,9}|[A-Z]|[^A-Z\d]+")
# Rust RFC 2603: references by position in base 62.
_RUST_TOKEN: Final = re.compile(r"B[0-9a-zA-Z]*_|B|[^B]+")
_BASE_62: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_RUST_SIGNS: Final = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}


def function_name(raw: bytes) -> str:
    """What to call the function of a symbol: demangled, without its version, no longer than it may be."""
    name = decode(raw)
    if not name.endswith("@plt"):
        name = _VERSION.sub("", name)
    return shorten(_demangled(name) or name)


def shorten(name: str) -> str:
    """Both ends of a long name carry meaning: the namespace and what it is called there."""
    if len(name) <= LONGEST:
        return name
    tail = LONGEST // 3
    return name[: LONGEST - tail - 1] + "…" + name[-tail:]


def _demangled(name: str) -> str | None:
    if _itanium is None or _rust is None or not name.startswith(("_Z", "_R", "__Z", "__R")):
        return None
    name = name.removeprefix("_") if name.startswith("__") else name
    if (_rust_bound(name) if name.startswith("_R") else _itanium_bound(name)) > LARGEST:
        return None
    if name.startswith("_ZN") and _RUST_HASH.search(name):
        return _rust_legacy(name, _itanium)
    try:
        return _rust(name) if name.startswith("_R") else _itanium(name)
    except ValueError:  # has the prefix, but is not mangled
        return None


def _itanium_bound(name: str) -> int:
    """About how long the demangled name can be: each reference counts as the largest group that was closed before it."""
    groups, largest, at = [0], 0, 0
    while at < len(name) and groups[-1] <= LARGEST:
        match = _ITANIUM_TOKEN.match(name, at)
        assert match is not None  # any character is a token
        token, at = match[0], match.end()
        if token.isdecimal():
            size = int(token) if int(token) <= len(name) - at else 0  # otherwise a literal, not the length of an identifier
            at += size
            groups[-1] += size + 2
            largest = max(largest, groups[-1] if len(groups) > 1 else size + 2)
        elif token in "INFJX":
            largest = max(largest, groups[-1] if len(groups) > 1 and token == "I" else 0)
            groups.append(0)
        elif token == "E" and len(groups) > 1:
            size = groups.pop()
            groups[-1] += size + 2
            largest = max(largest, size)
        elif token.endswith("_") and token[0] in "ST":
            groups[-1] += largest
        else:
            groups[-1] += 4 * len(token)
    return sum(groups)


def _rust_bound(name: str) -> int:
    """A reference stands for a part that begins at its position and ends before the reference."""
    before, at = [0] * 2, 2  # by position: how long what comes before it can be
    while at < len(name) and before[-1] <= LARGEST:
        match = _RUST_TOKEN.match(name, at)
        assert match is not None  # any character is a token
        token, at = match[0], match.end()
        if token[0] == "B" and len(token) > 1:
            position = 0
            for digit in token[1:-1]:
                position = position * 62 + _BASE_62.index(digit)
            position += 2 + (len(token) > 2)
            size = before[-1] - before[min(position, len(before) - 1)]
        else:
            size = 4 * len(token)
        before += [before[-1] + size] * len(token)
    return before[-1]


def _rust_legacy(name: str, demangle: _Demangle) -> str | None:
    """The first mangling of Rust has the form of C++: the hash at its end goes, and its own escapes become signs again."""
    try:
        found = demangle(name.partition(".llvm.")[0])
    except ValueError:
        return None
    if found is None:
        return None
    found = found.rpartition("::h")[0] or found
    parts = [part.removeprefix("_") if part.startswith("_$") else part for part in found.split("::")]
    return _RUST_ESCAPE.sub(_sign, "::".join(parts)).replace("..", "::")


def _sign(match: re.Match[str]) -> str:
    code = match[1]
    if code in _RUST_SIGNS:
        return _RUST_SIGNS[code]
    point = int(code[1:], 16)
    return chr(point) if point <= 0x10FFFF and not 0xD800 <= point <= 0xDFFF else match[0]
