"""Files of other tools, opened: which format each is of, and where they come to be on one time axis.

The axis is the clock since boot where any file has it, since that is the one that stacks and the kernel's lines share; files
that know only the time of day are put onto it by an anchor, and without one they are not guessed at.
"""

import importlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from exhume.errors import ExhumeError
from exhume.imports.incoming import HEAD, Anchor, Axis, Ids, Import, Input, Wanted
from exhume.recording.recording import Node, Recording
from exhume.text import printable

# In the order in which a file is asked: the ones that are sure of themselves first.
FORMATS = {
    "perf.data": "exhume.imports.perf_data",
    "journalctl -o json": "exhume.imports.journal",
    "perf script": "exhume.imports.perf_script",
    "kernel log": "exhume.imports.log_text",
    "folded stacks": "exhume.imports.folded",
}
SAMPLED = ("perf.data", "perf script", "folded stacks")
"""Formats that have no lines of a log."""
# Two clocks of one boot are never so far apart.
_ANOTHER_BOOT_NS = 600_000_000_000


class Format(Protocol):
    """What a module of FORMATS has."""

    def looks(self, head: bytes) -> bool: ...
    def opened(self, source: Input, wanted: Wanted) -> Import: ...


@dataclass(slots=True)
class Brought:
    """What came of it."""

    files: list[tuple[str, str]] = field(default_factory=list)
    """Name and format of each."""
    samples: int = 0
    events: int = 0
    anchor: Anchor | None = None
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class File:
    source: Input
    format: str
    content: Import
    wanted: Wanted

    def put_away(self) -> None:
        """Keep what is known of it, and neither its descriptor nor what was read: a directory may have thousands."""
        self.source.close()
        content = self.content
        self.content = _PutAway(content.axis, content.node, content.about, content.anchors, content.notes)

    def take_out(self) -> None:
        """Ready to be read, from its begin."""
        if isinstance(self.content, _PutAway):
            self.source.again()
            known: Format = importlib.import_module(FORMATS[self.format])
            self.content = known.opened(self.source, self.wanted)


@dataclass(slots=True)
class _PutAway:
    """An Import that is not open."""

    axis: Axis
    node: Node
    about: dict[str, str | int | bool]
    anchors: list[Anchor]
    notes: list[str]
    full: bool = False

    def batches(self, ids: Ids) -> Iterator[Recording]:
        raise RuntimeError("a file is read that was put away")

    def forget(self) -> None:
        raise RuntimeError("a file is read that was put away")


def open_file(path: str, wanted: Wanted) -> File:
    source = Input(path)
    try:
        head = source.head(HEAD)
        if not head:
            raise ExhumeError(f"{source.name} is empty")
        if source.foreign:
            raise ExhumeError(source.foreign)
        for name, module in FORMATS.items():
            known: Format = importlib.import_module(module)
            if known.looks(head):
                return File(source, name, known.opened(source, wanted), wanted)
        raise ExhumeError(f"{source.name} is nothing that exhume can read: {known_formats()}")
    except BaseException:
        source.close()
        raise


def known_formats() -> str:
    return (
        "a recording of exhume record, perf.data, the text of perf script, folded stacks, dmesg or syslog text and "
        "journalctl -o json are known, gzip as well"
    )


@dataclass(frozen=True, slots=True)
class Placed:
    """Where files come to be on one axis, and what the recording of them says of itself."""

    axis: str
    anchor: Anchor | None
    node: Node
    about: dict[str, str | int | bool]

    @property
    def shift(self) -> int:
        """From the time of day to the axis."""
        return self.anchor.time - self.anchor.real if self.anchor is not None else 0

    def offset(self, file: File) -> int:
        return _offset(file.content, self.axis, self.shift, self.anchor)


def place(opened: list[File], given: Anchor | None, brought: Brought) -> Placed:
    contents = [file.content for file in opened]
    axis = "boot" if any(content.axis == "boot" for content in contents) else "wall"
    brought.anchor = anchor = _choose(given, opened) if axis == "boot" else None
    if given is not None and axis == "wall":
        brought.notes.append("--anchor was not needed: these files have the time of day")
    alone = [file.source.name for file in opened if file.content.axis == "wall"]
    if axis == "boot" and alone and (anchor is None or not anchor.sure):
        guess = f" (the time of a file would put {_said(anchor)})" if anchor is not None else ""
        raise ExhumeError(
            f"{alone[0]} has the time of day, the other files the time since boot: give one moment of both, "
            f"--anchor 12345.678=2026-01-31T12:04:31Z, or boot=2026-01-31T08:30:00Z{guess}"
        )
    hosts = [*dict.fromkeys(host for content in contents if (host := content.node.hostname.split(".")[0]))]
    if len(hosts) > 1:
        brought.notes.append(f"the files are of different machines: {printable(', '.join(hosts))}")
    if others := _of_another_boot(opened, anchor, given is not None):
        seems = "seems to be of another boot, or was" if len(others) == 1 else "seem to be of another boot, or were"
        brought.notes.append(
            f"{_some(others)} {seems} copied: the time of the file does not fit the rest, and is not gone by; one of another "
            "boot is to be imported by itself, with an --anchor of its own"
        )
    brought.notes += _told_apart(opened)
    return Placed(axis, anchor, _node(contents), _about(opened, _clock(axis, anchor)))


def tell_file(file: File, offset: int, brought: Brought) -> None:
    brought.files.append((file.source.name, file.format))
    brought.notes += [f"{file.source.name}: {note}" for note in file.content.notes]
    if file.source.cut and not any("gzip" in note for note in file.content.notes):
        brought.notes.append(f"{file.source.name}: it ends in the middle of what gzip packed: the file is not whole")
    if offset and file.content.axis == "boot":
        brought.notes.append(f"{file.source.name} is of another boot: it was placed by its time of day")


def tell_clock(placed: Placed, brought: Brought) -> None:
    axis, anchor = placed.axis, placed.anchor
    if not brought.samples and not brought.events:
        brought.notes.append("no sample was found in it, and no line of the kernel that is known")
    if axis == "boot" and anchor is None:
        brought.notes.append(
            "no file says what time of day it was: times are seconds since boot; --anchor gives them a wall clock"
        )
    elif anchor is not None and not anchor.sure:
        brought.notes.append(f"the time of day is {anchor.how}; --anchor sets it right")


def _offset(content: Import, axis: str, shift: int, anchor: Anchor | None) -> int:
    """What is added to the times of a file. One since boot that knows its time of day may be of another boot."""
    if axis == "wall":
        return 0
    if content.axis == "wall":
        return shift
    own = _sure(content)
    if own is None or anchor is None or abs(apart := _booted(own) + shift) < _ANOTHER_BOOT_NS:
        return 0
    return apart


def _of_another_boot(opened: list[File], anchor: Anchor | None, given: bool) -> list[str]:
    """Names of files since boot whose own guess at the time of day does not agree with the anchor that was chosen.

    With one that was given, and none that agrees with it, the guesses are what is wrong: all of the files were copied.
    """
    guessed = [
        (file.source.name, own[0].real - own[0].time)
        for file in opened
        if file.content.axis == "boot" and (own := file.content.anchors) and not any(one.sure for one in own)
    ]
    if anchor is None:
        return []
    others = [name for name, booted in guessed if abs(booted - anchor.real + anchor.time) > _ANOTHER_BOOT_NS]
    return [] if given and len(others) == len(guessed) else others


def _told_apart(opened: list[File]) -> list[str]:
    """What files with samples do not agree on."""
    notes = []
    for name, what, unit in (("hz", "taken at different rates", " Hz"), ("event", "of different events", "")):
        found: dict[str | int | bool, str] = {}
        for file in opened:
            if file.content.about.get("event"):
                found.setdefault(file.content.about.get(name, 0), file.source.name)
        if len(found) > 1:
            each = ", ".join(f"{printable(str(value))}{unit} ({first})" for value, first in [*found.items()][:4])
            so = ": they are counted, and stand for no time" if name == "hz" else ""
            notes.append(f"the samples are {what}, {each}{so}")
    return notes


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def _said(anchor: Anchor) -> str:
    return f"{anchor.time / 1e9:.3f}={time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(anchor.real // 10**9))}"


def _about(opened: list[File], clock: str) -> dict[str, str | int | bool]:
    """The same for every chapter: whoever reads one asks the last of them."""
    shown = _some([file.source.name for file in opened])
    each = [file.content.about for file in opened if file.content.about.get("event")] or [opened[0].content.about]
    sampled = dict(each[0])
    if any(about.get("hz") != sampled.get("hz") for about in each):
        sampled["hz"] = 0
    for name in ("kernel_only", "every_core"):
        if name in sampled:
            sampled[name] = all(about.get(name) for about in each)
    return {"imported": shown, "format": ", ".join(dict.fromkeys(file.format for file in opened)), "clock": clock, **sampled}


def _clock(axis: str, anchor: Anchor | None) -> str:
    if axis == "wall":
        return "time of day"
    return "since boot, without an anchor" if anchor is None else f"since boot, anchored: {anchor.how}"


def _choose(given: Anchor | None, opened: Sequence[File]) -> Anchor | None:
    """The one that was given, else one that is sure, else a guess.

    Of captures of several boots that of the first: the axis begins there, and what was before it would have no time. Not if
    there is a file that cannot be moved onto it.
    """
    if given is not None:
        return given
    found = [anchor for file in opened for anchor in file.content.anchors]
    chosen = min(found, key=lambda anchor: not anchor.sure, default=None)
    since_boot = [(file, _sure(file.content)) for file in opened if file.content.axis == "boot"]
    sampled = [own for file, own in since_boot if own is not None and file.format in SAMPLED]
    if chosen is None or not sampled or any(own is None for _, own in since_boot):
        return chosen
    first = min(sampled, key=_booted)
    return first if _booted(chosen) - _booted(first) > _ANOTHER_BOOT_NS else chosen


def _sure(content: Import) -> Anchor | None:
    return next((anchor for anchor in content.anchors if anchor.sure), None)


def _booted(anchor: Anchor) -> int:
    return anchor.real - anchor.time


def _node(contents: Sequence[Import]) -> Node:
    """What the files say together; the first that says something has it."""

    def first(name: str) -> str:
        return next((found for content in contents if (found := getattr(content.node, name))), "")

    cpus = max(content.node.cpus for content in contents)
    return Node(
        first("hostname") or "unknown", first("boot_id") or "imported", first("kernel"), first("cgroups") or "none", cpus
    )
