"""What waits to be pushed, on disk: a file a profile, whole or not at all, the oldest dropped when there is no room.

It outlives the agent. A file is written under another name, brought to the disk and renamed; what a crash or a bad disk left of
one is found by its length and checksum, and dropped. The name is that of the window, so that a profile which is made or sent a
second time, because a crash came in between, has the same.
"""

import json
import os
import re
import zlib
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple

from exhume.errors import ExhumeError
from exhume.recording import files
from exhume.recording.layout import TEMPORARY
from exhume.text import from_json, printable

Kind = Literal["pprof", "otlp"]
KINDS: tuple[Kind, ...] = ("pprof", "otlp")

_SCHEMA = "exhume.push/1"
_NAME = re.compile(r"\d{20}-\d{1,10}\.push")
_NOTE = "pending.json"
_LONGEST_HEAD = 64 << 10
_LARGEST_NUMBER = 1 << 63


@dataclass(frozen=True, slots=True)
class Parcel:
    """One profile, ready to go."""

    kind: Kind
    name: str
    """What it is of, as Pyroscope calls it: exhume, exhume.incident."""
    start_real: int
    end_real: int
    """Wall clock, nanoseconds."""
    hz: int
    labels: tuple[tuple[str, str], ...]
    """Of the whole: the node, and what was configured. Those of units are in the body."""
    body: bytes


class _Entry(NamedTuple):
    name: str
    size: int


class Spool:
    """One process sends from it; children may add to it meanwhile."""

    def __init__(self, path: str, budget_bytes: int) -> None:
        self.path, self.budget_bytes = path, budget_bytes

    def prepare(self) -> None:
        """Makes the place, for root alone, and clears away what a crash left half-written. Only while nobody adds."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            with files.directory(self.path) as at:
                found = os.fstat(at)
                if found.st_uid != os.geteuid():
                    raise ExhumeError(f"{printable(self.path)} belongs to user {found.st_uid}: profiles are not kept there")
                os.fchmod(at, 0o700)
                for name in os.listdir(at):
                    if name.startswith(TEMPORARY) and (
                        _NAME.fullmatch(name.removeprefix(TEMPORARY)) or name == TEMPORARY + _NOTE
                    ):
                        os.unlink(name, dir_fd=at)
        except OSError as error:
            raise ExhumeError(f"profiles cannot wait in {printable(self.path)}: {error.strerror or error}") from error

    def add(self, parcel: Parcel) -> str:
        """Its name. It is on the disk when this returns."""
        name = f"{parcel.end_real:020d}-{zlib.crc32(f'{parcel.name} {parcel.start_real}'.encode())}.push"
        with files.directory(self.path) as at:
            files.replace(name, written(parcel), at)
            os.fsync(at)
        return name

    def note(self, text: str) -> None:
        """What the next agent must know if this one ends now; "" for nothing."""
        with suppress(FileNotFoundError), files.directory(self.path) as at:
            if text:
                files.replace(_NOTE, text.encode(), at)
            else:
                os.unlink(_NOTE, dir_fd=at)

    def noted(self) -> str:
        try:
            with files.directory(self.path) as at:
                return (files.read(_NOTE, at) or b"")[:_LONGEST_HEAD].decode("ascii", "replace")
        except OSError:
            return ""

    def waiting(self) -> list[str]:
        """Names, the oldest first. Raises OSError where nobody can say."""
        return [entry.name for entry in self._entries()]

    def take(self, name: str) -> Parcel | None:
        """None: it is not whole. Raises FileNotFoundError where it is gone, and OSError where it cannot be read now."""
        with files.directory(self.path) as at:
            raw = files.read(name, at)
        if raw is None:
            raise FileNotFoundError(name)
        return read(raw)

    def remove(self, name: str) -> bool:
        """Whether it was there. Raises OSError where it stays."""
        with suppress(FileNotFoundError), files.directory(self.path) as at:
            os.unlink(name, dir_fd=at)
            return True
        return False

    def trim(self) -> int:
        """Drops the oldest until the rest fits; how many. Raises OSError where they stay."""
        entries = self._entries()
        size, dropped = sum(entry.size for entry in entries), 0
        for entry in entries:
            if size <= self.budget_bytes:
                break
            dropped += self.remove(entry.name)
            size -= entry.size
        return dropped

    def _entries(self) -> list[_Entry]:
        found = []
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            for entry in entries:
                with suppress(OSError):
                    if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                        found.append(_Entry(entry.name, entry.stat(follow_symlinks=False).st_size))
        return sorted(found)


def written(parcel: Parcel) -> bytes:
    """A line of JSON, then the profile as it will be sent."""
    head = {
        "schema": _SCHEMA,
        "kind": parcel.kind,
        "name": parcel.name,
        "start": parcel.start_real,
        "end": parcel.end_real,
        "hz": parcel.hz,
        "labels": [list(pair) for pair in parcel.labels],
        "size": len(parcel.body),
        "crc": zlib.crc32(parcel.body),
    }
    return json.dumps(head).encode() + b"\n" + parcel.body


def read(raw: bytes) -> Parcel | None:
    """None for what is not whole, or not ours."""
    line, newline, body = raw.partition(b"\n")
    if not newline or len(line) > _LONGEST_HEAD:
        return None
    try:
        head = from_json(line)
        if not isinstance(head, dict) or head["schema"] != _SCHEMA:
            return None
        kind, name, hz, start, end = (head[key] for key in ("kind", "name", "hz", "start", "end"))
        labels = tuple((key, value) for key, value in head["labels"])
        whole = (head["size"], head["crc"]) == (len(body), zlib.crc32(body))
    except (ValueError, KeyError, TypeError):
        return None
    texts = (name, *(part for pair in labels for part in pair))
    numbers = all(type(one) is int and 0 <= one < _LARGEST_NUMBER for one in (hz, start, end))
    if not whole or kind not in KINDS or not numbers or not all(isinstance(one, str) for one in texts):
        return None
    return Parcel(kind, name, start, end, hz, labels, body)
