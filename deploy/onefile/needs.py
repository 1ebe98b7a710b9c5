"""Which C library an executable made by build needs: the newest version of a symbol that any ELF file in it asks for.

`needs.py FILE` unpacks nothing: it reads the archive that PyInstaller has put at the end of the file. Versions are read as the
dynamic linker does, from each file's list of versions needed (.gnu.version_r, DT_VERNEED; gABI and the LSB).
"""

import struct
import sys
from collections.abc import Iterator

_PT_LOAD, _PT_DYNAMIC = 1, 2
_STRTAB, _VERNEED, _VERNEEDNUM = 5, 0x6FFFFFFE, 0x6FFFFFFF


def versions_needed(raw: bytes) -> set[str]:
    """Of one 64-bit little-endian ELF file: what it asks of the libraries it is linked to; empty for what is none."""
    try:
        return set(_versions(raw))
    except (struct.error, ValueError, IndexError):
        return set()


def _versions(raw: bytes) -> Iterator[str]:
    if raw[:6] != b"\x7fELF\x02\x01":
        return
    offset, size, count = (*struct.unpack_from("<Q", raw, 32), *struct.unpack_from("<HH", raw, 54))
    headers = [struct.unpack_from("<IIQQQQQQ", raw, offset + place * size) for place in range(count)]
    loads = [(head[3], head[2], head[5]) for head in headers if head[0] == _PT_LOAD]
    table: dict[int, int] = {}
    for head in headers:
        if head[0] == _PT_DYNAMIC:
            table = dict(struct.unpack_from("<QQ", raw, at) for at in range(head[2], head[2] + head[5], 16))
    if _VERNEED not in table or _STRTAB not in table:
        return
    strings, at = _place(loads, table[_STRTAB]), _place(loads, table[_VERNEED])
    for _ in range(min(table.get(_VERNEEDNUM, 0), 1000)):
        _, names, _, first, following = struct.unpack_from("<HHIII", raw, at)
        inner = at + first
        for _ in range(names):
            _, _, _, name, after = struct.unpack_from("<IHHII", raw, inner)
            end = raw.index(b"\0", strings + name)
            yield raw[strings + name : end].decode("ascii", "replace")
            inner += after
        at += following


def _place(loads: list[tuple[int, int, int]], address: int) -> int:
    """Where in the file something is that the linker finds at an address."""
    for begin, offset, size in loads:
        if begin <= address < begin + size:
            return offset + address - begin
    raise ValueError(f"{address:#x} is in no segment")


def newest(versions: set[str], library: str = "GLIBC_") -> tuple[int, ...]:
    numbers = [one.removeprefix(library) for one in versions if one.startswith(library)]
    return max((tuple(int(part) for part in one.split(".")) for one in numbers if one.replace(".", "").isdecimal()), default=())


def files_in(path: str) -> Iterator[tuple[str, bytes]]:
    """The executable itself, and what is packed in it."""
    from PyInstaller.archive.readers import CArchiveReader  # type: ignore[import-untyped]

    with open(path, "rb") as file:
        yield path, file.read()
    archive = CArchiveReader(path)
    for name, entry in archive.toc.items():
        if entry[-1] == "b":  # a shared library or an extension module
            yield name, archive.extract(name)


def main(path: str) -> None:
    by_file = {name: newest(versions_needed(raw)) for name, raw in files_in(path)}
    most = max(by_file.values())
    asking = sorted(name for name, version in by_file.items() if version == most)
    shown = ".".join(map(str, most))
    print(f"needs glibc {shown} or later (asked for by {asking[0]}{f' and {len(asking) - 1} more' if asking[1:] else ''})")


if __name__ == "__main__":
    main(sys.argv[1])
