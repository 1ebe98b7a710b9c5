"""A look at a perf.data, readable as a recording of what its cores did.

Its samples, stacks and names are not there: to ask for them is refused as not yet known.
"""

from collections.abc import Iterable, Iterator
from typing import NoReturn

from exhume.errors import NotYet
from exhume.imports.glance import Looked
from exhume.recording.chapters import ChapterReader
from exhume.recording.layout import Span
from exhume.recording.plain import Columns
from exhume.recording.recording import Recording
from exhume.recording.schema import TABLES
from exhume.recording.summary import Summary, between


class FirstLook:
    """Counts of samples by core and second; everything else of a recording is empty, or NotYet."""

    def __init__(self, looked: Looked) -> None:
        self.path = looked.path
        self._looked = looked
        self.notes: list[str] = []
        self.node, self.boots = looked.node, [looked.node.boot_id]
        self.about = dict(looked.about)
        self.sampled = self.window = looked.window
        self.written = False

    @property
    def spans(self) -> list[Span]:
        return [Span("", *self.window, sealed=True)]

    @property
    def has_samples(self) -> bool:
        return self._looked.samples > 0

    @property
    def boot_id(self) -> str:
        return self.node.boot_id

    def real_ns(self, time: int) -> int:
        return time - self._looked.shift

    def time_at(self, real_ns: int) -> int:
        return real_ns + self._looked.shift

    def summary(self, start: int | None = None, end: int | None = None) -> Summary:
        return between(self._looked.summary, start, end)

    def count(self, table: str) -> int:
        return self._looked.samples if table == "samples" else 0

    def load(self, start: int | None = None, end: int | None = None, tables: Iterable[str] | None = None) -> Recording:
        if "samples" in set(TABLES if tables is None else tables):
            self._not_yet()
        return Recording(self.node)

    def pieces(self, table: str, start: int | None = None, end: int | None = None) -> Iterator[tuple[ChapterReader, Columns]]:
        self._not_yet()

    def gaps(self, start: int | None = None, end: int | None = None, sampled: bool = False) -> list[tuple[int, int]]:
        return []

    def _not_yet(self) -> NoReturn:
        raise NotYet(f"{self.about['imported']} was looked at, not imported: only what the cores did is known of it")
