"""One entry of the journal as `journalctl -o json` prints it."""

from typing import Any, NamedTuple

from exhume.sources import journal_units
from exhume.text import decode, from_json

LONGEST = 16 << 10
"""Characters that are kept of a message."""
LATEST_USEC = 7_000_000_000 * 1_000_000  # of the year 2191: what has more is no time
LONGEST_BOOT_USEC = 1_000_000_000 * 1_000_000

Entry = dict[str, Any]


class UnitEntry(NamedTuple):
    """What PID 1 said of a unit, when by CLOCK_MONOTONIC, in which boot, and where in the journal that is."""

    boot: str
    time: int
    cursor: str
    said: journal_units.Said


def unit_entry(line: bytes) -> UnitEntry | None:
    entry = entry_of(line) or {}
    said = journal_units.said(lambda name: text(entry.get(name)))
    time = number(entry.get("__MONOTONIC_TIMESTAMP"), LONGEST_BOOT_USEC)
    if said is None or time is None:
        return None
    return UnitEntry(text(entry.get("_BOOT_ID")), time * 1000, text(entry.get("__CURSOR")), said)


def entry_of(line: bytes) -> Entry | None:
    """One line. -o json-seq has a record separator before each, -o json-sse `data: `."""
    line = line.strip(b"\x1e\r\n\t ").removeprefix(b"data: ")
    if not line.startswith(b"{"):
        return None
    try:
        found = from_json(line)
    except ValueError:  # UnicodeDecodeError is a ValueError
        return None
    return found if isinstance(found, dict) else None


def _first(value: object) -> object:
    """A field that an entry has several times is a list of them, a list of numbers is bytes (journalctl(1))."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        return value[0]
    return value


def message_of(value: object) -> str | None:
    value = _first(value)
    if isinstance(value, list):
        try:
            return decode(bytes(value[:LONGEST]))
        except (TypeError, ValueError):
            return None
    return _kept(value[:LONGEST]) if isinstance(value, str) else None


def text(value: object) -> str:
    value = _first(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 63 else ""
    return _kept(value[:256]) if isinstance(value, str) else ""


def _kept(said: str) -> str:
    """JSON can name half of a surrogate pair, which is no text that could be stored."""
    return said if said.isascii() else said.encode("utf-8", "backslashreplace").decode()


def number(value: object, most: int) -> int | None:
    digits = text(value)
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 and int(digits) <= most else None
