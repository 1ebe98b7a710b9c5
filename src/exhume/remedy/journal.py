"""What was done to a node, and what was there before: lines that only grow, each on the disk before the change it is about.

One file for each application of a plan, below /var/lib/exhume/remedy of the node itself. A line is a JSON object with `entry`
and `check`, which covers the lines before it too: what was cut off in the middle of writing is seen and left out, what was
altered is refused. Nobody but root reads it, because it may hold what was in files that nobody but root reads.
"""

import calendar
import fcntl
import hashlib
import json
import os
import pwd
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from exhume import __version__
from exhume.errors import ExhumeError, Refused, UsageError
from exhume.remedy.node import Node
from exhume.text import printable

DIRECTORY = "/var/lib/exhume/remedy"
LARGEST = 64 << 20
_SUFFIX = ".jsonl"
_ID = re.compile(r"\d{8}-\d{6}")
_STAMP = "%Y%m%d-%H%M%S"

Entry = dict[str, object]


class Journal:
    """An application's journal, open for more. Lines count from the first, which holds the plan."""

    def __init__(self, node: Node, fd: int, at: int, entries: list[Entry], check: str, size: int) -> None:
        self._node = node
        self._fd = fd
        self._at = at
        self._check = check
        self._size = size
        self.entries = entries

    def add(self, record: str, **fields: object) -> None:
        """One more line, on the disk when this returns. What begins something is refused while its end would still fit."""
        entry: Entry = {"record": record, "time_ns": time.time_ns(), **fields}
        line, check = encode(entry, self._check)
        if record in ("plan", "intent") and self._size + len(line) > LARGEST // 2:
            raise Refused(f"what was there before is too much for a journal of {LARGEST >> 20} MiB, so it is left as it is")
        do = self._node.operations
        try:
            do.write(self._fd, line)
            do.sync(self._fd, "journal")
        except OSError as error:
            # A full disk may have taken a part of the line; what is written after it must not stand behind half a line.
            with suppress(OSError):
                do.truncate(self._fd, self._size)
            raise ExhumeError(_unwritten(record, error)) from None
        self._check = check
        self._size += len(line)
        if not self.entries:
            do.sync(self._at, "journal's directory")
        self.entries.append(entry)


def _unwritten(record: str, error: OSError) -> str:
    why = f"the journal in {DIRECTORY} cannot be written ({os.strerror(error.errno or 0)})"
    if record == "plan":
        return f"nothing was changed: {why}"
    return f"{why}, so that nothing more is done; when it can, exhume fix --resume goes on and exhume undo takes it back"


def encode(entry: Entry, before: str) -> tuple[bytes, str]:
    """A line, and the check that the next one goes on from."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
    check = _checked(text, before)
    return f'{{"check":"{check}","entry":{text}}}\n'.encode("ascii"), check


def decode(raw: bytes, identity: str = "") -> tuple[list[Entry], str, int]:
    """The entries, the check of the last one and where it ends. What is torn at the end is left out; ExhumeError for holes."""
    entries: list[Entry] = []
    check, end = "", 0
    lines = raw.split(b"\n")
    for number, line in enumerate(lines[:-1], 1):
        entry = _entry(line, check)
        if entry is None:
            if number < len(lines) - 1 or lines[-1]:
                raise ExhumeError(f"the journal {identity} is damaged: line {number} is not what was written there")
            break
        entries.append(entry[0])
        check = entry[1]
        end += len(line) + 1
    return entries, check, end


def _entry(line: bytes, before: str) -> tuple[Entry, str] | None:
    try:
        told = json.loads(line)
        entry = told["entry"]
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        check = _checked(text, before)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if told.get("check") != check or not isinstance(entry, dict) or not isinstance(entry.get("record"), str):
        return None
    return entry, check


def _checked(text: str, before: str) -> str:
    return hashlib.sha256(f"{before}{text}".encode("ascii")).hexdigest()[:16]


def known(node: Node) -> list[str]:
    """The applications that left a journal, oldest first."""
    with node.files.parent(f"{DIRECTORY}/x") as parent:
        if parent.missing:
            return []
        names = os.listdir(parent.fd)
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(name for name in found if _seconds(name) >= 0)


def _seconds(identity: str) -> int:
    """Since 1970; -1 for what is no name of an application."""
    try:
        return calendar.timegm(time.strptime(identity, _STAMP)) if _ID.fullmatch(identity) else -1
    except ValueError:
        return -1


def read(node: Node, identity: str) -> list[Entry]:
    """The entries of one application; none if it died before its plan was written down."""
    with _opened(node, identity, os.O_RDONLY) as (fd, _):
        return decode(_content(fd, identity), identity)[0]


@contextmanager
def append_to(node: Node, identity: str) -> Iterator[Journal]:
    """An old journal, to go on with. What was torn is cut off first."""
    with _opened(node, identity, os.O_RDWR | os.O_APPEND) as (fd, at):
        raw = _content(fd, identity)
        entries, check, end = decode(raw, identity)
        if end < len(raw):
            node.operations.truncate(fd, end)
            node.operations.sync(fd, "journal")
        yield Journal(node, fd, at, entries, check, end)


@contextmanager
def begin(node: Node) -> Iterator[tuple[str, Journal]]:
    """A new journal, empty as yet; names are later than all before, whatever the clock says. Only with the lock."""
    latest = max((_seconds(identity) for identity in known(node)), default=0)
    identity = time.strftime(_STAMP, time.gmtime(max(int(time.time()), latest + 1)))
    with node.files.parent(f"{DIRECTORY}/{identity}{_SUFFIX}") as parent:
        fd = node.operations.create(parent.name, parent.fd)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # after a truncation the next line begins where the last one ended
            yield identity, Journal(node, fd, parent.fd, [], "", 0)
        finally:
            os.close(fd)


@contextmanager
def lock(node: Node, doing: str) -> Iterator[None]:
    """One at a time. The lock goes with the process that holds it; what is in the file only says who that is."""
    _make_directory(node)
    with node.files.parent(f"{DIRECTORY}/lock") as parent:
        fd = os.open(parent.name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent.fd)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = printable(os.pread(fd, 400, 0).decode("utf-8", "backslashreplace").strip()) or "another process"
            raise Refused(f"this node is being changed already, by {holder}") from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} of {who()['name']} ({doing})".encode("utf-8", "backslashreplace"), 0)
        yield
    finally:
        os.close(fd)


def who() -> dict[str, object]:
    """Who asked for it: the user, and the one behind sudo or the login, where that is another."""
    uid = os.getuid()
    told: dict[str, object] = {"uid": uid, "name": _user(uid), "version": __version__}
    if sudo := os.environ.get("SUDO_USER", ""):
        told["sudo_user"] = printable(sudo, 80)
    with suppress(OSError, ValueError), open("/proc/self/loginuid", encoding="ascii") as file:
        login = int(file.read())
        if login != 0xFFFFFFFF and login != uid:  # unset (audit's AUDIT_UID_UNSET)
            told["login"] = _user(login)
    return told


def _user(uid: int) -> str:
    try:
        return printable(pwd.getpwuid(uid).pw_name, 80)
    except KeyError:
        return str(uid)


def _make_directory(node: Node) -> None:
    """Of root alone; it is not undone. What one that was killed made is only sure to be on the disk when it is synced here."""
    do = node.operations
    way = DIRECTORY.strip("/").split("/")
    for place, name in enumerate(way):
        with node.files.parent("/" + "/".join(way[: place + 1])) as parent:
            try:
                os.stat(name, dir_fd=parent.fd, follow_symlinks=False)
            except FileNotFoundError:
                do.mkdir(name, parent.fd, 0o700 if place == len(way) - 1 else 0o755)
            do.sync(parent.fd, "journal's directory")
    with node.files.parent(f"{DIRECTORY}/x") as parent:
        do.sync(parent.fd, "journal's directory")


@contextmanager
def _opened(node: Node, identity: str, flags: int) -> Iterator[tuple[int, int]]:
    if _seconds(identity) < 0:
        raise UsageError(f"{printable(identity)} is not the name of an application: they look like 20260131-235959")
    with node.files.parent(f"{DIRECTORY}/{identity}{_SUFFIX}") as parent:
        if parent.missing:
            raise UsageError("nothing was done to this node by exhume")
        try:
            fd = os.open(parent.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent.fd)
        except FileNotFoundError:
            raise UsageError(f"nothing was done to this node under the name {identity}") from None
        try:
            yield fd, parent.fd
        finally:
            os.close(fd)


def _content(fd: int, identity: str) -> bytes:
    if os.fstat(fd).st_size > LARGEST:
        raise ExhumeError(f"the journal of {identity} is larger than {LARGEST >> 20} MiB and is not read")
    chunks = []
    place = 0
    while chunk := os.pread(fd, 1 << 20, place):
        chunks.append(chunk)
        place += len(chunk)
    return b"".join(chunks)
