"""The vdso: a small library that the kernel maps into every process. Ours is the same as all others', so it is read here."""

from functools import cache

from exhume.sources.sampling import elf
from exhume.text import decode


def functions_of(addresses: list[int]) -> list[tuple[int, int, str]]:
    """Start, end and name of what is at the offsets into the vdso, each once."""
    return list(dict.fromkeys(_function(address) for address in addresses))


def _function(address: int) -> tuple[int, int, str]:
    parsed = _parsed()
    segment = parsed.segment(address) if parsed is not None else None
    if parsed is None or segment is None or parsed.table is None:
        return address, address + 1, ""
    shift = segment.address - segment.offset
    found = parsed.table.find(address + shift)
    start = max(found.start - shift, segment.offset)
    end = min(found.end - shift, segment.offset + segment.size)
    return start, end, decode(parsed.table.name(found.which, _read)) if found.which >= 0 else ""


@cache
def _parsed() -> elf.Elf | None:
    try:
        return elf.parse(_read)
    except elf.Malformed:
        return None


def _read(size: int, offset: int) -> bytes:
    return _image()[offset : offset + size]


@cache
def _image() -> bytes:
    try:
        with open("/proc/self/maps") as maps:
            ranges = [line.split(None, 1)[0] for line in maps if line.rstrip().endswith("[vdso]")]
        if not ranges:
            return b""
        start, end = (int(part, 16) for part in ranges[0].split("-"))
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(start)
            return memory.read(end - start)
    except (OSError, ValueError):
        return b""
