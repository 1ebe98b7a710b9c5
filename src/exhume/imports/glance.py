"""A perf.data at a glance: what its cores did, second by second, in a fraction of the time that an import takes.

What it takes to look is loaded when somebody does: whoever only asks whether a file can be looked at has the answer at once.
"""

import os
from typing import TYPE_CHECKING, NamedTuple

from exhume.host.quantities import MILLISECOND

if TYPE_CHECKING:
    from exhume.imports.foreign import File
    from exhume.imports.incoming import Anchor, Wanted
    from exhume.recording.recording import Node
    from exhume.recording.summary import Summary

_MAGIC = b"PERFILE2"  # MAGIC of imports/perf_file.py; what begins as others do is refused when it is opened


class Looked(NamedTuple):
    """What a look at a file gives."""

    path: str
    summary: "Summary"
    samples: int
    window: tuple[int, int]
    """From the millisecond of the first sample to after the last."""
    shift: int
    """From the time of day to the recording's clock."""
    node: "Node"
    about: dict[str, str | int | bool]
    notes: list[str]
    """What an import would tell, as far as it is known by looking."""


class Glance:
    """A perf.data that can be looked at so: its events are known, its records were not read yet."""

    def __init__(self, file: "File", wanted: "Wanted", anchor: "Anchor | None") -> None:
        self._file = file
        self.path, self.wanted, self.anchor = file.source.path, wanted, anchor

    def close(self) -> None:
        self._file.source.close()

    def look(self) -> Looked | None:
        """Once. None where only an import can tell, and where there is no sample, of which that knows more to say."""
        return self._look(closely=True)

    def look_first(self) -> Looked | None:
        """The same in less time: whatever a core did that was not idle counts as `user`. `again` can tell, then."""
        return self._look(closely=False)

    def again(self) -> "Glance | None":
        """The same file, to be looked at once more."""
        return glance(self.path, self.wanted, self.anchor)

    def _look(self, closely: bool) -> Looked | None:
        from exhume.imports.foreign import Brought, place, tell_clock, tell_file
        from exhume.imports.perf_data import PerfData

        file, brought = self._file, Brought()
        assert isinstance(file.content, PerfData)
        try:
            placed = place([file], self.anchor, brought)
            offset = placed.offset(file)
            sketch = file.content.sketch(offset, closely)
        finally:
            self.close()
        if sketch is None or not sketch.samples:
            return None
        brought.samples = sketch.samples
        tell_file(file, offset, brought)
        tell_clock(placed, brought)
        summary = sketch.summary()
        window = sketch.first // MILLISECOND * MILLISECOND, sketch.last + 1
        return Looked(self.path, summary, sketch.samples, window, placed.shift, placed.node, placed.about, brought.notes)


def begins_as_one(path: str) -> bool:
    """Whether it is a plain file that begins as a perf.data does."""
    if path == "-" or not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as plain:
            return plain.read(len(_MAGIC)) == _MAGIC
    except OSError:  # as who imports it will say
        return False


def glance(path: str, wanted: "Wanted", anchor: "Anchor | None" = None) -> Glance | None:
    """None where the file is no perf.data, or one of which a look cannot tell. Raises what opening it for import would."""
    if not begins_as_one(path):
        return None
    from exhume.imports.foreign import open_file
    from exhume.imports.perf_data import PerfData

    file = open_file(path, wanted)
    if isinstance(file.content, PerfData) and file.content.can_be_sketched:
        return Glance(file, wanted, anchor)
    file.source.close()
    return None
