"""What every format says of a profile as a whole, and the names behind the ids of its samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from exhume.host.quantities import SECOND
from exhume.recording.recording import Node, Recording


@dataclass(frozen=True, slots=True)
class Subject:
    """Whose profile it is, and of when."""

    node: Node
    hz: int
    """Samples a second of each core, 0 where not known."""
    event: str
    start: int
    end: int
    """On the recording's clock; the end is outside."""
    start_real: int
    """The wall clock at its begin, nanoseconds."""

    @property
    def period_ns(self) -> int:
        """The time that a sample stands for, 0 where not known."""
        return round(SECOND / self.hz) if self.hz > 0 else 0

    @property
    def title(self) -> str:
        return f"{self.node.hostname}, Linux {self.node.kernel}" if self.node.kernel else self.node.hostname


class Frame(NamedTuple):
    name: str
    module: str
    kernel: bool


class Thread(NamedTuple):
    pid: int
    tid: int
    comm: str
    process: str
    cgroup: str


Labels = tuple[tuple[str, str | int], ...]


class Row(NamedTuple):
    """Samples that are the same: what is said of them, where they were (the outermost caller first), how many."""

    labels: Labels
    stack: tuple[int, ...]
    count: int  # type: ignore[assignment]  # a tuple's own count() is not missed


UNKNOWN = Frame("[unknown]", "", False)
IDLE = Frame("idle", "[kernel]", True)
NOBODY = Thread(-1, -1, "[unknown]", "[unknown]", "")


class Names:
    """Stacks as lists of frames: those that look the same are the same frame, whatever their ids."""

    def __init__(self, dictionaries: Recording) -> None:
        self.frames: list[Frame] = []
        """By number; grows with `number`."""
        self._numbers: dict[Frame, int] = {}
        frames = dictionaries["frames"]
        columns = (frames.texts("name"), frames.texts("module"), frames.texts("space"), frames.ints("offset").tolist())
        found = (self.number(frame(*row)) for row in zip(*columns, strict=True))
        self._frames = dict(zip(frames.ints("id").tolist(), found, strict=True))
        stacks = dictionaries["stacks"]
        columns_of_stacks = (stacks.ints("id").tolist(), stacks.texts("class"), stacks.lists("frames"))
        self._stacks = {one: (kind, frames) for one, kind, frames in zip(*columns_of_stacks, strict=True)}
        self._threads = threads(dictionaries)

    def number(self, frame: Frame) -> int:
        found = self._numbers.get(frame)
        if found is None:
            found = self._numbers[frame] = len(self.frames)
            self.frames.append(frame)
        return found

    def stack(self, one: int) -> tuple[int, ...]:
        """Numbers of frames, the outermost caller first. There is always one, where nothing is known it is [unknown]."""
        frames: Sequence[int] = self._stacks.get(one, ("", ()))[1]
        known = self._frames
        try:
            found = tuple([known[frame] for frame in frames])
        except KeyError:  # its name was lost
            found = tuple(known[frame] if frame in known else self.number(UNKNOWN) for frame in frames)
        return found or (self.number(UNKNOWN),)

    def kind(self, one: int) -> str:
        """idle, user, system, softirq or irq; "" of a stack that was lost."""
        return self._stacks.get(one, ("", ()))[0]

    def thread(self, one: int) -> Thread:
        return self._threads.get(one, NOBODY)


def threads(dictionaries: Recording) -> dict[int, Thread]:
    return {
        row["id"]: Thread(
            row["pid"], row["tid"], row["comm"] or "[unknown]", row["process"] or row["comm"] or "[unknown]", row["cgroup"]
        )
        for row in dictionaries["threads"].rows()
    }


def frame(name: str, module: str, space: str, offset: int) -> Frame:
    """One without a name is called by its place, as in flame graphs (render/flame.py)."""
    if not name:
        place = module.rsplit("/", 1)[-1] + (f"+0x{offset:x}" if offset >= 0 else "")
        name = f"[unknown] ({place})" if module else "[unknown]"
    return Frame(name, module, space == "kernel")
