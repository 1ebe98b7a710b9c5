"""Where things are in a recording on disk, by name: the writer makes these names, the reader and retention know them.

DIR/recording.json                        marks a recording, and its version
DIR/lock                                  held by the recorder that writes it
DIR/20261116T012600Z/                     a chapter: one run, at most about an hour, with dictionaries of its own
    chapter.json
    stacks.parquet frames.parquet threads.parquet
    0000012345678-0000012405678/          a sealed segment: begin and end in milliseconds of the recording's clock
    open-0000012405678/                   the open one
"""

import json
import os
import re
import time
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from exhume import budget
from exhume.errors import ExhumeError
from exhume.host.quantities import MILLISECOND, size
from exhume.recording.recording import Node
from exhume.recording.schema import TABLES, VERSION
from exhume.text import from_json, printable

MARK = "recording.json"
LOCK = "lock"
CHAPTER = "chapter.json"
PINNED = "pinned"
OPEN = "open-"
TEMPORARY = "tmp-"
DICTIONARIES = ("frames", "stacks", "threads")
LARGEST_TEXT = 1 << 20
"""Bytes of recording.json, chapter.json and pinned: each has less than a few thousand."""
LATE_NS = 2_000_000_000
"""Rows may come late: samples wait in their ring, lines in the journal. So far beyond its name a segment is looked into."""

_LATEST_NS = 1 << 62  # 146 years: times are 64 bits wide, and sums of two must be
_FAMILY = "exhume.recording/"
_CHAPTER_NAME = re.compile(r"\d{8}T\d{6}Z(-\d{1,4})?")
_SEALED_NAME = re.compile(r"(\d{13,16})-(\d{13,16})")
_OPEN_NAME = re.compile(r"open-(\d{13,16})")

# Every name that we ever give to a file: whatever else is in a directory is somebody else's.
SEGMENT_FILES = frozenset({PINNED, *(f"{table}.{kind}" for table in TABLES for kind in ("parquet", "arrows"))})
CHAPTER_FILES = frozenset({CHAPTER, f"{TEMPORARY}{CHAPTER}"}) | {
    f"{begin}{name}.parquet" for name in DICTIONARIES for begin in ("", TEMPORARY)
}


@dataclass(frozen=True, slots=True)
class Chapter:
    """What chapter.json says."""

    node: Node
    about: dict[str, Any]
    begin: dict[str, int]
    """The same moment on all clocks: time (the recording's), monotonic, boot, real."""


class Span(NamedTuple):
    """A segment's directory, by its name. Of an open one the end is not known: it is its begin."""

    name: str
    start: int
    end: int
    sealed: bool


def is_chapter(name: str) -> bool:
    return _CHAPTER_NAME.fullmatch(name) is not None


def span(name: str) -> Span | None:
    """None: not the name of a segment."""
    if match := _SEALED_NAME.fullmatch(name):
        return Span(name, _time(match[1]), _time(match[2]), True)
    if match := _OPEN_NAME.fullmatch(name):
        return Span(name, _time(match[1]), _time(match[1]), False)
    return None


def _time(milliseconds: str) -> int:
    return min(int(milliseconds) * MILLISECOND, _LATEST_NS)


def spans(names: list[str]) -> list[Span]:
    """The segments of a chapter by begin. An open one whose sealed sibling is there is what a crash left: it does not count."""
    found = [one for one in map(span, names) if one is not None]
    sealed = {one.start for one in found if one.sealed}
    return sorted((one for one in found if one.sealed or one.start not in sealed), key=lambda one: (one.start, one.end))


def chapter_name(real_ns: int) -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(real_ns // 1_000_000_000))


def open_name(begin_ms: int) -> str:
    return f"{OPEN}{begin_ms:013d}"


def sealed_name(begin_ms: int, end_ms: int) -> str:
    return f"{begin_ms:013d}-{end_ms:013d}"


def mark_text() -> str:
    return json.dumps({"schema": f"{_FAMILY}{VERSION}"}) + "\n"


def chapter_text(chapter: Chapter) -> str:
    document = {"schema": f"{_FAMILY}{VERSION}", "node": asdict(chapter.node), "about": chapter.about, "begin": chapter.begin}
    return json.dumps(document, indent=1) + "\n"


_NUMBER = re.compile(r"[0-9]{1,9}")


def check_version(document: Any, path: str) -> None:
    """A sentence for people where this is not a recording, or one that we are too old for."""
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, str) or not schema.startswith(_FAMILY) or not _NUMBER.fullmatch(schema.removeprefix(_FAMILY)):
        raise ExhumeError(f"{printable(path)} is not a recording: its {MARK} says nothing of a schema of exhume")
    if int(schema.removeprefix(_FAMILY)) > VERSION:
        raise ExhumeError(
            f"{printable(path)} was made by a newer exhume (schema version {schema.removeprefix(_FAMILY)}, this one reads "
            f"up to {VERSION}): read it with that one"
        )


def check_mark(path: str) -> None:
    """Raises an ExhumeError with a sentence where this is no recording that we can read, OSError where it cannot be opened."""
    try:
        document = _document(os.path.join(path, MARK))
    except ValueError:
        document = None
    check_version(document, path)


def read_chapter(path: str) -> Chapter:
    """Raises OSError or ValueError where the file is not there or damaged, ExhumeError where it is too new."""
    document = _document(os.path.join(path, CHAPTER))
    check_version(document, path)
    try:
        node = document["node"]
        begin = {clock: int(document["begin"][clock]) for clock in ("time", "monotonic", "boot", "real")}
        about = dict(document["about"])
        hostname, boot_id, kernel, cgroups = (str(node[name]) for name in ("hostname", "boot_id", "kernel", "cgroups"))
        chapter = Chapter(Node(hostname, boot_id, kernel, cgroups, int(node["cpus"])), about, begin)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{CHAPTER} has no {error}") from error
    except OverflowError:
        raise ValueError(f"{CHAPTER} has a number without end") from None
    if any(not -(1 << 63) <= number < 1 << 63 for number in (*begin.values(), chapter.node.cpus)):
        raise ValueError(f"{CHAPTER} has a number that is too large")
    return chapter


def _document(path: str) -> Any:
    """Raises OSError or ValueError."""
    raw = budget.read(path, LARGEST_TEXT, regular=True)
    if len(raw) > LARGEST_TEXT:
        raise ValueError(f"{os.path.basename(path)} is larger than {size(LARGEST_TEXT)}")
    return from_json(raw)
