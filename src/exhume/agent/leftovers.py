"""What exhume leaves on a node beside its own package: found first, then removed, and nothing that is not its own.

Links are followed as the node itself would and never out of its root; directories are removed without following any link in
them. What a package manager brought (the program, a unit below /usr) is that one's to remove.
"""

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from exhume import scratch
from exhume.errors import ExhumeError
from exhume.host.root import Root
from exhume.recording import layout
from exhume.remedy import journal
from exhume.remedy.application import Application
from exhume.remedy.carry_out import history
from exhume.remedy.manager import Manager
from exhume.remedy.node import Node, at
from exhume.text import from_path, printable

STATE: Final = "/var/lib/exhume"
UNIT: Final = "exhume-agent.service"
CLUSTER: Final = f"{journal.DIRECTORY}/cluster"
"""Where `exhume node`, run by root, keeps a journal for each node of a cluster that it took out of service from here."""
_JOURNALS: Final = {
    journal.DIRECTORY: "the journal of what was fixed",
    journal.FORMER: "the journal of what an earlier version fixed",
    f"{STATE}/cluster": "journals of nodes that an earlier version took out of service",
}
_UNITS: Final = "/etc/systemd/system"
# Besides the state: settings, the unit where people put it, the link that enables it, and what `exhume completion` tells.
PLACES: Final = (
    ("/etc/exhume", "settings"),
    ("/etc/default/exhume-agent", "settings of the unit"),
    (f"{_UNITS}/{UNIT}", "the unit"),
    (f"{_UNITS}/{UNIT}.d", "drop-ins of the unit"),
    (f"{_UNITS}/multi-user.target.wants/{UNIT}", "the link that enables the unit"),
    ("/etc/bash_completion.d/exhume", "completion"),
)


@dataclass(frozen=True, slots=True)
class Left:
    path: str
    """On the node."""
    what: str
    size_bytes: int


def user_state() -> str:
    """Where commands that need no root keep what they have done to clusters and fleets. A relative one is to be ignored, says
    the base directory specification."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(base if os.path.isabs(base) else os.path.expanduser("~/.local/state"), "exhume")


def found(
    root: Root, keep_recordings: bool = False, keep_journal: bool = False, more: Iterable[str] = (), user: str = ""
) -> list[Left]:
    """What there is, the state directory in its parts. `more` are recordings that the settings keep elsewhere, `user` is the
    state of whoever asks."""
    lefts = [Left(path, what, _size(root, path)) for path, what in PLACES if _there(root, path)]
    for path in _parts(root):
        if keep_journal if path in _JOURNALS else keep_recordings:
            continue
        lefts.append(Left(path, _JOURNALS.get(path, "recordings and what belongs to them"), _size(root, path)))
    # Directories of commands that were killed. Every user's, where root asks.
    places = dict.fromkeys(("/tmp", "/var/tmp", *((tempfile.gettempdir(),) if root.own else ())))
    for place in places:
        for path in scratch.left(_place(root, f"{place}/") or "", everybody=os.geteuid() == 0):
            name = f"{place}/{os.path.basename(path)}"
            lefts.append(Left(name, "of a command that was killed", _size(root, name)))
    if user and not keep_journal and _there(root, user):
        lefts.append(Left(user, "journals of this user: nodes of clusters, waves of fleets", _size(root, user)))
    if not keep_recordings:
        lefts += [Left(path, "a recording", _size(root, path)) for path in more if _is_recording(root, path)]
    return lefts


def not_undone(node: Node) -> list[Application]:
    """Fixes that are in force, or hang in the balance: without their journal nobody can undo them."""
    return [one for one in history(node) if one.status != "undone" and one.begun]


def out_of_service(root: Root, user: str = "") -> list[str]:
    """Nodes that were taken out of service from here and, as their journals have it, not put back since."""
    journals = (CLUSTER, f"{STATE}/cluster", *((f"{user}/cluster",) if user else ()))
    places = [(name, _place(root, f"{way}/{name}")) for way in journals for name in _names(root, way)]
    return sorted(name for name, place in places if place is not None and os.path.isdir(place) and _is_out(at(place)))


def _is_out(node: Node) -> bool:
    """By what was done last: what ended with an uncordon, or was undone, left nothing behind."""
    for one in reversed([one for one in history(node) if one.begun]):
        over = any(
            step.kind == "uncordon" and done.became == "done" for step, done in zip(one.plan.steps, one.steps, strict=True)
        )
        return one.status != "undone" and not over
    return False


def writers(root: Root, lefts: Iterable[Left]) -> list[str]:
    """Recordings that are being written to: whoever writes holds the lock in it (recording/writer.py)."""
    paths = [path for left in lefts for path in (left.path, *(f"{left.path}/{name}" for name in _names(root, left.path)))]
    return [path for path in paths if _locked(root, path)]


def stop(manager: Manager) -> bool:
    """The agent's unit, if it runs."""
    if manager.state(UNIT).down:
        return False
    manager.stop(UNIT)
    return True


def remove(root: Root, lefts: Iterable[Left]) -> Iterator[tuple[Left, str]]:
    """Each with "" when it is gone, or why it is not; then the state directory itself where nothing is left in it."""
    for left in lefts:
        try:
            _remove(root, left.path)
            yield left, ""
        except OSError as error:
            yield left, os.strerror(error.errno or 0)
    try:
        if (path := _place(root, STATE)) is not None:
            os.rmdir(path)
    except OSError:
        return


def _remove(root: Root, name: str) -> None:
    path = _place(root, name)
    if path is None:
        raise FileNotFoundError(2, "")
    if stat.S_ISDIR(os.lstat(path).st_mode):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _place(root: Root, name: str) -> str | None:
    """Where it is, its directory's links followed inside the root and the last part taken as it is."""
    directory, last = os.path.split(name)
    inside = root.real(directory)
    return None if inside is None else os.path.join(inside, last)


def _there(root: Root, name: str) -> bool:
    path = _place(root, name)
    return path is not None and os.path.lexists(path)


def _names(root: Root, name: str) -> list[str]:
    path = _place(root, name)
    try:
        return sorted(os.listdir(path)) if path is not None and not os.path.islink(path) else []
    except OSError:
        return []


def _parts(root: Root) -> list[str]:
    journals = [journal.DIRECTORY] if _there(root, journal.DIRECTORY) else []
    return [*journals, *(f"{STATE}/{name}" for name in _names(root, STATE))]


def _size(root: Root, name: str) -> int:
    path = _place(root, name)
    if path is None:
        return 0
    total = 0
    try:
        total = os.lstat(path).st_size
        if not os.path.islink(path):
            for directory, _, files in os.walk(path):
                total += sum(_file_size(os.path.join(directory, file)) for file in files)
    except OSError:
        return total
    return total


def _file_size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _is_recording(root: Root, name: str) -> bool:
    """Only what says of itself that it is one is ours to remove."""
    return _there(root, f"{name}/{layout.MARK}") and not name.startswith(f"{STATE}/")


def _locked(root: Root, name: str) -> bool:
    path = _place(root, f"{name}/{layout.LOCK}")
    if path is None:
        return False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError as error:
        raise ExhumeError(f"{printable(from_path(path))} cannot be locked: {os.strerror(error.errno or 0)}") from None
    finally:
        os.close(fd)
    return False
