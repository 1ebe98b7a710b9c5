"""The recording that is shown: opened once, looked at again while it grows, and what of it is kept in memory."""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from exhume.diagnosis.findings.thresholds import Thresholds
from exhume.errors import ExhumeError, NotYet
from exhume.host.quantities import SECOND
from exhume.recording.folder import Folder
from exhume.recording.readable import Readable
from exhume.recording.recording import Recording
from exhume.recording.tally import Tally
from exhume.text import printable

if TYPE_CHECKING:
    from exhume.web.bringing import Bringing

Kept = TypeVar("Kept")
_LOOK_AGAIN_S = 1.0
_LATE_NS = 5 * SECOND
_PROFILES, _PROFILE_BYTES = 4, 96 << 20
_ANSWERS, _ANSWER_BYTES = 24, 32 << 20


class Cache(Generic[Kept]):
    """The last few things, and no more than so many bytes of them. What is being made is made once, and waited for."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._kept: OrderedDict[Hashable, tuple[Kept, int]] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Kept], size: Callable[[Kept], int]) -> Kept:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key][0]
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if key in self._kept:
                    return self._kept[key][0]
            try:
                found = make()
                self._keep(key, found, size(found))
            finally:
                with self._lock:
                    self._making.pop(key, None)
            return found

    def _keep(self, key: Hashable, found: Kept, size: int) -> None:
        with self._lock:
            self._kept[key] = found, size
            while len(self._kept) > self._most or (
                len(self._kept) > 1 and sum(each for _, each in self._kept.values()) > self._most_bytes
            ):
                self._kept.popitem(last=False)

    def __len__(self) -> int:
        return len(self._kept)


class Profile(NamedTuple):
    """The samples of a window, counted, and what they refer to. Shared: not to be changed."""

    tally: Tally
    dictionaries: Recording


class Store:
    """`folder` is always one that is recent; times of all answers are from `origin` on, which stays. While a file is still
    being imported it is the first look at it, and `coming` has what takes its place."""

    def __init__(
        self, folder: Readable, name: str, thresholds: Thresholds | None = None, coming: "Bringing | None" = None
    ) -> None:
        self._coming = coming
        self.name = name
        self.thresholds = thresholds or Thresholds()
        self._folder: Readable = folder
        self._live = _grows(folder)
        self._looked = time.monotonic()
        self._lock = threading.Lock()
        self._boot_id = folder.boot_id
        self.origin = folder.window[0]
        hz = folder.about.get("hz")
        self.hz = hz if isinstance(hz, int) and hz > 0 else 0
        self.profiles: Cache[Profile] = Cache(_PROFILES, _PROFILE_BYTES)
        self.answers: Cache[Any] = Cache(_ANSWERS, _ANSWER_BYTES)

    @property
    def folder(self) -> Readable:
        """Opened anew while somebody writes it, once a second at most, and once more when they are done."""
        with self._lock:
            if self._coming is not None:
                if self._coming.folder is None:
                    return self._folder
                self._folder, self._coming = self._coming.folder, None
            if time.monotonic() - self._looked >= _LOOK_AGAIN_S:
                self._looked = time.monotonic()
                self._look_again()
            return self._folder

    @property
    def whole(self) -> Folder:
        """The same where more is needed than what the cores did. Raises NotYet while that is still being imported."""
        folder = self.folder
        if not isinstance(folder, Folder):
            raise NotYet(self.waiting)
        return folder

    @property
    def share(self) -> float:
        """How much of a file is imported."""
        return 1.0 if (coming := self._coming) is None else coming.share

    @property
    def waiting(self) -> str:
        return f"{printable(self.name)} is still being imported: {self.share:.0%}"

    @property
    def failed(self) -> str:
        """Why what is asked for will never be there; "" if that is not so."""
        coming = self._coming
        return f"{printable(self.name)}: {coming.failed}" if coming is not None and coming.failed else ""

    def wait(self, seconds: float) -> bool:
        """Whether all of it is there, or never will be; after waiting for that."""
        return self._coming is None or self._coming.ended.wait(seconds)

    def start(self) -> None:
        if self._coming is not None:
            self._coming.start()

    def stop(self) -> None:
        if (coming := self._coming) is not None:
            coming.stop()

    def _look_again(self) -> None:
        """Opening costs a few milliseconds after hours of recording, and says whether somebody writes."""
        try:
            found = Folder(self._folder.path)
            if found.boot_id != self._boot_id:
                found = Folder(self._folder.path, found.boots.index(self._boot_id) - len(found.boots) + 1)
        except (ExhumeError, ValueError):  # removed, or all of this boot is: what was seen stays on the screen
            self._live = False
            return
        was, self._live = self._live, _grows(found)
        if was or self._live:
            self._folder = found

    @property
    def live(self) -> bool:
        return self._live

    def window(self, folder: Readable) -> tuple[int, int]:
        """All of it; the end is outside."""
        first, last = folder.window
        return min(first, self.origin), max(last + 1, self.origin + 1)

    def us(self, moment: int) -> int:
        """A moment as answers have it: microseconds from the origin on."""
        return (moment - self.origin) // 1_000

    def settled(self, folder: Readable, end: int) -> bool:
        """Whether nothing is added any more to what is before `end`: the newest seconds of a live recording still get rows."""
        return not self._live or end <= folder.window[1] - _LATE_NS

    def profile(self, folder: Folder, start: int, end: int, cores: tuple[int, ...] | None) -> Profile:
        def make() -> Profile:
            return Profile(*folder.profile(start, end, cores))

        if not self.settled(folder, end):
            return make()
        return self.profiles.get((start, end, cores), make, _profile_bytes)


def _grows(folder: Readable) -> bool:
    """Somebody writes it, and not the next boot."""
    return folder.written and folder.boot_id == folder.boots[-1]


def _profile_bytes(profile: Profile) -> int:
    """About what it takes: a frame of a stack eight bytes and a list's overhead, a name some hundred."""
    stacks = profile.dictionaries["stacks"]
    names = len(profile.dictionaries["frames"]) + len(profile.dictionaries["threads"]) * 6
    return 32 * len(profile.tally.count) + sum(56 + 8 * len(frames) for frames in stacks.lists("frames")) + 120 * names
