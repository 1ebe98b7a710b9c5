"""What was done to a node, and what was there before: lines that only grow, each on the disk before the change it is about.

One file for each application of a plan, in /var/lib/exhume-remedy of the node itself. A line is a JSON object with `entry` and
`check`, which covers the lines before it too: a line that was cut off while it was written is left out, an altered one is
refused. The check finds damage, not forgery: a journal is believed because root alone can have written it. So no directory
from the root on, and no file, may belong to another user or be writable by one, and no link is followed. The agent's own
directory, /var/lib/exhume, is not the place for it.
"""

import calendar
import errno
import fcntl
import hashlib
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from exhume import __version__
from exhume.errors import ExhumeError, Refused, UsageError
from exhume.host.quantities import size
from exhume.remedy.node import Node
from exhume.text import from_json, from_path, printable

DIRECTORY = "/var/lib/exhume-remedy"
FORMER = "/var/lib/exhume/remedy"
"""Where earlier versions kept it: below the agent's directory, so that a journal there may be the agent's work."""
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
            raise Refused(f"what was there before is too much for a journal of {size(LARGEST)}, so it is left as it is")
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
        told = from_json(line)
        entry = told["entry"]
        text = json.dumps(entry, sort_keys=True, separators=(",", ":"))
        check = _checked(text, before)
    except (ValueError, KeyError, TypeError):
        return None
    if told.get("check") != check or not isinstance(entry, dict) or not isinstance(entry.get("record"), str):
        return None
    return entry, check


def _checked(text: str, before: str) -> str:
    return hashlib.sha256(f"{before}{text}".encode("ascii")).hexdigest()[:16]


def known(node: Node) -> list[str]:
    """The applications that left a journal, oldest first."""
    with _directory(node) as fd:
        names = os.listdir(fd) if fd is not None else []
    found = (name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX))
    return sorted(name for name in found if _seconds(name) >= 0)


def former(node: Node) -> str:
    """A sentence about journals in the place of before, how to take them over; empty if there are none."""
    try:
        with node.files.parent(f"{FORMER}/x") as parent:
            number = 0 if parent.missing else sum(name.endswith(_SUFFIX) for name in os.listdir(parent.fd))
    except ExhumeError:
        return ""
    if not number:
        return ""
    host = node.root.path.rstrip("/")
    return (
        f"{number} {'journal' if number == 1 else 'journals'} of an earlier version in {host}{FORMER} not read: the agent can "
        "write there, as root, and undo puts unit files and links back as a journal has them. Only if no agent ran on this "
        "node, take them over and undo them: "
        f"sudo install -d -m 0700 {host}{DIRECTORY} && sudo mv {host}{FORMER}/*{_SUFFIX} {host}{DIRECTORY}/"
    )


def _seconds(identity: str) -> int:
    """Since 1970; -1 for what is no name of an application."""
    try:
        return calendar.timegm(time.strptime(identity, _STAMP)) if _ID.fullmatch(identity) else -1
    except ValueError:
        return -1


def read(node: Node, identity: str) -> list[Entry]:
    """The entries of one application; none if it died before its plan was written down."""
    with _book(node, identity, os.O_RDONLY) as (fd, _):
        return decode(_content(fd, identity), identity)[0]


@contextmanager
def append_to(node: Node, identity: str) -> Iterator[Journal]:
    """An old journal, to go on with. What was torn is cut off first."""
    with _book(node, identity, os.O_RDWR | os.O_APPEND) as (fd, at):
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
    with _directory(node) as at:
        if at is None:
            raise ExhumeError(f"the journal's directory {DIRECTORY} was removed meanwhile")
        fd = node.operations.create(f"{identity}{_SUFFIX}", at)
        try:
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)  # after a truncation the next line begins where the last one ended
            yield identity, Journal(node, fd, at, [], "", 0)
        finally:
            os.close(fd)


@contextmanager
def lock(node: Node, doing: str) -> Iterator[None]:
    """One at a time. The lock goes with the process that holds it; what is in the file only says who that is."""
    with _directory(node, make=True) as at:
        fd = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=at)
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


@contextmanager
def _directory(node: Node, make: bool = False) -> Iterator[int | None]:
    """The journal's directory, None if it is not there. Refused where another user could have written what is in it.

    What one that was killed made is only sure to be on the disk when it is synced here.
    """
    do = node.operations
    way = DIRECTORY.strip("/").split("/")
    at, path = node.root.path, node.root.path.rstrip("/")
    with ExitStack() as opened:
        try:
            fd = _opened(opened, at, None)
            _refuse_others(fd, at)
            for name in way:
                path = f"{path}/{name}"
                if make:
                    try:
                        os.stat(name, dir_fd=fd, follow_symlinks=False)
                    except FileNotFoundError:
                        do.mkdir(name, fd, 0o700 if name == way[-1] else 0o755)
                    do.sync(fd, "journal's directory")
                fd = _opened(opened, name, fd)
                _refuse_others(fd, path, private=name == way[-1])
            if make:
                do.sync(fd, "journal's directory")
        except FileNotFoundError:
            yield None
            return
        except OSError as error:
            raise _unusable(path, error) from None
        try:
            yield fd
        except OSError as error:
            raise _unusable(path, error) from None


def _opened(opened: ExitStack, name: str, at: int | None) -> int:
    """A directory. Only the root itself, which the caller named, may be a link."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | (0 if at is None else os.O_NOFOLLOW), dir_fd=at)
    opened.callback(os.close, fd)
    return fd


def _refuse_others(fd: int, path: str, private: bool = False) -> None:
    """Refused unless it is root's, or ours, and no other user can write to it; `private`: nor read it.

    In a directory with the sticky bit others cannot rename or remove what is not theirs.
    """
    status = os.fstat(fd)
    mode, shown = stat.S_IMODE(status.st_mode), printable(from_path(path))
    kept = "what is written there is not believed, nor anything added"
    if status.st_uid not in (0, os.geteuid()):
        raise Refused(f"{shown} belongs to user {status.st_uid}, not to root: {kept}")
    if private and mode & 0o077:
        raise Refused(f"{shown} is open to other users (mode {mode:04o}): {kept}; look at it, then chmod go= {shown}")
    if mode & 0o022 and not (stat.S_ISDIR(status.st_mode) and mode & stat.S_ISVTX):
        raise Refused(f"other users can write to {shown} (mode {mode:04o}): {kept}; chmod go-w {shown}")
    if not stat.S_ISDIR(status.st_mode) and (not stat.S_ISREG(status.st_mode) or status.st_nlink != 1):
        raise Refused(f"{shown} is not a plain file with one name: {kept}")


def _unusable(path: str, error: OSError) -> ExhumeError:
    shown = printable(from_path(path))
    if error.errno in (errno.ELOOP, errno.ENOTDIR):
        return Refused(f"{shown} is a link, or no directory: the journal is not looked for through it")
    return ExhumeError(f"{shown}: {os.strerror(error.errno or 0)}")


@contextmanager
def _book(node: Node, identity: str, flags: int) -> Iterator[tuple[int, int]]:
    if _seconds(identity) < 0:
        raise UsageError(f"{printable(identity)} is not the name of an application: they look like 20260131-235959")
    with _directory(node) as at:
        if at is None:
            raise UsageError(former(node) or "nothing was done to this node by exhume")
        try:
            fd = os.open(f"{identity}{_SUFFIX}", flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
        except FileNotFoundError:
            raise UsageError(f"nothing was done to this node under the name {identity}") from None
        try:
            _refuse_others(fd, f"{node.root.path.rstrip('/')}{DIRECTORY}/{identity}{_SUFFIX}", private=True)
            yield fd, at
        finally:
            os.close(fd)


def _content(fd: int, identity: str) -> bytes:
    if os.fstat(fd).st_size > LARGEST:
        raise ExhumeError(f"the journal of {identity} is larger than {size(LARGEST)} and is not read")
    chunks = []
    place = 0
    while chunk := os.pread(fd, 1 << 20, place):
        chunks.append(chunk)
        place += len(chunk)
    return b"".join(chunks)
