"""A perf.data that is shown before it is imported: a process of its own looks at it first, which is enough for the cores and
the heat map, and imports it then.

The process is forked before anything is loaded, and looks while the server is getting ready. It says what it found, how far
it is and what came of it through a pipe, as pickles, and ends with the server: another pipe ends then. Before all that it says
what the page asks for first, as the bytes that answer it: those go out before the server has loaded what others take, and
before it was looked at what the cores did when they were not idle.
"""

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from exhume import budget
from exhume.errors import ExhumeError
from exhume.host.children import end_with
from exhume.imports.glance import Glance, Looked

if TYPE_CHECKING:
    from exhume.recording.folder import Folder

_SIZE = struct.Struct("<Q")
_STEP_S: Final = 0.05
_NICE: Final = 10
# What a browser takes to draw what it was given first: what follows waits so long, and does not compete with it.
_DRAWS_S: Final = 0.06


class Failed(NamedTuple):
    sentence: str
    exit_code: int


class Bringing:
    """`look` is called in the process. `tell` is given what there is to be told of the import when it is done."""

    def __init__(self, look: Callable[[], Glance | None], directory: str, tell: Callable[[list[str]], None]) -> None:
        self._directory, self._tell = directory, tell
        self._told, theirs = os.pipe()
        alive, self._alive = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._child = os.fork()
        if not self._child:
            os.close(self._told)
            os.close(self._alive)
            _child(look, directory, theirs, alive)
        os.close(theirs)
        os.close(alive)
        self._early: tuple[str, Any] | None = None
        self._stopped = False
        self._lock = threading.Lock()
        self.share = 0.0
        """How far the import is."""
        self.folder: Folder | None = None
        """The recording, once it is whole."""
        self.failed = ""
        """Why there will be none."""
        self.ended = threading.Event()

    def early(self) -> bytes | None:
        """Waits for the look, and has what answers the page's first question; None where `first` has something else to say."""
        self._early = self._next()
        kind, found = self._early
        return found if kind == "early" else None

    def first(self) -> Looked | None:
        """Waits for the look; None where it takes an import to tell. Raises what the look raised."""
        kind, found = self._early or self._next()
        if kind == "early":
            kind, found = self._next()
        if kind == "looked" and isinstance(found, Looked):
            return found
        self.stop()
        if isinstance(found, Failed):
            error = ExhumeError(found.sentence)
            error.exit_code = found.exit_code
            raise error
        return None

    def start(self) -> None:
        """From now on what is told of the import is listened to."""
        threading.Thread(target=self._listen, name="exhume-import", daemon=True).start()

    def stop(self) -> None:
        with self._lock:
            if not self._stopped and not self.ended.is_set():
                os.kill(self._child, signal.SIGKILL)
                os.waitpid(self._child, 0)
            self._stopped = True
        self.ended.set()

    def _listen(self) -> None:
        from exhume.recording.folder import Folder

        kind, found = self._next()
        while kind == "share":
            self.share = max(self.share, float(found))
            kind, found = self._next()
        with self._lock:
            if self._stopped:
                return
            os.waitpid(self._child, 0)
            self.ended.set()
        if kind == "done":
            try:
                self.folder = Folder(self._directory)
                self._tell(found)
                return
            except ExhumeError as error:
                found = Failed(str(error), error.exit_code)
        self.failed = f"it could not be imported: {found.sentence}"
        self._tell([self.failed])

    def _next(self) -> tuple[str, Any]:
        """What the child says next."""
        size = self._read(_SIZE.size)
        data = self._read(_SIZE.unpack(size)[0]) if size else b""
        if not data:
            return "failed", Failed("the process that reads it was ended", ExhumeError.exit_code)
        import pickle

        kind, found = pickle.loads(data)
        return kind, found

    def _read(self, length: int) -> bytes:
        parts: list[bytes] = []
        while length and (part := os.read(self._told, min(length, 1 << 20))):
            parts.append(part)
            length -= len(part)
        return b"" if length else b"".join(parts)


def _child(look: Callable[[], Glance | None], directory: str, told: int, alive: int) -> None:
    """Never returns: what our caller would do on the way out is not ours to do."""
    code = 1
    try:
        os.setsid()  # Ctrl-C is the server's to pass on
        end_with(alive)
        with budget.enforced():
            glance = look()
            looked = glance.look_first() if glance is not None else None
            if glance is not None and looked is not None:
                _say(told, "early", _answer(looked))
                time.sleep(_DRAWS_S)
                closer = glance.again()
                looked = closer.look() if closer is not None else None
            _say(told, "looked", looked)
            os.nice(_NICE)
            if glance is not None:
                _say(told, "done", _import(glance, directory, told))
        code = 0
    except (ExhumeError, budget.Exhausted) as error:
        _say(told, "failed", Failed(str(error), error.exit_code))
    except Exception as bug:
        _say(told, "failed", Failed(f"{type(bug).__name__}: {bug}", ExhumeError.exit_code))
    finally:
        os._exit(code)


def _answer(looked: Looked) -> bytes:
    import json

    from exhume.web.first import of_look

    return json.dumps(of_look(looked), separators=(",", ":"), allow_nan=False).encode("ascii")


def _import(glance: Glance, directory: str, told: int) -> list[str]:
    from exhume.imports.importing import bring_in

    last = 0.0

    def progress(share: float) -> None:
        nonlocal last
        if time.monotonic() - last > _STEP_S:
            last = time.monotonic()
            _say(told, "share", share)

    return bring_in([glance.path], directory, glance.wanted, glance.anchor, progress, kept=False).notes


def _say(told: int, kind: str, found: object) -> None:
    import pickle

    data = pickle.dumps((kind, found), protocol=5)
    view = memoryview(_SIZE.pack(len(data)) + data)
    while view:
        view = view[os.write(told, view) :]
