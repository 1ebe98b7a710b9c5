"""The syntax of unit files (systemd.syntax(7)) and what a unit's file and its drop-ins say together.

What systemd passes over is passed over here: lines without `=`, lines that are not UTF-8, what stands before the first section.
What makes systemd give the file up is said in `broken`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

LONGEST_LINE = 1 << 20  # LONG_LINE_MAX, src/basic/def.h
_BOM = b"\xef\xbb\xbf"
_ENDS = re.compile(rb"\r\n|\n\r|[\n\r\0]")  # read_line_full(), src/basic/fileio.c: NUL ends a line as well
_UNUSUAL = re.compile(rb"[\\\r\0]")
_SPACE = " \t\n\r"
_TRUE = frozenset(("1", "yes", "y", "true", "t", "on"))  # parse_boolean()
_FALSE = frozenset(("0", "no", "n", "false", "f", "off"))

Assignment = tuple[str, str, str]
"""Section, key and value, as they were written."""


@dataclass(frozen=True, slots=True)
class Text:
    assignments: tuple[Assignment, ...]
    broken: str = ""
    """Why systemd refuses the whole file; empty when it does not."""


@dataclass(frozen=True, slots=True)
class Sections:
    """What a file, or a file and its drop-ins, say: all values of a key in the order in which they were read."""

    values: Mapping[str, Mapping[str, tuple[str, ...]]]
    broken: str = ""
    assignments: tuple[Assignment, ...] = ()
    """All of them in their order, for what is reset across keys (ConditionX=)."""

    def all(self, section: str, key: str) -> tuple[str, ...]:
        """Every value, the empty ones that reset a list among them."""
        return self.values.get(section, {}).get(key, ())

    def last(self, section: str, key: str, default: str = "") -> str:
        values = self.all(section, key)
        return values[-1] if values else default

    def lines(self, section: str, key: str) -> tuple[str, ...]:
        """The values of a list of lines (ExecStart=): an empty one forgets those before it."""
        values: list[str] = []
        for value in self.all(section, key):
            if value:
                values.append(value)
            else:
                values.clear()
        return tuple(values)

    def words(self, section: str, key: str) -> tuple[str, ...]:
        """The words of a list of words (WantedBy=), each once; an empty value forgets those before it."""
        return tuple(dict.fromkeys(word for line in self.lines(section, key) for word in split(line, escapes=False)))

    def every_word(self, section: str, key: str) -> tuple[str, ...]:
        """The words of a list that cannot be reset, and where a quote is nothing special: dependencies (systemd.unit(5))."""
        return tuple(dict.fromkeys(word for line in self.all(section, key) for word in line.split()))

    def flag(self, section: str, key: str, default: bool) -> bool:
        """A boolean; what is none is passed over."""
        for value in reversed(self.all(section, key)):
            if (said := boolean(value)) is not None:
                return said
        return default


def boolean(value: str) -> bool | None:
    word = value.lower()
    return True if word in _TRUE else False if word in _FALSE else None


def parse(raw: bytes) -> Text:
    """One file. After config_parse() and parse_line(), src/shared/conf-parser.c."""
    found: list[Assignment] = []
    section = ""
    for line in _logical_lines(raw):
        if line is None:
            return Text(tuple(found), "a line is longer than 1 MiB")
        if line[0] == "[":
            if line[-1] != "]" or not _safe(line[1:-1]):
                return Text(tuple(found), "a section header is not whole")
            section = line[1:-1]
        elif section:
            key, equals, value = line.partition("=")
            if equals and (key := key.rstrip(_SPACE)):
                found.append((section, key, value.lstrip(_SPACE)))
    return Text(tuple(found))


def _logical_lines(raw: bytes) -> Iterator[str | None]:
    """Lines put together and stripped, without comments and empty ones; None for one that is too long to go on."""
    if raw.isascii() and not _UNUSUAL.search(raw) and len(raw) <= LONGEST_LINE:
        for line in raw.decode("ascii").split("\n"):
            line = line.strip(_SPACE)
            if line and line[0] not in "#;":
                yield line
        return
    held: list[bytes] = []
    length = 0
    for number, physical in enumerate(_ENDS.split(raw)):
        if length + len(physical) > LONGEST_LINE:
            yield None
            return
        start = physical.lstrip(b" \t\n\r")
        # A comment in the middle of a continued line does not end it; an empty line does.
        if start[:1] in (b"#", b";"):
            continue
        if number == 0 and physical.startswith(_BOM):
            physical = physical.removeprefix(_BOM)
        goes_on = (len(physical) - len(physical.rstrip(b"\\"))) % 2
        held.append(physical[:-1] + b" " if goes_on else physical)
        length += len(physical)
        if not goes_on:
            yield from _decoded(b"".join(held))
            held, length = [], 0
    yield from _decoded(b"".join(held))


def _decoded(line: bytes) -> Iterator[str]:
    """A line that is not UTF-8 is ignored (log_syntax_invalid_utf8())."""
    try:
        text = line.decode("utf-8").strip(_SPACE)
    except UnicodeDecodeError:
        return
    if text:
        yield text


def _safe(text: str) -> bool:
    """string_is_safe(): no control characters, quotes or backslashes."""
    return not any(c < " " or c in "\\'\"\x7f" for c in text)


def merge(texts: Iterable[Text]) -> Sections:
    """The unit's file first, then its drop-ins in their order. A drop-in with a fault adds what came before it."""
    values: dict[str, dict[str, list[str]]] = {}
    broken = ""
    every: list[Assignment] = []
    for number, text in enumerate(texts):
        every += text.assignments
        for section, key, value in text.assignments:
            values.setdefault(section, {}).setdefault(key, []).append(value)
        if number == 0:
            broken = text.broken
    frozen = {section: {key: tuple(said) for key, said in keys.items()} for section, keys in values.items()}
    return Sections(frozen, broken, tuple(every))


_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "s": " "}
_PLAIN = re.compile(r"[^\s\"'\\]+(?:[ \t]+[^\s\"'\\]+)*\Z")


def split(value: str, escapes: bool = True) -> tuple[str, ...]:
    """A value's words, unquoted; with `escapes` also C escapes undone (ExecStart=), otherwise kept (names of units).

    After extract_first_word(), src/basic/extract-word.c, in its relaxed form: an open quote ends with the value.
    """
    if _PLAIN.match(value):
        return tuple(value.split())
    words: list[str] = []
    word: list[str] = []
    quote, inside, position = "", False, 0
    while position < len(value):
        character = value[position]
        position += 1
        if character == "\\" and position < len(value):
            inside = True
            if escapes:
                text, position = _unescaped(value, position)
                word.append(text)
            else:
                word.append(character + value[position])
                position += 1
        elif quote:
            if character == quote:
                quote = ""
            else:
                word.append(character)
        elif character in "\"'":
            quote, inside = character, True
        elif character in _SPACE:
            if inside:
                words.append("".join(word))
            word, inside = [], False
        else:
            word.append(character)
            inside = True
    if inside:
        words.append("".join(word))
    return tuple(words)


def _unescaped(value: str, position: int) -> tuple[str, int]:
    """The character after a backslash at `position - 1`, and where to go on; an unknown escape stays as it was written."""
    character = value[position]
    if character in _ESCAPES:
        return _ESCAPES[character], position + 1
    for introduction, pattern, base in (("x", r"[0-9a-fA-F]{2}", 16), ("u", r"[0-9a-fA-F]{4}", 16), ("", r"[0-7]{3}", 8)):
        if character == introduction or not introduction:
            found = re.compile(pattern).match(value, position + len(introduction))
            if found and 0 < (point := int(found[0], base)) < 0xD800:
                return chr(point), found.end()
    if character in "\\\"'":
        return character, position + 1
    return "\\" + character, position + 1
