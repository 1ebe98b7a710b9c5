"""Names of C++ and Rust functions as people wrote them. What does not demangle stays as it is."""

import re
from collections.abc import Callable
from typing import Final

from exhume.text import decode

LONGEST: Final = 512

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
    if name.startswith("_ZN") and _RUST_HASH.search(name):
        return _rust_legacy(name, _itanium)
    try:
        return _rust(name) if name.startswith("_R") else _itanium(name)
    except ValueError:  # has the prefix, but is not mangled
        return None


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
