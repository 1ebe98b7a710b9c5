"""Names of cgroups, processes and units are hostile text: here they become something safe to keep and to show."""

from typing import Any

# What spreadsheets take for the beginning of a formula, in full-width form as well (East Asian editions).
_FORMULAS = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def decode(raw: bytes) -> str:
    """Bytes from the kernel as text: what is not UTF-8 stays visible as \\xNN, nothing is lost or guessed."""
    return raw.decode("utf-8", "backslashreplace")


def from_path(path: str) -> str:
    """A file name from the os module, where bytes that are not UTF-8 are lone surrogates, as text that may be kept."""
    return path if path.isascii() else decode(path.encode("utf-8", "surrogateescape"))


def printable(text: str, limit: int = 160) -> str:
    """Text as it may go to a terminal: no control, format or bidirectional characters, no more than `limit` long.

    Too long a name keeps its beginning and its end, because both carry meaning (`/kubepods/...` and the container id).
    """
    if len(text) > 2 * limit:  # cut before escaping, so that 4,095 hostile bytes cost no more than 160 friendly ones
        text = text[:limit] + "…" + text[-limit:]
    text = escaped(text)
    if len(text) > limit:
        tail = limit // 3
        text = text[: limit - tail - 1] + "…" + text[-tail:]
    return text


def from_json(text: str | bytes | bytearray) -> Any:
    """What a JSON document says. Raises ValueError for every one that cannot be read, also where it is nested too deeply."""
    import json

    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def escaped(text: str) -> str:
    """Text without control, format and bidirectional characters, at its full length."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def cell(text: str) -> str:
    """Text as a cell of a CSV file, which is shown on terminals and opened by spreadsheets: no control characters, no formula.

    A tab or carriage return at the beginning, which some spreadsheets skip before a formula, is escaped like all of them.
    """
    text = escaped(text)
    return f"'{text}" if text.startswith(_FORMULAS) else text


def sentence(text: str, limit: int = 400) -> str:
    """The same of a sentence that may have a list in it: its end goes, because without its middle two items read as one."""
    kept = text[:limit]
    end = max(kept.rfind("; "), kept.rfind(", "))
    if len(text) <= limit or end < limit // 2:  # one long name
        return printable(text, limit)
    return printable(kept[:end], 2 * limit) + " …"


def _escape(character: str) -> str:
    point = ord(character)
    if point < 0x100:
        return f"\\x{point:02x}"
    return f"\\u{point:04x}" if point < 0x10000 else f"\\U{point:08x}"
